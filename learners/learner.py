"""Learner: the whole pipeline as one state machine.

    encoded events -> duplicates out -> model (`model.py`) -> decision (`decision.py`) -> metrics

It has no clock, no network and no file. Its state is a function of the records it was given: the same events in the
same order give the same bits, however they were cut into batches.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.arrays import Rows, Sparse, Vector
from learners.batch import Batch, Fitted, Outcome, Restored, joined, length, part_of, take
from learners.config import Config
from learners.decision import Scores, decision_of
from learners.features import SparseColumns
from learners.fitting import Fitting
from learners.labels import as_array
from learners.metrics import Metrics
from learners.model import Model, check_arrays, check_shapes
from learners.ordinal_metrics import OrdinalMetrics
from learners.parameters import Problem, Refused, show
from learners.recent import RecentIds, Sources
from learners.scorer import Scorer, View
from learners.soundness import check_values

__all__ = ["MAX_WEIGHT", "Learner", "check_state"]

State = dict[str, NDArray[np.generic]]

MAX_WEIGHT = 1e6  # of an event


class Learner:
    """One named learner moved forward by records. No I/O, no await, no clock.

    Raises nothing after the constructor for a batch that `Config.encode` and `Labels.read` let through.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._start()

    def _start(self) -> None:
        config = self.config
        self._model = Model(config)
        self._decision = decision_of(config)
        self._ids = RecentIds(config.remembered_ids)
        self._sources = Sources()
        ranks = config.labels.ranks
        self.metrics = Metrics(config.window) if ranks is None else OrdinalMetrics(config.window, ranks)

    # Moving forward

    def apply(self, record: Batch | Fitted | Restored) -> Outcome | None:
        """Move forward by one record of the log; what became of each event of a batch.

        Raises `Refused` for a roll-back or a fit that is not of such a learner, and then nothing changed.
        """
        if isinstance(record, Restored):
            before = self._model
            self._restore(record.state)
            self._model.rolled_back(before)
            return None
        if isinstance(record, Fitted):
            if self.wants(record):
                self._take(record)
            return None
        return self._learn(record)

    def learn(
        self,
        X: Any,
        y: Any,
        *,
        weights: Any = None,
        ids: Sequence[str | None] | None = None,
    ) -> Vector:
        """Learn n labelled events in order; return the prequential scores, (n,); of an ordinal learner the ranks.

        Each event is scored before it is learnt, and fits are made as soon as they are due. `X` is a (n, dim) array, a
        scipy sparse matrix, or a list of what an event carries (lists, (indices, values) pairs, dicts of named
        features), as the learner's features want it. `y` holds 0/1 or -1/1, or ranks from 1. `weights` (n,), at least
        0, multiply each event's step. An event whose id was learnt before changes nothing and has the score NaN.
        Raises `Refused` (a ValueError), and then nothing was learnt.
        """
        batch = self._batch(X, y, weights, ids)
        outcomes: list[Outcome] = []
        start = 0
        while start < len(batch) or not outcomes:
            rest = batch.part(start, len(batch))
            part = rest.part(0, self.step(rest))
            outcomes.append(self._learn(part))
            start += len(part)
            if self.due:
                self._refit()
        outcome = joined(outcomes)
        if self.config.labels.ranks is None:
            return outcome.scores
        return np.where(outcome.applied, outcome.decisions, np.nan)

    def fit(self, X: Any = None, y: Any = None, *, weights: Any = None) -> None:
        """Fit now, to n labelled events, which take the place of those retained, or else to those retained.

        For a batch algorithm, or for one whose embedding is not there yet. The events are not scored, and the live
        figures do not change. Raises `Refused` for arguments that `learn` would refuse and where nothing is to be
        fitted, and ValueError where these events cannot be fitted; then the model is as it was.
        """
        if not (self.config.batch or self._model.warming):
            raise Refused([Problem("", f"{self.config.algorithm} learns from each event: use learn")])
        model = self._model
        if X is not None:
            batch = self._batch(X, y, weights, None)
            model = model.copy()  # to be taken once the fit has succeeded
            model.retain(batch.rows, batch.labels, np.ones(len(batch)) if batch.weights is None else batch.weights)
        fitting = model.fitting(self.metrics.events)
        if not len(fitting.y):
            raise ValueError("there are no events to fit to")
        fitted = fitting.run()
        self._model = model
        self._take(fitted)

    def _batch(self, X: Any, y: Any, weights: Any, ids: Sequence[str | None] | None) -> Batch:
        rows = self.encode(X)
        labels = self.config.labels.read(y)
        if len(labels) != length(rows):
            raise Refused([Problem("/labels", f"has {len(labels)} entries for {length(rows)} events")])
        return Batch(rows, labels, _weights(weights, len(labels)), ids=None if ids is None else _ids(ids, len(labels)))

    def score(self, X: Any) -> Vector:
        """The score of each event, (n,), without learning; `scorer()` also gives probabilities and decisions."""
        return self.scorer().score(self.encode(X)).scores

    def encode(self, X: Any) -> Rows:
        """The columns of n events' features; see `features.py`. Raises `Refused`."""
        if hasattr(X, "tocsr"):  # any scipy sparse matrix or array
            matrix = X.tocsr().astype(np.float64)
            matrix.sum_duplicates()
            features = self.config.features
            if not isinstance(features, SparseColumns) or matrix.shape[1:] != (features.dim,):
                raise Refused([Problem("", f"a sparse matrix of shape {matrix.shape} is not what this learner takes")])
            X = Sparse(matrix.data, matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64))
        return self.config.encode(X)

    def _learn(self, batch: Batch) -> Outcome:
        fresh = np.ones(len(batch), dtype=np.bool_)
        beyond = self._sources.admit(batch.segments, fresh)
        if batch.ids is not None:
            self._ids.admit(batch.ids, fresh)
        everything = bool(fresh.all())
        rows = batch.rows if everything else take(batch.rows, fresh)
        y = batch.labels if everything else batch.labels[fresh]
        weights = np.ones(len(batch)) if batch.weights is None else batch.weights
        weights = weights if everything else weights[fresh]
        step = self._model.step_rows  # one call of each stage for the whole batch, or for some millions of numbers
        said = []
        for start in range(0, max(len(y), 1), step):
            cut = slice(start, start + step)
            values = self._model.learn(part_of(rows, start, start + step), y[cut], weights[cut])
            said.append(self._decision.learn(values, y[cut]) if self._model.says else self._decision.nothing(values))
        outcome = _outcome(fresh, beyond, said)
        self.metrics.learn(outcome, batch.labels)
        return outcome

    # Fits

    @property
    def due(self) -> bool:
        """Whether `fitting()` should be run and what comes out applied."""
        return self._model.due(self.metrics.events)

    def step(self, batch: Batch) -> int:
        """How many of a batch's events, at least 1, can be learnt before a fit may be due."""
        return self._model.step(batch, self.metrics.events)

    @property
    def urgent(self) -> bool:
        """Whether a fit that is due should come before the next event: what is learnt without it is learnt anew."""
        return self._model.warming

    def fitting(self) -> Fitting:
        """The fit of the retained events as they are now; run it where it suits. O(numbers retained)."""
        return self._model.fitting(self.metrics.events)

    def wants(self, fitted: Fitted) -> bool:
        """Whether applying a fit would change anything. Raises `Refused` for one that is not of such a learner."""
        return self._model.wants(fitted, self.metrics.events)

    def unfit(self) -> None:
        """A fit has failed: the next may be due after as many events as the first one waited for."""
        self._model.unfit(self.metrics.events)

    def _refit(self) -> None:
        try:
            fitted = self.fitting().run()
        except (ValueError, MemoryError):  # no such model for these events, or no room for it; the last one stays
            self.unfit()
        else:
            self._take(fitted)

    def _take(self, fitted: Fitted) -> None:
        anew = False
        for values, y in self._model.take(fitted):
            if not anew:
                self._decision.restart()
                anew = True
            self._decision.learn(values, y)

    # Looking

    def scorer(self) -> Scorer:
        """The present scorer: a view that is right until the next `apply`; `frozen()` makes it last."""
        model = self._model
        return Scorer(
            self.config,
            model.columns,
            model.scaled,
            model.scaling,
            model.embedding,
            model.weights,
            self._decision,
            model.says,
        )

    @property
    def threshold(self) -> float | None:
        """The live threshold on the probability; None for an ordinal learner."""
        return self._decision.threshold

    def view(self) -> View:
        """What readers see, right until the next `apply`; `frozen()` makes it last."""
        model = self._model
        return View(
            self.scorer(),
            self.metrics.view(),
            dict(self._sources.next),
            model.columns.used,
            model.waits_for(self.metrics.events),
            model.fitted_events,
        )

    def figures(self) -> dict[str, Any]:
        """The live figures, JSON-ready: numbers, or None with the reason under `undefined`."""
        live = {} if self.threshold is None else {"threshold": self.threshold}
        return {**live, **self.metrics.view().as_json()}

    # Saving

    def state(self) -> State:
        """Every array of the state by name, as views: copy what has to last. Derived arrays are left out."""
        parts = {
            **self._model.state(),
            **self._decision.state(),
            "ids": self._ids.state(),
            "metrics": self.metrics.state(),
            "sources": self._sources.state(),
        }
        return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}

    def digest(self) -> str:
        """A hash of the configuration and of every array's bytes: equal states, and only those, agree. O(state)."""
        out = hashlib.blake2b(digest_size=16)
        out.update(json.dumps(self.config.to_json(), sort_keys=True).encode())
        for name, array in sorted(self.state().items()):
            if name == "fits.restores":  # a roll-back gives the digest back that the state had
                continue
            out.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
            out.update(np.ascontiguousarray(array).data)
        return out.hexdigest()

    @classmethod
    def restored(cls, config: Config, state: State) -> Learner:
        """A learner with this configuration and the state that `state()` gave. Raises `Refused` where they differ."""
        learner = cls(config)
        learner._restore(state)
        return learner

    def _restore(self, state: State) -> None:
        check_state(self.config, state)
        self._start()
        groups = _groups(state)
        self._model.restore(groups)
        self._decision.restore(groups)
        self._ids.restore(groups["ids"])
        self._sources.restore(groups["sources"])
        self.metrics.restore(groups["metrics"])

    def shapes(self, state: State) -> dict[str, tuple[int, ...]]:
        """The shapes that a state's arrays have by what they say they have met.

        For a learner that has met nothing yet, and is not used for anything else.
        """
        groups = _groups(state)
        model = self._model.shaped(groups)
        self.metrics.reserve(int(groups["metrics"]["counts"].sum()))
        lengths = state["sources.lengths"]
        own = {
            "ids.ring": (max(0, min(int(groups["ids"]["count"].sum()), self.config.remembered_ids)),),
            "sources.lengths": lengths.shape,
            "sources.names": (int(lengths.sum()),),
            "sources.offsets": lengths.shape,
        }
        return {name: array.shape for name, array in self.state().items()} | model | own


