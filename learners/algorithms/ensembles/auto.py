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
are learnt for them. `learners.algorithms._custom_members` has members that the user configures.

`learners.algorithms._members` counts how each member does. The cost is the sum of the members'. An event of weight 0
moves no member's weights.

References
----------
Wolpert. Stacked Generalization. Neural Networks 5, 1992. The members' are in their files.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.algorithms import _crosses, _members, _mix
from learners.algorithms._custom_members import CustomMember, CustomState, named_members
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

LEAST = 5  # events of each class, of positive weight, that trees and batch algorithms are fitted to
MAX_MEMBERS = 16

_LINEAR: tuple[tuple[str, Any], ...] = (("cbr_diag", cbr_diag), ("loam_ada", loam_ada), ("fofo", fofo))
_PARAMS = {name: module.Params() for name, module in _LINEAR}
_TREES = {"fast": gbdt.Params(), "balanced": gbdt.Params(), "best": gbdt.Params(trees=300, learning_rate=0.05)}
TRAITS = Traits(
    posterior=True,
    cost=Cost(
        "O(dim + trees log leaves + pairs of 22 columns) per event; a fit as of gbdt",
        lambda params, size: _nanoseconds(params, size),
    ),
    first_fit=200,
    of_each=LEAST,
    memorises=True,
    fitted=tuple(f"trees_{name}" for name in Trees._fields),
    embeds=False,
    halved=(
        *(f"{name}_{array}" for name, module in _LINEAR for array in module.TRAITS.halved),
        *(f"trees_{array}" for array in gbdt.TRAITS.halved),
    ),
    # rarer categories weigh more, and others than a combination would not bear the noise of the rarest
    named_clip=100.0,
    defaults={
        "scaling": {"kind": "standard", "clip": 10.0},
        "calibration": {"kind": "logistic"},
        "threshold": {"objective": "f1-window"},
        "learner": {"refit_every": 20_000, "refit_window": 20_000},
    },
)


class _Layout:
    """NamedTuple of the arrays of several parts, each under its part's name."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        """Lay out parts, by name, of these NamedTuples."""
        names = [f"{part}_{array}" for part, kind in parts.items() for array in kind._fields]
        self.type: Any = namedtuple("State", names)  # type: ignore[misc]
        self._cuts = []
        end = 0
        for part, kind in parts.items():
            start, end = end, end + len(kind._fields)
            self._cuts.append((part, kind, slice(start, end)))

    def split(self, arrays: Any) -> dict[str, Any]:
        """Return the parts."""
        return {part: kind._make(arrays[cut]) for part, kind, cut in self._cuts}

    def join(self, parts: Mapping[str, Any]) -> Any:
        """Return the arrays of the parts."""
        return self.type._make(array for part, _, _ in self._cuts for array in parts[part])

    def of(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parts of arrays by name."""
        return self.split(tuple(arrays[name] for name in self.type._fields))


class _Layouts(NamedTuple):
    """What depends on the members that the user configures."""

    state: _Layout
    fitted: _Layout  # of a fit
    traits: Traits


@lru_cache(maxsize=256)
def _layouts(custom: tuple[CustomMember, ...]) -> _Layouts:
    """Lay out states; those of all models but the user's, and these follow."""
    parts = [
        *((name, module.State) for name, module in _LINEAR),
        ("crosses", _crosses.CrossState),
        ("trees", Trees),
        ("mix", _mix.MixState),
        ("members", _members.MemberCounts),
    ]
    fitted: list[tuple[str, Any]] = [("trees", Trees)]
    halved = list(TRAITS.halved)
    for part, member in _parts_of(custom):
        parts += [(part + end, kind) for end, kind in member.parts.items()]
        fitted += [(part + end, kind) for end, kind in member.fitted_parts.items()]
        halved += [part + end for end in member.halved]
    of_fit = _Layout(dict(fitted))
    return _Layouts(_Layout(dict(parts)), of_fit, TRAITS._replace(fitted=of_fit.type._fields, halved=tuple(halved)))


def _parts_of(custom: tuple[CustomMember, ...]) -> Iterator[tuple[str, CustomMember]]:
    """Yield each member that the user configures, with the name of its part of a state."""
    for number, member in enumerate(custom, 1):
        yield f"custom{number}", member


State = _layouts(()).state.type


