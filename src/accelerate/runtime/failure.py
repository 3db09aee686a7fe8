"""Tell torch elastic why this rank failed. Installed by the start of a process group."""


def install_excepthook() -> None:
    """Replaced by the launch branch."""
