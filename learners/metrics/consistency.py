"""Whether the parts of a restored state are those of one stream, each being sound by itself.

Some things are kept in more than one part, for each to be read without the others: how many events there were, when
those of the window came, what was said of an event that has an id. A part moves on trusting the others to agree. So a
correction takes out of the figures what the ids say that was counted, and a row of the history is due after so many
events of the window and of those served. See `soundness.py` for the parts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.metrics.cumulative import CumulativeSketch
from learners.metrics.history import ROWS
from learners.numerics import Counts, Issues

__all__ = ["id_disagreements", "metric_disagreements"]

Arrays = dict[str, NDArray[np.generic]]


def metric_disagreements(state: Arrays, part: str, size: int, stride: int) -> Issues:
    """Where the window, traffic and history of a learner's figures are not of the same events. O(window).

    The window's arrays are called `part` + span and clocks; it holds `size` events, and a row is due every `stride`
    steps (see `history.py`).
    """
    first, following = state[f"{part}span"].tolist()
    if state["traffic_span"].tolist() != [first, following]:
        yield "traffic_span", f"is {state['traffic_span'].tolist()}; that of the window is {[first, following]}"
        return
    held = np.arange(first, following) % size
    clocks, others = (state[name][held].astype(np.float64) for name in (f"{part}clocks", "traffic_clocks"))
    if not np.array_equal(clocks, others, equal_nan=True):
        yield "traffic_clocks", "are not those of the window"
    rows = int(state["history_count"][0])
    served = int(state["traffic_served"][0])
    if rows != (following + served) // stride:
        yield "history_count", f"is {rows} after {following} labelled events and {served} served ones"
    elif rows:
        events, latest, met = state["history_rows"][0, rows % ROWS, :3].tolist()
        if events > following or met > served:
            yield "history_rows", "has events that are yet to come"
        if not math.isnan(latest) and not latest <= float(state["traffic_clock"][0]):
            yield "history_rows", "has a clock that is yet to come"


def id_disagreements(ids: Arrays, metrics: Arrays, size: int, ranks: int | None) -> Issues:
    """Where what is remembered of ids is not what the figures of a window of `size` are made of, by the ids' arrays.

    `ranks`: those of an ordinal learner. O(ids + window).
    """
    part = "window_" if ranks is None else ""
    first, following = metrics[f"{part}span"].tolist()
    numbers: Counts = ids["numbers"].astype(np.int64)
    if ids["count"][0] > following:
        yield "count", f"is {ids['count'][0]} of {following} events"
    if (numbers >= following).any():
        yield "numbers", f"has numbers that are not below that of the next event, {following}"
        return
    labels, decisions = ids["labels"].astype(np.int64), ids["decisions"].astype(np.int64)
    scores, probabilities = ids["scores"].astype(np.float64), ids["probabilities"].astype(np.float64)
    scores = np.where(np.isnan(scores), 0.0, scores)  # as in the figures
    kept: dict[str, NDArray[Any]] = {"labels": labels, "decisions": decisions}
    if ranks is None:
        kept = {"labels": labels > 0, "decisions": decisions, "scores": scores, "probabilities": probabilities}
    inside = numbers >= first
    for name, values in kept.items():
        if (values[inside] != metrics[f"{part}{name}"][numbers[inside] % size]).any():
            yield name, "is not what the window has of the same events"
    if ranks is not None:
        rest: Counts = metrics["total"].astype(np.int64)
        np.subtract.at(rest, (labels - 1, decisions - 1), 1)
        if (rest < 0).any():
            yield "decisions", "has more events of a rank and a decision than there were"
        return
    counted = CumulativeSketch()
    counted.learn(scores, probabilities, labels.astype(np.float64), decisions)
    for name, array in (("decisions", "confusion"), ("scores", "bins"), ("probabilities", "reliability")):
        if (getattr(counted.arrays, array) > metrics[f"sketch_{array}"].astype(np.int64)).any():
            yield name, "has more events of a kind than there were"
