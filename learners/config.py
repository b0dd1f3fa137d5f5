"""What a learner is created with: the settings of every part, read from JSON, checked alone and together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from learners.algorithms import Algorithm, Traits, registry
from learners.decisions import calibration, threshold
from learners.features import (
    MAX_PROBLEMS,
    Dense,
    Features,
    Labels,
    LateLabels,
    Named,
    SparseColumns,
    Table,
    costs_of,
    futile,
    misfit,
    scaling,
)
from learners.features import kernel_approximation as embedding
from learners.metrics import MetricSettings
from learners.numerics import Precision, Rows, Sparse, Vector
from learners.settings import InvalidInput, Parameters, Problem, param, pointer, show

__all__ = [
    "CHANGEABLE",
    "FEATURE_KINDS",
    "MAX_BUFFERED",
    "MAX_PLANES",
    "MAX_RETAINED",
    "Config",
    "LearnerSettings",
    "read_features",
]

MAX_BUFFERED = 2**20  # numbers in the buffer of one class: stored events times columns, or times non-zeros
MAX_RETAINED = 2**24  # numbers in the events that a learner retains for fits, also once they are embedded
LEAST_IDS = 2**17  # remembered, where labels are assumed: more than one record has, or a restart meets again
MAX_PLANES = 2**25  # numbers in the planes of an ordinal learner

FEATURE_KINDS: dict[str, type[Features]] = {one.KIND: one for one in (Dense, SparseColumns, Named, Table)}


def read_features(values: Any) -> Features:
    """The kind that a learner's configuration names, `{"kind": "dense", "dim": 8}`. Raises `InvalidInput`."""
    if not isinstance(values, Mapping):
        raise InvalidInput([Problem("", f"is {show(values)}; expected an object with a kind")])
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in FEATURE_KINDS:
        raise InvalidInput([Problem("/kind", f"is {show(kind)}; expected one of {', '.join(FEATURE_KINDS)}")])
    return FEATURE_KINDS[kind].of({name: value for name, value in values.items() if name != "kind"})


