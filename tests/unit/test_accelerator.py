import copy
import gc
import sys
import weakref

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate.accelerator import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.options.accumulation import GradientAccumulationPlugin
from accelerate.options.data import DataLoaderConfiguration
from accelerate.options.dynamo import TorchDynamoPlugin
from accelerate.options.enums import FP8BackendType
from accelerate.options.handlers import DistributedDataParallelKwargs
from accelerate.options.project import ProjectConfiguration
from accelerate.precision.base import Precision
from accelerate.scheduler import AcceleratedScheduler
from accelerate.state import AcceleratorState, GradientState, PartialState, is_initialized


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


def test_gather_for_metrics_cuts_nothing_off_in_one_process():
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(objects(size=5)[3])
    pile = []
    for _, targets in loader:
        pile.append(targets)
        everything = accelerator.gather_for_metrics(torch.cat(pile))
    assert everything.tolist() == [0, 1, 2, 3, 4]
    assert accelerator.gather_for_metrics("text") == "text"


def test_a_mean_repeated_for_a_full_batch_weighs_as_much_as_the_last_batch_has_samples():
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(objects(size=5, batch_size=2)[3])
    repeated = [accelerator.gather_for_metrics(rows.mean().repeat(2)) for rows, _ in loader]
    assert torch.cat(repeated).shape == (5,)


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


def test_what_is_empty_asks_for_nothing():
    accelerator = Accelerator(cpu=True, dynamo_backend="no", log_with=[], rng_types=[])
    assert accelerator.rng_types == []
    assert Accelerator(cpu=True, dynamo_plugin=TorchDynamoPlugin()).rng_types == ["generator"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ACCELERATE_USE_DEEPSPEED", "true"),
        ("ACCELERATE_USE_MEGATRON_LM", "true"),
        ("ACCELERATE_USE_PARALLELISM_CONFIG", "true"),
    ],
)
def test_an_engine_that_the_launcher_asks_for_is_not_ignored(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name}={value} in the environment: not available"):
        Accelerator(cpu=True)
    monkeypatch.setenv(name, "NO" if "DYNAMO" in name else "false")
    Accelerator(cpu=True)


def test_a_precision_that_cannot_be_had_leaves_the_next_one_free(monkeypatch):
    monkeypatch.setattr("accelerate.precision.select.PRECISIONS", {"no": Precision})
    with pytest.raises(ValueError, match="this version does not have it"):
        Accelerator(cpu=True, mixed_precision="bf16")
    assert Accelerator(cpu=True).mixed_precision == "no"


def test_the_configuration_names_the_folder_before_the_argument_does(tmp_path):
    accelerator = Accelerator(cpu=True, project_dir=tmp_path)
    assert accelerator.project_dir == accelerator.logging_dir == tmp_path
    config = ProjectConfiguration(project_dir="x")
    with pytest.warns(UserWarning, match="project_dir='y' is not used") as warnings:
        assert Accelerator(cpu=True, project_dir="y", project_config=config).project_dir == "x"
    assert warnings[0].filename == __file__
    config = ProjectConfiguration(logging_dir="logs")
    accelerator = Accelerator(cpu=True, project_dir="y", project_config=config)
    assert (accelerator.project_dir, accelerator.logging_dir) == ("y", "logs")


def test_split_batches_of_the_constructor_is_honoured():
    accelerator = Accelerator(cpu=True, split_batches=True)
    assert accelerator.split_batches
    assert accelerator.dataloader_config.split_batches


def test_the_environment_beats_the_argument_with_a_warning(monkeypatch):
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "3")
    with pytest.warns(UserWarning, match="replaces gradient_accumulation_steps=5") as warnings:
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=5)
    assert warnings[0].filename == __file__
    assert accelerator.gradient_accumulation_steps == 3
    accelerator.gradient_accumulation_steps = 4
    assert Accelerator(cpu=True).gradient_state.num_steps == 3


def test_accumulation_steps_below_one_are_refused_wherever_they_come_from(monkeypatch):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps="2")
    assert accelerator.gradient_accumulation_steps == 2
    with pytest.raises(ValueError, match="gradient_accumulation_steps = 0: it must be at least 1"):
        accelerator.gradient_accumulation_steps = 0
    assert accelerator.gradient_accumulation_steps == 2
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "0")
    with pytest.raises(ValueError, match="ACCELERATE_GRADIENT_ACCUMULATION_STEPS=0"):
        Accelerator(cpu=True)


