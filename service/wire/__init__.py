"""Bytes to requests and results to bytes: JSON, MessagePack and NDJSON, headers, compression, problem documents.

Start with `requests`, what every coding decodes to, then `coding` and `json_decode`. `content_negotiation` chooses a
coding. `kernels` scans bytes in compiled code.
"""

from service.wire.coding import Coding, Operation
from service.wire.compression import ENCODINGS, expanded
from service.wire.content_negotiation import JSON, negotiated
from service.wire.headers import Heading, form_hint, heading_of, in_utf8
from service.wire.json_decode import decode_events, decode_json, decode_labels, decode_settings, decode_update
from service.wire.json_encode import STATUSES, Head, became, encode_learnt, encode_scores
from service.wire.json_errors import MAX_EVENTS
from service.wire.msgpack_bounds import length
from service.wire.msgpack_decode import MSGPACK
from service.wire.msgpack_encode import learnt_in_parts
from service.wire.msgpack_templates import in_parts
from service.wire.ndjson import NDJSON
from service.wire.problem_json import PROBLEM, headers_of, internal_error, problem_reply, request_id
from service.wire.requests import Events, Labelled, Learnt

__all__ = [
    "ENCODINGS",
    "JSON",
    "MAX_EVENTS",
    "MSGPACK",
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
    "became",
    "decode_events",
    "decode_json",
    "decode_labels",
    "decode_settings",
    "decode_update",
    "encode_learnt",
    "encode_scores",
    "expanded",
    "form_hint",
    "headers_of",
    "heading_of",
    "in_parts",
    "in_utf8",
    "internal_error",
    "learnt_in_parts",
    "length",
    "negotiated",
    "problem_reply",
    "request_id",
]
