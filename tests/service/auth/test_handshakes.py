"""The bounds of connections that are not authenticated yet: time, number by address, and room for others."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest

from service.auth import GRACE, Handshake, Handshakes
from service.settings import Settings


class Client:
    """A connection."""

    def __init__(self) -> None:
        self.authenticated = False
        self.receiving = True
        self.end = ""

    def abort(self) -> None:
        self.end = "aborted"

    def expire_handshake(self) -> None:
        self.end = "expired"


class Clock:
    """A clock that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def begin(handshakes: Handshakes, addresses: Iterable[str]) -> tuple[list[Client], list[Handshake]]:
    """Begin a handshake from each address."""
    clients, started = [], []
    for address in addresses:
        clients.append(Client())
        started.append(handshakes.begin(address, clients[-1]))
    return clients, started


def ends(clients: Iterable[Client]) -> list[str]:
    return [client.end for client in clients]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def handshakes(clock: Clock) -> Handshakes:
    return Handshakes(Settings(body_seconds=30, max_handshakes=2), clock)


def test_a_connection_is_closed_at_its_deadline_unless_it_is_authenticated(
    handshakes: Handshakes, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rarestream.connections")
    clients, started = begin(handshakes, ["192.0.2.1", "192.0.2.2", "192.0.2.3"])
    started[0].finish()
    clients[1].authenticated = True
    assert len(handshakes) == 1
    clock.now += 29.9
    handshakes.expire()
    assert ends(clients) == ["", "", ""]
    clock.now += 0.2
    handshakes.expire()
    assert ends(clients) == ["", "", "expired"]
    assert (len(handshakes), handshakes.closed["deadline"]) == (0, 1)
    (line,) = caplog.messages
    assert "1 connection" in line
    assert "192.0.2.3" in line
    assert "body_seconds" in line


@pytest.mark.parametrize(
    ("same", "other"),
    [
        (["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"], "192.0.2.2"),
        (["2001:db8::1", "2001:db8::2", "2001:db8::3"], "2001:db8:0:1::1"),
    ],
)
def test_one_address_loses_its_oldest_connection_for_the_next(
    handshakes: Handshakes, same: list[str], other: str
) -> None:
    clients, _ = begin(handshakes, [other, *same])
    assert ends(clients) == ["", "aborted", "", ""]
    assert handshakes.closed["address"] == 1


def test_a_reply_in_progress_is_finished_if_one_address_has_too_many(handshakes: Handshakes) -> None:
    clients, _ = begin(handshakes, ["192.0.2.1", "192.0.2.1"])
    clients[0].receiving = False
    begin(handshakes, ["192.0.2.1"])
    assert ends(clients) == ["expired", ""]


def test_an_address_may_have_any_number_of_authenticated_connections(handshakes: Handshakes) -> None:
    clients = []
    for _ in range(10):
        (client,), _ = begin(handshakes, ["192.0.2.1"])
        client.authenticated = True
        clients.append(client)
    assert set(ends(clients)) == {""}
    assert not any(handshakes.closed.values())


def test_the_address_with_most_handshakes_makes_room_after_a_grace_period(handshakes: Handshakes, clock: Clock) -> None:
    clients, _ = begin(handshakes, ["192.0.2.1", "192.0.2.2", "192.0.2.2"])
    assert not handshakes.make_room()
    clock.now += GRACE
    assert handshakes.make_room()
    assert ends(clients) == ["", "aborted", ""]
    clients[0].authenticated = True
    assert handshakes.make_room()
    assert not handshakes.make_room()
    assert ends(clients) == ["", "aborted", "aborted"]
    assert handshakes.closed["descriptors"] == 2


def test_the_log_reports_closed_connections_once_a_second(
    handshakes: Handshakes, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        for _ in range(10):
            begin(handshakes, ["192.0.2.1"] * 5)
            handshakes.expire()
        clock.now += 1
    handshakes.expire()
    assert len(caplog.messages) == 3
    assert all("max_handshakes" in line for line in caplog.messages)
    assert handshakes.closed["address"] == 98
