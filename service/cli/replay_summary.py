"""What a replay says at its end."""

from __future__ import annotations

from rich.console import Console

from service.cli.display import behind, figures_table, fit_of
from service.cli.replay_engine import Outcome, Plan
from service.datasets import counted

__all__ = ["tell"]


def tell(outcome: Outcome, plan: Plan, notes: Console, out: Console) -> None:
    """Say how far the replay came, on `notes`, and print the learner's figures, on `out`."""
    rows = outcome.rows
    if rows.complete and rows.next == rows.start and not rows.scored:
        notes.print("no row is left: all were learnt before")
    else:
        if plan.delay is not None:
            notes.print(f"{counted(rows.scored, 'row')} scored")
        said = [f"{rows.applied:,} learnt", counted(rows.duplicate, "duplicate")]
        said += [f"{rows.relabelled:,} corrected"] if rows.relabelled else []
        notes.print(f"rows {rows.start:,} to {rows.next:,}: {', '.join(said)}")
    if rows.missing:
        events = "its event is" if rows.missing == 1 else "their events are"
        notes.print(f"warning: {counted(rows.missing, 'label')} came too late: {events} not remembered any more")
    if rows.complete and rows.reached > rows.next:
        rest = counted(rows.reached - rows.next, "row")
        notes.print(f"the labels of {rest} are not known yet: they come when it goes on")
    if outcome.metrics is not None:
        out.print(figures_table(outcome.metrics, outcome.speed))
    if outcome.learner is not None:
        if (fit := fit_of(outcome.learner)) is not None:
            notes.print(f"last fit: {fit}")
        for line in behind(outcome.learner):
            notes.print(line)
        if not outcome.learner["ready"]:
            notes.print(f"{plan.learner} is not ready: {outcome.learner['not_ready']}")
