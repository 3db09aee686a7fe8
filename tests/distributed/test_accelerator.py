"""The facade on real ranks: what one process cannot show."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from accelerate.accelerator import Accelerator
from accelerate.errors import EnvironmentVariableError, LaunchError
from accelerate.options.data import DataLoaderConfiguration
from accelerate.options.enums import DistributedType
from accelerate.state import PartialState


def model_and_loader(size, batch_size, **config):
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**config))
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.arange(size)), batch_size=batch_size)
    return accelerator, *accelerator.prepare(nn.Linear(1, 1), loader)


def facts():
    accelerator = Accelerator(cpu=True)
    bare = PartialState()
    return (
        accelerator.distributed_type is DistributedType.MULTI_CPU,
        (accelerator.num_processes, accelerator.process_index, accelerator.local_process_index),
        (accelerator.is_main_process, accelerator.is_last_process, str(accelerator.device)),
        bare.backend,
    )


def test_facts(rank_pool):
    assert rank_pool.run(facts, num_ranks=2) == [
        (True, (2, 0, 0), (True, False, "cpu:0"), "gloo"),
        (True, (2, 1, 1), (False, True, "cpu:0"), "gloo"),
    ]


def bare_state_sees_its_world():
    state = PartialState()
    return state.num_processes, state.distributed_type is DistributedType.MULTI_CPU


def test_a_bare_state_under_a_launcher_sees_its_world(rank_pool):
    assert rank_pool.run(bare_state_sees_its_world, num_ranks=2) == [(2, True)] * 2


def prepared_model():
    accelerator, model, _ = model_and_loader(4, 1)
    unwrapped = accelerator.unwrap_model(model)
    names = list(accelerator.get_state_dict(model))
    return (
        isinstance(model, DistributedDataParallel),
        unwrapped is accelerator._models[0] is model.module,
        names,
        accelerator.prepare(model) is model,
        accelerator.prepare_model(nn.Linear(1, 1), evaluation_mode=True).__class__.__name__,
    )


def test_models_are_replicated_and_listed_bare(rank_pool):
    expected = (True, True, ["weight", "bias"], True, "Linear")
    assert rank_pool.run(prepared_model, num_ranks=2) == [expected] * 2


def refuses_a_spread_model(part):
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(1, 1))
    (model if part == "whole" else model[0]).hf_device_map = {"a": 0, "b": 1}
    with pytest.raises(ValueError, match="You can't train a model that has been loaded with"):
        accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
    return len(accelerator._models), len(accelerator._optimizers)


@pytest.mark.parametrize("part", ["whole", "inner"])
def test_a_model_spread_over_devices_is_refused_before_anything_changes(rank_pool, part):
    assert rank_pool.run(refuses_a_spread_model, part, num_ranks=2) == [(0, 0)] * 2


def metrics(size, batch_size, config):
    accelerator, _, loader = model_and_loader(size, batch_size, **config)
    seen = []
    for (rows,) in loader:
        seen.append(accelerator.gather_for_metrics({"rows": rows, "loss": torch.tensor(float(len(rows)))}))
    objects = []
    for (rows,) in loader:
        objects += accelerator.gather_for_metrics([f"row {row}" for row in rows.tolist()])
    return torch.cat([entry["rows"] for entry in seen]).tolist(), len(seen[-1]["loss"]), objects


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize(("size", "batch_size"), [(10, 4), (7, 2), (3, 4), (1, 4), (12, 2)])
@pytest.mark.parametrize("split_batches", [False, True])
def test_gather_for_metrics_gives_each_sample_once(rank_pool, num_ranks, size, batch_size, split_batches):
    if split_batches:
        batch_size *= num_ranks
    results = rank_pool.run(metrics, size, batch_size, {"split_batches": split_batches}, num_ranks=num_ranks)
    for rows, losses, objects in results:
        assert sorted(rows) == list(range(size))
        assert losses == num_ranks
        assert sorted(objects) == sorted(f"row {row}" for row in range(size))


def trigger():
    accelerator = Accelerator(cpu=True)
    if accelerator.is_last_process:
        accelerator.set_trigger()
    return accelerator.check_trigger(), accelerator.check_trigger()


def test_a_trigger_on_one_rank_is_seen_by_all_once(rank_pool):
    assert rank_pool.run(trigger, num_ranks=3) == [(True, False)] * 3


def ordered(folder):
    accelerator = Accelerator(cpu=True)
    path = f"{folder}/order.txt"
    with accelerator.main_process_first(), open(path, "a") as file:
        file.write(str(min(1, accelerator.process_index)))
    accelerator.wait_for_everyone()
    with open(path) as file:
        return file.read()


def test_the_main_process_goes_first(rank_pool, tmp_path):
    assert rank_pool.run(ordered, str(tmp_path), num_ranks=3) == ["011"] * 3


def first_fails():
    accelerator = Accelerator(cpu=True)
    try:
        with accelerator.main_process_first():
            if accelerator.is_main_process:
                raise KeyError("on the main process")
    except KeyError:
        return "failed"
    return "went on"


def test_a_failing_main_process_does_not_hang_the_others(rank_pool):
    assert rank_pool.run(first_fails, num_ranks=2) == ["failed", "went on"]


def gated():
    accelerator = Accelerator(cpu=True)
    with accelerator.split_between_processes(list("abcde")) as part:
        pass
    return (
        part,
        accelerator.on_main_process(lambda: "main")(),
        accelerator.on_last_process(lambda: "last")(),
        accelerator.on_process(process_index=1)(lambda: "one")(),
        accelerator.on_local_main_process(lambda: "local")(),
    )


def test_gates_and_shares(rank_pool):
    assert rank_pool.run(gated, num_ranks=2) == [
        (["a", "b", "c"], "main", None, None, "local"),
        (["d", "e"], None, "last", "one", None),
    ]


def scheduler_steps(split_batches):
    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(split_batches=split_batches)
    )
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    accelerator.backward(model(torch.ones(1, 1)).sum())
    optimizer.step()
    scheduler.step()
    return scheduler.scheduler.last_epoch


def test_schedulers_advance_once_a_process(rank_pool):
    assert rank_pool.run(scheduler_steps, False, num_ranks=2) == [2, 2]
    assert rank_pool.run(scheduler_steps, True, num_ranks=2) == [1, 1]


def rates_by_optimizer_step():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, step_scheduler_per_process=False)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=5)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    rates = []
    for _ in range(2 * 5):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.ones(1, 1)).sum())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            rates += scheduler.get_last_lr()
    return rates


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_a_schedule_in_optimizer_steps_is_the_same_on_any_number_of_ranks(rank_pool, num_ranks):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=5)
    expected = []
    for _ in range(5):
        optimizer.step()
        schedule.step()
        expected += schedule.get_last_lr()
    assert rank_pool.run(rates_by_optimizer_step, num_ranks=num_ranks) == [expected] * num_ranks


def plateau_rates():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    optimizer, scheduler = accelerator.prepare(optimizer, scheduler)
    rates = []
    for _ in range(4):
        scheduler.step(1.0)
        rates += scheduler.get_last_lr()
    return rates


def test_patience_is_counted_in_metrics_and_not_in_processes(rank_pool):
    assert rank_pool.run(plateau_rates, num_ranks=2) == [[1.0, 1.0, 0.5, 0.5]] * 2


def two_networks(num_steps):
    """Train two networks against each other; return their weights, alike on all ranks."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    generator, critic = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (generator, critic)]
    generator, critic, *optimizers = accelerator.prepare(generator, critic, *optimizers)
    noise = torch.Generator().manual_seed(accelerator.process_index)
    for _ in range(num_steps):
        with accelerator.accumulate(generator, critic):
            inputs = torch.randn(3, 2, generator=noise)
            accelerator.backward(critic(generator(inputs).detach()).mean() - critic(inputs).mean())
            optimizers[1].step()
            optimizers[1].zero_grad()
            accelerator.backward(-critic(generator(inputs)).mean())
            for optimizer in optimizers:
                if optimizer is optimizers[0]:
                    optimizer.step()
                optimizer.zero_grad()
    models = accelerator._models
    return [
        value
        for model in models
        for parameter in model.parameters()
        for value in parameter.flatten().tolist()
    ]


