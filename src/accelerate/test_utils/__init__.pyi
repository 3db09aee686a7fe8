# Written by tools/door_stubs.py from the table in __init__.py: change that and run it again.

from accelerate.test_utils import cases as cases
from accelerate.test_utils import checks as checks
from accelerate.test_utils import examples as examples
from accelerate.test_utils import hardware as hardware
from accelerate.test_utils import marks as marks
from accelerate.test_utils import processes as processes
from accelerate.test_utils import scripts as scripts
from accelerate.test_utils import testing as testing
from accelerate.test_utils import training as training
from accelerate.test_utils.checks import (
    are_the_same_tensors as are_the_same_tensors,
    assert_exception as assert_exception,
    capture_call_output as capture_call_output,
)
from accelerate.test_utils.hardware import (
    device_count as device_count,
    memory_allocated_func as memory_allocated_func,
    torch_device as torch_device,
)
from accelerate.test_utils.marks import (
    require_bnb as require_bnb,
    require_cpu as require_cpu,
    require_cuda as require_cuda,
    require_cuda_or_hpu as require_cuda_or_hpu,
    require_cuda_or_xpu as require_cuda_or_xpu,
    require_fp16 as require_fp16,
    require_fp8 as require_fp8,
    require_huggingface_suite as require_huggingface_suite,
    require_mlu as require_mlu,
    require_mps as require_mps,
    require_multi_device as require_multi_device,
    require_multi_gpu as require_multi_gpu,
    require_multi_gpu_or_xpu as require_multi_gpu_or_xpu,
    require_multi_xpu as require_multi_xpu,
    require_musa as require_musa,
    require_non_cpu as require_non_cpu,
    require_non_hpu as require_non_hpu,
    require_non_torch_xla as require_non_torch_xla,
    require_non_xpu as require_non_xpu,
    require_npu as require_npu,
    require_pippy as require_pippy,
    require_sdaa as require_sdaa,
    require_single_device as require_single_device,
    require_single_gpu as require_single_gpu,
    require_single_xpu as require_single_xpu,
    require_torch_min_version as require_torch_min_version,
    require_torchao as require_torchao,
    require_torchvision as require_torchvision,
    require_tpu as require_tpu,
    require_transformer_engine as require_transformer_engine,
    require_transformer_engine_mxfp8 as require_transformer_engine_mxfp8,
    require_xpu as require_xpu,
    run_first as run_first,
    skip as skip,
    slow as slow,
)
from accelerate.test_utils.processes import (
    DEFAULT_LAUNCH_COMMAND as DEFAULT_LAUNCH_COMMAND,
    execute_subprocess_async as execute_subprocess_async,
    get_launch_command as get_launch_command,
    get_torch_dist_unique_port as get_torch_dist_unique_port,
    path_in_accelerate_package as path_in_accelerate_package,
    pytest_xdist_worker_id as pytest_xdist_worker_id,
)
from accelerate.test_utils.training import (
    RegressionDataset as RegressionDataset,
    RegressionModel as RegressionModel,
)

__all__ = [
    "DEFAULT_LAUNCH_COMMAND",
    "RegressionDataset",
    "RegressionModel",
    "are_the_same_tensors",
    "assert_exception",
    "capture_call_output",
    "device_count",
    "execute_subprocess_async",
    "get_launch_command",
    "get_torch_dist_unique_port",
    "memory_allocated_func",
    "path_in_accelerate_package",
    "pytest_xdist_worker_id",
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
    "torch_device",
]
