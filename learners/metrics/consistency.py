"""Checks that the valid parts of a restored state belong to one stream.

Some facts are stored in more than one part, so that each part can be read alone: the number of events, the clocks of
the window, the predictions for an event with an id. The parts then rely on each other. For example, a correction
subtracts from the metrics what the remembered ids report. `state_checks.py` checks each part by itself.
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
    """Report where window, stream statistics and history contradict each other. O(window).

    The window's arrays have names `part` + "span" and `part` + "clocks". The window holds `size` events, and the
    history has a row every `stride` steps.
    """
    first, following = state[f"{part}span"].tolist()
    if state["traffic_span"].tolist() != [first, following]:
        yield "traffic_span", f"is {state['traffic_span'].tolist()}; that of the window is {[first, following]}"
        return
    slots = np.arange(first, following) % size
    clocks, others = (state[name][slots].astype(np.float64) for name in (f"{part}clocks", "traffic_clocks"))
    if not np.array_equal(clocks, others, equal_nan=True):
        yield "traffic_clocks", "are not those of the window"
    rows = int(state["history_count"][0])
    served = int(state["traffic_served"][0])
    if rows != (following + served) // stride:
        yield "history_count", f"is {rows} after {following} labelled events and {served} served ones"
    elif rows:
        events, clock, served_then = state["history_rows"][0, rows % ROWS, :3].tolist()
        if events > following or served_then > served:
            yield "history_rows", "has more events than there were"
        if not math.isnan(clock) and not clock <= float(state["traffic_clock"][0]):
            yield "history_rows", "has a clock later than the present"


def id_disagreements(ids: Arrays, metrics: Arrays, size: int, ranks: int | None) -> Issues:
    """Report where the remembered ids contradict the metrics of a window of `size`, by the ids' arrays.

    `ranks` are those of an ordinal learner. O(ids + window).
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
    scores = np.where(np.isnan(scores), 0.0, scores)  # as in the metrics
    columns: dict[str, NDArray[Any]] = {"labels": labels, "decisions": decisions}
    if ranks is None:
        columns = {"labels": labels > 0, "decisions": decisions, "scores": scores, "probabilities": probabilities}
    inside = numbers >= first
    for name, values in columns.items():
        if (values[inside] != metrics[f"{part}{name}"][numbers[inside] % size]).any():
            yield name, "differs from the same events of the window"
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
