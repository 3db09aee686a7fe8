import pytest
import torch

from accelerate.devices.base import Device
from accelerate.devices.fake import FakeDevice
from accelerate.errors import ConfigurationError
from accelerate.options.handlers import AutocastKwargs, GradScalerKwargs
from accelerate.precision.base import Precision
from accelerate.precision.bf16 import BF16
from accelerate.precision.fp16 import FP16
from accelerate.precision.select import select


@pytest.mark.parametrize(("name", "kind"), [("no", Precision), ("bf16", BF16), ("fp16", FP16)])
def test_a_name_leads_to_its_precision(name, kind):
    device = Device()
    precision = select(name, device, autocast=AutocastKwargs(), scaler=GradScalerKwargs())
    assert type(precision) is kind
    assert precision.device is device


@pytest.mark.parametrize("name", ["fp8", "fp4"])
def test_what_this_version_does_not_have_is_an_error_that_lists_what_it_has(name):
    with pytest.raises(ConfigurationError, match=f"mixed_precision='{name}': this version does not have it"):
        select(name, Device())
    with pytest.raises(ConfigurationError, match="Possible here: 'no', 'bf16', 'fp16'"):
        select(name, Device())


def test_a_device_without_the_dtype_says_what_it_can_do():
    device = FakeDevice(unsupported=[torch.bfloat16])
    message = (
        r"mixed_precision='bf16': this 'cuda' device does not compute in torch.bfloat16\. .* 'no', 'fp16'\."
    )
    with pytest.raises(ConfigurationError, match=message):
        select("bf16", device)


def test_a_device_that_cannot_scale_gradients_has_no_fp16(monkeypatch):
    device = FakeDevice(type="mps")
    monkeypatch.setattr(device, "supports_grad_scaler", lambda: False)
    message = r"mixed_precision='fp16': torch .* cannot scale gradients on 'mps' devices\. .* 'no', 'bf16'\."
    with pytest.raises(ConfigurationError, match=message):
        select("fp16", device)


def test_a_device_unknown_to_autocast_has_fp32_only(monkeypatch):
    device = FakeDevice()
    monkeypatch.setattr(device, "supports_autocast", lambda: False)
    for name in ("fp16", "bf16"):
        with pytest.raises(
            ConfigurationError, match=r"has no autocast for 'cuda' devices\. Possible here: 'no'\."
        ):
            select(name, device)
