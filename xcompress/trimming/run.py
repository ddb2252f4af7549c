"""`xcompress trim`: from a model and languages or text to a folder of the same kind with a smaller vocabulary."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

import xcompress
from xcompress import console
from xcompress.errors import InputError
from xcompress.files import read_json, whole_folder, write_json
from xcompress.sources import resolve
from xcompress.student import MODEL_TYPE, Student
from xcompress.trimming.choice import HeldOut, Report, choose_pieces
from xcompress.trimming.counts import Counted, check_languages, count_file, count_words
from xcompress.trimming.folder import WEIGHTS, needed_ids, open_model, write_trimmed
from xcompress.vocabulary import trim

RECORD = "trim.json"
"""What a trimmed folder says about how it was made."""


@dataclass(frozen=True)
class Trimmed:
    """A model before and after."""

    model: str
    output: str
    rows_before: int
    """Rows of the word table, of which there may be more than pieces."""
    rows_after: int
    bytes_before: int
    """Of the weights' file."""
    bytes_after: int
    left_out: tuple[str, ...]
    """Files that hold the old weights or the old vocabulary in other formats."""
    vocabulary: Report

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON knows them."""
        return asdict(self)

    def show(self) -> None:
        """Print tables."""
        size = f"{self.bytes_before / 1e6:.1f}", f"{self.bytes_after / 1e6:.1f}"
        rows = [
            ("rows of the word table", f"{self.rows_before:,}", f"{self.rows_after:,}"),
            (f"MB of {WEIGHTS}", *size),
        ]
        for text in self.vocabulary.held_out:
            rows += _rates(text)
        console.table(self.output, ["", "before", "after"], rows)


def trim_model(
    model: str,
    output: Path | None = None,
    *,
    languages: Sequence[str] = (),
    texts: Sequence[Path] = (),
    size: int | None = None,
    min_count: int = 1,
) -> Trimmed:
    """Write a model with only the pieces, and rows of its word table, that languages or texts use.

    :param model: a folder of ours, of transformers or of sentence-transformers; or a reference to one.
    :param output: the folder to write; default `<model>-<languages>` here.
    :param languages: ISO 639-1 codes; the frequent words of each are counted.
    :param texts: files of text, which are counted too.
    :param size: how many of the pieces seen are kept at most.
    :param min_count: how often a piece must be seen.
    :raises InputError: when the model cannot be trimmed, there is nothing to count, or the folder cannot be written.
    """
    if not languages and not texts:
        raise InputError("trim: neither languages nor text is given; add --languages de,en or --text FILE, or both")
    source = resolve(model)
    target = output or Path(_name(model, languages))
    _check_target(target, source)
    if languages:
        check_languages(languages)
    opened = _open(source)
    counts = count(opened.tokenizer, languages, texts)
    kept = choose_pieces(opened.tokenizer, counts, size=size, min_count=min_count, needed=opened.needed)
    with whole_folder(target) as folder:
        left_out = opened.write(kept.ids, folder)
        before, after = ((place / opened.weights).stat().st_size for place in (source, folder))
        rows = opened.rows, len(kept.ids)
        trimmed = Trimmed(model, str(target), *rows, before, after, tuple(left_out), kept.report)
        write_json(folder / RECORD, {"xcompress": xcompress.__version__, **trimmed.to_json()})
    if left_out:
        console.say(f"left out, as they hold the old vocabulary: {', '.join(left_out)}")
    return trimmed


def count(tokenizer: Tokenizer, languages: Sequence[str], texts: Sequence[Path]) -> list[Counted]:
    """Count the pieces of languages' frequent words and of files of text.

    :raises InputError: when there is no word list for a language, or a file cannot be read.
    """
    return [count_words(tokenizer, one) for one in languages] + [count_file(tokenizer, path) for path in texts]


@dataclass(frozen=True)
class _Opened:
    """What trimming needs of a model, of whichever kind its folder is."""

    tokenizer: Tokenizer
    rows: int
    needed: set[int]
    weights: Path
    """Where they are in the folder."""
    write: Callable[[tuple[int, ...], Path], list[str]]


def _open(source: Path) -> _Opened:
    if not source.is_dir():
        raise InputError(f"{source}: is a file; give a model's folder")
    config = source / "config.json"
    if config.is_file() and read_json(config).get("model_type") == MODEL_TYPE:
        return _open_student(source)
    model = open_model(source)
    rows, weights = model.shapes[model.table][0], (model.encoder / WEIGHTS).relative_to(source)
    return _Opened(
        model.tokenizer, rows, needed_ids(model), weights, lambda ids, folder: write_trimmed(model, ids, folder)
    )


def _open_student(source: Path) -> _Opened:
    student, tokenizer = Student.load(source)
    prefix = tokenizer.encode(student.config.prefix, add_special_tokens=False).ids

    def write(ids: tuple[int, ...], folder: Path) -> list[str]:
        trimmed, its_tokenizer = trim(student, tokenizer, ids)
        trimmed.save(folder, its_tokenizer)
        return []

    needed = {student.config.pad_token_id, *prefix}
    return _Opened(tokenizer, student.config.vocab_size, needed, Path(WEIGHTS), write)


def _name(model: str, languages: Sequence[str]) -> str:
    last = model.rstrip("/").split("/")[-1].partition("@")[0] or "model"
    return "-".join([last, *(languages or ["trimmed"])])


def _check_target(target: Path, source: Path) -> None:
    here, there = target.resolve(), source.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise InputError(f"{target}: overlaps the model's own folder {source}; name another folder with --output")
    if target.is_file():
        raise InputError(f"{target}: is a file; name a folder with --output")
    if target.is_dir() and any(target.iterdir()) and not (target / RECORD).is_file():
        raise InputError(f"{target}: is not empty and was not written by trim; name another folder with --output")


def _rates(text: HeldOut) -> list[tuple[str, str, str]]:
    where = f"{text.name}, held out ({text.words:,} words)"
    unknown = f"{text.unknown_before:.3%}", f"{text.unknown_after:.3%}"
    length = f"{text.pieces_per_word_before:.2f}", f"{text.pieces_per_word_after:.2f}"
    return [(f"{where}: unknown pieces", *unknown), (f"{where}: pieces per word", *length)]
