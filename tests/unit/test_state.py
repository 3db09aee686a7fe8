import copy

import pytest
import torch

from accelerate.devices.fake import FakeDevice
from accelerate.errors import NotInitializedError
from accelerate.options.accumulation import GradientAccumulationPlugin
from accelerate.options.enums import DistributedType
from accelerate.runtime.accumulation import accumulation
from accelerate.runtime.current import current
from accelerate.state import (
    AcceleratorState,
    GradientState,
    PartialState,
    deepspeed_required,
    is_initialized,
    set_up_training,
)


@pytest.fixture(autouse=True)
def fresh():
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def test_instances_differ_and_share_everything():
    first, second = PartialState(cpu=True), PartialState()
    assert first is not second
    assert first.__dict__ is second.__dict__ is PartialState._shared_state is current.__dict__
    first.extra = 1
    assert second.extra == 1


def test_an_empty_dict_means_not_started():
    assert PartialState._shared_state == {}
    PartialState(cpu=True)
    assert PartialState._shared_state != {}
    PartialState._reset_state()
    assert PartialState._shared_state == {}


def test_facts_of_one_cpu_process():
    state = PartialState(cpu=True)
    assert (state.num_processes, state.process_index, state.local_process_index) == (1, 0, 0)
    assert state.distributed_type is DistributedType.NO
    assert (state.device, state.default_device) == (torch.device("cpu"), torch.device("cpu"))
    assert state.is_main_process
    assert state.is_local_main_process
    assert state.is_last_process
    assert not state.use_distributed
    assert (state.backend, state.debug, state.fork_launched) == (None, False, False)


def test_repr_is_that_of_the_interface():
    assert repr(PartialState(cpu=True)) == (
        "Distributed environment: DistributedType.NO\nNum processes: 1\nProcess index: 0\n"
        "Local process index: 0\nDevice: cpu\n"
    )
    assert repr(set_up_training(None, cpu=True)).endswith("Mixed precision type: no\n")


def test_a_known_attribute_after_a_reset_says_what_happened():
    state = PartialState(cpu=True)
    PartialState._reset_state()
    with pytest.raises(AttributeError, match="_reset_state"):
        _ = state.device
    with pytest.raises(AttributeError, match="'PartialState' object has no attribute 'nonsense'"):
        _ = state.nonsense


def test_accelerator_state_needs_an_accelerator_but_starts_the_run():
    with pytest.raises(ValueError, match=r"accelerator = Accelerator\(\)"):
        AcceleratorState()
    assert PartialState._shared_state != {}
    assert not is_initialized()
    set_up_training(None, cpu=True)
    assert is_initialized()
    assert AcceleratorState().num_processes == 1


def test_accelerator_state_shows_plugins_as_clients_ask_for_them():
    state = set_up_training("no", cpu=True)
    assert state.deepspeed_plugin is None
    assert getattr(state, "fsdp_plugin", None) is None
    with pytest.raises(AttributeError, match="fsdp_plugin"):
        _ = state.fsdp_plugin
    with pytest.raises(AttributeError, match="nonsense"):
        _ = state.nonsense
    assert not state.is_fsdp2
    assert copy.copy(state).mixed_precision == "no"


def test_another_precision_afterwards_is_refused():
    set_up_training("no", cpu=True)
    set_up_training(None, cpu=True)
    with pytest.raises(ValueError, match=r"already been initialized.*mixed_precision='bf16'"):
        set_up_training("bf16", cpu=True)


def test_the_cpu_is_refused_when_the_run_is_on_an_accelerator(monkeypatch):
    monkeypatch.setattr("accelerate.runtime.current.select", lambda environ, cpu: FakeDevice())
    assert PartialState().device.type == "cuda"
    for _ in range(2):
        with pytest.raises(ValueError, match=r"pass `cpu=True`.*started on cuda"):
            set_up_training(None, cpu=True)
        set_up_training(None, cpu=False)


