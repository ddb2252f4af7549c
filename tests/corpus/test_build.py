import gzip
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import polib
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from xcompress.corpus import build as building
from xcompress.corpus import columns
from xcompress.corpus import pairs as pairs_module
from xcompress.corpus.build import HELD_OUT, SAMPLED, CorpusReport, build, clean_sources, corpus_file, origins_file
from xcompress.corpus.clean import CleanChunk
from xcompress.corpus.filters import Limits, TokenLimit, length_in_tokens
from xcompress.corpus.pairs import Pair, as_line
from xcompress.corpus.split import rank, sentence_key
from xcompress.corpus.store import PairFile
from xcompress.errors import InputError
from xcompress.processes import map_in_order

COLOURS = ["red", "green", "blue", "white", "black", "brown"]


@dataclass(frozen=True)
class Built:
    """A corpus with all its pairs; their origin is the file's name."""

    report: CorpusReport
    train: tuple[tuple[str, str, str], ...]
    holdout: tuple[tuple[str, str, str], ...]


def built(folder: Path, catalogues: list, tsv: list, languages: list[str], **options: object) -> Built:
    report = build(folder, catalogues, tsv, languages, **options)
    pairs = [
        tuple(
            (pair.source, pair.target, pair.language)
            for language in languages
            for pair in PairFile(corpus_file(folder, part, language), language)
        )
        for part in ("train", "holdout")
    ]
    return Built(report, *pairs)


def table(path: Path, pairs: list[Pair]) -> Path:
    path.write_bytes(b"".join(map(as_line, pairs)))
    return path


def make(folder: Path) -> tuple[Path, Path]:
    """Write a German catalogue and a Dutch table about the same coloured doors."""
    catalogue = polib.POFile()
    for colour in COLOURS:
        source = f"&Open the <b>{colour}</b> door of %s"
        catalogue.append(polib.POEntry(msgid=source, msgstr=f"&Die Tür ({colour}) von %s bitte öffnen"))
    catalogue.append(polib.POEntry(msgid="Door", msgstr="Tür"))
    (folder / "locale").mkdir()
    catalogue.save(str(folder / "locale/de.po"))
    dutch = [Pair(f"Paint the big door {c} today", f"Verf de grote deur vandaag {c}", "nl", "") for c in COLOURS]
    return folder / "locale", table(folder / "nl.tsv", dutch)


def made(folder: Path, **options: object) -> Built:
    locale, dutch = make(folder)
    return built(folder / "out", [("app", locale)], [(dutch, "nl", "doors")], ["de", "nl"], **options)


def words(language: str, word: str, numbers: range) -> list[Pair]:
    return [Pair(f"This is the word number {n}", f"Hier kommt {word} {n}", language, "") for n in numbers]


def test_gathers_cleans_and_splits(tmp_path: Path) -> None:
    corpus = made(tmp_path, holdout_sentences=2)
    assert len(corpus.train) == 10 and len(corpus.holdout) == 2
    german = ("Open the red door of X", "Die Tür (red) von X bitte öffnen", "de")
    assert german in corpus.train + corpus.holdout
    assert corpus.report.train == {"de": {"app": 5}, "nl": {"doors": 5}}
    assert corpus.report.holdout == {"de": 1, "nl": 1}
    assert corpus.report.dropped == {"de": {"too short": 1}}
    assert corpus.report.bad_lines == corpus.report.broken_off == {}


def test_only_the_corpus_is_left_in_the_folder(tmp_path: Path) -> None:
    made(tmp_path, holdout_sentences=2)
    names = [f"{part}.{language}.tsv" for part in ("holdout", "train") for language in ("de", "nl")]
    indices = [f"{name}.{kind}.npy" for name in names for kind in ("hashes", "offsets")]
    indices += ["train.de.origins.npy", "train.nl.origins.npy"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*names, *indices])


def test_the_origin_of_each_training_pair_is_kept_beside_it(tmp_path: Path) -> None:
    report = made(tmp_path, holdout_sentences=2).report
    for language, counts in report.train.items():
        numbers = np.load(origins_file(tmp_path / "out", language)).tolist()
        assert Counter(report.origins[number] for number in numbers) == counts


def test_one_origin_may_have_fewer_pairs_than_the_others(tmp_path: Path) -> None:
    files = {
        name: table(
            tmp_path / name, [Pair(f"{name} number {n} is here", f"{name} Nummer {n} da", "de", "") for n in range(9)]
        )
        for name in ("few.tsv", "all.tsv")
    }
    tsv = [(path, "de", name) for name, path in files.items()]
    corpus = built(
        tmp_path / "out", [], tsv, ["de"], holdout_sentences=0, most={("de", "few.tsv"): 4, ("nl", "all.tsv"): 1}
    )
    assert corpus.report.train == {"de": {"few.tsv": 4, "all.tsv": 9}}
    assert corpus.report.dropped["de"][SAMPLED] == 5


