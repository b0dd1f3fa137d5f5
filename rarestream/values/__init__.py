"""Values of Python objects as JSON has them: one rule for the client, the library and the service.

It imports neither the learners nor the service, so that the client stays small. Start with `plain_value`. What is
learnt of the values says `learners.features.value_rule`.
"""

from rarestream.values.ids import EXPECTED_ID, MAX_ID, id_text, plain_id
from rarestream.values.moments import EARLIEST_TIME, LATEST_TIME, parse_time, plain_times
from rarestream.values.plain_value import EXPECTED_FEATURE, EXPECTED_ITEM, LARGEST, plain_value
from rarestream.values.quoting import show, show_feature

__all__ = [
    "EARLIEST_TIME",
    "EXPECTED_FEATURE",
    "EXPECTED_ID",
    "EXPECTED_ITEM",
    "LARGEST",
    "LATEST_TIME",
    "MAX_ID",
    "id_text",
    "parse_time",
    "plain_id",
    "plain_times",
    "plain_value",
    "show",
    "show_feature",
]
