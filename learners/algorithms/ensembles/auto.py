"""The default: several models of the same events, and a combination of their scores that is learnt online.

    cbr-diag   ranks, with a step size for each column: for identifiers and words
    loam-ada   ranks, by means of the classes: dense rows only, because it takes O(dim) per event
    fofo       log-odds, with a step that falls
    bins       log-odds, by numbers and bins: for curves, and for a base rate that moves
    pairs      the same with pairs of bins: for interactions
    gbdt       boosted trees, fitted in the background to the last events

The first three and gbdt have the defaults of their algorithms. `learners.algorithms._crosses` has bins and pairs, and
`learners.algorithms._mix` the combination, whose score is a log-odds. Ranking and probabilities therefore agree. The
trees count from their first fit on, once `LEAST` events of each class are retained; the others from the first event.

`learners.algorithms._members` counts how each member does. The cost is the sum of the members'. An event of weight 0
moves no member's weights.

References
----------
Wolpert. Stacked Generalization. Neural Networks 5, 1992. The members' are in their files.
"""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from learners.algorithms import _crosses, _members, _mix
from learners.algorithms._ensemble import MEMBERS, Ensemble
from learners.algorithms._trees import Trees, empty, grow_columns, tree_problems, tree_scores
from learners.algorithms.auc import cbr_diag, loam_ada
from learners.algorithms.base import Cost, Traits
from learners.algorithms.fmeasure import fofo
from learners.algorithms.trees import gbdt
from learners.numerics import Issues, Rows, Sparse, Vector
from learners.settings import Parameters, param

__all__ = [
    "TRAITS",
    "Params",
    "State",
    "adopt",
    "fit",
    "fit_problems",
    "grow",
    "init",
    "learn",
    "problems",
    "weights",
]

LEAST = 5  # events of each class, of positive weight, that trees are fitted to

_LINEAR: tuple[tuple[str, Any], ...] = (("cbr_diag", cbr_diag), ("loam_ada", loam_ada), ("fofo", fofo))
_PARTS: tuple[tuple[str, Any], ...] = (
    *((name, module.State) for name, module in _LINEAR),
    ("crosses", _crosses.CrossState),
    ("trees", Trees),
    ("mix", _mix.MixState),
    ("members", _members.MemberCounts),
)
_PARAMS = {name: module.Params() for name, module in _LINEAR}
_TREES = {"fast": gbdt.Params(), "balanced": gbdt.Params(), "best": gbdt.Params(trees=300, learning_rate=0.05)}
_ENDS = list(itertools.accumulate(len(kind._fields) for _, kind in _PARTS))
_CUTS = [
    (name, kind, slice(end - len(kind._fields), end)) for (name, kind), end in zip(_PARTS, _ENDS, strict=True)
]  # where the arrays of each part are in a state
_FITTED = tuple(f"trees_{name}" for name in Trees._fields)

TRAITS = Traits(
    posterior=True,
    cost=Cost(
        "O(dim + trees log leaves + pairs of 22 columns) per event; a fit as of gbdt",
        lambda params, size: (
            sum(module.TRAITS.cost.nanoseconds(_PARAMS[name], size) for name, module in _LINEAR)
            + (params.budget != "fast") * gbdt.TRAITS.cost.nanoseconds(_TREES[params.budget], size)
            + 60 * size.values
            + 25 * min(size.values, _crosses.CROSSED) ** 2
        ),
    ),
    first_fit=200,
    of_each=LEAST,
    memorises=True,
    fitted=_FITTED,
    embeds=False,
    halved=(
        *(f"{name}_{array}" for name, module in _LINEAR for array in module.TRAITS.halved),
        *(f"trees_{array}" for array in gbdt.TRAITS.halved),
    ),
    defaults={
        "scaling": {"kind": "standard", "clip": 10.0},
        "threshold": {"objective": "f1-window"},
        "learner": {"refit_every": 20_000, "refit_window": 20_000},
    },
)

_Fitted: Any = namedtuple("_Fitted", _FITTED)  # type: ignore[misc]

