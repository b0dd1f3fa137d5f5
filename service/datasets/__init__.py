"""Reads rows of files as events; also a simulated stream of card payments. Start with `rows`."""

from service.datasets.bad_rows import REMEDY, BadRows, RowOrigin
from service.datasets.batches import (
    EncodedEvent,
    EventPacker,
    RequestBody,
    again_source,
    batches,
    chunks,
    file_name,
    related_sources,
    send_accepted,
    source_name,
)
from service.datasets.card_fraud import CardFraud, first_day, max_events
from service.datasets.column_profile import (
    ColumnProfile,
    FieldPast,
    LabelValues,
    likely_label,
    profile_column,
    reveals_label,
)
from service.datasets.event_inputs import Inputs
from service.datasets.file_options import FileOptions
from service.datasets.learnt_rows import (
    Hashes,
    RowHash,
    RowWriter,
    SentRows,
    SourceHead,
    find_learnt,
    learnt_folder,
    remove_unused,
)
from service.datasets.notes import ColumnNote, LongTexts, UniqueColumn
from service.datasets.number_cells import is_number, number
from service.datasets.packed_text import File, local_file
from service.datasets.readers import open_rows, resolve_format
from service.datasets.rows import Event, ReadError, RowEvent, Rows
from service.datasets.schema_match import (
    adapter,
    declared,
    labels_for,
    labels_of_options,
    remembered,
    suggest_options,
)
from service.datasets.times import TIME_UNITS, EventTimes
from service.datasets.values import (
    ANY_LABEL,
    BinaryLabels,
    Ranks,
    RowColumns,
    Unlabelled,
    identity,
    label_text,
    weight,
)

__all__ = [
    "ANY_LABEL",
    "REMEDY",
    "TIME_UNITS",
    "BadRows",
    "BinaryLabels",
    "CardFraud",
    "ColumnNote",
    "ColumnProfile",
    "EncodedEvent",
    "Event",
    "EventPacker",
    "EventTimes",
    "FieldPast",
    "File",
    "FileOptions",
    "Hashes",
    "Inputs",
    "LabelValues",
    "LongTexts",
    "Ranks",
    "ReadError",
    "RequestBody",
    "RowColumns",
    "RowEvent",
    "RowHash",
    "RowOrigin",
    "RowWriter",
    "Rows",
    "SentRows",
    "SourceHead",
    "UniqueColumn",
    "Unlabelled",
    "adapter",
    "again_source",
    "batches",
    "chunks",
    "declared",
    "file_name",
    "find_learnt",
    "first_day",
    "identity",
    "is_number",
    "label_text",
    "labels_for",
    "labels_of_options",
    "learnt_folder",
    "likely_label",
    "local_file",
    "max_events",
    "number",
    "open_rows",
    "profile_column",
    "related_sources",
    "remembered",
    "remove_unused",
    "resolve_format",
    "reveals_label",
    "send_accepted",
    "source_name",
    "suggest_options",
    "weight",
]
