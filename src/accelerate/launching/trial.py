"""An all-reduce of one number between machines, in a process of its own. Started by preflight.py.

python -m accelerate.launching.trial MACHINE NUM_MACHINES ADDRESS PORT BACKEND SECONDS
"""

import sys
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

__all__ = ["main"]

_KEYS = "accelerate/trial"  # in the store; the ranks' own keys have other names


def main(arguments: Sequence[str]) -> None:
    """Take part as one machine; an exception says what failed."""
    machine, num_machines, address, port, backend, seconds = arguments
    timeout = timedelta(seconds=float(seconds))
    store = TCPStore(address, int(port), is_master=False, wait_for_workers=False, timeout=timeout)
    prefixed = PrefixStore(_KEYS, store)
    dist.init_process_group(
        backend, store=prefixed, rank=int(machine), world_size=int(num_machines), timeout=timeout
    )
    total = torch.ones(1, device="cuda" if backend == "nccl" else "cpu")
    dist.all_reduce(total)
    if total.item() != float(num_machines):
        raise RuntimeError(f"RuntimeError: the sum over {num_machines} machines was {total.item()}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
