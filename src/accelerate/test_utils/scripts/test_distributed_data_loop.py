"""Check that ranks share the samples of a loader as they should. Run by `accelerate test`.

Alone: `accelerate launch test_distributed_data_loop.py`.
"""

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from accelerate.accelerator import Accelerator
from accelerate.data.skip import skip_first_batches
from accelerate.options.data import DataLoaderConfiguration
from accelerate.runtime.collectives import gather_object
from accelerate.runtime.rng import set_seed
from accelerate.test_utils.scripts.report import Skipped, expect, run

_BATCH = 2  # samples per rank


def _numbers(length: int, **settings: Any) -> "DataLoader[Any]":
    """Return a loader of 0, 1, ... length - 1."""
    return DataLoader(TensorDataset(torch.arange(length)), batch_size=_BATCH, **settings)


def _seen(accelerator: Accelerator, loader: Any) -> list[list[int]]:
    """Return what each rank gets in a pass."""
    own = [int(sample) for (batch,) in loader for sample in batch]
    seen: list[list[int]] = gather_object([own])
    return seen


def check_once(accelerator: Accelerator) -> None:
    """Each sample goes to one rank, batches go to the ranks in turn, and they are on the device."""
    size = accelerator.num_processes
    loader = accelerator.prepare(_numbers(3 * _BATCH * size))
    seen = _seen(accelerator, loader)
    wanted = [
        [(turn * size + rank) * _BATCH + index for turn in range(3) for index in range(_BATCH)]
        for rank in range(size)
    ]
    expect(seen, wanted, "what the ranks see")
    for (batch,) in loader:
        expect(batch.device.type, accelerator.device.type, "the kind of device of a batch")


def check_even(accelerator: Accelerator) -> None:
    """Where samples do not suffice, all ranks get equally many all the same, and nothing is left out."""
    length = 2 * _BATCH * accelerator.num_processes + 1
    seen = _seen(accelerator, accelerator.prepare(_numbers(length)))
    # One process repeats nothing: it has nobody to wait for.
    expect(len({len(own) for own in seen}), 1, "how many different numbers of samples the ranks get")
    expect({sample for own in seen for sample in own}, set(range(length)), "what all ranks see together")


def check_uneven(accelerator: Accelerator) -> None:
    """With even_batches=False each sample comes exactly once."""
    length = 2 * _BATCH * accelerator.num_processes + 1
    loader = Accelerator(dataloader_config=DataLoaderConfiguration(even_batches=False)).prepare(
        _numbers(length)
    )
    seen = _seen(accelerator, loader)
    expect(sorted(sample for own in seen for sample in own), list(range(length)), "what all ranks see")


def check_split(accelerator: Accelerator) -> None:
    """With split_batches=True a batch is shared among the ranks."""
    size = accelerator.num_processes
    batches = DataLoader(TensorDataset(torch.arange(4 * size)), batch_size=2 * size)
    loader = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True)).prepare(batches)
    seen = _seen(accelerator, loader)
    wanted = [
        [first + 2 * rank + index for first in (0, 2 * size) for index in (0, 1)] for rank in range(size)
    ]
    expect(seen, wanted, "what the ranks see")


def check_shuffled(accelerator: Accelerator) -> None:
    """Shuffled, the ranks still share one order: each sample comes once, in another order in each pass."""
    set_seed(7)
    length = 16 * _BATCH * accelerator.num_processes
    loader = accelerator.prepare(_numbers(length, shuffle=True))
    first, second = _seen(accelerator, loader), _seen(accelerator, loader)
    for seen in (first, second):
        expect(sorted(sample for own in seen for sample in own), list(range(length)), "what all ranks see")
    expect(first == second, False, "whether two passes have the same order")


def check_metrics(accelerator: Accelerator) -> None:
    """What was repeated to make the last batch even is dropped by gather_for_metrics."""
    length = 2 * _BATCH * accelerator.num_processes + 1
    loader = accelerator.prepare(_numbers(length))
    gathered = [int(sample) for (batch,) in loader for sample in accelerator.gather_for_metrics(batch)]
    expect(gathered, list(range(length)), "what was gathered")


def check_skip(accelerator: Accelerator) -> None:
    """A pass that goes on after its first batch goes on where it stopped."""
    loader = accelerator.prepare(_numbers(3 * _BATCH * accelerator.num_processes))
    whole = _seen(accelerator, loader)
    rest = _seen(accelerator, skip_first_batches(loader, 1))
    expect(rest, [own[_BATCH:] for own in whole], "what is left of the pass")


def check_join(accelerator: Accelerator) -> None:
    """Ranks with fewer batches wait for the others inside join_uneven_inputs."""
    if accelerator.num_processes == 1:
        raise Skipped("one process has nobody to wait for")
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    own = [torch.ones(1, 1, device=accelerator.device)] * (1 + accelerator.process_index)
    with accelerator.join_uneven_inputs([model]):
        for batch in own:
            accelerator.backward(model(batch).sum())


CHECKS = {
    "each sample goes to one rank": check_once,
    "all ranks get equally many batches": check_even,
    "even_batches=False repeats nothing": check_uneven,
    "split_batches=True shares each batch": check_split,
    "ranks share one shuffled order": check_shuffled,
    "gather_for_metrics drops repeated samples": check_metrics,
    "skip_first_batches": check_skip,
    "join_uneven_inputs": check_join,
}


def main() -> None:
    """Run the checks of this script."""
    run("data loop", CHECKS)
    Accelerator().end_training()


if __name__ == "__main__":
    main()
