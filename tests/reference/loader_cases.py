"""Loaders that are prepared in every way: what the recording and the test have in common."""

import itertools
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

LENGTHS = (1, 2, 5, 8, 13)
BATCH_SIZES = (2, 3, 6)
KINDS = ("map", "stream")
FLAGS = ("drop_last", "even_batches", "split_batches", "dispatch_batches")


class Stream(IterableDataset[int]):
    """The first numbers, one after the other."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))


def cases(num_ranks: int) -> Iterator[dict[str, Any]]:
    """Yield every combination of length, batch size, kind of dataset and flags that is no error."""
    for length, batch_size, kind in itertools.product(LENGTHS, BATCH_SIZES, KINDS):
        for values in itertools.product((False, True), repeat=len(FLAGS)):
            flags = dict(zip(FLAGS, values, strict=True))
            if flags["split_batches"] and batch_size % num_ranks:
                continue  # an error
            yield {"length": length, "batch_size": batch_size, "kind": kind, **flags}


def read(case: dict[str, Any], accelerator: Any, settings: Any) -> list[Any]:
    """Return what this rank sees of one pass.

    Args:
        case: one of `cases`.
        accelerator: of this rank.
        settings: the class `DataLoaderConfiguration`.

    Returns:
        This rank's batches; the length of the loader; the remainder that stands in the gradient state with
        the last batch; and what `gather_for_metrics` makes of all batches, where ranks have equally many.
    """
    dataset = range(case["length"]) if case["kind"] == "map" else Stream(case["length"])
    accelerator.dataloader_config = settings(
        split_batches=case["split_batches"],
        dispatch_batches=case["dispatch_batches"],
        even_batches=case["even_batches"],
    )
    loader = DataLoader(dataset, batch_size=case["batch_size"], drop_last=case["drop_last"])
    loader = accelerator.prepare_data_loader(loader)
    batches, metrics, end = [], [], None
    # With batches that rank 0 deals out, some ranks of the reference get none, and the others wait for them.
    gathers = case["even_batches"] and not case["dispatch_batches"]
    for batch in loader:
        state = accelerator.gradient_state
        if state.end_of_dataloader:
            end = state.remainder
        batches.append(batch.tolist())
        if gathers:
            metrics += accelerator.gather_for_metrics(batch).tolist()
    accelerator._dataloaders.clear()
    length = len(loader) if case["kind"] == "map" else None
    return [batches, length, end, metrics if gathers else None]


def outcomes(accelerator: Any, settings: Any) -> list[Any]:
    """Return what `read` does for each of the cases, or the name of the error; errors come on every rank."""
    found: list[Any] = []
    for case in cases(accelerator.num_processes):
        try:
            found.append(read(case, accelerator, settings))
        except TypeError as error:
            found.append(type(error).__name__)
    return found
