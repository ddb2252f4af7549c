"""`xcompress trim`: a model with only the vocabulary of some languages."""

from pathlib import Path
from typing import Annotated

import typer


def trim(
    model: Annotated[
        str, typer.Argument(help="Folder of a student, or of any transformers model; hub id; wheel:name==version/path.")
    ],
    languages: Annotated[
        str | None, typer.Option(help="ISO 639-1 codes, such as de,en: keep what their frequent words use.")
    ] = None,
    text: Annotated[
        list[Path] | None,
        typer.Option(help="Text to count, a sentence a line or columns set apart by tabs, also .gz, .xz; repeatable."),
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option(help="Keep so many of the most frequent pieces, and what is needed beside them.")
    ] = None,
    min_count: Annotated[int, typer.Option(help="Keep pieces that are seen at least so often.")] = 1,
    output: Annotated[Path | None, typer.Option(help="Folder to write; <model>-<languages> when not given.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")] = False,
) -> None:
    """Cut a model's vocabulary, and the rows of its word table with it, down to what some languages use.

    Text made of kept pieces gets the same vectors as before. Every 20th line of a text, and some rarer words of a
    language, are not counted; on them the report says how many pieces are unknown and how much longer texts become.

    Example:  xcompress trim sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2 --languages de,en

    Example:  xcompress trim path/to/model --languages de --text mails.txt.gz --vocabulary 20000 --output small
    """
    from xcompress.vocab.trim import trim_model

    codes = list(dict.fromkeys(code.strip() for code in (languages or "").split(",") if code.strip()))
    trimmed = trim_model(model, output, languages=codes, texts=text or [], size=vocabulary, min_count=min_count)
    if json:
        from json import dumps

        from xcompress.console import emit

        emit(dumps(trimmed.to_json(), indent=2, ensure_ascii=False))
    else:
        trimmed.show()
