import socket
import sys

import pytest

from accelerate.launching.network import interface_towards, is_here, why_unreachable


def test_an_address_of_this_machine_and_others() -> None:
    assert is_here("127.0.0.1")
    assert is_here("localhost")
    assert not is_here("192.0.2.1")
    assert not is_here("no.such.host.invalid")


def test_an_attempt_to_connect_says_why_it_failed() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        assert why_unreachable("127.0.0.1", port, 1.0) == "Connection refused"
        listening.listen()
        assert why_unreachable("127.0.0.1", port, 1.0) is None
    assert why_unreachable("no.such.host.invalid", port, 1.0) == "there is no such host name"


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_the_interface_towards_an_address() -> None:
    assert interface_towards("127.0.0.1") == "lo"
    assert interface_towards("no.such.host.invalid") is None
