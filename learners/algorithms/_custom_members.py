"""Members of an ensemble that the user configures: an algorithm for two classes, its parameters, maybe an embedding.

An algorithm that learns from each event does so here, too. Batch algorithms and embeddings are fitted with the fits of
the ensemble, to the events that it retains. Until then such a member has arrays without columns, and never scores.

    embedding   fitted to the last `warmup` of the retained events, once there are so many. An algorithm that learns
                from each event starts behind it, and keeps it; a batch algorithm gets a new one with each fit
    batch       fitted to all retained events, anew each time

A score beyond 1e100 counts as 1e100, and one that overflowed to no number as 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from learners.algorithms import registry
from learners.algorithms._trees import Trees, tree_scores
from learners.algorithms.base import Linear, Size, initial, linear_scores
from learners.features import EmbeddingState
from learners.features import kernel_approximation as embedding
from learners.numerics import Issues, Matrix, Precision, Rows, Sparse, Vector, length
from learners.settings import ABSENT, InvalidInput, Parameters, Problem, completed, param, required, show

__all__ = [
    "CustomMember",
    "CustomModel",
    "CustomState",
    "custom_scores",
    "named_members",
    "single_scores",
]

_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_LARGEST = 1e100
_CHUNK = 2**22  # numbers of embedded rows at once: bounds temporary arrays, without effect on results


@dataclass(frozen=True)
class CustomMember(Parameters):
    """Settings of a member that the user configures."""

    algorithm: str = required("an algorithm for two classes, but not auto")
    params: Parameters = required("its parameters")  # noqa: RUF009 - a field is immutable
    embedding: embedding.Embedding = param(embedding.Embedding(), "nonlinear features for this member")  # noqa: RUF009
    name: str = param("", "of the member; default: the algorithm's, with a number from the second on")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> CustomMember:
        """Read parsed JSON, as the parts of a learner are read. Raises `InvalidInput` with every problem."""
        if not isinstance(values, Mapping):
            raise InvalidInput([Problem.mismatch("", values, "an object", {"type": "object"})])
        problems = Problem.all_unknown(values, tuple(cls.__annotations__))
        algorithm = values.get("algorithm", ABSENT)
        module: Any = _candidates().get(algorithm) if isinstance(algorithm, str) else None
        if module is None:
            problems.append(_unsuitable(algorithm))
        parts: dict[str, Any] = {}
        usual = {"kind": "none", **(module.TRAITS.defaults.get("embedding", {}) if module else {})}
        readers: dict[str, tuple[Any, Any]] = {
            "embedding": (embedding.Embedding.of, completed(values.get("embedding"), usual, "kind"))
        }
        if module is not None:
            params = values.get("params")
            readers["params"] = module.Params.of, {} if params is None else params
        for key, (read, part) in readers.items():
            try:
                parts[key] = read(part)
            except InvalidInput as error:
                problems += error.under(f"/{key}").problems
        name = "" if values.get("name") is None else values["name"]
        if name != "" and not (isinstance(name, str) and re.fullmatch(_NAME, name)):
            words = "1 to 64 letters, digits, dots, hyphens and underscores, a letter or digit first"
            problems.append(Problem.mismatch("/name", name, words, {"type": "string", "pattern": f"^{_NAME}$"}))
        if problems:
            raise InvalidInput(problems)
        return cls(algorithm=str(algorithm), name=name, **parts)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema."""
        body = super().schema()
        body["properties"]["algorithm"]["enum"] = list(_candidates())
        body["properties"]["params"] = {
            "type": "object",
            "description": "its parameters, as of a learner",
            "default": {},
        }
        body["properties"]["name"]["pattern"] = f"^({_NAME})?$"
        return {**body, "required": ["algorithm"]}

    @cached_property
    def module(self) -> Any:
        """The algorithm."""
        return registry.algorithms()[self.algorithm]

    @property
    def embeds(self) -> bool:
        """Whether it learns behind an embedding."""
        return self.embedding.kind != "none"

    @property
    def batch(self) -> bool:
        """Whether the algorithm is fitted instead of learning from each event."""
        return not hasattr(self.module, "learn")

    @property
    def fits(self) -> bool:
        """Whether anything is fitted."""
        return self.batch or self.embeds

    @property
    def kind(self) -> str:
        """What it is, in words."""
        return f"custom {self.algorithm}" + f" behind {self.embedding.kind}" * self.embeds

    @property
    def parts(self) -> dict[str, Any]:
        """The types of its parts of a state, by the end of their names."""
        return {"": self.module.State, **({"_embedding": EmbeddingState} if self.embeds else {})}

    @property
    def fitted_parts(self) -> dict[str, Any]:
        """Those parts that a fit makes."""
        return {end: kind for end, kind in self.parts.items() if end or self.batch}

    @property
    def halved(self) -> list[str]:
        """Arrays that precision "float32" stores as float32, by the end of their names."""
        names = [f"_{name}" for name in self.module.TRAITS.halved]
        return names + [f"_embedding_{name}" for name in embedding.HALVED if self.embeds]

    # State

    def init(self, dim: int, seed: int) -> CustomState:
        """Return the state before any event."""
        model = self.module.init(self.params, 0 if self.fits else dim, seed)
        return CustomState(model, embedding.init(self.embedding) if self.embeds else None)

    def grow(self, state: CustomState, dim: int) -> CustomState:
        """Return the state with `dim` columns, of sparse rows."""
        if self.fits and not self.is_ready(state):
            return state
        return state._replace(model=self.module.grow(self.params, state.model, dim))

    def is_ready(self, state: CustomState) -> bool:
        """Return whether the member scores: from the first event, or from its first fit on."""
        if not self.fits:
            return True
        if not self.batch:
            return state.space is not None and embedding.columns(state.space) > 0
        model = self.module.weights(self.params, state.model)
        return len(model.starts if isinstance(model, Trees) else model.w) > 0

    def learn(self, state: CustomState, rows: Rows, y: Vector, weight: Vector, scores: Vector) -> CustomState:
        """Score each row, then learn from it, in order; fill `scores` (n,), which are 0 until the member is ready."""
        if not self.is_ready(state):
            return state
        if self.batch:
            scores[:] = custom_scores(self.model(state), rows)
            return state
        model = state.model
        for cut, part in _embedded(self.embedding, state.space, rows):
            model = self.module.learn(self.params, model, part, y[cut], weight[cut], scores[cut])
        _bound(scores)
        return state._replace(model=model)

    def fit(self, before: CustomState, rows: Rows, dim: int, y: Vector, weight: Vector, seed: int) -> CustomState:
        """Fit what is due to n rows (n, dim); return arrays without columns for what is not.

        `before` is the state of the last fit. Raises ValueError if these events cannot be fitted.
        """
        state = self.init(dim, seed)
        if self.embeds:
            assert not isinstance(rows, Sparse)
            assert before.space is not None
            is_final = not self.batch and embedding.columns(before.space) > 0
            if is_final or len(rows) < self.embedding.warmup:
                return state
            space = embedding.fit(self.embedding, rows[-self.embedding.warmup :], seed, _precision(before.space))
            state = state._replace(space=space)
            rows, dim = embedding.transform(self.embedding, space, rows), embedding.columns(space)
        if not self.batch:
            return state
        try:
            return state._replace(model=self.module.fit(self.params, rows, dim, y, weight, seed))
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error

    def adopt(self, state: CustomState, fitted: CustomState, dim: int, seed: int) -> CustomState:
        """Return the state of `dim` columns with what a fit made, which may have fewer columns."""
        if self.batch:
            if not self.is_ready(fitted):
                return state
            few = not self.embeds and self._columns(fitted) < dim
            return self.grow(fitted, dim) if few else fitted
        space = fitted.space
        if space is None or self.is_ready(state) or not embedding.columns(space):
            return state
        model = initial(self.module, self.params, embedding.columns(space), seed, _precision(space))
        return CustomState(model, space)

    def model(self, state: CustomState) -> CustomModel:
        """Return what scores events: views."""
        return CustomModel(
            self.name, self.kind, self.embedding, state.space, self.module.weights(self.params, state.model)
        )

    def _columns(self, state: CustomState) -> int:
        """Return the columns of a batch algorithm's model."""
        model = self.module.weights(self.params, state.model)
        return len(model.gain if isinstance(model, Trees) else model.w)

    def problems(self, state: CustomState, dim: int, sparse: bool) -> Issues:
        """Find what no events of `dim` columns, and no fit, lead to; `model` may be None, if only a space was fitted.

        The caller has checked dtypes and numbers of axes.
        """
        columns, wrong = dim, False
        if state.space is not None:
            columns = embedding.columns(state.space)
            for name, shape in embedding.shapes(state.space, dim).items():
                if (actual := getattr(state.space, name).shape) != shape:
                    wrong = True
                    yield f"embedding_{name}", f"has shape {actual}; expected {shape}"
            if columns > self.embedding.components:
                wrong = True
                yield "embedding_projection", f"has more columns than the {self.embedding.components} components"
        if wrong or state.model is None:
            return
        if self.batch and state.space is None and not self.is_ready(state):
            columns = 0
        for name, like in self.module.init(self.params, columns, 0)._asdict().items():
            actual = getattr(state.model, name).shape
            # an axis that is empty at the start may be longer later
            if any(have != want for have, want in zip(actual, like.shape, strict=True) if want or not columns):
                wrong = True
                yield name, f"has shape {actual}; expected {like.shape}"
        if not wrong and hasattr(self.module, "problems"):
            yield from self.module.problems(self.params, state.model, sparse)

    def nanoseconds(self, size: Size) -> float:
        """Estimate the cost of an event."""
        total = 0.0
        if self.embeds:
            total = embedding.nanoseconds(self.embedding, size.dim)
            size = Size(self.embedding.components, self.embedding.components, sparse=False)
        return total + float(self.module.TRAITS.cost.nanoseconds(self.params, size))


