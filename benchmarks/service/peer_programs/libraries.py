"""A library learns a stream in this process: score each event, then learn it.

    python -m benchmarks.service.peer_programs.libraries NAME STREAM.npz SCORES.npy

STREAM.npz has X, float32 (n, dim), and y, 0 or 1; the scores, (n,), are written to SCORES.npy, and the seconds that
the stream took, without imports and without building what the library reads, are printed: by the clock, and of the
processor. Each library has its plain defaults, behind a running scaler where it has none of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LIBRARIES", "main"]

BATCH = 1000
Rows = NDArray[np.float64]
Labels = NDArray[np.int64]
Step = Callable[[], list[float]]  # learns the whole stream; its scores


def rarestream(X: Rows, y: Labels, algorithm: str, batch: int) -> Step:
    """Learn with an algorithm in calls of `batch` events; a call of another learner compiles the kernels first."""
    from learners import create

    create(algorithm, dim=X.shape[1]).learn(X[:batch], y[:batch])
    learner = create(algorithm, dim=X.shape[1])
    parts = [slice(at, at + batch) for at in range(0, len(y), batch)]
    return lambda: [score for part in parts for score in learner.learn(X[part], y[part]).tolist()]


def river_one(X: Rows, y: Labels) -> Step:
    """River's logistic regression behind its scaler, event by event."""
    from river import linear_model, preprocessing

    model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    rows = [dict(enumerate(row)) for row in X.tolist()]
    labels = y.astype(bool).tolist()

    def learn() -> list[float]:
        scores = []
        for x, label in zip(rows, labels, strict=True):
            scores.append(model.predict_proba_one(x)[True])
            model.learn_one(x, label)
        return scores

    return learn


def river_many(X: Rows, y: Labels) -> Step:
    """Learn with River in frames of a batch."""
    import pandas as pd
    from river import linear_model, preprocessing

    model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    columns = [str(column) for column in range(X.shape[1])]
    starts = range(0, len(y), BATCH)
    frames = [pd.DataFrame(X[at : at + BATCH], columns=columns) for at in starts]
    labels = [pd.Series(y[at : at + BATCH].astype(bool)) for at in starts]

    def learn() -> list[float]:
        scores: list[float] = []
        for frame, label in zip(frames, labels, strict=True):
            probabilities = (
                model.predict_proba_many(frame) if scores else None
            )  # it knows no class before the first batch
            scores += [0.5] * len(frame) if probabilities is None else probabilities[True].tolist()
            model.learn_many(frame, label)
        return scores

    return learn


def vowpal_wabbit(X: Rows, y: Labels, prepared: bool) -> Step:
    """Vowpal Wabbit's logistic loss: from lines of text, or from examples that are parsed before."""
    import vowpalwabbit

    workspace = vowpalwabbit.Workspace("--loss_function logistic --quiet")
    lines = [
        f"{1 if label else -1} | " + " ".join(f"{column}:{value:.6g}" for column, value in enumerate(row) if value)
        for row, label in zip(X.tolist(), y.tolist(), strict=True)
    ]
    read: list[Any] = lines if not prepared else [workspace.parse(line) for line in lines]

    def learn() -> list[float]:
        scores = []
        for line in read:
            example = line if prepared else workspace.parse(line)
            workspace.learn(example)  # its prediction is from before the step
            scores.append(example.get_simplelabel_prediction())
            workspace.finish_example(example)
        return scores

    return learn


def scikit_learn(X: Rows, y: Labels, batch: int) -> Step:
    """SGDClassifier with the log loss behind StandardScaler, partial_fit of both."""
    from sklearn.linear_model import SGDClassifier
    from sklearn.preprocessing import StandardScaler

    scaler, model = StandardScaler(), SGDClassifier(loss="log_loss", random_state=0)
    classes = np.array([0, 1])
    parts = [slice(at, at + batch) for at in range(0, len(y), batch)]

    def learn() -> list[float]:
        scores: list[float] = []
        for part in parts:
            rows = scaler.partial_fit(X[part]).transform(X[part])
            scores += model.decision_function(rows).tolist() if scores else [0.0] * len(rows)
            model.partial_fit(rows, y[part], classes)
        return scores

    return learn


LIBRARIES: dict[str, Callable[[Rows, Labels], Step]] = {
    "loam-ilsc": lambda X, y: rarestream(X, y, "loam-ilsc", 1),
    "loam-ilsc-many": lambda X, y: rarestream(X, y, "loam-ilsc", BATCH),
    "loam-ada": lambda X, y: rarestream(X, y, "loam-ada", 1),
    "loam-ada-many": lambda X, y: rarestream(X, y, "loam-ada", BATCH),
    "river": river_one,
    "river-many": river_many,
    "vw-text": lambda X, y: vowpal_wabbit(X, y, prepared=False),
    "vw-prepared": lambda X, y: vowpal_wabbit(X, y, prepared=True),
    "sklearn": lambda X, y: scikit_learn(X, y, 1),
    "sklearn-many": lambda X, y: scikit_learn(X, y, BATCH),
}


def main(arguments: list[str]) -> None:
    """Learn the stream, write the scores, print both times."""
    name, stream, written = arguments
    with np.load(stream) as parts:
        X, y = parts["X"].astype(np.float64), parts["y"].astype(np.int64)
    learn: Any = LIBRARIES[name](X, y)
    began, used = time.perf_counter(), time.process_time()
    scores = learn()
    seconds, used = time.perf_counter() - began, time.process_time() - used
    np.save(written, np.array(scores))
    print(seconds, used)


if __name__ == "__main__":
    main(sys.argv[1:])
