import sys
from types import ModuleType

import pytest
from torch import nn

from accelerate.modules import peft
from accelerate.modules.peft import is_peft_model


class Adapted(nn.Linear):
    pass


@pytest.fixture
def installed(monkeypatch):
    library = ModuleType("peft")
    library.PeftModel = Adapted
    monkeypatch.setitem(sys.modules, "peft", library)
    monkeypatch.setattr(peft, "is_peft_available", lambda: True)


def test_models_of_the_library(installed):
    assert is_peft_model(Adapted(1, 1))
    assert is_peft_model(nn.DataParallel(Adapted(1, 1)))
    assert not is_peft_model(nn.Linear(1, 1))


def test_without_the_library_there_are_none(monkeypatch):
    monkeypatch.setattr(peft, "is_peft_available", lambda: False)
    assert is_peft_model(Adapted(1, 1)) is False
