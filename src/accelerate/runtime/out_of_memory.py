"""Tell whether an exception means that a device or the host had too little memory. Called by `batch_size`."""

import torch

__all__ = ["should_reduce_batch_size"]

# What allocators and the libraries that allocate for themselves say, in a RuntimeError.
_MESSAGES = (
    " out of memory.",
    "CUDA error: out of memory",  # of the runtime itself: contexts, pinned memory
    "MPS backend out of memory",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "PT_DEVMEM Allocation failed",  # TPU
    "RESOURCE_EXHAUSTED",  # TPU
)


def should_reduce_batch_size(exception: Exception) -> bool:
    """Return whether `exception` means that memory was too small, so that a smaller batch may go.

    Example:
        >>> should_reduce_batch_size(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))
        True
        >>> should_reduce_batch_size(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
        False
    """
    if isinstance(exception, torch.OutOfMemoryError):
        return True
    if not isinstance(exception, RuntimeError) or len(exception.args) != 1:
        return False
    message = exception.args[0]
    return isinstance(message, str) and any(text in message for text in _MESSAGES)
