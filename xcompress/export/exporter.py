"""Export a student or an encoder to a bundle, unless the bundle is up to date."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import prod
from operator import eq
from pathlib import Path
from typing import Any

from safetensors import safe_open

import xcompress
from xcompress import console
from xcompress.bundle.engines import OpenVinoSession, Session, open_on_cpu
from xcompress.bundle.manifest import COREML_NOT_RUN, FLOAT, GRAPHS
from xcompress.bundle.phone_runtimes import open_phone_session
from xcompress.bundle.sentencepiece_model import SentencePieceTokenizer, beyond_sentencepiece, write_sentencepiece
from xcompress.export.accuracy import Candidate, Cost, GraphEncoder, check_gate, graded_scores
from xcompress.export.calibrate import calibrate
from xcompress.export.config import ExportConfig
from xcompress.export.coreml import write_coreml
from xcompress.export.executorch import write_executorch
from xcompress.export.folder import announce, check_replaceable, is_current, write_bundle
from xcompress.export.graph import (
    MOST_BYTES,
    check_size,
    decide_folding,
    options_for,
    write_graph,
    write_openvino,
    write_ort,
)
from xcompress.export.litert import write_litert
from xcompress.export.ml_program import MlProgram
from xcompress.export.phone import PhoneModel
from xcompress.export.prepare import Prepared, prepare
from xcompress.export.source import Source, SourceOptions, find_source, read_source_prompts
from xcompress.export.text import FITTED, calibration_text, read_files, unverified_languages, verification_text
from xcompress.export.verify import (
    ADVICE,
    SLOW_SAMPLE,
    Bounds,
    Graph,
    Reference,
    make_reference,
    verify_fp32,
    verify_quantized,
    verify_sample,
)
from xcompress.files import hash_of, megabytes, prepare_target, sha256_of, size_of, whole_folder
from xcompress.machine import installed_versions
from xcompress.modeling.student import check_recurrences, encode, token_ids
from xcompress.packages import require_package
from xcompress.runtimes import COREML, PHONE_FILES, RUNTIMES
from xcompress.vocab.count import FileCounter, check_languages

GATE = 0.5
"""Points of Spearman that a language pair may lose with `--precision auto`, where no gate is set."""


def export(
    source: str | Path | None = None,
    output: Path | None = None,
    *,
    options: ExportConfig | None = None,
    source_options: SourceOptions | None = None,
    force: bool = False,
    bounds: Bounds | None = None,
) -> Path:
    """Export a student or an encoder to a self-contained ONNX bundle, or return the bundle if it is up to date.

    :param source: a run folder, the folder of a student or encoder, a reference to one, or None for the newest
        finished run.
    :param output: the bundle's folder; by default `bundle` in a run, `<name>-bundle` beside a model folder or in the
        working folder, followed by `-r<recurrences>` if these are given.
    :param options: the options of the export.
    :param source_options: how to read an encoder, where its own files do not say.
    :param force: export even if the bundle is up to date.
    :param bounds: how far the graphs may be from PyTorch; by default those of the precision.
    :returns: the bundle's folder.
    :raises InputError: when there is nothing to export, or the bundle cannot be written.
    :raises GateError: when a graph is too far from PyTorch, or loses more than the gate allows.
    """
    config = options or ExportConfig()
    check_languages(config.languages)
    model = find_source(source, source_options)
    recurrences = config.recurrences
    if recurrences is not None:
        check_recurrences(recurrences, model.recurrences)
    if runtime := config.settings().runtime:
        for package in filter(None, (RUNTIMES[runtime].run_by, RUNTIMES[runtime].written_by)):
            require_package(package, runtime, f"target: {config.target}")
    target = prepare_target(output or model.default_folder("bundle", recurrences))
    texts = [sha256_of(path) for path in config.text if path.is_file()]
    made_from = hash_of([model.fingerprint(), model.run, config.to_dict(), texts, xcompress.__version__])
    has_pipe = len(texts) < len(config.text)  # its text may be another each time
    if not force and not has_pipe and is_current(target, made_from):
        console.say(f"{target}: already exported from {model.name}")
        return target
    check_replaceable(target, Path(GRAPHS["fp32"]).parts[0], _bytes_of_graphs(model.student), force=force)
    depth = "1 recurrence" if recurrences == 1 else f"{recurrences} recurrences"
    announce(model, target, f" with {depth}" if recurrences else "")
    console.say(config.summary(recurs=(recurrences or model.recurrences) > 1))
    with whole_folder(target) as folder:
        make_bundle(folder, model, config, bounds or Bounds.of(config.precision), made_from)
    return target


def _bytes_of_graphs(student: Path) -> int:
    """Estimate what the float32 graph and a smaller one take, from the file or folder of the weights."""
    if student.is_file():
        weights = 2 * student.stat().st_size  # an E5S1 file stores 4 bits per weight
    else:
        weights = sum(map(_count_weights, student.glob("**/*.safetensors")))
    return int(1.6 * 4 * weights)


def _count_weights(file: Path) -> int:
    """Count the weights in a safetensors file; none in a damaged one, which is refused where its weights are read."""
    with suppress(Exception), safe_open(file, framework="pt") as weights:
        return sum(prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return 0


def make_bundle(folder: Path, source: Source, config: ExportConfig, bounds: Bounds, made_from: str) -> None:
    """Write a bundle into an empty folder.

    :param made_from: hash of everything that the bundle depends on.
    :raises GateError: when a graph is too far from PyTorch, or loses more than the gate allows.
    """
    # prepare the student, and encode the text to verify on with PyTorch
    languages = list(config.languages) or source.languages
    original, original_tokenizer = source.open()
    trims = bool(config.languages or config.vocabulary)
    counters = [FileCounter(original_tokenizer, path) for path in config.text if trims]
    own_text = read_files(config.text, languages, counters)
    read_calibration_text = partial(calibration_text, source, languages, own_text)
    prompts = list(read_source_prompts(source.student).values())
    counts = [counter.counts() for counter in counters]
    prepared = prepare(original, original_tokenizer, config, partial(read_calibration_text, FITTED), prompts, counts)
    student, recurrence = prepared.student, config.settings().recurrence
    fold, why = decide_folding(student.config, config.bottleneck)
    check_size(student, config, fold=fold)
    text = verification_text(source, languages, own_text)
    with console.bar("encoded with PyTorch", sum(map(len, text.values()))) as ticker:
        reference = make_reference(student, prepared.tokenizer, text, ticker.advance)
    before = graded_scores(lambda texts: encode(original, original_tokenizer, texts), languages)
    job = _Job(folder, config, bounds, prepared, fold, languages, reference, before, bool(source.run))

    # the float32 graph, also where only a smaller one is kept: it shows whether the graph is right at all
    candidate = Candidate(prepared, options_for("fp32", recurrence, fold, {}))
    parity = {"fp32": job.write_and_verify("fp32", candidate)}
    manifest = {
        **prepared.changes,
        "options": config.to_dict(),
        "target": config.target,
        "operators": config.settings().operators,
        "recurrence": recurrence,
        "languages": languages,
        "unverified_languages": unverified_languages(text, languages),
        "mean_vector": reference.mean_vector,
    }
    if prepared.changes:
        manifest["dev"] = None  # the run scored its student before these changes
    if student.config.bottleneck:
        form = "folded" if fold else "factored"
        console.say(f"bottleneck {form}: {why}")
        manifest["bottleneck"] = {"width": student.config.bottleneck, "form": form, "why": why}

    # what the options cost that change the student itself, before any precision is blamed for it
    scores_of_fp32 = job.check_student_changes()

    # the smaller graph
    if job.precision != "fp32":
        candidate, entries = job.quantize(read_calibration_text)
        manifest |= entries
        parity[job.precision] = job.write_and_verify(job.precision, candidate)
        if not config.settings().float32:
            for file in folder.glob(f"{GRAPHS['fp32']}*"):
                file.unlink()

    # the accuracy gate
    if job.precision == "fp32" and scores_of_fp32 is not None:
        after = scores_of_fp32
    else:
        after = job.graded_scores(job.precision)
    # the products that cost most are named; in float none has a cost
    job.check_gate(after, tuple if job.precision in FLOAT else candidate.costs)
    manifest["graded"] = {"before": before, "after": after}

    # the file of another runtime
    runtime = config.settings().runtime
    if runtime == "coreml":
        manifest["coreml"] = job.write_and_check_coreml()
    elif runtime:
        parity[runtime], manifest["graded"][runtime] = job.write_and_verify_for(runtime)
    if runtime in PHONE_FILES:
        manifest["phone_tokenizer"] = write_phone_tokenizer(folder / PHONE_FILES[runtime], prepared, text)
    manifest |= {"graphs": job.graphs_to_open(), "parity": parity, "precision": job.precision}
    write_bundle(folder, student, prepared.tokenizer, source, made_from, manifest)


def write_phone_tokenizer(
    model: Path, prepared: Prepared, text: Mapping[str, Sequence[str]]
) -> dict[str, str | int] | None:
    """Write the tokenizer as a SentencePiece model beside the file of a runtime of phones, and compare the ids.

    :param text: sentences by language.
    :returns: its file, and how many sentences have the ids of tokenizer.json; None where SentencePiece cannot hold the
        tokenizer.
    """
    file = model.with_name("tokenizer.model")
    if problem := beyond_sentencepiece(prepared.tokenizer):
        console.say(f"tokenizer: only tokenizer.json, as a SentencePiece model cannot hold {problem}")
        return None
    write_sentencepiece(prepared.tokenizer, file)
    config, sentences = prepared.student.config, list(chain.from_iterable(text.values()))
    expected = token_ids(prepared.tokenizer, sentences, config)
    prefixed = [config.prefix + sentence for sentence in sentences]
    found = SentencePieceTokenizer(file).token_ids(prefixed, config.max_tokens)
    equal = sum(map(eq, found, expected))
    return {"file": f"{model.parent.name}/{file.name}", "sentences": len(sentences), "equal": equal}


@dataclass(frozen=True)
class _Job:
    """Where the graphs of one bundle go, and what they are compared with."""

    folder: Path
    config: ExportConfig
    bounds: Bounds
    prepared: Prepared
    fold: bool
    """Whether the bottleneck is folded."""
    languages: Sequence[str]
    """Of the graded pairs."""
    reference: Reference
    """PyTorch's vectors of the text to verify on."""
    before: Mapping[str, float]
    """Scores of the student on the graded pairs, in PyTorch."""
    is_of_run: bool
    """Whether the student is that of a run, whose recipe may be changed."""

    @property
    def precision(self) -> str:
        """The precision of the graph that is opened by default."""
        return "int8" if self.config.precision == "auto" else self.config.precision

    @property
    def advice(self) -> str:
        """What to do about a graph beyond its bounds."""
        ways = self.config.closer_options()
        # ranges are measured on text in ONNX alone, and not in fp16
        if self.precision not in FLOAT and not self.config.settings().precisions:
            ways.append("calibrate on text like yours (--text)")
        if self.precision == "int4" and self.is_of_run:
            ways.append("train a last stage with quantize: int4")
        return ", or ".join(ways) or ADVICE

    @property
    def gate(self) -> float | None:
        """The points that a language pair may lose; None where no score is checked."""
        is_default = self.config.gate is None and self.config.precision == "auto"
        return GATE if is_default else self.config.gate

    def write_and_verify(self, precision: str, candidate: Candidate) -> dict[str, Any]:
        """Write a graph and compare it with PyTorch, then in ORT format if that is written, too.

        :returns: the measurements of the file to open.
        """
        file = self.folder / GRAPHS[precision]
        settings, external = self.config.settings(), self.config.external_data
        is_split = write_graph(self.prepared.student, candidate.options, file, external=external)
        if is_split and not external and (settings.float32 or precision == self.precision):
            beside = f"{GRAPHS[precision]}_data"
            console.say(f"{precision}: one file holds at most {megabytes(MOST_BYTES)}, so the weights are in {beside}")
        measured = self._verify(file, precision, f"{precision} checked")
        if settings.ort and precision == self.precision:
            measured = self._verify(write_ort(file), precision, f"{precision} checked in ORT format")
        return measured

    def _verify(self, graph: Graph, precision: str, label: str) -> dict[str, Any]:
        """Compare a graph with PyTorch under a progress bar; return the measurements."""
        with console.bar(label, len(self.reference.all_sentences)) as ticker:
            if precision == "fp32":
                return verify_fp32(graph, self.reference, self.bounds, ticker.advance)
            return verify_quantized(graph, self.reference, self.bounds, ticker.advance, self.advice)

    def graded_scores(self, precision: str) -> dict[str, float]:
        """Score a graph that was written on the graded pairs."""
        session = open_on_cpu(self.folder / GRAPHS[precision])
        return graded_scores(GraphEncoder(self.prepared, session), self.languages)

    def check_student_changes(self) -> dict[str, float] | None:
        """Refuse an export whose float32 graph loses more than the gate allows, as options change the student itself.

        :returns: scores of the float32 graph on the graded pairs; None where no option changes the student, or there is
            no gate.
        """
        if self.gate is None:
            return None
        if not self.before:
            console.warn("the accuracy gate was not checked: the package has no graded pairs in the model's languages")
            return None
        if not (options := self.config.student_changes()):
            return None
        after = self.graded_scores("fp32")
        advice = f"float32 loses this already; change {', '.join(options)}, or use a larger --gate"
        check_gate(self.before, after, self.gate, advice=advice)
        return after

    def quantize(self, read_text: Callable[[], Sequence[str]]) -> tuple[Candidate, dict[str, Any]]:
        """Calibrate, and choose the level of each product.

        :param read_text: reads the text to calibrate on.
        :returns: the candidate, and entries for the manifest.
        """
        config, prepared = self.config, self.prepared
        sentences = [] if self.precision == "fp16" else read_text()
        ranges = {}
        if sentences:
            ranges = calibrate(prepared.student, prepared.tokenizer, sentences, moments=self.precision == "int4")
        options = options_for(
            self.precision, config.settings().recurrence, self.fold, ranges, config.table, config.settings().operators
        )
        candidate = Candidate(prepared, options.with_levels(prepared.levels))
        entries: dict[str, Any] = {"calibrated_on": len(sentences)}
        if config.precision == "auto" and self.gate is not None:
            advice = ", or ".join(config.closer_options())
            result = candidate.search(self.before, self.gate, self.languages, self.reference, self.bounds, advice)
            candidate = candidate.with_levels(result.levels)
            entries["trade"] = result.to_dict()
        return candidate, entries | {"levels": candidate.levels()}

    def check_gate(self, after: Mapping[str, float], measure_costs: Callable[[], Sequence[Cost]] = tuple) -> None:
        """Refuse an export that loses more than the gate allows; see `accuracy.check_gate`."""
        if self.gate is None:
            return
        advice = ", or ".join([*self.config.closer_options(), "use a larger --gate"])
        check_gate(self.before, after, self.gate, measure_costs, advice)

    def write_and_check_coreml(self) -> dict[str, Any]:
        """Write an ML program, open it again, and check all that can be checked without Core ML.

        :returns: what was checked and measured, for the manifest.
        """
        student, package, quantized = self.prepared.student, self.folder / COREML, self.precision == "int8"
        console.say(f"writing {COREML}")
        model = PhoneModel(student, fold=self.fold, int8_rows=False)
        write_coreml(model, package, quantize=quantized)
        program = MlProgram(package)
        program.check_interface(student.config.max_tokens, student.config.dimension)
        weights = program.check_weights(model, quantized=quantized)
        # coremltools' numpy operators show that the network is right; only Core ML can show that it runs
        with console.bar("evaluated in numpy", min(SLOW_SAMPLE, len(self.reference.all_sentences)) + 1) as ticker:
            evaluated = verify_sample(
                program.encode, f"{COREML} in numpy", self.reference, self.bounds, ticker.advance, self.advice
            )
        return {
            "package": COREML,
            "status": COREML_NOT_RUN,
            "bytes": size_of(package),
            "weights": weights,
            "evaluated_in_numpy": evaluated,
            "libraries": installed_versions(("coremltools",)),
        }

    def write_and_verify_for(self, runtime: str) -> tuple[dict[str, Any], dict[str, float]]:
        """Write the file of a runtime, and compare it there with PyTorch.

        :returns: the measurements, and scores on the graded pairs.
        :raises GateError: when the file is too far from PyTorch, or loses more than the gate allows.
        """
        file = self.folder / RUNTIMES[runtime].file
        if runtime == "openvino":
            write_openvino(self.folder / GRAPHS[self.precision], file)
            session: Session = OpenVinoSession(file, 0, exact=self.precision in FLOAT)
        else:
            console.say(f"writing {RUNTIMES[runtime].file}")
            write = write_litert if runtime == "litert" else write_executorch
            write(self.prepared.student, file, quantize=self.precision == "int8", fold=self.fold)
            session = open_phone_session(runtime, file, 0)
        measured = self._verify(session, self.precision, f"checked in {RUNTIMES[runtime].label}")
        scores = graded_scores(GraphEncoder(self.prepared, session), self.languages)
        self.check_gate(scores)
        return measured, scores

    def graphs_to_open(self) -> dict[str, str]:
        """Map each precision to the file to open, the smaller graph first."""
        names = {}
        for precision in dict.fromkeys([self.precision, "fp32"]):
            file = self.folder / GRAPHS[precision]
            if file.is_file():
                ort = file.with_suffix(".ort")
                names[precision] = (ort if ort.is_file() else file).relative_to(self.folder).as_posix()
        return names
