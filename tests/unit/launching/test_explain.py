from accelerate.launching.explain import explain
from accelerate.launching.machine import Machine
from accelerate.launching.plan import resolve
from accelerate.launching.select import select
from accelerate.options.config_file import parse

MACHINE = Machine(installed_gpus=0, gpus=0, evidence="none", cores=4)


def rows(**typed: object) -> dict[str, tuple[str, str]]:
    file = parse({"mixed_precision": "bf16"}, "c.yaml")
    plan = resolve({"training_script": "t.py", **typed}, MACHINE, {}, file).plan
    return {row.option: (row.value, row.source) for row in explain(plan, select(plan), "c.yaml").rows}


def test_each_effective_value_and_its_source() -> None:
    shown = rows(cpu=True, training_script_args=("--lr", "a b"))
    assert shown["--cpu"] == ("yes", "flag")
    assert shown["--mixed_precision"] == ("bf16", "file")
    assert shown["--num_processes"] == ("1", "detected")
    assert shown["--debug"] == ("no", "default")
    assert shown["training_script_args"] == ("--lr 'a b'", "flag")
    assert shown["--main_process_ip"] == ("-", "default")
    assert not {"--fsdp_version", "--zero_stage", "--vm", "--explain", "--config_file"} & shown.keys()


def test_options_of_an_engine_are_shown_with_it() -> None:
    shown = rows(use_fsdp=True)
    assert shown["--fsdp_version"] == ("2", "default")
    assert "--zero_stage" not in shown


def test_secrets_are_not_shown() -> None:
    shown = rows(aws_secret_access_key="hush", aws_access_key_id="id", tpu=True)
    assert shown["--aws_secret_access_key"] == ("(hidden)", "flag")
    assert "hush" not in str(shown)


def test_command_and_environment_as_a_shell_reads_them() -> None:
    plan = resolve({"training_script": "t.py", "training_script_args": ["a b"]}, MACHINE, {}).plan
    shown = explain(plan, select(plan))
    assert shown.command_line().endswith(" t.py 'a b'")
    assert "ACCELERATE_MIXED_PRECISION=no" in shown.environ_lines()
    assert shown.environ_lines() == sorted(shown.environ_lines())