@dataclass(frozen=True)
class Config:
    """What a learner is created with; everything about it that is not learnt."""

    algorithm: str
    params: Parameters
    features: Features
    scaling: scaling.Scaling
    embedding: embedding.Embedding
    calibration: calibration.Calibration | None  # None: an ordinal learner
    threshold: threshold.Threshold | None  # likewise
    figures: MetricSettings
    late: LateLabels
    window: int  # labelled events that the windowed figures look back on
    window_seconds: float | None  # of the learner's clock, that they look back on at most; None: any
    remembered_ids: int  # distinct event ids kept to tell duplicates
    refit_every: int | None  # labelled events between fits of a batch algorithm; None: the algorithm learns online
    refit_window: int | None  # events retained for them
    seed: int
    precision: Precision  # of the large arrays of the state

    @property
    def batch(self) -> bool:
        """Whether the algorithm is fitted now and then, instead of learning from each event."""
        return self.refit_every is not None

    @property
    def input_precision(self) -> Precision:
        """What features are rounded to as they are read: see `learners.numerics.float32`."""
        return self.precision if self.batch or self.embedding.kind != "none" else "float64"

    @cached_property
    def labels(self) -> Labels:
        """What the learner's labels are."""
        ordinal = registry.algorithms()[self.algorithm].TRAITS.ordinal
        return Labels(getattr(self.params, "ranks")) if ordinal else Labels()  # noqa: B009

    @property
    def uses_clock(self) -> bool:
        """Whether something about the learner follows its clock, so that every event should have a time."""
        budgeted = self.threshold is not None and self.threshold.alerts is not None
        return self.window_seconds is not None or budgeted

    def with_changes(self, values: Any) -> Config:
        """The same with other settings of the parts that may change without losing what was learnt.

        `values` has some of these parts; what a part leaves out stays, but for a threshold of another objective, where
        it is the default. Raises `InvalidInput` with every problem.
        """
        if not isinstance(values, Mapping):
            raise InvalidInput([Problem("", f"is {show(values)}; expected an object")])
        problems = [
            Problem(pointer(name), f"cannot be changed; expected some of {', '.join(CHANGEABLE)}")
            for name in values
            if name not in CHANGEABLE
        ]
        if not values:
            problems.append(Problem("", f"has nothing to change; expected some of {', '.join(CHANGEABLE)}"))
        parts: dict[str, Any] = {}
        for name in CHANGEABLE:
            if name not in values:
                continue
            given, present = values[name], getattr(self, name)
            if present is None:
                problems.append(Problem(f"/{name}", f"is for learners of two classes; {self.algorithm} tells ranks"))
                continue
            kept = present.to_json()
            if isinstance(given, Mapping):
                if name == "threshold" and given.get("objective", kept["objective"]) != kept["objective"]:
                    kept = {}
                one = {"alerts", "rate"} & given.keys()  # a budget is one of the two: that which is given
                if name == "threshold" and len(one) == 1:
                    kept = {key: value for key, value in kept.items() if key not in ("alerts", "rate")}
                given = {**kept, **given}
            try:
                parts[name] = _PARTS[name].of(given)
            except InvalidInput as error:
                problems.extend(error.under(f"/{name}").problems)
        if problems:
            raise InvalidInput(problems)
        changed = replace(self, **parts)
        problems = changed._disagreements()
        if problems:
            raise InvalidInput(problems)
        return changed

    def _disagreements(self) -> list[Problem]:
        """What is wrong between the parts that may change and the others."""
        problems = []
        if self.late.unlabelled == "negative" and self.labels.ranks is not None:
            problems.append(Problem("/late/unlabelled", "is negative, but the labels are ranks"))
        if self.late.unlabelled == "negative" and self.remembered_ids < LEAST_IDS:
            few = f"is negative, which asks for remembered_ids of at least {LEAST_IDS}; they are {self.remembered_ids}"
            problems.append(Problem("/late/unlabelled", few))
        field = None if self.threshold is None else self.threshold.field
        if field is not None and (detail := misfit(self.features, field)):
            problems.append(Problem("/threshold/field", detail))
        return problems

    def objections(self, *, new: bool = False) -> list[Problem]:
        """What should keep settings from coming to stand, though they can be read: with them events would be refused.

        Of a learner that is `new` also what is declared of its features and would be passed over. Nobody asks this of
        what stands in a log: what a learner has learnt must not be lost to an older mistake.
        """
        declared = self.features.objections() if new else []
        problems = [Problem(f"/features{one.pointer}", one.detail) for one in declared]
        field = None if self.threshold is None else self.threshold.field
        if field is not None and (detail := futile(self.features, field)):
            problems.append(Problem("/threshold/field", detail))
        return problems

    @property
    def immutable_part(self) -> Config:
        """The same with the usual settings of the parts that may change: what makes a state fit."""
        return replace(
            self,
            threshold=None if self.threshold is None else threshold.Threshold(),
            figures=MetricSettings(),
            late=LateLabels(),
        )

    @classmethod
    def of(cls, values: Any) -> Config:
        """Read parsed JSON; only `algorithm` and `features` have no default. Raises `InvalidInput`."""
        if not isinstance(values, Mapping):
            raise InvalidInput([Problem("", f"is {show(values)}; expected an object")])
        problems = [
            Problem(pointer(name), f"is not a setting; expected one of {', '.join(cls.__annotations__)}")
            for name in values
            if name not in cls.__annotations__
        ]

        def part(name: str, read: Any, default: Mapping[str, Any] | None) -> Any:
            """A part as it was read; what it leaves out is the default's. None where it was refused."""
            value = values.get(name)
            if default is not None and (value is None or isinstance(value, Mapping)):
                value = {**default, **(value or {})}
            try:
                return read(value)
            except InvalidInput as error:
                problems.extend(error.under(f"/{name}").problems)
                return None

        name = values.get("algorithm")
        algorithm = registry.algorithms().get(name) if isinstance(name, str) else None
        if algorithm is None:
            known = ", ".join(registry.algorithms())
            detail = "is missing" if "algorithm" not in values else f"is {show(name)}"
            problems.append(Problem("/algorithm", f"{detail}; expected one of {known}"))
        if "features" in values:
            features = part("features", read_features, None)
        else:
            problems.append(
                Problem("/features", f"is missing; expected an object with a kind: {', '.join(FEATURE_KINDS)}")
            )
            features = None
        traits = Traits() if algorithm is None else algorithm.TRAITS
        usual: dict[str, dict[str, Any]] = {
            "scaling": _scaling(traits, features, values.get("scaling")),
            "embedding": {"kind": "none"},
            "calibration": {"kind": "posterior" if traits.posterior else "platt"},
            "threshold": {"objective": "f1" if traits.posterior else "f1-window"},
            "figures": {},
            "late": {},
        }
        parts: dict[str, Any] = {}
        for key, kind in _PARTS.items():
            if traits.ordinal and key in ("calibration", "threshold"):
                parts[key] = None
                if values.get(key) is not None:
                    problems.append(Problem(f"/{key}", f"is for learners of two classes; {name} tells ranks"))
            else:
                default = {**usual[key], **traits.defaults.get(key, {})}
                given = values.get(key)
                if key == "threshold" and isinstance(given, Mapping) and "objective" in given:
                    default = {}  # the algorithm's are for another objective
                if (
                    key == "embedding"
                    and isinstance(given, Mapping)
                    and given.get("kind") not in (None, default["kind"])
                ):
                    default = {}  # the algorithm's are for another kind
                parts[key] = part(key, kind.of, default)
        if algorithm is not None:
            parts["params"] = part("params", algorithm.Params.of, {})
            problems += _misfits(str(name), traits, hasattr(algorithm, "fit"), parts["params"], features, parts)
        whole, found = _whole(name, algorithm, features, parts["embedding"], values)
        problems += found
        if problems:
            raise InvalidInput(problems)
        config = cls(algorithm=str(name), features=features, **parts, **whole)
        problems = config._disagreements()
        if problems:
            raise InvalidInput(problems)
        return config

    def encode(self, values: Any, typed: bool = False) -> Rows:
        """The columns of n events' features: `Features.encode`, and no event too long for the algorithm's buffers."""
        rows = self.features.encode(values, typed)
        if isinstance(rows, Sparse):
            capacity = _stored(self.params)
            sizes = np.diff(rows.indptr)
            long = np.flatnonzero(sizes * capacity > MAX_BUFFERED)[:MAX_PROBLEMS]
            if len(long):
                most = MAX_BUFFERED // capacity
                detail = "has {} columns; expected at most {} where {} events are stored"
                raise InvalidInput([Problem(f"/{i}", detail.format(sizes[i], most, capacity)) for i in long.tolist()])
        return rows

    def costs(self, values: Any) -> Vector | None:
        """What a miss of each event costs, (n,), where the threshold asks for a field of the events; see `costs_of`."""
        if self.threshold is None or self.threshold.field is None:
            return None
        return costs_of(self.features, self.threshold.field, values)

    def to_json(self) -> dict[str, Any]:
        """What `of` takes back, with every default written out."""
        return {
            name: value.to_json() if isinstance(value, Parameters) else value
            for name, value in ((name, getattr(self, name)) for name in self.__annotations__)
        }


