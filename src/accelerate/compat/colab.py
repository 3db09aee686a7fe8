"""Install torch_xla in a Google Colab notebook. Called by users there; nothing inside needs it."""

import subprocess
import sys

from accelerate.compat.versions import installed_version
from accelerate.errors import LaunchError

__all__ = ["install_xla"]


def install_xla(upgrade: bool = False) -> None:
    """Install the torch_xla that belongs to the installed torch, in a notebook of Google Colab.

    Runs pip for the Python of this notebook; restart the runtime afterwards.

    Args:
        upgrade: install the newest torch first.

    Raises:
        LaunchError: this is not a notebook of Google Colab (a RuntimeError).
        subprocess.CalledProcessError: pip failed.
    """
    if not _in_colab():
        raise LaunchError(
            "install_xla() works in a notebook of Google Colab only. Elsewhere run "
            "`pip install 'torch_xla[tpu]'`, in the release of your torch."
        )
    if upgrade:
        _pip_install("--upgrade", "torch")
        installed_version.cache_clear()
    release = installed_version("torch")
    _pip_install(f"torch_xla[tpu]=={release.major}.{release.minor}.*")


def _in_colab() -> bool:
    # IPython is there whenever a notebook runs; this asks without loading it anywhere else.
    ipython = sys.modules.get("IPython")
    return ipython is not None and "google.colab" in str(ipython.get_ipython())


def _pip_install(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "install", *arguments], check=True)