def check_state(config: Config, state: State) -> None:
    """Refuse a state whose arrays are not those of such a learner: names, dtypes and shapes."""
    learner = Learner(config)
    check_arrays(state, learner.state())
    # an axis of an algorithm's that starts empty may grow with what events it has met
    check_shapes(state, learner.shapes(state), grows="algorithm.")
    check_values(config, state)


def _groups(state: State) -> defaultdict[str, State]:
    """The arrays by part of the learner, and by name within it."""
    groups: defaultdict[str, State] = defaultdict(dict)
    for name, array in state.items():
        part, _, field = name.partition(".")
        groups[part][field] = array
    return groups


def _outcome(fresh: NDArray[np.bool_], beyond: NDArray[np.bool_], said: list[Scores]) -> Outcome:
    """What became of each event of a batch, from what was said of those that are new, in parts."""
    if len(said) == 1 and len(said[0].scores) == len(fresh):
        return Outcome(fresh, beyond, *said[0])

    def spread(parts: Sequence[NDArray[Any] | None], missing: float) -> Any:
        """A column with `missing` at the places of the others; None where nothing of the kind is said."""
        known = [part for part in parts if part is not None]
        if not known:
            return None
        column = np.full(len(fresh), missing, dtype=known[0].dtype)
        column[fresh] = np.concatenate(known)
        return column

    scores, decisions, probabilities, thresholds = zip(*said, strict=True)
    return Outcome(
        fresh,
        beyond,
        spread(scores, np.nan),
        spread(decisions, 0),
        spread(probabilities, np.nan),
        spread(thresholds, np.nan),
    )


def _weights(weights: Any, n: int) -> Vector | None:
    if weights is None:
        return None
    w = as_array(weights)
    if w is None or w.dtype.kind not in "biuf" or w.shape != (n,) or not bool(((w >= 0) & (w <= MAX_WEIGHT)).all()):
        raise Refused([Problem("/weights", f"is {show(weights)}; expected {n} numbers from 0 to {MAX_WEIGHT:g}")])
    return w.astype(np.float64)


def _ids(ids: Sequence[str | None], n: int) -> tuple[str | None, ...]:
    if len(ids) != n or not all(one is None or isinstance(one, str) for one in ids):
        raise Refused([Problem("/ids", f"expected {n} strings or nulls")])
    return tuple(ids)
