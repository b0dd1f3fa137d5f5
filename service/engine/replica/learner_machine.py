"""Apply records to a learner: short work on the event loop, long work piece by piece in a thread.

Readers take `view`. It is a live view while the learner moves on the event loop, and a frozen copy while a thread moves
it. So reading waits for nothing and never sees half a record.
"""

from __future__ import annotations

import functools
import logging
import time
from typing import Any

from learners import (
    BatchOutcome,
    FitResult,
    InvalidInput,
    LabelledBatch,
    Learner,
    LearnerView,
    Note,
    Rollback,
    ServedBatch,
    SettingsChange,
    join_outcomes,
)
from learners.algorithms import size
from learners.numerics import wait_for_kernels, waiting_kernels
from service.engine.batch_cost import BatchCost, work_units
from service.engine.node_resources import Node
from service.engine.records import check_record
from service.engine.replica.mailbox import Mailbox
from service.errors import Damaged, StoreUnavailable
from service.names import called
from service.text import counted

__all__ = ["LearnerMachine"]

logger = logging.getLogger("rarestream.engine")

_INLINE_SECONDS = 1e-3  # work expected to be shorter than this stays on the event loop,
_INLINE_NUMBERS = 2**17  # unless it has more feature values than this, whatever is expected
_INLINE_SERVED = 2**10  # events of a record of served events; a thread applies larger ones
_FROZEN = 2**16  # numbers of a view that take about as long to copy as a thread takes to start
_PIECE_SECONDS = 0.05  # of a long record, after which other learners get the thread
_PLAIN_PIECE = 16  # events of a piece while kernels run as plain Python, or may
_COMPILE_SECONDS = 20.0  # about what the kernels of a learner take; longer work waits for them,
_PATIENCE = 60.0  # but no longer than this: on a busy machine the lowest priority may get no time

LearnerRecord = LabelledBatch | SettingsChange | FitResult | Rollback | ServedBatch | Note


def _wait_briefly() -> bool:
    return wait_for_kernels(_PIECE_SECONDS)


class LearnerMachine:
    """A learner as the function of its log."""

    def __init__(self, name: str, learner: Learner, node: Node, mailbox: Mailbox) -> None:
        self.core = learner
        self._name = name
        self._node = node
        self._mailbox = mailbox
        self._cost = BatchCost(learner.config)
        self._view: LearnerView | None = None

    @property
    def view(self) -> LearnerView:
        """The view for readers: live, or a copy of an earlier moment while the learner moves in a thread."""
        if self._view is None:  # made for the first reader after a record: most records of many have none
            self._view = self.core.view()
        return self._view

    def replace(self, core: Any) -> None:
        """Continue with a learner of the same log that was recovered from the store."""
        self.core, self._view = core, None

    def check(self, record: Any, what: str) -> None:
        """Check the values of a record that was read from the log. Raises `Damaged`, which names it as `what`."""
        if not isinstance(record, LearnerRecord):
            raise Damaged(f"{what} is of a group, not of a learner")
        check_record(record, self.core.config, what)

    async def apply(self, record: LearnerRecord) -> BatchOutcome | None:
        """Move the learner by a record.

        Long records are applied in pieces, with the same result to the bit. So other learners get the thread, and a
        stop or a deletion can end a record half-way. The log has it, and the next start learns all of it.
        """
        if not self._cost.metrics_loaded:  # compiling them here would delay every request
            await self._node.in_thread(self._cost.load_metrics)
        outcome = await self._apply(record)
        self._view = None
        return outcome

    async def _apply(self, record: LearnerRecord) -> BatchOutcome | None:
        if isinstance(record, ServedBatch) and len(record) <= _INLINE_SERVED:
            return self._apply_now(record)
        if not isinstance(record, LabelledBatch):
            await self._freeze()
            await self._node.in_thread(lambda: self._apply_now(record))
            return None
        compiled = self._cost.loaded and not waiting_kernels()
        if compiled and work_units(record) <= _INLINE_NUMBERS and self._seconds(record) < _INLINE_SECONDS:
            return self._apply_timed(record)
        await self._freeze()
        outcomes = []
        start = 0
        patience = time.monotonic() + _PATIENCE
        while start < len(record):
            if self._mailbox.abandon.is_set():  # the state is between two positions and of no further use
                raise self._abandoned()
            share = _PIECE_SECONDS / max(self._seconds(record), 1e-9)
            most = max(1, int(share * len(record)))
            stop = min(len(record), start + (most if compiled else min(most, _PLAIN_PIECE)))
            piece = record.part(start, stop)
            outcomes.append(await self._node.in_learning_thread(functools.partial(self._apply_timed, piece)))
            start = stop
            compiled = not waiting_kernels()
            if not compiled and start < len(record):
                await self._wait_for_kernels(record.part(start, len(record)), patience)
        return join_outcomes(outcomes)

    async def _wait_for_kernels(self, batch: LabelledBatch, until: float) -> None:
        """Wait for compiled kernels up to a monotonic time, if plain Python would take longer for a batch."""
        if self._seconds(batch) < _COMPILE_SECONDS or time.monotonic() > until:
            return
        logger.info(
            "%s waits for %s to be compiled before it learns %s",
            called(self._name),
            counted(waiting_kernels(), "kernel"),
            counted(len(batch), "further event"),
        )
        while time.monotonic() < until and not self._mailbox.abandon.is_set():
            if await self._node.in_thread(_wait_briefly):
                return

    def _abandoned(self) -> StoreUnavailable:
        error = StoreUnavailable(f"{self._name} stops here; the events are in the log and will be learnt")
        self._mailbox.failure = error
        return error

    async def _freeze(self) -> None:
        """Give readers a copy of the present moment before a thread moves the learner."""
        view = self.view
        small = view.figures.size + size(view.scorer.weights) <= _FROZEN
        self._view = view.frozen() if small else await self._node.in_thread(view.frozen)

    def _seconds(self, batch: LabelledBatch) -> float:
        """Estimate how long a batch takes to learn."""
        return self._cost.seconds(batch, self.core.columns)

    def _apply_timed(self, batch: LabelledBatch) -> BatchOutcome:
        """Apply a batch and note its pace, by the thread's own clock: waits of a busy machine are no work."""
        began = time.thread_time()
        outcome = self._apply_now(batch)
        assert outcome is not None
        self._cost.note(batch, self.core.columns, time.thread_time() - began, outcome)
        return outcome

    def _apply_now(self, record: LearnerRecord) -> BatchOutcome | None:
        try:
            return self.core.apply(record)
        except InvalidInput as error:
            raise Damaged(f"a record of {self._name} does not fit its configuration: {error}") from error
