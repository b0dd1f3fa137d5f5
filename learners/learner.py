"""Learner: the whole pipeline as one state machine.

    encoded events -> duplicates out -> own columns -> scaling -> algorithm -> calibration -> threshold -> metrics

It has no clock, no network and no file. Its state is a function of the records it was given: the same events in the
same order give the same bits, however they were cut into batches.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners import calibration, catalogue, scaling, threshold
from learners.arrays import Rows, Sparse, Vector
from learners.batch import Batch, Outcome, Restored, length, part_of, take
from learners.columns import columns_of
from learners.config import Config
from learners.features import MAX_PROBLEMS, SparseColumns
from learners.metrics import Metrics
from learners.parameters import Problem, Refused, show
from learners.recent import RecentIds, Sources
from learners.scorer import Scorer, View

__all__ = ["MAX_WEIGHT", "Learner", "check_state", "signed_labels"]

State = dict[str, NDArray[np.generic]]

MAX_WEIGHT = 1e6  # of an event
_CHUNK_NUMBERS = 2**22  # of dense rows between the stages: bounds the temporaries, and shows in no result


def signed_labels(labels: Any) -> Vector:
    """Labels 0/1, -1/1 or false/true as float64 -1 and +1, (n,). Raises `Refused` with a pointer to each bad one."""
    y = _array(labels)
    if y is None or y.ndim != 1:
        raise Refused([Problem("/labels", f"is {show(labels)}; expected a list of labels")])
    if y.dtype.kind in "biuf":
        good = np.isin(y, (-1, 0, 1))
    else:  # something is no number, or too large for one: look at each as it was given
        y = np.fromiter(labels, dtype=object, count=len(y))
        good = np.array([isinstance(one, (bool, int, float)) and one in (-1, 0, 1) for one in y], dtype=np.bool_)
    if not good.all():
        bad = np.flatnonzero(~good)[:MAX_PROBLEMS]
        raise Refused([Problem(f"/labels/{i}", f"is {show(y.item(i))}; expected -1, 0 or 1") for i in bad])
    return np.where(y.astype(np.float64) > 0, 1.0, -1.0)


class Learner:
    """One named learner moved forward by records. No I/O, no await, no clock.

    Raises nothing after the constructor for a batch that `Config.features.encode` and `signed_labels` let through.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._algorithm = catalogue.algorithms()[config.algorithm]
        self._start()

    def _start(self) -> None:
        config = self.config
        self._columns = columns_of(config.features)
        self._scaled = self._columns.scaled()
        dim = self._columns.dim
        self._scaling = scaling.init(config.scaling, dim)
        self._model = self._algorithm.init(config.params, dim, config.seed)
        self._dim = dim
        self._calibration = calibration.init()
        self._threshold = threshold.init(config.threshold)
        self._ids = RecentIds(config.remembered_ids)
        self._sources = Sources()
        self.metrics = Metrics(config.window)

    # Moving forward

    def apply(self, record: Batch | Restored) -> Outcome | None:
        """Move forward by one record of the log; what became of each event of a batch."""
        if isinstance(record, Restored):
            self._restore(record.state)
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
        """Learn n labelled events in order; return the prequential scores, (n,).

        Each event is scored before it is learnt. `X` is a (n, dim) array, a scipy sparse matrix, or a list of what an
        event carries (lists, (indices, values) pairs, dicts of named features), as the learner's features want it.
        `y` holds 0/1 or -1/1. `weights` (n,), at least 0, multiply each event's step. An event whose id was learnt
        before changes nothing and has the score NaN. Raises `Refused` (a ValueError), and then nothing was learnt.
        """
        rows = self.encode(X)
        labels = signed_labels(y)
        if len(labels) != length(rows):
            raise Refused([Problem("/labels", f"has {len(labels)} entries for {length(rows)} events")])
        outcome = self._learn(
            Batch(rows, labels, _weights(weights, len(labels)), ids=None if ids is None else _ids(ids, len(labels)))
        )
        return outcome.scores

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
        scores, probabilities, thresholds = np.empty(len(y)), np.empty(len(y)), np.empty(len(y))
        # one call of each stage for the whole batch; dense ones beyond some millions of numbers in several
        step = max(len(y), 1) if isinstance(rows, Sparse) else max(1, _CHUNK_NUMBERS // self._dim)
        for start in range(0, len(y), step):
            cut = slice(start, min(start + step, len(y)))
            scores[cut] = self._advance(part_of(rows, start, start + step), y[cut], weights[cut])
            probabilities[cut] = calibration.learn(self.config.calibration, self._calibration, scores[cut], y[cut])
            threshold.learn(self.config.threshold, self._threshold, probabilities[cut], y[cut], thresholds[cut])
        outcome = Outcome(
            fresh,
            beyond,
            _spread(scores, fresh),
            _spread(probabilities, fresh),
            _spread(thresholds, fresh),
            np.zeros(len(batch), dtype=np.bool_),
        )
        outcome.decisions[fresh] = probabilities >= thresholds
        self.metrics.learn(outcome, batch.labels)
        return outcome

    def _advance(self, rows: Rows, y: Vector, weights: Vector) -> Vector:
        """Columns, scaling and algorithm: the prequential scores of some events."""
        mapped = self._columns.learn(rows)
        self._grow()
        scaled = scaling.learn(self.config.scaling, self._scaling, mapped, self._scaled)
        scores = np.empty(len(y))
        self._model = self._algorithm.learn(self.config.params, self._model, scaled, y, weights, scores)
        return scores

    def _grow(self) -> None:
        """Make the arrays of the stages behind as long as the columns now ask for."""
        if self._columns.dim > self._dim:
            self._dim = self._columns.dim
            self._scaling = scaling.extend(self.config.scaling, self._scaling, self._dim)
            self._model = self._algorithm.grow(self.config.params, self._model, self._dim)

    # Looking

    def scorer(self) -> Scorer:
        """The present scorer: a view that is right until the next `apply`; `frozen()` makes it last."""
        return Scorer(
            self.config,
            self._columns,
            self._scaled,
            self._scaling,
            self._algorithm.weights(self.config.params, self._model),
            self._calibration,
            self.threshold,
        )

    @property
    def threshold(self) -> float:
        """The live threshold on the probability."""
        return threshold.current(self.config.threshold, self._threshold)

    def view(self) -> View:
        """What readers see, right until the next `apply`; `frozen()` makes it last."""
        return View(self.scorer(), self.metrics.view(), dict(self._sources.next), self._columns.used)

    def figures(self) -> dict[str, Any]:
        """The live figures, JSON-ready: numbers, or None with the reason under `undefined`."""
        return {"threshold": self.threshold, **self.metrics.view().as_json()}

    # Saving

    def state(self) -> State:
        """Every array of the state by name, as views: copy what has to last. Derived arrays are left out."""
        parts: dict[str, Mapping[str, NDArray[np.generic]]] = {
            "algorithm": self._model._asdict(),
            "calibration": self._calibration._asdict(),
            "columns": self._columns.state(),
            "ids": self._ids.state(),
            "metrics": self.metrics.state(),
            "scaling": self._scaling._asdict(),
            "sources": self._sources.state(),
            "threshold": self._threshold._asdict(),
        }
        return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}

    def digest(self) -> str:
        """A hash of the configuration and of every array's bytes: equal states, and only those, agree. O(state)."""
        out = hashlib.blake2b(digest_size=16)
        out.update(json.dumps(self.config.to_json(), sort_keys=True).encode())
        for name, array in sorted(self.state().items()):
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
        self._columns.restore(groups["columns"])
        self._dim = self._columns.dim
        self._model = _copied(self._algorithm.State, groups["algorithm"])
        self._scaling = _copied(scaling.ScalingState, groups["scaling"])
        self._calibration = _copied(calibration.CalibrationState, groups["calibration"])
        self._threshold = _copied(type(self._threshold), groups["threshold"])
        self._ids.restore(groups["ids"])
        self._sources.restore(groups["sources"])
        self.metrics.restore(groups["metrics"])

    def shapes(self, state: State) -> dict[str, tuple[int, ...]]:
        """The shapes that a state's arrays have by what they say they have met.

        For a learner that has met nothing yet, and is not used for anything else.
        """
        groups = _groups(state)
        if self.config.features.sparse:
            self._columns.restore(groups["columns"])
            self._grow()
        self.metrics.reserve(int(groups["metrics"]["counts"].sum()))
        lengths = state["sources.lengths"]
        return {name: array.shape for name, array in self.state().items()} | {
            "ids.ring": (min(int(groups["ids"]["count"][0]), self.config.remembered_ids),),
            "sources.lengths": lengths.shape,
            "sources.names": (int(lengths.sum()),),
            "sources.offsets": lengths.shape,
        }


