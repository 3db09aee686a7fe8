from pathlib import Path

import pytest

from accelerate.launching.machine import TorchBuild, look, torch_build, visible_gpus

CUDA = TorchBuild(version="2.13.0+cu130", platform="CUDA")
CPU_ONLY = TorchBuild(version="2.13.0+cpu", platform=None)


def make_root(folder: Path, gpus: int = 0, cores: int = 2, threads: int = 2, quota: str = "") -> Path:
    (folder / "dev").mkdir()
    for name in ["nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in range(gpus))]:
        (folder / "dev" / name).touch()
    for number in range(cores * threads):
        topology = folder / f"sys/devices/system/cpu/cpu{number}/topology"
        topology.mkdir(parents=True)
        (topology / "core_id").write_text(f"{number % cores}\n")
        (topology / "physical_package_id").write_text("0\n")
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/status").write_text(f"Name:\tx\nCpus_allowed_list:\t0-{cores * threads - 1}\n")
    if quota:
        (folder / "sys/fs/cgroup").mkdir(parents=True)
        (folder / "sys/fs/cgroup/cpu.max").write_text(quota)
    return folder


def test_no_gpu(tmp_path: Path) -> None:
    machine = look({}, make_root(tmp_path), CUDA)
    assert (machine.gpus, machine.installed_gpus, machine.evidence) == (0, 0, "no GPU device under /dev")


def test_counts_device_files_and_not_the_control_devices(tmp_path: Path) -> None:
    machine = look({}, make_root(tmp_path, gpus=2), CUDA)
    assert (machine.gpus, machine.evidence) == (2, "/dev/nvidia0, /dev/nvidia1")


def test_visible_devices_narrow_what_is_there(tmp_path: Path) -> None:
    machine = look({"CUDA_VISIBLE_DEVICES": "1"}, make_root(tmp_path, gpus=4), CUDA)
    assert (machine.gpus, machine.installed_gpus) == (1, 4)
    assert "CUDA_VISIBLE_DEVICES='1'" in machine.evidence


def test_a_torch_for_the_cpu_sees_no_gpu(tmp_path: Path) -> None:
    machine = look({}, make_root(tmp_path, gpus=2), CPU_ONLY)
    assert machine.gpus == 0
    assert "torch 2.13.0+cpu is built for the CPU only" in machine.evidence


def test_amd_gpus_by_the_render_nodes_of_their_driver(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    (root / "dev/dri").mkdir()
    (root / "dev/dri/renderD128").touch()
    for index, minor in enumerate((0, 128, 129)):  # a processor, a GPU, a GPU that is not in this container
        node = root / f"sys/class/kfd/kfd/topology/nodes/{index}"
        node.mkdir(parents=True)
        (node / "properties").write_text(f"simd_count 4\ndrm_render_minor {minor}\n")
    machine = look({}, root, TorchBuild(version="2.13.0+rocm7.1", platform="ROCm"))
    assert (machine.gpus, machine.evidence) == (1, "/dev/dri/renderD128")


@pytest.mark.parametrize(
    ("variable", "count"),
    [("", 0), ("0", 1), ("0,1", 2), ("0,9,1", 1), ("-1", 0), ("1,-1,0", 1), ("GPU-8932f937,GPU-46ab", 2)],
)
def test_visible_gpus_stop_at_the_first_unknown(variable: str, count: int) -> None:
    assert visible_gpus(variable, 4) == count


def test_cores_are_physical_and_within_the_quota(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    assert look({}, make_root(tmp_path / "a", cores=4, threads=2), CUDA).cores == 4
    assert look({}, make_root(tmp_path / "b", cores=4, quota="150000 100000\n"), CUDA).cores == 2
    assert look({}, make_root(tmp_path / "c", cores=4, quota="max 100000\n"), CUDA).cores == 4


def test_no_kernel_files_at_all(tmp_path: Path) -> None:
    assert look({}, tmp_path, CUDA).cores >= 1


def test_the_installed_torch_is_read_from_its_file() -> None:
    import torch

    build = torch_build()
    assert build.version == torch.__version__
    assert (build.platform == "CUDA") == (torch.version.cuda is not None)
