"""Messages of one read are parsed as they are taken: thousands of unusual ones would take seconds at once."""

from __future__ import annotations

import pytest

from service.api.websocket import messages
from service.api.websocket.messages import read

USUAL = '{"seq":1,"op":"predict","events":[{"x":[1,2]}]}'


@pytest.mark.parametrize("message", ["nonsense", b"nonsense"])
def test_unusual_messages_are_parsed_when_they_are_taken(message: str | bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str | bytes] = []
    parse = messages._members

    def counted(message: str | bytes) -> messages.MessageBatch:
        calls.append(message)
        return parse(message)

    monkeypatch.setattr(messages, "_members", counted)
    batches = read([message] * 100)
    for number in range(1, 4):
        assert next(batches).error is not None
        assert len(calls) == number


def test_usual_messages_around_an_unusual_one_form_batches_in_order() -> None:
    batches = list(read([USUAL, USUAL, "nonsense", USUAL, "nonsense", USUAL, USUAL]))
    assert [len(batch) for batch in batches] == [2, 1, 1, 1, 2]
    assert [batch.error is None for batch in batches] == [True, False, True, False, True]
