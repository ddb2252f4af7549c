"""The corpus step: training pairs on disk, by language, and pairs held out for dev scores."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from xcompress import __version__
from xcompress.console import say, tracked, warn
from xcompress.corpus.build import HOLDOUT, TRAIN, build, clean_sources, corpus_file, origins_file
from xcompress.corpus.columns import Rows
from xcompress.corpus.filters import Limits, TokenLimit, length_in_tokens
from xcompress.corpus.pairs import Pair
from xcompress.corpus.sequences import ConcatSequence
from xcompress.corpus.split import sentence_key
from xcompress.corpus.store import PairFile
from xcompress.distillation import distributed
from xcompress.distillation.run_folder import Run, Step
from xcompress.errors import InputError
from xcompress.recipe import Recipe
from xcompress.sources import fingerprint, resolve
from xcompress.tokenizer_file import read_tokenizer

_MOST_NAMED = 3
"""Files, or reasons, that a message names."""


@dataclass(frozen=True)
class Corpus:
    """The text of a finished corpus step. Its files are memory-mapped; a pair is read when it is indexed."""

    step: Step
    files: Mapping[str, PairFile]
    """Training pairs by language."""
    train: ConcatSequence[Pair]
    """All training pairs, one language after the other; each language has some."""

    def read_held_out(self) -> list[Pair]:
        """Read the pairs that are held out for dev scores."""
        paths = {language: corpus_file(self.step.folder, HOLDOUT, language) for language in self.files}
        return [pair for language, path in paths.items() for pair in PairFile(path, language)]

    def held_out_keys(self) -> set[str]:
        """Return the results of `sentence_key` for both sides of these pairs."""
        return {sentence_key(text) for pair in self.read_held_out() for text in (pair.source, pair.target)}

    def rows_by_language(self, text: Sequence[str] | None = None, key: str = "stages") -> list[Rows]:
        """Return the rows of `train` that each language has; languages without any pair of the text are left out.

        :param text: names of text files in the recipe; None means all.
        :param key: where the recipe names them, for the message.
        :raises InputError: when no pair comes from them.
        """
        rows = self.train.rows_of_parts()
        if text is not None:
            wanted = [number for number, name in enumerate(self.step.facts["origins"]) if name in text]
            origins = [np.load(origins_file(self.step.folder, language)) for language in self.files]
            rows = [of_language[np.isin(origin, wanted)] for of_language, origin in zip(rows, origins, strict=True)]
            rows = [of_language for of_language in rows if len(of_language)]
        if not rows:
            raise InputError(
                f"{key}: no training pair comes from {', '.join(text or ())}; name other text, or list its files "
                "before those with the same pairs"
            )
        return rows


def corpus_step(recipe: Recipe, run: Run, reference: Step | None, processes: int = 1) -> Corpus:
    """Gather, filter and split the text of a recipe, or reuse it. All workers must call it.

    :param reference: the step whose tokenizer counts tokens, where the recipe limits them.
    :param processes: that filter text on each host; they change no byte.
    :raises InputError: when a source cannot be fetched or read, a language has no pairs, or hosts have other text.
    """
    section = recipe.corpus
    tokenizer_step = reference if section.max_tokens else None
    key = {
        "version": __version__,
        "corpus": section.model_dump(by_alias=True),
        "files": [fingerprint(source) for source in (*section.catalogues, *(tsv.source for tsv in recipe.tsv_files))],
        "languages": recipe.languages,
        "seed": recipe.seed,
        "tokenizer": tokenizer_step.key if tokenizer_step else None,
    }
    step = run.step("corpus", key, partial(_build_corpus, recipe, tokenizer_step, processes))
    if not step.reused:
        for language in recipe.languages:
            say(f"corpus: {_counts_text(step.facts, language)}")
    files = {language: PairFile(corpus_file(step.folder, TRAIN, language), language) for language in recipe.languages}
    return Corpus(step, files, ConcatSequence(list(files.values())))


def _counts_text(report: Mapping[str, Any], language: str) -> str:
    """Return what training gets of a language, in one line, with the most frequent reasons for what was left out."""
    train, held_out = sum(report["train"][language].values()), report["holdout"][language]
    dropped = Counter(report["dropped"].get(language, {}))
    reasons = [f"{count:,} {reason}" for reason, count in dropped.most_common(_MOST_NAMED)]
    if others := dropped.total() - sum(count for _, count in dropped.most_common(_MOST_NAMED)):
        reasons.append(f"{others:,} others")
    why = f" ({', '.join(reasons)})" if reasons else ""
    return f"{language}: {train:,} pairs to train on, {held_out:,} held out, {dropped.total():,} left out{why}"


def _warn_of_other_languages(recipe: Recipe) -> None:
    """Name the files that are not read as the recipe has not their language, in one line for each language."""
    names: dict[str, list[str]] = {}
    for tsv in recipe.corpus.tsv:
        if tsv.language not in recipe.languages:
            names.setdefault(tsv.language, []).append(PurePath(tsv.source).name)
    for language, files in names.items():
        more = f" and {len(files) - _MOST_NAMED} more" if len(files) > _MOST_NAMED else ""
        warn(
            f"corpus.tsv: {', '.join(files[:_MOST_NAMED])}{more}: left out, as {language} is not in languages; "
            "add it there if it is meant"
        )


def _build_corpus(recipe: Recipe, tokenizer_step: Step | None, processes: int, folder: Path) -> Mapping[str, object]:
    """Filter a share of the text on each host, and put the shares together in the main process.

    :param folder: that of the step, in the main process.
    """
    section, hosts = recipe.corpus, distributed.hosts()
    _warn_of_other_languages(recipe)
    if distributed.rank() not in hosts:
        return {}
    tokens = None
    if section.max_tokens and tokenizer_step:
        tokenizer = read_tokenizer(tokenizer_step.folder / "tokenizer.json")
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokens = TokenLimit(section.max_tokens, partial(length_in_tokens, tokenizer))
    limits = Limits(section.min_words, section.max_words, section.max_ratio, form=section.unicode_form, tokens=tokens)
    catalogues = [(source, resolve(source)) for source in tracked(section.catalogues, "catalogues: fetched")]
    tsv_files = [(resolve(tsv.source), tsv.language, tsv.origin) for tsv in recipe.tsv_files]
    if not distributed.is_main():
        host = hosts.index(distributed.rank())
        sources = (catalogues, tsv_files, recipe.languages)
        with distributed.own_work():
            distributed.send(clean_sources(*sources, limits, recipe.seed, processes, host, len(hosts)))
        return {}
    report = build(
        folder,
        catalogues,
        tsv_files,
        recipe.languages,
        limits=limits,
        holdout_sentences=section.holdout,
        seed=recipe.seed,
        max_pairs=section.max_pairs,
        most={(tsv.language, tsv.origin): tsv.max_pairs for tsv in section.tsv if tsv.max_pairs},
        processes=processes,
        hosts=len(hosts),
        gather=distributed.in_turns,
    )
    return asdict(report)
