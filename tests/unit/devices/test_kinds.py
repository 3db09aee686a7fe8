import pytest

from accelerate.devices.kinds import KINDS, OOM_MESSAGES
from accelerate.options.enums import DistributedType


def test_kinds_are_looked_for_in_the_order_of_the_interface():
    assert list(KINDS) == [
        "xla",
        "mps",
        "mlu",
        "sdaa",
        "musa",
        "npu",
        "hpu",
        "cuda",
        "xpu",
        "neuron",
        "cpu",
    ]


@pytest.mark.parametrize(
    ("kind", "distributed_type", "backend"),
    [
        ("cpu", "MULTI_CPU", "gloo"),
        ("cuda", "MULTI_GPU", "nccl"),
        ("mps", "NO", "gloo"),
        ("xpu", "MULTI_XPU", "xccl"),
        ("npu", "MULTI_NPU", "hccl"),
        ("mlu", "MULTI_MLU", "cncl"),
        ("sdaa", "MULTI_SDAA", "tccl"),
        ("musa", "MULTI_MUSA", "mccl"),
        ("hpu", "MULTI_HPU", "hccl"),
        ("neuron", "MULTI_NEURON", "neuron"),
        ("xla", "XLA", "xla"),
    ],
)
def test_names_of_the_interface(kind, distributed_type, backend):
    assert KINDS[kind].type == kind
    assert KINDS[kind].distributed_type is DistributedType(distributed_type)
    assert KINDS[kind].backend == backend


def test_each_hiding_variable_belongs_to_one_kind():
    names = [kind.visible_variable for kind in KINDS.values() if kind.visible_variable]
    assert len(set(names)) == len(names)
    assert "CUDA_VISIBLE_DEVICES" in names


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "HIP out of memory. Tried to allocate",
        "MPS backend out of memory (MPS allocated: 1 GB)",
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear",
        "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried",
        "synStatus=26 FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::1 (1)MB",
    ],
)
def test_out_of_memory_of_every_kind_is_recognised(text):
    assert any(message in text for message in OOM_MESSAGES)


@pytest.mark.parametrize("text", ["out of memory", "shape mismatch", "MODULE:PT_DEVMEM Allocation"])
def test_other_errors_are_not(text):
    assert not any(message in text for message in OOM_MESSAGES)