def test_an_origin_that_is_sampled_down_keeps_its_share_under_the_cap(tmp_path: Path) -> None:
    tables = [
        (table(tmp_path / f"{language}{n}", words(language, f"{word}{n}", numbers)), language, f"{n}")
        for language, word in (("de", "Wort"), ("nl", "woord"))
        for n, numbers in enumerate((range(2000), range(2000, 2200)))
    ]
    most = {("de", "0"): 200}
    corpus = built(tmp_path / "out", [], tables, ["de", "nl"], holdout_sentences=0, most=most, max_pairs=200)
    assert 80 < corpus.report.train["de"]["0"] < 120, "of 200 and 200 pairs, about half each"
    german, dutch = ({p[0] for p in corpus.train if p[2] == language} for language in ("de", "nl"))
    second = {pair.source for pair in words("nl", "woord", range(2000, 2200))}
    assert dutch & second and dutch & second <= german, "languages are sampled down to the same sentences"


def test_the_cap_is_per_language_and_repeatable(tmp_path: Path) -> None:
    corpus = made(tmp_path, holdout_sentences=0, max_pairs=3)
    assert corpus.report.train == {"de": {"app": 3}, "nl": {"doors": 3}}
    assert corpus.report.dropped["nl"] == {SAMPLED: 3}
    again = build(
        tmp_path / "again",
        [("app", tmp_path / "locale")],
        [(tmp_path / "nl.tsv", "nl", "doors")],
        ["de", "nl"],
        holdout_sentences=0,
        max_pairs=3,
    )
    assert again == corpus.report
    for path in (tmp_path / "out").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_the_cap_takes_the_same_sentences_in_each_language(tmp_path: Path) -> None:
    tables = [
        (table(tmp_path / language, words(language, word, range(40))), language, "")
        for language, word in (("de", "Wort"), ("nl", "woord"))
    ]
    corpus = built(tmp_path / "out", [], tables, ["de", "nl"], holdout_sentences=0, max_pairs=10)
    sources = {language: {p[0] for p in corpus.train if p[2] == language} for language in ("de", "nl")}
    assert len(sources["de"]) == 10 and sources["de"] == sources["nl"]
    lowest = sorted(range(40), key=lambda n: rank(sentence_key(f"This is the word number {n}"), 0))[:10]
    assert sources["de"] == {f"This is the word number {n}" for n in lowest}


def test_the_first_translation_wins_over_sources_and_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_module, "LINES", 3)
    early, late = words("de", "Wort", range(10)), words("de", "Wörtchen", range(12))
    late = [Pair(pair.source.upper(), pair.target, "de", "") for pair in late]
    tables = [(table(tmp_path / f"{n}.tsv", rows), "de", f"{n}") for n, rows in enumerate((early + early[:4], late))]
    corpus = built(tmp_path / "out", [], tables, ["de"], holdout_sentences=0)
    assert [target for _, target, _ in corpus.train] == [
        *(f"Hier kommt Wort {n}" for n in range(10)),
        "Hier kommt Wörtchen 10",
        "Hier kommt Wörtchen 11",
    ]
    assert corpus.report.train == {"de": {"0": 10, "1": 2}}
    assert corpus.report.dropped == {"de": {"duplicate": 14}}


def test_batches_and_blocks_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [
        (table(tmp_path / f"{language}{n}", words(language, f"{word}{n}", numbers)), language, f"{n}")
        for language, word in (("de", "Wort"), ("nl", "woord"), ("fr", "parole"))
        for n, numbers in enumerate((range(400), range(300, 700), range(250, 720)))
    ]
    options = {"holdout_sentences": 90, "max_pairs": 333, "most": {("de", "0"): 30, ("nl", "1"): 77}}
    one = built(tmp_path / "one", [], tables, ["de", "fr", "nl"], **options)
    for module, name, value in (
        (pairs_module, "LINES", 13),
        (building, "LINES", 11),
        (columns, "BLOCK", 7),
        (columns, "PART", 40),
    ):
        monkeypatch.setattr(module, name, value)
    assert built(tmp_path / "again", [], tables, ["de", "fr", "nl"], **options) == one
    assert one.report.holdout == {"de": 90, "fr": 90, "nl": 90}
    assert one.report.train["de"] == {"0": 30, "1": 263, "2": 16}
    assert one.report.train["nl"] == {"0": 268, "1": 53, "2": 12} and sum(one.report.train["fr"].values()) == 333


