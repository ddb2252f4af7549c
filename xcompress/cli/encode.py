"""`xcompress embed` and `xcompress search`: vectors of texts, and the lines of a file that are nearest to a query.

Both need the base install only. What is heavy is imported when a command runs.
"""

import json as as_json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from xcompress.bundle.released import find_bundle, newest_bundle, released_names
from xcompress.errors import InputError

if TYPE_CHECKING:
    from xcompress.bundle.encoder import Encoder, Precision, Vectors

_AT_ONCE = 1024
"""Texts between two steps of the progress bar."""
_SHOWN = 4
"""Numbers of a vector that a table shows."""

Line = tuple[int, str]
"""Number of a line, from 1, and its text."""
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A bundle's folder, or the name of a released model (xcompress models); without it the released one, or "
        "the newest of runs/ where none is.",
    ),
]
PrecisionName = Annotated[str, typer.Option(help="auto, or a graph of the bundle: int8, int4, fp16, fp32.")]
Threads = Annotated[int | None, typer.Option(help="Threads; onnxruntime's own choice when not given.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")]


def embed(
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts, each one argument.")] = None,
    model: Model = None,
    source: Annotated[
        str | None,
        typer.Option("--input", "-i", help="File with a text a line (.gz and .xz too); - is standard input."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the vectors to this .npy file.")] = None,
    precision: PrecisionName = "auto",
    threads: Threads = None,
    json: AsJson = False,
) -> None:
    """Turn texts into vectors, with a bundle: print them, or write them to a .npy file (n, D).

    Without texts and --input, standard input is read. Every line gives a row.
    With --json, a line of JSON is printed for each text.

    Example:  xcompress embed "Where is the station?" "Wo ist der Bahnhof?"

    Example:  xcompress embed --model runs/minilm_ru3/bundle --input sentences.txt.gz --output vectors.npy
    """
    from xcompress.console import emit, say

    if output is not None and output.suffix != ".npy":
        raise InputError(f"{output}: vectors are written as .npy; give a name that ends in .npy")
    given = _given_texts(texts or [], source)
    vectors = _encode(_open(model, precision, threads), given)
    if output is not None:
        _save(output, vectors)
        say(f"{output}: {vectors.shape[0]} vectors of {vectors.shape[1]} numbers")
    if json:
        for text, vector in zip(given, vectors, strict=True):
            emit(_json({"text": text, "vector": [_short(number) for number in vector]}))
    elif output is None:
        _show_vectors(given, vectors)


def search(
    file: Annotated[Path, typer.Argument(help="File with a sentence a line (.gz and .xz too).")],
    query: Annotated[str, typer.Argument(help="What to look for, in any language of the encoder.")],
    model: Model = None,
    k: Annotated[int, typer.Option("-k", help="How many lines to show.")] = 10,
    column: Annotated[
        int | None, typer.Option(help="The text is this column, from 1, of a tab-separated file.")
    ] = None,
    precision: PrecisionName = "auto",
    threads: Threads = None,
    json: AsJson = False,
) -> None:
    """Show the lines of a file whose vectors are nearest to that of a query, by their cosine.

    Example:  xcompress search sentences.txt "Wo ist der Bahnhof?" -k 3

    Example:  xcompress search pairs.tsv.gz "a lost suitcase" --column 2 --model runs/minilm_ru3/bundle --json
    """
    from xcompress.console import emit

    if k < 1:
        raise InputError(f"search: -k is {k}; it must be 1 or more")
    lines = [line for line in _column(file, column) if line[1].strip()]
    if not lines:
        raise InputError(f"{file}: holds no text; name a file with a sentence a line")
    found = _nearest(_open(model, precision, threads), lines, query, k)
    if json:
        emit(_json([{"rank": n, "cosine": _short(c), "line": i, "text": t} for n, (c, (i, t)) in enumerate(found, 1)]))
    else:
        _show_found(file, query, found)


def _open(model: str | None, precision: str, threads: int | None) -> "Encoder":
    from xcompress.bundle.encoder import Encoder

    _tell_of_own(model)
    return Encoder(find_bundle(model), precision=cast("Precision", precision), threads=threads)


def _tell_of_own(model: str | None) -> None:
    """Say so where the default is taken and there is a bundle that the user may have meant."""
    own, names = newest_bundle(), released_names()
    if model is None and names and own:
        from xcompress.console import say

        say(f"model: {names[0]}, which comes with xcompress; for your newest bundle add --model {own}")


def _given_texts(texts: Sequence[str], source: str | None) -> list[str]:
    """Return the texts of the arguments, or the lines of a file or of standard input."""
    if texts and source is not None:
        raise InputError("embed: texts and --input; give one of the two")
    if texts:
        return list(texts)
    if source is None and sys.stdin.isatty():
        raise InputError('embed: no text; give some ("..."), or a file with --input')
    lines = _stdin_lines() if source in (None, "-") else _file_lines(Path(str(source)))
    found = [text for _, text in lines]
    if not found:
        raise InputError(f"{source or 'standard input'}: holds no text; give a text a line")
    return found


def _stdin_lines() -> Iterator[Line]:
    return _decoded("standard input", sys.stdin.buffer)


def _file_lines(file: Path) -> Iterator[Line]:
    from xcompress.corpus.lines import BrokenOffError, read_lines

    try:
        yield from _decoded(str(file), read_lines(file))
    except BrokenOffError as error:
        raise InputError(f"{file}: {error}; fetch or pack it again") from error


def _decoded(name: str, lines: Iterable[bytes]) -> Iterator[Line]:
    """Yield decoded lines with their numbers.

    :raises InputError: with the line that is not UTF-8.
    """
    from xcompress.corpus.lines import LONGEST

    for number, line in enumerate(lines, 1):
        try:
            # where a line was cut for its length, half a character may be left of the last one
            text = line.decode("utf-8", "strict" if len(line) <= LONGEST else "ignore")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}, line {number}: not UTF-8 ({error.reason}); convert the file") from error
        yield number, text.removeprefix("\ufeff" if number == 1 else "").rstrip("\r\n")


def _column(file: Path, column: int | None) -> Iterator[Line]:
    """Yield the lines, or one column of them.

    :raises InputError: with the first line that lacks the column.
    """
    if column is not None and column < 1:
        raise InputError(f"search: --column is {column}; columns are counted from 1")
    for number, text in _file_lines(file):
        cells = [text] if column is None else text.split("\t")
        if len(cells) < (column or 1):
            raise InputError(f"{file}, line {number}: {len(cells)} columns, but --column is {column}; correct either")
        yield number, cells[(column or 1) - 1]


def _encode(encoder: "Encoder", texts: Sequence[str]) -> "Vectors":
    """Encode texts under a progress bar, (n, D)."""
    import numpy as np

    from xcompress.console import bar

    vectors = np.empty((len(texts), encoder.dimension), dtype=np.float32)
    with bar("encoding", len(texts)) as ticker:
        for start in range(0, len(texts), _AT_ONCE):
            part = texts[start : start + _AT_ONCE]
            vectors[start : start + len(part)] = encoder.encode(part)
            ticker.advance(len(part))
    return vectors


def _nearest(encoder: "Encoder", lines: Sequence[Line], query: str, k: int) -> list[tuple[float, Line]]:
    """Return cosine and line of the k nearest, the nearest first."""
    from xcompress.bundle.encoder import top_k

    vectors = _encode(encoder, [text for _, text in lines])
    cosines = encoder.similarity(encoder.encode(query), vectors)[0]
    return [(float(cosines[row]), lines[row]) for row in top_k(cosines, k)]


def _save(output: Path, vectors: "Vectors") -> None:
    import numpy as np

    from xcompress.files import whole_file

    with whole_file(output) as temporary, temporary.open("wb") as stream:
        np.save(stream, vectors)


def _show_vectors(texts: Sequence[str], vectors: "Vectors") -> None:
    from xcompress.console import table

    head = ["text", *(str(number) for number in range(min(_SHOWN, vectors.shape[1])))]
    rows = [
        [_printable(text), *(f"{number:.4f}" for number in vector[:_SHOWN])]
        for text, vector in zip(texts, vectors, strict=True)
    ]
    table(f"The first of {vectors.shape[1]} numbers; all with --json or --output", head, rows)


def _show_found(file: Path, query: str, found: Sequence[tuple[float, Line]]) -> None:
    from xcompress.console import table

    rows = [
        [f"{rank}. {_printable(text)}", f"{cosine:.3f}", str(number)]
        for rank, (cosine, (number, text)) in enumerate(found, 1)
    ]
    table(_printable(f"{file}: nearest to {query}"), ["text", "cosine", "line"], rows)


def _printable(text: str) -> str:
    """Replace what would steer a terminal, or cannot be printed, by spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:1000])


def _json(value: object) -> str:
    """Write one line of JSON; halves of surrogate pairs become question marks, as in the encoder."""
    from xcompress.bundle.encoder import clean

    return clean(as_json.dumps(value, ensure_ascii=False))


def _short(number: float) -> float:
    """Return a number with the nine digits that tell float32 numbers apart."""
    return float(f"{number:.9g}")
