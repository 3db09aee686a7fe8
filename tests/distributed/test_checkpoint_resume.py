"""Killed and resumed equals never killed: inside an accumulation window, and in a world of another size."""

import os
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from accelerate.accelerator import Accelerator
from accelerate.checkpoint import agreement
from accelerate.errors import CheckpointError
from accelerate.options.data import DataLoaderConfiguration
from accelerate.options.handlers import DistributedDataParallelKwargs
from accelerate.options.project import ProjectConfiguration
from accelerate.runtime.current import current
from accelerate.state import GradientState

WINDOW = 4  # micro-batches
GLOBAL_BATCH = 8
END = 18  # micro-batches


class Training:
    """A run that accumulates gradients, and draws random numbers where asked for."""

    def __init__(self, seed, *, dropout=0.5, precision="no", view=False, items=False):
        self.items = items
        handlers = [DistributedDataParallelKwargs(gradient_as_bucket_view=view)]
        self.accelerator = Accelerator(
            cpu=True,
            gradient_accumulation_steps=WINDOW,
            mixed_precision=precision,
            kwargs_handlers=handlers,
            # The global batch is what stays: so schedulers step once a step, whatever the number of ranks.
            dataloader_config=DataLoaderConfiguration(split_batches=True),
        )
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(dropout), nn.BatchNorm1d(4), nn.Linear(4, 1))
        if not dropout:
            model[2] = nn.Identity()  # its statistics depend on the batch of a rank
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        self.model, self.optimizer, self.scheduler = self.accelerator.prepare(model, optimizer, scheduler)
        torch.manual_seed(seed + 1 + self.accelerator.process_index)
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(END, GLOBAL_BATCH, 3, generator=generator)

    def batch(self, index):
        """Return this rank's share of a global batch."""
        return self.inputs[index].chunk(self.accelerator.num_processes)[self.accelerator.process_index]

    def micro_batches(self, start, end):
        for index in range(start, end):
            with self.accelerator.accumulate(self.model):
                loss = self.model(self.batch(index)).square().mean()
                if self.items:
                    self.accelerator.backward(loss * (1 + index % 3), num_items=1 + index % 3)
                else:
                    self.accelerator.backward(loss)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()

    def result(self):
        return [parameter.detach().clone() for parameter in self.model.parameters()]


def save_and_go_on(folder, at, kwargs):
    training = Training(0, **kwargs)
    training.micro_batches(0, at)
    training.accelerator.save_state(folder)
    training.micro_batches(at, END)
    return training.result()


def load_and_go_on(folder, at, kwargs):
    training = Training(100, **kwargs)
    training.micro_batches(0, 2)  # an open window of its own, which is given up
    with warnings.catch_warnings():
        # A rank that was not there has no random states, and nothing here draws.
        warnings.filterwarnings("ignore", "Random states of rank")
        training.accelerator.load_state(folder)
    assert training.accelerator.step == at % (WINDOW * END)
    assert GradientState().sync_gradients == (at % WINDOW == 0)
    training.optimizer.zero_grad()  # before the loop, as some do: inside a window it does nothing
    training.micro_batches(at, END)
    return training.result()


@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize(
    ("at", "kwargs"),
    [
        (6, {}),
        (7, {"view": True}),
        (8, {}),
        (9, {"precision": "fp16"}),
        (10, {"precision": "bf16"}),
        (11, {"items": True}),
    ],
)
def test_a_window_goes_on_bit_for_bit(rank_pool, tmp_path, num_ranks, at, kwargs):
    folder = str(tmp_path / "folder")
    never_stopped = rank_pool.run(save_and_go_on, folder, at, kwargs, num_ranks=num_ranks)
    resumed = rank_pool.run(load_and_go_on, folder, at, kwargs, num_ranks=num_ranks)
    for expected, found in zip(never_stopped, resumed, strict=True):
        assert all(torch.equal(*pair) for pair in zip(expected, found, strict=True))
    gradients = {name for name in os.listdir(folder) if name.startswith("gradients")}
    is_open = at % WINDOW != 0
    assert gradients == {f"gradients_{rank}.safetensors" for rank in range(num_ranks) if is_open}


@pytest.mark.parametrize("num_ranks", [1, 4])
@pytest.mark.parametrize("at", [6, 8])
def test_a_run_goes_on_with_another_number_of_ranks(rank_pool, tmp_path, at, num_ranks):
    folder, kwargs = str(tmp_path / "folder"), {"dropout": 0.0}
    never_stopped = rank_pool.run(save_and_go_on, folder, at, kwargs, num_ranks=2)
    resumed = rank_pool.run(load_and_go_on, folder, at, kwargs, num_ranks=num_ranks)
    for found in resumed:
        for pair in zip(never_stopped[0], found, strict=True):
            torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-5)


