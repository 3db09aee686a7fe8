"""What a rank writes, on its way to the terminal: a state machine over bytes. Driven by console.py.

[Note: how output travels]
Whole lines pass at once, so that lines of different ranks do not mix. An incomplete *line* (a prompt, a
progress bar that redraws itself with carriage returns) passes after LINE_PATIENCE. From the first line of
a traceback on everything is *held*: if the rank is failing, its traceback belongs into the report, once,
instead of between the lines of its peers. A rank that still writes GOES_ON_AFTER has not failed, and one
that is silent is trusted no longer than HOLD_PATIENCE (to unload torch takes seconds on a busy machine);
then the held output is shown, in order. The *tail*, the last TAIL_BYTES of all that was written, stays
in memory for the report.
"""

import re

__all__ = ["GOES_ON_AFTER", "HOLD_PATIENCE", "LINE_PATIENCE", "TAIL_BYTES", "Relay"]

LINE_PATIENCE = 0.02  # seconds
GOES_ON_AFTER = 1.0  # seconds
HOLD_PATIENCE = 10.0  # seconds
TAIL_BYTES = 256 * 1024  # per stream of a rank

# The first words of a fatal message. A progress bar may stand before them on the same line, and torch puts
# "[rank0]: " there. A syntax error in the script itself has no "Traceback" line.
_TROUBLE = re.compile(
    rb"(?:\[rank\d+\]: ?)?(?:Traceback \(most recent call last\):"
    rb"|^  File \"[^\"\n]+\", line \d+$|^Fatal Python error: |^Exception ignored in|^terminate called )",
    re.MULTILINE,
)

# Native code warns about what an interrupted process leaves open; that is no sign of life.
_NATIVE_LOG = re.compile(rb"\s*(?:\[rank\d+\]: ?)?\[[WIEF]\d")


class Relay:
    """One stream of one rank.

    Attributes:
        tail: the last bytes of all that was fed.
        trouble_at: when the latest traceback began, in the clock of the caller; None when there was none.
        redraws: lines that redraw themselves stay such, with the prefix behind each carriage return.
        ending: the rank was told to end: a traceback that comes now stays held, whatever follows it.
    """

    def __init__(self, prefix: bytes = b"", *, redraws: bool = False) -> None:
        self.tail = bytearray()
        self.trouble_at: float | None = None
        self.redraws = redraws and bool(prefix)
        self.ending = False
        self._prefix = prefix
        self._whole_lines = bool(prefix) and not redraws
        self._at_line_start = True
        self._line = bytearray()
        self._line_since = 0.0
        self._held: bytearray | None = None
        self._held_since = 0.0

    @property
    def patience(self) -> float | None:
        """Seconds until `tick` may have something to say; None when it has not."""
        if self._held is not None:
            return HOLD_PATIENCE / 10
        return LINE_PATIENCE if self._line and not self._whole_lines else None

    def feed(self, data: bytes, now: float) -> bytes:
        """Take what the rank wrote and return what is to be shown at once."""
        self.tail += data
        del self.tail[:-TAIL_BYTES]
        if self._held is not None:
            self._held += data
            goes_on = now - self._held_since >= GOES_ON_AFTER and not _NATIVE_LOG.match(data)
            release = (goes_on and not self.ending) or len(self._held) > TAIL_BYTES
            return self._release() if release else b""
        if not self._line:
            self._line_since = now
        self._line += data
        whole = self._take_whole_lines()
        trouble = _TROUBLE.search(whole)
        if trouble is None:
            return self._dressed(whole)
        self._held = bytearray(whole[trouble.start() :] + self._line)
        self._line.clear()
        self._held_since = self.trouble_at = now
        return self._dressed(whole[: trouble.start()])

    def tick(self, now: float) -> bytes:
        """Return what has waited long enough."""
        if self._held is not None:
            over = now - self._held_since >= HOLD_PATIENCE and not self.ending
            return self._release() if over else b""
        # Under a prefix that is not redrawn only whole lines make sense.
        if self._line and not self._whole_lines and now - self._line_since >= LINE_PATIENCE:
            return self._dressed(self._take_line())
        return b""

    def finish(self, *, show_held: bool) -> bytes:
        """Return what is left at the end; the held part only if it is not told elsewhere."""
        if self._held is None:
            return self._dressed(self._take_line())
        shown = self._release()
        return shown if show_held else b""

    def _take_whole_lines(self) -> bytes:
        # Under a prefix that is not redrawn a carriage return ends a line too.
        end = self._line.rfind(b"\n") + 1
        if self._whole_lines:
            end = max(end, self._line.rfind(b"\r") + 1)
        whole = bytes(self._line[:end])
        del self._line[:end]
        return whole

    def _take_line(self) -> bytes:
        line = bytes(self._line)
        self._line.clear()
        return line

    def _release(self) -> bytes:
        held = bytes(self._held or b"")
        self._held = None
        return self._dressed(held)

    def _dressed(self, text: bytes) -> bytes:
        if not self._prefix or not text:
            return text
        if self.redraws:
            return self._redrawn(text)
        lines = text.replace(b"\r", b"\n").split(b"\n")
        return b"".join(self._prefix + line + b"\n" for line in lines if line)

    def _redrawn(self, text: bytes) -> bytes:
        """Return the text with the prefix at each start of a line and behind each carriage return in one."""
        start, self._at_line_start = self._at_line_start, text.endswith(b"\n")
        dressed = re.sub(
            rb"(\r(?!\r*\n|\Z))|(\n(?!\Z))", rb"\g<0>" + self._prefix.replace(b"\\", b"\\\\"), text
        )
        if not start or text.startswith(b"\r"):
            return dressed
        return self._prefix + dressed