def test_origins_are_in_the_order_of_their_first_pair_that_is_no_duplicate(tmp_path: Path) -> None:
    tables = [
        (table(tmp_path / f"{n}.tsv", words("de", "Wort", numbers)), "de", name)
        for n, (name, numbers) in enumerate(
            {"a": range(5), "only duplicates": range(5), "late": range(4), "b": range(9)}.items()
        )
    ]
    tables.append((table(tmp_path / "4.tsv", words("de", "Wort", range(20, 30))), "de", "late"))
    assert built(tmp_path / "out", [], tables, ["de"], holdout_sentences=0).report.origins == ["a", "b", "late"]


def test_every_pair_read_is_trained_on_held_out_or_counted_as_dropped(tmp_path: Path) -> None:
    pairs = words("de", "Wort", range(400)) + words("de", "Wort", range(100))
    swapped = [Pair(pair.target, pair.source, "de", "") for pair in pairs[:400]]
    source = table(tmp_path / "x.tsv", [*pairs, *swapped, Pair("Door", "Tür", "de", "")])
    corpus = built(
        tmp_path / "out",
        [],
        [(source, "de", "x")],
        ["de"],
        limits=Limits(min_words=3),
        holdout_sentences=50,
        max_pairs=300,
    )
    dropped = corpus.report.dropped["de"]
    assert dropped["duplicate"] == 100 and dropped["too short"] == 1 and dropped[HELD_OUT] > 20
    assert sum(dropped.values()) + len(corpus.train) + len(corpus.holdout) == 901
    held, trained = (
        {sentence_key(side) for pair in part for side in pair[:2]} for part in (corpus.holdout, corpus.train)
    )
    assert not held & trained


def test_form_and_tokens_are_limits_like_others(tmp_path: Path) -> None:
    quoted = [Pair(f"This is the “{n}” of many", f"Hier kommt „{n}“", "de", "") for n in range(8)]
    longer = Pair("This is the one that has too many tokens", "Hier kommt das lange", "de", "")
    same = Pair('This is the "3" of many', "Dasselbe noch einmal", "de", "")
    source = table(tmp_path / "x.tsv", [*quoted, longer, same])
    limits = Limits(form="nfkc", tokens=TokenLimit(8, lambda text: len(text.split())))
    corpus = built(tmp_path / "out", [], [(source, "de", "x")], ["de"], limits=limits, holdout_sentences=0)
    assert corpus.train == tuple((f'This is the "{n}" of many', f'Hier kommt "{n}"', "de") for n in range(8))
    assert corpus.report.dropped == {"de": {"duplicate": 1, "over max_tokens": 1}}


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    tables = [(table(tmp_path / f"{n}.tsv", words("de", "Wort", range(n))), "de", "x") for n in (8, 9)]
    prints = [build(tmp_path / f"{n}", [], [tables[n]], ["de"], holdout_sentences=0).fingerprint for n in (0, 0, 1)]
    assert prints[0] == prints[1] != prints[2]


def test_bad_lines_and_damaged_files_are_in_the_report(tmp_path: Path) -> None:
    good = b"".join(map(as_line, words("de", "Wort", range(2000))))
    (tmp_path / "x.tsv").write_bytes(b"no tab\n" + good[:2000].rpartition(b"\n")[0] + b"\n\xff\t\xff\nno tab\n")
    (tmp_path / "y.gz").write_bytes(gzip.compress(good)[:-200])
    tables = [(tmp_path / "x.tsv", "de", "x"), (tmp_path / "y.gz", "de", "y")]
    report = build(tmp_path / "out", [], tables, ["de"])
    assert report.bad_lines == {str(tmp_path / "x.tsv"): {"no tab": 2, "not UTF-8": 1}}
    assert list(report.broken_off) == [str(tmp_path / "y.gz")]
    assert report.broken_off[str(tmp_path / "y.gz")].startswith("cut off after line 1")


