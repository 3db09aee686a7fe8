# Written by tools/door_stubs.py from the table in torch_xla.py: change that and run it again.

from accelerate.compat.colab import (
    install_xla as install_xla,
)

__all__ = [
    "install_xla",
]
