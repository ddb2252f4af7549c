"""Pictures of a report: size against accuracy, latency, accuracy per language pair, memory."""

from xcompress.bench.report.figures.catalogue import Picture, pictures
from xcompress.bench.report.figures.drawing import check_pictures, svg, write_pngs

__all__ = ["Picture", "check_pictures", "pictures", "svg", "write_pngs"]
