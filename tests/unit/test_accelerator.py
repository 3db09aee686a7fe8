import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate.accelerator import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.options.accumulation import GradientAccumulationPlugin
from accelerate.options.data import DataLoaderConfiguration
from accelerate.options.handlers import DistributedDataParallelKwargs
from accelerate.scheduler import AcceleratedScheduler
from accelerate.state import AcceleratorState, GradientState


@pytest.fixture(autouse=True)
def fresh():
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def objects(size=10, batch_size=2):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
    loader = DataLoader(TensorDataset(torch.randn(size, 3), torch.arange(size)), batch_size=batch_size)
    return model, optimizer, scheduler, loader


def test_prepare_keeps_the_order_whatever_it_is():
    accelerator = Accelerator(cpu=True)
    model, optimizer, scheduler, loader = objects()
    other = object()
    results = accelerator.prepare(scheduler, other, loader, optimizer, model)
    assert isinstance(results[0], AcceleratedScheduler)
    assert results[1] is other
    assert isinstance(results[2], DataLoader)
    assert isinstance(results[3], AcceleratedOptimizer)
    assert results[4] is model
    assert results[0].optimizers == [results[3]]


def test_prepare_one_object_gives_one_object_and_none_is_an_error():
    accelerator = Accelerator(cpu=True)
    model = objects()[0]
    assert accelerator.prepare(model) is model
    with pytest.raises(ValueError, match="at least one object"):
        accelerator.prepare()
    with pytest.raises(ValueError, match="1 elements, but 2"):
        accelerator.prepare(model, model, device_placement=[True])


def test_prepared_objects_pass_through_and_another_accelerator_learns_of_them():
    first, second = Accelerator(cpu=True), Accelerator(cpu=True)
    prepared = first.prepare(*objects())
    assert first.prepare(*prepared) == prepared
    assert len(first._models) == len(first._optimizers) == len(first._dataloaders) == 1
    assert second.prepare(*prepared) == prepared
    assert len(second._models) == len(second._schedulers) == len(second._dataloaders) == 1


def test_a_loop_with_accumulation_equals_plain_torch():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer, scheduler, loader = accelerator.prepare(*objects())
    synced = []
    for inputs, _ in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(inputs).square().mean())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        synced.append((accelerator.sync_gradients, accelerator.step))
    assert synced == [(False, 1), (True, 2), (False, 3), (True, 4), (True, 0)]
    plain, plain_optimizer, plain_scheduler, plain_loader = objects()
    batches = [inputs for inputs, _ in plain_loader]
    for window in (batches[:2], batches[2:4], batches[4:]):
        for inputs in window:
            (plain(inputs).square().mean() / 2).backward()
        plain_optimizer.step()
        plain_scheduler.step()
        plain_optimizer.zero_grad()
    assert torch.equal(model.weight, plain.weight)
    assert scheduler.get_last_lr() == plain_scheduler.get_last_lr()


def test_accumulate_decorates_a_function_too():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = accelerator.prepare(objects()[0])
    calls = []

    @accelerator.accumulate(model)
    def step():
        calls.append(accelerator.sync_gradients)

    step()
    step()
    assert calls == [False, True]


def test_gather_for_metrics_leaves_no_sample_twice_in_one_process():
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(objects(size=5)[3])
    seen = [accelerator.gather_for_metrics(targets) for _, targets in loader]
    assert torch.cat(seen).tolist() == [0, 1, 2, 3, 4]


def test_a_scalar_on_the_last_batch_stays_whole():
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(objects(size=5)[3])
    losses = [accelerator.gather_for_metrics({"loss": torch.tensor(1.0), "rows": rows}) for rows, _ in loader]
    assert [entry["loss"].dim() for entry in losses] == [0, 0, 0]
    assert sum(len(entry["rows"]) for entry in losses) == 5


def test_settings_that_contradict_each_other():
    with pytest.raises(ValueError, match="pass one of them"):
        Accelerator(
            cpu=True,
            gradient_accumulation_steps=2,
            gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=2),
        )
    with pytest.raises(ValueError, match="two DistributedDataParallelKwargs"):
        Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs()] * 2)
    with pytest.raises(AssertionError, match="KwargsHandler"):
        Accelerator(cpu=True, kwargs_handlers=["text"])
    with pytest.raises(ValueError, match="at least 1"):
        Accelerator(cpu=True, gradient_accumulation_steps=0)
    with pytest.raises(ValueError, match="split_batches=True contradicts"):
        Accelerator(cpu=True, split_batches=True, dataloader_config=DataLoaderConfiguration())
    with pytest.raises(ValueError, match=r"log_with='wandb'.*not available"):
        Accelerator(cpu=True, log_with="wandb")


