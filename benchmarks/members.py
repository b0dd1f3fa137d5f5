"""Cost of an event of `auto`, beside that of its members' kernels alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from learners import Config, Learner
from learners.algorithms import _crosses
from learners.algorithms._trees import Trees, tree_scores
from learners.algorithms.auc import cbr_diag, loam_ada
from learners.algorithms.ensembles import auto
from learners.algorithms.fmeasure import fofo
from learners.inputs import read_batch
from learners.numerics.arrays import Rows, Sparse, Vector

__all__ = ["MOST", "MembersCost", "measure"]

MOST = 2.5  # of an event of the learner, by the sum of its members
TAUGHT = 3  # times that the rows are learnt first: the trees are there, and buffers are full


class MembersCost(NamedTuple):
    """What an event costs, in ns."""

    features: str
    members: dict[str, float]  # each alone
    algorithm: float  # members and combination
    learner: float  # also validation, scaling, threshold and metrics, in batches

    @property
    def ratio(self) -> float:
        """Return the learner's cost by the sum of the members'."""
        return self.learner / sum(self.members.values())


def measure(features: str, rows: Rows, y: Vector, calls: int) -> MembersCost:
    """Time `auto` and each member on the same rows; `features` is their kind, `y` is -1 or +1."""
    n, labels = len(y), (y > 0.0).astype(int)
    dim = int(rows.indices.max()) + 1 if isinstance(rows, Sparse) else rows.shape[1]
    events: Any = csr_matrix((rows.data, rows.indices, rows.indptr)) if isinstance(rows, Sparse) else rows
    config = Config.of({"algorithm": "auto", "features": {"kind": features, "dim": dim}})
    learner = Learner(config)
    for _ in range(TAUGHT):
        learner.apply(read_batch(config, events, labels))
        if learner.fit_due:
            learner.apply(learner.fit_job().run())

    def learn() -> None:
        learner.apply(read_batch(config, events, labels))

    whole = _nanoseconds(learn, n, calls)
    scorer = learner.scorer()
    mapped = scorer.scaled_rows(learner.encode(events))
    params, state = config.params, learner.state()
    arrays = auto.State(**{name: np.array(state[f"algorithm.{name}"], order="C") for name in auto.State._fields})
    weight, scores, pairs = np.ones(n), np.empty(n), np.empty((2, n))
    members: dict[str, float] = {}
    for name, module in (("cbr-diag", cbr_diag), ("loam-ada", loam_ada), ("fofo", fofo)):
        if name == "loam-ada" and isinstance(rows, Sparse):
            continue
        part = _part(arrays, name.replace("-", "_"), module.State)
        settings: Any = module.Params()
        members[name] = _nanoseconds(
            lambda m=module, s=settings, p=part: m.learn(s, p, mapped, y, weight, scores), n, calls
        )
    crosses = _part(arrays, "crosses", _crosses.CrossState)
    members["bins, pairs"] = _nanoseconds(lambda: _crosses.learn(crosses, mapped, y, weight, *pairs), n, calls)
    trees = _part(arrays, "trees", Trees)
    members["gbdt"] = _nanoseconds(lambda: tree_scores(trees, mapped), n, calls)
    algorithm = _nanoseconds(lambda: auto.learn(params, arrays, mapped, y, weight, scores), n, calls)
    return MembersCost(features, members, algorithm, whole)


def _part(state: Any, name: str, kind: Any) -> Any:
    return kind(**{field: getattr(state, f"{name}_{field}") for field in kind._fields})


def _nanoseconds(call: Callable[[], object], events: int, calls: int) -> float:
    """Return the processor time of the thread per event: the median of the calls, after one that may compile."""
    call()
    spent = []
    for _ in range(calls):
        began = time.thread_time()
        call()
        spent.append(time.thread_time() - began)
    return 1e9 * median(spent) / events
