from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from xcompress.corpus import columns, sequences
from xcompress.corpus.pairs import Pair, as_line
from xcompress.corpus.sequences import ConcatSequence, DistinctTexts
from xcompress.corpus.store import PairFile, text_hash, write_lines
from xcompress.distillation import distributed
from xcompress.distillation.data import sentences
from xcompress.distillation.data.sentences import Sentences, distinct
from xcompress.errors import InputError

PAIRS = [Pair("aa", "b", "de", ""), Pair("a", "bbb", "de", ""), Pair("aa", "bb", "fr", "")]


def test_a_side_is_read_pair_by_pair() -> None:
    side = Sentences(PAIRS, "target", np.array([2, 0, 2]))
    assert list(side) == ["bb", "b", "bb"] and side[1:] == ["b", "bb"]
    with pytest.raises(IndexError):
        side[3]


def test_concatenated_sequences_read_as_one() -> None:
    texts = ConcatSequence([["a"], [], ["b", "c"]])
    assert list(texts) == ["a", "b", "c"] and texts[-1] == "c" and len(texts) == 3


def test_distinct_texts_occur_once_and_rows_point_to_them(tmp_path: Path) -> None:
    texts = ["x", "y", "x", "z", "y"]
    unique, rows = distinct(texts, tmp_path)
    assert sorted(unique) == ["x", "y", "z"]
    assert [unique[row] for row in rows] == texts


def in_files(folder: Path) -> Sequence[Pair]:
    """Write pairs of two languages, some sentences of which are the same."""
    languages = {
        name: [Pair(f"row {n % 30}", f"{name} {n % 50} ü", name, "") for n in range(90)] for name in ("de", "fr")
    }
    for name, pairs in languages.items():
        write_lines(folder / name, map(as_line, pairs))
    return ConcatSequence([PairFile(folder / name, name) for name in languages])


def test_rows_of_a_corpus_are_found_without_reading_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in ((sentences, "BLOCK", 7), (columns, "PART", 16), (columns, "BLOCK", 9)):
        monkeypatch.setattr(module, name, value)
    pairs, order = in_files(tmp_path), np.random.default_rng(1).permutation(180)
    texts = ConcatSequence(
        [Sentences(pairs, "source", order), ["row 3", "other"], Sentences(pairs, "target", order[:70])]
    )
    expected, rows = distinct(list(texts), tmp_path / "list")
    with monkeypatch.context() as patch:
        patch.setattr(PairFile, "item", lambda *_: pytest.fail("a pair was read"))
        found, rows_found = distinct(texts, tmp_path / "corpus")
    assert found.digest == expected.digest and list(found) == list(expected)
    assert rows_found.tolist() == rows.tolist()
    assert [found[row] for row in rows_found] == list(texts)
    hashes = [int.from_bytes(text_hash(text.encode()), "little") for text in found]
    assert hashes == sorted(hashes)


@pytest.mark.parametrize(
    "blocks",
    [
        [range(0, 25), range(25, 50), range(50, 75)],
        [range(25, 50), range(75, 100), range(100, 103)],
    ],
)
def test_texts_of_blocks_are_read_in_the_order_of_the_files(
    blocks: list[range], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequences, "AT_ONCE", 40)
    monkeypatch.setattr(columns, "PART", 16)
    pairs, order = in_files(tmp_path), np.random.default_rng(1).permutation(180)
    sides = [Sentences(pairs, "source", order), ["other", "a\ttab\nand \udce9"], Sentences(pairs, "target", order[:90])]
    texts, _ = distinct(ConcatSequence(sides), tmp_path / "rows")
    expected = [[texts[row] for row in block] for block in blocks]
    reads: list[tuple[str, int]] = []
    read = PairFile.item
    monkeypatch.setattr(PairFile, "item", lambda file, row: reads.append((file.language, row)) or read(file, row))
    monkeypatch.setattr(DistinctTexts, "item", lambda *_: pytest.fail("a row was looked up in the order of hashes"))
    assert list(texts.blocks(blocks, tmp_path / "scratch" / "0")) == expected
    backwards = sum(after < before for before, after in pairwise(reads))
    assert backwards == 1 and len(reads) > 40  # from the sources, which end in French, to the targets in German
    assert not list((tmp_path / "scratch").iterdir())


def test_texts_of_blocks_may_all_lie_in_a_part_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "AT_ONCE", 4)
    monkeypatch.setattr(columns, "PART", 4)
    texts, _ = distinct([f"text {number % 20}" for number in range(60)], tmp_path / "rows")
    blocks = [range(start, start + 4) for start in range(0, 20, 4)]
    assert list(texts.blocks(blocks, tmp_path / "scratch")) == [texts[block.start : block.stop] for block in blocks]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_ends_the_reading_of_blocks_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "AT_ONCE", 2)
    texts, _ = distinct(["a", "b", "c", "d"], tmp_path / "rows")
    monkeypatch.setattr(sequences._TextFile, "append", lambda *_: Path("/dev/full").write_text("x"))
    with pytest.raises(InputError, match=r"scratch: cannot be written \(No space left on device\); free space"):
        list(texts.blocks([range(2), range(2, 4)], tmp_path / "scratch"))
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


@pytest.mark.parametrize("name", ["rows.npy", "first.npy", "info.json"])
def test_damaged_rows_are_named_and_found_again(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["x", "y", "x", "z", "y"]
    _, rows = distinct(texts, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sentences, "_write_distinct", lambda *_: pytest.fail("rows were found twice"))
        assert distinct(texts, tmp_path)[1].tolist() == rows.tolist()
    (file,) = tmp_path.glob(f"rows-*/{name}")
    file.write_bytes(file.read_bytes()[:-5])
    capsys.readouterr()
    assert distinct(texts, tmp_path)[1].tolist() == rows.tolist()
    said = " ".join(capsys.readouterr().err.split())
    assert f"rows of vectors in {file.parent}: {name} is" in said and said.endswith("; found again")


def test_a_worker_without_the_rows_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "is_main", lambda: False)
    with pytest.raises(InputError, match="missing after the main worker wrote it; use one run folder for all workers"):
        distinct(["x"], tmp_path)
