"""What is split among ranks when the reference is recorded and when ours is compared with it."""

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import torch

LENGTHS = (0, 1, 2, 3, 5, 8)
RANKS = (2, 3, 4)

Triple = namedtuple("Triple", "a b c")

# name -> the collection of a given length
COLLECTIONS: dict[str, Callable[[int], Any]] = {
    "list": lambda n: list(range(n)),
    "list of lists": lambda n: [[i, -i] for i in range(n)],
    "tuple": lambda n: tuple(range(n)),
    "tensor": torch.arange,
    "matrix": lambda n: torch.arange(2 * n).view(n, 2),
    "string": lambda n: "x" * n,
    "set": lambda n: set(range(n)),
    "range": range,
    "dict of lists": lambda n: {"a": list(range(n)), "b": [str(i) for i in range(n)]},
    "dict of tuples": lambda n: {"a": tuple(range(n))},
    "dict of tensors": lambda n: {"a": torch.arange(n), "b": torch.arange(2 * n).view(n, 2)},
    "dict of lists of tensors": lambda n: {"a": [torch.tensor(i) for i in range(n)]},
    "dict with a string": lambda n: {"a": "x" * n, "b": list(range(n))},
    "ordered dict": lambda n: OrderedDict(a=list(range(n)), b=list(range(n))),
    "dict of a dict": lambda n: {"a": {"x": list(range(n)), "y": torch.arange(n)}, "b": list(range(n))},
    "two lengths": lambda n: {"a": [1], "b": [1] * n},
    "empty dict": lambda n: {},
    "named tuple": lambda n: Triple(n, 2, 3),
    "number": lambda n: n,
    "0-d tensor": torch.tensor,
    "dict with a number": lambda n: {"a": n, "b": list(range(n))},
}


def described(value: Any) -> Any:
    """Return `value` in JSON, with its type where JSON has no such type."""
    if isinstance(value, torch.Tensor):
        return {"tensor": value.tolist()}
    if isinstance(value, dict):
        return {type(value).__name__: {key: described(item) for key, item in value.items()}}
    if isinstance(value, (tuple, set, range)):
        return {type(value).__name__: [described(item) for item in value]}
    if isinstance(value, list):
        return [described(item) for item in value]
    return value
