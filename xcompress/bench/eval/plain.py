"""Sentences without labels: as distractors, and as pairs to compare a subject with the reference on."""

import random
from collections.abc import Sequence
from pathlib import Path

from xcompress.bench.eval.agreement import SentencePairs
from xcompress.bench.eval.folders import PLAIN, matching
from xcompress.bench.eval.languages import short
from xcompress.bench.eval.reading import read_sentences

SEED = 0


def read_plain(folder: Path) -> dict[str, list[str]]:
    """Read the files `<name>.<lang>.txt`, by language; several of one language one after the other.

    :raises InputError: naming file and line.
    """
    found: dict[str, list[str]] = {}
    for match, path in matching(folder, PLAIN):
        found.setdefault(short(match["lang"]), []).extend(read_sentences(path))
    return found


def sample(sentences: Sequence[str], count: int) -> list[str]:
    """Return `count` of the distinct sentences, or all when there are no more, in their order and always the same."""
    distinct = list(dict.fromkeys(sentences))
    if len(distinct) <= count:
        return distinct
    return [distinct[row] for row in sorted(random.Random(SEED).sample(range(len(distinct)), count))]


def pair_up(sentences: Sequence[str], count: int) -> SentencePairs:
    """Make at most `count` pairs, no sentence twice: half of neighbouring lines, half of lines that lie apart.

    Neighbours are often related, so that there is more to rank than sentences that have nothing in common.
    """
    starts = range(0, len(sentences) - 1, 2)
    chosen = sorted(random.Random(SEED).sample(starts, min(count, len(starts))))
    near, apart = chosen[::2], chosen[1::2]
    seconds = [start + 1 for start in near] + [start + 1 for start in apart[1:] + apart[:1]]
    return tuple((sentences[one], sentences[other]) for one, other in zip(near + apart, seconds, strict=True))
