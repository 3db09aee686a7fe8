"""How long the command line takes before the user's own code runs, beside plain Python and torchrun.

    python benchmarks/startup.py [--runs 7] [--reference PATH_TO_PYTHON]

Every row is a command, timed until its first line of output (`first line`) and until its end (`end`), with
the processor seconds of all its processes. All commands take turns, so that a busy machine is busy for each
of them; medians are shown, how they compare with the row that is named as the base, and whether the goals
are met. `--reference` names the Python of a virtual environment that holds another implementation of the
same interface.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
CLI = ("-m", "accelerate.commands.accelerate_cli")
# Said in full, so that neither implementation stops to explain its defaults.
ONE = ("launch", "--cpu", "--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no")
TWO = ("launch", "--cpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no")
# The reference starts one process with --cpu, whatever the number.
TWO_OF_REFERENCE = (
    *("launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"),
    *("--dynamo_backend", "no", "--num_cpu_threads_per_process", "1"),
)


@dataclass(kw_only=True)
class Row:
    """One command, and what was measured of it.

    Attributes:
        base: name of the row with which it is compared.
        first, end: seconds until the first line and until the end, one per run.
        processor: seconds of processor time, of all processes, one per run.
    """

    name: str
    command: list[str]
    base: str
    environ: dict[str, str] = field(default_factory=dict)
    first: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def run(self) -> None:
        """Run the command once and keep its times."""
        begin = time.perf_counter()
        process = subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", **self.environ},
        )
        assert process.stdout is not None
        process.stdout.readline()
        self.first.append(time.perf_counter() - begin)
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        self.end.append(time.perf_counter() - begin)
        self.processor.append(usage.ru_utime + usage.ru_stime)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(self.command)} ended with {process.returncode}")


def make_rows(script: str, reference: str | None) -> list[Row]:
    """Return the commands to be timed."""
    python, ours = sys.executable, {"PYTHONPATH": str(SOURCE)}
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", script]
    rows = [
        Row(name="python -c", command=[python, "-c", "print()"], base="python -c"),
        Row(name="--help", command=[python, *CLI, "--help"], base="python -c", environ=ours),
        Row(name="launch --help", command=[python, *CLI, "launch", "--help"], base="python -c", environ=ours),
        Row(name="env", command=[python, *CLI, "env"], base="python -c", environ=ours),
        Row(name="python script", command=[python, script], base="python script"),
        Row(name="launch, 1", command=[python, *CLI, *ONE, script], base="python script", environ=ours),
        Row(name="torchrun, 2", command=torchrun, base="torchrun, 2"),
        Row(name="launch, 2", command=[python, *CLI, *TWO, script], base="torchrun, 2", environ=ours),
    ]
    if reference is None:
        return rows
    theirs = {"PYTHONPATH": ""}
    commands = {
        "--help": ("--help",),
        "env": ("env",),
        "launch, 1": (*ONE, "--dynamo_backend", "no", script),
        "launch, 2": (*TWO_OF_REFERENCE, script),
    }
    for name, arguments in commands.items():
        row = next(row for row in rows if row.name == name)
        command = [reference, *CLI, *arguments]
        rows.append(Row(name=f"reference {name}", command=command, base=row.base, environ=theirs))
    return rows


def table(rows: list[Row]) -> str:
    """Return the medians as text."""
    by_name = {row.name: row for row in rows}
    lines = [f"{'command':24}{'first line':>12}{'end':>10}{'CPU s':>9}   first line / base"]
    for row in rows:
        first, end, processor = (statistics.median(values) for values in (row.first, row.end, row.processor))
        ratio = first / statistics.median(by_name[row.base].first)
        times = f"{first * 1000:9.0f} ms{end * 1000:7.0f} ms{processor:9.2f}"
        lines.append(f"{row.name:24}{times}   {ratio:5.2f} x {row.base}")
    return "\n".join(lines)


def goals(rows: list[Row]) -> str:
    """Return each goal with what was measured."""
    by_name = {row.name: row for row in rows}

    def processor(name: str) -> float:
        return statistics.median(by_name[name].processor)

    over_python = processor("launch, 1") - processor("python script")
    over_torchrun = statistics.median(by_name["launch, 2"].end) / statistics.median(
        by_name["torchrun, 2"].end
    )
    checks = [
        ("--help: at most 0.10 s of processor time", processor("--help"), 0.10),
        ("env: at most 0.10 s of processor time", processor("env"), 0.10),
        ("launch, 1: at most 0.15 s of processor time over plain python", over_python, 0.15),
        ("launch, 2: no slower than torchrun (ratio of ends)", over_torchrun, 1.0),
    ]
    lines = [f"{'met' if found <= limit else 'MISSED':8}{goal}: {found:.3f}" for goal, found, limit in checks]
    return "\n".join(lines)


def main() -> None:
    """Time all commands in turn and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7, help="runs of each command; one more warms the caches")
    parser.add_argument("--reference", help="Python of a virtual environment with the reference")
    arguments = parser.parse_args()
    begin = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text("print('here')\n")
        rows = make_rows(str(script), arguments.reference)
        for _ in range(arguments.runs + 1):
            for row in rows:
                row.run()
    for row in rows:
        for values in (row.first, row.end, row.processor):
            del values[0]
    print(table(rows))
    print(goals(rows))
    print(f"load of the machine: {begin:.1f} at the start, {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
