import subprocess
import sys

PROGRAM = """
import os, sys
from accelerate.compat.streams import open_standard_streams

open_standard_streams()
print("lost", flush=True)
taken = os.open("/dev/null", os.O_RDONLY)
sys.exit(0 if taken > 2 and sys.stdin.read() == "" and os.get_inheritable(1) else 1)
"""


def test_standard_streams_that_are_closed_are_opened_on_the_null_device() -> None:
    shell = ["sh", "-c", 'exec "$@" <&- >&-', "sh", sys.executable, "-c", PROGRAM]
    done = subprocess.run(shell, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
