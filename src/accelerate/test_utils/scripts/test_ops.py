"""Check the operations in which all ranks take part: gather, reduce, broadcast, pad. For `accelerate test`.

Alone: `accelerate launch test_ops.py`.
"""

import torch

from accelerate.accelerator import Accelerator
from accelerate.runtime.collectives import (
    broadcast,
    broadcast_object_list,
    gather,
    gather_object,
    pad_across_processes,
    reduce,
)
from accelerate.test_utils.checks import are_the_same_tensors
from accelerate.test_utils.scripts.report import expect, run


def _own(accelerator: Accelerator, length: int = 3) -> torch.Tensor:
    """Return numbers that no other rank has."""
    start = accelerator.process_index * length
    return torch.arange(start, start + length, device=accelerator.device)


def check_gather(accelerator: Accelerator) -> None:
    """Rows of all ranks come in the order of ranks."""
    size = accelerator.num_processes
    expect(gather(_own(accelerator)), torch.arange(3 * size))


def check_gather_nested(accelerator: Accelerator) -> None:
    """Containers keep their shape, and each tensor its dtype."""
    size = accelerator.num_processes
    own = {"x": (_own(accelerator), [_own(accelerator).float() / 2]), "y": _own(accelerator) % 2 == 0}
    found = gather(own)
    expect(found["x"][0], torch.arange(3 * size))
    expect(found["x"][1][0], torch.arange(3 * size).float() / 2)
    expect(found["y"], torch.arange(3 * size) % 2 == 0)


def check_gather_object(accelerator: Accelerator) -> None:
    """Lists of Python objects are joined in the order of ranks."""
    found = gather_object([{"rank": accelerator.process_index}])
    expect(found, [{"rank": rank} for rank in range(accelerator.num_processes)])


def check_reduce(accelerator: Accelerator) -> None:
    """Sum and mean are those over all ranks."""
    size = accelerator.num_processes
    own = torch.full((2,), float(accelerator.process_index + 1), device=accelerator.device)
    total = size * (size + 1) / 2
    expect(reduce(own, "sum"), torch.full((2,), total), "the sum")
    expect(reduce(own, "mean"), torch.full((2,), total / size), "the mean")
    expect(own, torch.full((2,), float(accelerator.process_index + 1)), "what was passed")


def check_broadcast(accelerator: Accelerator) -> None:
    """All ranks get the values of one, the first or the last."""
    size = accelerator.num_processes
    expect(broadcast(_own(accelerator)), torch.arange(3))
    expect(broadcast(_own(accelerator), from_process=size - 1), torch.arange(3 * (size - 1), 3 * size))


def check_broadcast_objects(accelerator: Accelerator) -> None:
    """A list of Python objects is that of the first rank."""
    expect(broadcast_object_list([accelerator.process_index, "text"]), [0, "text"])


def check_pad(accelerator: Accelerator) -> None:
    """Tensors of different lengths become as long as the longest."""
    rank, size = accelerator.process_index, accelerator.num_processes
    own = torch.ones(rank + 1, device=accelerator.device)
    after = torch.cat([torch.ones(rank + 1), torch.zeros(size - 1 - rank)])
    expect(pad_across_processes(own), after, "padding after the data")
    expect(pad_across_processes(own, pad_first=True), after.flip(0), "padding before the data")


def check_same(accelerator: Accelerator) -> None:
    """Equal tensors are told from different ones."""
    equal = torch.ones(2, device=accelerator.device)
    expect(are_the_same_tensors(equal), True, "are_the_same_tensors of equal tensors")
    own = _own(accelerator)
    expect(are_the_same_tensors(own), accelerator.num_processes == 1, "the answer for different tensors")


def check_trigger(accelerator: Accelerator) -> None:
    """A trigger that one rank sets is seen by all, once."""
    expect(accelerator.check_trigger(), False, "the trigger before it is set")
    if accelerator.is_last_process:
        accelerator.set_trigger()
    expect(accelerator.check_trigger(), True, "the trigger after one rank set it")
    expect(accelerator.check_trigger(), False, "the trigger after it was seen")


CHECKS = {
    "gather keeps the order of ranks": check_gather,
    "gather of nested containers": check_gather_nested,
    "gather_object": check_gather_object,
    "reduce by sum and mean": check_reduce,
    "broadcast from the first and the last rank": check_broadcast,
    "broadcast_object_list": check_broadcast_objects,
    "pad_across_processes": check_pad,
    "equal tensors are told from different ones": check_same,
    "a trigger of one rank reaches all": check_trigger,
}


def main() -> None:
    """Run the checks of this script."""
    run("operations", CHECKS)
    Accelerator().end_training()


if __name__ == "__main__":
    main()