def test_steps_may_change_in_the_middle_of_a_run():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    synced = []
    for micro_batch in range(9):
        if micro_batch == 4:
            accelerator.gradient_accumulation_steps = 3
        with accelerator.accumulate():
            synced.append(accelerator.sync_gradients)
    assert synced == [False, True, False, True, False, True, False, False, True]


def test_a_loop_left_inside_a_window_does_not_stop_the_next_accelerator():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    with accelerator.accumulate():
        assert not accelerator.sync_gradients
    model, optimizer, *_ = Accelerator(cpu=True).prepare(*objects())
    before = model.weight.clone()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert not torch.equal(model.weight, before)


def test_evaluation_inside_training_leaves_the_window_alone():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    training, evaluation = accelerator.prepare(objects(size=6)[3], objects(size=5)[3])
    synced = []
    for _ in training:
        with accelerator.accumulate():
            for _ in evaluation:
                assert accelerator.gradient_state.active_dataloader is evaluation
            synced.append(accelerator.sync_gradients)
        assert accelerator.gradient_state.active_dataloader is training
    assert synced == [False, True, True]
    assert accelerator.gradient_state.end_of_dataloader is False


def test_a_step_adds_few_calls_to_the_plain_loop():
    def calls(loop):
        loop()
        num_calls = 0

        def profile(frame, event, argument):
            nonlocal num_calls
            num_calls += event == "call"

        sys.setprofile(profile)
        try:
            loop()
        finally:
            sys.setprofile(None)
        return num_calls

    num_steps = 20

    def plain(model, optimizer, scheduler, loader):
        for inputs, _ in loader:
            model(inputs).mean().backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

    def prepared(accelerator, model, optimizer, scheduler, loader):
        for inputs, _ in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(inputs).mean())
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

    accelerator = Accelerator(cpu=True)
    bare, ready = objects(2 * num_steps), accelerator.prepare(*objects(2 * num_steps))
    extra = calls(lambda: prepared(accelerator, *ready)) - calls(lambda: plain(*bare))
    assert 0 < extra / num_steps <= 30


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


def test_a_model_in_mixed_precision_goes_at_the_second_call():
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    model, optimizer = accelerator.prepare(*objects()[:2])
    references = weakref.ref(model), weakref.ref(model.weight), weakref.ref(optimizer)
    gc.disable()
    try:
        model, optimizer = accelerator.free_memory(model, optimizer)
        assert references[2]() is None
        accelerator.free_memory()
        assert [reference() for reference in references] == [None] * 3
    finally:
        gc.enable()


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


def test_after_the_end_the_facts_stay_and_another_run_may_differ():
    first = Accelerator(cpu=True)
    with pytest.raises(ValueError, match="already been initialized"):
        Accelerator(cpu=True, mixed_precision="bf16")
    first.end_training()
    assert (first.num_processes, first.mixed_precision, first.is_main_process) == (1, "no", True)
    second = Accelerator(cpu=True, mixed_precision="bf16")
    assert second.mixed_precision == "bf16"
    second.end_training()
    second.end_training()


def test_the_end_of_a_run_that_was_reset_starts_none():
    accelerator = Accelerator(cpu=True)
    AcceleratorState._reset_state(reset_partial_state=True)
    for fact in ("device", "num_processes", "is_main_process"):
        with pytest.raises(AttributeError, match=rf"`{fact}`.*_reset_state"):
            getattr(accelerator, fact)
    accelerator.end_training()
    accelerator.state.destroy_process_group()
    assert PartialState._shared_state == {}
    assert not is_initialized()


def test_a_subclass_is_asked_for_each_object():
    asked = []

    class Mine(Accelerator):
        def prepare_model(self, model, device_placement=None, evaluation_mode=False):
            asked.append(("model", device_placement))
            return super().prepare_model(model, device_placement, evaluation_mode)

        def prepare_optimizer(self, optimizer, device_placement=None):
            asked.append(("optimizer", device_placement))
            return super().prepare_optimizer(optimizer, device_placement)

        def backward(self, loss, **kwargs):
            asked.append(("backward", None))
            super().backward(loss, **kwargs)

    accelerator = Mine(cpu=True, gradient_accumulation_steps=2)
    bare, inner, *_ = objects()
    model, optimizer = accelerator.prepare(bare, inner, device_placement=[False, None])
    accelerator.backward(model(torch.ones(1, 3)).sum())
    assert asked == [("model", False), ("optimizer", True), ("backward", None)]
    assert accelerator._models == [model]
    assert accelerator._optimizers == [optimizer]


