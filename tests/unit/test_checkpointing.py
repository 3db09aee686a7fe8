"""The order of a save and a load, what each of them covers, and what they say when something is missing."""

import copy
import errno
import gc
import inspect
import logging
import os
import random
import shutil
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from accelerate.checkpoint import disk, files, restore
from accelerate.checkpoint.manifest import MANIFEST
from accelerate.checkpoint.place import place_of
from accelerate.checkpointing import (
    Ranks,
    Registry,
    load_accelerator_state,
    load_custom_state,
    load_state,
    save_accelerator_state,
    save_custom_state,
    save_state,
)
from accelerate.devices.base import Device
from accelerate.errors import (
    CheckpointError,
    CheckpointWriteError,
    ConfigurationError,
    MismatchedCheckpointError,
    MissingCheckpointFileError,
    UnsafeCheckpointError,
)
from accelerate.options.project import ProjectConfiguration
from accelerate.options.request import Request
from accelerate.precision.base import Precision
from accelerate.runtime.current import Current, current
from accelerate.runtime.world import World
from accelerate.strategies.base import Owned, Strategy


class Counter:
    """A user's object with a state."""

    def __init__(self, value=0):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


class Position(Counter):
    """A loader that keeps its position."""

    use_stateful_dataloader = True


class Unknown:
    """A class that torch does not know."""