def test_processes_write_the_bytes_and_the_report_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locale, dutch = make(tmp_path)
    german = table(tmp_path / "de.tsv", words("de", "Wort", range(200)) * 2)
    german.write_bytes(german.read_bytes() + b"no tab\n\xff\t\xff\n")
    tables = [(dutch, "nl", "Dutch"), (german, "de", "German"), (dutch, "nl", "again")]
    monkeypatch.setattr(building, "PAIRS_ALONE", 20)
    monkeypatch.setattr(pairs_module, "LINES", 7)
    started = []
    monkeypatch.setattr(building, "map_in_order", lambda *options: started.append(options[2]) or map_in_order(*options))
    folders = [tmp_path / "one", tmp_path / "two"]
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    limits = Limits(tokens=TokenLimit(6, partial(length_in_tokens, tokenizer)))
    reports = [
        build(folder, [("app", locale)], tables, ["de", "nl"], limits=limits, processes=processes)
        for processes, folder in enumerate(folders, 1)
    ]
    assert started == [1, 2]
    assert reports[0] == reports[1] and reports[0].bad_lines == {str(german): {"no tab": 1, "not UTF-8": 1}}
    assert (
        reports[0].dropped["de"] == {"duplicate": 200, "over max_tokens": 6, "too short": 1}
        and reports[0].dropped["nl"]["duplicate"] > 0
    )
    names = [sorted(path.name for path in folder.iterdir()) for folder in folders]
    assert names[0] == names[1]
    for name in names[0]:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_hosts_write_the_bytes_and_the_report_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locale, dutch = make(tmp_path)
    (tmp_path / "de.gz").write_bytes(gzip.compress(b"".join(map(as_line, words("de", "Wort", range(200)))))[:-200])
    spanish = tmp_path / "no such file.tsv"  # of a language that is not asked for
    tables = [(dutch, "nl", "Dutch"), (spanish, "es", ""), (tmp_path / "de.gz", "de", "German"), (dutch, "nl", "again")]
    sources, languages = ([("app", locale)], tables), ["de", "nl"]
    monkeypatch.setattr(pairs_module, "LINES", 7)

    def gather(own: Iterator[CleanChunk]) -> Iterator[CleanChunk]:
        others = [clean_sources(*sources, languages, Limits(), seed=0, host=host, hosts=3) for host in (1, 2)]
        return filter(None, chain.from_iterable(zip_longest(own, *others)))

    alone = build(tmp_path / "one", *sources, languages)
    assert build(tmp_path / "three", *sources, languages, hosts=3, gather=gather) == alone
    assert alone.broken_off[str(tmp_path / "de.gz")].startswith("cut off after line")
    names = [sorted(path.name for path in (tmp_path / folder).iterdir()) for folder in ("one", "three")]
    assert names[0] == names[1]
    for name in names[0]:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "three" / name).read_bytes()


def test_a_small_text_starts_no_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.processes.ProcessPoolExecutor", lambda *_: pytest.fail("a process was started"))
    locale, dutch = make(tmp_path)
    build(tmp_path / "out", [("app", locale)], [(dutch, "nl", "")], ["de", "nl"], processes=8)


def test_a_bad_source_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"no tab\n" * 3 + as_line(words("de", "Wort", range(1))[0]))
    for name, says in (("x.tsv", "3 of 4 lines are bad"), ("none.tsv", "cannot be read")):
        with pytest.raises(InputError, match=says):
            build(tmp_path / "out", [], [(tmp_path / name, "de", "x")], ["de"])
    assert list((tmp_path / "out").iterdir()) == []


def test_a_language_without_pairs_is_refused_with_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no training pair for 'de': 7 read \(7 too short\)"):
        made(tmp_path, limits=Limits(min_words=9))
    with pytest.raises(InputError, match=r"no training pair for 'it': 0 read"):
        build(tmp_path / "out", [], [(tmp_path / "nl.tsv", "nl", "")], ["nl", "it"])


def test_languages_that_were_not_asked_for_are_left_out(tmp_path: Path) -> None:
    locale, dutch = make(tmp_path)
    assert set(build(tmp_path / "out", [("app", locale)], [(dutch, "nl", "")], ["de"]).train) == {"de"}


def test_memory_grows_by_a_few_bytes_a_pair(tmp_path: Path) -> None:
    tables = [
        table(tmp_path / f"{count}.tsv", words("de", "Wort" + " und noch viel mehr" * 5, range(count)))
        for count in (300, 1000, 8000)
    ]
    # a process of its own, as other tests leave threads and caches that allocate; the first table only warms up
    code = """
import sys, tracemalloc
from pathlib import Path
from xcompress.corpus import build as building, clean, columns, pairs
from xcompress.corpus.filters import Limits
building.PAIRS_ALONE, pairs.LINES, clean._REMEMBERED, columns.BLOCK = 200, 200, 10, 200
for path in map(Path, sys.argv[1:]):
    tracemalloc.start()
    building.build(
        path.with_suffix(""), [], [(path, "de", "x")], ["de"], limits=Limits(max_ratio=9), holdout_sentences=9
    )
    print(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
"""
    command = [sys.executable, "-c", code, *map(str, tables)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    _, small, large = map(int, printed.split())
    assert large - small < 7000 * 120, "a pair as an object takes over 400 bytes"


def test_swapped_columns_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [Pair(f"Die Tür Nummer {n} ist offen", f"The door number {n} is open", "de", "") for n in range(20)]
    built(tmp_path / "out", [], [(table(tmp_path / "de.tsv", pairs), "de", "")], ["de"], holdout_sentences=0)
    assert "the columns may be swapped" in " ".join(capsys.readouterr().err.split())