def open_window_elsewhere(folder):
    """Save outside of a window, and load that inside of one."""
    training = Training(0)
    training.accelerator.save_state(folder)
    training.micro_batches(0, 2)
    assert any(parameter.grad is not None for parameter in training.model.parameters())
    training.accelerator.load_state(folder)
    return [parameter.grad for parameter in training.model.parameters()], training.accelerator.step


def test_a_window_that_is_given_up_leaves_no_gradients(rank_pool, tmp_path):
    for gradients, step in rank_pool.run(open_window_elsewhere, str(tmp_path / "folder"), num_ranks=2):
        assert step == 0
        assert not any(gradient is not None for gradient in gradients)


def epochs(folder, stop_at=None):
    """Train over a shuffled loader, from the checkpoint if there is one; stop in the middle of a window."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=WINDOW)
    torch.manual_seed(5 if stop_at else 6)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    data = torch.randn(70, 3, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(data, batch_size=3, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    torch.manual_seed(7 + accelerator.process_index if stop_at else 100)
    if not stop_at:
        accelerator.load_state(folder)
    for epoch in range(loader.iteration, 3):
        for index, batch in enumerate(loader):
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).square().mean())
                optimizer.step()
                optimizer.zero_grad()
            if (epoch, index) == stop_at:
                assert not accelerator.sync_gradients
                accelerator.save_state(folder)
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_an_epoch_and_a_window_go_on_together(rank_pool, tmp_path, num_ranks):
    folder = str(tmp_path / "folder")
    never_stopped = rank_pool.run(epochs, folder, (1, 5), num_ranks=num_ranks)
    resumed = rank_pool.run(epochs, folder, num_ranks=num_ranks)
    for expected, found in zip(never_stopped, resumed, strict=True):
        assert all(torch.equal(*pair) for pair in zip(expected, found, strict=True))


# ---- ranks that fail, and machines with folders of their own


class FailsOnce:
    """A registered object without a state on one rank, the first time."""

    def __init__(self, rank):
        self.fails = rank == 1

    def state_dict(self):
        if self.fails:
            self.fails = False
            raise ValueError("no state here")
        return {}

    def load_state_dict(self, state):
        if state:
            raise ValueError("a state")


def fail_and_save_again(folder):
    training = Training(0)
    accelerator = training.accelerator
    accelerator.save_state(folder)
    before = os.stat(folder).st_ino
    accelerator.register_for_checkpointing(FailsOnce(accelerator.process_index))
    with pytest.raises(CheckpointError) as raised:
        accelerator.save_state(folder)
    accelerator.wait_for_everyone()
    after = os.stat(folder).st_ino, sorted(os.listdir(os.path.dirname(folder)))
    accelerator.wait_for_everyone()
    accelerator.save_state(folder)
    accelerator.load_state(folder)
    return str(raised.value), before, after


def test_a_rank_that_fails_is_named_everywhere_and_nothing_is_published(rank_pool, tmp_path):
    folder = str(tmp_path / "folder")
    for message, before, after in rank_pool.run(fail_and_save_again, folder, num_ranks=2):
        assert message.startswith("rank 1 failed while writing its files: ValueError: no state here\n")
        assert "Nothing was published" in message
        assert after == (before, ["folder"])


def name_a_folder_each(folder):
    training = Training(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        written = training.accelerator.save_state(f"{folder}{training.accelerator.process_index}")
    return str(written), [str(warning.message) for warning in caught]


def test_a_folder_that_each_rank_names_differently_is_that_of_rank_0(rank_pool, tmp_path):
    (first, warned), (second, silent) = rank_pool.run(name_a_folder_each, f"{tmp_path}/f", num_ranks=2)
    assert first == second == f"{tmp_path}/f0"
    assert os.listdir(tmp_path) == ["f0"]
    assert len(warned) == 1
    assert "the ranks named different folders" in warned[0]
    assert silent == []


def machine(rank, folder, *, naming=True, limit=None):
    """Return the project of a machine with one rank and a folder of its own."""
    os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    return Accelerator(
        cpu=True,
        project_config=ProjectConfiguration(
            project_dir=f"{folder}/{rank}",
            automatic_checkpoint_naming=naming,
            save_on_each_node=True,
            total_limit=limit,
        ),
    )


def with_model(accelerator):
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    prepared = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    return prepared[0]


def save_on_machines(folder, times):
    rank = int(os.environ["RANK"])
    accelerator = machine(rank, folder, limit=1)
    model = with_model(accelerator)
    for number in range(times):
        with torch.no_grad():
            accelerator.unwrap_model(model).weight.fill_(number)
        accelerator.save_state()
    return sorted(os.listdir(f"{folder}/{rank}/checkpoints")), sorted(os.listdir(f"{folder}/{rank}"))


def load_on_machines(folder, named=None):
    rank = int(os.environ["RANK"])
    accelerator = machine(rank, folder, naming=named is None)
    model = with_model(accelerator)
    accelerator.load_state(named and f"{folder}/{rank}/{named}")
    weight = accelerator.unwrap_model(model).weight[0, 0].item()
    return weight, accelerator.project_configuration.iteration, sorted(os.listdir(f"{folder}/{rank}"))


def test_each_machine_has_a_checkpoint_of_its_own(rank_pool, tmp_path):
    left = (["checkpoint_1"], ["checkpoints"])
    assert rank_pool.run(save_on_machines, str(tmp_path), 2, num_ranks=2) == [left, left]
    for rank in range(2):
        names = sorted(os.listdir(tmp_path / str(rank) / "checkpoints" / "checkpoint_1"))
        assert names == [
            "accelerate_manifest.json",
            "model.safetensors",
            "optimizer.bin",
            f"random_states_{rank}.pkl",
        ]
    assert rank_pool.run(load_on_machines, str(tmp_path), num_ranks=2) == [(1.0, 2, ["checkpoints"])] * 2


def stop_before_publishing(folder, stopped, named):
    """Save twice; one machine is stopped before it publishes the second one."""
    from accelerate.checkpoint import disk

    rank = int(os.environ["RANK"])
    accelerator = machine(rank, folder, naming=named is None, limit=1)
    model = with_model(accelerator)
    target = named and f"{folder}/{rank}/{named}"
    accelerator.save_state(target)
    with torch.no_grad():
        accelerator.unwrap_model(model).weight.fill_(7)

    def stop(operation, *paths):
        if rank == stopped and operation in ("rename", "exchange"):
            raise OSError(5, "Input/output error")

    with disk.observed(stop), pytest.raises(CheckpointError, match=f"rank {stopped} failed while publishing"):
        accelerator.save_state(target)
    return sorted(os.listdir(f"{folder}/{rank}"))


@pytest.mark.parametrize("stopped", [0, 1])
@pytest.mark.parametrize("named", [None, "run"])
def test_a_machine_that_was_stopped_before_publishing_catches_up(rank_pool, tmp_path, stopped, named):
    rank_pool.run(stop_before_publishing, str(tmp_path), stopped, named, num_ranks=2)
    for weight, iteration, left in rank_pool.run(load_on_machines, str(tmp_path), named, num_ranks=2):
        assert weight == 7.0
        if named is None:
            assert iteration == 2
            assert "checkpoints" in left


def save_on_machines_that_share(folder):
    os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    project = ProjectConfiguration(save_on_each_node=True)
    accelerator = Accelerator(cpu=True, project_config=project)
    with_model(accelerator)
    accelerator.save_state(folder)
    accelerator.load_state(folder)
    return sorted(os.listdir(folder))


def save_on_machines_unsaid(folder):
    from accelerate.checkpoint import save

    rank = os.environ["RANK"]
    os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    os.chdir(f"{folder}/{rank}")
    save.PATIENCE = 2
    accelerator = Accelerator(cpu=True)
    with_model(accelerator)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        accelerator.save_state("run")
    accelerator.load_state("run")
    os.chdir("/")
    return [str(warning.message) for warning in caught], sorted(os.listdir(f"{folder}/{rank}/run"))


def test_machines_with_folders_of_their_own_are_noticed(rank_pool, tmp_path):
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
    outcomes = rank_pool.run(save_on_machines_unsaid, str(tmp_path), num_ranks=2)
    (warned, first), (silent, second) = outcomes
    assert len(warned) == 1
    assert "run is not shared by all machines: each writes a checkpoint of its own" in warned[0]
    assert silent == []
    names = ["accelerate_manifest.json", "model.safetensors", "optimizer.bin"]
    assert first == [*names, "random_states_0.pkl"]
    assert second == [*names, "random_states_1.pkl"]


def test_machines_that_share_a_folder_write_it_once(rank_pool, tmp_path):
    names = ["accelerate_manifest.json", "model.safetensors", "optimizer.bin"]
    names += ["random_states_0.pkl", "random_states_1.pkl"]
    folder = str(tmp_path / "folder")
    assert rank_pool.run(save_on_machines_that_share, folder, num_ranks=2) == [names] * 2
    assert os.listdir(tmp_path) == ["folder"]


def save_beside_another_backend(folder):
    """Save as if the group of the run were one that gloo's connections are not part of."""
    accelerator = Accelerator(cpu=True)
    with_model(accelerator)
    current.backend = "another"
    for _ in range(2):
        accelerator.save_state(folder)
    accelerator.load_state(folder)
    own = agreement._groups[dist.group.WORLD]
    current.backend = "gloo"
    return dist.get_process_group_ranks(own), own is not dist.group.WORLD


def test_ranks_agree_over_a_group_of_their_own_beside_another_backend(rank_pool, tmp_path):
    folder = str(tmp_path / "folder")
    for _ in range(2):  # the second run has a group of its own, too
        assert rank_pool.run(save_beside_another_backend, folder, num_ranks=2) == [([0, 1], True)] * 2