class CustomState(NamedTuple):
    """Arrays of a member."""

    model: Any  # of the algorithm
    space: EmbeddingState | None  # None: the algorithm takes the rows as they are


class CustomModel(NamedTuple):
    """What scores events for a member."""

    name: str
    kind: str
    embedding: embedding.Embedding
    space: EmbeddingState | None  # never changes in place
    model: Linear | Trees


def named_members(members: Sequence[Any], reserved: Sequence[str]) -> tuple[Any, ...]:
    """Name the members without a name, and those that are a string by themselves. Raises `InvalidInput`.

    A member that the user configures is called as its algorithm, with the first number that is free from the second
    on. No name is that of another member, or among the reserved.
    """
    uses = dict.fromkeys(reserved, "which is reserved")
    problems = []
    for i, member in enumerate(members):
        name = member.name if isinstance(member, CustomMember) else member
        if not name:
            continue
        if name in uses:
            at = "/name" * isinstance(member, CustomMember)
            problems.append(Problem(f"/members/{i}{at}", f"is {show(name)}, {uses[name]}"))
        uses[name] = "which is listed twice"
    if problems:
        raise InvalidInput(problems)
    named = []
    for member in members:
        if isinstance(member, CustomMember) and not member.name:
            name, number = member.algorithm, 1
            while name in uses:
                number += 1
                name = f"{member.algorithm}-{number}"
            uses[name] = ""
            member = replace(member, name=name)
        named.append(member)
    return tuple(named)


