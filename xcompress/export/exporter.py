"""From a student or an encoder to a bundle, unless it is there already."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

import xcompress
from xcompress import console
from xcompress.errors import InputError
from xcompress.export.accuracy import Candidate, check_gate, graded_scores
from xcompress.export.calibrate import calibrate
from xcompress.export.config import ExportConfig
from xcompress.export.folder import write_bundle
from xcompress.export.graph import GRAPHS, GraphOptions, folds, form_of, write_graph, write_ort
from xcompress.export.matmul import Range
from xcompress.export.prepare import Prepared, prepare
from xcompress.export.source import Source, SourceOptions, find_source, is_bundle
from xcompress.export.text import calibration_text, unverified_languages, verification_text
from xcompress.export.verify import Bounds, Reference, reference_of, verify_fp32, verify_quantized
from xcompress.files import hash_of, read_json, sha256_of, whole_folder
from xcompress.modeling.student import Student, encode

GATE = 0.5
"""Points of Spearman that `--precision auto` lets a language pair lose, where no gate is given."""


@dataclass
class Exporter:
    """One bundle in the making, in a folder that takes its place when everything has held."""

    folder: Path
    source: Source
    asked: ExportConfig
    bounds: Bounds | None

    def write(self, made_from: str, facts: Mapping[str, Any]) -> None:
        """Write the bundle.

        :param made_from: hash of all that it depends on.
        :param facts: more entries for the manifest.
        :raises GateError: when a graph is too far from PyTorch, or loses more than the gate allows.
        """
        plain, parity = self._form("fp32", {}), {}
        parity["fp32"] = self._checked("fp32", plain)
        found = self._description()
        trial, name = Candidate(self.prepared, plain), self.precision
        if name != "fp32":
            trial, more = self._smaller()
            found |= more
            parity[name] = self._checked(name, trial.form)
            if not self.asked.settings().float32:
                self._drop("fp32")
        found |= {"graded": self._graded(trial), "graphs": self._opened(), "parity": parity, "precision": name}
        student, tokenizer = self.prepared.student, self.prepared.tokenizer
        write_bundle(self.folder, student, tokenizer, self.source, made_from, found | dict(facts))

    @property
    def precision(self) -> str:
        """The precision of the graph that is opened when nothing else is asked for."""
        return "int8" if self.asked.precision == "auto" else self.asked.precision

    @cached_property
    def whole(self) -> tuple[Student, Tokenizer]:
        """The student as it comes."""
        return self.source.open()

    @cached_property
    def languages(self) -> list[str]:
        """The languages that the bundle is for."""
        return list(self.asked.languages) or self.source.languages

    @cached_property
    def prepared(self) -> Prepared:
        """The student as it is exported."""
        return prepare(*self.whole, self.asked, self._calibration)

    @cached_property
    def text(self) -> dict[str, list[str]]:
        """Sentences to verify on, by language."""
        return verification_text(self.source, self.languages, self.asked.text)

    @cached_property
    def reference(self) -> Reference:
        """What PyTorch makes of these."""
        with console.bar("encoded with PyTorch", self._count()) as ticker:
            return reference_of(self.prepared.student, self.prepared.tokenizer, self.text, ticker.advance)

    @cached_property
    def scores(self) -> dict[str, float]:
        """Spearman on the graded pairs of the student as it comes, before its vocabulary or vectors are cut."""
        student, tokenizer = self.whole
        return graded_scores(lambda texts: encode(student, tokenizer, texts), self.languages)

    def _description(self) -> dict[str, Any]:
        config = self.prepared.student.config
        found: dict[str, Any] = {
            **self.prepared.changes,
            "options": self.asked.described(),
            "target": self.asked.target,
            "recurrence": self.asked.settings().recurrence,
            "languages": self.languages,
            "unverified_languages": unverified_languages(self.text, self.languages),
        }
        if self.prepared.changes:
            found["dev"] = None  # the run scored its student as it was
        if config.bottleneck:
            fold, why = folds(config, self.asked.bottleneck)
            form = "folded" if fold else "factored"
            console.say(f"bottleneck {form}: {why}")
            found["bottleneck"] = {"width": config.bottleneck, "form": form, "why": why}
        return found

    def _form(self, precision: str, ranges: Mapping[str, Range]) -> GraphOptions:
        fold, _ = folds(self.prepared.student.config, self.asked.bottleneck)
        return form_of(precision, self.asked.settings().recurrence, fold, ranges, self.asked.table)

    def _checked(self, precision: str, form: GraphOptions) -> dict[str, Any]:
        """Write a graph and compare it with PyTorch; where there is ORT format, that is what is compared."""
        file = self.folder / GRAPHS[precision]
        write_graph(self.prepared.student, form, file, external=self.asked.external_data)
        if self.asked.settings().ort and precision == self.precision:
            file = write_ort(file)
        reference = self.reference
        with console.bar(f"{precision} checked", self._count()) as ticker:
            if precision == "fp32":
                return verify_fp32(file, reference, self.bounds, ticker.advance)
            return verify_quantized(file, reference, self.bounds, precision, ticker.advance)

    def _smaller(self) -> tuple[Candidate, dict[str, Any]]:
        """Calibrate, and choose each product's precision; return the form found, and more for the manifest."""
        sentences = [] if self.precision == "fp16" else self._calibration()
        student, tokenizer, fitted = self.prepared.student, self.prepared.tokenizer, self.precision == "int4"
        ranges = calibrate(student, tokenizer, sentences, moments=fitted) if sentences else {}
        trial = Candidate(self.prepared, self._form(self.precision, ranges))
        found: dict[str, Any] = {"calibrated_on": len(sentences)}
        if self.asked.precision == "auto":
            points = GATE if self.asked.gate is None else self.asked.gate
            trade = trial.search(self.scores, points, self.languages, self.reference, self.bounds)
            trial, found["trade"] = trial.at(trade.levels), trade.as_dict()
        return trial, found | {"levels": trial.levels()}

    def _graded(self, trial: Candidate) -> dict[str, dict[str, float]]:
        """Score what was made on the graded pairs.

        :raises GateError: when it lost more than the gate allows.
        """
        after = graded_scores(trial.open(), self.languages)
        if self.asked.gate is not None:
            check_gate(self.scores, after, self.asked.gate, trial.costs)
        return {"before": self.scores, "after": after}

    def _calibration(self) -> list[str]:
        return calibration_text(self.source, self.languages, self.asked.text)

    def _count(self) -> int:
        return sum(map(len, self.text.values()))

    def _opened(self) -> dict[str, str]:
        """Name the file to open for each precision, the smaller one first."""
        names = {}
        for name in dict.fromkeys([self.precision, "fp32"]):
            file = self.folder / GRAPHS[name]
            if file.is_file():
                opened = file.with_suffix(".ort") if file.with_suffix(".ort").is_file() else file
                names[name] = opened.relative_to(self.folder).as_posix()
        return names

    def _drop(self, precision: str) -> None:
        for file in self.folder.glob(f"{GRAPHS[precision]}*"):
            file.unlink()


