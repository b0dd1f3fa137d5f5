"""Logs of requests and histograms of timings. Start with `request_log`."""

from service.telemetry.histograms import NodeTimings, histograms
from service.telemetry.log_writer import LineWriter, Stream, configure, current_request
from service.telemetry.request_log import GONE, Access

__all__ = ["GONE", "Access", "LineWriter", "NodeTimings", "Stream", "configure", "current_request", "histograms"]
