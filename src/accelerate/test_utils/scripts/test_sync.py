"""Check when gradients are exchanged and when the optimizer steps. Run by `accelerate test`.

Alone: `accelerate launch test_sync.py`.
"""

from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader

from accelerate.accelerator import Accelerator
from accelerate.state import GradientState
from accelerate.test_utils.checks import are_the_same_tensors
from accelerate.test_utils.scripts.report import expect, expect_close, run
from accelerate.test_utils.training import RegressionDataset, RegressionModel

_BATCH = 2  # points per rank
_RATE = 0.05


def _loss(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return functional.mse_loss(model(batch["x"]), batch["y"])


def _own_batch(accelerator: Accelerator) -> dict[str, torch.Tensor]:
    """Return points that no other rank has."""
    x = torch.tensor([1.0, 2.0], device=accelerator.device) + accelerator.process_index
    return {"x": x, "y": 3 * x + 1}


def _accumulating(steps: int) -> Accelerator:
    GradientState._reset_state()
    return Accelerator(gradient_accumulation_steps=steps)


def _loader(accelerator: Accelerator, num_batches: int) -> "DataLoader[Any]":
    length = num_batches * _BATCH * accelerator.num_processes
    return DataLoader(RegressionDataset(length=length, seed=1), batch_size=_BATCH)


def check_no_sync(accelerator: Accelerator) -> None:
    """Gradients stay a rank's own inside `no_sync`, and are one afterwards."""
    model = accelerator.prepare(RegressionModel())
    batch = _own_batch(accelerator)
    with accelerator.no_sync(model):
        accelerator.backward(_loss(model, batch))
    weight = next(model.parameters())
    assert weight.grad is not None
    alone = accelerator.num_processes == 1
    expect(are_the_same_tensors(weight.grad), alone, "whether gradients agree inside no_sync")
    accelerator.backward(_loss(model, batch))
    expect(are_the_same_tensors(weight.grad), True, "whether gradients agree after no_sync")


def check_mean(accelerator: Accelerator) -> None:
    """The gradient is the mean of those that the ranks have alone."""
    model = accelerator.prepare(RegressionModel(a=1))
    accelerator.backward(_loss(model, _own_batch(accelerator)))
    expected = RegressionModel(a=1)
    for rank in range(accelerator.num_processes):
        x = torch.tensor([1.0, 2.0]) + rank
        torch.autograd.backward(_loss(expected, {"x": x, "y": 3 * x + 1}) / accelerator.num_processes)
    for found, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        assert found.grad is not None
        assert wanted.grad is not None
        expect_close(found.grad, wanted.grad, "the gradient")


def check_pattern(accelerator: Accelerator) -> None:
    """With windows of 2, gradients are exchanged at every second batch and at the last."""
    accelerator = _accumulating(2)
    model, optimizer, loader = accelerator.prepare(
        *_model_and_optimizer(), _loader(accelerator, num_batches=5)
    )
    exchanged, stepped = [], []
    for batch in loader:
        with accelerator.accumulate(model):
            before = [parameter.detach().clone() for parameter in model.parameters()]
            accelerator.backward(_loss(model, batch))
            optimizer.step()
            optimizer.zero_grad()
            exchanged.append(accelerator.sync_gradients)
            pairs = zip(before, model.parameters(), strict=True)
            stepped.append(any(not torch.equal(old, new) for old, new in pairs))
    expect(exchanged, [False, True, False, True, True], "sync_gradients")
    expect(stepped, exchanged, "whether weights changed")


def _model_and_optimizer() -> tuple[RegressionModel, torch.optim.SGD]:
    model = RegressionModel()
    return model, torch.optim.SGD(model.parameters(), lr=_RATE)


def check_large_batch(accelerator: Accelerator) -> None:
    """Windows of 2 over all ranks give the weights of one process with batches as large as all together."""
    accelerator = _accumulating(2)
    loader = _loader(accelerator, num_batches=6)
    model, optimizer, prepared = accelerator.prepare(*_model_and_optimizer(), loader)
    for batch in prepared:
        with accelerator.accumulate(model):
            accelerator.backward(_loss(model, batch))
            optimizer.step()
            optimizer.zero_grad()
    alone, plain = _model_and_optimizer()
    for batch in DataLoader(loader.dataset, batch_size=2 * _BATCH * accelerator.num_processes):
        torch.autograd.backward(_loss(alone, batch))
        plain.step()
        plain.zero_grad()
    for found, wanted in zip(model.parameters(), alone.parameters(), strict=True):
        expect_close(found, wanted, "a weight")


def check_scheduler(accelerator: Accelerator) -> None:
    """A scheduler moves with the optimizer, once for each process."""
    accelerator = _accumulating(2)
    model, optimizer = _model_and_optimizer()
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    loader = _loader(accelerator, num_batches=4)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(_loss(model, batch))
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    wanted = torch.tensor([_RATE / (1 + 2 * accelerator.num_processes)])
    expect_close(torch.tensor(scheduler.get_last_lr()), wanted, "the learning rate after two steps")


CHECKS = {
    "no_sync keeps gradients on their rank": check_no_sync,
    "gradients are averaged over ranks": check_mean,
    "accumulate exchanges and steps at the end of a window": check_pattern,
    "accumulated steps equal those of one large batch": check_large_batch,
    "the scheduler follows the optimizer": check_scheduler,
}


def main() -> None:
    """Run the checks of this script."""
    run("sync", CHECKS)
    Accelerator().end_training()


if __name__ == "__main__":
    main()
