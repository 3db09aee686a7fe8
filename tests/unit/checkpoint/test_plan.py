import logging

import pytest
import torch

from accelerate.checkpoint import files
from accelerate.checkpoint.plan import (
    PlannedFile,
    Registry,
    plan_custom_object,
    plan_objects,
    plan_random_states,
    write_plan,
)
from accelerate.devices.base import Device


class Counter:
    """Anything with a state; counts how often it was asked for it."""

    def __init__(self, **attributes):
        self.asked = 0
        self.__dict__.update(attributes)

    def state_dict(self):
        self.asked += 1
        return {"asked": self.asked}


class Unknown:
    """A class that torch does not know."""


def test_every_object_has_its_file():
    registry = Registry(
        optimizers=[Counter(), Counter()],
        schedulers=[Counter()],
        loaders=[Counter(use_stateful_dataloader=False), Counter(), Counter(use_stateful_dataloader=True)],
        scaler=Counter(),
    )
    plan = plan_objects(registry, [{}, {}], safe_serialization=True)
    assert [(file.name, file.safe) for file in plan] == [
        ("model.safetensors", True),
        ("model_1.safetensors", True),
        ("optimizer.bin", False),
        ("optimizer_1.bin", False),
        ("scheduler.bin", False),
        ("dl_state_dict_2.bin", False),
        ("scaler.pt", False),
    ]
    assert not any(file.every_rank for file in plan)


def test_weights_as_pickles():
    plan = plan_objects(Registry(), [{}, {}], safe_serialization=False)
    assert [(file.name, file.safe) for file in plan] == [
        ("pytorch_model.bin", False),
        ("pytorch_model_1.bin", False),
    ]


def test_random_states_are_every_ranks_and_custom_objects_the_main_processs():
    states = plan_random_states(4, Device(), rank=3)
    assert (states.name, states.every_rank, states.content["step"]) == ("random_states_3.pkl", True, 4)
    custom = plan_custom_object(Counter(), 2)
    assert (custom.name, custom.every_rank, custom.content) == (
        "custom_checkpoint_2.pkl",
        False,
        {"asked": 1},
    )


@pytest.mark.parametrize("is_writer", [True, False])
def test_a_rank_writes_its_own_files_and_the_writer_all(tmp_path, is_writer):
    plan = [
        PlannedFile(name="once", content={"a": torch.ones(1)}, holds="Weights", safe=True),
        PlannedFile(name="own", content=1, holds="Random states", every_rank=True),
    ]
    write_plan(plan, tmp_path, is_writer=is_writer)
    assert sorted(path.name for path in tmp_path.iterdir()) == (["once", "own"] if is_writer else ["own"])
    assert files.load(tmp_path / "own") == 1


def test_what_loading_will_refuse_is_said_when_saving(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        write_plan([PlannedFile(name="fine", content={"a": 1}, holds="Fine")], tmp_path, is_writer=True)
        assert not caplog.records
        write_plan(
            [PlannedFile(name="file", content=Unknown(), holds="State of X")], tmp_path, is_writer=True
        )
    assert "State of X" in caplog.text
    assert "test_plan.Unknown" in caplog.text
    assert "add_safe_globals" in caplog.text
