"""`xcompress trim`: reduce the vocabulary of a model to some languages."""

from pathlib import Path
from typing import Annotated

import typer

from xcompress.cli.options import AsJson, language_codes, whole_number


def trim(
    model: Annotated[
        str,
        typer.Argument(help="Folder of a student or any transformers model, a hub id, or wheel:name==version/path."),
    ],
    languages: Annotated[
        str | None,
        typer.Option(help="ISO 639-1 codes, such as de,en: keep the tokens of the frequent words of these languages."),
    ] = None,
    text: Annotated[
        list[Path] | None,
        typer.Option(help="Text to count tokens in: one sentence per line, or TSV; also .gz and .xz; repeatable."),
    ] = None,
    vocabulary: Annotated[
        int | None,
        whole_number(
            "--vocabulary",
            1,
            100_000_000,
            help="Keep this many of the most frequent tokens, plus the tokens that they need.",
        ),
    ] = None,
    min_count: Annotated[
        int, whole_number("--min-count", 1, 10**12, help="Keep tokens that occur at least this often.")
    ] = 1,
    prefix: Annotated[
        list[str] | None,
        typer.Option(
            help="Prompt that will stand before sentences, such as 'query: ', where the model's folder names none: "
            "keep its tokens; repeatable."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write; default: <model>-<languages>.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Trim the vocabulary of a model to some languages.

    Only the token embeddings get fewer rows. Text made of kept tokens gets the same vectors as before. Every 20th line
    of the text and some rarer words of each language are held out; the report shows their unknown tokens and the growth
    in tokens per word.

    Example:  xcompress trim sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2 --languages de,en

    Example:  xcompress trim intfloat/multilingual-e5-small --languages tr --prefix "query: " --prefix "passage: "

    Example:  xcompress trim path/to/model --languages de --text mails.txt.gz --vocabulary 20000 --output mails
    """
    from xcompress.vocab.trim import trim_model

    codes = list(dict.fromkeys(language_codes(languages)))
    trimmed = trim_model(
        model, output, languages=codes, texts=text or [], size=vocabulary, min_count=min_count, prefixes=prefix or []
    )
    if json:
        from xcompress.console import emit_json

        emit_json(trimmed)
    else:
        trimmed.show()
