"""Number formats of a training step, each one object."""
