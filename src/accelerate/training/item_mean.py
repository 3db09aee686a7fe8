"""The mean of a loss over all items of a window on all ranks. Called by `Accelerator.backward(num_items=)`.

[Note: item mean]
An *item* is what a loss is a sum over: a sample, or a token that counts. One process that had the items of
all micro-batches and all ranks in one batch would compute S / N, the *sum* of all losses over the *total*
of all items. Averaging means instead, of micro-batches and then of ranks, weighs an item by how few others
stand beside it, and a window that ends early counts for less.

N is known at the last micro-batch of a window. The losses before it are multiplied by a preliminary
*weight*, so that gradients keep their usual size for half precision. At the last one ranks add up their
counts, the gradients collected so far are corrected, and the last loss gets the true weight. Ranks exchange
a mean of gradients, so that the weight is the number of ranks over N.
"""

from collections.abc import Mapping, Sequence

import torch
from torch.nn import Module

from accelerate.errors import ConfigurationError
from accelerate.runtime import collectives
from accelerate.runtime.current import Current
from accelerate.strategies.base import Strategy

__all__ = ["ItemMean"]


class ItemMean:
    """What is known of the window in hand; see [Note: item mean].

    Args:
        run: the current run.
        strategy: holds the gradients.
    """

    def __init__(self, run: Current, strategy: Strategy) -> None:
        self._run = run
        self._strategy = strategy
        self._models: Sequence[Module] = ()
        self._losses_left: int | None = None  # of the micro-batch; None where nobody says where one begins
        self._count: torch.Tensor | None = None  # items of this rank in the window so far, 0-d
        self._weight: torch.Tensor | None = None  # of the losses of the window so far, 0-d

    def reset(self) -> None:
        """Forget the window in hand and its models, which are not to be kept alive."""
        self._count = self._weight = None
        self._models = ()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return what is known of the window in hand on this rank, for a checkpoint inside of it."""
        known = {"count": self._count, "weight": self._weight}
        return {name: value for name, value in known.items() if value is not None}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on in the window of a checkpoint; forget the one in hand."""
        self.reset()
        known = {name: value.to(self._run.device) for name, value in state.items()}
        self._count, self._weight = known.get("count"), known.get("weight")

    def begin(self, models: Sequence[Module]) -> None:
        """Note that a micro-batch begins in which `models` are trained."""
        self._models = models
        self._losses_left = 1

    def refuse_mean(self) -> None:
        """Raise if the window in hand has begun with a sum, as a mean is about to be added.

        Raises:
            ConfigurationError: it has.
        """
        if self._weight is not None:
            raise ConfigurationError(
                "backward(loss) without num_items in a window that has begun with num_items: the gradients "
                "cannot be told apart. Give all losses of a window in the same way."
            )

    def weight(
        self,
        num_items: int | float | torch.Tensor,
        *,
        num_steps: int,
        sync: bool,
        alike: bool,
        models: Sequence[Module],
    ) -> torch.Tensor:
        """Return what the loss of a micro-batch is to be multiplied by; every rank calls it.

        Args:
            num_items: what the loss is a sum over, on this rank.
            num_steps: micro-batches in a full window.
            sync: whether this one is the window's last, however full it is.
            alike: whether gradients are exchanged in every micro-batch, so that ranks need one weight.
            models: which have gradients, where `begin` did not say it.

        Raises:
            ConfigurationError: `num_items` is no number, or this is a second loss in one micro-batch.
        """
        self._count_loss(num_steps)
        count = self._as_count(num_items)
        self._count = count if self._count is None else self._count + count
        if not sync:
            if self._weight is None:
                self._weight = self._over(self._total(count) if alike else count * self._run.num_processes)
                self._weight = self._weight / num_steps
            return self._weight
        weight = self._over(self._total(self._count))
        if self._weight is not None:
            self._strategy.scale_gradients(self._models or models, weight / self._weight)
        self.reset()
        return weight

    def _count_loss(self, num_steps: int) -> None:
        if num_steps == 1 or self._losses_left is None:
            return
        if self._losses_left == 0:
            raise ConfigurationError(
                "backward(..., num_items=...) was called twice in one accumulate() block, but the items of a "
                "window are counted once. Add the losses up and call it once, with the items of the sum."
            )
        self._losses_left -= 1

    def _as_count(self, num_items: int | float | torch.Tensor) -> torch.Tensor:
        count = torch.as_tensor(num_items, device=self._run.device).detach()
        if count.numel() != 1:
            raise ConfigurationError(
                f"backward(..., num_items=tensor of shape {tuple(count.shape)}): pass one number, how many "
                "items the loss of this micro-batch is a sum over, such as `(labels != -100).sum()`."
            )
        # In 64 bits: a window may hold more tokens than a 32-bit float can count.
        return count.reshape(()).to(torch.float32 if count.is_floating_point() else torch.int64)

    def _total(self, count: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = collectives.reduce(count, "sum")
        return total

    def _over(self, total: torch.Tensor) -> torch.Tensor:
        """Return the weight for a total; a window without items has a sum of 0, which any weight leaves."""
        return self._run.num_processes / torch.where(total == 0, 1, total)