def single_scores(model: Linear | Trees, rows: Rows) -> Matrix:
    """Score each row by one model: (n,), or (n, k) for k planes."""
    return linear_scores(model, rows) if isinstance(model, Linear) else tree_scores(model, rows)


def custom_scores(custom: CustomModel, rows: Rows) -> Vector:
    """Score each row by a member that is ready, (n,)."""
    scores = np.empty(length(rows))
    for cut, part in _embedded(custom.embedding, custom.space, rows):
        scores[cut] = single_scores(custom.model, part)
    _bound(scores)
    return scores


def _embedded(settings: embedding.Embedding, space: EmbeddingState | None, rows: Rows) -> Iterator[tuple[slice, Rows]]:
    """Yield the rows as the algorithm takes them, in pieces."""
    if space is None:
        yield slice(None), rows
        return
    assert not isinstance(rows, Sparse)
    step = max(1, _CHUNK // max(1, embedding.columns(space)))
    for start in range(0, len(rows), step):
        cut = slice(start, start + step)
        yield cut, embedding.transform(settings, space, rows[cut])


def _bound(scores: Vector) -> None:
    np.nan_to_num(scores, copy=False, nan=0.0, posinf=_LARGEST, neginf=-_LARGEST)
    np.clip(scores, -_LARGEST, _LARGEST, out=scores)


def _precision(space: EmbeddingState) -> Precision:
    return "float32" if space.landmarks.dtype == np.float32 else "float64"


def _candidates() -> dict[str, Any]:
    """Return the algorithms that may be members, by name."""
    return {
        name: module
        for name, module in registry.algorithms().items()
        if module.TRAITS.embeds and not module.TRAITS.ordinal
    }


def _unsuitable(name: Any) -> Problem:
    """Report an algorithm that is unknown, or cannot be a member."""
    module = registry.algorithms().get(name) if isinstance(name, str) else None
    candidates = list(_candidates())
    if module is None:
        return Problem.choice("/algorithm", name, candidates)
    why = "predicts ranks" if module.TRAITS.ordinal else "is a combination of members itself"
    detail = f"is {name}, which {why}; expected one of {', '.join(candidates)}"
    return Problem("/algorithm", detail, "invalid", name, {"enum": candidates})
