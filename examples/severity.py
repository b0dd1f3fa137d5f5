"""Severity of abuse reports, 1 to 5: ranks instead of two classes, learnt from what moderators decided.

    rarestream serve &
    python examples/severity.py

The reports are made up here: a text and how many people sent one. What counts is how far off a rank is, so the learner
is judged by its mean absolute error, beside that of always saying the most frequent rank.
"""

from __future__ import annotations

import argparse
import os
import random
from collections import Counter
from contextlib import suppress

from rarestream import Client, RequestRefused

NAME = "example-severity"
REPORTS, BATCH = 4_000, 100
PHRASES = {
    1: ["posted twice", "wrong category", "looks odd", "off topic"],
    2: ["link in the profile", "advertises a shop", "asks for likes"],
    3: ["insults in the comments", "harasses a member", "hate in the name"],
    4: ["sells stolen accounts", "phishing page", "asks for a password"],
    5: ["account taken over", "money is gone", "threatens a member", "card data was stolen"],
}
FILLERS = ["please check", "seen today", "again", "my friend told me", "this is not the first time"]


def reports(rng: random.Random) -> tuple[list[dict[str, object]], list[int]]:
    """Events and their ranks; most reports are harmless."""
    events, ranks = [], []
    for _ in range(REPORTS):
        rank = rng.choices([1, 2, 3, 4, 5], weights=[40, 25, 18, 11, 6])[0]
        near = min(5, max(1, rank + rng.choice([0, 0, 0, 0, -1, 1])))  # people word things differently
        text = f"{rng.choice(FILLERS)} {rng.choice(PHRASES[near])}"
        events.append({"report": text, "reporters": 1 + int(rng.expovariate(1 / rank))})
        ranks.append(rank)
    return events, ranks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default=os.environ.get("RARESTREAM_URL", "http://127.0.0.1:8000"))
    events, ranks = reports(random.Random(3))
    with Client(parser.parse_args().url) as client:
        with suppress(RequestRefused):  # of an earlier run
            client.delete(NAME)
        learner = client.create(
            NAME,
            algorithm="npsvor",
            params={"ranks": 5},
            features={"kind": "named", "text": ["report"], "log": ["reporters"]},
            window=1_000,
        )
        for start in range(0, REPORTS, BATCH):
            learner.update(events[start : start + BATCH], ranks[start : start + BATCH])
        window = learner.metrics()["window"]
        new = ["money is gone please help", "posted twice, off topic"]
        reply = learner.predict([{"report": text, "reporters": 2} for text in new])
    usual = Counter(ranks).most_common(1)[0][0]
    constant = sum(abs(rank - usual) for rank in ranks[-1_000:]) / 1_000
    print(f"mean absolute error: {window['mae']:.3f} ranks; always saying {usual}: {constant:.3f}")
    print(f"exactly right: {window['accuracy']:.2f} of the last 1,000")
    for text, rank in zip(new, reply.ranks, strict=True):
        print(f"severity {rank}: {text}")


if __name__ == "__main__":
    main()
