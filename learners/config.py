"""Configuration of a learner: the settings of every part, read from JSON, checked alone and together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from learners.algorithms import Algorithm, CustomMember, Traits, registry
from learners.decisions import calibration, threshold
from learners.features import (
    MAX_NONZERO,
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
from learners.segments import SegmentColumns, segment_misfit, segments_of
from learners.settings import ABSENT, InvalidInput, Parameters, Problem, completed, param

__all__ = [
    "CHANGEABLE",
    "DEFAULT_ALGORITHM",
    "FEATURE_KINDS",
    "MAX_BUFFERED",
    "MAX_PLANES",
    "MAX_RETAINED",
    "Config",
    "ConfigWarning",
    "LearnerSettings",
    "read_features",
]

MAX_BUFFERED = 2**20  # numbers in the buffer of one class: stored events times columns, or times non-zeros
MAX_RETAINED = 2**24  # numbers in the events that a learner retains for fits, also after their embedding
LEAST_IDS = 2**17  # remembered ids, if labels expire: more than one record has, or a restart reads again
MAX_PLANES = 2**25  # numbers in the planes of an ordinal learner

DEFAULT_ALGORITHM = "auto"

FEATURE_KINDS: dict[str, type[Features]] = {kind.KIND: kind for kind in (Dense, SparseColumns, Named, Table)}


def read_features(values: Any) -> Features:
    """Read the features of a configuration, `{"kind": "dense", "dim": 8}`. Raises `InvalidInput`."""
    if not isinstance(values, Mapping):
        raise InvalidInput(
            [Problem.mismatch("", values, "an object with a kind", {"type": "object", "required": ["kind"]})]
        )
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in FEATURE_KINDS:
        raise InvalidInput([Problem.choice("/kind", values.get("kind", ABSENT), FEATURE_KINDS)])
    return FEATURE_KINDS[kind].of({name: value for name, value in values.items() if name != "kind"})


Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Condition(Generic[Subject]):
    """What must hold between settings that are valid alone; `message` returns what is wrong at `pointer`, or None."""

    pointer: str
    message: Callable[[Subject], str | None]


def _violations(conditions: Iterable[Condition[Subject]], subject: Subject) -> list[Problem]:
    return [
        Problem(condition.pointer, detail, "conflict")
        for condition in conditions
        if (detail := condition.message(subject)) is not None
    ]


class ConfigWarning(NamedTuple):
    """Why a valid configuration may disappoint. Programs read `code`; `detail` is text for people."""

    code: Literal["few-positives", "text", "moving-base-rate"]
    pointer: str  # JSON pointer to the setting
    detail: str

    def to_json(self) -> dict[str, str]:
        """Return the entry of a learner's document."""
        return self._asdict()


