"""Rows of files as events: readers, columns, values, pacing, and a simulated stream of card payments.

Start with `rows`.
"""

from service.datasets.batches import MAX_BODY, RequestBody, batches, earlier_rows, source_name
from service.datasets.card_fraud import CardFraud, first_day, most
from service.datasets.event_inputs import EventChunk, Inputs, chunks
from service.datasets.pacing import Interruption, Meter, Pace, Stopped, interruptible_sleep
from service.datasets.readers import check_regular, format_of, open_rows
from service.datasets.rows import Event, ReadError, Rows
from service.datasets.schema_match import adapter, declared, features_of, labels_for, labels_said, suitable
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
    "earlier_rows",
    "features_of",
    "first_day",
    "format_of",
    "identity",
    "interruptible_sleep",
    "is_number",
    "labels_for",
    "labels_said",
    "most",
    "number",
    "open_rows",
    "source_name",
    "suitable",
    "timestamp",
    "weight",
]
