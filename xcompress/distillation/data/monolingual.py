"""The monolingual step: sentences without translations, read from files or made of frequent words."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from xcompress import __version__
from xcompress.console import say
from xcompress.corpus.columns import Rows
from xcompress.corpus.graded import PIVOT
from xcompress.corpus.lines import BadLineError, Tally
from xcompress.corpus.normalise import UNICODE_FORMS, is_visible, normalise
from xcompress.corpus.pairs import Pair, as_line, check_read, chunks_of_lines, decode_line
from xcompress.corpus.sequences import ConcatSequence
from xcompress.corpus.split import sentence_key
from xcompress.corpus.store import PairFile, write_lines
from xcompress.corpus.word_lists import read_words, word_sequences
from xcompress.distillation.data.corpus import Corpus
from xcompress.distillation.run_folder import Run
from xcompress.errors import InputError
from xcompress.recipe import MonolingualSection, Recipe
from xcompress.sources import fingerprint, resolve


@dataclass(frozen=True)
class Monolingual:
    """Sentences without translations, two by two: the sides of a pair are different sentences of one language."""

    key: str | None = None
    """Key of the step; None where the recipe has no such text."""
    pairs: Sequence[Pair] = ()
    rows_by_language: Sequence[Rows] = field(default_factory=list)
    """Rows of `pairs` that each language has."""


def monolingual_step(recipe: Recipe, run: Run, corpus: Corpus) -> Monolingual:
    """Write the sentences of a recipe, without those that are held out, or reuse them.

    :raises InputError: when a file cannot be read, nothing is left of the files of a language, or no language has two
        sentences.
    """
    section = recipe.monolingual
    if section is None:
        return Monolingual()
    key = {
        "version": __version__,
        "corpus": corpus.step.key,
        "monolingual": section.model_dump(by_alias=True),
        "files": [fingerprint(file.source) for file in section.text],
        "words": [fingerprint(source) for source in recipe.vocabulary.word_lists(recipe.languages)],
        "words_per_language": recipe.vocabulary.words_per_language,
        "unicode_form": recipe.corpus.unicode_form,
    }
    step = run.step("monolingual", key, partial(_build, recipe, section, corpus), together=False)
    files = [PairFile(_file(step.folder, language), language) for language in (PIVOT, *recipe.languages)]
    pairs = ConcatSequence(files)
    return Monolingual(step.key, pairs, pairs.rows_of_parts())


def _file(folder: Path, language: str) -> Path:
    return folder / f"{language}.tsv"


def _build(recipe: Recipe, section: MonolingualSection, corpus: Corpus, folder: Path) -> Mapping[str, object]:
    held_out = corpus.held_out_keys()
    words = recipe.vocabulary.word_lists(recipe.languages)
    counts = {}
    for number, language in enumerate([PIVOT, *recipe.languages]):
        sentences = _read_files(recipe, section, language, held_out)

        # Add sequences of frequent words, and mix.
        generator = np.random.default_rng([recipe.seed, number])
        if section.word_sequences:
            frequent = read_words(resolve(words[number]), recipe.vocabulary.words_per_language)
            sentences += word_sequences(frequent, section.word_sequences, generator)
        generator.shuffle(sentences)

        # Write them two by two.
        pairs = zip(sentences[::2], sentences[1::2], strict=False)
        write_lines(
            _file(folder, language), (as_line(Pair(*pair, language=language, origin=language)) for pair in pairs)
        )
        counts[language] = 2 * (len(sentences) // 2)
    if not any(counts.values()):
        raise InputError("monolingual: no language has two sentences; name more text, or raise word_sequences")
    return counts


def _read_files(recipe: Recipe, section: MonolingualSection, language: str, held_out: set[str]) -> list[str]:
    """Return the sentences of the files of a language, each once; say how many there are, and what is left out.

    :param held_out: keys of sentences.
    :raises InputError: when none is left.
    """
    sources = [file.source for file in section.text if file.language == language]
    if not sources:
        return []
    left_out = Counter[str]()
    texts = [text for source in sources for text in _sentences(recipe, resolve(source), left_out)]
    distinct = dict.fromkeys(texts)
    sentences = [text for text in distinct if sentence_key(text) not in held_out]
    left_out["duplicate"] += len(texts) - len(distinct)
    left_out["held out"] += len(distinct) - len(sentences)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common() if count)
    if not sentences:
        raise InputError(
            f"monolingual.text: no sentence is left of the files of {language} ({reasons}); name more text"
        )
    left = f", {left_out.total():,} left out ({reasons})" if reasons else ""
    say(f"monolingual: {language}: {len(sentences):,} sentences{left}")
    return sentences


def _sentences(recipe: Recipe, path: Path, left_out: Counter[str]) -> Iterator[str]:
    """Yield the sentences of a file, as the parallel text is normalised, up to `corpus.max_words` words.

    :param left_out: counts the other lines, by reason. A line of several columns is one: beside a sentence it has a
        number or a translation, which may be held out.
    """
    form = UNICODE_FORMS[recipe.corpus.unicode_form]
    tally = Tally(path)
    for first, lines in chunks_of_lines(path, tally):
        for number, line in enumerate(lines, first):
            try:
                text = decode_line(line)
                if text and "\t" in text:
                    raise BadLineError("several columns")
            except BadLineError as error:
                tally.add(str(error), number)
                continue
            if text is None:
                continue
            tally.good += 1
            text = form(normalise(text))
            if len(text.split()) > recipe.corpus.max_words:
                left_out["over max_words"] += 1
            elif is_visible(text):
                yield text
    check_read(tally, "one sentence per line")
    left_out.update(tally.bad)
