"""Record the environment that `accelerate launch` gives a script: tests/unit/launching/test_environment.py.

Run with the Python of an environment that has the library to record, on a machine without accelerators:
`python tests/reference/record_launch.py tests/reference/data/launch.json`. Only the command line is used.
Engines that are not installed are stood in for by empty packages: the launcher asks whether they are there.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from launch_cases import CASES, INHERITED

SCRIPT = """
import json, os
if os.environ.get("RANK", "0") == "0":
    print(">" + json.dumps(dict(os.environ)))
"""
STAND_INS = {"deepspeed": "0.18.0", "torchao": "0.15.0"}


def stand_in(folder: Path) -> None:
    for name, release in STAND_INS.items():
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"__version__ = {release!r}\n")
        info = folder / f"{name}-{release}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n")
    launcher = folder / "deepspeed" / "launcher"
    launcher.mkdir()
    (launcher / "__init__.py").touch()
    (launcher / "runner.py").write_text("DEEPSPEED_ENVIRONMENT_NAME = '.environment'\n")


def environment(folder: Path, arguments: str, config: str | None) -> dict[str, str]:
    script, file = folder / "script.py", folder / "config.yaml"
    script.write_text(SCRIPT)
    command = [str(Path(sys.executable).with_name("accelerate")), "launch", *shlex.split(arguments)]
    if config is not None:
        file.write_text(config)
        command += ["--config_file", str(file)]
    given = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "HF_HOME": str(folder),
        "PYTHONPATH": str(folder),
    }
    ended = subprocess.run(
        [*command, str(script)], env=given, capture_output=True, text=True, timeout=120, check=False
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith(">")]
    if not lines:
        raise RuntimeError(f"{arguments!r} ended with {ended.returncode}:\n{ended.stderr}")
    found: dict[str, str] = json.loads(lines[0][1:])
    return {
        name: text
        for name, text in sorted(found.items())
        if name not in INHERITED and not name.startswith("TORCHELASTIC_")
    }


def main(path: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        stand_in(folder)
        cases = {name: environment(folder, *case) for name, case in CASES.items()}
    about = f"accelerate {version('accelerate')}, torch {version('torch')}, no accelerator"
    path.write_text(json.dumps({"recorded from": about, "cases": cases}, indent=1) + "\n")
    print(f"{len(cases)} cases written to {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
