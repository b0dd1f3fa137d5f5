"""Addresses that the service listens on, and the addresses of its clients."""

from __future__ import annotations

import socket

import pytest

from service.auth import plain_address
from service.server.listen import listen, url_of


def client_of(listener: socket.socket, address: str) -> str:
    """Connect to the listener at an address; return the client's address, as the service shows it."""
    with (
        socket.create_connection((address, listener.getsockname()[1])),
        listener.accept()[0] as connection,
    ):
        return plain_address(connection.getpeername()[0])


def test_every_address_is_ipv6_and_ipv4() -> None:
    with listen("::", 0) as listener:
        assert [client_of(listener, address) for address in ("127.0.0.1", "::1")] == ["127.0.0.1", "::1"]
        assert url_of(listener).startswith("http://[::1]:")


def test_one_ipv6_address_takes_no_ipv4_connection() -> None:
    with listen("::1", 0) as listener:
        assert client_of(listener, "::1") == "::1"
        with pytest.raises(ConnectionRefusedError):
            client_of(listener, "127.0.0.1")


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("::ffff:1", "::ffff:1"),
    ],
)
def test_an_ipv4_client_of_a_socket_for_both_families_has_its_ipv4_address(address: str, plain: str) -> None:
    assert plain_address(address) == plain