# the arrays of every part, under the part's name
State: Any = namedtuple("State", [f"{name}_{array}" for name, kind in _PARTS for array in kind._fields])  # type: ignore[misc]


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of auto. Members and their own settings are chosen."""

    budget: Literal["fast", "balanced", "best"] = param(
        "balanced", "fast: no trees; balanced: 100 trees; best: 300 trees, a fit takes three times as long"
    )


def init(params: Params, dim: int, seed: int) -> Any:  # noqa: ARG001
    """Return the state before any event."""
    linear = {name: module.init(_PARAMS[name], dim, seed) for name, module in _LINEAR}
    linear["loam_ada"] = loam_ada.init(_PARAMS["loam_ada"], 0, seed)  # no array until a dense row comes
    combination = {"mix": _mix.init(len(MEMBERS)), "members": _members.init(len(MEMBERS))}
    return _joined({**linear, "crosses": _crosses.init(dim), "trees": empty(dim), **combination})


def grow(params: Params, state: Any, dim: int) -> Any:  # noqa: ARG001
    """Return the state with `dim` columns, of sparse rows."""
    parts = _parts(state)
    for name, module in (("cbr_diag", cbr_diag), ("fofo", fofo)):
        parts[name] = module.grow(_PARAMS[name], parts[name], dim)
    parts["crosses"] = _crosses.grow(parts["crosses"], dim)
    parts["trees"] = grow_columns(parts["trees"], dim)
    return _joined(parts)


def learn(params: Params, state: Any, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> Any:  # noqa: ARG001
    """Score each row, then learn from it, in order; fill `scores` (n,) and return the state."""
    if not len(y):
        return state
    parts = _parts(state)
    members, before = np.zeros((len(MEMBERS), len(y))), int(parts["mix"].events[-1])
    if not isinstance(rows, Sparse) and not len(parts["loam_ada"].w):
        parts["loam_ada"] = _sized(loam_ada.grow(_PARAMS["loam_ada"], parts["loam_ada"], rows.shape[1]), state)
    for k, (name, module) in enumerate(_LINEAR):
        if name != "loam_ada" or not isinstance(rows, Sparse):
            parts[name] = module.learn(_PARAMS[name], parts[name], rows, y, weight, members[k])
    parts["crosses"] = _crosses.learn(parts["crosses"], rows, y, weight, *members[3:5])
    if fitted := len(parts["trees"].starts) > 0:
        members[5] = tree_scores(parts["trees"], rows)
    columns = np.ascontiguousarray(members.T)
    _mix.learn(parts["mix"], columns, y, weight, scores, 5 + fitted)
    _members.learn(parts["members"], before, columns, scores, y, weight, 5 + fitted)
    return _joined(parts)


def fit(params: Params, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> Any:
    """Fit the trees to n rows (n, dim). Raises ValueError if a class has too few events of positive weight."""
    if params.budget == "fast":
        return _Fitted._make(empty(dim))
    for side, name in ((-1.0, "negative"), (1.0, "positive")):
        count = int(np.count_nonzero((y * side > 0.0) & (weight > 0.0)))
        if count < LEAST:
            raise ValueError(f"the retained events have {count} {name} ones; trees need {LEAST}")
    return _Fitted._make(gbdt.fit(_TREES[params.budget], rows, dim, y, weight, seed))


def adopt(params: Params, state: Any, arrays: Mapping[str, Any], dim: int) -> Any:  # noqa: ARG001
    """Return the state of `dim` columns with the trees of a fit."""
    parts = _parts(state)
    fitted = Trees._make(np.array(arrays[name], order="C") for name in _FITTED)
    parts["trees"] = grow_columns(fitted, dim) if len(fitted.gain) < dim else fitted
    return _joined(parts)


def fit_problems(arrays: Mapping[str, Any]) -> Issues:
    """Find what no fit makes in its arrays."""
    yield from _named("trees", tree_problems(Trees._make(arrays[name] for name in _FITTED)))


def weights(params: Params, state: Any) -> Ensemble:  # noqa: ARG001
    """Return what scores events: views."""
    parts = _parts(state)
    linear = tuple(module.weights(_PARAMS[name], parts[name]) for name, module in _LINEAR)
    return Ensemble(linear, _crosses.crosses(parts["crosses"]), parts["trees"], parts["mix"], parts["members"])


def problems(params: Params, state: Any, sparse: bool) -> Issues:  # noqa: ARG001
    """Find values in a restored state that no events lead to."""
    parts = _parts(state)
    for name, module in _LINEAR:
        if hasattr(module, "problems"):
            yield from _named(name, module.problems(_PARAMS[name], parts[name], sparse))
    yield from _named("crosses", _crosses.problems(parts["crosses"]))
    yield from _named("trees", tree_problems(parts["trees"]))
    yield from _named("mix", _mix.problems(parts["mix"]))
    yield from _named("members", _members.problems(parts["members"]))
    dims = {parts["loam_ada"].w.shape, parts["loam_ada"].h.shape, parts["loam_ada"].sums.shape[1:]}
    if not dims <= {(0,)} and not dims <= {parts["fofo"].w.shape}:
        yield "loam_ada_w", "and loam-ada's other arrays have no common length that is 0 or that of the columns"


def _named(part: str, issues: Issues) -> Issues:
    for name, detail in issues:
        yield f"{part}_{name}", detail


def _sized(like: Any, state: Any) -> Any:
    """Return loam-ada's state with the precision of the others."""
    return like._replace(w=like.w.astype(state.fofo_w.dtype), h=like.h.astype(state.fofo_w.dtype))


def _parts(state: Any) -> dict[str, Any]:
    return {name: kind._make(state[cut]) for name, kind, cut in _CUTS}


def _joined(parts: dict[str, Any]) -> Any:
    return State._make(array for name, _ in _PARTS for array in parts[name])
