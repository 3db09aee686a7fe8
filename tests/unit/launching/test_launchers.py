import subprocess
import sys
from pathlib import Path

import pytest

from accelerate.compat import system
from accelerate.errors import ConfigurationError
from accelerate.launching import base
from accelerate.launching.base import exit_status
from accelerate.launching.elastic import ElasticLauncher
from accelerate.launching.select import LAUNCHERS, select
from accelerate.launching.simple import SimpleLauncher
from accelerate.options.launch import LaunchPlan


def make(**values: object) -> LaunchPlan:
    fixed = {
        "training_script": __file__,
        "training_script_args": (),
        "num_processes": 1,
        "num_machines": 1,
        "num_cpu_threads_per_process": 2,
        "mixed_precision": "no",
        "dynamo_backend": "no",
    }
    return LaunchPlan(**{**fixed, **values})


def test_each_plan_has_exactly_one_launcher() -> None:
    for plan in (make(), make(cpu=True), make(cpu=True, num_processes=2), make(multi_gpu=True)):
        assert [launcher for launcher in LAUNCHERS if launcher.accepts(plan)] == [select(plan)]
    assert isinstance(select(make()), SimpleLauncher)
    assert isinstance(select(make(multi_gpu=True)), ElasticLauncher)
    assert isinstance(select(make(num_processes=2, cpu=True)), ElasticLauncher)


def test_one_process_is_told_whether_to_stay_on_the_cpu() -> None:
    on_cpu = SimpleLauncher().environ(make(cpu=True))
    assert on_cpu["ACCELERATE_USE_CPU"] == "True"
    assert on_cpu["KMP_AFFINITY"] == "granularity=fine,compact,1,0"
    assert on_cpu["KMP_BLOCKTIME"] == "1"
    elsewhere = SimpleLauncher().environ(make())
    assert elsewhere["ACCELERATE_USE_CPU"] == "False"
    assert "KMP_AFFINITY" not in elsewhere


def test_ranks_are_told_to_stay_on_the_cpu_and_otherwise_nothing() -> None:
    assert ElasticLauncher().environ(make(cpu=True, num_processes=2))["ACCELERATE_USE_CPU"] == "True"
    assert "ACCELERATE_USE_CPU" not in ElasticLauncher().environ(make(multi_gpu=True))


def test_commands() -> None:
    assert SimpleLauncher().command(make()) == [sys.executable, __file__]
    assert ElasticLauncher().command(make()) == [sys.executable, "-u", __file__]


def test_full_environment_is_the_callers_with_the_launch_on_top(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = {"HOME": "/home/me", "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "64"}
    monkeypatch.setattr(base.env, "snapshot", lambda: dict(caller))
    full = ElasticLauncher().full_environ(make(multi_gpu=True))
    assert full["HOME"] == "/home/me"
    assert full["OMP_NUM_THREADS"] == "2"
    assert "ACCELERATE_USE_CPU" not in full


def test_links_that_do_not_work_are_kept_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "check_cuda_p2p_ib_support", lambda: False)
    monkeypatch.delenv("NCCL_P2P_DISABLE", raising=False)
    monkeypatch.setenv("NCCL_IB_DISABLE", "0")  # the caller's own choice stays
    assert ElasticLauncher().local_environ(make(multi_gpu=True)) == {"NCCL_P2P_DISABLE": "1"}
    assert ElasticLauncher().local_environ(make(num_processes=2, cpu=True)) == {}
    monkeypatch.setattr(system, "check_cuda_p2p_ib_support", lambda: True)
    assert ElasticLauncher().local_environ(make(multi_gpu=True)) == {}


def test_validation_before_anything_starts(tmp_path: Path) -> None:
    SimpleLauncher().validate(make())
    with pytest.raises(ConfigurationError, match="there is no script"):
        SimpleLauncher().validate(make(training_script="missing.py"))
    with pytest.raises(ConfigurationError, match=r"--log_dir .*: this is a file"):
        SimpleLauncher().validate(make(log_dir=__file__))


def test_the_meeting_address_must_be_here() -> None:
    ElasticLauncher().validate(make(main_process_ip="127.0.0.1"))
    ElasticLauncher().validate(make(main_process_ip="localhost"))
    with pytest.raises(ConfigurationError, match=r"--main_process_ip 192\.0\.2\.1"):
        ElasticLauncher().validate(make(main_process_ip="192.0.2.1"))


@pytest.mark.parametrize(("return_code", "status"), [(0, 0), (3, 3), (-9, 137), (-2, 130)])
def test_exit_status(return_code: int, status: int) -> None:
    assert exit_status(return_code) == status


def test_one_process_from_python(tmp_path: Path) -> None:
    script = tmp_path / "leave.py"
    script.write_text("import sys; sys.exit(int(sys.argv[1]))")
    plan = make(training_script=str(script), training_script_args=("7",))
    assert SimpleLauncher().run(plan) == 7


def test_planning_loads_no_torch() -> None:
    code = (
        "import sys, accelerate.launching.select, accelerate.launching.plan, accelerate.commands.launch\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
