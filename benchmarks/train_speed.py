"""Train one student on the same pairs with sentence-transformers' Trainer and with ours, in turn; compare the speed.

    python benchmarks/train_speed.py RUN [--steps 60] [--rounds 3]

RUN is a run folder of `xcompress distill` whose recipe has a stage with the objective `teacher`. The student is the
untrained one of that run, the targets are the teacher's vectors of the English sentences (eq. 6), for both sides.
sentence-transformers trains as its documentation on multilingual models does: SentenceTransformerTrainer, MSELoss on
(English, translation, label), AdamW, its own collator. Its time includes what it does to the text, and so does ours;
the teacher's vectors are computed before, for both. It is also timed with `bf16=True`, which that documentation does
not set on a CPU. The loss afterwards is eq. 6 of both students, in float32, on held-out pairs.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MSELoss
from transformers import set_seed

from xcompress.console import emit, table
from xcompress.corpus.pairs import Pair
from xcompress.distillation.assistant import TOKEN_COUNTS
from xcompress.distillation.data.batches import Feeds, PairBatches, write_tokens
from xcompress.distillation.data.corpus import corpus_step
from xcompress.distillation.data.targets import VectorTargets
from xcompress.distillation.hardware import has_bf16
from xcompress.distillation.initialization import initial_student
from xcompress.distillation.losses.multi_stage import teacher_loss
from xcompress.distillation.losses.stage import SentenceVectors, sentence_loss
from xcompress.distillation.run_folder import open_run
from xcompress.distillation.stages import plan_translation_stages
from xcompress.distillation.teachers.ensemble import find_encoders
from xcompress.distillation.teachers.vectors import VectorStore
from xcompress.distillation.trainer import Job, train
from xcompress.distillation.training_data import prepare_training_data
from xcompress.modeling.student import Student, encode, read_config
from xcompress.recipe import Recipe, Stage, load_recipe

SEED = 1
OURS = "xcompress"
THEIRS = "sentence-transformers"
THEIRS_BF16 = "sentence-transformers, bf16=True"


@dataclass(frozen=True)
class Task:
    """What both ways train."""

    start: Path
    """Folder of the untrained student."""
    pairs: Sequence[Pair]
    targets: VectorTargets
    """The teacher's vectors of the English sides."""
    held_out: Sequence[Pair]
    held_out_targets: np.ndarray
    stage: Stage


@dataclass(frozen=True)
class Result:
    """One way: median seconds of a training, sentences a second in each round, and eq. 6 on held-out pairs."""

    way: str
    sentences_per_second: list[float]
    held_out_loss: float

    @property
    def median(self) -> float:
        """Median sentences per second."""
        return statistics.median(self.sentences_per_second)


def prepare(run_folder: Path, steps: int, folder: Path) -> Task:
    """Draw the pairs and make the untrained student."""
    recipe = load_recipe(run_folder / "recipe.yaml")
    name, stage = _stage(recipe, steps)
    recipe = recipe.model_copy(update={"stages": {name: stage}})
    with open_run(run_folder) as run:
        corpus = corpus_step(recipe, run, None)
        data = prepare_training_data(
            recipe,
            corpus,
            plan_translation_stages(recipe, corpus),
            find_encoders(recipe),
            VectorStore(run.vectors),
            read_config(run_folder / "reference").hidden_size,
        )
    assert data.teacher is not None  # the stage learns from one
    pairs = [data.train[int(row)] for row in data.rows[name]]
    targets = data.teacher.sources.targets(name)
    held_out_targets = data.teacher.of_text([pair.source for pair in data.held_out])
    assistant, tokenizer = Student.load(run_folder / "start")
    student = initial_student(assistant, recipe.student, np.load(run_folder / "start" / TOKEN_COUNTS))
    (folder / "start").mkdir()
    student.save(folder / "start", tokenizer)
    return Task(folder / "start", pairs, targets, data.held_out, held_out_targets, stage)


