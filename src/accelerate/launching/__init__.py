"""Ways to start the ranks, each one object."""