class RunsOnLoad:
    """Pickles as a call that makes a folder."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


class AloneAmongMany(Ranks):
    """A rank whose peers say what it says."""

    def exchange(self, message, *, patient=False):
        return [message] * self.size


class Rank:
    """One rank of a run: everything that save_state and load_state are given besides the registry."""

    def __init__(self, project=None, strategy=Strategy, **world):
        self.run = Current()
        self.run.__dict__.update(world=World(**world), kind=Device(), device=torch.device("cpu"))
        self.strategy = strategy(self.run, Precision(), Request())
        self.project = project or ProjectConfiguration()
        self.ranks = AloneAmongMany(self.run.world)

    def save(self, folder, registry, **kwargs):
        return save_state(folder, registry, **self.common(), **kwargs)

    def load(self, folder, registry, **kwargs):
        return load_state(folder, registry, **self.common(), **kwargs)

    def common(self):
        return {"run": self.run, "strategy": self.strategy, "project": self.project, "ranks": self.ranks}


@pytest.fixture(autouse=True)
def fresh():
    yield
    current.reset()


def trained(seed=0, num_models=2, **kwargs):
    """Return a registry of models that have made steps with momentum."""
    torch.manual_seed(seed)
    models = [nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)) for _ in range(num_models)]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.1) for model in models]
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5) for optimizer in optimizers]
    for model, optimizer, scheduler in zip(models, optimizers, schedulers, strict=True):
        for _ in range(1 + seed):
            model(torch.randn(4, 3)).square().sum().backward()
            optimizer.step()
            scheduler.step()
    return Registry(models=models, optimizers=optimizers, schedulers=schedulers, step=7 + seed, **kwargs)


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(equal(*pair) for pair in zip(one, other, strict=True))
    return one == other


def states(registry):
    kinds = (
        registry.models,
        registry.optimizers,
        registry.schedulers,
        registry.custom_objects,
        registry.loaders,
    )
    return [[item.state_dict() for item in items] for items in kinds]


def draw():
    return random.random(), np.random.rand(), torch.rand(1).item()


def names_in(folder):
    """Return the names in a folder, the manifest aside."""
    return sorted(path.name for path in Path(folder).iterdir() if path.name != MANIFEST)


# ---- round trips


@pytest.mark.parametrize("safe", [True, False])
def test_all_comes_back_bit_for_bit(tmp_path, safe):
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    registry = trained(custom_objects=[Counter(1), Counter(2)], loaders=[Position(5)], scaler=scaler)
    folder = Rank().save(tmp_path / "folder", registry, safe_serialization=safe)
    expected, numbers = copy.deepcopy(states(registry)), draw()
    other = trained(
        1,
        custom_objects=[Counter(), Counter()],
        loaders=[Position()],
        scaler=torch.amp.GradScaler("cpu", init_scale=2.0),
    )
    assert not equal(states(other), expected)
    assert Rank().load(folder, other) == {"step": 7, "open_window": False, "counted": {}}
    assert equal(states(other), expected)
    assert other.scaler.state_dict() == scaler.state_dict()
    assert draw() == numbers


@pytest.mark.parametrize("safe", [True, False])
def test_the_files_are_the_interfaces(tmp_path, safe):
    registry = trained(
        custom_objects=[Counter()], loaders=[Counter(), Position()], scaler=torch.amp.GradScaler("cpu")
    )
    folder = Rank().save(tmp_path, registry, safe_serialization=safe)
    weights = (
        ["model.safetensors", "model_1.safetensors"] if safe else ["pytorch_model.bin", "pytorch_model_1.bin"]
    )
    assert folder == tmp_path
    assert names_in(folder) == sorted(
        [
            *weights,
            *("optimizer.bin", "optimizer_1.bin", "scheduler.bin", "scheduler_1.bin", "dl_state_dict_1.bin"),
            *("scaler.pt", "random_states_0.pkl", "custom_checkpoint_0.pkl"),
        ]
    )


def test_what_another_format_left_is_not_loaded_instead(tmp_path):
    registry = trained()
    Rank().save(tmp_path, trained(1), safe_serialization=False)
    Rank().save(tmp_path, registry)
    other = trained(2)
    Rank().load(tmp_path, other)
    assert equal(states(other), states(registry))


def test_the_common_part_has_the_interfaces_signatures():
    save_names = "output_dir model_states optimizers schedulers dataloaders process_index step scaler"
    load_names = (
        "input_dir models optimizers schedulers dataloaders process_index scaler map_location load_kwargs"
    )
    for function, names in {
        save_accelerator_state: f"{save_names} save_on_each_node safe_serialization",
        load_accelerator_state: f"{load_names} load_model_func_kwargs",
        save_custom_state: "obj path index save_on_each_node",
        load_custom_state: "obj path index",
    }.items():
        assert list(inspect.signature(function).parameters) == names.split()


def test_the_common_part_round_trip(tmp_path):
    registry = trained()
    weights = [model.state_dict() for model in registry.models]
    rest = (registry.optimizers, registry.schedulers, [], 0)
    assert save_accelerator_state(str(tmp_path), weights, *rest, 11) == tmp_path
    numbers = draw()
    other = trained(1)
    loaded = load_accelerator_state(str(tmp_path), other.models, other.optimizers, other.schedulers, [], 0)
    assert loaded == {"step": 11}
    assert equal(states(other), states(registry))
    assert draw() == numbers


def test_custom_state_round_trip(tmp_path):
    save_custom_state(Counter(3), str(tmp_path), 2)
    counter = Counter()
    load_custom_state(counter, str(tmp_path), 2)
    assert counter.value == 3
    assert names_in(tmp_path) == ["custom_checkpoint_2.pkl"]


# ---- ranks


@pytest.mark.parametrize(
    ("rank", "local_rank", "on_each_node", "writes"),
    [
        (0, 0, False, True),
        (1, 1, False, False),
        (2, 0, False, False),
        (2, 0, True, True),
        (3, 1, True, False),
    ],
)
def test_each_rank_writes_its_part(tmp_path, rank, local_rank, on_each_node, writes):
    member = Rank(
        ProjectConfiguration(save_on_each_node=on_each_node),
        rank=rank,
        size=4,
        local_rank=local_rank,
        local_size=2,
    )
    registry = trained(num_models=1, custom_objects=[Counter()])
    folder = tmp_path / "folder"
    staging = place_of(folder).staging
    if not writes:
        (staging / ".probe").mkdir(parents=True)  # as the process that writes does
    member.save(folder, registry)
    own = f"random_states_{rank}.pkl"
    all_files = ["custom_checkpoint_0.pkl", "model.safetensors", "optimizer.bin", own, "scheduler.bin"]
    assert names_in(folder if writes else staging) == (all_files if writes else [".probe", own])
    assert folder.exists() == writes


def test_a_rank_without_random_states_takes_the_step_and_says_what_is_lost(tmp_path):
    Rank().save(tmp_path, trained())
    with pytest.warns(
        UserWarning, match=r"Random states of rank 1 not restored: .*random_states_1\.pkl does not exist"
    ):
        assert Rank(rank=1, size=2).load(tmp_path, trained(1))["step"] == 7


def test_damaged_random_states_are_named_and_do_not_run(tmp_path):
    Rank().save(tmp_path, trained())
    torch.save({"step": RunsOnLoad(tmp_path / "marker")}, tmp_path / "random_states_0.pkl")
    (tmp_path / MANIFEST).unlink()
    with pytest.warns(UserWarning, match=r"random_states_0\.pkl was not loaded: it needs (posix|nt)\.mkdir"):
        assert "step" not in Rank().load(tmp_path, trained(1))
    assert not (tmp_path / "marker").exists()


# ---- order and hooks


class Recorded(Strategy):
    """One process, which writes down what it is asked for."""

    events: list

    def state_dict(self, model):
        self.events.append("weights")
        return super().state_dict(model)

    def save(self, models, optimizers, folder):
        self.events.append(("strategy", names_in(folder)))
        return Owned()


def test_save_hooks_come_after_weights_and_before_files(tmp_path):
    rank = Rank(strategy=Recorded)
    events = rank.strategy.events = []

    def hook(models, weights, folder):
        events.append((len(models), len(weights), folder, names_in(folder)))
        weights.pop()

    rank.save(tmp_path / "folder", trained(), hooks=[hook])
    staging = str(place_of(tmp_path / "folder").staging)
    assert events == [("strategy", []), "weights", "weights", (2, 2, staging, [])]
    assert "model.safetensors" in names_in(tmp_path / "folder")
    assert "model_1.safetensors" not in names_in(tmp_path / "folder")


def test_load_hooks_take_models_out_but_not_out_of_the_registry(tmp_path):
    registry, other = trained(), trained(1)
    Rank().save(tmp_path, registry)
    untouched = copy.deepcopy(other.models[1].state_dict())
    seen = []

    def hook(models, folder):
        seen.append(folder)
        models.pop()

    Rank().load(tmp_path, other, hooks=[hook])
    assert seen == [str(tmp_path)]
    assert len(other.models) == 2
    assert equal(other.models[0].state_dict(), registry.models[0].state_dict())
    assert equal(other.models[1].state_dict(), untouched)


class Owner(Strategy):
    """An engine that writes models and optimizers in its own way."""

    def save(self, models, optimizers, folder):
        files.save({"owned": len(models)}, folder / "engine")
        return Owned(models=True, optimizers=True)

    def load(self, models, optimizers, folder):
        assert files.load(folder / "engine") == {"owned": len(models)}
        return Owned(models=True, optimizers=True)


def test_what_a_strategy_owns_is_left_to_it(tmp_path):
    registry, other = trained(), trained(1)
    Rank(strategy=Owner).save(tmp_path, registry)
    assert names_in(tmp_path) == ["engine", "random_states_0.pkl", "scheduler.bin", "scheduler_1.bin"]
    before = copy.deepcopy(states(other)[:2])
    Rank(strategy=Owner).load(tmp_path, other)
    assert equal(states(other)[:2], before)
    assert equal(states(other)[2], states(registry)[2])


def test_loading_a_custom_object_does_not_use_up_random_numbers(tmp_path):
    class Draws(Counter):
        def load_state_dict(self, state):
            draw()

    registry = Registry(custom_objects=[Draws()])
    Rank().save(tmp_path, registry)
    numbers = draw()
    Rank().load(tmp_path, registry)
    assert draw() == numbers


# ---- automatic naming


def test_automatic_naming_counts_rotates_and_finds_the_newest(tmp_path):
    project = ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True, total_limit=2)
    rank = Rank(project)
    for number in range(3):
        folder = rank.save("ignored", trained(num_models=1, custom_objects=[Counter(number)]))
        assert folder == tmp_path / "checkpoints" / f"checkpoint_{number}"
    assert names_in(tmp_path / "checkpoints") == ["checkpoint_1", "checkpoint_2"]
    assert project.iteration == 3

    resumed = Rank(
        ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True, total_limit=2)
    )
    registry = trained(1, num_models=1, custom_objects=[Counter()])
    resumed.load(None, registry)
    assert registry.custom_objects[0].value == 2
    assert resumed.save(None, registry).name == "checkpoint_3"


def test_checks_come_before_rotation(tmp_path):
    project = ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True, total_limit=1)
    Rank(project).save(None, trained())
    project.iteration = 0
    with pytest.raises(ConfigurationError, match=r"checkpoint_0 \(0\) already exists"):
        Rank(project).save(None, trained())
    assert names_in(tmp_path / "checkpoints") == ["checkpoint_0"]


def test_only_the_writer_removes_old_checkpoints(tmp_path):
    project = ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True, total_limit=1)
    Rank(project).save(None, trained())
    (tmp_path / ".staging" / "checkpoint_1").mkdir(parents=True)
    Rank(project, rank=1, size=2, local_rank=1, local_size=2).save(None, trained())
    assert names_in(tmp_path / "checkpoints") == ["checkpoint_0"]


def test_the_iteration_counts_with_explicit_folders_too(tmp_path):
    rank = Rank()
    rank.save(tmp_path / "a", trained())
    rank.save(tmp_path / "b", trained())
    assert rank.project.iteration == 2
    rank.load(tmp_path / "a", trained())
    assert rank.project.iteration == 2


# ---- what is wrong is said before anything changes


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        (
            "model_1.safetensors",
            r"lacks model_1\.safetensors or pytorch_model_1\.bin; it holds accelerate_manifest\.json, cust",
        ),
        ("optimizer.bin", r"lacks optimizer\.bin;"),
        ("scheduler_1.bin", r"lacks scheduler_1\.bin;"),
        ("dl_state_dict.bin", r"lacks dl_state_dict\.bin;"),
        ("scaler.pt", r"lacks scaler\.pt;"),
    ],
)
def test_a_missing_file_is_named_and_nothing_changed(tmp_path, lost, named):
    kwargs = {"custom_objects": [Counter()], "loaders": [Position()], "scaler": torch.amp.GradScaler("cpu")}
    Rank().save(tmp_path, trained(**kwargs))
    (tmp_path / lost).unlink()
    other = trained(1, **kwargs)
    before = copy.deepcopy(states(other))
    with pytest.raises(MissingCheckpointFileError, match=named):
        Rank().load(tmp_path, other)
    assert equal(states(other), before)


@pytest.mark.parametrize("num_registered", [0, 2])
def test_another_number_of_custom_objects_is_refused(tmp_path, num_registered):
    Rank().save(tmp_path, trained(custom_objects=[Counter()]))
    other = trained(1, custom_objects=[Counter() for _ in range(num_registered)])
    before = copy.deepcopy(states(other))
    match = (
        rf"Number of custom checkpoints.*found 1 \(custom_checkpoint_0\.pkl\), registered {num_registered}"
    )
    with pytest.raises(RuntimeError, match=match):
        Rank().load(tmp_path, other)
    assert equal(states(other), before)


@pytest.mark.parametrize("map_location", ["cuda", torch.device("cpu"), 0])
def test_map_location_is_one_of_three(tmp_path, map_location):
    Rank().save(tmp_path, trained())
    with pytest.raises(TypeError, match="choose one of `None`, `'cpu'`, or `'on_device'`"):
        Rank().load(tmp_path, trained(), map_location=map_location)
    with pytest.raises(TypeError, match="choose one of `None`, `'cpu'`, or `'on_device'`"):
        load_accelerator_state(str(tmp_path), [], [], [], [], 0, map_location=map_location)


@pytest.mark.parametrize(
    ("size", "map_location", "expected"),
    [(1, None, "cpu"), (2, None, "meta"), (1, "on_device", "meta"), (2, "cpu", "cpu")],
)
def test_where_tensors_are_read_to(tmp_path, monkeypatch, size, map_location, expected):
    Rank().save(tmp_path, trained(num_models=1))
    seen = []
    monkeypatch.setattr(restore, "load_model", lambda model, folder, index, device: seen.append(device))
    rank = Rank(size=size)
    rank.run.device = torch.device("meta")
    registry = trained(num_models=1)
    registry = Registry(models=registry.models)
    with pytest.warns(UserWarning, match="Not restored"):
        rank.load(tmp_path, registry, map_location=map_location)
    assert seen == [torch.device(expected)]


@pytest.mark.parametrize("hooked", [True, False])
def test_the_old_state_of_an_optimizer_goes_before_the_new_one_comes(tmp_path, monkeypatch, hooked):
    Rank().save(tmp_path, trained(num_models=1))
    other = trained(1, num_models=1)
    old = weakref.ref(next(iter(other.optimizers[0].state.values()))["exp_avg"])
    if hooked:  # it may want to look at the state that is replaced
        other.optimizers[0].register_load_state_dict_pre_hook(lambda optimizer, state: None)
    alive = []
    load = files.load

    def observed(path, *args, **kwargs):
        if path.name == "optimizer.bin":
            gc.collect()
            alive.append(old() is not None)
        return load(path, *args, **kwargs)

    monkeypatch.setattr(files, "load", observed)
    Rank().load(tmp_path, other)
    assert alive == [hooked]
    assert equal(states(other), states(trained(num_models=1)))


def test_keyword_arguments_reach_load_state_dict(tmp_path):
    Rank().save(tmp_path, trained())
    other = trained(1)
    wider = nn.Sequential(*other.models[0], nn.Linear(2, 2))
    registry = Registry(models=[wider])
    with pytest.raises(RuntimeError, match=r"Missing key.*2\.weight"):
        Rank().load(tmp_path, registry)
    with pytest.warns(
        UserWarning, match=r"Not restored from .*: model_1\.safetensors, optimizer\.bin, optim"
    ):
        Rank().load(tmp_path, registry, strict=False)
    with pytest.raises(CheckpointError, match="Not restored"):
        Rank().load(tmp_path, Registry(models=trained().models), strict=True)
    with pytest.raises(TypeError, match="nonsense"):
        Rank().load(tmp_path, registry, nonsense=1)


# ---- security


def test_a_crafted_checkpoint_does_not_run(tmp_path):
    for name in ("optimizer.bin", "custom_checkpoint_0.pkl", "pytorch_model.bin"):
        folder, marker = tmp_path / name, tmp_path / f"{name} ran"
        registry = trained(num_models=1, custom_objects=[Counter()])
        Rank().save(folder, registry, safe_serialization=False)
        torch.save({"value": RunsOnLoad(marker)}, folder / name)
        (folder / MANIFEST).unlink()  # who can craft a file can leave this one out
        with pytest.raises(UnsafeCheckpointError, match=rf"{name} was not loaded.*mkdir"):
            Rank().load(folder, registry)
        assert not marker.exists()


def test_an_unknown_class_loads_only_when_asked_for(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        save_custom_state(Counter(Unknown()), str(tmp_path))
    assert "State of Counter" in caplog.text
    with pytest.raises(UnsafeCheckpointError, match=r"Unknown.*add_safe_globals.*load_kwargs"):
        load_custom_state(Counter(), str(tmp_path))
    registry = Registry(custom_objects=[Counter()])
    with pytest.warns(UserWarning, match="Random states"):
        Rank().load(tmp_path, registry, load_kwargs={"weights_only": False})
    assert isinstance(registry.custom_objects[0].value, Unknown)
    with torch.serialization.safe_globals([Unknown]):
        load_custom_state(Counter(), str(tmp_path))


def test_nothing_is_warned_about_in_an_ordinary_round_trip(tmp_path, caplog):
    registry = trained(custom_objects=[Counter()])
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        Rank().save(tmp_path, registry)
        Rank().load(tmp_path, registry)
    assert not caplog.records


# ---- what is not restored, and how numbering goes on


def automatic(tmp_path, **kwargs):
    return Rank(ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True, **kwargs))


def test_numbering_goes_on_after_a_damaged_checkpoint(tmp_path):
    rank = automatic(tmp_path)
    for number in range(3):
        rank.save(None, trained(num_models=1, custom_objects=[Counter(number)]))
    (tmp_path / "checkpoints" / "checkpoint_2" / "optimizer.bin").write_bytes(b"")
    resumed = automatic(tmp_path, total_limit=2)
    registry = trained(1, num_models=1, custom_objects=[Counter()])
    with pytest.warns(
        UserWarning, match=r"Passed over, since they are not whole: .*checkpoint_2/optimizer\.bin"
    ):
        resumed.load(None, registry)
    assert registry.custom_objects[0].value == 1
    assert resumed.save(None, registry).name == "checkpoint_3"
    (tmp_path / "checkpoints" / "checkpoint_3" / "optimizer.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match="Nothing was loaded"):
        automatic(tmp_path).load("latest", registry, strict=True)


def test_numbering_goes_on_after_a_checkpoint_that_was_named(tmp_path):
    rank = automatic(tmp_path)
    folders = [rank.save(None, trained()) for _ in range(3)]
    resumed = automatic(tmp_path)
    resumed.load(folders[0], trained(1))
    assert resumed.save(None, trained()).name == "checkpoint_3"


def test_what_the_checkpoint_holds_besides_is_named(tmp_path):
    registry = trained(custom_objects=[Counter()], scaler=torch.amp.GradScaler("cpu"))
    Rank().save(tmp_path, registry)
    fewer = Registry(models=registry.models, custom_objects=[Counter()])
    names = (
        r"Not restored .*: optimizer\.bin, optimizer_1\.bin, scaler\.pt, scheduler\.bin, scheduler_1\.bin\."
    )
    with pytest.warns(UserWarning, match=names):
        Rank().load(tmp_path, fewer)
    with pytest.raises(CheckpointError, match=names):
        Rank().load(tmp_path, fewer, strict=True)


def test_a_file_that_was_taken_out_and_is_not_needed_is_named(tmp_path):
    registry = trained(num_models=1)
    Rank().save(tmp_path, registry)
    (tmp_path / "optimizer.bin").unlink()
    with pytest.warns(UserWarning, match=r"Not restored .*: optimizer\.bin\. Somebody has removed them"):
        Rank().load(tmp_path, Registry(models=registry.models, schedulers=registry.schedulers))


def test_what_is_the_users_is_not_called_unrestored(tmp_path):
    (tmp_path / "model_9.safetensors.bak").touch()
    registry = trained()
    Rank().save(tmp_path, registry)
    (tmp_path / "optimizer_7.bin").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Rank().load(tmp_path, trained(1))


def test_a_gradient_that_cannot_be_stored_makes_a_save_inside_a_window_refuse(tmp_path):
    model = nn.Embedding(3, 2, sparse=True)
    model(torch.tensor([1])).sum().backward()
    registry = Registry(models=[model], open_window=True)
    with pytest.raises(CheckpointError, match=r"gradient of models\.0\.weight is torch\.sparse_coo"):
        Rank().save(tmp_path / "folder", registry)
    assert not list(tmp_path.iterdir())
    Rank().save(tmp_path / "folder", Registry(models=[model]))


def test_gradients_of_parameters_outside_of_models_are_saved_too(tmp_path):
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    parameter.grad = torch.arange(3.0)
    Rank().save(tmp_path, Registry(optimizers=[optimizer], open_window=True))
    parameter.grad = None
    loaded = Rank().load(tmp_path, Registry(optimizers=[optimizer]))
    assert loaded["open_window"]
    assert torch.equal(parameter.grad, torch.arange(3.0))


def test_keyword_arguments_reach_the_strategy(tmp_path):
    class Asks(Strategy):
        def save(self, models, optimizers, folder, **kwargs):
            (folder / "asked").write_text(repr(kwargs))
            return Owned()

    Rank(strategy=Asks).save(tmp_path, trained(), exclude_frozen_parameters=True)
    assert (tmp_path / "asked").read_text() == "{'exclude_frozen_parameters': True}"


def test_a_failed_save_leaves_nothing_and_does_not_count(tmp_path):
    class Fails(Counter):
        def state_dict(self):
            raise KeyError("no state")

    rank = automatic(tmp_path, total_limit=1)
    rank.save(None, trained())
    with pytest.raises(KeyError, match="no state"):
        rank.save(None, trained(custom_objects=[Fails()]))
    assert names_in(tmp_path) == ["checkpoints"]
    assert names_in(tmp_path / "checkpoints") == ["checkpoint_0"]
    assert rank.project.iteration == 1


# ---- what the system refuses


class Full:
    """A disk on which one operation fails, with the number of an error."""

    def __init__(self, operation, number):
        self.operation, self.number = operation, number

    def __call__(self, operation, *paths):
        if operation == self.operation and paths[0].name == "optimizer.bin":
            raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("operation", ["create", "write", "sync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_refusal_names_the_file_and_what_it_takes(tmp_path, operation, number):
    registry, folder = trained(), tmp_path / "folder"
    Rank().save(folder, registry)
    expected = copy.deepcopy(states(registry))
    with disk.observed(Full(operation, number)), pytest.raises(CheckpointWriteError) as raised:
        Rank().save(folder, trained(1))
    text = str(raised.value)
    assert text.startswith("Writing ")
    assert os.strerror(number) in text
    assert ".folder.staging" in text
    assert ("What this rank writes takes " in text) == (number != errno.EIO)
    assert text.endswith(". Nothing was published: earlier checkpoints are as they were.")
    assert os.listdir(tmp_path) == ["folder"]
    other = trained(2)
    Rank().load(folder, other)
    assert equal(states(other), expected)


def test_an_error_of_a_hook_stays_what_it_is(tmp_path):
    def hook(models, weights, folder):
        os.stat(f"{folder}/no/such/file")

    with pytest.raises(FileNotFoundError) as raised:
        Rank().save(tmp_path / "folder", trained(), hooks=[hook])
    assert not isinstance(raised.value, CheckpointError)
    assert os.listdir(tmp_path) == []


# ---- another run that saves in the meantime


def test_what_was_replaced_while_it_was_loaded_is_an_error(tmp_path):
    folder = tmp_path / "folder"
    Rank().save(folder, trained(custom_objects=[Counter(1)]))

    class Slow(Counter):
        def load_state_dict(self, state):
            Rank().save(folder, trained(1, custom_objects=[Counter(2)]))

    said = rf"{folder} was removed or replaced by another save while it was being loaded"
    with pytest.raises(CheckpointError, match=said):
        Rank().load(folder, trained(2, custom_objects=[Slow()]))


def test_what_was_removed_while_it_was_loaded_is_an_error(tmp_path):
    folder = tmp_path / "folder"
    Rank().save(folder, trained())
    with pytest.raises(CheckpointError, match="was removed or replaced by another save"):
        Rank().load(folder, trained(2), hooks=[lambda models, folder: shutil.rmtree(folder)])


def saving_meanwhile(monkeypatch, save):
    """Have another run save while the first file is read to be checked."""
    stamp, times = disk.stamp, []

    def slow(path):
        times.append(path)
        if len(times) == 1:
            with monkeypatch.context() as patch:
                patch.setattr(disk, "stamp", stamp)
                save()
        return stamp(path)

    monkeypatch.setattr(disk, "stamp", slow)


def test_what_is_replaced_while_it_is_checked_is_checked_again(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    Rank().save(folder, trained(custom_objects=[Counter(1)]))
    saving_meanwhile(monkeypatch, lambda: Rank().save(folder, trained(1, custom_objects=[Counter(2)])))
    registry = trained(2, custom_objects=[Counter()])
    Rank().load(folder, registry)
    assert registry.custom_objects[0].value == 2


def test_a_checkpoint_that_is_rotated_away_while_it_is_checked_gives_way_to_the_next(tmp_path, monkeypatch):
    def rank(iteration):
        return Rank(
            ProjectConfiguration(
                project_dir=str(tmp_path),
                automatic_checkpoint_naming=True,
                total_limit=1,
                iteration=iteration,
            )
        )

    rank(0).save(None, trained(custom_objects=[Counter(1)]))
    saving_meanwhile(monkeypatch, lambda: rank(1).save(None, trained(1, custom_objects=[Counter(2)])))
    registry = trained(2, custom_objects=[Counter()])
    rank(0).load(None, registry)
    assert registry.custom_objects[0].value == 2


# ---- what does not fit is named


def test_weights_of_another_model_are_named(tmp_path):
    Rank().save(tmp_path, Registry(models=[nn.Linear(2, 2)]))
    with pytest.raises(MismatchedCheckpointError, match=r"model\.safetensors does not fit the model: "):
        Rank().load(tmp_path, Registry(models=[nn.Linear(2, 3)]))
    Rank().save(tmp_path, Registry(models=[nn.Linear(2, 2)]), safe_serialization=False)
    with pytest.raises(RuntimeError, match=r"pytorch_model\.bin does not fit the model: "):
        Rank().load(tmp_path, Registry(models=[nn.Linear(2, 2, bias=False)]))


def test_the_state_of_another_optimizer_is_named(tmp_path):
    model = nn.Linear(2, 2)
    both, one = torch.optim.SGD(model.parameters()), torch.optim.SGD([model.weight])
    Rank().save(tmp_path, Registry(optimizers=[one, both]))
    with pytest.raises(MismatchedCheckpointError, match=r"optimizer_1\.bin does not fit the SGD: "):
        Rank().load(tmp_path, Registry(optimizers=[one, one]))
    assert issubclass(MismatchedCheckpointError, ValueError)


def test_what_cannot_be_pickled_is_named(tmp_path):
    registry = Registry(custom_objects=[Counter(1), Counter(lambda: 1)])
    said = r"^State of Counter cannot be saved as custom_checkpoint_1\.pkl: Can't pickle"
    with pytest.raises(CheckpointError, match=said):
        Rank().save(tmp_path / "folder", registry)
    assert os.listdir(tmp_path) == []