def _stage(recipe: Recipe, steps: int) -> tuple[str, Stage]:
    name = next(
        name for name, stage in recipe.stages.items() if stage.train == "student" and "source" in stage.taught_sides
    )
    length = {"steps": steps, "epochs": None, "checkpoint_steps": 10 * steps}
    as_theirs = {"objectives": {"teacher": 1.0}, "embedding_learning_rate": None, "weight_decay": 0.0}
    return name, recipe.stages[name].model_copy(update=length | as_theirs)


def ours(task: Task, work: Path) -> Student:
    """Train with the product's own stage."""
    set_seed(SEED)
    student, tokenizer = Student.load(task.start)
    rows = np.arange(len(task.pairs))
    write_tokens(work / "tokens", task.pairs, rows, tokenizer, student.config)
    batches = PairBatches(work / "tokens", {"teacher_sources": task.targets}, student.config.pad_token_id)
    model = SentenceVectors(student, task.stage)
    feeds = Feeds({"translations": batches})
    train(Job("ours", task.stage, work, SEED, has_bf16()), model, sentence_loss(task.stage), feeds)
    return student.eval()


def theirs(task: Task, work: Path, bf16: bool = False) -> Student:
    """Train as the documentation of sentence-transformers does."""
    set_seed(SEED)
    model = SentenceTransformer(str(task.start), device="cpu" if not torch.cuda.is_available() else None)
    stage = task.stage
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(work),
        max_steps=stage.steps or 0,
        per_device_train_batch_size=stage.batch_size,
        learning_rate=stage.learning_rate,
        warmup_steps=round(stage.warmup * (stage.steps or 0)),
        lr_scheduler_type="cosine",
        bf16=bf16,
        use_cpu=not torch.cuda.is_available(),
        seed=SEED,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )
    columns = {
        "english": [pair.source for pair in task.pairs],
        "non_english": [pair.target for pair in task.pairs],
        "label": list(task.targets.take(range(len(task.pairs)))),
    }
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=Dataset.from_dict(columns), loss=MSELoss(model)
    )
    with redirect_stdout(StringIO()):
        trainer.train()
    student: Student = model[0].student
    return student.eval().cpu()


def held_out_loss(task: Task, student: Student) -> float:
    """Return eq. 6 on the held-out pairs."""
    _, tokenizer = Student.load(task.start)
    student = student.cpu().float()
    sides = (
        encode(student, tokenizer, [getattr(pair, side) for pair in task.held_out]) for side in ("source", "target")
    )
    vectors = [torch.from_numpy(side) for side in sides]
    return teacher_loss(torch.from_numpy(task.held_out_targets), *vectors).item()


def measure(task: Task, rounds: int) -> list[Result]:
    """Time each way `rounds` times, in turn."""
    ways: Mapping[str, Callable[[Task, Path], Student]] = {
        OURS: ours,
        THEIRS: theirs,
        **({THEIRS_BF16: lambda task, work: theirs(task, work, bf16=True)} if has_bf16() else {}),
    }
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    losses: dict[str, float] = {}
    for _ in range(rounds):
        for way, run in ways.items():
            with tempfile.TemporaryDirectory() as work:
                started = time.perf_counter()
                student = run(task, Path(work) / "work")
                speeds[way].append(2 * len(task.pairs) / (time.perf_counter() - started))
            losses.setdefault(way, held_out_loss(task, student))
    return [Result(way, speeds[way], losses[way]) for way in ways]


def rows(results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """Yield a row per way; ratios are of ours to it."""
    first = results[0]
    for result in results:
        ratios = [mine / its for mine, its in zip(first.sentences_per_second, result.sentences_per_second, strict=True)]
        yield (
            result.way,
            f"{result.median:.0f} ({min(result.sentences_per_second):.0f}-{max(result.sentences_per_second):.0f})",
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})",
            f"{result.held_out_loss:.4f}",
            f"{100 * (first.held_out_loss / result.held_out_loss - 1):+.1f} %",
        )


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(prepare(given.run, given.steps, Path(folder)), given.rounds)
    if given.json:
        emit(json.dumps([asdict(result) for result in results], indent=2))
    else:
        head = ("way", "sentences/s", "ours is faster by", "held-out loss (eq. 6)", "our loss against it")
        table(f"{given.steps} steps, {torch.get_num_threads()} threads", head, rows(results))


if __name__ == "__main__":
    main()
