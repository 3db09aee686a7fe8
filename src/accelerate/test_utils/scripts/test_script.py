"""Check ranks, random states, training in each precision, and checkpoints. Run by `accelerate test`.

Alone: `accelerate launch test_script.py`.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader

from accelerate.accelerator import Accelerator
from accelerate.devices.support import is_bf16_available, is_fp16_available
from accelerate.runtime.collectives import broadcast_object_list, gather_object
from accelerate.runtime.rng import set_seed, synchronize_rng_states
from accelerate.state import AcceleratorState
from accelerate.test_utils.checks import are_the_same_tensors
from accelerate.test_utils.scripts.report import Skipped, expect, expect_close, run
from accelerate.test_utils.training import RegressionDataset, RegressionModel

_BATCH = 4  # points per rank
_NUM_BATCHES = 8  # per rank and pass
_RATE = 0.1


def check_ranks(accelerator: Accelerator) -> None:
    """Ranks are numbered, one of them is the main one, and no two share an accelerator."""
    size = accelerator.num_processes
    expect(gather_object([accelerator.process_index]), list(range(size)), "the ranks")
    expect(gather_object([accelerator.is_main_process]), [True] + [False] * (size - 1), "who is main")
    expect(gather_object([accelerator.is_last_process]), [False] * (size - 1) + [True], "who is last")
    if accelerator.device.type != "cpu":
        places = set(gather_object([accelerator.local_process_index]))
        expect(len(set(gather_object([str(accelerator.device)]))), len(places), "how many devices are in use")


def check_main_only(accelerator: Accelerator) -> None:
    """What is for the main process runs there alone."""
    ran: list[bool] = []
    accelerator.on_main_process(lambda: ran.append(True))()
    expect(gather_object([len(ran)]), [1] + [0] * (accelerator.num_processes - 1), "how often it ran")


def check_split_between(accelerator: Accelerator) -> None:
    """Each item of a list goes to one rank, in order, and padding makes the parts equally long."""
    items = list(range(2 * accelerator.num_processes + 1))
    with accelerator.split_between_processes(items) as part:
        expect(gather_object(list(part)), items, "all parts together")
    with accelerator.split_between_processes(items, apply_padding=True) as part:
        expect(len(set(gather_object([len(part)]))), 1, "how many different lengths the parts have")


def check_random_states(accelerator: Accelerator) -> None:
    """Ranks that drew different numbers draw the same ones after a synchronization."""
    set_seed(accelerator.process_index)
    synchronize_rng_states(["torch"])
    draw = torch.rand(4).to(accelerator.device)
    expect(are_the_same_tensors(draw), True, "whether ranks draw the same numbers")


def _objects(size: int) -> tuple[RegressionModel, torch.optim.SGD, "DataLoader[Any]"]:
    model = RegressionModel()
    data = RegressionDataset(length=_NUM_BATCHES * _BATCH * size, seed=42)
    return model, torch.optim.SGD(model.parameters(), lr=_RATE), DataLoader(data, batch_size=_BATCH)


def _train(accelerator: Accelerator) -> tuple[torch.nn.Module, list[float]]:
    """Return the trained model and the mean loss of each pass."""
    model, optimizer, loader = accelerator.prepare(*_objects(accelerator.num_processes))
    means = []
    for _ in range(2):
        losses = []
        for batch in loader:
            loss = functional.mse_loss(model(batch["x"]), batch["y"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        means.append(float(accelerator.reduce(torch.stack(losses).mean(), "mean")))
    return model, means


def check_training(accelerator: Accelerator) -> None:
    """All ranks together end where one process without this library ends."""
    model, _ = _train(accelerator)
    alone, optimizer, loader = _objects(accelerator.num_processes)
    whole = DataLoader(loader.dataset, batch_size=_BATCH * accelerator.num_processes)
    for batch in [batch for _ in range(2) for batch in whole]:
        torch.autograd.backward(functional.mse_loss(alone(batch["x"]), batch["y"]))
        optimizer.step()
        optimizer.zero_grad()
    for found, wanted in zip(model.parameters(), alone.parameters(), strict=True):
        expect_close(found, wanted, "a weight")
        expect(are_the_same_tensors(found.detach()), True, "whether ranks have the same weights")


def _check_precision(name: str) -> None:
    AcceleratorState._reset_state()
    _, (first, last) = _train(Accelerator(mixed_precision=name))
    if not last < 0.5 * first:
        raise AssertionError(f"in {name} the loss went from {first:.3f} to {last:.3f}: it learns nothing")


def check_bf16(accelerator: Accelerator) -> None:
    """Training in bfloat16 learns."""
    if not is_bf16_available():
        raise Skipped(f"{accelerator.device.type} does not compute in bfloat16")
    _check_precision("bf16")


def check_fp16(accelerator: Accelerator) -> None:
    """Training in float16 learns."""
    if not is_fp16_available():
        raise Skipped(f"{accelerator.device.type} does not compute in float16")
    _check_precision("fp16")


def check_checkpoint(accelerator: Accelerator) -> None:
    """What was saved is there again after loading."""
    if len(set(gather_object([accelerator.local_process_index]))) < accelerator.num_processes:
        raise Skipped("several machines need not share a temporary folder")
    model, optimizer, loader = accelerator.prepare(*_objects(accelerator.num_processes))
    batch = next(iter(loader))
    accelerator.backward(functional.mse_loss(model(batch["x"]), batch["y"]))
    optimizer.step()
    saved = [parameter.detach().clone() for parameter in model.parameters()]
    with tempfile.TemporaryDirectory() as own:
        folder = Path(broadcast_object_list([own])[0], "checkpoint")
        accelerator.save_state(str(folder))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        accelerator.load_state(str(folder))
        accelerator.wait_for_everyone()  # before the main process removes the folder
    for found, wanted in zip(model.parameters(), saved, strict=True):
        expect(found.detach(), wanted, "a weight after loading")


CHECKS = {
    "each rank knows its place": check_ranks,
    "the main process alone": check_main_only,
    "split_between_processes": check_split_between,
    "random states are made equal": check_random_states,
    "training equals that of one process": check_training,
    "training in bf16": check_bf16,
    "training in fp16": check_fp16,
    "a checkpoint is saved and loaded": check_checkpoint,
}


def main() -> None:
    """Run the checks of this script."""
    run("core", CHECKS)
    Accelerator().end_training()


if __name__ == "__main__":
    main()
