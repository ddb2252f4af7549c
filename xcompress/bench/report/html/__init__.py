"""The report as one HTML page."""

from xcompress.bench.report.html.page import html

__all__ = ["html"]
