"""The door to the installer of torch_xla, under the path that client libraries import."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.compat.colab": ["install_xla"],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
