"""The contestants: learners of this project with their defaults, and what one would use instead with theirs.

Each scores every event before its label is known, and learns labels in the order in which they become known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix, hstack, issparse

from benchmarks.quality.streams import Stream
from learners import Config, Learner
from learners.inputs import read_batch

__all__ = ["OURS", "PEERS", "Outcome", "steps"]

_STEP = 500  # events that are scored before their labels are learnt, for contestants that take batches
_SHORT, _SHORT_STEP = 20_000, 50  # a stream of fewer events, and its step: a fit is due much earlier in it
_NARROW = 1_000  # columns of a sparse array that river gets with their zeros
_LEAST, _MOST_FIT = 200, 200_000  # labels before LightGBM's first fit, and in a fit


class Outcome(NamedTuple):
    """Scores of n events from before their labels were known."""

    scores: Any  # (n,)
    decisions: Any = None  # (n,) 0 or 1; None: the contestant does not decide
    probabilities: Any = None
    seconds: float = 0.0


def steps(stream: Stream, most: int | None = None) -> Iterator[tuple[int, int, int]]:
    """Cut a stream: score the events from `start` to `stop`, then learn those before `until`, in their order.

    `most` events at once; None: as many as contestants get that take batches.
    """
    n = len(stream)
    most = most or (_STEP if n >= _SHORT else _SHORT_STEP)
    for start in range(0, n, most):
        stop = min(start + most, n)
        until = stop
        if stream.delay and stream.times is not None:
            until = min(stop, int(np.searchsorted(stream.times, stream.times[stop - 1] - stream.delay, "right")))
        yield start, stop, until


# Ours


def _learner(algorithm: str, **settings: Any) -> Callable[[Stream], Outcome]:
    def run(stream: Stream) -> Outcome:
        learner = Learner(Config.of({"algorithm": algorithm, "features": stream.features, **settings}))
        n = len(stream)
        scores, decisions, probabilities = np.empty(n), np.empty(n), np.empty(n)
        labels = stream.positive.astype(int)
        begin, start_time = 0, time.perf_counter()
        for start, stop, until in steps(stream):
            if stream.delay:  # else each event is scored as it is learnt
                served = learner.scorer().score(learner.encode(stream.rows(start, stop)))
                outcome = served.scores, served.decisions, served.probabilities
            if until > begin:
                batch = read_batch(learner.config, stream.rows(begin, until), labels[begin:until])
                applied = learner.apply(batch)
                assert applied is not None
                if not stream.delay:
                    outcome = applied.scores, applied.decisions, applied.probabilities
                begin = until
                if learner.fit_due:
                    _refit(learner)
            scores[start:stop], decisions[start:stop], probabilities[start:stop] = outcome
        return Outcome(scores, decisions, probabilities, time.perf_counter() - start_time)

    return run


def _refit(learner: Learner) -> None:
    try:
        labels_of_fit = learner.fit_job().run()
    except ValueError:  # too few events of a class
        learner.postpone_fit()
    else:
        learner.apply(labels_of_fit)


OURS: dict[str, Callable[[Stream], Outcome]] = {
    name: _learner(name) for name in ("auto", "cbr-diag", "fofo", "loam-ada", "gbdt")
}


# Peers


def _table(stream: Stream) -> tuple[Any, list[int]]:
    """Return the events as numbers for trees and linear models, and which columns are categories.

    A missing number is NaN, and a missing category -1.
    """
    if not isinstance(stream.events, pd.DataFrame):
        return stream.events, []
    categories = [
        place
        for place, name in enumerate(stream.events)
        if name in stream.features.get("categorical", ()) or not pd.api.types.is_numeric_dtype(stream.events[name])
    ]
    columns = [
        pd.factorize(stream.events[name])[0] if place in categories else stream.events[name].to_numpy(float)
        for place, name in enumerate(stream.events)
    ]
    return np.column_stack(columns).astype(float), categories


def _text(stream: Stream) -> list[str] | None:
    names = stream.features.get("text", ())
    return [" ".join(map(str, row)) for row in stream.events[list(names)].to_numpy()] if names else None


def _wide(stream: Stream) -> Any:
    """Return the events as a matrix for linear models: categories and words as columns of their own."""
    from sklearn.feature_extraction.text import HashingVectorizer

    if (texts := _text(stream)) is not None:
        return HashingVectorizer(n_features=2**18, norm=None).transform(texts)
    table, categories = _table(stream)
    if not categories:
        return table
    numbers = np.nan_to_num(np.delete(table, categories, axis=1))
    parts = [csr_matrix(numbers)]
    for place in categories:
        codes = table[:, place].astype(int) + 1
        ones = np.ones(len(codes)), (np.arange(len(codes)), codes)
        parts.append(csr_matrix(ones, shape=(len(codes), int(codes.max()) + 1)))
    return hstack(parts).tocsr()


def _lightgbm(stream: Stream) -> Outcome:
    """Refit each time a quarter more labels are known, on the last 200,000."""
    import lightgbm

    table, categories = (_wide(stream), []) if _text(stream) is not None else _table(stream)
    y, n = stream.positive.astype(int), len(stream)
    scores, model, labels_of_fit, start_time = np.zeros(n), None, 0, time.perf_counter()
    for start, stop, until in steps(stream):
        if model is not None:
            scores[start:stop] = model.predict(table[start:stop], raw_score=True, num_threads=1)
        if until >= max(_LEAST, 1.25 * labels_of_fit) and 0 < y[:until].sum() < until:
            first = max(0, until - _MOST_FIT)
            data = lightgbm.Dataset(table[first:until], y[first:until], categorical_feature=categories or "auto")
            model = lightgbm.train({"objective": "binary", "verbose": -1, "num_threads": 1}, data)
            labels_of_fit = until
    return Outcome(scores, seconds=time.perf_counter() - start_time)


def _sgd(stream: Stream) -> Outcome:
    from sklearn.linear_model import SGDClassifier
    from sklearn.preprocessing import StandardScaler

    wide, y, n = _wide(stream), stream.positive.astype(int), len(stream)
    model, scaler = SGDClassifier(loss="log_loss"), StandardScaler(with_mean=not issparse(wide))
    scores, begin, start_time = np.zeros(n), 0, time.perf_counter()
    for start, stop, until in steps(stream, 50):
        if begin:
            scores[start:stop] = model.decision_function(scaler.transform(wide[start:stop]))
        if until > begin:
            scaler.partial_fit(wide[begin:until])
            model.partial_fit(scaler.transform(wide[begin:until]), y[begin:until], classes=[0, 1])
            begin = until
    return Outcome(scores, seconds=time.perf_counter() - start_time)


def _river(make: Callable[[Stream], Any]) -> Callable[[Stream], Outcome]:
    """Run a model of river."""

    def run(stream: Stream) -> Outcome:
        model = make(stream)
        scores, begin, start_time = np.zeros(len(stream)), 0, time.perf_counter()
        for start, stop, until in steps(stream, 1 if not stream.delay else 100):
            for place in range(start, stop):
                scores[place] = model.predict_proba_one(_complete(stream, place)).get(True, 0.0)
            for place in range(begin, until):
                model.learn_one(_complete(stream, place), bool(stream.positive[place]))
            begin = max(begin, until)
        return Outcome(scores, probabilities=scores, seconds=time.perf_counter() - start_time)

    return run


def _is_narrow(stream: Stream) -> bool:
    """Tell whether river gets every column of an array, with its zeros."""
    return not isinstance(stream.events, pd.DataFrame) and stream.events.shape[1] <= _NARROW


def _complete(stream: Stream, place: int) -> dict[Any, float]:
    """Return an event as river takes it: a scaler or a tree of it does not know that an absent number is 0."""
    if _is_narrow(stream) and issparse(stream.events):
        return dict(enumerate(stream.events[place].toarray().ravel().tolist()))
    return _named(stream, place)


def _named(stream: Stream, place: int) -> dict[Any, float]:
    """Return an event as named numbers: categories as columns of their own."""
    if isinstance(stream.events, pd.DataFrame):
        event = {}
        texts = stream.features.get("text", ())
        for name, value in stream.events.iloc[place].items():
            if pd.isna(value):
                continue
            if name in texts:
                event.update(dict.fromkeys(str(value).lower().split(), 1))
            elif isinstance(value, (str, bool)) or name in stream.features.get("categorical", ()):
                event[f"{name}={value}"] = 1
            else:
                event[name] = float(value)
        return event
    row = stream.events[place]
    if issparse(row):
        return dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
    return dict(enumerate(row.tolist()))


def _scaled(stream: Stream) -> Any:
    """Return a scaler of numbers, which are floats; words and categories are the whole number 1 where they are."""
    from river import compose, preprocessing

    if not isinstance(stream.events, pd.DataFrame) and not _is_narrow(stream):
        return compose.Discard()
    return compose.TransformerUnion(compose.SelectType(float) | preprocessing.StandardScaler(), compose.SelectType(int))


def _logistic(stream: Stream) -> Any:
    from river import linear_model

    return _scaled(stream) | linear_model.LogisticRegression()


def _alma(stream: Stream) -> Any:
    from river import linear_model

    return _scaled(stream) | linear_model.ALMAClassifier()  # type: ignore[no-untyped-call]


def _arf(_: Stream) -> Any:
    from river import forest

    return forest.ARFClassifier(seed=0)


def _amf(_: Stream) -> Any:
    from river import forest

    return forest.AMFClassifier(seed=0)


def _vowpal(*options: str) -> Callable[[Stream], Outcome]:
    """Run Vowpal Wabbit, which scores each line before it learns it; labels must be immediate."""

    def run(stream: Stream) -> Outcome:
        if stream.delay:
            return Outcome(np.full(len(stream), np.nan))
        from vowpalwabbit import Workspace

        model = Workspace(f"--loss_function logistic --quiet {' '.join(options)}")
        scores, start_time = np.empty(len(stream)), time.perf_counter()
        for place in range(len(stream)):
            words = " ".join(f"{_word(name)}:{value:.7g}" for name, value in _named(stream, place).items())
            example = model.parse(f"{1 if stream.positive[place] else -1} |a {words}")
            model.learn(example)
            scores[place] = example.get_simplelabel_prediction()
            model.finish_example(example)
        return Outcome(scores, seconds=time.perf_counter() - start_time)

    return run


def _word(name: Any) -> str:
    return str(name).replace(":", "_").replace("|", "_").replace(" ", "_")


PEERS: dict[str, Callable[[Stream], Outcome]] = {
    "lightgbm": _lightgbm,
    "sgd": _sgd,
    "vw": _vowpal(),
    "vw-pairs": _vowpal("-q aa"),
    "river-logistic": _river(_logistic),
    "river-alma": _river(_alma),
    "river-arf": _river(_arf),
    "river-amf": _river(_amf),
}
