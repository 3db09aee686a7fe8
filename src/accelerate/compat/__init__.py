"""What depends on the interpreter, the environment and installed packages."""
