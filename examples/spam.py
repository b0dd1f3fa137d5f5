"""Spam from raw text: messages are scored as they come, and learnt when a moderator has looked at them.

    rarestream serve &
    python examples/spam.py

The messages are made up here, from templates; one in ten is spam, and half-way the spammers change their words. The
text goes to the service as it is: a field listed as `text` becomes lower-case words and pairs of neighbouring words.
"""

from __future__ import annotations

import argparse
import os
import random
from contextlib import suppress

from rarestream import Client, RequestRefused

NAME = "example-spam"
MESSAGES, BATCH = 6_000, 100
HAM = [
    "hi {who}, are we still on for {when}?",
    "the {thing} you ordered has arrived, pick it up {when}",
    "{who} wrote the notes of the meeting, see you {when}",
    "can you send me the {thing} before {when}, {who} needs it",
    "free {when}? {who} wants to see the {thing}",
]
SPAM = [
    "you have won a {thing}, claim it {when} at {link}",
    "cheap {thing} only {when}: {link}",
    "{who}, make money from home, start {when} {link}",
]
NEW_SPAM = [
    "your parcel with the {thing} is held, pay the fee {when} at {link}",
    "{who}, your account is locked, verify {when}: {link}",
]
WORDS = {
    "who": ["anna", "omar", "mei", "lucas", "priya"],
    "when": ["today", "tomorrow", "on friday", "tonight", "next week"],
    "thing": ["phone", "report", "watch", "invoice", "ticket"],
    "link": ["bit.example/a1", "win.example/now", "pay.example/x"],
}


def messages(rng: random.Random) -> tuple[list[str], list[int]]:
    """Texts in the order they come, and 1 where one is spam."""
    texts, labels = [], []
    for i in range(MESSAGES):
        spam = rng.random() < 0.1
        templates = HAM if not spam else SPAM if i < MESSAGES // 2 else NEW_SPAM
        chosen = {name: rng.choice(words) for name, words in WORDS.items()}
        texts.append(rng.choice(templates).format(**chosen))
        labels.append(int(spam) if rng.random() > 0.02 else int(not spam))  # moderators err, too
    return texts, labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default=os.environ.get("RARESTREAM_URL", "http://127.0.0.1:8000"))
    texts, labels = messages(random.Random(1))
    with Client(parser.parse_args().url) as client:
        with suppress(RequestRefused):  # of an earlier run
            client.delete(NAME)
        learner = client.create(NAME, algorithm="fofo", features={"kind": "named", "text": ["message"]}, window=1_000)
        for start in range(0, MESSAGES, BATCH):
            batch = slice(start, start + BATCH)
            learner.update([{"message": text} for text in texts[batch]], labels[batch])
            if start + BATCH in (MESSAGES // 2, MESSAGES // 2 + 500, MESSAGES):
                window = learner.metrics()["window"]
                print(f"{start + BATCH:5,} messages: F1 {window['f1']:.3f}, AUC {window['auc']:.3f} of the last 1,000")
        new = ["omar, your account is locked, verify now: bit.example/a1", "anna, is the report done?"]
        reply = learner.predict([{"message": text} for text in new], explain=2)
    for text, label, probability, why in zip(new, reply.labels, reply.probabilities, reply.explanations, strict=True):
        words = ", ".join(name for name, _ in why.features)
        print(f"{'spam' if label else 'ham'} ({probability:.2f}): {text}  [{words}]")


if __name__ == "__main__":
    main()
