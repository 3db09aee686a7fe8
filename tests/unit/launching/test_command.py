from accelerate.launching.command import inherited, script_command, script_environment
from accelerate.options.launch import LaunchPlan


def make(**values: object) -> LaunchPlan:
    fixed = {
        "training_script": "train.py",
        "training_script_args": ("--lr", "1"),
        "num_processes": 1,
        "num_machines": 1,
        "num_cpu_threads_per_process": 4,
        "mixed_precision": "no",
        "dynamo_backend": "no",
    }
    return LaunchPlan(**{**fixed, **values})


def test_script_module_and_program() -> None:
    python = ["/usr/bin/python3", "-u"]
    assert script_command(make(), python) == ["/usr/bin/python3", "-u", "train.py", "--lr", "1"]
    assert script_command(make(module=True), python) == [*python, "-m", "train.py", "--lr", "1"]
    assert script_command(make(no_python=True), python) == ["train.py", "--lr", "1"]


def test_variables_of_every_launch() -> None:
    assert script_environment(make(mixed_precision="bf16")) == {
        "ACCELERATE_DYNAMO_BACKEND": "NO",
        "ACCELERATE_DYNAMO_MODE": "default",
        "ACCELERATE_DYNAMO_USE_DYNAMIC": "False",
        "ACCELERATE_DYNAMO_USE_FULLGRAPH": "False",
        "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": "False",
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "OMP_NUM_THREADS": "4",
    }


def test_variables_that_flags_add() -> None:
    added = script_environment(make(debug=True, gpu_ids="0, 2"))
    assert added["ACCELERATE_DEBUG_MODE"] == "true"
    assert added["CUDA_VISIBLE_DEVICES"] == "0,2"
    assert "CUDA_VISIBLE_DEVICES" not in script_environment(make(gpu_ids="all"))


def test_a_launch_inside_a_rank_does_not_inherit_its_rank() -> None:
    rank = {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_ERROR_FILE": "f"}
    assert inherited({**rank, "HOME": "/root"}) == {"HOME": "/root"}


def test_variables_of_another_launcher_are_kept() -> None:
    # mpirun -np 2 accelerate launch --cpu ... sets these, and the script reads them.
    mpi = {"PMI_RANK": "1", "PMI_SIZE": "2", "RANK": "1"}
    assert inherited(mpi) == mpi


def test_the_callers_device_choice_is_not_inherited() -> None:
    assert inherited({"ACCELERATE_USE_CPU": "true"}) == {}
