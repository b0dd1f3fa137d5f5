"""Reads rows of files as events; also pacing, and a simulated stream of card payments. Start with `rows`."""

from service.datasets.batches import MAX_BODY, RequestBody, batches, earlier_rows, source_name
from service.datasets.card_fraud import CardFraud, first_day, max_events
from service.datasets.event_inputs import EventChunk, Inputs, chunks
from service.datasets.pacing import Interruption, Meter, Pace, Stopped, interruptible_sleep
from service.datasets.readers import check_regular, format_of, open_rows
from service.datasets.rows import Event, ReadError, Rows
from service.datasets.schema_match import (
    adapter,
    declared,
    describe_features,
    labels_for,
    labels_of_options,
    suggest_options,
)
from service.datasets.values import BinaryLabels, Ranks, RowColumns, identity, is_number, number, timestamp, weight

__all__ = [
    "MAX_BODY",
    "BinaryLabels",
    "CardFraud",
    "Event",
    "EventChunk",
    "Inputs",
    "Interruption",
    "Meter",
    "Pace",
    "Ranks",
    "ReadError",
    "RequestBody",
    "RowColumns",
    "Rows",
    "Stopped",
    "adapter",
    "batches",
    "check_regular",
    "chunks",
    "declared",
    "describe_features",
    "earlier_rows",
    "first_day",
    "format_of",
    "identity",
    "interruptible_sleep",
    "is_number",
    "labels_for",
    "labels_of_options",
    "max_events",
    "number",
    "open_rows",
    "source_name",
    "suggest_options",
    "timestamp",
    "weight",
]
