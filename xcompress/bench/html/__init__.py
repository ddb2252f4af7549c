"""The report as one HTML page."""

from xcompress.bench.html.page import html

__all__ = ["html"]