@dataclass(frozen=True)
class Params(Parameters):
    """Settings of auto. Those of the built-in models are fixed."""

    budget: Literal["fast", "balanced", "best"] = param(
        "balanced", "of gbdt: fast: no trees; balanced: 100 trees; best: 300 trees, a fit takes three times as long"
    )
    members: tuple[MemberName | CustomMember, ...] = param(
        tuple(MEMBERS), f"models to combine: from 1 to {MAX_MEMBERS}, all different"
    )
    memory: int = param(
        100_000,
        "How fast the combination forgets: an event this many events ago has weight 1/e (37 %).",
        least=100,
        most=10**9,
    )

    def __post_init__(self) -> None:
        """Check that the members go together, once each is valid."""
        super().__post_init__()
        if not self.members:
            raise InvalidInput([Problem("/members", f"is empty; expected at least one of {', '.join(MEMBERS)}")])
        if len(self.members) > MAX_MEMBERS:
            raise InvalidInput([Problem("/members", f"has {len(self.members)} items; expected at most {MAX_MEMBERS}")])
        object.__setattr__(self, "members", named_members(self.members, ["auto"]))
        if self.budget != "balanced" and "gbdt" not in self.members:
            detail = "is for gbdt, which is not among the members"
        elif self.budget == "fast" and set(self.members) == {"gbdt"}:
            detail = "is fast, but the only member is gbdt, which has no trees then"
        else:
            return
        raise InvalidInput([Problem("/budget", detail, "conflict")])

    @property
    def fits(self) -> bool:
        """Whether anything is fitted."""
        return "gbdt" in self.members or any(member.fits for member in self.custom)

    @property
    def bins(self) -> bool:
        """Whether there are bins, for themselves or for the pairs."""
        return "bins" in self.members or "pairs" in self.members

    @cached_property
    def choice(self) -> tuple[bool, ...]:
        """Which models are members, in the order of the combination."""
        return tuple(name in self.members for name in MEMBERS)

    @cached_property
    def custom(self) -> tuple[CustomMember, ...]:
        """The members that the user configures, which follow in the combination."""
        return tuple(member for member in self.members if isinstance(member, CustomMember))

    @cached_property
    def candidates(self) -> NDArray[np.bool_]:
        """Which models may score: all members."""
        return np.array([*self.choice, *(True for _ in self.custom)])

    @cached_property
    def layouts(self) -> _Layouts:
        """The layouts of a state and of a fit."""
        return _layouts(self.custom)

    @property
    def traits(self) -> Traits:
        """The properties with these members."""
        return self.layouts.traits


def init(params: Params, dim: int, seed: int) -> Any:
    """Return the state before any event."""
    linear = {name: module.init(_PARAMS[name], dim * active, seed) for name, module, active in _linear(params)}
    linear["loam_ada"] = loam_ada.init(_PARAMS["loam_ada"], 0, seed)  # no array until a dense row comes
    crosses = _crosses.init(dim * params.bins, params.choice[4])
    models = len(MEMBERS) + len(params.custom)
    parts = {**linear, "crosses": crosses, "trees": empty(dim)}
    parts |= {"mix": _mix.init(models, len(params.members)), "members": _members.init(models)}
    for part, member in _parts_of(params.custom):
        _put(parts, part, member.init(dim, seed))
    return params.layouts.state.join(parts)


def grow(params: Params, state: Any, dim: int) -> Any:
    """Return the state with `dim` columns, of sparse rows."""
    parts = params.layouts.state.split(state)
    for name, module, active in _linear(params):
        if active and name != "loam_ada":
            parts[name] = module.grow(_PARAMS[name], parts[name], dim)
    if params.bins:
        parts["crosses"] = _crosses.grow(parts["crosses"], dim)
    parts["trees"] = grow_columns(parts["trees"], dim)
    for part, member in _parts_of(params.custom):
        _put(parts, part, member.grow(_get(parts, part), dim))
    return params.layouts.state.join(parts)


