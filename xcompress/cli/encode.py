"""`xcompress embed` and `xcompress search`: encode texts, and search a file by meaning.

Both work with the base install.
"""

import json as as_json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from xcompress.bundle import MOST_THREADS
from xcompress.bundle.manifest import newest_bundle
from xcompress.bundle.released import find_bundle, released_names
from xcompress.cli.options import AsJson, whole_number
from xcompress.errors import InputError, short_repr
from xcompress.printable import counted, one_line
from xcompress.tokenizer_file import LONGEST_TEXT, clean

if TYPE_CHECKING:
    from xcompress.bundle.encoder import Encoder, Precision
    from xcompress.bundle.engines import Engine
    from xcompress.bundle.stored_vectors import AnyVectors

_CHARACTERS_SHOWN = 1000
"""Characters of a text that a table shows."""
_NUMBERS_SHOWN = 4
"""Dimensions of a vector that a table shows."""
_LINES_PER_STEP = 1024
"""Texts that are read, encoded and printed at a time."""
_LONGEST_LINE = 4 * (LONGEST_TEXT + 4)
"""Bytes of a line that are read: the characters that the encoder reads, a byte order mark and a line break."""
_STANDARD_INPUT = "-"

Line = tuple[int, str]
"""Line number, counted from 1, and text."""
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="Bundle folder, name of a released model (xcompress models), or hub id of a bundle; default: the first "
        "released model, else the newest bundle in runs/.",
    ),
]
PrecisionName = Annotated[str, typer.Option(help="Graph of the bundle to run: auto, int8, int4, fp16 or fp32.")]
EngineName = Annotated[
    str,
    typer.Option(
        help="What runs the graph: onnxruntime; openvino, executorch or litert (extras); or auto: openvino for "
        "bundles exported for it."
    ),
]
Long = Annotated[
    str, typer.Option(help="Texts longer than the model's window: cut them, or take the mean of all their windows.")
]
Threads = Annotated[
    int | None,
    whole_number(
        "--threads",
        1,
        MOST_THREADS,
        help="Number of threads; default: 1 for bundles exported for phones and browsers, else one for each core "
        "that the process may use.",
    ),
]


def embed(
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to encode; with -- in front if one begins with -.")
    ] = None,
    model: Model = None,
    source: Annotated[
        str | None,
        typer.Option("--input", "-i", help="File with one text per line, also .gz and .xz; - reads standard input."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write the vectors to this .npy file, and what they are of to FILE.npy.json. To continue after an "
            "interruption, run the command again.",
        ),
    ] = None,
    numbers: Annotated[
        str,
        typer.Option(help="Numbers of the vectors: float32, int8 (a quarter of the bytes) or ubinary (one bit each)."),
    ] = "float32",
    long: Long = "cut",
    prompt_name: Annotated[
        str | None,
        typer.Option(help="Prompt of the bundle in front of each text, such as query or passage; default: its prefix."),
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="Text in front of each text, in place of a named prompt.")] = None,
    precision: PrecisionName = "auto",
    engine: EngineName = "auto",
    threads: Threads = None,
    json: AsJson = False,
) -> None:
    """Encode texts: print the vectors, or write a .npy file.

    The file has the shape (n, D). Without texts or --input, standard input is read. Every line gives one vector, even
    an empty line. Without --output, vectors are printed after every 1,024 lines that are read, each time as a table.
    --json prints one JSON object per text.

    Example:  xcompress embed "Where is the station?" "Wo ist der Bahnhof?"

    Example:  xcompress embed --model runs/minilm_ru3/bundle --input sentences.txt.gz --output vectors.npy

    Example:  xcompress embed --input documents.txt --output vectors.npy --long mean --numbers int8

    Example:  xcompress embed --model e5-bundle --input documents.txt --output vectors.npy --prompt-name passage
    """
    from xcompress.bundle.encoder import LongTexts, VectorPrecision, check_option
    from xcompress.bundle.prompts import choose_prompt
    from xcompress.bundle.stored_vectors import encode_to_file, encode_with_progress
    from xcompress.console import reader_has_enough, say, without_bars

    check_option("--numbers", numbers, get_args(VectorPrecision))
    check_option("--long", long, get_args(LongTexts))
    if output is not None and output.suffix != ".npy":
        raise InputError(f"{output}: vectors are written as .npy; give a name that ends in .npy")
    lines = _read_texts(texts or [], source)
    encoder = _open_encoder(model, precision, engine, threads)
    prompt = choose_prompt(encoder.manifest, prompt_name, _decode_argument(prompt, "embed") if prompt else prompt)
    options = cast(VectorPrecision, numbers), cast(LongTexts, long), prompt
    if output is None:
        show = _print_json if json else _print_vectors
        with without_bars():  # on a terminal, a bar would print the lines as its own, on standard error
            while not reader_has_enough() and (step := list(islice(lines, _LINES_PER_STEP))):  # they may have no end
                show(step, encode_with_progress(encoder, step, *options))
        return
    sentences = list(lines)
    vectors = encode_to_file(encoder, sentences, output, *options)
    say(f"{output}: {counted(len(vectors), 'vector')} of {counted(encoder.dimension, 'dimension')}")
    if json:
        _print_json(sentences, vectors)


