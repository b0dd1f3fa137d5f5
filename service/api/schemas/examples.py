"""The requests that the OpenAPI page shows, and that a test sends as they stand."""

from __future__ import annotations

from typing import Any

__all__ = [
    "CHANGE",
    "CLONE",
    "CREATE",
    "GROUP",
    "LABELS",
    "LABELS_SHOWN",
    "PREDICT",
    "PREDICT_SHOWN",
    "PREVIEW",
    "UPDATE",
    "UPDATE_SHOWN",
]

CREATE: dict[str, Any] = {
    "named features": {
        "features": {"kind": "named", "bits": 18, "categorical": ["merchant"], "log": ["amount"]},
    },
    "table": {
        "algorithm": "cbr",
        "params": {"C": 0.004, "capacity": 10, "buffer": "fifo"},
        "features": {
            "kind": "table",
            "fields": [
                {"name": "amount", "kind": "numeric", "log": True},
                {"name": "country", "kind": "categorical", "categories": 16},
            ],
        },
        "window": 10000,
    },
    "dense": {"algorithm": "loam-ada", "features": {"kind": "dense", "dim": 3}, "scaling": {"kind": "standard"}},
    "embedded": {
        "algorithm": "nsauc",
        "features": {"kind": "dense", "dim": 3},
        "embedding": {"kind": "nystroem", "components": 200, "warmup": 2000},
    },
    "batch": {
        "algorithm": "ranksvm",
        "features": {"kind": "named", "bits": 18, "categorical": ["merchant"], "log": ["amount"]},
        "refit_every": 2000,
        "refit_window": 10000,
    },
    "ordinal": {"algorithm": "npsvor", "params": {"ranks": 3}, "features": {"kind": "dense", "dim": 3}},
}

UPDATE: dict[str, Any] = {
    "named features": {
        "events": [
            {"id": "tx-1", "features": {"amount": 12.5, "country": "DE", "items": ["book"]}, "label": 0},
            {"id": "tx-2", "features": {"amount": 950.0, "country": "XX", "items": ["gift card"]}, "label": 1},
        ]
    },
    "table": {"events": [{"id": "tx-1", "features": {"amount": 12.5, "country": "DE"}, "label": 0}]},
    "dense": {"events": [{"x": [0.1, 0.2, 0.3], "label": 1, "weight": 2.0, "time": 1700000000.0}]},
    "embedded": {"events": [{"x": [0.1, 0.2, 0.3], "label": 0}, {"x": [0.9, -0.4, 0.2], "label": 1}]},
    "batch": {"events": [{"id": "tx-1", "features": {"amount": 12.5, "merchant": "m-17"}, "label": 0}]},
    "ordinal": {"events": [{"x": [0.1, 0.2, 0.3], "label": 1}, {"x": [0.9, 0.4, 0.2], "label": 3}]},
}

PREDICT: dict[str, Any] = {
    "named features": {"events": [{"id": "tx-3", "features": {"amount": 700.0, "country": "XX"}}]},
    "table": {"events": [{"id": "tx-3", "features": {"amount": 700.0, "country": None}}]},
    "dense": {"events": [{"x": [0.1, 0.2, 0.3]}]},
    "embedded": {"events": [{"x": [0.1, 0.2, 0.3]}]},
    "batch": {"events": [{"id": "tx-3", "features": {"amount": 700.0, "merchant": "m-17"}}]},
    "ordinal": {"events": [{"x": [0.1, 0.2, 0.3]}]},
}

LABELS: dict[str, Any] = {
    "two classes": {"events": [{"id": "tx-3", "label": 1}, {"id": "tx-4", "label": 0, "time": 1700600000.0}]},
}

CHANGE: dict[str, Any] = {
    "a hundred alerts a day": {"threshold": {"objective": "budget", "alerts": 100}},
    "at least 90 % precision": {"threshold": {"objective": "precision", "target": 0.9}},
    "no label means negative": {"late": {"label_ttl": 2592000, "unlabelled": "negative"}},
}

PREVIEW: dict[str, Any] = {
    "a hundred alerts a day": {"objective": "budget", "alerts": 100},
    "at least 90 % precision": {"objective": "precision", "target": 0.9},
    "a fixed threshold": {"objective": "fixed", "value": 0.8},
}

ACKNOWLEDGE: dict[str, Any] = {"with a note": {"note": "holiday traffic, back on Monday", "by": "Ann"}, "alone": {}}
ANNOTATE: dict[str, Any] = {"a deployment": {"text": "checkout 2.31 deployed", "by": "CI"}}

CLONE: dict[str, Any] = {"a copy to try things on": {"to": "fraud-trial"}}

GROUP: dict[str, Any] = {"two learners": {"learners": ["fraud", "fraud-new"]}}

# Columns, as JSON shows them, and lines: of dense events of three numbers

_X = {"dtype": "float32", "shape": [2, 3], "data": "zczMPc3MTD6amZk+ZmZmP83MzL7NzEw+"}

UPDATE_SHOWN: tuple[dict[str, Any], str] = (
    {"x": _X, "labels": {"dtype": "int8", "shape": [2], "data": "AQA="}, "ids": ["tx-1", "tx-2"]},
    '{"id": "tx-1", "x": [0.1, 0.2, 0.3], "label": 1}\n{"id": "tx-2", "x": [0.9, -0.4, 0.2], "label": 0}\n',
)
PREDICT_SHOWN: tuple[dict[str, Any], str] = (
    {"x": _X, "ids": ["tx-3", None]},
    '{"id": "tx-3", "x": [0.1, 0.2, 0.3]}\n{"x": [0.9, -0.4, 0.2]}\n',
)
LABELS_SHOWN: tuple[dict[str, Any], str] = (
    {"ids": ["tx-3", "tx-4"], "labels": [1, 0]},
    '{"id": "tx-3", "label": 1}\n{"id": "tx-4", "label": 0, "time": 1700600000.0}\n',
)