def export(
    source: str | Path | None = None,
    output: Path | None = None,
    *,
    options: ExportConfig | None = None,
    reading: SourceOptions | None = None,
    facts: Mapping[str, Any] | None = None,
    force: bool = False,
    bounds: Bounds | None = None,
) -> Path:
    """Turn a student or an encoder into a self-contained ONNX bundle, or return the one that is there already.

    :param source: a run folder, the folder of a student or encoder, a reference to one, or None for the newest
        finished run.
    :param output: the bundle's folder; default `bundle` in a run, `<name>-bundle` beside a folder or here, with
        `-r<recurrences>` behind it where these are given.
    :param options: what to make of it.
    :param reading: how to read a foreign encoder, where its own files do not say.
    :param facts: more entries for the manifest.
    :param force: export even when the bundle there was made from the same with the same options.
    :param bounds: how far the graphs may be from PyTorch.
    :returns: the bundle's folder.
    :raises InputError: when there is nothing to export, or the bundle cannot be written.
    :raises GateError: when a graph is too far from PyTorch, or loses more than the gate allows.
    """
    asked = options or ExportConfig()
    found = find_source(source, reading)
    _check_depth(found, asked.recurrences)
    target = found.place(asked.recurrences) if output is None else output
    texts = [sha256_of(path) for path in asked.text if path.is_file()]
    described = [asked.described(), texts, dict(facts or {})]
    made_from = hash_of([found.fingerprint(), found.run, *described, xcompress.__version__])
    if not force and is_current(target, made_from):
        console.say(f"{target}: already exported from {found.name}")
        return target
    _check_target(target, found)
    _announce(found, asked, target)
    with whole_folder(target) as folder:
        Exporter(folder, found, asked, bounds).write(made_from, facts or {})
    return target


def is_current(bundle: Path, made_from: str) -> bool:
    """Tell whether a bundle was made from the same and still has all its files."""
    if not (bundle / "manifest.json").is_file():
        return False
    manifest = read_json(bundle / "manifest.json")
    if not isinstance(manifest, dict):
        return False
    files = {bundle / name: entry["bytes"] for name, entry in manifest.get("files", {}).items()}
    whole = all(file.is_file() and file.stat().st_size == size for file, size in files.items())
    return manifest.get("made_from") == made_from and whole


def _check_depth(found: Source, recurrences: int | None) -> None:
    if recurrences is not None and not 1 <= recurrences <= found.recurrences:
        raise InputError(
            f"recurrences: {recurrences} asked for, the student has {found.recurrences}; choose one of 1 to "
            f"{found.recurrences}"
        )


def _announce(found: Source, asked: ExportConfig, target: Path) -> None:
    if found.run and not found.run.get("finished"):
        console.warn(f"{found.name}: the run is not finished; its student is exported as it is now")
    depth = "" if asked.recurrences is None else f" with {asked.recurrences} recurrences"
    console.say(f"exporting {found.name} ({found.student}){depth} to {target}")
    console.say(f"target {asked.target}: {asked.settings().text()}")


def _check_target(target: Path, found: Source) -> None:
    if target.is_file():
        raise InputError(f"{target}: is a file; name a folder for the bundle")
    if target.is_dir() and any(target.iterdir()) and not is_bundle(target):
        raise InputError(f"{target}: is not empty and holds no bundle; name another folder, it would be replaced")
    needed = int(1.6 * _weight_bytes(found.student))  # the float32 graph and a smaller one
    if _free_bytes(target) < needed:
        raise InputError(
            f"{target}: {_free_bytes(target) / 1e6:.1f} MB free, the export needs {needed / 1e6:.1f}; "
            "free space or choose another folder"
        )


def _weight_bytes(source: Path) -> int:
    """Return the bytes of a model's weights in float32; an E5S1 file holds them in 4 bits."""
    if source.is_file():
        return 8 * source.stat().st_size
    return sum(file.stat().st_size for file in source.glob("**/*.safetensors"))


def _free_bytes(path: Path) -> int:
    place = path.resolve()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free
