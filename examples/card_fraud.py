"""Card fraud: payments are scored at once, their labels come three days later, and reviewers have time for ten a day.

    rarestream serve &
    python examples/card_fraud.py

The payments are made up here: 30 days, 400 a day, 2 % of them fraud. Each is scored under its id; the label names that
id alone, and is learnt with the features that were served. The threshold is a budget: ten alerts a day, never more.
"""

from __future__ import annotations

import argparse
import os
from contextlib import suppress
from typing import Any

import numpy as np

from rarestream import Client, RequestRefused

NAME = "example-card-fraud"
DAYS, PER_DAY, WAIT = 30, 400, 3  # days until the labels arrive
ALERTS = 10  # a day
DAY = 86_400.0
START = 1_767_225_600.0  # 2026-01-01 in UTC
SHOPS = ["grocery", "fuel", "restaurant", "electronics", "gift cards", "travel"]


def payments(day: int, rng: np.random.Generator) -> tuple[list[dict[str, Any]], list[bool], list[str], np.ndarray]:
    """One day's events in the order of time: features, which are fraud, ids and times."""
    fraud = rng.random(PER_DAY) < 0.02
    shop = np.where(fraud, rng.choice(6, PER_DAY, p=[0.1, 0.05, 0.05, 0.3, 0.4, 0.1]), rng.integers(0, 6, PER_DAY))
    amount = np.exp(rng.normal(3.0 + 1.8 * fraud, 0.8)).round(2)
    abroad = rng.random(PER_DAY) < np.where(fraud, 0.6, 0.05)
    times = START + DAY * day + np.sort(rng.random(PER_DAY)) * DAY
    features = [
        {"amount": float(a), "shop": SHOPS[s], "country": "XX" if far else "DE", "card": int(card)}
        for a, s, far, card in zip(amount, shop, abroad, rng.integers(0, 300, PER_DAY), strict=True)
    ]
    return features, fraud.tolist(), [f"day{day}-{i}" for i in range(PER_DAY)], times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default=os.environ.get("RARESTREAM_URL", "http://127.0.0.1:8000"))
    rng = np.random.default_rng(2)
    waiting: dict[int, tuple[list[str], list[bool]]] = {}
    alerts, caught, frauds, busiest = 0, 0, 0, 0
    with Client(parser.parse_args().url) as client:
        with suppress(RequestRefused):  # of an earlier run
            client.delete(NAME)
        learner = client.create(
            NAME,
            algorithm="cbr-diag",
            features={"kind": "named", "categorical": ["card"], "log": ["amount"]},
            threshold={"objective": "budget", "alerts": ALERTS},
            late={"label_ttl": 30 * DAY},
            window=4_000,
        )
        for day in range(DAYS):
            features, fraud, ids, times = payments(day, rng)
            served = learner.predict(features, ids=ids, times=times)
            alerted = (served.labels == 1).tolist()
            waiting[day] = (ids, fraud)
            if day >= 10:  # the first labels have arrived
                alerts, busiest = alerts + sum(alerted), max(busiest, sum(alerted))
                frauds += sum(fraud)
                caught += sum(a and f for a, f in zip(alerted, fraud, strict=True))
            if day - WAIT in waiting:
                earlier, truth = waiting.pop(day - WAIT)
                learner.labels(earlier, truth, times=np.full(PER_DAY, times[-1]))
        figures = learner.metrics()
    print(f"alerts: {alerts} in days 11 to {DAYS}, {busiest} on the busiest; {ALERTS} a day were allowed")
    print(f"precision: {caught / alerts:.2f} of the alerts were fraud; {caught} of {frauds} frauds were among them")
    print(f"AUC: {figures['window']['auc']:.3f}, labels after {figures['window']['label_delay_median'] / DAY:.1f} days")


if __name__ == "__main__":
    main()
