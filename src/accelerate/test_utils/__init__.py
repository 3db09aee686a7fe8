"""The door to helpers for tests, of this package and of those built on it."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.test_utils.checks": [
        "are_the_same_tensors",
        "assert_exception",
        "capture_call_output",
    ],
    "accelerate.test_utils.hardware": [
        "device_count",
        "memory_allocated_func",
        "torch_device",
    ],
    "accelerate.test_utils.marks": [
        "require_bnb",
        "require_cpu",
        "require_cuda",
        "require_cuda_or_hpu",
        "require_cuda_or_xpu",
        "require_fp16",
        "require_fp8",
        "require_huggingface_suite",
        "require_mlu",
        "require_mps",
        "require_multi_device",
        "require_multi_gpu",
        "require_multi_gpu_or_xpu",
        "require_multi_xpu",
        "require_musa",
        "require_non_cpu",
        "require_non_hpu",
        "require_non_torch_xla",
        "require_non_xpu",
        "require_npu",
        "require_pippy",
        "require_sdaa",
        "require_single_device",
        "require_single_gpu",
        "require_single_xpu",
        "require_torch_min_version",
        "require_torchao",
        "require_torchvision",
        "require_tpu",
        "require_transformer_engine",
        "require_transformer_engine_mxfp8",
        "require_xpu",
        "run_first",
        "skip",
        "slow",
    ],
    "accelerate.test_utils.processes": [
        "DEFAULT_LAUNCH_COMMAND",
        "execute_subprocess_async",
        "get_launch_command",
        "get_torch_dist_unique_port",
        "path_in_accelerate_package",
        "pytest_xdist_worker_id",
    ],
    "accelerate.test_utils.training": [
        "RegressionDataset",
        "RegressionModel",
    ],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
