"""The options of an export, and the defaults of each target. The CLI imports this module: keep it light."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from xcompress.bundle.manifest import FLOAT
from xcompress.errors import InputError
from xcompress.runtimes import RUNTIMES

Precision = Literal["fp32", "fp16", "int8", "int4", "auto"]
Table = Literal["auto", "int8", "int4"]
Target = Literal["cpu", "mobile", "wasm", "openvino", "executorch", "litert", "coreml"]
Recurrence = Literal["unroll", "loop"]
Bottleneck = Literal["auto", "keep", "fold"]
Shortening = Literal["pca", "slice"]
Operators = Literal["onnxruntime", "standard"]
Format = Literal["onnx", "hf"]


@dataclass(frozen=True)
class TargetSettings:
    """The settings that a target sets, unless an option sets them."""

    recurrence: Recurrence = "unroll"
    """Repeat the nodes of the recurrent unit R times, or put them into one Loop: as fast, less memory."""
    ort: bool = False
    """Also write onnxruntime's own format, which opens without optimising the graph first."""
    float32: bool = True
    """Keep the float32 graph in the bundle beside the smaller one."""
    operators: Operators = "onnxruntime"
    """Write int8 with fused operators of onnxruntime, or with those of the ONNX standard alone, for other engines."""
    runtime: str | None = None
    """Also write the file of this runtime."""
    precisions: tuple[str, ...] = ()
    """The only precisions that the target's own format has here; empty: all that ONNX has."""


SETTINGS: dict[Target, TargetSettings] = {
    "cpu": TargetSettings(),
    "mobile": TargetSettings(recurrence="loop", ort=True, float32=False),
    "wasm": TargetSettings(recurrence="loop", float32=False),
    "openvino": TargetSettings(float32=False, operators="standard", runtime="openvino"),
    "executorch": TargetSettings(recurrence="loop", float32=False, runtime="executorch", precisions=("int8", "fp32")),
    "litert": TargetSettings(recurrence="loop", float32=False, runtime="litert", precisions=("int8", "fp32")),
    "coreml": TargetSettings(recurrence="loop", float32=False, runtime="coreml", precisions=("int8", "fp16")),
}