def test_a_subclass_may_prepare_models_by_itself():
    class Mine(Accelerator):
        def prepare_model(self, model, device_placement=None, evaluation_mode=False):
            return model

    accelerator = Mine(cpu=True)
    model = accelerator.prepare(objects()[0])
    assert accelerator._models == [model]


def test_an_object_that_stands_there_twice_is_prepared_once():
    accelerator = Accelerator(cpu=True)
    bare, inner, _, plain = objects()
    results = accelerator.prepare(bare, inner, bare, plain, inner, plain)
    assert results[0] is results[2]
    assert results[1] is results[4]
    assert results[3] is results[5]
    assert len(accelerator._models) == len(accelerator._optimizers) == len(accelerator._dataloaders) == 1


def test_a_scheduler_of_unknown_make_follows_all_optimizers():
    class Mine(torch.optim.lr_scheduler.LRScheduler):
        def __init__(self):
            self.num_steps = 0

        def step(self):
            self.num_steps += 1

    accelerator = Accelerator(cpu=True)
    optimizer, scheduler = accelerator.prepare(objects()[1], Mine())
    scheduler.step()
    assert scheduler.scheduler.num_steps == 1
    assert list(scheduler.optimizers) == [optimizer]


def test_losses_of_any_shape_go_backward_with_the_arguments_of_torch():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = objects()[0]
    losses = model(torch.ones(4, 3))
    accelerator.backward(losses, gradient=torch.ones(4, 1), retain_graph=True)
    assert model.bias.grad.item() == 2
    accelerator.backward(losses, gradient=torch.ones(4, 1))
    assert model.bias.grad.item() == 4


def test_clipping_takes_a_generator_of_parameters():
    accelerator = Accelerator(cpu=True)
    model = objects()[0]
    accelerator.backward(model(torch.ones(4, 3)).sum())
    expected = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()
    norm = accelerator.clip_grad_norm_((parameter for parameter in model.parameters()), float("inf"))
    assert norm == expected


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


def test_what_engines_bring_is_there_and_says_that_there_is_none():
    accelerator = Accelerator(cpu=True)
    assert accelerator.fp8_backend == FP8BackendType.NO
    for name in ("fp8_recipe_handler", "ao_recipe_handler", "te_recipe_handler", "msamp_recipe_handler"):
        assert getattr(accelerator, name) is None
    for name in (
        "fp8_enabled",
        "has_fp8_handler",
        "delayed_fp8_autocast",
        "has_lomo_optimizer",
        "is_composable_parallelism_enabled",
        "multi_device",
    ):
        assert getattr(accelerator, name) is False
    assert accelerator.parallelism_config is accelerator.torch_device_mesh is None
    assert accelerator.should_save_model


def test_without_a_context_axis_a_block_runs_as_it_stands(caplog):
    accelerator = Accelerator(cpu=True)
    tokens = torch.arange(6).view(1, 6)
    for _ in range(2):
        with accelerator.maybe_context_parallel([tokens], buffer_seq_dims=[1], no_restore_buffers={tokens}):
            assert tokens.shape == (1, 6)
    assert sum("no context axis" in message for message in caplog.messages) <= 1


def test_without_a_sequence_axis_a_loader_is_as_it_was():
    accelerator = Accelerator(cpu=True)
    model, *_, loader = accelerator.prepare(*objects())
    assert accelerator.deepspeed_ulysses_dl_adapter(loader, model) is loader


def test_schedulers_count_as_the_accelerator_was_told():
    model, optimizer, scheduler, _ = objects()
    told = Accelerator(cpu=True, step_scheduler_per_process=False)
    assert not told.step_scheduler_per_process
    assert told.prepare(model, optimizer, scheduler)[2]._num_processes == 1
    assert Accelerator(cpu=True).step_scheduler_per_process