def test_two_models_stay_alike_on_all_ranks(rank_pool):
    first, second = rank_pool.run(two_networks, 4, num_ranks=2)
    assert first == second
    (before, _), (alone,) = (
        rank_pool.run(two_networks, 0, num_ranks=2),
        rank_pool.run(two_networks, 4, num_ranks=1),
    )
    assert first not in (before, alone)


def train_save_and_go_on(folder):
    accelerator, model, loader = model_and_loader(8, 2)
    optimizer = accelerator.prepare(torch.optim.AdamW(model.parameters(), lr=0.1))

    def epoch():
        for (rows,) in loader:
            accelerator.backward(model(rows[:, None].float() + torch.rand(1)).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        return [parameter.tolist() for parameter in model.parameters()]

    epoch()
    accelerator.save_state(f"{folder}/state")
    accelerator.save_model(model, f"{folder}/weights")
    expected = epoch()
    accelerator.load_state(f"{folder}/state")
    return expected == epoch()


def test_what_was_saved_goes_on_exactly(rank_pool, tmp_path):
    assert rank_pool.run(train_save_and_go_on, str(tmp_path), num_ranks=2) == [True, True]
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == [
        "accelerate_manifest.json",
        "dl_state_dict.bin",
        "model.safetensors",
        "optimizer.bin",
        "random_states_0.pkl",
        "random_states_1.pkl",
    ]
    assert [path.name for path in (tmp_path / "weights").iterdir()] == ["model.safetensors"]


def with_environment(changes):
    import os

    os.environ.update(changes)
    for name, value in changes.items():
        if not value:
            del os.environ[name]
    try:
        PartialState(cpu=True)
    except (EnvironmentVariableError, LaunchError) as error:
        return type(error).__name__, str(error)
    return "started"


def test_half_set_variables_are_an_error_at_once(rank_pool):
    (kind, text), *_ = rank_pool.run(with_environment, {"WORLD_SIZE": ""}, num_ranks=2, timeout=20)
    assert kind == "EnvironmentVariableError"
    assert "WORLD_SIZE is not" in text


def port_in_use():
    import os
    import socket

    if os.environ["RANK"] != "0":
        return None
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        os.environ["MASTER_PORT"] = str(listener.getsockname()[1])
        return with_environment({"MASTER_ADDR": "127.0.0.1"})


def test_a_port_in_use_is_an_error_that_names_it(rank_pool):
    (kind, text), _ = rank_pool.run(port_in_use, num_ranks=2, timeout=20)
    assert kind == "LaunchError"
    assert "port is in use" in text