@pytest.mark.parametrize("value", ["bar", ""])
def test_an_unknown_precision_is_an_error_that_lists_the_known(monkeypatch, value):
    with pytest.raises(ValueError, match=r"Unknown mixed_precision mode: foo\. Choose between \['no', 'fp8'"):
        set_up_training("foo", cpu=True)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", value)
    with pytest.raises(ValueError, match=rf"mode: {value} \(ACCELERATE_MIXED_PRECISION={value}\)"):
        set_up_training(None, cpu=True)


def test_decorators_need_a_run():
    state = PartialState(cpu=True)
    PartialState._reset_state()
    with pytest.raises(NotInitializedError):
        state.on_main_process(print)
    with pytest.raises(ValueError, match="PartialState"):
        state.on_last_process(print)
    for gate in (state.on_process, state.on_local_process):
        with pytest.raises(NotInitializedError):
            gate(print)


def test_decorators_in_one_process():
    state = PartialState(cpu=True)

    def function():
        return 5

    for decorator in (state.on_main_process, state.on_local_main_process, state.on_last_process):
        assert decorator(function)() == 5
    assert state.on_main_process()(function)() == 5
    assert state.on_process(process_index=0)(function)() == 5
    # Alone, a process does the work of the ranks that are not there.
    assert state.on_process(process_index=1)(function)() == 5
    assert state.on_local_process(function, local_process_index=1)() == 5


def test_gradient_state_is_a_view_of_the_window():
    assert not GradientState._shared_state
    state = GradientState(GradientAccumulationPlugin(num_steps=3))
    assert (state.num_steps, accumulation.num_steps) == (3, 3)
    assert state.adjust_scheduler
    assert GradientState().num_steps == 3
    GradientState(GradientAccumulationPlugin(num_steps=2, adjust_scheduler=False))
    assert (state.num_steps, state.adjust_scheduler) == (2, False)
    state._set_sync_gradients(False)
    assert not accumulation.sync_gradients
    assert state.plugin_kwargs.get("sync_each_batch", False) is False
    state.is_xla_gradients_synced = True
    assert GradientState().is_xla_gradients_synced


def test_gradient_state_lists_the_loaders():
    class Loader:
        end_of_dataloader, remainder = True, 2

    loader, state = Loader(), GradientState()
    assert (state.in_dataloader, state.active_dataloader) == (False, None)
    state.dataloader_references = [None, loader]
    assert state.dataloader_references == [None, loader]
    assert (state.end_of_dataloader, state.remainder, state.active_dataloader) == (True, 2, loader)
    assert repr(state).startswith("Sync Gradients: True\nAt end of current dataloader: True\n")


def test_facts_of_the_run_are_properties_of_the_training_state():
    state = set_up_training("no", cpu=True)
    for name in ("use_distributed", "is_main_process", "is_local_main_process", "is_last_process"):
        assert isinstance(getattr(AcceleratorState, name), property)
        assert getattr(state, name) is getattr(PartialState(), name)
    assert state.fork_launched is False
    current.process_index, current.num_processes = 1, 3
    assert (state.is_main_process, state.is_last_process, state.use_distributed) == (False, False, True)


@pytest.mark.parametrize("name", ["is_main_process", "fork_launched", "num_processes"])
def test_facts_without_a_run_say_what_is_missing(name):
    state = set_up_training("no", cpu=True)
    AcceleratorState._reset_state(reset_partial_state=True)
    with pytest.raises(AttributeError, match=r"_reset_state\(\)` was called"):
        getattr(state, name)


def test_functions_for_deepspeed_refuse_a_run_without_it():
    @deepspeed_required
    def stage(number, *, twice=False):
        return number * 2 if twice else number

    assert stage.__name__ == "stage"
    PartialState(cpu=True)
    assert stage(1) == 1  # there is no Accelerator yet that could be without
    set_up_training("no", cpu=True)
    with pytest.raises(ValueError, match=r"stage` is for DeepSpeed.*`deepspeed_plugin=`"):
        stage(1)
    current.distributed_type = DistributedType.DEEPSPEED
    assert stage(2, twice=True) == 4
