"""What may be asked of an export, and the settings that a target stands for."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, get_args

from xcompress.errors import InputError

Precision = Literal["fp32", "fp16", "int8", "int4", "auto"]
Table = Literal["auto", "int8", "int4"]
Target = Literal["cpu", "mobile", "wasm"]
Recurrence = Literal["unroll", "loop"]
Bottleneck = Literal["auto", "keep", "fold"]
Shortening = Literal["pca", "slice"]
Format = Literal["onnx", "hf"]


@dataclass(frozen=True)
class TargetSettings:
    """What a target decides, where nothing else is asked for."""

    recurrence: Recurrence = "unroll"
    """The unit's nodes R times, or once in a loop: as fast, with fewer nodes and less memory."""
    ort: bool = False
    """Whether to write onnxruntime's own format, too, which opens without optimising the graph first."""
    float32: bool = True
    """Whether the float32 graph stays in the bundle beside the smaller one."""

    def text(self) -> str:
        """Say what the settings are."""
        parts = ["unit unrolled" if self.recurrence == "unroll" else "unit in a loop"]
        parts += ["ORT format"] if self.ort else []
        return ", ".join([*parts, "float32 graph kept" if self.float32 else "float32 graph left out"])


TARGETS: dict[Target, TargetSettings] = {
    "cpu": TargetSettings(),
    "mobile": TargetSettings(recurrence="loop", ort=True, float32=False),
    "wasm": TargetSettings(recurrence="loop", float32=False),
}


_CHOICES = {
    "precision": Precision,
    "table": Table,
    "target": Target,
    "bottleneck": Bottleneck,
    "shorten": Shortening,
}


@dataclass(frozen=True)
class ExportConfig:
    """What is asked of an export.

    :raises InputError: when a value is not possible, or two do not go together.
    """

    precision: Precision = "int8"
    """fp32; fp16: stored in half, computed in float32; int8; int4: stored in 4 bits, computed in int8; auto: int8, with
    products in higher precision where the gate asks for it."""
    table: Table = "auto"
    """How the word table is stored beside products in int8: as they are, in int8, or in 4 bits."""
    target: Target = "cpu"
    recurrence: Recurrence | None = None
    recurrences: int | None = None
    """How often the unit is applied; as often as the student does it when not given."""
    bottleneck: Bottleneck = "auto"
    """Whether word table and projection are multiplied out."""
    languages: tuple[str, ...] = ()
    """Trim the vocabulary to these."""
    vocabulary: int | None = None
    """Trim it to so many pieces at most."""
    max_tokens: int | None = None
    """Cut texts at so many tokens, and leave out the positions behind them."""
    dimension: int | None = None
    """Shorten the vectors to so many numbers."""
    shorten: Shortening = "pca"
    """By their principal axes, or by their first numbers, for models trained for that."""
    external_data: bool = False
    """Store weights in a file beside the graph, which is memory-mapped."""
    ort: bool | None = None
    """Also write onnxruntime's own format. It holds weights as they are computed with, 4 bits as 8: targets ask for it
    with other precisions alone."""
    gate: float | None = None
    """Points of Spearman that no language pair may lose."""
    text: tuple[Path, ...] = ()
    """Files of sentences to calibrate and verify on, and to trim by."""

    def __post_init__(self) -> None:
        for name, kind in _CHOICES.items():
            _check_choice(name, getattr(self, name), get_args(kind))
        if self.table != "auto" and self.precision in ("fp32", "fp16"):
            raise InputError(f"table: {self.table} beside precision {self.precision}; choose precision int8 or int4")
        if self.recurrence is not None:
            _check_choice("recurrence", self.recurrence, get_args(Recurrence))
        for name, least in (("vocabulary", 1), ("dimension", 2)):
            if (number := getattr(self, name)) is not None and number < least:
                raise InputError(f"{name}: {number} is less than {least}; give at least {least}")
        if self.dimension is None and self.shorten != "pca":
            raise InputError(f"shorten: {self.shorten!r} without a dimension; say how many numbers are to stay")
        if self.gate is not None and self.gate < 0:
            raise InputError(f"gate: {self.gate} is negative; give the points that may be lost, such as 0.5")
        if self.vocabulary is not None and not self.languages and not self.text:
            raise InputError("vocabulary: needs text to count pieces in; add --languages de,en or --text FILE")

    def settings(self) -> TargetSettings:
        """Return the target's settings with what was asked for in their place."""
        own = TARGETS[self.target]
        ort = own.ort and self.precision != "int4" if self.ort is None else self.ort
        return replace(own, recurrence=self.recurrence or own.recurrence, ort=ort)

    def described(self) -> dict[str, object]:
        """Return what was asked for as JSON knows it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {"languages": list(self.languages), "text": [str(path) for path in self.text]}


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name}: {value!r} is unknown; choose {', '.join(choices[:-1])} or {choices[-1]}")