def check_state(config: Config, state: State) -> None:
    """Refuse a state whose arrays are not those of such a learner: names, dtypes and shapes."""
    learner = Learner(config)
    expected = learner.state()
    problems = [Problem(f"/{name}", "is missing") for name in expected if name not in state]
    problems += [Problem(f"/{name}", "is not part of this state") for name in state if name not in expected]
    for name, array in expected.items():
        if name in state and (state[name].dtype != array.dtype or state[name].ndim != array.ndim):
            detail = f"is {state[name].dtype} of {state[name].ndim} axes; expected {array.dtype} of {array.ndim}"
            problems.append(Problem(f"/{name}", detail))
    if problems:
        raise Refused(problems)
    for name, shape in learner.shapes(state).items():
        # an axis of an algorithm's that starts empty may grow with what events it has met
        grows = name.startswith("algorithm.")
        if any(have != want for have, want in zip(state[name].shape, shape, strict=True) if want or not grows):
            problems.append(Problem(f"/{name}", f"has shape {state[name].shape}; expected {shape}"))
    if problems:
        raise Refused(problems)


def _groups(state: State) -> defaultdict[str, State]:
    """The arrays by part of the learner, and by name within it."""
    groups: defaultdict[str, State] = defaultdict(dict)
    for name, array in state.items():
        part, _, field = name.partition(".")
        groups[part][field] = array
    return groups


def _copied(kind: Any, arrays: State) -> Any:
    return kind(**{name: np.array(arrays[name], order="C") for name in kind._fields})


def _spread(values: Vector, mask: NDArray[np.bool_]) -> Vector:
    if len(values) == len(mask):
        return values
    out = np.full(len(mask), np.nan)
    out[mask] = values
    return out


def _weights(weights: Any, n: int) -> Vector | None:
    if weights is None:
        return None
    w = _array(weights)
    if w is None or w.dtype.kind not in "biuf" or w.shape != (n,) or not bool(((w >= 0) & (w <= MAX_WEIGHT)).all()):
        raise Refused([Problem("/weights", f"is {show(weights)}; expected {n} numbers from 0 to {MAX_WEIGHT:g}")])
    return w.astype(np.float64)


def _array(values: Any) -> NDArray[Any] | None:
    """As NumPy reads it; None for a list of unequal lists."""
    try:
        return np.asarray(values)
    except ValueError:
        return None


def _ids(ids: Sequence[str | None], n: int) -> tuple[str | None, ...]:
    if len(ids) != n or not all(one is None or isinstance(one, str) for one in ids):
        raise Refused([Problem("/ids", f"expected {n} strings or nulls")])
    return tuple(ids)
