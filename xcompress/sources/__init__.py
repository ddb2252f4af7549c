"""References to models and text, as recipes and commands name them, and the local paths they resolve to."""

from xcompress.sources.resolve import (
    can_be_fetched,
    check,
    commit_of,
    fingerprint,
    is_here,
    looks_like_path,
    parts_of,
    resolve,
)
from xcompress.sources.wheels import Wheel, parse_wheel

__all__ = [
    "Wheel",
    "can_be_fetched",
    "check",
    "commit_of",
    "fingerprint",
    "is_here",
    "looks_like_path",
    "parse_wheel",
    "parts_of",
    "resolve",
]
