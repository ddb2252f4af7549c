"""Teacher to assistant to student, stage by stage."""

from xcompress.distill.pipeline import distill

__all__ = ["distill"]
