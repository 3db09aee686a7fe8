"""DataLoaderConfiguration: how prepared loaders share their data. Read by the facade and by `data/`."""

import dataclasses

from accelerate.compat.probes import is_torchdata_stateful_dataloader_available
from accelerate.errors import MissingPackageError
from accelerate.options.field import option

__all__ = ["DataLoaderConfiguration"]


@dataclasses.dataclass
class DataLoaderConfiguration:
    """Choose how prepared loaders share their data over the ranks.

    Args:
        split_batches: whether a batch of the loader is the global one, split over the ranks; otherwise each
            rank gets whole batches and the global one is that many times larger.
        dispatch_batches: whether only rank 0 reads and sends every rank its part; None means only for
            iterable datasets.
        even_batches: whether the last batches are filled from the first ones, so that all ranks get alike.
        use_seedable_sampler: whether shuffling is by a sampler whose order depends on seed and epoch alone.
        data_seed: seed of that sampler; torch's own seed when None.
        non_blocking: whether copies to the device run beside the computation (needs pinned memory).
        use_stateful_dataloader: whether the loaders are torchdata's StatefulDataLoader.

    Raises:
        MissingPackageError: `use_stateful_dataloader` without torchdata 0.8.0 or later.

    Example:
        >>> from accelerate import DataLoaderConfiguration
        >>> DataLoaderConfiguration(split_batches=True).even_batches
        True
    """

    split_batches: bool = option(False, help="split each batch of the loader over the ranks")
    dispatch_batches: bool | None = option(None, help="only rank 0 reads and sends every rank its part")
    even_batches: bool = option(True, help="fill the last batches from the first ones")
    use_seedable_sampler: bool = option(False, help="shuffle by seed and epoch alone")
    data_seed: int | None = option(None, help="seed of the seedable sampler")
    non_blocking: bool = option(False, help="copies to the device run beside the computation")
    use_stateful_dataloader: bool = option(False, help="use torchdata's StatefulDataLoader")

    def __post_init__(self) -> None:
        if self.use_stateful_dataloader and not is_torchdata_stateful_dataloader_available():
            raise MissingPackageError(
                "DataLoaderConfiguration(use_stateful_dataloader=True) needs torchdata 0.8.0 or later: "
                "run `pip install torchdata`, or leave use_stateful_dataloader out"
            )