def search(
    file: Annotated[
        str, typer.Argument(help="File with one sentence per line, also .gz and .xz; - reads standard input.")
    ],
    query: Annotated[
        str,
        typer.Argument(help="Text to search for, in any language of the model; with -- in front if it begins with -."),
    ],
    model: Model = None,
    k: Annotated[int, whole_number("-k", 1, 1_000_000, help="Number of lines to show.")] = 10,
    column: Annotated[
        int | None,
        whole_number("--column", 1, 10_000, help="Column to search in a tab-separated file, counted from 1."),
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            help="Vectors of the lines, from embed --input FILE --output: no line is encoded again. With --column, "
            "give embed a file of that column alone."
        ),
    ] = None,
    precision: PrecisionName = "auto",
    engine: EngineName = "auto",
    threads: Threads = None,
    json: AsJson = False,
) -> None:
    """Find the lines of a file that are nearest to a query in meaning.

    Lines are ordered by the cosine of their vectors with the query's. Where the bundle has prompts for queries and
    documents, the query and the lines get them; lines whose vectors are stored have what `embed` was told.

    Example:  xcompress search sentences.txt "Wo ist der Bahnhof?" -k 3

    Example:  xcompress search pairs.tsv.gz "a lost suitcase" --column 2 --model runs/minilm_ru3/bundle --json

    Example:  xcompress search sentences.txt "ein Koffer" --vectors vectors.npy
    """
    from xcompress.bundle.encoder import top_k
    from xcompress.bundle.prompts import DOCUMENT, choose_prompt
    from xcompress.bundle.stored_vectors import encode_with_progress, read_vectors, similarity_in_blocks
    from xcompress.console import emit, table

    query = _decode_argument(query, "search")
    if not query.strip():
        raise InputError("search: the query is empty; give the text to search for")
    if file != _STANDARD_INPUT and os.path.isfile(query) and not os.path.exists(file):  # noqa: PTH110, PTH113 - any text
        raise InputError(f"search: {short_repr(file)} is no file, but {query} is one; give the file, then the query")
    # Blank lines are not searched, and are not kept: there may be millions. In a file of vectors they have rows.
    name, lines_of_file = _open_lines(file)
    numbered: Iterable[Line] = _read_column(name, lines_of_file, column)
    if vectors:
        numbered = list(numbered)
    lines = [line for line in numbered if line[1].strip()]
    if not lines:
        raise InputError(f"{name}: contains no text; give a file with one sentence per line")
    _warn_of_long(name, [number for number, text in lines if len(text) > LONGEST_TEXT])
    encoder = _open_encoder(model, precision, engine, threads)
    if vectors:
        known = read_vectors(vectors, encoder, [text for _, text in numbered])
        cosines = similarity_in_blocks(encoder, _encode_query_for(vectors, encoder, query), known)
        cosines = cosines[[number - 1 for number, _ in lines]]
    else:
        prompt = choose_prompt(encoder.manifest, defaults=DOCUMENT)
        known = encode_with_progress(encoder, [text for _, text in lines], prompt=prompt)
        cosines = encoder.similarity(encoder.encode_query(query), known)[0]
    nearest = [(rank, float(cosines[row]), *lines[row]) for rank, row in enumerate(top_k(cosines, k), 1)]
    if json:
        keys = ("rank", "cosine", "line", "text")
        emit(_to_json([dict(zip(keys, (rank, _round(c), *line), strict=True)) for rank, c, *line in nearest]))
        return
    rows = [
        [f"{rank}. {one_line(text[:_CHARACTERS_SHOWN])}", f"{cosine:.3f}", str(number)]
        for rank, cosine, number, text in nearest
    ]
    table(one_line(f"{name}: nearest to {query[:_CHARACTERS_SHOWN]}"), ["text", "cosine", "line"], rows)


def _encode_query_for(vectors: Path, encoder: "Encoder", query: str) -> "AnyVectors":
    """Encode a query to compare with stored vectors; with the prefix if they have it, though documents have a prompt.

    So are those of `embed` without a prompt, and of earlier versions.
    """
    from xcompress.bundle.prompts import DOCUMENT, choose_prompt
    from xcompress.bundle.stored_vectors import have_prefix
    from xcompress.console import say

    is_prompted = choose_prompt(encoder.manifest, defaults=DOCUMENT) != encoder.manifest["prefix"]
    if not (is_prompted and have_prefix(vectors, encoder)):
        return encoder.encode_query(query)
    name = next(name for name in DOCUMENT if name in encoder.prompts)
    say(f"{vectors}: embed was run without --prompt-name {name}, so the query has no such prompt either")
    return encoder.encode(query)


def _print_json(sentences: Sequence[str], vectors: "AnyVectors") -> None:
    """Print a text and its vector on each line."""
    from xcompress.console import emit

    for sentence, vector in zip(sentences, vectors, strict=True):
        emit(_to_json({"text": sentence, "vector": [_round(number) for number in vector.tolist()]}))


