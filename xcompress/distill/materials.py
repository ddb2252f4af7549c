"""What all stages draw on: the corpus, the pairs each stage sees, and the teacher's vectors of their English sides."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress import __version__
from xcompress.console import tracked
from xcompress.corpus.build import build
from xcompress.corpus.filters import Limits
from xcompress.corpus.pairs import Pair, read_tsv, write_tsv
from xcompress.corpus.similarity import GradedSet, read_folder
from xcompress.distill.pairs import draw
from xcompress.distill.run import Run, Step
from xcompress.distill.targets import VectorCache, teacher_encoder
from xcompress.recipe import Recipe
from xcompress.sources import check, fingerprint, resolve

LEAST_SQUARES_PAIRS = 5000


class Materials:
    """The corpus step and, from it, pairs and teacher vectors; nothing is read or computed before it is asked for."""

    def __init__(self, recipe: Recipe, run: Run) -> None:
        self.recipe = recipe
        self.cache = VectorCache(run.vectors)
        self.corpus = _corpus_step(recipe, run)

    @cached_property
    def train(self) -> list[Pair]:
        """Pairs to train on."""
        return self._pairs("train")

    @cached_property
    def holdout(self) -> list[Pair]:
        """Pairs held out."""
        return self._pairs("holdout")

    @cached_property
    def drawn(self) -> Mapping[str, list[Pair]]:
        """The pairs that each stage sees, by its name."""
        return {
            name: draw(self.train, stage.steps * stage.batch_size, self.recipe.seed_of(name))
            for name, stage in self.recipe.stages.items()
        }

    @cached_property
    def fitted_on(self) -> list[str]:
        """English training sentences for the least-squares fit of the head."""
        return sorted({pair.source for pair in draw(self.train, LEAST_SQUARES_PAIRS, self.recipe.seed)})

    @cached_property
    def graded(self) -> GradedSet | None:
        """STS sets for dev scores, in the recipe's languages; None where the recipe names none."""
        dev = self.recipe.dev
        if dev.sts is None:
            return None
        return read_folder(resolve(dev.sts)).within(["en", *self.recipe.languages]).every(dev.every)

    @cached_property
    def teacher_key(self) -> str:
        """A hash of the teacher."""
        return fingerprint(self.recipe.teacher.source)

    def teacher(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the teacher's vectors (N, D) of English sentences of `drawn`, `holdout` or `fitted_on`."""
        return self._teacher_rows[1][[self._teacher_rows[0][text] for text in texts]]

    @cached_property
    def _teacher_rows(self) -> tuple[dict[str, int], NDArray[np.float32]]:
        taught = [self.drawn[name] for name, stage in self.recipe.stages.items() if stage.needs_teacher]
        texts = sorted({pair.source for pairs in (self.holdout, *taught) for pair in pairs} | set(self.fitted_on))
        part = self.recipe.teacher
        folder = resolve(part.source)
        check(folder, part.sha256 if isinstance(part.sha256, dict) else {}, part.source)
        vectors = self.cache.vectors("teacher", self.teacher_key, texts, lambda: teacher_encoder(folder))
        return {text: row for row, text in enumerate(texts)}, vectors

    def _pairs(self, part: str) -> list[Pair]:
        files = [(self.corpus.folder / f"{part}.{language}.tsv", language) for language in self.recipe.languages]
        return [pair for file, language in files for pair in read_tsv(file, language)]


def _corpus_step(recipe: Recipe, run: Run) -> Step:
    part = recipe.corpus
    key = {
        "version": __version__,
        "corpus": part.model_dump(),
        "files": [fingerprint(reference) for reference in (*part.catalogues, *(tsv.source for tsv in part.tsv))],
        "languages": recipe.languages,
        "seed": recipe.seed,
    }
    return run.step("corpus", key, lambda folder: _build_corpus(recipe, folder))


def _build_corpus(recipe: Recipe, folder: Path) -> Mapping[str, object]:
    part = recipe.corpus
    corpus = build(
        [(reference, resolve(reference)) for reference in tracked(part.catalogues, "catalogues: fetched")],
        [(resolve(tsv.source), tsv.language, Path(tsv.source).name) for tsv in part.tsv],
        recipe.languages,
        limits=Limits(min_words=part.min_words, max_words=part.max_words, max_ratio=part.max_ratio),
        holdout_sentences=part.holdout,
        seed=recipe.seed,
        max_pairs=part.max_pairs,
    )
    held_out: dict[str, int] = {}
    for language in recipe.languages:
        for name, pairs in (("train", corpus.train), ("holdout", corpus.holdout)):
            own = [pair for pair in pairs if pair.language == language]
            write_tsv(folder / f"{name}.{language}.tsv", own)
            held_out[language] = len(own)
    return {"train": corpus.counts(), "holdout": held_out, "fingerprint": corpus.fingerprint}
