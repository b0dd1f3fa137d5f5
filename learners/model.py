"""Model of a learner: from encoded events to the values of its algorithm, with the fits that it needs.

    encoded rows -> learner's columns -> scaling -> embedding -> algorithm -> values

Two things are fitted instead of learnt event by event: an embedding, once, over the events of the warm-up; and the
model of a batch algorithm, every `refit_every` events. Events are retained for it before scaling, and `fit_due` reports
when a fit is due. The result is a record of the learner's log (`FitResult`). So a fit may run on a thread, and may use
libraries whose last bits differ between machines: every node and every replay still has the same state.

Before its embedding is fitted, an online algorithm learns a linear model of the scaled columns. Then it starts again
behind the embedding, and learns the retained events first. A batch algorithm scores every event 0 before its first fit.
An algorithm may also learn from each event and fit a part of its state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from learners.algorithms import Linear, OnlineAlgorithm, ScoringModel, initial, model_scores, registry, traits_of
from learners.config import MAX_RETAINED, Config
from learners.features import EventWindow, columns_of, scaling
from learners.features import kernel_approximation as embedding
from learners.numerics import Matrix, Rows, Sparse, Vector, number, stored
from learners.records import FitResult, LabelledBatch, slice_rows
from learners.settings import InvalidInput, Problem
from learners.state_checks import check_values

__all__ = ["Arrays", "FitJob", "Model", "check_arrays", "check_shapes", "copied"]

Arrays = Mapping[str, NDArray[np.generic]]

CHUNK_NUMBERS = 2**22  # of dense rows in one call of each stage
_MOST_ROWS = 2**62
_OVERTIME = 100_000  # events retained beyond the warm-up: a fit follows the record that completes it
_NEVER = 2**62


@dataclass(frozen=True)
class FitJob:
    """The input of a fit: copies, so that the learner may move on meanwhile."""

    config: Config
    events: int  # learnt so far
    restores: int  # rollbacks so far: a fit from before a rollback is void after it
    rows: Rows  # scaled
    dim: int
    y: Vector
    weights: Vector
    before: Arrays  # those of an earlier fit, if the algorithm also learns from each event

    def run(self) -> FitResult:
        """Run the fit. Raises ValueError if these events cannot be fitted."""
        config = self.config
        arrays: dict[str, NDArray[np.generic]] = {}
        rows, dim = self.rows, self.dim
        if config.embedding.kind != "none":
            assert not isinstance(rows, Sparse)
            space = embedding.fit(config.embedding, rows, config.seed, config.precision)
            arrays |= {f"embedding.{name}": array for name, array in space._asdict().items()}
            rows = embedding.transform(config.embedding, space, rows)
            dim = embedding.columns(space)
        algorithm: Any = registry.algorithms()[config.algorithm]
        if config.batch:
            traits = traits_of(algorithm, config.params)
            before = (self.before,) if traits.fitted else ()
            model = algorithm.fit(config.params, rows, dim, self.y, self.weights, config.seed, *before)
            halved = [name for name in traits.halved if name in model._fields]
            model = stored(config.precision, model, halved)
            arrays |= {f"algorithm.{name}": array for name, array in model._asdict().items()}
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise ValueError(f"the fit gave numbers in {name} that are not finite")
        return FitResult(self.events, self.restores, self.dim, arrays)


class Model:
    """Columns, scaling, embedding and algorithm of one learner, moved forward in the order of its log."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._algorithm: Any = registry.algorithms()[config.algorithm]
        self._traits = traits_of(self._algorithm, config.params)
        self._batch = config.batch  # the algorithm is fitted
        self._online = hasattr(self._algorithm, "learn")
        self._ordinal = config.labels.ranks is not None
        self._embeds = config.embedding.kind != "none"
        self.columns = columns_of(config.features, config.input_precision)
        self.scaled = self.columns.scaled()
        self.dim = self.columns.dim
        self.scaling = scaling.init(config.scaling, self.dim)
        self._embedding = embedding.init(config.embedding, config.precision)
        dim = None if config.features.sparse else self.dim
        self._retained = EventWindow(*_retention(config), dim, number(config.precision))
        fitted = self.fits
        # events at the last fit, number of fits, events when the retained events were replaced; empty without fits
        self._fits = np.zeros(3 if fitted else 0, dtype=np.int64)
        self._restores = np.zeros(1 if fitted else 0, dtype=np.int64)  # rollbacks: a fit from before one is void
        self._model = self._initial(self.dim)
        self._postponed_until = 0  # events: after a failed fit, the next is not tried before

    def _initial(self, dim: int) -> Any:
        """Return the algorithm's state of `dim` columns before any event."""
        config = self.config
        return initial(self._algorithm, config.params, dim, config.seed, config.precision)

    # Learning

    def learn(self, rows: Rows, y: Vector, weights: Vector, *, relearning: bool = False) -> Matrix:
        """Learn n events; return their values, (n,) or (n, planes), each from before it was learnt.

        Events that are learnt again (`relearning`) are not retained: the retained events are the last of the stream,
        without a gap.
        """
        mapped = self.columns.learn(rows, relearning)
        self._grow()
        ready = scaling.learn(self.config.scaling, self.scaling, mapped, self.scaled)
        if (self._batch or self.warming) and not relearning:
            self._retained.learn(mapped, y, weights)
        return self._advance(self._embedded(ready), y, weights)

    def _advance(self, rows: Rows, y: Vector, weights: Vector) -> Matrix:
        """Let the algorithm learn rows; return their values from before."""
        if not self._online:
            return model_scores(self.weights(), rows)
        planes = cast(Linear, self.weights()).bias.shape if self._ordinal else ()
        values = np.empty((len(y), *planes))
        learn = cast(OnlineAlgorithm, self._algorithm).learn
        self._model = learn(self.config.params, self._model, rows, y, weights, values)
        return values

    def _embedded(self, rows: Rows) -> Rows:
        """Return scaled rows as the algorithm takes them."""
        space = self.embedding
        if space is None:
            return rows
        assert not isinstance(rows, Sparse)
        return embedding.transform(self.config.embedding, space, rows)

    def _grow(self) -> None:
        """Lengthen the arrays of scaling and algorithm to the present columns."""
        if self.columns.dim > self.dim:
            self.dim = self.columns.dim
            self.scaling = scaling.extend(self.config.scaling, self.scaling, self.dim)
            self._model = self._algorithm.grow(self.config.params, self._model, self.dim)

    # Reading

    def weights(self) -> ScoringModel:
        """Return what scoring needs of the algorithm: views, right until the next `learn` or `apply_fit`."""
        weights: ScoringModel = self._algorithm.weights(self.config.params, self._model)
        return weights

    @property
    def embedding(self) -> embedding.EmbeddingState | None:
        """The fitted embedding, which never changes in place; None before its fit."""
        return self._embedding if self._embeds and embedding.columns(self._embedding) else None

    @property
    def fits(self) -> bool:
        """Whether anything is fitted, once or repeatedly."""
        return self._batch or self._embeds

    @property
    def fitted_events(self) -> int | None:
        """Events learnt when the last fit took its data, 0 before the first; None if nothing is fitted."""
        return int(self._fits[0]) if len(self._fits) else None

    @property
    def has_model(self) -> bool:
        """Whether there is a model: an algorithm that does not learn from each event has one after its first fit."""
        return self._online or bool(self._fits[1])

    def pending_fit(self, events: int) -> str | None:
        """Return why scores are meaningless before a fit, after so many events; None if they have a meaning."""
        if self.warming:
            return f"the embedding is fitted after {self.config.embedding.warmup:,} labelled events; linear until then"
        if self.has_model:
            return None
        if self.events_until_due(events) > 0:
            return f"the first fit comes after {self._interval:,} labelled events"
        if not self.fit_due(events):
            return f"the first fit waits for two classes: the last {len(self._retained):,} events have one"
        return "the first fit is due, and will run soon"

    # Fits

    @property
    def _interval(self) -> int:
        """Labelled events between the last fit of a batch algorithm, or the first event, and the next fit."""
        every, first = self.config.refit_every, self._traits.first_fit
        assert every is not None
        return every if first is None else min(every, max(first, int(self._fits[0]) // 4))

    @property
    def warming(self) -> bool:
        """Whether an online algorithm waits for its embedding."""
        return self._embeds and not self._batch and self.embedding is None

    def fit_due(self, events: int) -> bool:
        """Return whether a fit is due after so many events."""
        if self.events_until_due(events) > 0:
            return False
        if self.warming:
            return True
        counts = np.unique(self._retained.labels()[self._retained.weights() > 0], return_counts=True)[1]
        return len(counts) > 1 and bool(counts.min() >= self._traits.of_each)

    def events_until_due(self, events: int) -> int:
        """Return the events until a fit may be due; at most 0 if it waits only for labels of a rare class."""
        if self.warming:
            return max(self.config.embedding.warmup - len(self._retained), self._postponed_until - events)
        if self.config.refit_every is None:
            return _NEVER
        return max(int(self._fits[0]) + self._interval, self._postponed_until) - events

    def events_until_fit(self, batch: LabelledBatch, events: int) -> int:
        """Return how many of a batch's events, at least 1, can be learnt before a fit may be due."""
        until = self.events_until_due(events)
        if until > 0:
            return until
        if batch.weights is not None or not self._retained.weights().all():
            return 1  # events of weight 0 do not count
        labels, counts = np.unique(self._retained.labels(), return_counts=True)
        needed = max(self._traits.of_each - (int(counts.sum()) - int(counts.max())), 1)
        others = np.flatnonzero(batch.labels != labels[counts.argmax()])
        return int(others[needed - 1]) + 1 if len(others) >= needed else max(len(batch), 1)

    def relabel(self, number: int, label: float, events: int) -> bool:
        """Correct the label of event `number` of `events`; return False if the event must be learnt again.

        A batch algorithm follows with its next fit; an event that is no longer retained has no part in it. Before the
        fit of an embedding the retained event is corrected, because all retained events are learnt again.
        """
        if not (self._batch or self.warming):
            return False
        retained = number >= self._fits[2] and self._retained.relabel(events - 1 - number, label)
        return not self._online or (retained and not self._batch)

    def retain(self, rows: Rows, y: Vector, weights: Vector, events: int) -> None:
        """Replace the retained events by these, and extend columns and scaling by them."""
        self._retained.clear()
        self._fits[2] = events
        mapped = self.columns.learn(rows)
        self.columns.take_blocks()  # these events have no part in the metrics, so they raise no alarm
        self._grow()
        scaling.learn(self.config.scaling, self.scaling, mapped, self.scaled)
        self._retained.learn(mapped, y, weights)

    def fit_job(self, events: int) -> FitJob:
        """Copy the retained events into a job. O(retained numbers)."""
        mapped = self._retained.rows()
        rows = scaling.transform(self.config.scaling, self.scaling, mapped, self.scaled)
        if isinstance(rows, Sparse):
            rows = Sparse(rows.data.copy(), rows.indices.copy(), rows.indptr.copy())
        y, weights = self._retained.labels().copy(), self._retained.weights().copy()
        before = _group("algorithm", self._fitted(self._model)) if self._traits.fitted else {}
        return FitJob(self.config, events, int(self._restores[0]), rows, self.dim, y, weights, before)

    def postpone_fit(self, events: int) -> None:
        """Postpone the next fit after a failure, by as many events as a fit waits for."""
        self._postponed_until = events + (self._interval if self._batch else self.config.embedding.warmup)

    def accepts(self, fitted: FitResult, events: int) -> bool:
        """Return whether a fit is for the present state, and not applied or outdated.

        Raises `InvalidInput` for a fit of another kind of learner.
        """
        expected = _flat("embedding", self._embedding) if self._embeds else {}
        if self._batch:
            expected |= self._fitted(self._model)
        check_arrays(fitted.arrays, expected)
        if not expected or fitted.restores != self._restores[0] or fitted.events > events:
            return False
        is_due = fitted.events - int(self._fits[0]) >= self._interval if self._batch else self.warming
        if is_due:
            # an axis of an algorithm's array that starts empty has the length that the fit gives it
            check_shapes(fitted.arrays, self._shapes(fitted), grows="algorithm.")
            check_values(self.config, fitted.arrays)
        return is_due

    def _shapes(self, fitted: FitResult) -> dict[str, tuple[int, ...]]:
        """Return the shapes that the arrays of a fit must have."""
        shapes: dict[str, tuple[int, ...]] = {}
        dim = min(fitted.dim, self.dim)
        if self._embeds:
            space = embedding.EmbeddingState(**_group("embedding", fitted.arrays))  # type: ignore[arg-type]
            shapes = {f"embedding.{name}": shape for name, shape in embedding.shapes(space, dim).items()}
            dim = embedding.columns(space)
        if self._batch:
            like = self._initial(dim)
            shapes |= {name: array.shape for name, array in self._fitted(like).items()}
        return shapes

    def _fitted(self, state: Any) -> dict[str, NDArray[np.generic]]:
        """Return the arrays of an algorithm's state that a fit makes."""
        arrays = _flat("algorithm", state)
        names = self._traits.fitted
        return {name: arrays[name] for name in (f"algorithm.{field}" for field in names)} if names else arrays

    def apply_fit(self, fitted: FitResult) -> Iterator[tuple[Matrix, Vector]]:
        """Switch to a fit; the caller must exhaust this iterator.

        If the scores are now of another model, the decision must restart. Then yields values and labels of the retained
        events in parts, the values from before each event was learnt.
        """
        config = self.config
        first = not self._fits[1]
        self._fits[0] = fitted.events
        self._fits[1] += 1
        if self._embeds:
            self._embedding = copied(embedding.EmbeddingState, _group("embedding", fitted.arrays))
        dim = self.dim if self.embedding is None else embedding.columns(self._embedding)
        if self._batch and self._online:
            arrays = _group("algorithm", fitted.arrays)
            self._model = self._algorithm.adopt(config.params, self._model, arrays, dim, config.seed)
        elif self._batch:
            self._model = copied(type(self._model), _group("algorithm", fitted.arrays))
            if self.embedding is None and fitted.dim < dim:  # there are new columns since
                self._model = self._algorithm.grow(config.params, self._model, dim)
        else:
            self._model = self._initial(dim)
        if not self._batch or (first and not self._traits.memorises):
            yield from self._learn_retained()  # a later fit's scores are much like the last one's
        if not self._batch:
            self._retained.clear()

    def _learn_retained(self) -> Iterator[tuple[Matrix, Vector]]:
        """Learn the retained events in parts; yield values and labels."""
        rows, labels, weights = self._retained.rows(), self._retained.labels(), self._retained.weights()
        for start in range(0, len(labels), self.step_rows):
            cut = slice(start, start + self.step_rows)
            part = scaling.transform(self.config.scaling, self.scaling, slice_rows(rows, start, cut.stop), self.scaled)
            y = labels[cut].copy()
            yield self._advance(self._embedded(part), y, weights[cut].copy()), y

    @property
    def step_rows(self) -> int:
        """Rows that go through the stages at once: bounds temporary arrays, without effect on results."""
        if self.config.features.sparse:
            return _MOST_ROWS
        widest = max(self.dim, embedding.columns(self._embedding))
        return max(1, CHUNK_NUMBERS // widest)

    # Saving

    def follow_rollback(self, before: Model) -> None:
        """Mark this model as what `before` was rolled back to."""
        self._restores = before._restores + 1

    def state(self) -> dict[str, Arrays]:
        """Return the arrays of the state by part."""
        return {
            "algorithm": self._model._asdict(),
            "columns": self.columns.state(),
            "embedding": self._embedding._asdict(),
            "fits": {"progress": self._fits, "restores": self._restores},
            "retained": self._retained.state(),
            "scaling": {
                name: array
                for name, array in self.scaling._asdict().items()
                if name != "values" or self.config.scaling.limits  # earlier versions have no such array
            },
        }

    def optional_arrays(self) -> Arrays:
        """Return arrays, by "part.name", of the dtypes and axes that a state has either all or none of."""
        return {f"columns.{name}": array for name, array in self.columns.optional_arrays().items()}

    def copy(self) -> Model:
        """Copy the model and all of its arrays. O(state)."""
        other = Model(self.config)
        other.restore(self.state())
        return other

    def restore(self, groups: Mapping[str, Arrays]) -> None:
        """Take copies of the arrays of a state, before any event."""
        self.columns.restore(dict(groups["columns"]))
        self.dim = self.columns.dim
        self._model = copied(type(self._model), groups["algorithm"])
        self.scaling = copied(scaling.ScalingState, {"values": self.scaling.values, **groups["scaling"]})
        self._embedding = copied(embedding.EmbeddingState, groups["embedding"])
        self._fits = np.array(groups["fits"]["progress"], dtype=np.int64)
        self._restores = np.array(groups["fits"]["restores"], dtype=np.int64)
        self._retained.restore(dict(groups["retained"]))

    def expected_shapes(self, groups: Mapping[str, Arrays]) -> dict[str, tuple[int, ...]]:
        """Take the columns of a state; return the shapes that its arrays must have.

        Only for a model before any event, which must not be used afterwards.
        """
        if self.config.features.sparse:
            check_values(self.config, {f"columns.{name}": array for name, array in groups["columns"].items()})
            self.columns.restore(dict(groups["columns"]))
            self._grow()
        self._embedding = copied(embedding.EmbeddingState, groups["embedding"])
        if embedding.columns(self._embedding) > self.config.embedding.components:
            raise InvalidInput([Problem("/embedding.projection", "has more columns than there are components")])
        if self.embedding is not None:
            self._model = self._initial(embedding.columns(self._embedding))
        retained = dict(groups["retained"])
        if self.config.features.sparse and not np.isin(retained["indices"], np.arange(self.dim)).all():
            raise InvalidInput([Problem("/retained.indices", f"has columns that are not below {self.dim}")])
        shapes = embedding.shapes(self._embedding, self.dim)
        return {f"embedding.{name}": shape for name, shape in shapes.items()} | {
            f"retained.{name}": shape for name, shape in self._retained.shapes(retained).items()
        }


def copied(kind: Any, arrays: Arrays) -> Any:
    """Return a NamedTuple of this kind with copies of its arrays."""
    return kind(**{name: np.array(arrays[name], order="C") for name in kind._fields})


def check_arrays(arrays: Arrays, expected: Arrays) -> None:
    """Check names, dtypes and numbers of axes against the expected arrays. Raises `InvalidInput`."""
    problems = [Problem(f"/{name}", "is missing") for name in expected if name not in arrays]
    problems += [Problem(f"/{name}", "is not part of this") for name in arrays if name not in expected]
    for name, array in expected.items():
        if name in arrays and (arrays[name].dtype, arrays[name].ndim) != (array.dtype, array.ndim):
            actual = arrays[name]
            detail = f"is {actual.dtype} of {actual.ndim} axes; expected {array.dtype} of {array.ndim}"
            problems.append(Problem(f"/{name}", detail))
    if problems:
        raise InvalidInput(problems)


def check_shapes(arrays: Arrays, shapes: Mapping[str, tuple[int, ...]], grows: str | None = None) -> None:
    """Check shapes; an axis expected empty may be longer if the name starts with `grows`. Raises `InvalidInput`."""
    problems = []
    for name, shape in shapes.items():
        free = grows is not None and name.startswith(grows)
        if any(have != want for have, want in zip(arrays[name].shape, shape, strict=True) if want or not free):
            problems.append(Problem(f"/{name}", f"has shape {arrays[name].shape}; expected {shape}"))
    if problems:
        raise InvalidInput(problems)


def _retention(config: Config) -> tuple[int, int]:
    """Return the most events and numbers to retain."""
    if config.refit_window is not None:
        return config.refit_window, MAX_RETAINED
    return config.embedding.warmup + _OVERTIME, 2 * MAX_RETAINED


def _flat(part: str, arrays: Any) -> dict[str, NDArray[np.generic]]:
    return {f"{part}.{name}": array for name, array in arrays._asdict().items()}


def _group(part: str, arrays: Arrays) -> Arrays:
    return {name.removeprefix(f"{part}."): array for name, array in arrays.items() if name.startswith(f"{part}.")}
