"""How this machine reaches another: addresses, interfaces, attempts. Called by elastic.py and link.py."""

import ipaddress
import socket
import struct
import sys

__all__ = ["interface_towards", "is_here", "why_unreachable"]

_ANY_PORT = 9  # nothing is sent to it: a route is looked up
_GET_ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR of Linux


def is_here(address: str) -> bool:
    """Return whether this machine has `address`: only then a socket can be bound to it."""
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, where in found:
        if ipaddress.ip_address(str(where[0]).partition("%")[0]).is_loopback:
            return True
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.bind(where)
            except OSError:
                continue
            return True
    return False


def why_unreachable(address: str, port: int, timeout: float) -> str | None:
    """Try to connect once; return None when something answers, else the reason in words.

    Args:
        address: host name or address.
        port: TCP port.
        timeout: seconds; looking up a name may take longer.
    """
    try:
        with socket.create_connection((address, port), timeout=timeout):
            return None
    except socket.gaierror:
        return "there is no such host name"
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return error.strerror or str(error)


def interface_towards(address: str) -> str | None:
    """Return the name of the network interface by which this machine reaches `address`.

    None where that cannot be told: the name does not resolve, there is no route, it is not IPv4, or this is
    not Linux.
    """
    if sys.platform != "linux":
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, _ANY_PORT))
        except OSError:
            return None
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, _GET_ADDRESS_OF_INTERFACE, struct.pack("256s", name.encode()))
            except OSError:
                continue  # an interface without an IPv4 address
            if socket.inet_ntoa(answer[20:24]) == own:
                return name
    return "lo" if ipaddress.ip_address(own).is_loopback else None
