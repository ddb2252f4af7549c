"""`xcompress dequantize`: turn a bundle back into a student, to train it further."""

from pathlib import Path
from typing import Annotated

import typer


def dequantize(
    model: Annotated[
        str,
        typer.Argument(help="Bundle folder, name of a released model (xcompress models), or hub id of a bundle."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder to write, empty or new; default: <name>-student."),
    ] = None,
) -> None:
    """Turn a bundle back into a float32 student, to fine-tune it.

    The student has the weights of the bundle as they were rounded, and its vectors are compared with the bundle's.
    sentence-transformers opens and trains it; `export`, `trim` and recipes take its folder.

    Example:  xcompress dequantize small

    Example:  xcompress dequantize small && xcompress export small-student --languages en,de --precision int4
    """
    from xcompress.console import emit
    from xcompress.export.dequantize import dequantize as run

    emit(str(run(model, output)))
