"""The kinds of hardware, each one object."""
