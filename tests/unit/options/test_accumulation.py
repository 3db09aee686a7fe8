import pytest

from accelerate.errors import ConfigurationError
from accelerate.options.accumulation import GradientAccumulationPlugin


def test_defaults() -> None:
    assert repr(GradientAccumulationPlugin()) == (
        "GradientAccumulationPlugin(num_steps=None, adjust_scheduler=True, sync_with_dataloader=True, "
        "sync_each_batch=False)"
    )


def test_one_step_is_handed_over_and_default_fields_are_not() -> None:
    assert GradientAccumulationPlugin(num_steps=1).to_kwargs() == {"num_steps": 1}
    assert GradientAccumulationPlugin(4, False, sync_each_batch=True).to_kwargs() == {
        "num_steps": 4,
        "adjust_scheduler": False,
        "sync_each_batch": True,
    }


@pytest.mark.parametrize("num_steps", [0, -1, 2.5])
def test_other_than_whole_steps_are_refused(num_steps: int) -> None:
    with pytest.raises(ConfigurationError, match=rf"num_steps={num_steps}\): use an integer of 1 or more"):
        GradientAccumulationPlugin(num_steps)
