import pytest
import torch

from accelerate.accelerator import Accelerator
from accelerate.errors import ConfigurationError
from accelerate.options.accumulation import GradientAccumulationPlugin
from accelerate.state import AcceleratorState, GradientState


@pytest.fixture(autouse=True)
def fresh():
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def linear():
    torch.manual_seed(0)
    return torch.nn.Linear(2, 1, dtype=torch.float64)


def windows(sizes_of_windows):
    generator = torch.Generator().manual_seed(1)
    return [
        [torch.randn(size, 2, generator=generator, dtype=torch.float64) for size in sizes]
        for sizes in sizes_of_windows
    ]


def expected(window):
    model = linear()
    rows = torch.cat(window)
    (model(rows).square().sum() / max(len(rows), 1)).backward()
    return model.weight.grad


def gradient(window, num_steps, number=lambda rows: len(rows), accumulate=True):
    """Return the gradient at the end of one window; its last micro-batch is said to be the loader's last."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=num_steps)
    model = accelerator.prepare(linear())
    for index, rows in enumerate(window):
        if accumulate:
            with accelerator.accumulate(model):
                accelerator.sync_gradients = index == len(window) - 1
                accelerator.backward(model(rows).square().sum(), num_items=number(rows))
        else:
            accelerator.sync_gradients = index == len(window) - 1
            accelerator.backward(model(rows).square().sum(), num_items=number(rows))
    return model.weight.grad


@pytest.mark.parametrize(
    "number",
    [
        len,
        lambda rows: torch.tensor(len(rows)),
        lambda rows: torch.tensor([float(len(rows))]),
        lambda rows: (rows[:, 0] < 100).sum(),
    ],
)
@pytest.mark.parametrize("sizes", [(4,), (4, 1, 7), (3, 2), (0, 5, 1)])
@pytest.mark.parametrize("accumulate", [True, False])
def test_a_window_equals_one_batch_however_it_is_cut(number, sizes, accumulate):
    (window,) = windows([sizes])
    num_steps = 1 if len(sizes) == 1 else 3
    torch.testing.assert_close(
        gradient(window, num_steps, number, accumulate), expected(window), rtol=1e-6, atol=1e-9
    )


def test_gradients_keep_their_size_inside_a_window():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = accelerator.prepare(linear())
    rows = torch.ones(1000, 2, dtype=torch.float64)
    with accelerator.accumulate(model):
        accelerator.backward(model(rows).sum(), num_items=1000)
    torch.testing.assert_close(model.weight.grad, torch.full((1, 2), 0.5, dtype=torch.float64))


def test_a_window_without_items_has_no_gradient():
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(linear())
    accelerator.backward(model(torch.ones(3, 2, dtype=torch.float64)).sum() * 0, num_items=torch.tensor(0))
    assert model.weight.grad.tolist() == [[0.0, 0.0]]


def test_only_the_models_of_the_block_are_corrected():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, other = accelerator.prepare(linear(), linear())
    (window,) = windows([(5, 1)])
    other.weight.grad = torch.ones(1, 2, dtype=torch.float64)
    for rows in window:
        with accelerator.accumulate(model):
            accelerator.backward(model(rows).square().sum(), num_items=len(rows))
    torch.testing.assert_close(model.weight.grad, expected(window), rtol=1e-6, atol=1e-9)
    assert other.weight.grad.tolist() == [[1.0, 1.0]]


def test_a_parameter_of_two_models_is_corrected_once():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = linear()
    around = torch.nn.Sequential(model)
    model, around = accelerator.prepare(model, around)
    (window,) = windows([(5, 1)])
    for rows in window:
        with accelerator.accumulate(model, around):
            accelerator.backward(model(rows).square().sum(), num_items=len(rows))
    torch.testing.assert_close(model.weight.grad, expected(window), rtol=1e-6, atol=1e-9)


def test_several_losses_of_one_step_without_a_window_add_up():
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(linear())
    first, second = windows([(5, 1)])[0]
    for rows in (first, second):
        accelerator.backward(model(rows).square().sum(), num_items=len(rows))
    torch.testing.assert_close(
        model.weight.grad, expected([first]) + expected([second]), rtol=1e-6, atol=1e-9
    )


def test_two_sums_in_one_micro_batch_are_refused():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = accelerator.prepare(linear())
    rows = torch.ones(1, 2, dtype=torch.float64)
    with accelerator.accumulate(model):
        accelerator.backward(model(rows).sum(), num_items=1)
        with pytest.raises(ConfigurationError, match=r"twice in one accumulate\(\) block.*Add the losses up"):
            accelerator.backward(model(rows).sum(), num_items=1)


def test_means_and_sums_do_not_mix_in_a_window():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = accelerator.prepare(linear())
    rows = torch.ones(1, 2, dtype=torch.float64)
    with accelerator.accumulate(model):
        accelerator.backward(model(rows).sum(), num_items=1)
    with accelerator.accumulate(model), pytest.raises(ConfigurationError, match="in the same way"):
        accelerator.backward(model(rows).mean())
    accelerator.free_memory()
    accelerator.backward(model(rows).mean())


def test_what_is_no_number_is_refused():
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(linear())
    loss = model(torch.ones(3, 2, dtype=torch.float64)).sum()
    with pytest.raises(ConfigurationError, match=r"shape \(3,\).*pass one number"):
        accelerator.backward(loss, num_items=torch.ones(3))


def test_gradients_exchanged_in_every_micro_batch_are_corrected_too():
    plugin = GradientAccumulationPlugin(num_steps=2, sync_each_batch=True)
    accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=plugin)
    model = accelerator.prepare(linear())
    (window,) = windows([(5, 1)])
    for rows in window:
        with accelerator.accumulate(model):
            accelerator.backward(model(rows).square().sum(), num_items=len(rows))
    torch.testing.assert_close(model.weight.grad, expected(window), rtol=1e-6, atol=1e-9)
