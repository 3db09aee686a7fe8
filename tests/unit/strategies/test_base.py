"""What one process does with a model beside training it: compile it, and join nothing."""

import shutil

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from accelerate import Accelerator, ProfileKwargs
from accelerate.options.enums import DynamoBackend
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import TorchDynamoPlugin, has_compiled_regions, is_compiled_module

# torch's own, while it compiles what needs a gradient.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not:UserWarning")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))

    def forward(self, values):
        for layer in self.layers:
            values = layer(values).tanh()
        return values


def test_nothing_is_compiled_by_default():
    accelerator, model = Accelerator(cpu=True), Stack()
    assert accelerator.prepare(model) is model
    assert accelerator.state.dynamo_plugin == TorchDynamoPlugin(backend="no")
    assert Accelerator(cpu=True, dynamo_backend="no").prepare(Stack()).__class__ is Stack


@pytest.mark.parametrize(
    "arguments",
    [
        {"dynamo_backend": "eager"},
        {"dynamo_backend": "EAGER"},
        {"dynamo_backend": DynamoBackend.EAGER},
        {"dynamo_plugin": TorchDynamoPlugin(backend="eager", dynamic=False)},
    ],
    ids=str,
)
def test_a_model_is_compiled_when_asked(arguments):
    accelerator, model = Accelerator(cpu=True, **arguments), Stack()
    compiled = accelerator.prepare(model)
    assert is_compiled_module(compiled)
    assert compiled._orig_mod is model
    assert accelerator._models == [model]
    assert accelerator.state.dynamo_plugin.backend is DynamoBackend.EAGER
    values = torch.ones(1, 3, requires_grad=True)
    assert torch.equal(compiled(values), model(values))


def test_the_launcher_asks_by_environment(monkeypatch):
    for name, value in {
        "BACKEND": "AOT_EAGER",
        "USE_REGIONAL_COMPILATION": "True",
        "MODE": "default",
    }.items():
        monkeypatch.setenv(f"ACCELERATE_DYNAMO_{name}", value)
    accelerator, model = Accelerator(cpu=True), Stack()
    prepared = accelerator.prepare(model)
    assert accelerator.state.dynamo_plugin == TorchDynamoPlugin("aot_eager", use_regional_compilation=True)
    assert type(prepared) is Stack
    assert [is_compiled_module(layer) for layer in prepared.layers] == [True, True]
    assert accelerator.unwrap_model(prepared, keep_torch_compile=False) is model


def test_arguments_reach_the_compiler():
    class Breaking(nn.Module):
        def forward(self, values):
            torch._dynamo.graph_break()
            return values + 1

    plugin = TorchDynamoPlugin(backend="eager", fullgraph=True)
    compiled = Accelerator(cpu=True, dynamo_plugin=plugin).prepare(Breaking())
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(torch.ones(1))


def test_both_are_an_error():
    with pytest.raises(ValueError, match="pass one"):
        Accelerator(cpu=True, dynamo_backend="eager", dynamo_plugin=TorchDynamoPlugin(backend="eager"))


@pytest.mark.parametrize("plugin", [{}, {"use_regional_compilation": True}], ids=["whole", "regions"])
def test_models_for_evaluation_are_compiled_too(plugin):
    accelerator = Accelerator(cpu=True, dynamo_plugin=TorchDynamoPlugin(backend="eager", **plugin))
    assert has_compiled_regions(accelerator.prepare_model(Stack(), evaluation_mode=True))


def test_a_model_that_the_user_has_compiled_is_not_compiled_again(tmp_path):
    accelerator, model = Accelerator(cpu=True, dynamo_backend="aot_eager"), Stack()
    compiled = torch.compile(model, backend="eager")
    assert accelerator.prepare(compiled) is compiled
    assert accelerator._models == [model]
    accelerator.save_state(tmp_path / "state")
    assert sorted(load_file(tmp_path / "state" / "model.safetensors")) == sorted(model.state_dict())
    accelerator.load_state(tmp_path / "state")
    assert accelerator.prepare(compiled) is compiled
    assert accelerator._models == [model]


@pytest.mark.parametrize("plugin", [{}, {"use_regional_compilation": True}], ids=["whole", "regions"])
def test_names_in_state_dicts_are_those_of_the_model(plugin):
    accelerator = Accelerator(cpu=True, dynamo_plugin=TorchDynamoPlugin(backend="eager", **plugin))
    prepared = accelerator.prepare(Stack())
    assert list(accelerator.get_state_dict(prepared)) == list(Stack().state_dict())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it loads inductor
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor writes C++")
def test_inductor():
    accelerator, model = Accelerator(cpu=True, dynamo_backend="inductor"), Stack()
    compiled = accelerator.prepare(model)
    values = torch.randn(2, 3)
    torch.testing.assert_close(compiled(values), model(values))


@pytest.mark.parametrize("plugin", [{}, {"use_regional_compilation": True}], ids=["whole", "regions"])
def test_compiled_models_compute_in_the_precision(plugin):
    def gradients(model, backward):
        output = model(torch.linspace(-1, 1, 6).view(2, 3))
        backward(output.square().mean())
        return [output.detach(), *(parameter.grad for parameter in model.parameters())]

    torch._dynamo.utils.counters.clear()
    plain = Accelerator(cpu=True, mixed_precision="bf16")
    expected = gradients(plain.prepare(Stack()), plain.backward)
    plugin = TorchDynamoPlugin(backend="eager", **plugin)
    accelerator, model = Accelerator(cpu=True, mixed_precision="bf16", dynamo_plugin=plugin), Stack()
    compiled = accelerator.prepare(model)
    seen = []
    compiled.layers[0].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    torch.testing.assert_close(gradients(compiled, accelerator.backward), expected, rtol=0, atol=0)
    assert seen == [torch.bfloat16]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    bare = accelerator.unwrap_model(compiled, keep_torch_compile=False)
    assert bare is model
    torch.testing.assert_close(gradients(bare, accelerator.backward)[0], expected[0], rtol=0, atol=0)
    own = accelerator.unwrap_model(compiled, keep_torch_compile=False, keep_fp32_wrapper=False)
    assert "forward" not in vars(own)


def test_two_accelerators_compile_as_each_was_told():
    first = Accelerator(cpu=True, dynamo_backend="eager").prepare(Stack())
    second = Accelerator(cpu=True, dynamo_backend="no").prepare(Stack())
    assert is_compiled_module(first)
    assert type(second) is Stack


def test_one_process_joins_silently():
    accelerator = Accelerator(cpu=True)
    with accelerator.join_uneven_inputs([accelerator.prepare(Stack())], even_batches=False) as nothing:
        assert nothing is None


def test_the_profiler_follows_the_handler_of_the_call_else_that_of_the_constructor(tmp_path):
    handler = ProfileKwargs(activities=["cpu"], output_trace_dir=str(tmp_path / "first"))
    accelerator = Accelerator(cpu=True, kwargs_handlers=[handler])
    assert accelerator.profile_handler is handler
    with accelerator.profile() as profiler:
        torch.ones(1) + 1
    assert isinstance(profiler, torch.profiler.profile)
    with accelerator.profile(ProfileKwargs(activities=["cpu"], output_trace_dir=str(tmp_path / "second"))):
        pass
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.json")) == [
        "first/profile_0.json",
        "second/profile_0.json",
    ]
    assert Accelerator(cpu=True).profile_handler is None
