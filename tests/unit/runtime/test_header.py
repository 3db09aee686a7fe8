"""The channel that tells other ranks nothing; those that do are tested between ranks."""

import pytest

from accelerate.runtime.call import Call
from accelerate.runtime.header import Channel


def test_a_silent_channel_counts_and_raises_problems():
    channel = Channel()
    assert channel.open(Call(operation="gather")) is None
    with pytest.raises(ValueError, match="mine"):
        channel.open(Call(operation="gather", problem=ValueError("mine")))
    channel.leave()
    assert channel.number == 2
    assert channel.absence(RuntimeError("gloo")) is None