@dataclass(frozen=True)
class Config:
    """What a learner is created with: everything about it that is not learnt."""

    algorithm: str
    params: Parameters
    features: Features
    scaling: scaling.Scaling
    embedding: embedding.Embedding
    calibration: calibration.Calibration | None  # None: an ordinal learner
    threshold: threshold.Threshold | None  # None: an ordinal learner
    figures: MetricSettings
    late: LateLabels
    window: int  # labelled events in the window of the metrics
    window_seconds: float | None  # age at which events leave the window, by the learner's clock; None: never
    remembered_ids: int  # distinct event ids remembered to detect duplicates
    refit_every: int | None  # labelled events between fits of a batch algorithm; None: the algorithm learns online
    refit_window: int | None  # events retained for fits
    seed: int
    precision: Precision  # of the large arrays of the state

    @property
    def batch(self) -> bool:
        """Whether the algorithm, or a part of it, is fitted from time to time."""
        return self.refit_every is not None

    @property
    def input_precision(self) -> Precision:
        """What features are rounded to when they are read; see `learners.numerics.float32`."""
        return self.precision if self.batch or self.embedding.kind != "none" else "float64"

    @cached_property
    def labels(self) -> Labels:
        """The kind of the learner's labels."""
        ordinal = registry.algorithms()[self.algorithm].TRAITS.ordinal
        return Labels(getattr(self.params, "ranks")) if ordinal else Labels()  # noqa: B009

    @property
    def uses_clock(self) -> bool:
        """Whether the learner's clock matters, so that every event should have a time."""
        budgeted = self.threshold is not None and self.threshold.alerts is not None
        return self.window_seconds is not None or budgeted

    def with_changes(self, values: Any) -> Config:
        """Return the configuration with other settings of the parts that may change while the learner lives.

        `values` has some of these parts. A setting that a part omits keeps its value; but with another objective the
        omitted settings of the threshold have their defaults. Raises `InvalidInput` with every problem.
        """
        if not isinstance(values, Mapping):
            raise InvalidInput([Problem.mismatch("", values, "an object", {"type": "object"})])
        problems = Problem.all_unknown(values, CHANGEABLE, "or unchangeable setting")
        if not values:
            problems.append(Problem("", f"has nothing to change; expected some of {', '.join(CHANGEABLE)}"))
        parts: dict[str, Any] = {}
        for name in CHANGEABLE:
            if name not in values:
                continue
            present = getattr(self, name)
            if present is None:
                problems.append(Problem(f"/{name}", _for_two_classes(self.algorithm), "conflict"))
                continue
            try:
                parts[name] = _PARTS[name].of(_merged(name, values[name], present.to_json()))
            except InvalidInput as error:
                problems.extend(error.under(f"/{name}").problems)
        if not problems:
            changed = replace(self, **parts)
            problems = _violations(_CHANGEABLE_CONDITIONS, changed)
        if problems:
            raise InvalidInput(problems)
        return changed

    def objections(self, *, new: bool = False) -> list[Problem]:
        """List what should keep readable settings from being used, because events would then be refused.

        For a `new` learner also lists declarations of features without effect. Not for settings in a log: a learner
        must not be lost to an older mistake.
        """
        declared = self.features.objections() if new else []
        problems = [problem.under("/features") for problem in declared]
        return problems + _violations(_OBJECTIONS, self)

    def warnings(self) -> list[ConfigWarning]:
        """List the settings that are known to rank badly on some streams, with the reason and what to choose."""
        return [
            ConfigWarning(code, condition.pointer, detail)
            for code, condition in _WARNINGS.items()
            if (detail := condition.message(self)) is not None
        ]

    @property
    def immutable_part(self) -> Config:
        """The configuration with defaults for the parts that may change: it must equal that of a state to restore."""
        return replace(
            self,
            threshold=None if self.threshold is None else threshold.Threshold(),
            figures=MetricSettings(),
            late=LateLabels(),
        )

    @classmethod
    def of(cls, values: Any) -> Config:
        """Read parsed JSON; only `features` has no default. Raises `InvalidInput`."""
        if not isinstance(values, Mapping):
            raise InvalidInput([Problem.mismatch("", values, "an object", {"type": "object"})])
        if values.get("algorithm") is None:
            values = {**values, "algorithm": DEFAULT_ALGORITHM}
        reader = _Reader(values, tuple(cls.__annotations__))
        name, algorithm = values.get("algorithm"), reader.algorithm()
        features = reader.features()
        parts = reader.parts(algorithm, features)
        settings = reader.learner_settings(algorithm, features, parts)
        if reader.problems:
            raise InvalidInput(reader.problems)
        config = cls(algorithm=str(name), features=features, **parts, **settings)
        if problems := _violations(_CHANGEABLE_CONDITIONS, config):
            raise InvalidInput(problems)
        return config

    @classmethod
    def of_stored(cls, values: Any) -> Config:
        """Read the configuration of a log, a snapshot or an export, maybe of an earlier version. Raises `InvalidInput`.

        Settings of features, scaling and threshold that are newer than the document keep their earlier behaviour.
        """
        config = cls.of(values)
        features, objective = config.features.as_stored(values.get("features")), config.threshold
        if objective is not None:
            objective = objective.as_stored(values.get("threshold"))
        scales = config.scaling.as_stored(values.get("scaling"))
        return replace(config, features=features, scaling=scales, threshold=objective)

    def encode(self, values: Any, typed: bool = False) -> Rows:
        """Encode n events' features: `Features.encode`, with no event too long for the algorithm's buffers."""
        most = self.most_nonzero
        rows = self.features.encode(values, typed, most)
        if isinstance(rows, Sparse) and len(rows.data) > most:
            sizes = np.diff(rows.indptr)
            long = np.flatnonzero(sizes > most)[:MAX_PROBLEMS]
            if len(long):
                detail = f"expected at most {most} because {_buffered_events(self.params)} events are stored"
                raise InvalidInput([Problem(f"/{i}", f"has {sizes[i]} columns; {detail}") for i in long.tolist()])
        return rows

    @property
    def most_nonzero(self) -> int:
        """Most non-zeros of a sparse event, so that the algorithm's buffers can take it."""
        return min(MAX_NONZERO, MAX_BUFFERED // _buffered_events(self.params))

    def costs(self, values: Any) -> Vector | None:
        """Read the cost of a miss of each event, (n,), if the threshold names a field for it; see `costs_of`."""
        if self.threshold is None or self.threshold.field is None:
            return None
        return costs_of(self.features, self.threshold.field, values)

    def segment_values(self, values: Any) -> SegmentColumns | None:
        """Read the values of n events in the segment fields, if there are such fields; see `segments_of`."""
        fields = self.figures.segments
        return segments_of(self.features, fields, values) if fields else None

    def to_json(self) -> dict[str, Any]:
        """Return what `of` takes back, with every default written out."""
        return {
            name: value.to_json() if isinstance(value, Parameters) else value
            for name, value in ((name, getattr(self, name)) for name in self.__annotations__)
        }


@dataclass(frozen=True)
class LearnerSettings(Parameters):
    """The settings of the learner itself."""

    window: int = param(10_000, "labelled events in the window of the metrics", least=1, most=1_000_000)
    window_seconds: float | None = param(
        None,
        "age at which events leave the window, in seconds of the learner's clock; null: never",
        above=0,
        most=1e10,
        unit="seconds",
    )
    remembered_ids: int = param(2**20, "distinct event ids remembered to detect duplicates", least=1, most=2**26)
    refit_every: int | None = param(
        None, "batch algorithms: labelled events between fits; null: 5,000", least=1, most=10**9
    )
    refit_window: int | None = param(
        None, "batch algorithms: events retained for fits; null: 20,000, or as many as fit", least=2, most=1_000_000
    )
    seed: int = param(0, "random seed", least=0, most=2**53)
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
_BINARY_PARTS = ("calibration", "threshold")

_LEARNER_SETTINGS = tuple(LearnerSettings.__annotations__)
_REFITS = {"refit_every": 5_000, "refit_window": 20_000}
_SCALING = {"dense": "standard", "table": "standard", "named": "maxabs", "sparse": "none"}


def _for_two_classes(algorithm: Any) -> str:
    return f"is for learners of two classes; {algorithm} predicts ranks"


def _buffered_events(params: Parameters | None) -> int:
    """Return the events that an algorithm's buffers hold, per class if it separates the classes; 1 without buffers.

    Of several members: those of the largest buffers.
    """
    largest: int = getattr(params, "capacity", 1) if getattr(params, "replays", 1) else 1
    return max([largest, *(_buffered_events(member.params) for _, member in _custom_members(params))])


def _custom_members(params: Parameters | None) -> list[tuple[str, CustomMember]]:
    """Return the members that the user configures, each with its pointer."""
    members = enumerate(getattr(params, "members", ()))
    return [(f"/params/members/{i}", member) for i, member in members if isinstance(member, CustomMember)]


def _merged(name: str, changes: Any, present: dict[str, Any]) -> Any:
    """Complete changes of a part by its present settings."""
    if not isinstance(changes, Mapping):
        return changes
    if name == "threshold":
        if changes.get("objective", present["objective"]) != present["objective"]:
            return dict(changes)
        if len({"alerts", "rate"} & changes.keys()) == 1:  # a budget has one of the two: the new one
            present = {key: value for key, value in present.items() if key not in ("alerts", "rate")}
    return {**present, **changes}


@dataclass(frozen=True)
class _Parts:
    """The parts of a configuration; None: invalid, or not for this algorithm."""

    name: str
    traits: Traits
    batch: bool
    params: Parameters | None
    features: Features | None
    embedding: embedding.Embedding | None
    calibration: calibration.Calibration | None

    @property
    def embeds(self) -> bool:
        """Whether the algorithm learns behind an embedding."""
        return self.embedding is not None and self.embedding.kind != "none"

    @property
    def embeds_dense_rows(self) -> bool:
        """Whether an embedding gets dense rows that the algorithm takes in kind and number."""
        rows = self.features
        if rows is None or rows.sparse or not self.embeds:
            return False
        return self.traits.dense and rows.columns <= self.traits.max_dim


def _kind_of_rows(parts: _Parts) -> str | None:
    if parts.features is None:
        return None
    if parts.features.sparse and not parts.traits.sparse:
        other = "ranksvm" if parts.batch else "cbr-diag"
        return f"gives sparse rows, but {parts.name} takes only dense rows; use dense or table features, or {other}"
    if not parts.features.sparse and not parts.traits.dense:
        return f"gives dense rows, but {parts.name} takes only sparse rows"
    return None


def _sparse_embedding(parts: _Parts) -> str | None:
    if parts.embeds and parts.features is not None and parts.features.sparse and parts.traits.sparse:
        return "is for dense rows; use dense or table features"
    return None


def _embeddable(parts: _Parts) -> str | None:
    if not parts.embeds or parts.traits.embeds:
        return None
    return f"is not for {parts.name}, whose members take the features as they are"


def _number_of_columns(parts: _Parts) -> str | None:
    if parts.features is None or _kind_of_rows(parts) or _sparse_embedding(parts):
        return None
    if parts.features.columns <= parts.traits.max_dim:
        return None
    return f"gives {parts.features.columns} columns; {parts.name} takes at most {parts.traits.max_dim}"


def _components(parts: _Parts) -> str | None:
    if parts.embedding is None or parts.features is None or not parts.embeds_dense_rows:
        return None
    space, columns = parts.embedding, parts.features.columns
    most = min(parts.traits.max_dim, MAX_RETAINED // columns)
    if space.components <= most:
        return None
    return f"is {space.components}; expected at most {most} with {columns} columns and {parts.name}"


def _warmup(parts: _Parts) -> str | None:
    if parts.embedding is None or parts.features is None or not parts.embeds_dense_rows:
        return None
    space, columns = parts.embedding, parts.features.columns
    most = MAX_RETAINED // max(columns, space.components)
    if space.warmup <= most:
        return None
    return f"is {space.warmup}; expected at most {most} with {columns} columns and {space.components} components"


def _without_embedding(name: str, default: Any, parts: _Parts) -> str | None:
    if parts.embedding is None or parts.embeds or getattr(parts.embedding, name) == default:
        return None
    return "is for an embedding, but its kind is none"


def _buffer(parts: _Parts) -> str | None:
    if parts.features is None or parts.features.sparse:
        return None
    capacity = _buffered_events(parts.params)
    components = parts.embedding.components if parts.embedding is not None and parts.embeds else 0
    columns = max(parts.features.columns, components)
    if capacity * columns <= MAX_BUFFERED:
        return None
    return f"is {capacity}; expected at most {MAX_BUFFERED // columns} with {columns} columns"


def _planes(parts: _Parts) -> str | None:
    ranks, features = getattr(parts.params, "ranks", 1), parts.features
    if features is None or ranks * features.columns <= MAX_PLANES:
        return None
    return f"is {ranks}; expected at most {MAX_PLANES // features.columns} with {features.columns} columns"


def _members(parts: _Parts) -> str | None:
    if parts.features is None or not parts.features.sparse or getattr(parts.params, "members", None) != ("loam-ada",):
        return None
    return "has only loam-ada, which takes dense rows; add another model"


def _posterior(parts: _Parts) -> str | None:
    if parts.calibration is None or parts.calibration.kind not in ("posterior", "logistic") or parts.traits.posterior:
        return None
    return f"is {parts.calibration.kind}, but the score of {parts.name} is not a log-odds"


_PART_CONDITIONS: tuple[Condition[_Parts], ...] = (
    Condition("/features/kind", _kind_of_rows),
    Condition("/embedding/kind", _sparse_embedding),
    Condition("/embedding/kind", _embeddable),
    Condition("/features", _number_of_columns),
    Condition("/embedding/components", _components),
    Condition("/embedding/warmup", _warmup),
    *(
        Condition(f"/embedding/{name}", partial(_without_embedding, name, default))
        for name, default in embedding.Embedding().to_json().items()
    ),
    Condition("/params/capacity", _buffer),
    Condition("/params/ranks", _planes),
    Condition("/params/members", _members),
    Condition("/calibration/kind", _posterior),
)


def _embeddings_together(spaces: list[embedding.Embedding], features: Features | None) -> list[Problem]:
    """Return what is wrong with the embeddings of all custom members, which one fit makes and one record holds."""
    if features is None or features.sparse:
        return []
    components = [space.components for space in spaces if space.kind != "none"]
    most = MAX_RETAINED // features.columns
    if len(components) < 2 or sum(components) <= most:
        return []
    detail = f"have embeddings of {sum(components)} components together; expected at most {most} with "
    return [Problem("/params/members", f"{detail}{features.columns} columns", "conflict")]


def _member_violations(pointer: str, member: CustomMember, features: Features | None) -> Iterator[Problem]:
    """Yield the conditions of a learner's parts that a member does not meet, from its own pointer on."""
    traits = member.module.TRAITS
    parts = _Parts(member.algorithm, traits, member.batch, member.params, features, member.embedding, None)
    for problem in _violations(_PART_CONDITIONS, parts):
        if problem.pointer.startswith("/features"):  # for the whole learner, so the member is what must change
            detail = f"conflicts with {problem.pointer}, which {problem.detail}"
            yield problem._replace(pointer=f"{pointer}/algorithm", detail=detail)
        else:
            yield problem.under(pointer)


def _expiry_of_ranks(config: Config) -> str | None:
    if config.late.unlabelled != "negative" or config.labels.ranks is None:
        return None
    return "is negative, but the labels are ranks"


def _ids_for_expiry(config: Config) -> str | None:
    if config.late.unlabelled != "negative" or config.remembered_ids >= LEAST_IDS:
        return None
    return f"is negative, which needs remembered_ids of at least {LEAST_IDS}; it is {config.remembered_ids}"


def _cost_field(check: Callable[[Features, str], str | None], config: Config) -> str | None:
    if config.threshold is None or config.threshold.field is None:
        return None
    return check(config.features, config.threshold.field)


def _segment_fields(config: Config) -> str | None:
    fields = config.figures.segments
    if fields and config.labels.ranks is not None:
        return _for_two_classes(config.algorithm)
    return next((detail for field in fields if (detail := segment_misfit(config.features, field))), None)


_CHANGEABLE_CONDITIONS: tuple[Condition[Config], ...] = (  # between the parts that may change and the others
    Condition("/late/unlabelled", _expiry_of_ranks),
    Condition("/late/unlabelled", _ids_for_expiry),
    Condition("/threshold/field", partial(_cost_field, misfit)),
    Condition("/figures/segments", _segment_fields),
)
_OBJECTIONS: tuple[Condition[Config], ...] = (Condition("/threshold/field", partial(_cost_field, futile)),)


def _few_positives(config: Config) -> str | None:
    if config.algorithm != "nsauc":
        return None
    return (
        "is nsauc, whose steps shrink from the first pair on: if few positives come early, they set its direction, "
        "and it may rank worse than chance; choose auto, unless classes are balanced"
    )


def _text(config: Config) -> str | None:
    if config.algorithm != "loam-ada" or not isinstance(config.features, Named) or not config.features.text:
        return None
    return (
        f"declares text ({', '.join(config.features.text)}), but loam-ada compares means of classes, which say little "
        "of rare words; choose auto, or fofo for the lowest cost"
    )


def _moving_base_rate(config: Config) -> str | None:
    if config.algorithm != "cbr":
        return None
    return (
        "is cbr, whose score has no intercept: if the share of positives moves, scores of different times do not "
        "compare, and it may rank worse than chance; choose auto, unless the share is steady"
    )


_WARNINGS: dict[Literal["few-positives", "text", "moving-base-rate"], Condition[Config]] = {
    "few-positives": Condition("/algorithm", _few_positives),
    "text": Condition("/features/text", _text),
    "moving-base-rate": Condition("/algorithm", _moving_base_rate),
}


class _Reader:
    """Reads the parts of a configuration from JSON, and collects every problem."""

    def __init__(self, values: Mapping[str, Any], settings: tuple[str, ...]) -> None:
        self.values = values
        self.problems = Problem.all_unknown(values, settings)

    def algorithm(self) -> Algorithm | None:
        """Look the algorithm up."""
        name = self.values.get("algorithm")
        algorithm = registry.algorithms().get(name) if isinstance(name, str) else None
        if algorithm is None:
            problem = Problem.choice("/algorithm", self.values.get("algorithm", ABSENT), registry.algorithms())
            self.problems.append(problem)
        return algorithm

    def features(self) -> Any:
        """Read the features; None if they are invalid."""
        if "features" in self.values:
            return self._part("features", read_features)
        words = f"an object with a kind: {', '.join(FEATURE_KINDS)}"
        expected = {"type": "object", "properties": {"kind": {"enum": list(FEATURE_KINDS)}}, "required": ["kind"]}
        self.problems.append(Problem.mismatch("/features", ABSENT, words, expected))
        return None

    def parts(self, algorithm: Algorithm | None, features: Features | None) -> dict[str, Any]:
        """Read the other parts and the algorithm's parameters, and check that they go together."""
        name, traits = self.values.get("algorithm"), Traits() if algorithm is None else algorithm.TRAITS
        usual: dict[str, dict[str, Any]] = {
            "scaling": _default_scaling(traits, features, self.values.get("scaling")),
            "embedding": {"kind": "none"},
            "calibration": {"kind": "posterior" if traits.posterior else "platt"},
            "threshold": {"objective": "f1" if traits.posterior else "f1-window"},
            "figures": {},
            "late": {},
        }
        parts: dict[str, Any] = {}
        for key, kind in _PARTS.items():
            if traits.ordinal and key in _BINARY_PARTS:
                parts[key] = None
                if self.values.get(key) is not None:
                    self.problems.append(Problem(f"/{key}", _for_two_classes(name), "conflict"))
                continue
            special = {} if key == "scaling" else traits.defaults.get(key, {})
            parts[key] = self._part(key, kind.of, {**usual[key], **special})
        if algorithm is not None:
            parts["params"] = self._part("params", algorithm.Params.of, {})
            subject = _Parts(
                str(name),
                traits,
                hasattr(algorithm, "fit"),
                parts["params"],
                features,
                parts["embedding"],
                parts["calibration"],
            )
            self.problems += _violations(_PART_CONDITIONS, subject)
            members = _custom_members(parts["params"])
            for pointer, member in members:
                self.problems += _member_violations(pointer, member, features)
            self.problems += _embeddings_together([member.embedding for _, member in members], features)
        return parts

    def _part(self, name: str, read: Callable[[Any], Any], default: Mapping[str, Any] | None = None) -> Any:
        """Read a part, completed by its default; None if it is invalid."""
        value = self.values.get(name)
        if default is not None:
            if name == "threshold" and isinstance(value, Mapping) and "objective" in value:
                default = {}  # the algorithm's defaults are for another objective
            value = completed(value, default, "kind" if name == "embedding" else None)
        try:
            return read(value)
        except InvalidInput as error:
            self.problems.extend(error.under(f"/{name}").problems)
            return None

    def learner_settings(
        self, algorithm: Algorithm | None, features: Features | None, parts: dict[str, Any]
    ) -> dict[str, Any]:
        """Read the settings of the learner itself, with the defaults of a batch algorithm."""
        space: embedding.Embedding | None = parts["embedding"]
        try:
            choices = {key: self.values[key] for key in _LEARNER_SETTINGS if self.values.get(key) is not None}
            settings = LearnerSettings.of(choices).to_json()
        except InvalidInput as error:
            self.problems += error.problems
            return {}
        if algorithm is None or features is None:
            return settings
        if not hasattr(algorithm, "fit") or not getattr(parts["params"], "fits", True):
            detail = f"is for batch algorithms; {self.values.get('algorithm')} learns from each event"
            detail += " with these params" * hasattr(algorithm, "fit")
            self.problems += [Problem(f"/{key}", detail, "conflict") for key in _REFITS if settings[key] is not None]
            return settings
        members = [(pointer, member) for pointer, member in _custom_members(parts["params"]) if member.embeds]
        spaces = [member.embedding for _, member in members]
        if space is not None and space.kind != "none":
            spaces.append(space)
        widest = max([features.columns, *(item.components for item in spaces)])
        most = MAX_RETAINED if features.sparse else MAX_RETAINED // widest
        usual = {**_REFITS, **algorithm.TRAITS.defaults.get("learner", {})}
        if settings["refit_every"] is None:
            settings["refit_every"] = usual["refit_every"]
        if settings["refit_window"] is None:
            settings["refit_window"] = max(2, min(usual["refit_window"], most))
        elif settings["refit_window"] > most:
            detail = f"is {settings['refit_window']}; expected at most {most} with {widest} columns or components"
            self.problems.append(Problem("/refit_window", detail))
        for pointer, member in members:
            if member.embedding.warmup > settings["refit_window"]:
                detail = f"is {member.embedding.warmup}; expected at most refit_window, {settings['refit_window']}"
                self.problems.append(Problem(f"{pointer}/embedding/warmup", detail, "conflict"))
        return settings


def _default_scaling(traits: Traits, features: Features | None, value: Any) -> dict[str, Any]:
    """Return the default of the scaling; empty if its kind is chosen."""
    if features is None or (isinstance(value, Mapping) and "kind" in value):
        return {}
    if features.KIND == "named" and traits.posterior:
        # a log-odds learns a rare category (a customer, a terminal) only if that weighs more
        return {"kind": "standard", "clip": traits.named_clip}
    return dict(traits.defaults.get("scaling", {"kind": _SCALING[features.KIND]}))
