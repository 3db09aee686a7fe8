import pytest

from accelerate.errors import ConfigurationError
from accelerate.launching.machine import Machine
from accelerate.launching.plan import resolve
from accelerate.options.launch import LaunchPlan

NO_GPU = Machine(installed_gpus=0, gpus=0, evidence="no GPU device under /dev", cores=8)
FOUR_GPUS = Machine(installed_gpus=4, gpus=4, evidence="/dev/nvidia0, /dev/nvidia1 ...", cores=8)
ONE_GPU = Machine(installed_gpus=1, gpus=1, evidence="/dev/nvidia0", cores=8)


def plan(machine: Machine = NO_GPU, environ: dict[str, str] | None = None, **typed: object) -> LaunchPlan:
    return resolve({"training_script": "train.py", **typed}, machine, environ or {}).checked()


def test_nothing_typed_without_gpu_is_one_ordinary_process() -> None:
    made = plan()
    assert (made.num_processes, made.cpu, made.multi_gpu, made.distributed) == (1, False, False, False)
    assert made.sources["num_processes"] == "detected"
    assert made.mixed_precision == "no"
    assert made.sources["mixed_precision"] == "default"
    assert made.sources["training_script"] == "flag"


def test_nothing_typed_takes_every_gpu() -> None:
    made = plan(FOUR_GPUS)
    assert (made.num_processes, made.multi_gpu) == (4, True)
    assert made.sources["multi_gpu"] == "detected"


def test_one_gpu_is_one_process_without_peers() -> None:
    assert not plan(ONE_GPU).distributed


def test_multi_gpu_flag_alone_takes_every_gpu_even_one() -> None:
    assert plan(FOUR_GPUS, multi_gpu=True).num_processes == 4
    made = plan(ONE_GPU, multi_gpu=True)
    assert (made.num_processes, made.distributed) == (1, True)


def test_cpu_with_processes_starts_that_many() -> None:
    made = plan(FOUR_GPUS, cpu=True, num_processes=2)
    assert (made.num_processes, made.cpu, made.multi_gpu, made.distributed) == (2, True, False, True)
    assert made.sources["cpu"] == "flag"


def test_several_processes_without_gpu_run_on_the_cpu() -> None:
    made = plan(num_processes=3)
    assert (made.cpu, made.sources["cpu"]) == (True, "detected")


def test_fewer_processes_than_gpus_is_allowed() -> None:
    assert plan(FOUR_GPUS, num_processes=2).multi_gpu
    assert not plan(FOUR_GPUS, num_processes=1).multi_gpu


def test_gpu_ids_count() -> None:
    assert plan(FOUR_GPUS, gpu_ids="1,3").num_processes == 2
    assert plan(FOUR_GPUS, gpu_ids="all").num_processes == 4
    # The flag replaces the caller's CUDA_VISIBLE_DEVICES.
    hidden = Machine(installed_gpus=4, gpus=1, evidence="", cores=8)
    assert plan(hidden, gpu_ids="0,1,2").num_processes == 3


@pytest.mark.parametrize(
    ("typed", "machine", "environ", "threads"),
    [
        ({"cpu": True, "num_processes": 2}, NO_GPU, {}, 4),
        ({"cpu": True}, NO_GPU, {}, 8),
        ({"cpu": True, "num_processes": 16}, NO_GPU, {}, 1),
        ({}, NO_GPU, {}, 8),
        ({}, FOUR_GPUS, {}, 1),
        ({"cpu": True}, NO_GPU, {"OMP_NUM_THREADS": "3"}, 3),
        ({"cpu": True}, NO_GPU, {"OMP_NUM_THREADS": "0"}, 8),
        ({"cpu": True, "num_cpu_threads_per_process": 5}, NO_GPU, {"OMP_NUM_THREADS": "3"}, 5),
    ],
)
def test_threads(typed: dict[str, object], machine: Machine, environ: dict[str, str], threads: int) -> None:
    assert plan(machine, environ, **typed).num_cpu_threads_per_process == threads


def test_the_callers_environment_decides_nothing_else() -> None:
    caller = {"ACCELERATE_MIXED_PRECISION": "bf16", "WORLD_SIZE": "8", "ACCELERATE_USE_CPU": "true"}
    assert plan(FOUR_GPUS, caller) == plan(FOUR_GPUS)


@pytest.mark.parametrize(
    ("typed", "machine", "words"),
    [
        ({"cpu": True, "multi_gpu": True}, FOUR_GPUS, "--cpu and --multi_gpu exclude each other"),
        ({"module": True, "no_python": True}, NO_GPU, "exclude each other"),
        ({"multi_gpu": True}, NO_GPU, "no GPU to use (no GPU device under /dev); pass --cpu"),
        ({"multi_gpu": True, "num_processes": 8}, FOUR_GPUS, "--num_processes 8: one process per GPU, and 4"),
        ({"num_processes": 2}, ONE_GPU, "pass --num_processes 1, or --cpu"),
        ({"num_processes": 0, "cpu": True}, NO_GPU, "--num_processes 0: give a whole number of at least 1"),
        ({"num_processes": -1}, NO_GPU, "--num_processes -1"),
        ({"num_machines": 2}, NO_GPU, "--num_machines 2: pass --machine_rank too"),
        ({"num_machines": 2}, NO_GPU, "--num_machines 2: pass --main_process_ip too"),
        ({"num_machines": 0}, NO_GPU, "--num_machines 0"),
        ({"num_cpu_threads_per_process": 0}, NO_GPU, "at least 1"),
        ({"max_restarts": -1}, NO_GPU, "--max_restarts -1: give a whole number of at least 0"),
        ({"monitor_interval": 0.0}, NO_GPU, "--monitor_interval 0.0"),
        ({"monitor_interval": float("nan")}, NO_GPU, "--monitor_interval nan"),
        ({"main_process_port": 65536}, NO_GPU, "from 1 to 65535"),
        ({"main_process_port": -1}, NO_GPU, "from 1 to 65535"),
        ({"tee": "4"}, NO_GPU, "--tee 4"),
        ({"gpu_ids": "0,7"}, FOUR_GPUS, "--gpu_ids 0,7"),
        ({"gpu_ids": "0,0"}, FOUR_GPUS, "different numbers"),
        ({"gpu_ids": ""}, FOUR_GPUS, "different numbers"),
    ],
)
def test_refusals_say_what_was_passed_and_what_is_allowed(
    typed: dict[str, object], machine: Machine, words: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan(machine, **typed)
    assert words in str(caught.value)


def test_tee_by_rank_is_allowed() -> None:
    assert plan(tee="0:3,11:1").tee == "0:3,11:1"