@dataclass(frozen=True)
class ExportConfig:
    """The options of one export to ONNX.

    The command line and `export_model` check the types of the values first.

    :raises InputError: when a number is out of bounds, or two options contradict each other.
    """

    precision: Precision = "int8"
    """fp32; fp16: weights stored in float16, computed in float32; int8; int4: weights stored in 4 bits, computed in
    int8; auto: int8, with single matrix products in higher precision where the gate needs it."""
    table: Table = "auto"
    """Store the token embeddings in int8 or 4 bits; auto: in the precision of the weights."""
    operators: Operators | None = None
    """Operators of int8: those of onnxruntime, or those of the ONNX standard alone; None: the target decides."""
    target: Target = "cpu"
    recurrence: Recurrence | None = None
    """Unroll the recurrent unit or write a Loop; None: the target decides."""
    recurrences: int | None = None
    """How often to apply the unit; None: as often as the student does."""
    bottleneck: Bottleneck = "auto"
    """Multiply the token embeddings by the bottleneck projection (fold), or keep both."""
    languages: Sequence[str] = ()
    """Trim the vocabulary to these languages."""
    vocabulary: int | None = None
    """Trim the vocabulary to this many of the most frequent tokens, plus the tokens that they need."""
    max_tokens: int | None = None
    """Truncate texts to this many tokens, and drop the position embeddings beyond."""
    dimension: int | None = None
    """Reduce the vectors to this many dimensions."""
    shorten: Shortening = "pca"
    """Reduce by principal axes, or keep the first dimensions, for models that were trained for that."""
    center: bool = False
    """Map the vectors so that sentences with nothing in common have cosines near 0."""
    external_data: bool = False
    """Store the weights in a file beside the graph, which runtimes map into memory. Over 2 GB are there in any case."""
    ort: bool | None = None
    """Also write onnxruntime's own format; None: the target decides. That format stores weights as they are computed,
    so 4 bits become 8: no target asks for it with precision int4."""
    gate: float | None = None
    """Points of Spearman x 100 that no language pair may lose."""
    text: Sequence[Path] = ()
    """Files of sentences to calibrate, verify and count tokens on."""

    def __post_init__(self) -> None:
        if self.table != "auto" and self.precision in FLOAT:
            raise InputError(
                f"table: {self.table} needs precision int8 or int4, not {self.precision}; change one of them"
            )
        if self.operators and self.precision in FLOAT:
            raise InputError(
                f"operators: {self.operators} needs precision int8 or auto, not {self.precision}, which always has "
                "standard ones; leave it out"
            )
        self._check_fits_target()
        for name, least in (("vocabulary", 1), ("dimension", 2)):
            if (number := getattr(self, name)) is not None and number < least:
                raise InputError(f"{name}: {number} is less than {least}; give at least {least}")
        if self.dimension is None and self.shorten != "pca":
            raise InputError(f"shorten: {self.shorten!r} without a dimension; say how many to keep (--dim)")
        if self.gate is not None and not 0 <= self.gate <= 200:  # also refuses nan
            problem = "negative" if self.gate < 0 else "no number of points"
            raise InputError(f"gate: {self.gate} is {problem}; give the points that may be lost, such as 0.5")
        if self.vocabulary is not None and not self.languages and not self.text:
            raise InputError("vocabulary: needs text to count tokens in; add --languages de,en or --text FILE")

    def _check_fits_target(self) -> None:
        """Check that the options fit the target."""
        settings = self.settings()
        if settings.operators == "standard" and self.precision == "int4":
            cause = "operators: standard" if self.operators else f"target: {self.target}"
            raise InputError(f"{cause} needs precision int8, not int4; for a smaller file add --table int4")
        if settings.runtime == "openvino" and settings.operators != "standard":
            raise InputError(
                "operators: OpenVINO does not read those of onnxruntime; leave out operators or the target"
            )
        if settings.precisions and self.precision not in settings.precisions:
            allowed = " or ".join(settings.precisions)
            raise InputError(f"target: {self.target} needs precision {allowed}, not {self.precision}; change one")
        if settings.precisions and self.table == "int4":
            raise InputError(
                f"table: int4 is not for target {self.target}, whose token embeddings are int8; leave it out"
            )

    def settings(self) -> TargetSettings:
        """Return the target's settings, with the options that are set in their place."""
        defaults = SETTINGS[self.target]
        ort = defaults.ort and self.precision != "int4" if self.ort is None else self.ort
        recurrence, operators = self.recurrence or defaults.recurrence, self.operators or defaults.operators
        return replace(defaults, recurrence=recurrence, ort=ort, operators=operators)

    def summary(self, *, recurs: bool) -> str:
        """Describe the target and its settings in one line.

        :param recurs: whether a unit is applied more than once.
        """
        settings = self.settings()
        facts = [f"target {self.target}"]
        if recurs:
            facts.append(f"recurrent unit {'unrolled' if settings.recurrence == 'unroll' else 'in a loop'}")
        facts += ["ORT format"] if settings.ort else []
        facts += ["standard operators"] if settings.operators == "standard" else []
        facts += [f"{RUNTIMES[settings.runtime].label}'s format"] if settings.runtime else []
        if self.precision != "fp32":
            facts.append(f"float32 graph {'kept' if settings.float32 else 'left out'}")
        return ", ".join(facts)

    def closer_options(self) -> list[str]:
        """Return what to change for a graph of this target that loses less, the smallest change first."""
        # no precision of the products makes up for what the token embeddings lose
        ways = ["leave out --table int4"] if self.table == "int4" and self.precision != "int4" else []
        closer = {"int8": ("auto", "fp16", "fp32"), "int4": ("auto",), "auto": ("fp16",), "fp16": ("fp32",), "fp32": ()}
        allowed = self.settings().precisions or get_args(Precision)
        precision = next((precision for precision in closer[self.precision] if precision in allowed), None)
        if precision in FLOAT and (self.table != "auto" or self.operators):
            ways.append(f"use --precision {precision} without --table and --operators")
        elif precision:
            ways.append(f"use --precision {precision}")
        return ways

    def student_changes(self) -> list[str]:
        """Return the options that change the student itself, whatever the precision, as the command line has them."""
        values = {
            "--recurrences": self.recurrences,
            "--languages": self.languages,
            "--vocabulary": self.vocabulary,
            "--max-tokens": self.max_tokens,
            "--dim": self.dimension,
            "--center": self.center,
        }
        return [name for name, value in values.items() if value]

    def to_dict(self) -> dict[str, object]:
        """Return the options as values that JSON can hold."""
        return vars(self) | {"languages": list(self.languages), "text": [str(path) for path in self.text]}
