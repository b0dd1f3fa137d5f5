"""Logs of requests and histograms of timings. Start with `request_log`."""

from service.telemetry.histograms import NodeTimings, histograms
from service.telemetry.log_writer import LineWriter, Stream, configure, current_request
from service.telemetry.request_log import CLIENT_CLOSED, Access, rate_headers

__all__ = [
    "CLIENT_CLOSED",
    "Access",
    "LineWriter",
    "NodeTimings",
    "Stream",
    "configure",
    "current_request",
    "histograms",
    "rate_headers",
]
