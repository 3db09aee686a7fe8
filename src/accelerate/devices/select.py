"""Choose the kind of hardware of this process, once. Called by the start of the current run.

`choose` is pure but for asking the kinds whether they are there; `select` also writes the variables that
torch should find.
"""

from collections.abc import Mapping

import torch

from accelerate.compat import env
from accelerate.devices.base import Device
from accelerate.devices.kinds import KINDS
from accelerate.errors import EnvironmentVariableError

__all__ = ["choose", "select"]

_OVERRIDE = "ACCELERATE_TORCH_DEVICE"
_USE_CPU = "ACCELERATE_USE_CPU"


def select(environ: Mapping[str, str], *, cpu: bool = False) -> Device:
    """Choose the kind of hardware and set the variables that torch needs for it.

    Writes PYTORCH_ENABLE_MPS_FALLBACK=1 into the environment when Metal is chosen and the variable is unset.

    Args:
        environ: the environment to read.
        cpu: take the CPU also where an accelerator is present.

    Raises:
        EnvironmentVariableError: ACCELERATE_TORCH_DEVICE or ACCELERATE_USE_CPU cannot be read.
        MissingPackageError: ACCELERATE_TORCH_DEVICE names a kind whose package is not installed.
    """
    device = choose(environ, cpu=cpu)
    env.put({name: value for name, value in device.environment.items() if name not in environ})
    return device


def choose(environ: Mapping[str, str], *, cpu: bool = False, kinds: Mapping[str, Device] = KINDS) -> Device:
    """Return what ACCELERATE_TORCH_DEVICE names, else the CPU if asked for, else the first found.

    Args:
        environ: the environment to read.
        cpu: take the CPU also where an accelerator is present.
        kinds: the table to choose from, in order; it must hold "cpu".

    Example:
        >>> choose({}, cpu=True).type, choose({"ACCELERATE_USE_CPU": "yes"}).type
        ('cpu', 'cpu')
        >>> from accelerate.devices.fake import FakeDevice
        >>> choose({}, kinds={"cuda": FakeDevice(count=2), "cpu": KINDS["cpu"]}).count()
        2
    """
    override = environ.get(_OVERRIDE, "").strip()
    if override:
        return _named(override, environ, cpu=cpu, kinds=kinds)
    if cpu or _asks_for_cpu(environ):
        return kinds["cpu"]
    return next((kind for kind in kinds.values() if kind.is_available()), kinds["cpu"])


def _asks_for_cpu(environ: Mapping[str, str]) -> bool:
    text = environ.get(_USE_CPU)
    if text is None:
        return False
    try:
        return bool(env.str_to_bool(text))
    except EnvironmentVariableError as error:
        raise EnvironmentVariableError(f"{_USE_CPU}={text!r} in the environment: {error}") from None


def _named(text: str, environ: Mapping[str, str], *, cpu: bool, kinds: Mapping[str, Device]) -> Device:
    kind = kinds.get(text.partition(":")[0])
    if kind is not None:
        kind.load()
    try:
        device = torch.device(text)
    except RuntimeError as error:
        raise EnvironmentVariableError(
            f"{_OVERRIDE}={text!r} in the environment is not a device. Use a kind, with an index or without, "
            f"such as 'cpu', 'cuda' or 'cuda:1'; known kinds are {', '.join(kinds)}. torch says: {error}"
        ) from None
    if kind is None:  # a device such as "meta", which holds tensors but runs no processes of its own
        without = {name: value for name, value in environ.items() if name != _OVERRIDE}
        return choose(without, cpu=cpu, kinds=kinds).pinned(device)
    return kind if device.index is None else kind.pinned(device)