def test_split_batches_of_the_constructor_is_honoured():
    accelerator = Accelerator(cpu=True, split_batches=True)
    assert accelerator.split_batches
    assert accelerator.dataloader_config.split_batches


def test_the_environment_beats_the_argument_with_a_warning(monkeypatch):
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "3")
    with pytest.warns(UserWarning, match="replaces gradient_accumulation_steps=5"):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=5)
    assert accelerator.gradient_accumulation_steps == 3
    accelerator.gradient_accumulation_steps = 4
    assert Accelerator(cpu=True).gradient_state.num_steps == 3


def test_clipping():
    accelerator = Accelerator(cpu=True)
    model, _ = accelerator.prepare(*objects()[:2])
    accelerator.backward(model(torch.ones(2, 3)).sum() * 100)
    norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
    assert norm > 1
    assert torch.cat([p.grad.flatten() for p in model.parameters()]).norm() <= 1 + 1e-5
    accelerator.clip_grad_value_(model.parameters(), 0.001)
    assert model.weight.grad.abs().max() <= 0.001
    assert not accelerator.optimizer_step_was_skipped


def test_trigger():
    accelerator = Accelerator(cpu=True)
    assert not accelerator.check_trigger()
    accelerator.set_trigger()
    assert accelerator.check_trigger()
    assert not accelerator.check_trigger()


def test_free_memory_forgets_everything():
    accelerator = Accelerator(cpu=True)
    prepared = accelerator.prepare(*objects())
    accelerator.step = 5
    assert accelerator.free_memory(*prepared) == [None] * 4
    assert (len(accelerator._models), len(accelerator._optimizers), accelerator.step) == (0, 0, 0)
    assert accelerator.clear() == []


def test_another_accelerator_with_other_settings_after_the_end():
    first = Accelerator(cpu=True, gradient_accumulation_steps=2, project_dir="first")
    model, optimizer, scheduler, loader = first.prepare(*objects())
    for inputs, _ in loader:
        with first.accumulate(model):
            first.backward(model(inputs).mean())
            optimizer.step()
        break  # in the middle of a window, and of a pass
    assert not first.sync_gradients
    first.end_training()
    assert first.end_training() is None
    second = Accelerator(cpu=True, project_dir="second")
    assert second.sync_gradients
    assert (second.gradient_accumulation_steps, second.project_dir) == (1, "second")
    assert second.gradient_state.active_dataloader is None
    again = second.prepare(model, optimizer, scheduler, loader)
    assert again[0] is model
    assert again[1] is not optimizer
    assert again[1].optimizer is optimizer.optimizer
    assert again[2].optimizers == [again[1]]
    assert again[3] is not loader
    assert again[3].base_dataloader is loader.base_dataloader
    assert second.prepare(*again) == again
    for prepared in (second.prepare_optimizer(optimizer), second.prepare_scheduler(scheduler)):
        assert prepared not in (optimizer, scheduler)
    assert second.prepare_data_loader(loader) is not loader
    assert second.prepare_model(model) is model


def test_deepcopy_is_the_same_object():
    accelerator = Accelerator(cpu=True)
    assert copy.deepcopy(accelerator) is accelerator


def test_two_accelerators_share_the_window_but_not_the_objects():
    first = Accelerator(cpu=True, gradient_accumulation_steps=2)
    first.prepare(objects()[0])
    second = Accelerator(cpu=True, gradient_accumulation_steps=4)
    assert first.gradient_accumulation_steps == second.gradient_accumulation_steps == 4
    assert second._models == []


def test_print_and_process_helpers(capsys):
    accelerator = Accelerator(cpu=True)
    accelerator.print("hello", end="!")
    assert capsys.readouterr().out == "hello!"
    with accelerator.split_between_processes([1, 2, 3]) as part:
        assert part == [1, 2, 3]
    with accelerator.main_process_first(), accelerator.local_main_process_first():
        assert accelerator.is_main_process
    assert accelerator.on_main_process(lambda: 7)() == 7


def test_a_model_spread_over_devices_is_not_moved():
    accelerator = Accelerator(cpu=True)
    model = objects()[0]
    model.hf_device_map = {"a": 0, "b": 1}
    assert accelerator.prepare(model) is model


def test_register_for_checkpointing_names_what_is_unfit():
    accelerator = Accelerator(cpu=True)
    with pytest.raises(ValueError, match=r"state_dict.*'text'"):
        accelerator.register_for_checkpointing("text")
