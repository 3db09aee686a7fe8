"""find_executable_batch_size in one process; that of several ranks: tests/distributed/test_batch_size.py."""

import gc
import weakref

import pytest
import torch
from torch import nn

from accelerate.runtime.batch_size import find_executable_batch_size
from accelerate.runtime.out_of_memory import should_reduce_batch_size

NO_MEMORY = "CUDA out of memory. Tried to allocate 20.00 MiB"


def needs(limit, tried):
    """Return a function that fits up to `limit` samples, and notes what it was called with."""

    def train(batch_size, *args, **kwargs):
        tried.append(batch_size)
        if batch_size > limit:
            raise RuntimeError(NO_MEMORY)
        return batch_size, args, kwargs

    return train


def test_sizes_shrink_by_a_tenth_until_one_fits_and_it_is_kept():
    tried = []
    train = find_executable_batch_size(needs(10, tried), starting_batch_size=16)
    assert train(1, b=3) == (10, (1,), {"b": 3})
    assert tried == [16, 14, 12, 10]
    train()
    assert tried[4:] == [10]


def test_as_a_decorator_with_and_without_arguments():
    @find_executable_batch_size
    def plain(batch_size):
        return batch_size

    @find_executable_batch_size()
    def called(batch_size):
        return batch_size

    assert (plain(), called(), plain.__name__) == (128, 128, "plain")


def test_the_callers_function_chooses_the_next_size():
    sizes = iter([8, 2])
    tried = []
    find_executable_batch_size(needs(3, tried), 16, lambda: next(sizes))()
    assert tried == [16, 8, 2]


def test_at_zero_it_says_so_and_what_was_last():
    train = find_executable_batch_size(needs(0, []), starting_batch_size=2)
    with pytest.raises(RuntimeError, match=r"No executable batch size found, reached zero\..*20.00 MiB"):
        train()
    with pytest.raises(RuntimeError, match=r"No executable batch size found, reached zero\.$"):
        train()


def test_other_errors_go_through():
    @find_executable_batch_size
    def train(batch_size):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        train()


def test_a_caller_who_passes_the_size_is_told():
    @find_executable_batch_size
    def train(batch_size, rate, steps=2):
        return batch_size

    with pytest.raises(
        TypeError, match=r"Batch size was passed into `train` .*: `train\(rate=0.1, steps=5\)`"
    ):
        train(128, 0.1, 5)


def test_a_function_that_does_not_take_the_size_is_told():
    @find_executable_batch_size
    def train():
        return None

    with pytest.raises(TypeError, match="`train` has to take the batch size as its first"):
        train()

    @find_executable_batch_size(keep_global_batch=True)
    def other(batch_size):
        return batch_size

    with pytest.raises(TypeError, match="the batch size and the accumulation steps"):
        other()


def test_the_global_batch_is_kept_by_accumulation():
    tried = []

    @find_executable_batch_size(starting_batch_size=96, keep_global_batch=True)
    def train(batch_size, gradient_accumulation_steps):
        tried.append((batch_size, gradient_accumulation_steps))
        if batch_size > 20:
            raise RuntimeError(NO_MEMORY)
        return batch_size * gradient_accumulation_steps

    assert train() == 96
    assert tried == [(96, 1), (48, 2), (32, 3), (24, 4), (16, 6)]


def test_what_a_failed_call_made_is_gone_before_the_next():
    alive = []
    seen = []

    @find_executable_batch_size(starting_batch_size=4)
    def train(batch_size):
        seen.append(sum(ref() is not None for ref in alive))
        model = nn.Linear(3, 3)
        model.itself = [model]  # a cycle
        alive.append(weakref.ref(model))
        if batch_size > 2:
            try:
                raise KeyError
            except KeyError:
                raise RuntimeError(NO_MEMORY) from None
        return

    gc.disable()
    try:
        train()
    finally:
        gc.enable()
    assert seen == [0, 0, 0]


def test_torch_runs_out_of_memory_for_real():
    @find_executable_batch_size(starting_batch_size=1 << 48, reduce_batch_size_fn=lambda: 8)
    def train(batch_size):
        return torch.zeros(batch_size, 4).shape

    assert train() == (8, 4)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (torch.OutOfMemoryError("HIP out of memory"), True),
        (RuntimeError("XPU out of memory. Tried"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED."), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("run out of memory"), False),
        (RuntimeError("CUDA out of memory.", 3), False),
        (RuntimeError(7), False),
        (ValueError("CUDA out of memory."), False),
        (MemoryError(), False),
    ],
)
def test_what_means_that_memory_was_too_small(error, verdict):
    assert should_reduce_batch_size(error) is verdict
