"""What it costs to store vectors as int8 or bits, and what `long="mean"` gains on documents; writes stored_vectors.md.

    python benchmarks/stored_vectors.py DATA [--tables sts tatoeba documents time]

DATA is a folder with stsb-multi-mt (dev), tatoeba, parallel/wmt-news.en-<language>.tsv.xz (english<TAB>translation) and
classification/sib200 (<language>.<split>.tsv.xz: id, topic, text). Measured are the released models small and tiny.
"""

import argparse
import random
from functools import partial
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any, get_args

import numpy as np
from measuring import in_turns, median_ratio
from numpy.typing import NDArray

from xcompress import Encoder
from xcompress.bench.eval.classification import Probe
from xcompress.bench.eval.readers import read_labelled, read_tatoeba
from xcompress.bench.machine import describe
from xcompress.bench.report.format import threads_text
from xcompress.bundle.encoder import LongTexts, VectorPrecision
from xcompress.console import markdown_table, run_script, say
from xcompress.corpus.graded import PIVOT, read_folder
from xcompress.corpus.lines import text_lines
from xcompress.files import write_between_markers
from xcompress.metrics import Vectors, spearman

PAGE = Path(__file__).parent / "stored_vectors.md"
MODELS = ("small", "tiny")
PRECISIONS: tuple[VectorPrecision, ...] = get_args(VectorPrecision)
LONG: tuple[LongTexts, ...] = get_args(LongTexts)
TABLES = ("sts", "tatoeba", "documents", "time")
STS = ("en", "de", "es", "fr", "it", "nl", "tr")
TATOEBA = ("ar", "de", "es", "fr", "it", "nl", "tr")
NEWS = ("de", "es", "fr", "it", "tr")
TOPICS = ("en", "ar", "de", "es", "fr", "it", "nl", "tr")
TOKENS = (300, 600)
"""English tokens of a document: lines are added up to the first number; one with more than the second is dropped."""
DOCUMENTS = 100
"""Documents of a language."""
SHUFFLES = 2
"""How often the sentences of a topic are shuffled and joined again."""
STORED = 100_000
"""Vectors that one query is compared with, to time it."""
ROUNDS = 9


