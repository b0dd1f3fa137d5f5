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

A model that is not among `params.members` has arrays without columns, and never scores. The pairs need the bins, which
are learnt for them.

`learners.algorithms._members` counts how each member does. The cost is the sum of the members'. An event of weight 0
moves no member's weights.

References
----------
Wolpert. Stacked Generalization. Neural Networks 5, 1992. The members' are in their files.
"""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from learners.algorithms import _crosses, _members, _mix
from learners.algorithms._ensemble import MEMBERS, Ensemble, MemberName
from learners.algorithms._trees import Trees, empty, grow_columns, tree_problems, tree_scores
from learners.algorithms.auc import cbr_diag, loam_ada
from learners.algorithms.base import Cost, Size, Traits
from learners.algorithms.fmeasure import fofo
from learners.algorithms.trees import gbdt
from learners.numerics import Issues, Rows, Sparse, Vector
from learners.settings import InvalidInput, Parameters, Problem, param

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
        lambda params, size: _nanoseconds(params, size),
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
        "calibration": {"kind": "logistic"},
        "threshold": {"objective": "f1-window"},
        "learner": {"refit_every": 20_000, "refit_window": 20_000},
    },
)

_Fitted: Any = namedtuple("_Fitted", _FITTED)  # type: ignore[misc]

# the arrays of every part, under the part's name
State: Any = namedtuple("State", [f"{name}_{array}" for name, kind in _PARTS for array in kind._fields])  # type: ignore[misc]


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of auto. Those of each member are chosen."""

    budget: Literal["fast", "balanced", "best"] = param(
        "balanced", "of gbdt: fast: no trees; balanced: 100 trees; best: 300 trees, a fit takes three times as long"
    )
    members: tuple[MemberName, ...] = param(tuple(MEMBERS), "models to combine: at least one, all different")
    memory: int = param(
        100_000,
        "How fast the combination forgets: an event this many events ago has weight 1/e (37 %).",
        least=100,
        most=10**9,
    )

    def __post_init__(self) -> None:
        """Check that the members go together, once each is valid."""
        super().__post_init__()
        problems = [
            Problem(f"/members/{i}", f"is {name!r}, which is listed twice")
            for i, name in enumerate(self.members)
            if name in self.members[:i]
        ]
        if not self.members:
            problems.append(Problem("/members", f"is empty; expected at least one of {', '.join(MEMBERS)}"))
        elif self.budget != "balanced" and not self.fits:
            problems.append(Problem("/budget", "is for gbdt, which is not among the members", "conflict"))
        elif self.budget == "fast" and set(self.members) == {"gbdt"}:
            problems.append(
                Problem("/budget", "is fast, but the only member is gbdt, which has no trees then", "conflict")
            )
        if problems:
            raise InvalidInput(problems)

    @property
    def fits(self) -> bool:
        """Whether anything is fitted."""
        return "gbdt" in self.members

    @property
    def bins(self) -> bool:
        """Whether there are bins, for themselves or for the pairs."""
        return "bins" in self.members or "pairs" in self.members

    @cached_property
    def choice(self) -> tuple[bool, ...]:
        """Which models are members, in the order of the combination."""
        return tuple(name in self.members for name in MEMBERS)


def init(params: Params, dim: int, seed: int) -> Any:
    """Return the state before any event."""
    linear = {name: module.init(_PARAMS[name], dim * active, seed) for name, module, active in _linear(params)}
    linear["loam_ada"] = loam_ada.init(_PARAMS["loam_ada"], 0, seed)  # no array until a dense row comes
    crosses = _crosses.init(dim * params.bins, params.choice[4])
    combination = {"mix": _mix.init(len(MEMBERS), len(params.members)), "members": _members.init(len(MEMBERS))}
    return _joined({**linear, "crosses": crosses, "trees": empty(dim), **combination})


def grow(params: Params, state: Any, dim: int) -> Any:
    """Return the state with `dim` columns, of sparse rows."""
    parts = _parts(state)
    for name, module, active in _linear(params):
        if active and name != "loam_ada":
            parts[name] = module.grow(_PARAMS[name], parts[name], dim)
    if params.bins:
        parts["crosses"] = _crosses.grow(parts["crosses"], dim)
    parts["trees"] = grow_columns(parts["trees"], dim)
    return _joined(parts)


