"""What is checked before ranks start on several machines (--preflight). Called by agent.py."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from accelerate.errors import LaunchError
from accelerate.launching.machines import Summary
from accelerate.launching.meeting import Meeting
from accelerate.options.launch import LaunchPlan

__all__ = ["preflight", "version_conflict"]

_LIMIT = 60.0  # seconds for the trial exchange, the import of torch included
_TRIAL = 20.0  # seconds for its data alone
_POLL = 0.05  # seconds


def preflight(plan: LaunchPlan, meeting: Meeting, say: Callable[[str], None]) -> None:
    """Check that the machines of a launch can run together. Every machine calls it, before any rank.

    That the address leads to machine 0 and the port is free was found by the meeting itself.

    Args:
        plan: the launch.
        meeting: where the machines meet.
        say: prints a line.

    Raises:
        LaunchError: something is wrong; the message says what, and the way out.
        MachineEnded: another machine found something.
        MachineLost: another machine is no longer heard of.
    """
    begin = time.monotonic()
    meeting.wait(lambda: len(meeting.link.summary.names) == plan.num_machines)
    conflict = version_conflict(meeting.link.summary)
    if conflict:
        raise LaunchError(f"preflight: {conflict}")
    backend = "gloo" if plan.cpu else "nccl"
    _exchange(plan, meeting, backend)
    # Nobody starts ranks before everybody is through, since each start begins with all being ready.
    if not plan.quiet:
        say(
            f"accelerate launch: preflight: {plan.num_machines} machines reach each other, have the same "
            f"versions and exchange data by {backend} ({time.monotonic() - begin:.1f} s)\n"
        )


def version_conflict(summary: Summary) -> str:
    """Return which versions differ between machines; empty when they are alike."""
    found = []
    for package in ("python", "torch", "accelerate"):
        machines: dict[str, list[str]] = {}
        for machine, versions in sorted(summary.versions.items()):
            machines.setdefault(_shown(package, versions), []).append(summary.names[machine])
        if len(machines) > 1:
            found.append(", ".join(f"{version} on {_some(names)}" for version, names in machines.items()))
    return "; ".join(found) + ": install the same on all" if found else ""


def _shown(package: str, versions: Mapping[str, str]) -> str:
    version = versions.get(package, "unknown")
    # Patch releases of Python work together.
    return f"{package} {'.'.join(version.split('.')[:2]) if package == 'python' else version}"


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _exchange(plan: LaunchPlan, meeting: Meeting, backend: str) -> None:
    """Run an all-reduce of one number between processes of their own, one per machine."""
    child = subprocess.Popen(
        [
            *(sys.executable, "-m", "accelerate.launching.trial"),
            *(str(meeting.link.record.machine), str(plan.num_machines)),
            *(str(plan.main_process_ip), str(plan.main_process_port), backend, str(_TRIAL)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        deadline = time.monotonic() + _LIMIT
        while child.poll() is None:
            meeting.check()
            if time.monotonic() > deadline:
                raise LaunchError(_no_exchange(plan, backend, f"nothing came within {_LIMIT:.0f} s"))
            time.sleep(_POLL)
        said = (child.stderr.read() if child.stderr is not None else "").strip().splitlines()
    finally:
        child.kill()
        child.wait()
        if child.stderr is not None:
            child.stderr.close()
    if child.returncode != 0:
        reason = next((line for line in reversed(said) if "Error" in line), said[-1] if said else "no word")
        raise LaunchError(_no_exchange(plan, backend, reason))


def _no_exchange(plan: LaunchPlan, backend: str, reason: str) -> str:
    variable = "GLOO_SOCKET_IFNAME" if backend == "gloo" else "NCCL_SOCKET_IFNAME"
    return (
        f"preflight: the machines reach {plan.main_process_ip}:{plan.main_process_port}, but no data passes "
        f"between them by {backend} ({reason}); ranks connect to each other at ports of their own: open all "
        f"ports between the machines, and name their network interface in {variable} if they have several"
    )
