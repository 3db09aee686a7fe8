from unittest import mock

import pytest
import torch
from torch import nn

from accelerate.options.request import Request
from accelerate.precision.base import Precision
from accelerate.runtime.current import Current
from accelerate.strategies.ddp import DDP


@pytest.mark.parametrize(
    ("device", "parameters", "expected"),
    [
        ("cpu", ["cpu"], None),
        ("cuda:1", ["cuda:1", "cuda:1"], [torch.device("cuda:1")]),
        ("cuda:1", ["cuda:1", "cuda:2"], None),
        ("cuda:1", ["cpu"], None),
    ],
)
def test_inputs_are_moved_where_the_whole_model_is(device, parameters, expected):
    run = Current()
    run.device = torch.device(device)
    strategy = DDP(run, Precision(), Request())
    model = mock.Mock(spec=nn.Module)
    model.parameters.return_value = [mock.Mock(device=torch.device(each)) for each in parameters]
    assert strategy._devices(model) == expected
