"""What a learner is created with: the settings of every part, read from JSON, checked alone and together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from learners import calibration, catalogue, scaling, threshold
from learners.algorithm import Algorithm
from learners.arrays import Rows, Sparse
from learners.features import MAX_PROBLEMS, Dense, Features, SparseColumns
from learners.named import Named, Table
from learners.parameters import Parameters, Problem, Refused, param, pointer, show

__all__ = ["KINDS", "MAX_BUFFERED", "Config", "Whole", "features_of"]

MAX_BUFFERED = 2**20  # numbers in the buffer of one class: stored events times columns, or times non-zeros

KINDS: dict[str, type[Features]] = {one.KIND: one for one in (Dense, SparseColumns, Named, Table)}


def features_of(values: Any) -> Features:
    """The kind that a learner's configuration names, `{"kind": "dense", "dim": 8}`. Raises `Refused`."""
    if not isinstance(values, Mapping):
        raise Refused([Problem("", f"is {show(values)}; expected an object with a kind")])
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise Refused([Problem("/kind", f"is {show(kind)}; expected one of {', '.join(KINDS)}")])
    return KINDS[kind].of({name: value for name, value in values.items() if name != "kind"})


@dataclass(frozen=True)
class Config:
    """What a learner is created with; everything about it that is not learnt."""

    algorithm: str
    params: Parameters
    features: Features
    scaling: scaling.Scaling
    calibration: calibration.Calibration
    threshold: threshold.Threshold
    window: int  # labelled events that the windowed figures look back on
    remembered_ids: int  # distinct event ids kept to tell duplicates
    seed: int

    @classmethod
    def of(cls, values: Any) -> Config:
        """From parsed JSON; only `algorithm` and `features` have no default. Raises `Refused` with every problem."""
        if not isinstance(values, Mapping):
            raise Refused([Problem("", f"is {show(values)}; expected an object")])
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
            except Refused as error:
                problems.extend(error.under(f"/{name}").problems)
                return None

        name = values.get("algorithm")
        algorithm = catalogue.algorithms().get(name) if isinstance(name, str) else None
        if algorithm is None:
            known = ", ".join(catalogue.algorithms())
            detail = "is missing" if "algorithm" not in values else f"is {show(name)}"
            problems.append(Problem("/algorithm", f"{detail}; expected one of {known}"))
        if "features" in values:
            features = part("features", features_of, None)
        else:
            problems.append(Problem("/features", "is missing"))
            features = None
        parts = {
            "scaling": part("scaling", scaling.Scaling.of, _scaling(algorithm, features, values.get("scaling"))),
            "calibration": part("calibration", calibration.Calibration.of, _calibration(algorithm)),
            "threshold": part("threshold", threshold.Threshold.of, _objective(algorithm)),
        }
        if algorithm is not None:
            parts["params"] = part("params", algorithm.Params.of, {})
            problems += _misfits(str(name), algorithm, parts["params"], features, parts["calibration"])
        try:
            whole = Whole.of({key: values[key] for key in _WHOLE if values.get(key) is not None}).to_json()
        except Refused as error:
            problems += error.problems
        if problems:
            raise Refused(problems)
        return cls(algorithm=str(name), features=features, **parts, **whole)

    def encode(self, values: Any, typed: bool = False) -> Rows:
        """The columns of n events' features: `Features.encode`, and no event too long for the algorithm's buffers."""
        rows = self.features.encode(values, typed)
        capacity = getattr(self.params, "capacity", 1)
        if isinstance(rows, Sparse):
            sizes = np.diff(rows.indptr)
            long = np.flatnonzero(sizes * capacity > MAX_BUFFERED)[:MAX_PROBLEMS]
            if len(long):
                most = MAX_BUFFERED // capacity
                detail = "has {} columns; expected at most {} where {} events of each class are stored"
                raise Refused([Problem(f"/{i}", detail.format(sizes[i], most, capacity)) for i in long.tolist()])
        return rows

    def to_json(self) -> dict[str, Any]:
        """What `of` takes back, with every default written out."""
        return {
            name: value.to_json() if isinstance(value, Parameters) else value
            for name, value in ((name, getattr(self, name)) for name in self.__annotations__)
        }


@dataclass(frozen=True)
class Whole(Parameters):
    """The settings of the learner itself."""

    window: int = param(10_000, "labelled events that the windowed figures look back on", least=1, most=1_000_000)
    remembered_ids: int = param(2**20, "distinct event ids kept to tell duplicates", least=1, most=2**26)
    seed: int = param(0, "of the random choices", least=0, most=2**53)


_WHOLE = ("window", "remembered_ids", "seed")
_SCALING = {"dense": "standard", "table": "standard", "named": "maxabs", "sparse": "none"}


def _scaling(algorithm: Algorithm | None, features: Features | None, given: Any) -> dict[str, Any]:
    if features is None or (isinstance(given, Mapping) and "kind" in given):
        return {}
    if features.KIND == "named" and algorithm is not None and algorithm.TRAITS.posterior:
        # a logistic posterior learns a rare category (a customer, a terminal) only where that weighs more
        return {"kind": "standard", "clip": 10.0}
    return {"kind": _SCALING[features.KIND]}


def _calibration(algorithm: Algorithm | None) -> dict[str, str]:
    return {"kind": "posterior" if algorithm is not None and algorithm.TRAITS.posterior else "platt"}


def _objective(algorithm: Algorithm | None) -> dict[str, str]:
    return {"objective": "f1" if algorithm is not None and algorithm.TRAITS.posterior else "f1-window"}


def _misfits(
    name: str,
    algorithm: Algorithm,
    params: Parameters | None,
    features: Features | None,
    chosen: calibration.Calibration | None,
) -> list[Problem]:
    """Parts that are right alone but do not go together."""
    problems = []
    if features is None:
        pass
    elif features.sparse and not algorithm.TRAITS.sparse:
        detail = f"gives sparse rows, and {name} takes dense ones only; use dense or table features, or cbr-diag"
        problems.append(Problem("/features/kind", detail))
    elif not features.sparse and not algorithm.TRAITS.dense:
        problems.append(Problem("/features/kind", f"gives dense rows, and {name} takes sparse ones only"))
    elif features.columns > algorithm.TRAITS.max_dim:
        detail = f"gives {features.columns} columns; {name} takes at most {algorithm.TRAITS.max_dim}"
        problems.append(Problem("/features", detail))
    capacity = getattr(params, "capacity", 1)
    if features is not None and not features.sparse and capacity * features.columns > MAX_BUFFERED:
        detail = f"is {capacity}; expected at most {MAX_BUFFERED // features.columns} with {features.columns} columns"
        problems.append(Problem("/params/capacity", detail))
    if chosen is not None and chosen.kind == "posterior" and not algorithm.TRAITS.posterior:
        problems.append(Problem("/calibration/kind", f"is posterior, but the score of {name} is not a log-odds"))
    return problems
