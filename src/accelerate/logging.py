"""Loggers that know about ranks. Called by users and by rooms that speak to them.

Each message says its rank. By default rank 0 alone logs; `main_process_only=False` lets every rank log as it
comes, `in_order=True` has rank 0 log the messages of all ranks in the order of ranks. Nobody waits for
anybody: a rank that does not log is missing in the output, and nothing else ([Note: mail] in mailbox.py).
"""

import logging
from collections.abc import MutableMapping
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from accelerate.compat import env
from accelerate.errors import ConfigurationError, NotInitializedError
from accelerate.runtime.current import current
from accelerate.runtime.mailbox import mailbox
from accelerate.runtime.whereabouts import call_site

__all__ = ["MultiProcessAdapter", "get_logger"]

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:  # before Python 3.11 the class takes no parameter
    _Adapter = logging.LoggerAdapter

# Frames of this file between a call of a public method and the logger.
_OWN_FRAMES = 2


class MultiProcessAdapter(_Adapter):
    """A logger whose methods take two more arguments: `main_process_only` and `in_order`.

    The usual methods (`debug`, `info`, `warning`, `error`, `exception`, `critical`, `log`) accept:

    main_process_only: log on rank 0 only (True by default).
    in_order: log the messages of all ranks in the order of ranks, whatever `main_process_only` says, through
        the handlers of rank 0. Any ranks may make the call, and none waits: the lines of others come a
        moment after that of rank 0, or some seconds later where a lower rank does not come at all.

    Raises:
        NotInitializedError: a message is logged before the run was started (a RuntimeError).
    """

    def __init__(self, logger: logging.Logger, extra: dict[str, object] | None = None) -> None:
        super().__init__(logger, extra if extra is not None else {})
        self._warned: set[tuple[str, str]] = set()

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Put the rank before the message; `extra` of the call is added to that of this adapter."""
        extra = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return f"[RANK {current.process_index}] {msg}", {**kwargs, "extra": extra}

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log `msg % args` at a level; see the class for the further arguments and who must call."""
        self._emit(level, msg, args, kwargs, new=True)

    def warning_once(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a warning the first time that this logger is given these arguments, on each rank for itself."""
        key = (str(msg), repr(args))
        new = key not in self._warned
        self._emit(logging.WARNING, msg, args, kwargs, new=new)
        self._warned.add(key)

    def _emit(
        self, level: int, msg: object, args: tuple[object, ...], kwargs: dict[str, Any], *, new: bool
    ) -> None:
        if not current.started:
            raise NotInitializedError(
                "You must initialize the accelerate state by calling either `PartialState()` or "
                "`Accelerator()` before using the logging utility."
            )
        main_only, in_order = kwargs.pop("main_process_only", True), kwargs.pop("in_order", False)
        box = mailbox() if in_order and current.use_distributed else None
        # Rank 0 logs through its own handlers at once; what others say travels there.
        travels = box is not None and not current.is_main_process
        target = _Collector(self.logger.name) if travels else self.logger
        if new and self.isEnabledFor(level) and (in_order or not main_only or current.is_main_process):
            msg, options = self.process(msg, kwargs)
            options["stacklevel"] = options.get("stacklevel", 1) + _OWN_FRAMES
            target.log(level, msg, *args, **options)
        if box is not None:
            # Also with nothing to say: higher ranks whose level is another need not be held back.
            box.come(call_site(), getattr(target, "collected", None))


class _Collector(logging.Logger):
    """Stands in for a logger and keeps what it is given, as plain values that another process can log."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.collected: dict[str, Any] | None = None

    def handle(self, record: logging.LogRecord) -> None:
        # A queue handler renders message, traceback and stack into text, as they must be before they travel.
        plain = QueueHandler(SimpleQueue()).prepare(record)
        self.collected = {name: _plain(value) for name, value in vars(plain).items()}


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, (str, int, float)) else repr(value)


def get_logger(name: str, log_level: str | None = None) -> MultiProcessAdapter:
    """Return a logger that knows about ranks. Free, and starts nothing: call it at import time.

    Args:
        name: name of the logger, usually `__name__`.
        log_level: level of this logger, by name; ACCELERATE_LOG_LEVEL when None, and when that is unset too
            the level is left as it is. No other logger is changed.

    Raises:
        ConfigurationError: no level has that name (a ValueError).

    Example:
        >>> from accelerate.state import PartialState
        >>> from accelerate.logging import get_logger
        >>> logger = get_logger("example", log_level="INFO")
        >>> state = PartialState()
        >>> logger.info("seen once, from rank 0")
        >>> logger.info("seen from every rank", main_process_only=False)
    """
    if log_level is None:
        log_level = env.get("ACCELERATE_LOG_LEVEL")
    logger = logging.getLogger(name)
    if log_level is not None:
        try:
            logger.setLevel(log_level.upper())
        except ValueError:
            raise ConfigurationError(
                f"get_logger(log_level={log_level!r}), or ACCELERATE_LOG_LEVEL: no such level. Use "
                "debug, info, warning, error or critical."
            ) from None
    return MultiProcessAdapter(logger, {})
