"""Instances of public classes, whose attributes the surface test looks at. One row each.

A class whose record lists attributes of instances needs a row, unless all of them are on the class.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from accelerate.accelerator import Accelerator
from accelerate.commands.config.config_args import BaseConfig
from accelerate.commands.launch import CustomHelpFormatter
from accelerate.data_loader import (
    BatchSamplerShard,
    DataLoaderAdapter,
    IterableDatasetShard,
    SeedableRandomSampler,
    SkipBatchSampler,
    SkipDataLoader,
)
from accelerate.hooks import (
    AlignDevicesHook,
    CpuOffload,
    LayerwiseCastingHook,
    SequentialHook,
    UserCpuOffloadHook,
)
from accelerate.options.enums import ComputeEnvironment, DistributedType
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils.launch import PrepareForLaunch
from accelerate.utils.operations import ConvertOutputsToFp32

DATA = range(8)


class Stream(IterableDataset[int]):
    """The same items, without a length."""

    def __iter__(self) -> Iterator[int]:
        return iter(DATA)


def _batches() -> BatchSampler:
    return BatchSampler(SequentialSampler(DATA), batch_size=2, drop_last=False)


def _accelerator() -> Accelerator:
    return Accelerator(cpu=True)


def _accelerator_state() -> AcceleratorState:
    _accelerator()
    return AcceleratorState()


def _gradient_state() -> GradientState:
    _accelerator()
    return GradientState()


def _optimizer() -> Any:
    return _accelerator().prepare(torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1))


def _scheduler() -> Any:
    optimizer = _optimizer()
    return _accelerator().prepare(torch.optim.lr_scheduler.ConstantLR(optimizer))


def _loader() -> Any:
    return _accelerator().prepare(DataLoader(DATA, batch_size=2))


def _dispatcher() -> Any:
    return _accelerator().prepare(DataLoader(Stream(), batch_size=2))


EXAMPLES: Mapping[str, Callable[[], Any]] = {
    "accelerate.accelerator.Accelerator": _accelerator,
    "accelerate.commands.config.config_args.BaseConfig": lambda: BaseConfig(
        ComputeEnvironment.LOCAL_MACHINE, DistributedType.NO, "no", False, False
    ),
    "accelerate.commands.launch.CustomHelpFormatter": lambda: CustomHelpFormatter("accelerate"),
    "accelerate.data_loader.BatchSamplerShard": lambda: BatchSamplerShard(_batches()),
    "accelerate.data_loader.DataLoaderAdapter": lambda: DataLoaderAdapter(DATA),
    "accelerate.data_loader.DataLoaderDispatcher": _dispatcher,
    "accelerate.data_loader.DataLoaderShard": _loader,
    "accelerate.data_loader.IterableDatasetShard": lambda: IterableDatasetShard(Stream(), batch_size=2),
    "accelerate.data_loader.SeedableRandomSampler": lambda: SeedableRandomSampler(DATA),
    "accelerate.data_loader.SkipBatchSampler": lambda: SkipBatchSampler(_batches()),
    "accelerate.data_loader.SkipDataLoader": lambda: SkipDataLoader(DATA),
    "accelerate.hooks.AlignDevicesHook": AlignDevicesHook,
    "accelerate.hooks.CpuOffload": CpuOffload,
    "accelerate.hooks.LayerwiseCastingHook": lambda: LayerwiseCastingHook(
        torch.float16, torch.float32, False
    ),
    "accelerate.hooks.SequentialHook": SequentialHook,
    "accelerate.hooks.UserCpuOffloadHook": lambda: UserCpuOffloadHook(torch.nn.Identity(), CpuOffload()),
    "accelerate.optimizer.AcceleratedOptimizer": _optimizer,
    "accelerate.scheduler.AcceleratedScheduler": _scheduler,
    "accelerate.state.AcceleratorState": _accelerator_state,
    "accelerate.state.GradientState": _gradient_state,
    "accelerate.state.PartialState": lambda: PartialState(cpu=True),
    "accelerate.utils.launch.PrepareForLaunch": lambda: PrepareForLaunch(print),
    "accelerate.utils.operations.ConvertOutputsToFp32": lambda: ConvertOutputsToFp32(abs),
}