def _print_vectors(sentences: Sequence[str], vectors: "AnyVectors") -> None:
    """Print the first numbers of each vector: of float32 with four digits, of others as the whole numbers they are."""
    from xcompress.console import table

    width, digits = vectors.shape[1], ".4f" if vectors.dtype.kind == "f" else "d"
    rows = [
        [one_line(sentence[:_CHARACTERS_SHOWN]), *(f"{number:{digits}}" for number in vector[:_NUMBERS_SHOWN].tolist())]
        for sentence, vector in zip(sentences, vectors, strict=True)
    ]
    head = ["text", *(str(number) for number in range(min(_NUMBERS_SHOWN, width)))]
    is_bits = vectors.dtype.kind == "u"
    what = f"{counted(width, 'byte')}, 8 dimensions each" if is_bits else counted(width, "dimension")
    table(f"First of {what}; --json or --output gives all", head, rows)


def _open_encoder(model: str | None, precision: str, engine: str, threads: int | None) -> "Encoder":
    from xcompress.bundle.encoder import Encoder

    # The default is a released model: mention the user's own bundle, which may be meant.
    if model is None and (names := released_names()) and (newest := newest_bundle()):
        from xcompress.console import say

        say(f"model: {names[0]}, which ships with xcompress; to use your newest bundle, add --model {newest}")
    folder = find_bundle(model)
    return Encoder(folder, precision=cast("Precision", precision), engine=cast("Engine", engine), threads=threads)


def _read_texts(texts: Sequence[str], source: str | None) -> Iterator[str]:
    """Return the texts of the command line, or the lines of a file or of standard input as they are read."""
    if texts and source is not None:
        raise InputError("embed: both texts and --input are given; give one of them")
    if texts:
        _warn_of_sources(texts)
        return iter([_decode_argument(text, "embed") for text in texts])
    if source is None and sys.stdin.isatty():
        raise InputError("embed: no text; give texts as arguments, or a file with --input")
    name, lines = _open_lines(_STANDARD_INPUT if source is None else source)
    return _texts_of(name, lines)


def _warn_of_sources(texts: Sequence[str]) -> None:
    """Warn of a text that is the name of a file, or of standard input: `search` takes these without an option."""
    from xcompress.console import warn

    for text in texts:
        with suppress(OSError):  # the text is longer than a name
            if text == _STANDARD_INPUT or Path(text).is_file():
                warn(f"embed: {short_repr(text)} is encoded as a text; to encode its lines, give --input {text}")
                return


def _decode_argument(text: str, command: str) -> str:
    """Return a text of the command line, read as UTF-8 whatever the locale, else as the locale says.

    :raises InputError: when it is neither.
    """
    with suppress(UnicodeError):
        return os.fsencode(text).decode()
    try:
        text.encode()
    except UnicodeEncodeError as error:  # Python has kept single bytes as surrogates
        raise InputError(f"{command}: {short_repr(text)} is not UTF-8; write the text in UTF-8") from error
    return text


def _texts_of(name: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the texts of lines; at the end, warn of those that are longer than what is read of them.

    :raises InputError: when there are none.
    """
    number, too_long = 0, []
    for number, text in _read_column(name, lines, None):
        if len(text) > LONGEST_TEXT:
            too_long.append(number)
        yield text
    if not number:
        raise InputError(f"{name}: contains no text; give one text per line")
    _warn_of_long(name, too_long)


def _warn_of_long(name: str, numbers: Sequence[int]) -> None:
    """Warn once of lines with these numbers, which are longer than what is read of them."""
    from xcompress.console import warn

    if numbers:
        others = f" (and {len(numbers) - 1:,} more)" if len(numbers) > 1 else ""
        warn(f"{name}:{numbers[0]}{others}: longer than {LONGEST_TEXT:,} characters; the rest is not read")


def _read_column(name: str, lines: Iterable[str], column: int | None) -> Iterator[Line]:
    """Yield the lines of a file, or one column of them.

    :raises InputError: naming the first line that lacks the column.
    """
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        cells = [text] if column is None else text.split("\t")
        if len(cells) < (column or 1):
            count = counted(len(cells), "column")
            raise InputError(f"{name}:{number}: {count}, split at tabs, but --column is {column}; correct one of them")
        yield number, cells[(column or 1) - 1]


def _open_lines(source: str) -> tuple[str, Iterator[str]]:
    """Return the name and the lines of a file, or of standard input."""
    from xcompress.corpus.lines import bounded_lines, decode_lines, text_lines

    if source != _STANDARD_INPUT:
        return source, text_lines(Path(source), longest=_LONGEST_LINE, cut=True)
    name, lines = "standard input", bounded_lines(sys.stdin.buffer, _LONGEST_LINE)
    return name, decode_lines(name, lines, longest=_LONGEST_LINE, cut=True)


def _to_json(value: object) -> str:
    """Return one line of JSON; lone surrogates become question marks, as in the encoder."""
    return clean(as_json.dumps(value, ensure_ascii=False))


def _round(number: float) -> float:
    """Round to nine digits, which tell all float32 numbers apart; leave whole numbers as they are."""
    return number if isinstance(number, int) else float(f"{number:.9g}")
