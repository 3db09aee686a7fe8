"""How the ranks of a run agree on a step of a save or a load. Called by checkpointing on every rank.

A step ends when every rank has said how it went: where one has failed, all raise an error that names it, and
nobody waits. A rank that has died is noticed by its connection, within seconds. The ranks talk in the thread
that trains, over gloo: over the group of the run, or beside another backend over a group of their own.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from accelerate.errors import AccelerateError, CheckpointError, CheckpointWriteError
from accelerate.runtime import collectives
from accelerate.runtime.current import Current
from accelerate.runtime.rank_group import RankGroup
from accelerate.runtime.world import World

__all__ = ["Ranks", "Step"]

PATIENCE = timedelta(days=1)  # for others that are at work; one that has died is noticed within seconds

# Default process group -> the gloo group that goes beside it.
_groups: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()


@dataclass
class Step:
    """One step of a save or a load, as this rank sees it.

    Attributes:
        value: what this rank has to tell the others; plain data.
        answers: what each rank told, in rank order; once the step is over.
    """

    value: Any = None
    answers: list[Any] = field(default_factory=list)


class Ranks:
    """The ranks of a run. This base is one process, which agrees with itself.

    Args:
        world: who this process is.
    """

    def __init__(self, world: World) -> None:
        self.rank = world.rank
        self.size = world.size
        self.local_rank = world.local_rank
        self.local_size = world.local_size

    @staticmethod
    def of(run: Current) -> "Ranks":
        """Return the ranks of a run that was started."""
        return Ranks(run.world) if run.world.size == 1 else ConnectedRanks(run)

    def leads(self, each_machine: bool) -> bool:
        """Return whether this is the main process, or with `each_machine` the first one of its machine."""
        return (self.local_rank if each_machine else self.rank) == 0

    @contextmanager
    def step(self, doing: str, otherwise: str, *, arriving: bool = False) -> Iterator[Step]:
        """Surround what each rank does by itself; all leave the block together, or all raise.

        Every rank enters each step, in one order. Once all have arrived, a rank waits for a slow disk of
        another one longer than the time-out of the run.

        Args:
            doing: the step in words, such as "while writing its files".
            otherwise: what a failure means, as a sentence.
            arriving: whether this is the first step, to which some ranks may never come.

        Raises:
            CheckpointError: a rank has failed; the cause is named.
            Exception: what this rank raised, where there is one rank, or all raised alike.
        """
        step, problem = Step(), None
        try:
            yield step
        except Exception as error:
            problem = error
        told = None if problem is None else (type(problem).__name__, str(problem))
        try:
            replies = self.exchange((told, step.value), patient=not arriving)
        except AccelerateError as error:  # a rank is gone
            raise error from problem or error.__cause__
        failures = {rank: failure for rank, (failure, _) in enumerate(replies) if failure is not None}
        kinds = {name for name, _ in failures.values()}
        if problem is not None and len(failures) == self.size and len(kinds) == 1:
            if isinstance(problem, CheckpointWriteError):
                problem.args = (f"{problem} {otherwise}",)
            raise problem
        if failures:
            raise _failure(failures, doing, otherwise) from problem
        step.answers = [value for _, value in replies]

    def exchange(self, message: Any, *, patient: bool = False) -> list[Any]:
        """Return the messages of all ranks, in rank order. Every rank calls it.

        Args:
            message: plain data.
            patient: wait as long as it takes, almost: the others have work to do.
        """
        return [message]


class ConnectedRanks(Ranks):
    """Several ranks, which talk over gloo."""

    def __init__(self, run: Current) -> None:
        super().__init__(run.world)
        self._run = run

    def exchange(self, message: Any, *, patient: bool = False) -> list[Any]:
        """Return the messages of all ranks, in rank order. Every rank calls it."""
        group = self._group()
        with group.waiting(PATIENCE) if patient else nullcontext():
            replies: list[Any] = group.gather_object({"message": message})
        return [reply["message"] for reply in replies]

    def _group(self) -> RankGroup:
        world = dist.group.WORLD
        if world is None or self._run.backend == "gloo" or not dist.is_gloo_available():
            return collectives.current_ranks()  # or its error, where the group was ended
        if world not in _groups:
            _groups[world] = dist.new_group(backend="gloo")
        return RankGroup(
            size=self.size,
            rank=self.rank,
            device=torch.device("cpu"),
            group=_groups[world],
            debug=self._run.debug,
        )


def _failure(failures: dict[int, tuple[str, str]], doing: str, otherwise: str) -> CheckpointError:
    """Return the error for all ranks; ranks that failed alike share a sentence."""
    ranks_of: dict[str, list[int]] = {}
    for rank, (name, text) in failures.items():
        ranks_of.setdefault(f"{name}: {text}", []).append(rank)
    sentences = [
        f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))} failed {doing}: {cause}"
        for cause, ranks in ranks_of.items()
    ]
    return CheckpointError(f"{'; '.join(sentences)}\n{otherwise}")