@dataclass(frozen=True)
class LearnerSettings(Parameters):
    """The settings of the learner itself."""

    window: int = param(10_000, "labelled events that the windowed figures look back on", least=1, most=1_000_000)
    window_seconds: float | None = param(
        None,
        "seconds of the learner's clock that they look back on at most; null: any",
        above=0,
        most=1e10,
        unit="seconds",
    )
    remembered_ids: int = param(2**20, "distinct event ids kept to tell duplicates", least=1, most=2**26)
    refit_every: int | None = param(
        None, "batch algorithms: labelled events between fits; null: 5,000", least=1, most=10**9
    )
    refit_window: int | None = param(
        None, "batch algorithms: events retained for fits; null: 20,000, or what fits", least=2, most=1_000_000
    )
    seed: int = param(0, "of the random choices", least=0, most=2**53)
    precision: Literal["float64", "float32"] = param(
        "float64", "of weights, covariances, stored examples and retained events; float32: half the memory"
    )


_PARTS: dict[str, type[Parameters]] = {
    "scaling": scaling.Scaling,
    "embedding": embedding.Embedding,
    "calibration": calibration.Calibration,
    "threshold": threshold.Threshold,
    "figures": MetricSettings,
    "late": LateLabels,
}
CHANGEABLE = ("threshold", "figures", "late")  # while the learner lives
_WHOLE = tuple(LearnerSettings.__annotations__)
_REFITS = {"refit_every": 5_000, "refit_window": 20_000}
_SCALING = {"dense": "standard", "table": "standard", "named": "maxabs", "sparse": "none"}


def _stored(params: Parameters | None) -> int:
    """Events that an algorithm's buffers hold, of each class where it keeps the classes apart; 1 without buffers."""
    return getattr(params, "capacity", 1) if getattr(params, "replays", 1) else 1


