"""What is measured: the models of a run, from the assistant as it came to the exported bundle."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from xcompress.errors import InputError

Kind = Literal["pytorch", "onnx"]
ONNX_FILES = {"fp32": "onnx/model.onnx", "int8": "onnx/model_quantized.onnx"}
REFERENCE = "assistant as it comes, PyTorch"


@dataclass(frozen=True)
class Subject:
    """One model in one runtime and precision."""

    name: str
    kind: Kind
    folder: Path
    precision: str = "fp32"

    @property
    def weights(self) -> Path:
        """The file that holds the weights."""
        return self.folder / ("model.safetensors" if self.kind == "pytorch" else ONNX_FILES[self.precision])

    @property
    def tokenizer(self) -> Path:
        """The tokenizer's file."""
        return self.folder / "tokenizer.json"

    def weight_files(self) -> list[Path]:
        """List the weights file and, beside it, its external data."""
        return sorted(self.weights.parent.glob(f"{self.weights.name}*"))


@dataclass(frozen=True)
class Place:
    """A bundle and the run it belongs to, if any."""

    bundle: Path
    run: Path | None

    @property
    def results(self) -> Path:
        """The folder for bench.json and bench.md: the run, or the current folder for a bundle from elsewhere."""
        return self.run or Path()


def find_bundle(bundle: Path | None) -> Place:
    """Find the bundle to measure: the given one, or the newest `runs/*/bundle`.

    :raises InputError: when there is none, with the next step.
    """
    if bundle is None:
        manifests = sorted(Path("runs").glob("*/bundle*/manifest.json"), key=lambda path: path.stat().st_mtime)
        if not manifests:
            raise InputError("runs: no bundle in any run yet; make one with `xcompress export` or name its folder")
        bundle = manifests[-1].parent
    if not (bundle / "manifest.json").is_file():
        raise InputError(f"{bundle}: no manifest.json, so not a bundle; make one with `xcompress export`")
    parent = bundle.resolve().parent
    is_run = bundle.resolve().name.startswith("bundle") and (parent / "manifest.json").is_file()
    return Place(bundle, bundle.parent if is_run and bundle.name.startswith("bundle") else parent if is_run else None)


def subjects_of(place: Place, reference: Path | None = None) -> list[Subject]:
    """List the subjects at hand, the reference first where there is one.

    :param reference: a Student folder to use instead of the run's own reference.
    :raises InputError: when `reference` is not a Student folder.
    """
    if reference is not None and not (reference / "model.safetensors").is_file():
        raise InputError(f"{reference}: no model.safetensors; name the folder of a student or of a run's reference")
    candidates = [] if reference is None else [Subject(REFERENCE, "pytorch", reference)]
    if place.run is not None:
        candidates += [] if candidates else [Subject(REFERENCE, "pytorch", place.run / "reference")]
        candidates.append(Subject("assistant after stage 1, PyTorch", "pytorch", place.run / "assistant"))
        candidates.append(Subject("student, PyTorch", "pytorch", place.run / "student"))
    candidates += [Subject(f"student, ONNX {name}", "onnx", place.bundle, name) for name in ONNX_FILES]
    found = [subject for subject in candidates if subject.weights.is_file()]
    if not found:
        raise InputError(f"{place.bundle}: none of {', '.join(ONNX_FILES.values())}; run `xcompress export` again")
    for subject in found:
        if not subject.tokenizer.is_file():
            raise InputError(f"{subject.tokenizer}: no such file; the folder is incomplete, make it again")
    return found
