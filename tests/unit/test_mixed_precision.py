"""Precisions as the Accelerator offers them: what it takes, what it shows, and several optimizers."""

import copy
import pickle

import pytest
import torch
from torch import nn

from accelerate.accelerator import Accelerator
from accelerate.checkpoint.manifest import MANIFEST
from accelerate.errors import ConfigurationError, OptimizerStepError
from accelerate.options.handlers import AutocastKwargs, GradScalerKwargs
from accelerate.state import AcceleratorState, is_initialized


def product_dtype():
    return (torch.ones(1, 2) @ torch.ones(2, 1)).dtype


def small_scale(init_scale=8.0):
    return GradScalerKwargs(init_scale=init_scale)


@pytest.mark.parametrize(
    ("precision", "native", "dtype"),
    [("no", False, torch.float32), ("bf16", True, torch.bfloat16), ("fp16", True, torch.float16)],
)
def test_what_is_asked_for_is_what_is_there(precision, native, dtype, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", precision)
    accelerator = Accelerator(cpu=True)
    assert accelerator.mixed_precision == AcceleratorState().mixed_precision == precision
    assert accelerator.native_amp is native
    assert (accelerator.scaler is not None) == (precision == "fp16")
    with accelerator.autocast():
        assert product_dtype() == dtype
    model = accelerator.prepare(nn.Linear(2, 2))
    assert model(torch.ones(1, 2)).dtype == torch.float32
    assert ("_original_forward" in vars(model)) == native


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_unwrapping_gives_the_models_own_forward_back_on_request(precision):
    accelerator = Accelerator(cpu=True, mixed_precision=precision)
    model = accelerator.prepare(nn.Linear(2, 2))
    forward = model.forward
    assert accelerator.unwrap_model(model).forward is forward
    bare = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    assert bare is model
    assert not {"forward", "_original_forward"} & set(vars(bare))


def test_the_handlers_reach_forward_pass_context_and_scaler():
    handlers = [AutocastKwargs(enabled=False), small_scale()]
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", kwargs_handlers=handlers)
    assert accelerator.autocast_handler is handlers[0]
    assert accelerator.scaler_handler is handlers[1]
    assert accelerator.scaler.get_scale() == 8
    with accelerator.autocast():
        assert product_dtype() == torch.float32
    with accelerator.autocast(AutocastKwargs()):
        assert product_dtype() == torch.float16
    model = nn.Linear(2, 2)
    expected = model(torch.ones(1, 2) / 3)
    assert torch.equal(accelerator.prepare(model)(torch.ones(1, 2) / 3), expected)


def test_a_precision_that_cannot_be_had_leaves_the_way_free_for_another():
    with pytest.raises(ConfigurationError, match="mixed_precision='fp8': this version does not have it"):
        Accelerator(cpu=True, mixed_precision="fp8")
    assert not is_initialized()
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    assert accelerator.mixed_precision == "bf16"


def test_a_skipped_step_is_told_and_the_schedule_waits():
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", kwargs_handlers=[small_scale()])
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    rates, skipped, scales = [], [], []
    for factor in (1.0, float("inf"), 1.0):
        accelerator.backward(model(torch.ones(1, 1)).sum() * factor)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        rates += scheduler.get_last_lr()
        skipped.append((optimizer.step_was_skipped, accelerator.optimizer_step_was_skipped))
        scales.append(accelerator.scaler.get_scale())
    assert rates == pytest.approx([0.05, 0.05, 0.005])
    assert skipped == [(False, False), (True, True), (False, False)]
    assert scales == [8, 4, 4]


def test_clipping_sees_gradients_of_their_true_size():
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", kwargs_handlers=[small_scale()])
    parameter = nn.Parameter(torch.ones(4))
    optimizer = accelerator.prepare(torch.optim.SGD([parameter], lr=1.0))
    accelerator.backward(parameter.sum())
    assert parameter.grad.tolist() == [8] * 4
    assert accelerator.clip_grad_norm_([parameter], 1.0) == 2
    accelerator.clip_grad_value_([parameter], 0.25)
    torch.testing.assert_close(parameter.grad, torch.full((4,), 0.25))
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), torch.full((4,), 0.75))


def test_clipping_in_the_middle_of_a_window_is_refused_when_it_shows():
    accelerator = Accelerator(
        cpu=True, mixed_precision="fp16", gradient_accumulation_steps=2, kwargs_handlers=[small_scale()]
    )
    model = nn.Linear(1, 1)
    model, _ = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
    accelerator.backward(model(torch.ones(1, 1)).sum())
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    accelerator.backward(model(torch.ones(1, 1)).sum())
    with pytest.raises(OptimizerStepError, match=r"if accelerator\.sync_gradients"):
        accelerator.clip_grad_norm_(model.parameters(), 1.0)


