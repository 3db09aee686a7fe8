"""A terminal of its own for a program: what is typed, and what stands on the screen. For tests of questions.

Two kinds do the same: tmux where it is installed, and a pseudo-terminal whose screen pyte draws, anywhere.
"""

import abc
import fcntl
import os
import select
import shlex
import shutil
import struct
import subprocess
import termios
import time
import uuid
from collections.abc import Mapping, Sequence

import pyte

__all__ = ["KINDS", "PtyTerminal", "Terminal", "TmuxTerminal"]

COLUMNS, LINES = 110, 60
PATIENCE = 20.0  # seconds for something to appear


class Terminal(abc.ABC):
    """Runs a command. Use it as a context manager: at the end the program is gone."""

    @abc.abstractmethod
    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None: ...

    @abc.abstractmethod
    def screen(self) -> str:
        """Return what stands on the screen now."""

    @abc.abstractmethod
    def send(self, keys: str) -> None:
        """Type characters; control characters and escape sequences are keys."""

    @abc.abstractmethod
    def close(self) -> None:
        """End the program, if it still runs."""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_for(self, text: str) -> str:
        """Wait until `text` is on the screen, and return the screen."""
        end = time.monotonic() + PATIENCE
        while text not in (shown := self.screen()):
            if time.monotonic() > end:
                raise AssertionError(f"{text!r} does not appear; the screen:\n{shown}")
            time.sleep(0.02)
        return shown


class PtyTerminal(Terminal):
    """A pseudo-terminal; pyte makes a screen of what the program writes."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._own, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._screen = pyte.Screen(COLUMNS, LINES)
        # The program asks where the cursor is, as a real terminal would tell.
        self._screen.write_process_input = self.send
        self._stream = pyte.ByteStream(self._screen)
        self._process = subprocess.Popen(
            list(command),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environ, "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(theirs)

    def screen(self) -> str:
        while select.select([self._own], [], [], 0)[0]:
            try:
                read = os.read(self._own, 65536)
            except OSError:  # the program has ended, and all is read
                break
            if not read:
                break
            self._stream.feed(read)
        return "\n".join(line.rstrip() for line in self._screen.display)

    def send(self, keys: str) -> None:
        os.write(self._own, keys.encode())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._own)


class TmuxTerminal(Terminal):
    """A window of a tmux server that nobody else uses."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._socket = f"accelerate-test-{uuid.uuid4().hex[:8]}"
        self._environ = {**environ, "TERM": "xterm"}
        line = shlex.join(command)
        # The window stays when the program has ended, so that its last words can be read.
        self._tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), f"{line}; sleep 60")

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def send(self, keys: str) -> None:
        self._tmux("send-keys", "-H", *(f"{byte:02x}" for byte in keys.encode()))

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-f", "/dev/null", "-L", self._socket, *arguments]
        return subprocess.run(
            command, env=self._environ, capture_output=True, text=True, timeout=PATIENCE, check=True
        ).stdout


KINDS: dict[str, type[Terminal]] = {"pty": PtyTerminal} | (
    {"tmux": TmuxTerminal} if shutil.which("tmux") else {}
)
