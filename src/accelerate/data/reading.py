"""What all ranks get, step by step, read from one loader. Called by the dispatcher on rank 0, pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from accelerate.data.adapter import ALL_ROWS
from accelerate.data.rows import Nothing, num_rows, shares_of

__all__ = ["Round", "read_rounds"]


@dataclass(frozen=True, kw_only=True)
class Round:
    """What all ranks get in one step."""

    shares: Sequence[Any]  # `Nothing` where there is no batch for one
    ends: Sequence[bool]  # whether it is the last batch of each share
    last: bool
    rows: int  # real samples of all shares together, -1 when nobody knows
    real_rows: Sequence[int] | None  # of each share, where they differ; None where `rows` says all
    state: Any  # of the loader that was read from, right behind this round


def read_rounds(
    batches: Iterator[Any],
    count: int,
    *,
    first: Sequence[Any] | None = None,
    snapshot: Callable[[], Any],
    num_shares: int,
    size: int | None,
    drop_last: bool,
    even: bool,
    split: bool,
    slice_fn: Callable[..., Any] | None,
) -> Iterator[Round]:
    """Read rounds of `count` batches, one ahead of what is returned, so that the last is known as such.

    Args:
        batches: of all ranks.
        count: batches of a round.
        first: those of the first round of the pass, where `batches` begin later.
        snapshot: gives the state of what `batches` come from.
        num_shares: how many shares a round has.
        size: rows of a full batch, None where nobody knows.
        drop_last: leave out a round that lacks batches.
        even: complete the last round.
        split: a batch is one of all shares together.
        slice_fn: cuts batches, in place of our own way.
    """

    def cut(taken: Sequence[Any], *, complete: bool) -> list[Any]:
        return shares_of(
            taken,
            first_round,
            num_shares=num_shares,
            size=size,
            complete=complete,
            split=split,
            slice_fn=slice_fn,
        )

    taken = _take(batches, count, drop_last)
    first_round = first or taken
    while taken:
        state = snapshot()
        failure, upcoming = None, []
        try:
            upcoming = _take(batches, count, drop_last)
        except Exception as error:  # it is raised in its place, behind what was read before
            failure = error
        last = not upcoming and failure is None
        shares = cut(taken, complete=even and last)
        # Only without completion a share of the next round can be empty.
        following = cut(upcoming, complete=False) if upcoming and not even else shares
        yield Round(
            shares=shares,
            ends=[last or share is Nothing for share in following],
            last=last,
            state=state,
            **_counts(shares, taken),
        )
        if failure is not None:
            raise failure
        taken = upcoming


def _counts(shares: Sequence[Any], taken: Sequence[Any]) -> dict[str, Any]:
    """Return the fields of a round that say which rows of its shares are real."""
    whole = all(share is batch for share, batch in zip(shares, taken, strict=False))
    rows = [num_rows(batch) for batch in taken]
    total = -1 if None in rows else sum(rows)  # type: ignore[arg-type]
    counts = rows if whole and len(shares) == len(taken) else [_rows_of_share(share) for share in shares]
    if len(set(counts)) == 1:
        return {"rows": total, "real_rows": None}
    num_real = len(taken) if whole else len(shares)  # behind them is fill
    real = [(ALL_ROWS if n is None else n) if i < num_real else 0 for i, n in enumerate(counts)]
    return {"rows": total, "real_rows": real}


def _rows_of_share(share: Any) -> int | None:
    return 0 if share is Nothing else num_rows(share)


def _take(batches: Iterator[Any], count: int, drop_last: bool) -> list[Any]:
    taken = list(islice(batches, count))
    return [] if drop_last and len(taken) < count else taken
