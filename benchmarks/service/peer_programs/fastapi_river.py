"""FastAPI and pydantic with river: POST /update {"x": [...], "label": 0} -> {"score": ...}. For uvicorn."""

from __future__ import annotations

from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.service.peer_programs.river_model import Model

__all__ = ["app"]


class Labelled(BaseModel):
    """A labelled event."""

    x: list[float]
    label: bool


class Scored(BaseModel):
    """The prediction before the label is learnt."""

    score: float


app = FastAPI()
_model = Model()


@app.get("/ready")
async def ready() -> None:
    """Whether it runs."""


@app.post("/update")
async def update(event: Labelled) -> Scored:
    """Score an event, then learn it."""
    return Scored(score=_model.update(event.x, event.label))
