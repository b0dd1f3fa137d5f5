"""Bytes to requests and results to bytes: JSON, MessagePack and NDJSON, headers, compression, problem documents.

Start with `requests`, what every coding decodes to, then `coding` and `json_decode`. `content_negotiation` chooses a
coding. `kernels` scans bytes in compiled code.
"""

from service.wire.coding import Coding, Operation, SplitReplies
from service.wire.compression import ENCODINGS, expanded
from service.wire.content_negotiation import JSON, JSON_PARTS, MSGPACK_PARTS, negotiated
from service.wire.headers import Heading, form_hint, heading_of, in_utf8, local_path
from service.wire.iso_times import ISO_SCHEMA, iso_time
from service.wire.json_decode import decode_events, decode_json, decode_labels, decode_settings, decode_update
from service.wire.json_encode import STATUSES, Head, encode_learnt, encode_scores, explanation, finite_or_none
from service.wire.json_errors import MAX_EVENTS
from service.wire.msgpack_bounds import length
from service.wire.msgpack_decode import MSGPACK
from service.wire.ndjson import NDJSON
from service.wire.problem_json import PROBLEM, headers_of, internal_error, problem_reply, request_id
from service.wire.requests import Events, Labelled, Learnt

__all__ = [
    "ENCODINGS",
    "ISO_SCHEMA",
    "JSON",
    "JSON_PARTS",
    "MAX_EVENTS",
    "MSGPACK",
    "MSGPACK_PARTS",
    "NDJSON",
    "PROBLEM",
    "STATUSES",
    "Coding",
    "Events",
    "Head",
    "Heading",
    "Labelled",
    "Learnt",
    "Operation",
    "SplitReplies",
    "decode_events",
    "decode_json",
    "decode_labels",
    "decode_settings",
    "decode_update",
    "encode_learnt",
    "encode_scores",
    "expanded",
    "explanation",
    "finite_or_none",
    "form_hint",
    "headers_of",
    "heading_of",
    "in_utf8",
    "internal_error",
    "iso_time",
    "length",
    "local_path",
    "negotiated",
    "problem_reply",
    "request_id",
]
