import sys
import types
from pathlib import Path
from typing import Any

import pytest

from accelerate.errors import ConfigurationError, MissingPackageError
from accelerate.launching.machine import Machine
from accelerate.launching.plan import resolve
from accelerate.launching.select import select
from accelerate.launching.tpu import TpuLauncher, TpuPodLauncher, main_function, pod_command, run_processes
from accelerate.options.config_file import parse
from accelerate.options.launch import LaunchPlan

MACHINE = Machine(installed_gpus=0, gpus=0, evidence="none", cores=4)


def plan(content: dict[str, Any] | None = None, script: str = "t.py", **typed: Any) -> LaunchPlan:
    given = {"training_script": script, "training_script_args": ["--x"], "tpu": True, **typed}
    return resolve(given, MACHINE, {}, parse(content or {}, "c.yaml")).plan


def test_the_call_that_reaches_a_pod() -> None:
    made = plan(
        {"tpu_name": "pod", "tpu_env": ["A=1"], "tpu_use_sudo": True},
        vm=["host-0", "host-1"],
        num_processes=8,
        mixed_precision="bf16",
        main_training_function="train",
    )
    reach = (
        "-m torch_xla.distributed.xla_dist --tpu pod --vm host-0 --vm host-1 --env A=1 "
        "--env ACCELERATE_IN_TPU_POD=1 --env XLA_USE_BF16=1 --"
    )
    inner = (
        "sudo accelerate launch --tpu --no_tpu_cluster --num_machines 1 --mixed_precision bf16 "
        "--num_processes 8 --main_training_function train t.py --x"
    )
    assert pod_command(made) == [sys.executable, *reach.split(), *inner.split()]


def test_a_pod_without_a_name() -> None:
    with pytest.raises(ConfigurationError, match="write tpu_name and tpu_zone"):
        pod_command(plan(num_processes=8))


def test_the_function_of_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "tpu_script.py"
    script.write_text("def main():\n    return 'called'\n")
    monkeypatch.setitem(sys.modules, "tpu_script", types.ModuleType("tpu_script"))
    assert main_function(plan(script=str(script), num_processes=1))() == "called"
    with pytest.raises(ConfigurationError, match="has no such function"):
        main_function(plan(script=str(script), num_processes=1, main_training_function="train"))


def test_processes_need_torch_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_xla", None)
    with pytest.raises(MissingPackageError, match="pip install torch_xla"):
        run_processes(plan(num_processes=1))


def test_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    one, pod = plan(num_processes=8), plan({"tpu_use_cluster": True}, num_processes=8)
    assert isinstance(select(one), TpuLauncher)
    assert isinstance(select(pod), TpuPodLauncher)
    missing = "TPUs need torch_xla, which is not installed: pip install torch_xla"
    assert f"--tpu: {missing}" in select(one).problems(one)
    assert [problem[:15] for problem in select(pod).problems(pod)] == ["--tpu_cluster: "] * 2
    module = plan(num_processes=8, script="package.train", module=True)
    assert "must be a file whose name ends in .py" in TpuLauncher().problems(module)[-1]


def test_a_pod_through_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan({"tpu_use_cluster": True, "tpu_name": "pod"}, num_processes=8)
    assert TpuPodLauncher().command(made) == pod_command(made)
    assert TpuPodLauncher().environ(made) == {}
    monkeypatch.setattr(TpuPodLauncher, "command", lambda self, plan: ["sh", "-c", "exit 7"])
    assert TpuPodLauncher().run(made) == 7


def test_each_process_calls_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "tpu_script.py"
    script.write_text("import sys\n\ndef main():\n    sys.calls.append(sys.argv)\n")
    monkeypatch.setattr(sys, "calls", [], raising=False)
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.setitem(sys.modules, "tpu_script", types.ModuleType("tpu_script"))
    monkeypatch.setenv("FORK_LAUNCHED", "0")
    started = types.ModuleType("torch_xla.distributed.xla_multiprocessing")
    started.spawn = lambda function, args, nprocs: [function(i, *args) for i in range(nprocs or 2)]  # type: ignore[attr-defined]
    package = types.ModuleType("torch_xla.distributed")
    package.xla_multiprocessing = started  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_xla", types.ModuleType("torch_xla"))
    monkeypatch.setitem(sys.modules, "torch_xla.distributed", package)
    assert TpuLauncher().run(plan(script=str(script), num_processes=2)) == 0
    assert sys.calls == [[str(script), "--x"]] * 2  # type: ignore[attr-defined]
