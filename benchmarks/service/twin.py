"""The same `/predict` as one would write it with FastAPI and pydantic: models in, models out, one dot product between.

It keeps no log, no figures and no other learner, so what it spends per request is the framework's.
"""

from __future__ import annotations

import math

import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel, Field

from benchmarks.service.bodies import DIM

__all__ = ["app"]


class Event(BaseModel):
    """An event to score."""

    id: str | int | None = None
    x: list[float] = Field(min_length=DIM, max_length=DIM)
    time: float | None = None


class Body(BaseModel):
    """What `/predict` takes."""

    events: list[Event] = Field(min_length=1, max_length=100_000)


class Scored(BaseModel):
    """The prediction for one event."""

    id: str | int | None
    score: float
    probability: float
    threshold: float
    label: int


class Reply(BaseModel):
    """What `/predict` replies."""

    position: int
    ready: bool
    remembered: int
    stale_seconds: float | None
    events: list[Scored]


app = FastAPI()
_weights = np.linspace(-0.1, 0.1, DIM)


@app.post("/predict")
async def predict(body: Body) -> Reply:
    """Score each event."""
    scored = []
    for event in body.events:
        score = float(_weights @ np.array(event.x))
        probability = 0.5 * (1 + math.tanh(score / 2))
        scored.append(
            Scored(id=event.id, score=score, probability=probability, threshold=0.5, label=int(probability >= 0.5))
        )
    return Reply(position=1, ready=True, remembered=0, stale_seconds=None, events=scored)
