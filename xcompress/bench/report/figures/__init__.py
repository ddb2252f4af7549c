"""Pictures of a report: size against accuracy, latency, accuracy per language pair, memory."""

from xcompress.bench.report.figures.catalogue import Picture, pictures
from xcompress.bench.report.figures.drawing import svg, write_pngs

__all__ = ["Picture", "pictures", "svg", "write_pngs"]