def main() -> None:
    """Measure both models and write the page's tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES, help="measure these alone")
    arguments = parser.parse_args()
    encoders = {name: Encoder.from_pretrained(name) for name in MODELS}
    tables: dict[str, list[list[str]]] = {}
    for table in arguments.tables:
        measure = {"sts": sts, "tatoeba": tatoeba, "documents": documents, "time": comparisons}[table]
        tables[table] = [[name, *row] for name, encoder in encoders.items() for row in measure(encoder, arguments.data)]
        say(f"{table}: done")
    machine = describe()
    heads = {
        "sts": ["model", "stored as", *STS, "mean", "English with another"],
        "tatoeba": ["model", "stored as", *TATOEBA, "mean"],
        "documents": ["model", "long", "translated document", "document of a sentence", *TOPICS, "topic, mean"],
        "time": ["model", "stored as", "bytes", "s per million comparisons", "times float32"],
    }
    for table, rows in tables.items():
        text = markdown_table(heads[table], rows)
        if table == "time":
            text += f"\n\n{machine.cpu}, {threads_text(machine.threads)}, load {machine.load:.1f} before."
        write_between_markers(PAGE, table, "benchmarks/stored_vectors.py", text)


def sts(encoder: Encoder, data: Path) -> list[list[str]]:
    """Return Spearman x 100 by language, their mean, and the mean of English with another, for each precision."""
    graded = read_folder(data / "stsb-multi-mt").within(STS)
    tables = {code: graded.language_pairs[f"{code}-{code}"] for code in STS}
    firsts = {code: encoder.encode(table.first) for code, table in tables.items()}
    seconds = {code: encoder.encode(table.second) for code, table in tables.items()}
    grades = np.asarray(tables[PIVOT].scores)
    rows = []
    for precision in PRECISIONS:
        scores = {
            (one, other): spearman(row_cosines(encoder, firsts[one], seconds[other], precision), grades)
            for one in STS
            for other in STS
            if one in (PIVOT, other)
        }
        alone = [scores[code, code] for code in STS]
        crossed = fmean(scores[PIVOT, code] for code in STS if code != PIVOT)
        rows.append([precision, *(f"{value:.1f}" for value in (*alone, fmean(alone), crossed))])
    return rows


def row_cosines(encoder: Encoder, left: Vectors, right: Vectors, precision: VectorPrecision) -> Vectors:
    """Return the cosine of each row of `left` with the same row of `right`, both stored in a precision."""
    pairs = zip(*(encoder.store_as(side, precision) for side in (left, right)), strict=True)
    return np.array([encoder.similarity(one, other)[0, 0] for one, other in pairs], dtype=np.float32)


def tatoeba(encoder: Encoder, data: Path) -> list[list[str]]:
    """Return the share of translations found, in percent and both directions, by language, for each precision."""
    (sets,) = read_tatoeba(data / "tatoeba").values()
    vectors = {code: [encoder.encode(side) for side in zip(*sets[code], strict=True)] for code in TATOEBA}
    rows = []
    for precision in PRECISIONS:
        found = [
            translations_found(encoder, *(encoder.store_as(side, precision) for side in vectors[code]))
            for code in TATOEBA
        ]
        rows.append([precision, *(f"{value:.1f}" for value in (*found, fmean(found)))])
    return rows


def translations_found(encoder: Encoder, left: NDArray[Any], right: NDArray[Any]) -> float:
    """Return how often the nearest neighbour of a row is the same row of the other side, in percent."""
    similarity = encoder.similarity(left, right)
    rows = np.arange(len(left))
    return 50 * float((similarity.argmax(1) == rows).mean() + (similarity.argmax(0) == rows).mean())


def documents(encoder: Encoder, data: Path) -> list[list[str]]:
    """Return what is found and which topics are recognised, in percent, for `long="cut"` and `"mean"`."""
    news = {code: news_documents(encoder, data, code) for code in NEWS}
    topics = {code: topic_documents(encoder, data, code) for code in TOPICS}
    rows = []
    for long in LONG:
        translated, holding = [], []
        for english, others, sentences in news.values():
            left, right = encoder.encode(others, long=long), encoder.encode(english, long=long)
            translated.append(translations_found(encoder, left, right))
            nearest = encoder.similarity(encoder.encode(sentences), right).argmax(1)
            holding.append(100 * float((nearest == np.arange(len(sentences))).mean()))
        recognised = topics_recognised(encoder, topics, long)
        figures = (fmean(translated), fmean(holding), *recognised, fmean(recognised))
        rows.append([long, *(f"{value:.1f}" for value in figures)])
    return rows


def news_documents(encoder: Encoder, data: Path, language: str) -> tuple[list[str], list[str], list[str]]:
    """Join consecutive lines of wmt-news: English documents, their translations, and the last line translated."""
    english, others, sentences = [], [], []
    block: list[tuple[str, str]] = []
    length = 0
    for line in text_lines(data / "parallel" / f"wmt-news.en-{language}.tsv.xz"):
        source, target = line.rstrip("\n").split("\t")
        block.append((source, target))
        length += token_count(encoder, source)
        if length < TOKENS[0]:
            continue
        if length <= TOKENS[1]:
            english.append(" ".join(pair[0] for pair in block))
            others.append(" ".join(pair[1] for pair in block))
            sentences.append(target)
        block, length = [], 0
        if len(english) == DOCUMENTS:
            break
    return english, others, sentences


def topic_documents(encoder: Encoder, data: Path, language: str) -> dict[str, tuple[list[str], list[str]]]:
    """Join sentences of one topic of SIB-200, in a random order with a fixed seed: topics and documents, by split."""
    splits = {}
    for split, files in {"train": ("train",), "test": ("dev", "test")}.items():
        by_topic: dict[str, list[str]] = {}
        for file in files:
            for topic, text in read_labelled(data / "classification" / "sib200", file)[language]:
                by_topic.setdefault(topic, []).append(text)
        names, texts = [], []
        for topic, sentences in sorted(by_topic.items()):
            order = random.Random(topic)
            for _ in range(SHUFFLES):
                block: list[str] = []
                for sentence in order.sample(sentences, len(sentences)):
                    block.append(sentence)
                    if sum(token_count(encoder, part) for part in block) >= TOKENS[0]:
                        names.append(topic)
                        texts.append(" ".join(block))
                        block = []
        splits[split] = (names, texts)
    return splits


def topics_recognised(
    encoder: Encoder, topics: dict[str, dict[str, tuple[list[str], list[str]]]], long: LongTexts
) -> list[float]:
    """Train a linear probe on the English documents; return its accuracy in every language, in percent."""
    names, texts = topics[PIVOT]["train"]
    probe = Probe(encoder.encode(texts, long=long), names)
    shares = []
    for code in TOPICS:
        names, texts = topics[code]["test"]
        shares.append(100 * float((probe.predict(encoder.encode(texts, long=long)) == np.array(names)).mean()))
    return shares


def token_count(encoder: Encoder, text: str) -> int:
    """Return the tokens of a sentence, without the two special ones."""
    return len(encoder.token_ids([text])[0]) - 2


def comparisons(encoder: Encoder, data: Path) -> list[list[str]]:
    """Time `similarity` of one query with many stored vectors, the precisions in turns; `data` is not needed."""
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(STORED, encoder.dimension)).astype(np.float32)
    stored = {precision: encoder.store_as(vectors, precision) for precision in PRECISIONS}

    def time_query(rows: NDArray[Any]) -> float:
        start = perf_counter()
        encoder.similarity(rows[0], rows)
        return (perf_counter() - start) * 1e6 / STORED

    seconds = in_turns({precision: partial(time_query, rows) for precision, rows in stored.items()}, ROUNDS)
    return [
        [
            precision,
            f"{stored[precision][0].nbytes:,}",
            f"{median(times):.2f}",
            f"{median_ratio(times, seconds[PRECISIONS[0]]):.2f}",
        ]
        for precision, times in seconds.items()
    ]


if __name__ == "__main__":
    run_script(main)
