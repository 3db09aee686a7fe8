import pytest
from torch import nn

from accelerate.modules.wrapping import block_classes, named_ignored, repeated_blocks


class Block(nn.Linear):
    pass


def model() -> nn.Module:
    network = nn.Module()
    network.layers = nn.ModuleList(Block(2, 2) for _ in range(3))
    network.head = nn.Linear(2, 2)
    return network


def test_repeated_blocks_are_found():
    network = model()
    assert repeated_blocks(network) == list(network.layers)
    assert block_classes(network, None) == {Block}
    assert repeated_blocks(nn.Linear(1, 1)) == []


def test_what_the_model_names_comes_first():
    network = model()
    network._no_split_modules = ["Linear", "Elsewhere"]
    assert block_classes(network, None) == {nn.Linear}
    assert block_classes(network, ["Block"]) == {Block}


def test_nothing_to_choose():
    with pytest.raises(ValueError, match="pass transformer_cls_names_to_wrap"):
        block_classes(nn.Linear(1, 1), None)


def test_ignored_by_module_and_by_pattern():
    network = model()
    assert named_ignored(network, None) == set()
    assert named_ignored(network, [network.head]) == {network.head}
    assert named_ignored(network, r"layers\.[01]") == set(network.layers[:2])
