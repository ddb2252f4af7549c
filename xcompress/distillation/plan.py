"""What a run would do, before it does anything: stages, text, parameters, and estimates of memory and time."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from xcompress.console import say, table
from xcompress.corpus.build import TRAIN, corpus_file
from xcompress.corpus.lines import BrokenOffError, read_lines
from xcompress.corpus.store import PairFile
from xcompress.distillation.hardware import device, has_bf16
from xcompress.distillation.run_folder import STEP
from xcompress.recipe import Recipe, Stage
from xcompress.recipe.parameters import Counts, count_parameters
from xcompress.recipe.validation import file_references
from xcompress.sources import can_be_fetched, is_here, resolve
from xcompress.sources.python_code import PYTHON

TOKENS_PER_WORD = 1.5
"""XLM-R pieces of a word, on average over European languages; a rough figure."""
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


@dataclass(frozen=True)
class PlannedStage:
    """One stage as it would run."""

    name: str
    train: str
    objectives: dict[str, float]
    steps: int | None
    """None for a stage given in epochs, before the text is counted."""
    pairs: int | None
    parameters: int | None
    """What is trained; None where the encoder's sizes are not known before it is fetched."""
    megabytes: int | None
    seconds: int | None
    finished: bool
    """Whether the run folder holds this stage; whether it can be reused is known when the run starts."""


@dataclass(frozen=True)
class Plan:
    """What a run would do."""

    folder: str
    device: str
    teraflops: float
    """Of a large matrix product on this machine, measured just now."""
    sources: dict[str, bool]
    """What is read, and whether it is on this machine already."""
    pairs: dict[str, int]
    """Training pairs by language; empty before the corpus step has run."""
    lines: dict[str, int]
    """Lines by language of the text files that are here, before filters."""
    assistant: dict[str, int | None] | None
    student: dict[str, int | None] | None
    notes: tuple[str, ...]
    stages: tuple[PlannedStage, ...]


def plan(recipe: Recipe, folder: Path) -> Plan:
    """Work out what `distill` would do; nothing is fetched or written, and of text only lines are counted.

    :raises InputError: when the student's shape cannot be made from the assistant's.
    """
    counted = count_parameters(recipe)
    pairs, lines = _pairs(recipe, folder), _lines(recipe)
    flops, text = _flops(), sum((pairs or lines).values())
    stages = [
        _planned(name, stage, recipe, (counted.assistant, counted.student), text, flops, folder)
        for name, stage in recipe.stages.items()
    ]
    return Plan(
        folder=str(folder),
        device=f"{device()}, {'bfloat16' if has_bf16() else 'float32'}",
        teraflops=round(flops / 1e12, 2),
        sources={source: is_here(source) for source in _sources(recipe)},
        pairs=pairs,
        lines=lines,
        assistant=asdict(counted.assistant) if counted.assistant else None,
        student=asdict(counted.student) if counted.student else None,
        notes=counted.notes,
        stages=tuple(stages),
    )


def show(planned: Plan) -> None:
    """Print a plan."""
    missing = [source for source, here in planned.sources.items() if not here]
    say(f"{planned.folder}: on {planned.device}, {planned.teraflops} TFLOP/s in a large product")
    say(f"text and models: {len(planned.sources)} sources, {len(missing)} not here yet")
    for source in missing:
        say(f"  {'to fetch' if can_be_fetched(source) else 'no such file'}: {source}")
    if planned.lines:
        say(f"lines of text files, before filters: {_counts(planned.lines)}")
    say(f"pairs to train on: {_counts(planned.pairs) or 'known once the corpus has been read'}")
    for note in planned.notes:
        say(note)
    head = ("stage", "trains", "objectives", "steps", "pairs", "parameters", "memory", "time", "")
    table("dry run: memory and time are estimates", head, _rows(planned.stages))


def _counts(by_language: Mapping[str, int]) -> str:
    return ", ".join(f"{language} {count:,}" for language, count in by_language.items())