def _whole(
    name: Any,
    algorithm: Algorithm | None,
    features: Features | None,
    space: embedding.Embedding | None,
    values: Mapping[str, Any],
) -> tuple[dict[str, Any], list[Problem]]:
    """The settings of the learner itself, and what is wrong with them."""
    try:
        whole = LearnerSettings.of({key: values[key] for key in _WHOLE if values.get(key) is not None}).to_json()
    except InvalidInput as error:
        return {}, list(error.problems)
    if algorithm is None or features is None:
        return whole, []
    widest = features.columns
    if space is not None and space.kind != "none":
        widest = max(widest, space.components)
    most = MAX_RETAINED if features.sparse else MAX_RETAINED // widest
    if not hasattr(algorithm, "fit"):
        detail = f"is for algorithms that are fitted now and then; {name} learns from each event"
        return whole, [Problem(f"/{key}", detail) for key in _REFITS if whole[key] is not None]
    usual = {**_REFITS, **algorithm.TRAITS.defaults.get("learner", {})}
    if whole["refit_every"] is None:
        whole["refit_every"] = usual["refit_every"]
    if whole["refit_window"] is None:
        whole["refit_window"] = max(2, min(usual["refit_window"], most))
    elif whole["refit_window"] > most:
        detail = f"is {whole['refit_window']}; expected at most {most} with {widest} columns or components"
        return whole, [Problem("/refit_window", detail)]
    return whole, []


def _scaling(traits: Traits, features: Features | None, given: Any) -> dict[str, Any]:
    if features is None or (isinstance(given, Mapping) and "kind" in given):
        return {}
    if features.KIND == "named" and traits.posterior:
        # a logistic posterior learns a rare category (a customer, a terminal) only where that weighs more
        return {"kind": "standard", "clip": 10.0}
    return {"kind": _SCALING[features.KIND]}


def _misfits(
    name: str,
    traits: Traits,
    batch: bool,
    params: Parameters | None,
    features: Features | None,
    parts: Mapping[str, Any],
) -> list[Problem]:
    """Parts that are right alone but do not go together."""
    problems = []
    space: embedding.Embedding | None = parts["embedding"]
    embedded = space is not None and space.kind != "none"
    if features is None:
        pass
    elif features.sparse and not traits.sparse:
        other = "ranksvm" if batch else "cbr-diag"
        detail = f"gives sparse rows, and {name} takes dense ones only; use dense or table features, or {other}"
        problems.append(Problem("/features/kind", detail))
    elif features.sparse and embedded:
        detail = "is for dense rows; use dense or table features"
        problems.append(Problem("/embedding/kind", detail))
    elif not features.sparse and not traits.dense:
        problems.append(Problem("/features/kind", f"gives dense rows, and {name} takes sparse ones only"))
    elif features.columns > traits.max_dim:
        detail = f"gives {features.columns} columns; {name} takes at most {traits.max_dim}"
        problems.append(Problem("/features", detail))
    elif space is not None and embedded:
        most = min(traits.max_dim, MAX_RETAINED // features.columns)
        if space.components > most:
            detail = f"is {space.components}; expected at most {most} with {features.columns} columns and {name}"
            problems.append(Problem("/embedding/components", detail))
        most = MAX_RETAINED // max(features.columns, space.components)
        if space.warmup > most:
            detail = f"is {space.warmup}; expected at most {most} with {features.columns} columns"
            detail += f" and {space.components} components"
            problems.append(Problem("/embedding/warmup", detail))
    if space is not None and not embedded:
        for key, value in embedding.Embedding().to_json().items():
            if getattr(space, key) != value:
                problems.append(Problem(f"/embedding/{key}", "is for an embedding; its kind is none"))
    capacity = _stored(params)
    if features is not None and not features.sparse:
        columns = max(features.columns, space.components if space is not None and embedded else 0)
        if capacity * columns > MAX_BUFFERED:
            detail = f"is {capacity}; expected at most {MAX_BUFFERED // columns} with {columns} columns"
            problems.append(Problem("/params/capacity", detail))
    ranks = getattr(params, "ranks", 1)
    if features is not None and ranks * features.columns > MAX_PLANES:
        detail = f"is {ranks}; expected at most {MAX_PLANES // features.columns} with {features.columns} columns"
        problems.append(Problem("/params/ranks", detail))
    chosen: calibration.Calibration | None = parts["calibration"]
    if chosen is not None and chosen.kind == "posterior" and not traits.posterior:
        problems.append(Problem("/calibration/kind", f"is posterior, but the score of {name} is not a log-odds"))
    return problems
