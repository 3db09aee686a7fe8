"""How a script checks: one line a check, and a failure that names check and rank. Called by every script.

Every rank runs all checks in the same order. The rank on which one fails says so and ends; the launcher
then ends the others, which may be waiting for it.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from accelerate.accelerator import Accelerator
from accelerate.state import AcceleratorState, GradientState

__all__ = ["Check", "Skipped", "expect", "expect_close", "run", "tell_where"]

Check = Callable[[Accelerator], None]


class Skipped(Exception):
    """Raised by a check that cannot be made here, on every rank; the message says why."""


def expect(found: Any, wanted: Any, what: str = "the result") -> None:
    """Fail unless `found` is equal to `wanted`; for tensors, in all elements, shape and dtype."""
    if isinstance(wanted, torch.Tensor):
        is_equal = isinstance(found, torch.Tensor) and found.dtype == wanted.dtype
        is_equal = is_equal and torch.equal(found.cpu(), wanted.cpu())
    else:
        is_equal = bool(found == wanted)
    if not is_equal:
        raise AssertionError(f"{what} is {found}, but must be {wanted}")


def expect_close(found: torch.Tensor, wanted: torch.Tensor, what: str, tolerance: float = 1e-4) -> None:
    """Fail unless two tensors are equal up to the order of sums, relatively and absolutely."""
    if not torch.allclose(found.detach().cpu(), wanted.detach().cpu(), rtol=tolerance, atol=tolerance):
        raise AssertionError(f"{what} is {found.tolist()}, but must be {wanted.tolist()} within {tolerance}")


def tell_where() -> None:
    """Print, once, on what the checks run."""
    accelerator = Accelerator()
    state = accelerator.state
    accelerator.print(
        f"torch {torch.__version__}, {accelerator.num_processes} process(es), "
        f"{accelerator.distributed_type}, device {accelerator.device.type}, backend {state.backend}"
    )


def run(title: str, checks: Mapping[str, Check]) -> None:
    """Run all checks and print a line for each. Every rank calls this.

    Args:
        title: what they are about.
        checks: what is checked -> the function that checks it. It gets an `Accelerator` of its own.

    Raises:
        Exception: what the first failing check raised, on the rank on which it failed.
    """
    for name, check in checks.items():
        began = time.perf_counter()
        accelerator = _fresh()
        told = "ok"
        try:
            check(accelerator)
        except Skipped as reason:
            told = f"skipped: {reason}"
        except Exception as error:
            where = f"rank {accelerator.process_index} of {accelerator.num_processes}"
            print(f"{title}: {name} ... FAILED on {where}: {type(error).__name__}: {error}", flush=True)
            raise
        accelerator.wait_for_everyone()
        accelerator.print(f"{title}: {name} ... {told} ({time.perf_counter() - began:.2f} s)", flush=True)
        accelerator.wait_for_everyone()  # a failure of the next check is told after this line


def _fresh() -> Accelerator:
    """Return an Accelerator that knows nothing of those before, in the same process group."""
    AcceleratorState._reset_state()
    GradientState._reset_state()
    return Accelerator()
