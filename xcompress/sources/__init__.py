"""References, as recipes and commands name models and text, and how they become local paths."""

from xcompress.sources.paths import cache_folder
from xcompress.sources.resolve import (
    can_be_fetched,
    check,
    fingerprint,
    is_here,
    looks_like_path,
    parts_of,
    resolve,
)
from xcompress.sources.wheels import Wheel, parse_wheel

__all__ = [
    "Wheel",
    "cache_folder",
    "can_be_fetched",
    "check",
    "fingerprint",
    "is_here",
    "looks_like_path",
    "parse_wheel",
    "parts_of",
    "resolve",
]
