"""What the package needs to know about Python, the operating system and other packages; torch-free."""