@pytest.mark.parametrize("overflow", [False, True])
def test_two_optimizers_in_turn_and_together(overflow):
    """Clipping for one leaves the other's gradients scaled; an overflow of one skips only its own step."""
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", kwargs_handlers=[small_scale()])
    first, second = (nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizers = accelerator.prepare(*(torch.optim.SGD([p], lr=0.5) for p in (first, second)))
    accelerator.backward((first * (float("inf") if overflow else 1)).sum() + second.sum())
    accelerator.clip_grad_norm_(iter([first]), 10.0)
    assert second.grad == 8
    accelerator.backward(second.sum())  # more for the second one, before it steps
    for optimizer in optimizers:
        optimizer.step()
    assert [optimizer.step_was_skipped for optimizer in optimizers] == [overflow, False]
    assert accelerator.optimizer_step_was_skipped is overflow
    assert (first.item(), second.item()) == (1.0 if overflow else 0.5, 0.0)
    assert accelerator.scaler.get_scale() == (4 if overflow else 8)


def test_parameters_of_no_prepared_optimizer_are_clipped_all_the_same():
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", kwargs_handlers=[small_scale()])
    parameters = [nn.Parameter(torch.ones(1)) for _ in range(2)]
    accelerator.prepare(*(torch.optim.SGD([p], lr=0.5) for p in parameters))
    accelerator.backward(sum(parameters))
    alone = nn.Parameter(torch.ones(1))
    alone.grad = torch.tensor([4.0])
    assert accelerator.clip_grad_norm_(alone, 1.0) == 4
    assert [p.grad.item() for p in parameters] == [1, 1]


def test_a_closure_is_refused_before_it_runs():
    accelerator = Accelerator(cpu=True, mixed_precision="fp16")
    model = nn.Linear(1, 1)
    optimizer = accelerator.prepare(torch.optim.LBFGS(model.parameters()))
    with pytest.raises(OptimizerStepError, match=r"LBFGS\.step\(closure\) under mixed_precision=\"fp16\""):
        optimizer.step(lambda: pytest.fail("it ran"))


def test_a_compiled_model_is_cast_inside(monkeypatch):
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    model = nn.Linear(2, 2)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    prepared = accelerator.prepare(compiled)
    assert prepared is compiled
    assert prepared(torch.ones(1, 2)).dtype == torch.float32
    assert len(seen) == 1
    accelerator.unwrap_model(prepared, keep_fp32_wrapper=False)
    assert not {"forward", "_original_forward"} & set(vars(model))


def test_the_scaler_is_in_the_checkpoint_both_ways(tmp_path):
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", kwargs_handlers=[small_scale()])
    parameter = nn.Parameter(torch.ones(1))
    optimizer = accelerator.prepare(torch.optim.SGD([parameter], lr=0.5))
    accelerator.backward(parameter.sum() * float("inf"))
    optimizer.step()
    accelerator.save_state(tmp_path / "ours")
    saved = torch.load(tmp_path / "ours" / "scaler.pt", weights_only=True)
    plain = torch.amp.GradScaler("cpu")
    plain.load_state_dict(saved)
    assert plain.get_scale() == 4  # with the update that the step called for
    torch.save({**saved, "scale": 32.0}, tmp_path / "ours" / "scaler.pt")
    (tmp_path / "ours" / MANIFEST).unlink()  # the file was changed on purpose
    accelerator.load_state(tmp_path / "ours")
    assert accelerator.scaler.get_scale() == 32


def test_a_deep_copy_steps_through_the_scaler_of_its_run():
    accelerator = Accelerator(cpu=True, mixed_precision="fp16")
    model = nn.Linear(2, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    twin, twins_optimizer = copy.deepcopy((model, optimizer))
    before = twin.weight.tolist(), model.weight.tolist()
    accelerator.backward(twin(torch.ones(1, 2)).sum() / 8)
    twins_optimizer.step()
    assert not twins_optimizer.step_was_skipped
    assert twin.weight.tolist() != before[0]
    assert model.weight.tolist() == before[1]


def test_a_pickled_optimizer_says_how_to_step_it_and_that_works():
    accelerator = Accelerator(cpu=True, mixed_precision="fp16")
    model = nn.Linear(2, 1)
    prepared = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    model, optimizer = pickle.loads(pickle.dumps(prepared))
    before = model.weight.tolist()
    accelerator.backward(model(torch.ones(1, 2)).sum() / 8)
    with pytest.raises(OptimizerStepError, match=r"prepare\(optimizer\.optimizer\)"):
        optimizer.step()
    assert model.weight.tolist() == before
    accelerator.prepare(optimizer.optimizer).step()
    assert model.weight.tolist() != before
