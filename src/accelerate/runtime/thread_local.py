"""A dictionary a thread, as an attribute of a class. Offered to users by `accelerate.state`."""

import threading
from typing import Any

__all__ = ["ThreadLocalSharedDict"]


class ThreadLocalSharedDict(threading.local):
    """A descriptor that holds one dictionary a thread, for runtimes that train in threads (TPU v2 and v3)."""

    def __init__(self, thread_local: bool = False) -> None:
        self._storage: dict[str, Any] = {}

    def __get__(self, owner: object, kind: type | None = None) -> dict[str, Any]:
        """Return the calling thread's dictionary."""
        return self._storage

    def __set__(self, owner: object, value: dict[str, Any]) -> None:
        """Replace the calling thread's dictionary."""
        self._storage = value
