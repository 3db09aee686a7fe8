<<<<<<< HEAD
"""What depends on the interpreter, the environment and installed packages."""
=======
"""What the package needs to know about Python, the operating system and other packages; torch-free."""
>>>>>>> compat