def learn(params: Params, state: Any, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> Any:
    """Score each row, then learn from it, in order; fill `scores` (n,) and return the state."""
    if not len(y):
        return state
    parts = params.layouts.state.split(state)
    members, before = np.zeros((len(parts["mix"].mean), len(y))), int(parts["mix"].events[-1])
    if params.choice[1] and not isinstance(rows, Sparse) and not len(parts["loam_ada"].w):
        longer = loam_ada.grow(_PARAMS["loam_ada"], parts["loam_ada"], rows.shape[1])
        parts["loam_ada"] = _sized(longer, parts["trees"].gain.dtype)
    for k, (name, module, active) in enumerate(_linear(params)):
        if active and (name != "loam_ada" or not isinstance(rows, Sparse)):
            parts[name] = module.learn(_PARAMS[name], parts[name], rows, y, weight, members[k])
    if params.bins:
        parts["crosses"] = _crosses.learn(parts["crosses"], rows, y, weight, *members[3:5])
    scoring = _scoring(params, parts)
    if scoring[5]:
        members[5] = tree_scores(parts["trees"], rows)
    for k, (part, member) in enumerate(_parts_of(params.custom), len(MEMBERS)):
        _put(parts, part, member.learn(_get(parts, part), rows, y, weight, members[k]))
    members[~scoring] = 0.0  # bins that only pairs need
    columns = np.ascontiguousarray(members.T)
    _mix.learn(parts["mix"], columns, y, weight, scores, scoring, float(params.memory))
    _members.learn(parts["members"], before, columns, scores, y, weight, scoring)
    return params.layouts.state.join(parts)


def fit(
    params: Params,
    rows: Rows,
    dim: int,
    y: Vector,
    weight: Vector,
    seed: int,
    before: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Fit trees, and what the user's members need, to n rows (n, dim); `before` has the arrays of the last fit.

    Raises ValueError if a class has too few events of positive weight.
    """
    trees = params.choice[5] and params.budget != "fast"
    if trees or any(member.batch for member in params.custom):
        for side, name in ((-1.0, "negative"), (1.0, "positive")):
            count = int(np.count_nonzero((y * side > 0.0) & (weight > 0.0)))
            if count < LEAST:
                raise ValueError(f"the retained events have {count} {name} ones; a fit needs {LEAST}")
    fitted = params.layouts.fitted
    present = fitted.of(before) if before else {}
    parts = {"trees": gbdt.fit(_TREES[params.budget], rows, dim, y, weight, seed) if trees else empty(dim)}
    for part, member in _parts_of(params.custom):
        if member.fits:
            last = _get(present, part) if before else member.init(dim, seed)
            _put(parts, part, member.fit(last, rows, dim, y, weight, seed))
    return fitted.join(parts)


def adopt(params: Params, state: Any, arrays: Mapping[str, Any], dim: int, seed: int) -> Any:
    """Return the state of `dim` columns with what a fit made."""
    parts = params.layouts.state.split(state)
    copies = {name: np.array(arrays[name], order="C") for name in params.traits.fitted}
    fitted = params.layouts.fitted.of(copies)
    trees = fitted["trees"]
    parts["trees"] = grow_columns(trees, dim) if len(trees.gain) < dim else trees
    for part, member in _parts_of(params.custom):
        if member.fits:
            _put(parts, part, member.adopt(_get(parts, part), _get(fitted, part), dim, seed))
    return params.layouts.state.join(parts)


def fit_problems(params: Params, arrays: Mapping[str, Any], sparse: bool) -> Issues:
    """Find what no fit makes in its arrays."""
    fitted = params.layouts.fitted.of(arrays)
    yield from _named("trees", tree_problems(fitted["trees"]))
    for part, member in _parts_of(params.custom):
        if member.fits:
            yield from _named(part, member.problems(_get(fitted, part), len(fitted["trees"].gain), sparse))


def weights(params: Params, state: Any) -> Ensemble:
    """Return what scores events: views."""
    parts = params.layouts.state.split(state)
    linear = tuple(module.weights(_PARAMS[name], parts[name]) for name, module in _LINEAR)
    scoring = _scoring(params, parts)
    for k, model in enumerate(linear):
        if not len(model.w):
            scoring[k] = False
    custom = tuple(member.model(_get(parts, part)) for part, member in _parts_of(params.custom))
    crosses = _crosses.crosses(parts["crosses"])
    return Ensemble(scoring, linear, crosses, parts["trees"], custom, parts["mix"], parts["members"])


def problems(params: Params, state: Any, sparse: bool) -> Issues:
    """Find values in a restored state that no events lead to."""
    split = params.layouts.state.split
    parts, fresh = split(state), split(init(params, 0, 0))
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
    if not params.choice[5] and len(parts["trees"].starts):
        yield "trees_starts", "has trees, but gbdt is not a member"
    for part, member in _parts_of(params.custom):
        yield from _named(part, member.problems(_get(parts, part), len(parts["trees"].gain), sparse))


def _named(part: str, issues: Issues) -> Issues:
    for name, detail in issues:
        yield f"{part}_{name}", detail


def _get(parts: Mapping[str, Any], part: str) -> CustomState:
    """Return the state of a member that the user configures; without a model if it is of a fit that makes none."""
    return CustomState(parts.get(part), parts.get(f"{part}_embedding"))


def _put(parts: dict[str, Any], part: str, state: CustomState) -> None:
    parts[part], parts[f"{part}_embedding"] = state


def _scoring(params: Params, parts: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return which models score."""
    scoring = params.candidates.copy()
    if not len(parts["trees"].starts):
        scoring[5] = False
    for k, (part, member) in enumerate(_parts_of(params.custom), len(MEMBERS)):
        scoring[k] = member.is_ready(_get(parts, part))
    return scoring


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
    if params.choice[5] and params.budget != "fast":
        modules.append((_TREES[params.budget], gbdt))
    total = sum(module.TRAITS.cost.nanoseconds(settings, size) for settings, module in modules)
    total += sum(member.nanoseconds(size) for member in params.custom)
    if params.bins:
        total += 60 * size.values
    return float(total + 25 * min(size.values, _crosses.CROSSED) ** 2 * params.choice[4])
