"""Logs of requests, histograms of timings, errors of background tasks. Start with `request_log`."""

from service.telemetry.background_tasks import BackgroundTasks
from service.telemetry.histograms import NodeTimings, histograms
from service.telemetry.log_writer import LineWriter, Stream, configure, current_request
from service.telemetry.request_log import CLIENT_CLOSED, Access, rate_headers

__all__ = [
    "CLIENT_CLOSED",
    "Access",
    "BackgroundTasks",
    "LineWriter",
    "NodeTimings",
    "Stream",
    "configure",
    "current_request",
    "histograms",
    "rate_headers",
]
