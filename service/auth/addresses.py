"""Addresses of clients, as they are shown and counted."""

from __future__ import annotations

import ipaddress
import socket

__all__ = ["IPAddress", "network_of", "parse_address", "plain_address"]

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_MAPPED = "::ffff:"


def parse_address(text: str) -> IPAddress | None:
    """Parse an IP address; None if it is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def plain_address(address: str) -> str:
    """Return an address as it is shown: an IPv4-mapped IPv6 address, of a dual-stack socket, as its IPv4 address."""
    return address.removeprefix(_MAPPED) if "." in address else address


def network_of(address: str) -> str:
    """Return what counts as one client: an IPv4 address, or an IPv6 /64."""
    actual = parse_address(plain_address(address))
    if isinstance(actual, ipaddress.IPv6Address):
        return socket.inet_ntop(socket.AF_INET6, actual.packed[:8] + bytes(8))
    return plain_address(address)
