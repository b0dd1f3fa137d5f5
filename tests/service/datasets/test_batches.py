"""Requests without the events that the service refuses: the others arrive in order, with their numbers."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import decode

from rarestream import RequestRefused
from rarestream.client.errors import InvalidValue
from service.datasets.bad_rows import BadRows, RowOrigin
from service.datasets.batches import RequestBody, batches, send_accepted
from service.datasets.rows import RowEvent
from service.refusals import blamed_events

LISTED = 3  # events that a refusal names


def refusal(pointers: list[str], status: int = HTTPStatus.UNPROCESSABLE_ENTITY) -> RequestRefused:
    problems = [InvalidValue(pointer, f"is no {i}") for i, pointer in enumerate(pointers)]
    return RequestRefused("refused", status=status, code="invalid", problems=problems)


@pytest.mark.parametrize(
    ("pointers", "status", "count", "blamed"),
    [
        (["/events/1/features/a~1b", "/events/3"], 422, 4, {1: "features/a~1b: is no 0", 3: "is no 1"}),
        (["/events/1/x/0", "/events/1/label"], 422, 4, {1: "x/0: is no 0; label: is no 1"}),
        (["/events/4"], 422, 4, {}),  # no event of this request
        ([""], 422, 4, {}),
        ([], 413, 4, {}),  # a body that is too long
        ([], 413, 1, {0: "refused"}),
        (["/source/offsets"], 422, 1, None),
        (["/events/0", "/explain"], 422, 1, None),
        ([], 404, 1, None),
        ([], 503, 1, None),
    ],
)
def test_events_are_blamed_by_pointers(
    pointers: list[str], status: int, count: int, blamed: dict[int, str] | None
) -> None:
    assert blamed_events(refusal(pointers, status), count) == blamed


@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
@given(good=st.lists(st.booleans(), min_size=1, max_size=40), size=st.integers(1, 12))
def test_accepted_events_arrive_once_in_order_with_their_numbers(named: bool, good: list[bool], size: int) -> None:
    learnt: list[int] = []
    following = 100  # of the source

    def send(part: RequestBody) -> None:
        nonlocal following
        body = decode(part.body(following))
        indices = [event["x"] for event in body["events"]]
        bad = [k for k, i in enumerate(indices) if not good[i]]
        if bad:
            raise refusal([f"/events/{k}/x" for k in bad[:LISTED]] if named else [""])
        source = body["source"]
        numbers = source.get("offsets") or list(range(source["offset"], source["offset"] + len(indices)))
        assert numbers == [100 + i for i in indices]
        assert source.get("after", numbers[0]) == following
        following = numbers[-1] + 1
        learnt.extend(indices)

    events = [RowEvent({"x": i, "label": 0}, RowOrigin("f", "line", i + 2)) for i in range(len(good))]
    bad = BadRows("skip")
    refused = [origin for batch in batches(events, "s", 100, size) for origin in send_accepted(batch, send, bad)]
    assert learnt == [i for i, is_good in enumerate(good) if is_good]
    assert [origin.place - 2 for origin in refused if origin] == [i for i, is_good in enumerate(good) if not is_good]
    assert len(bad.notes()) == (not all(good))


def test_other_failures_and_bad_rows_that_end_it_are_raised() -> None:
    (batch,) = batches([{"x": 0, "label": 0}] * 2, "s", 0, 9)
    for bad, failure in ((BadRows("stop"), refusal(["/events/1"])), (BadRows("skip"), refusal([], 409))):

        def send(part: RequestBody, failure: RequestRefused = failure) -> None:
            del part
            raise failure

        with pytest.raises(RequestRefused) as caught:
            send_accepted(batch, send, bad)
        assert caught.value is failure
        assert bad.notes() == []
