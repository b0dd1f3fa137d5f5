"""Simulates a stream of card transactions, about 1 % of them fraud, whose fraud pattern changes at one event.

Event k depends only on (seed, change, first day, k), so any part of the stream can be generated at any time. That lets
the demo resume. Blocks of 1000 events share one Philox generator, keyed by (seed, block).

A fraud is drawn from the pattern of its time or, once in seven times, from the lawful transactions, so no ranking
reaches AUC 1. Before the change, fraud happens online: gift cards, electronics, new devices, bursts at night, abroad.
After it, fraud happens in person: stolen cards pay small amounts in domestic shops, again and again by day. Then most
signs of the earlier fraud indicate a lawful transaction.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["CardFraud", "first_day", "max_events"]

Event = dict[str, Any]  # an event of the API, with its label
Column = NDArray[Any]  # (_BLOCK,)

_BLOCK = 1000
_PER_DAY = 4000  # transactions
_DAY_SECONDS = 86_400
_FIRST_DAY = 20_454  # 2026-01-01, in days since the epoch
_FRAUD = 0.01
_QUIET = 1 / 7  # share of frauds that look like lawful transactions
_FIRST_USE = 0.02  # share of cards without an earlier transaction

_MERCHANTS = np.array(
    ["grocery", "fuel", "restaurant", "fashion", "pharmacy", "travel", "electronics", "gift_cards", "gaming", "cash"]
)
_COUNTRIES = np.array(["DE", "FR", "NL", "PL", "GB", "US", "BR", "SG"])
_CHANNELS = np.array(["chip", "contactless", "online", "atm"])
_BY_HOUR = np.array([2, 1, 1, 1, 1, 2, 4, 7, 8, 8, 9, 11, 13, 12, 10, 10, 11, 13, 14, 12, 9, 6, 4, 3], dtype=np.float64)


class _Pattern(NamedTuple):
    """The distribution of a kind of transactions. Weights are relative; pairs are median and spread of a log-normal."""

    merchants: tuple[float, ...]
    countries: tuple[float, ...]
    channels: tuple[float, ...]
    amount: tuple[float, float]  # relative to the merchant's scale
    pause: tuple[float, float]  # seconds since the card's last transaction
    card_age: tuple[float, float]  # days
    today: float  # mean number of the card's other transactions within 24 hours
    new_device: float  # probability; only online transactions have a device


_SCALE = np.array([1.0, 1.5, 1.2, 2.0, 0.8, 8.0, 5.0, 2.0, 0.7, 4.0])  # of amounts, by merchant

_LAWFUL = _Pattern(
    merchants=(30, 10, 16, 10, 7, 5, 8, 3, 5, 6),
    countries=(55, 10, 9, 7, 7, 6, 3, 3),
    channels=(32, 36, 26, 6),
    amount=(30, 0.9),
    pause=(40_000, 1.5),
    card_age=(600, 0.8),
    today=1.2,
    new_device=0.1,
)
_ONLINE = _Pattern(
    merchants=(4, 2, 4, 10, 3, 12, 30, 22, 12, 1),
    countries=(25, 8, 7, 6, 12, 22, 10, 10),
    channels=(6, 6, 86, 2),
    amount=(70, 1.0),
    pause=(4_000, 1.8),
    card_age=(300, 0.9),
    today=3.0,
    new_device=0.55,
)
_IN_PERSON = _Pattern(
    merchants=(34, 26, 10, 5, 14, 1, 3, 1, 1, 5),
    countries=(68, 14, 6, 8, 1, 1, 1, 1),
    channels=(4, 80, 4, 12),
    amount=(14, 0.5),
    pause=(12_000, 1.8),
    card_age=(1_200, 0.6),
    today=3.0,
    new_device=0.05,
)
_NIGHT = np.where((np.arange(24) < 6) | (np.arange(24) >= 22), 4.0, 1.0)  # relative frequency of fraud by hour
_DAY = np.where((np.arange(24) >= 9) & (np.arange(24) < 18), 2.0, 1.0)


def first_day(events: int, now: float, clock: float | None = None) -> int:
    """Return the first day (since the epoch) of a stream of `events` that ends before `now` (in seconds).

    It is 2026-01-01, or earlier if necessary. `clock`: the time of the last of `events` past ones.
    """
    if clock is not None:
        return int(clock // _DAY_SECONDS) - (events - 1) // _PER_DAY
    return min(_FIRST_DAY, max_events(0, now) // _PER_DAY - -(-events // _PER_DAY))


def max_events(first: int, now: float) -> int:
    """Return how many events fit between the first day and `now`."""
    return max(0, int(now // _DAY_SECONDS) - first) * _PER_DAY


class CardFraud:
    """The stream. `change`: number of the first event of the second pattern; `first`: see `first_day`."""

    def __init__(self, change: int, seed: int = 1, first: int = _FIRST_DAY) -> None:
        self.change = change
        self.seed = seed
        self.first = first

    def events(self, start: int, stop: int) -> list[Event]:
        """Return the labelled events `start` to `stop`, in order. O(stop - start), plus up to two blocks."""
        events: list[Event] = []
        for block in range(start // _BLOCK, -(-stop // _BLOCK)):
            first = block * _BLOCK
            events += self._block(block)[max(0, start - first) : stop - first]
        return events

    def _block(self, block: int) -> list[Event]:
        rng = np.random.Generator(np.random.Philox(key=np.array([self.seed, block], dtype=np.uint64)))
        numbers = np.arange(block * _BLOCK, (block + 1) * _BLOCK)
        times = _times(numbers, rng.random(_BLOCK), self.first)
        hours = (times // 3600 % 24).astype(np.int64)
        late = numbers >= self.change
        fraud = rng.random(_BLOCK) < _FRAUD * np.where(late, _relative(_DAY)[hours], _relative(_NIGHT)[hours])
        shows = fraud & (rng.random(_BLOCK) >= _QUIET)
        kinds = [_columns(pattern, rng) for pattern in (_LAWFUL, _ONLINE, _IN_PERSON)]
        kind = np.where(shows, np.where(late, 2, 1), 0)
        columns = {name: np.choose(kind, [columns_of[name] for columns_of in kinds]) for name in kinds[0]}
        merchants = columns["merchant"]
        amounts = np.round(np.maximum(columns["amount"] * _SCALE[merchants], 0.5), 2)
        online = columns["channel"] == 2
        fresh = rng.random(_BLOCK) < _FIRST_USE
        rows = zip(
            numbers.tolist(),
            times.tolist(),
            fraud.astype(np.int64).tolist(),
            amounts.tolist(),
            _MERCHANTS[merchants].tolist(),
            _COUNTRIES[columns["country"]].tolist(),
            _CHANNELS[columns["channel"]].tolist(),
            hours.tolist(),
            columns["card_age"].astype(np.int64).tolist(),
            _unless(fresh, columns["pause"].astype(np.int64)),
            columns["today"].tolist(),
            _unless(~online, columns["new_device"]),
            strict=True,
        )
        return [
            {
                "id": f"transaction-{number}",
                "time": time,
                "label": label,
                "features": {
                    "amount": amount,
                    "merchant": merchant,
                    "country": country,
                    "channel": channel,
                    "hour": hour,
                    "card_age_days": age,
                    "seconds_since_last": pause,
                    "transactions_today": today,
                    "new_device": device,
                },
            }
            for number, time, label, amount, merchant, country, channel, hour, age, pause, today, device in rows
        ]


def _times(numbers: Column, within: Column, first: int) -> Column:
    """Return ascending times in seconds since the epoch, with more transactions by day than by night."""
    share = np.concatenate([[0.0], np.cumsum(_BY_HOUR)]) / _BY_HOUR.sum()
    second = np.interp((numbers % _PER_DAY + within) / _PER_DAY, share, np.arange(25) * 3600.0)
    times: Column = np.round((first + numbers // _PER_DAY) * _DAY_SECONDS + second, 3)
    return times


def _relative(weights: Column) -> Column:
    """Scale weights by hour to a mean of 1 over the stream."""
    scaled: Column = weights * _BY_HOUR.sum() / (weights @ _BY_HOUR)
    return scaled


def _unless(missing: Column, values: Column) -> list[Any]:
    """Return the values as Python objects, None if missing."""
    return [None if absent else value for absent, value in zip(missing.tolist(), values.tolist(), strict=True)]


def _columns(pattern: _Pattern, rng: np.random.Generator) -> dict[str, Column]:
    """Draw a block of transactions of one kind; the number of draws does not depend on the pattern."""

    def pick(weights: tuple[float, ...]) -> Column:
        return np.searchsorted(np.cumsum(weights) / sum(weights), rng.random(_BLOCK), side="right")

    def log_normal(median: float, spread: float) -> Column:
        amounts: Column = median * np.exp(spread * rng.standard_normal(_BLOCK))
        return amounts

    return {
        "merchant": pick(pattern.merchants),
        "country": pick(pattern.countries),
        "channel": pick(pattern.channels),
        "amount": log_normal(*pattern.amount),
        "pause": log_normal(*pattern.pause),
        "card_age": log_normal(*pattern.card_age),
        "today": rng.poisson(pattern.today, _BLOCK),
        "new_device": rng.random(_BLOCK) < pattern.new_device,
    }
