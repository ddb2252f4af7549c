"""How a bundle is made: change the student, write its graphs, verify them, describe everything."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from xcompress import console
from xcompress.export.bundle import write_bundle
from xcompress.export.calibrate import calibrate
from xcompress.export.gate import check_gate, graded_scores
from xcompress.export.graph import Form
from xcompress.export.graphs import GRAPHS, folds, form_of, write_graph, write_ort
from xcompress.export.options import Options
from xcompress.export.precision import Trial
from xcompress.export.prepare import Prepared, prepare
from xcompress.export.products import Range
from xcompress.export.reference import Reference, reference_of
from xcompress.export.sentences import calibration_text, unverified_languages, verification_text
from xcompress.export.source import Source
from xcompress.export.verify import Bounds, verify_fp32, verify_quantized
from xcompress.student import Student, encode

GATE = 0.5
"""Points of Spearman that `--precision auto` lets a language pair lose, where no gate is given."""


@dataclass
class Making:
    """One bundle in the making, in a folder that takes its place when everything has held."""

    folder: Path
    source: Source
    asked: Options
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
        trial, name = Trial(self.prepared, plain), self.precision
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

    def _form(self, precision: str, ranges: Mapping[str, Range]) -> Form:
        fold, _ = folds(self.prepared.student.config, self.asked.bottleneck)
        return form_of(precision, self.asked.settings().recurrence, fold, ranges, self.asked.table)

    def _checked(self, precision: str, form: Form) -> dict[str, Any]:
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

    def _smaller(self) -> tuple[Trial, dict[str, Any]]:
        """Calibrate, and choose each product's precision; return the form found, and more for the manifest."""
        sentences = [] if self.precision == "fp16" else self._calibration()
        student, tokenizer, fitted = self.prepared.student, self.prepared.tokenizer, self.precision == "int4"
        ranges = calibrate(student, tokenizer, sentences, moments=fitted) if sentences else {}
        trial = Trial(self.prepared, self._form(self.precision, ranges))
        found: dict[str, Any] = {"calibrated_on": len(sentences)}
        if self.asked.precision == "auto":
            points = GATE if self.asked.gate is None else self.asked.gate
            trade = trial.search(self.scores, points, self.languages, self.reference, self.bounds)
            trial, found["trade"] = trial.at(trade.levels), trade.as_dict()
        return trial, found | {"levels": trial.levels()}

    def _graded(self, trial: Trial) -> dict[str, dict[str, float]]:
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
