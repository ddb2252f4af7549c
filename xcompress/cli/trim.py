"""`xcompress trim`: reduce the vocabulary of a model to some languages."""

from pathlib import Path
from typing import Annotated

import typer

from xcompress.cli.options import AsJson, language_codes


def trim(
    model: Annotated[
        str,
        typer.Argument(
            help="Folder of a student or of any transformers model, hub id, or wheel:name==version/path/inside."
        ),
    ],
    languages: Annotated[
        str | None,
        typer.Option(help="ISO 639-1 codes, such as de,en: keep the tokens of the frequent words of these languages."),
    ] = None,
    text: Annotated[
        list[Path] | None,
        typer.Option(help="Text whose tokens are counted: one sentence a line, or TSV; .gz and .xz too; repeatable."),
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option(help="Keep this many of the most frequent tokens, and the tokens that they require.")
    ] = None,
    min_count: Annotated[int, typer.Option(help="Keep tokens that occur at least this often.")] = 1,
    output: Annotated[Path | None, typer.Option(help="Folder to write; default: <model>-<languages>.")] = None,
    json: AsJson = False,
) -> None:
    """Trim a model's vocabulary, with the rows of its token embeddings, to the tokens that some languages use.

    Text of kept tokens has the same vectors as before. Every 20th line of a text, and some rarer words of each
    language, are held out: the report gives their unknown tokens, and the growth in tokens per word.

    Example:  xcompress trim sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2 --languages de,en

    Example:  xcompress trim path/to/model --languages de --text mails.txt.gz --vocabulary 20000 --output small
    """
    from xcompress.vocab.trim import trim_model

    codes = list(dict.fromkeys(language_codes(languages)))
    trimmed = trim_model(model, output, languages=codes, texts=text or [], size=vocabulary, min_count=min_count)
    if json:
        from json import dumps

        from xcompress.console import emit

        emit(dumps(trimmed.to_json(), indent=2, ensure_ascii=False))
    else:
        trimmed.show()
