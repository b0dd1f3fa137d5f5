"""Flask with river: POST /update {"x": [...], "label": 0} -> {"score": ...}. For gunicorn, one process with threads."""

from __future__ import annotations

from threading import Lock
from typing import Any

from flask import Flask, request

from benchmarks.service.peer_programs.river_model import Model

__all__ = ["app"]

app = Flask(__name__)
_model = Model()
_lock = Lock()  # threads answer, and the model is one


@app.get("/ready")
def ready() -> dict[str, Any]:
    """Whether it runs."""
    return {}


@app.post("/update")
def update() -> dict[str, Any]:
    """Score an event, then learn it."""
    event = request.get_json()
    with _lock:
        return {"score": _model.update(event["x"], bool(event["label"]))}