def _rows(stages: Sequence[PlannedStage]) -> Iterator[tuple[str, ...]]:
    for stage in stages:
        objectives = " + ".join(f"{weight:g} {name}" for name, weight in stage.objectives.items())
        yield (
            stage.name,
            stage.train,
            objectives,
            _figure(stage.steps),
            _figure(stage.pairs),
            _figure(stage.parameters, 1e6, " M"),
            _figure(stage.megabytes, 1000, " GB"),
            _figure(stage.seconds, 60, " min"),
            "in the run folder" if stage.finished else "",
        )


def _figure(value: int | None, unit: float = 1, name: str = "") -> str:
    if value is None:
        return "?"
    return f"{value / unit:,.1f}{name}" if unit > 1 else f"{value:,}"


def _planned(
    name: str,
    stage: Stage,
    recipe: Recipe,
    counted: tuple[Counts | None, Counts | None],
    pairs: int,
    flops: float,
    folder: Path,
) -> PlannedStage:
    steps = stage.steps_on(pairs) or None
    model = counted[0] if stage.train == "assistant" else counted[1]
    trained = None if model is None else model.embedding if stage.train == "embeddings" else model.total
    tokens = 2 * stage.batch_size * _tokens(recipe)
    work = None if model is None else 6 * tokens * _multiplied(stage, model)
    kept = 0 if model is None else model.recurrences * recipe.student.unit_layers * (model.norm // 2)
    return PlannedStage(
        name=name,
        train=stage.train,
        objectives={str(objective): weight for objective, weight in stage.objectives.items()},
        steps=steps,
        pairs=steps * stage.batch_size if steps else None,
        parameters=trained,
        megabytes=None if trained is None else _megabytes(stage, trained, tokens * kept),
        seconds=None if work is None or steps is None else round(steps * _seconds(work, trained or 0, flops)),
        finished=any(folder.glob(f"*-{name}/{STEP}")),
    )


def _seconds(work: int, trained: int, flops: float) -> float:
    """Return the seconds of one step: its products, then the optimiser, which is bound by memory."""
    speed = BYTES_A_SECOND_GPU if device().type == "cuda" else BYTES_A_SECOND_CPU
    return OVERHEAD * work / flops + trained * BYTES_MOVED / speed


def _multiplied(stage: Stage, model: Counts) -> int:
    """Return the multiply-adds of one token: each weight of the layers once for each recurrence."""
    return model.projection + (0 if stage.train == "embeddings" else model.encoder * model.recurrences)


def _megabytes(stage: Stage, trained: int, components: int) -> int:
    activations = 0 if stage.train == "embeddings" else components * BYTES_ACTIVATION
    return round((BYTES_PROCESS + trained * BYTES_TRAINED + activations) / 1e6)


def _tokens(recipe: Recipe) -> int:
    longest = min(recipe.corpus.max_words * TOKENS_PER_WORD, recipe.student.max_tokens)
    return round(longest * SHARE_OF_LONGEST)


def _pairs(recipe: Recipe, folder: Path) -> dict[str, int]:
    """Count the training pairs of a corpus step that has run."""
    paths = {language: corpus_file(folder / "corpus", TRAIN, language) for language in recipe.languages}
    return {language: len(PairFile(path, language)) for language, path in paths.items() if path.is_file()}


def _lines(recipe: Recipe) -> dict[str, int]:
    """Count the lines of the text files that are here."""
    counts: Counter[str] = Counter()
    for tsv in recipe.corpus.tsv:
        if tsv.language in recipe.languages and is_here(tsv.source):
            with suppress(BrokenOffError):
                for _ in read_lines(resolve(tsv.source)):
                    counts[tsv.language] += 1
    return dict(counts)


def _sources(recipe: Recipe) -> list[str]:
    models = [encoder.source for encoder in recipe.encoders.values()]
    references = dict.fromkeys([*models, *(reference for _, reference in file_references(recipe))])
    return [reference for reference in references if not reference.startswith(PYTHON)]


def _flops() -> float:
    """Time a large matrix product in the arithmetic of training."""
    kind = torch.bfloat16 if has_bf16() else torch.float32
    left, right = (torch.ones(1024, 1024, dtype=kind, device=device()) for _ in range(2))
    done, started = 0, time.perf_counter()
    while done < 3 or time.perf_counter() - started < PROBE_SECONDS:
        float((left @ right)[0, 0])  # waits for a GPU
        done += 1
    return done * 2 * 1024**3 / (time.perf_counter() - started)