def learn(params: Params, state: Any, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> Any:
    """Score each row, then learn from it, in order; fill `scores` (n,) and return the state."""
    if not len(y):
        return state
    parts = _parts(state)
    members, before = np.zeros((len(MEMBERS), len(y))), int(parts["mix"].events[-1])
    if params.choice[1] and not isinstance(rows, Sparse) and not len(parts["loam_ada"].w):
        longer = loam_ada.grow(_PARAMS["loam_ada"], parts["loam_ada"], rows.shape[1])
        parts["loam_ada"] = _sized(longer, parts["trees"].gain.dtype)
    for k, (name, module, active) in enumerate(_linear(params)):
        if active and (name != "loam_ada" or not isinstance(rows, Sparse)):
            parts[name] = module.learn(_PARAMS[name], parts[name], rows, y, weight, members[k])
    if params.bins:
        parts["crosses"] = _crosses.learn(parts["crosses"], rows, y, weight, *members[3:5])
    scoring = np.array(params.choice)
    scoring[5] = len(parts["trees"].starts) > 0
    if scoring[5]:
        members[5] = tree_scores(parts["trees"], rows)
    members[~scoring] = 0.0  # bins that only pairs need
    columns = np.ascontiguousarray(members.T)
    _mix.learn(parts["mix"], columns, y, weight, scores, scoring, float(params.memory))
    _members.learn(parts["members"], before, columns, scores, y, weight, scoring)
    return _joined(parts)


def fit(params: Params, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> Any:
    """Fit the trees to n rows (n, dim). Raises ValueError if a class has too few events of positive weight."""
    if params.budget == "fast" or not params.fits:
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


def weights(params: Params, state: Any) -> Ensemble:
    """Return what scores events: views."""
    parts = _parts(state)
    linear = tuple(module.weights(_PARAMS[name], parts[name]) for name, module in _LINEAR)
    ready = (*(len(model.w) > 0 for model in linear), True, True, len(parts["trees"].starts) > 0)
    scoring = np.array(params.choice) & np.array(ready)
    return Ensemble(scoring, linear, _crosses.crosses(parts["crosses"]), parts["trees"], parts["mix"], parts["members"])


def problems(params: Params, state: Any, sparse: bool) -> Issues:
    """Find values in a restored state that no events lead to."""
    parts, fresh = _parts(state), _parts(init(params, 0, 0))
    for name, module in _LINEAR:
        if hasattr(module, "problems"):
            yield from _named(name, module.problems(_PARAMS[name], parts[name], sparse))
    yield from _named("crosses", _crosses.problems(parts["crosses"]))
    yield from _named("trees", tree_problems(parts["trees"]))
    yield from _named("mix", _mix.problems(parts["mix"]))
    yield from _named("members", _members.problems(parts["members"]))
    dims = {parts["loam_ada"].w.shape, parts["loam_ada"].h.shape, parts["loam_ada"].sums.shape[1:]}
    if not dims <= {(0,)} and not dims <= {parts["trees"].gain.shape}:
        yield "loam_ada_w", "and loam-ada's other arrays have no common length that is 0 or that of the columns"
    left_out = [name for name, _, active in _linear(params) if not active]
    for part in [*left_out, *["crosses"] * (not params.bins)]:
        for name, array in parts[part]._asdict().items():
            if array.shape != getattr(fresh[part], name).shape:
                yield f"{part}_{name}", "is longer than before any event, but of a model that is not a member"
    if parts["crosses"].once.shape != fresh["crosses"].once.shape:
        yield "crosses_once", f"has {len(parts['crosses'].once)} bytes; expected {len(fresh['crosses'].once)}"
    if not params.fits and len(parts["trees"].starts):
        yield "trees_starts", "has trees, but gbdt is not a member"


def _named(part: str, issues: Issues) -> Issues:
    for name, detail in issues:
        yield f"{part}_{name}", detail


def _sized(like: Any, precision: Any) -> Any:
    """Return loam-ada's state with the precision of the others."""
    return like._replace(w=like.w.astype(precision), h=like.h.astype(precision))


def _linear(params: Params) -> Iterator[tuple[str, Any, bool]]:
    """Yield part, module and whether it is a member, of each linear model."""
    for (name, module), active in zip(_LINEAR, params.choice[:3], strict=True):
        yield name, module, active


def _nanoseconds(params: Params, size: Size) -> float:
    """Estimate the cost of an event."""
    modules = [(_PARAMS[name], module) for name, module, active in _linear(params) if active]
    if params.fits and params.budget != "fast":
        modules.append((_TREES[params.budget], gbdt))
    total = sum(module.TRAITS.cost.nanoseconds(settings, size) for settings, module in modules)
    if params.bins:
        total += 60 * size.values
    return float(total + 25 * min(size.values, _crosses.CROSSED) ** 2 * params.choice[4])


def _parts(state: Any) -> dict[str, Any]:
    return {name: kind._make(state[cut]) for name, kind, cut in _CUTS}


def _joined(parts: dict[str, Any]) -> Any:
    return State._make(array for name, _ in _PARTS for array in parts[name])
