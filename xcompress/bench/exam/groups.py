"""Groups of languages over which papers average Tatoeba.

The 82 languages of Tatoeba that LASER was trained on are left out: no paper prints which they are, and of those that
LASER's readme names Tatoeba has 83.
"""

from collections.abc import Collection

MUSE = "ar de es fr it ja ko nl pl pt ru th tr zh"
"""What mUSE was trained on, besides English."""
XTREME = "af ar bg bn de el es et eu fa fi fr he hi hu id it ja jv ka kk ko ml mr nl pt ru sw ta te th tl tr ur vi zh"
"""Those of Tatoeba that XTREME took."""
GROUPS = {"14 languages": MUSE.split(), "36 languages": XTREME.split()}


def whole_groups(languages: Collection[str]) -> dict[str, list[str]]:
    """Return the groups that are there as a whole: the average of a part would be taken for what papers print."""
    return {name: group for name, group in GROUPS.items() if set(group) <= set(languages)}
