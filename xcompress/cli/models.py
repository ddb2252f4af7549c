"""`xcompress models`: the models that come with xcompress."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

_PARTS = ("en-en", "other monolingual", "xx>en", "en>xx")
"""Averages that are parts of others; --json has them."""
HEAD = ("name", "MB on disk", "numbers", "languages", "dev scores")


def models(json: Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")] = False) -> None:
    """List the models that come with xcompress: languages, size, length of a vector, dev scores.

    Each name can be given to --model of embed and search, and to Encoder.released. The README.md in a model's folder,
    which --json names, says on what it was trained and what it is bad at.

    Example:  xcompress models

    Example:  xcompress models --json
    """
    from json import dumps

    from xcompress.console import emit, say, table

    found = listed()
    if json:
        emit(dumps(found, indent=2, ensure_ascii=False))
    elif found:
        table("Models that come with xcompress; the first is the default", HEAD, [_row(one) for one in found])
    else:
        say("no released model in this installation; make one: xcompress distill, then xcompress export")


def listed() -> list[dict[str, Any]]:
    """Describe each released model, the default first.

    :raises InputError: when one's manifest cannot be read.
    """
    from xcompress.bundle.integrity import read_manifest
    from xcompress.bundle.released import released_folder, released_names

    folders = {name: released_folder(name) for name in released_names()}
    return [_described(name, folder, read_manifest(folder)) for name, folder in folders.items()]


def _described(name: str, folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    from xcompress.bundle.released import dev_averages, size_of

    return {
        "name": name,
        "folder": str(folder),
        "languages": manifest.get("languages", []),
        "bytes": size_of(folder),
        "dimension": manifest["dimension"],
        "precision": manifest.get("precision"),
        "parameters": manifest.get("parameters"),
        "max_tokens": manifest["max_tokens"],
        "dev": dev_averages(manifest),
    }


def _row(one: Mapping[str, Any]) -> list[str]:
    tests = [
        f"{test}: {', '.join(f'{name} {value:.1f}' for name, value in averages.items() if name not in _PARTS)}"
        for test, averages in one["dev"].items()
    ]
    figures = [f"{one['bytes'] / 1e6:.1f}", str(one["dimension"])]
    return [one["name"], *figures, " ".join(one["languages"]), "\n".join(tests) or "not recorded"]
