"""The streams of the benchmark: events in the order of their source, and which of them are positive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix, issparse

from service.datasets.card_fraud import CardFraud

__all__ = ["STREAMS", "Stream", "read", "read_file"]

_WEEK = 7 * 86_400.0
_DEMO_EVENTS = 200_000


@dataclass(frozen=True)
class Stream:
    """One stream of n events."""

    name: str
    events: Any  # (n, dim) array, scipy sparse matrix, or a DataFrame of named columns
    positive: np.ndarray[Any, np.dtype[np.bool_]]  # (n,)
    features: dict[str, Any]  # of a learner's configuration
    times: np.ndarray[Any, np.dtype[np.float64]] | None = None  # seconds, (n,)
    delay: float = 0.0  # seconds until an event's label is known

    def __len__(self) -> int:
        return len(self.positive)

    def known_positives(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return how many positives are known before each event, (n,)."""
        before = np.arange(len(self))
        if self.delay and self.times is not None:
            before = np.searchsorted(self.times, self.times - self.delay, "right")
        return np.concatenate([[0], np.cumsum(self.positive)])[before]

    def rows(self, start: int, stop: int) -> Any:
        """Return events as a learner takes them."""
        part = self.events[start:stop]
        if not isinstance(part, pd.DataFrame):
            return part
        return part.astype(object).where(part.notna(), None).to_dict("records")

    def first(self, count: int | None) -> Stream:
        """Return the stream of the first events."""
        if count is None or count >= len(self):
            return self
        times = None if self.times is None else self.times[:count]
        return Stream(self.name, self.events[:count], self.positive[:count], self.features, times, self.delay)


def _arrays(folder: Path, file: str, positive: int, shuffle: bool = False) -> tuple[Any, Any, dict[str, Any]]:
    with np.load(folder / f"{file}.npz", allow_pickle=False) as arrays:
        if "X" in arrays:
            events: Any = arrays["X"].astype(float)
        else:
            parts = arrays["data"].astype(float), arrays["indices"], arrays["indptr"]
            events = csr_matrix(parts, shape=arrays["shape"])
        labels = arrays["y"] == positive
    if shuffle:
        order = np.random.default_rng(0).permutation(len(labels))
        events, labels = events[order], labels[order]
    return events, labels, {"kind": "sparse" if issparse(events) else "dense", "dim": events.shape[1]}


def _card(folder: Path, delay: float) -> Stream:
    frame = pd.read_csv(folder / "card_sim.csv.gz")
    positive = frame.pop("label").to_numpy() == 1
    times = frame["TX_TIME_SECONDS"].to_numpy(float)
    columns = ["CUSTOMER_ID", "TERMINAL_ID", "TX_AMOUNT", "TX_TIME_SECONDS"]
    features = {"kind": "named", "categorical": ["CUSTOMER_ID", "TERMINAL_ID"]}
    return Stream("card_sim" if not delay else "card_sim_week", frame[columns], positive, features, times, delay)


def _bank(folder: Path) -> Stream:
    frame = pd.read_csv(folder / "bank_additional.csv.gz").drop(columns="duration")  # known only after the call
    positive = frame.pop("label").to_numpy() == "yes"
    return Stream("bank_additional", frame, positive, {"kind": "named"})


def _messages(folder: Path) -> Stream:
    frame = pd.read_json(folder / "sms_spam.jsonl.gz", lines=True)
    positive = frame.pop("label").to_numpy() == "spam"
    return Stream("sms_spam", frame, positive, {"kind": "named", "text": list(frame.columns)})


def _demo(folder: Path) -> Stream:  # noqa: ARG001 (it needs no file)
    """Return the stream of `rarestream demo`, whose fraud changes at event 100,000."""
    events = CardFraud(change=_DEMO_EVENTS // 2).events(0, _DEMO_EVENTS)
    frame = pd.DataFrame([event["features"] for event in events])
    positive = np.array([event["label"] == 1 for event in events])
    times = np.array([event["time"] for event in events])
    return Stream("demo", frame, positive, {"kind": "named"}, times)


def _numbers(file: str, positive: int, shuffle: bool = False) -> Callable[[Path], Stream]:
    return lambda folder: Stream(file, *_arrays(folder, file, positive, shuffle))


STREAMS: dict[str, Callable[[Path], Stream]] = {
    "card_sim": lambda folder: _card(folder, 0.0),
    "card_sim_week": lambda folder: _card(folder, _WEEK),
    "demo": _demo,
    "bank_additional": _bank,
    "sms_spam": _messages,
    "reuters21578_tfidf": _numbers("reuters21578_tfidf", 2),
    "a9a": _numbers("a9a", 1),
    "w8a": _numbers("w8a", 1, shuffle=True),
    "ijcnn1": _numbers("ijcnn1", 1),
    "covtype": _numbers("covtype", 5),
    "cod-rna": _numbers("cod-rna", 1),
    "skin": _numbers("skin", 1, shuffle=True),
    "farm-ads": _numbers("farm-ads", 1),
    "german": _numbers("german", 2),
    "australian": _numbers("australian", 1),
    "diabetes": _numbers("diabetes", -1),
    "heart": _numbers("heart", 1),
    "ionosphere": _numbers("ionosphere", -1),
    "svmguide3": _numbers("svmguide3", 1),
    "eeg_eye": _numbers("eeg_eye", 1),
    "satimage": _numbers("satimage", 4),
}
"""The streams by name; each reads its file in a folder."""


def read(name: str, folder: Path) -> Stream:
    """Read a stream of the list. Raises FileNotFoundError."""
    return STREAMS[name](folder)


def read_file(path: Path, label: str) -> Stream:
    """Read a CSV file with a header as a stream; positive is the rarest value of the column `label`.

    Raises ValueError if there is no such column.
    """
    frame = pd.read_csv(path)
    if label not in frame:
        raise ValueError(f"{path} has no column {label}; it has {', '.join(frame.columns)}")
    labels = frame.pop(label)
    return Stream(path.stem, frame, (labels == labels.value_counts().index[-1]).to_numpy(), {"kind": "named"})
