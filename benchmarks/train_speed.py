"""Compare the training speed of xcompress and of sentence-transformers, on the same student and the same pairs.

    python benchmarks/train_speed.py RUN [--steps 60] [--batch-size PAIRS] [--rounds 3]
    python benchmarks/train_speed.py RUN --profile [--steps 60] [--batch-size PAIRS]

RUN is a run folder of `xcompress distill` whose recipe has a stage with the objective `teacher`. Both start from the
untrained student of that run; the labels of both sides are the teacher's vectors of the English sentences (eq. 6).
sentence-transformers trains as its documentation on multilingual models says: SentenceTransformerTrainer, MSELoss on
(English, translation, label), AdamW, its own collator. It is also timed with `bf16=True`, which that documentation does
not set on a CPU. Each training has a fresh process. Speeds are those of the steps after the first quarter: what
xcompress does once, before and after them, does not count (tokens of all pairs, a checkpoint; about 1 s here). The
teacher's vectors are computed before. The loss is eq. 6 of the trained students, in float32, on held-out pairs. Needs
the extra `benchmarks`. Prints a table.

With --profile only xcompress trains, and the table says what the steps spend their time on, and how fast the products
of layers are, beside one large product of square matrices in bfloat16: that is how fast they could be.
"""

import argparse
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measuring import add_rounds, in_fresh_process, in_turns
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MSELoss
from torch.profiler import ProfilerActivity, profile, schedule
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed

from xcompress.bench.report.format import threads_text
from xcompress.console import emit, run_script, table
from xcompress.corpus.pairs import Pair
from xcompress.distillation.assistant import TOKEN_COUNTS
from xcompress.distillation.data.batches import BatchesByKind, PairBatches
from xcompress.distillation.data.corpus import corpus_step
from xcompress.distillation.data.labels import VectorLabels
from xcompress.distillation.data.monolingual import Monolingual
from xcompress.distillation.data.tokens import write_tokens
from xcompress.distillation.hardware import has_bf16
from xcompress.distillation.initialization import initial_student
from xcompress.distillation.losses.multi_stage import teacher_loss
from xcompress.distillation.losses.stage import SentenceVectors, sentence_loss
from xcompress.distillation.run_folder import open_run
from xcompress.distillation.stages import plan_text_stages
from xcompress.distillation.teachers.ensemble import find_encoders
from xcompress.distillation.trainer import Job, train
from xcompress.distillation.training_data import prepare_training_data
from xcompress.modeling.student import Student, encode, read_config
from xcompress.recipe import Stage, load_recipe

SEED = 1
OURS = "xcompress"
THEIRS = "sentence-transformers"
THEIRS_BF16 = "sentence-transformers, bf16=True"
PRODUCTS = "products of layers"
OTHERS = "other operators: norms, GELU, casts, copies"
OPERATORS = {
    PRODUCTS: ("aten::mm", "aten::addmm"),
    "products, softmax and masks of the attention": (
        "aten::bmm",
        "aten::_softmax",
        "aten::_softmax_backward_data",
        "aten::masked_fill_",
    ),
    "optimizer, and clipping of the gradient": ("aten::_fused_adamw_", "aten::linalg_vector_norm", "aten::mul_"),
}
AfterStep = Callable[[], None]


@dataclass(frozen=True)
class Task:
    """The student, the pairs and the labels that both libraries train on."""

    start: Path
    """Folder of the untrained student."""
    pairs: Sequence[Pair]
    labels: VectorLabels
    """The teacher's vectors of the English sides."""
    held_out: Sequence[Pair]
    held_out_labels: np.ndarray
    stage: Stage


@dataclass(frozen=True)
class Result:
    """One library: sentences per second in each round, and eq. 6 on held-out pairs."""

    name: str
    sentences_per_second: list[float]
    held_out_loss: float


def prepare(run_folder: Path, steps: int, batch_size: int | None, folder: Path) -> Task:
    """Draw the pairs, compute the labels, and save the untrained student.

    :param batch_size: pairs of a batch; by default those of the recipe.
    """
    recipe = load_recipe(run_folder / "recipe.yaml")
    # A stage that both can train: the objective of eq. 6 alone, one learning rate, no weight decay.
    name = next(
        name for name, stage in recipe.stages.items() if stage.train == "student" and "source" in stage.teacher_sides
    )
    length = {"steps": steps, "epochs": None, "checkpoint_steps": 10 * steps}
    plain = {"objectives": {"teacher": 1.0}, "embedding_learning_rate": None, "weight_decay": 0.0}
    batch = {"batch_size": batch_size or recipe.stages[name].batch_size}
    stage = recipe.stages[name].model_copy(update=length | plain | batch)
    recipe = recipe.model_copy(update={"stages": {name: stage}})
    with open_run(run_folder) as run:
        corpus = corpus_step(recipe, run, None)
        data = prepare_training_data(
            recipe,
            run,
            corpus,
            Monolingual(),
            plan_text_stages(recipe, corpus, Monolingual()),
            find_encoders(recipe),
            read_config(run_folder / "reference").hidden_size,
        )
    assert data.teacher is not None  # the stage learns from one
    pairs = [data.train[int(row)] for row in data.rows[name]]
    labels = data.teacher.sources.labels((name, "source"))
    held_out = data.held_out
    held_out_labels = data.teacher.of_text([pair.source for pair in held_out])
    assistant, tokenizer = Student.load(run_folder / "start")
    student = initial_student(assistant, recipe.student, np.load(run_folder / "start" / TOKEN_COUNTS))
    (folder / "start").mkdir()
    student.save(folder / "start", tokenizer)
    return Task(folder / "start", pairs, labels, held_out, held_out_labels, stage)


def train_ours(task: Task, work: Path, after_step: AfterStep) -> Student:
    """Train with a stage of xcompress.

    :param after_step: called after each step.
    """
    set_seed(SEED)
    student, tokenizer = Student.load(task.start)
    rows = np.arange(len(task.pairs))
    write_tokens(work / "tokens", task.pairs, rows, tokenizer, student.config)
    batches = PairBatches(work / "tokens", {"teacher_sources": task.labels}, student.config.pad_token_id, rows)
    model = SentenceVectors(student, task.stage)
    job = Job("ours", task.stage, work, SEED, has_bf16())
    by_kind = BatchesByKind({"translations": batches})
    train(job, model, sentence_loss(task.stage), by_kind, lambda *_: after_step())
    return student.eval()


class _AfterStep(TrainerCallback):
    """Call a function after each step."""

    def __init__(self, function: AfterStep) -> None:
        self.function = function

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        self.function()


def train_theirs(task: Task, work: Path, after_step: AfterStep, bf16: bool = False) -> Student:
    """Train as the documentation of sentence-transformers says.

    :param after_step: called after each step.
    """
    from datasets import Dataset

    set_seed(SEED)
    model = SentenceTransformer(str(task.start))
    stage = task.stage
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(work),
        max_steps=stage.steps or 0,
        per_device_train_batch_size=stage.batch_size,
        learning_rate=stage.learning_rate,
        warmup_steps=round(stage.warmup * (stage.steps or 0)),
        lr_scheduler_type="cosine",
        bf16=bf16,
        use_cpu=not torch.cuda.is_available(),  # else it refuses bf16
        seed=SEED,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )
    columns = {
        "english": [pair.source for pair in task.pairs],
        "non_english": [pair.target for pair in task.pairs],
        "label": list(task.labels.take(range(len(task.pairs)))),
    }
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(columns),
        loss=MSELoss(model),
        callbacks=[_AfterStep(after_step)],
    )
    trainer.train()
    student: Student = model[0].student
    return student.eval().cpu()


LIBRARIES: dict[str, Callable[[Task, Path, AfterStep], Student]] = {
    OURS: train_ours,
    THEIRS: train_theirs,
    THEIRS_BF16: partial(train_theirs, bf16=True),
}


def held_out_loss(task: Task, student: Student) -> float:
    """Return the loss of eq. 6 on the held-out pairs."""
    _, tokenizer = Student.load(task.start)
    student = student.cpu().float()
    sides = (
        encode(student, tokenizer, [getattr(pair, side) for pair in task.held_out]) for side in ("source", "target")
    )
    vectors = [torch.from_numpy(side) for side in sides]
    return teacher_loss(torch.from_numpy(task.held_out_labels), *vectors).item()


def train_once(name: str, file: str) -> tuple[float, float]:
    """Train with a library in a fresh process; return sentences per second and eq. 6 on held-out pairs.

    :param file: holds the fields of the task.
    """
    task = Task(**pickle.loads(Path(file).read_bytes()))
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as work:
        student = LIBRARIES[name](task, Path(work) / "work", lambda: ends.append(time.perf_counter()))
    first = len(ends) // 4
    speed = 2 * task.stage.batch_size * (len(ends) - 1 - first) / (ends[-1] - ends[first])
    return speed, held_out_loss(task, student)


def measure(task: Task, rounds: int, folder: Path) -> list[Result]:
    """Train with each library in turn, `rounds` times.

    A training leaves its number format in the environment and in accelerate's state, which the next one would take. So
    each has a process of its own, which reads the task from a file in the folder.
    """
    file = folder / "task.pickle"
    file.write_bytes(pickle.dumps(vars(task)))
    names = [name for name in LIBRARIES if name != THEIRS_BF16 or has_bf16()]
    replies = in_turns({name: partial(in_fresh_process, train_once, name, file) for name in names}, rounds)
    return [Result(name, [speed for speed, _ in trained], trained[0][1]) for name, trained in replies.items()]


def profile_steps(task: Task) -> tuple[dict[str, float], float, float]:
    """Train with xcompress, from the third step on under torch's profiler.

    :returns: the share of the time in operators, by kind; multiply-adds a second of the layers' products, forward and
        backward, and of one product of 2,048 x 2,048 matrices in bfloat16, the best of ten calls.
    """
    recorded = schedule(wait=1, warmup=1, active=(task.stage.steps or 0) - 2, repeat=1)
    profiler = profile(activities=[ProfilerActivity.CPU], schedule=recorded, with_flops=True)
    with tempfile.TemporaryDirectory() as work, profiler:
        train_ours(task, Path(work) / "work", profiler.step)
    operators = profiler.key_averages()
    kind_of = {name: kind for kind, names in OPERATORS.items() for name in names}
    times: dict[str, float] = dict.fromkeys((*OPERATORS, OTHERS), 0.0)
    for operator in operators:
        times[kind_of.get(operator.key, OTHERS)] += operator.self_cpu_time_total
    flops = sum(operator.flops for operator in operators if operator.key in OPERATORS[PRODUCTS])
    seconds = []
    square = torch.ones(2048, 2048, dtype=torch.bfloat16)
    for _ in range(10):
        start = time.perf_counter()
        square @ square
        seconds.append(time.perf_counter() - start)
    shares = {kind: spent / sum(times.values()) for kind, spent in times.items()}
    return shares, flops / 2 / (times[PRODUCTS] / 1e6), 2048**3 / min(seconds)


def rows(results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """Yield a row per library; those after the first one compare it with theirs."""
    first = results[0]
    for result in results:
        speeds = result.sentences_per_second
        row = (result.name, _median_and_range(speeds, 0))
        if result is first:
            yield (*row, "1.00", f"{result.held_out_loss:.4g}", "")
            continue
        ratios = [left / right for left, right in zip(first.sentences_per_second, speeds, strict=True)]
        loss = f"{100 * (first.held_out_loss / result.held_out_loss - 1):+.1f} %"
        yield (*row, _median_and_range(ratios, 2), f"{result.held_out_loss:.4g}", loss)


def _median_and_range(values: Sequence[float], decimals: int) -> str:
    middle, least, most = (f"{value:.{decimals}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least}-{most})"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, default=60, help="at least 4")
    parser.add_argument("--batch-size", type=int, help="pairs of a batch; by default those of the recipe")
    add_rounds(parser, 3)
    parser.add_argument("--profile", action="store_true", help="say what steps of xcompress spend their time on")
    options = parser.parse_args()
    if options.steps < 4:
        parser.error("--steps: at least 4")
    with tempfile.TemporaryDirectory() as folder:
        task = prepare(options.run, options.steps, options.batch_size, Path(folder))
        title = f"{options.steps} steps of {task.stage.batch_size} pairs"
        if options.profile:
            shares, products, large_product = profile_steps(task)
            table(title, ("operators", "share of the time"), [(kind, f"{share:.0%}") for kind, share in shares.items()])
            speed = f"{products / 1e9:.0f} thousand million multiply-adds a second; "
            emit(f"Products of layers: {speed}a large product: {large_product / 1e9:.0f}.")
            return
        head = ("library", "sentences/s", "xcompress is faster by", "held-out loss (eq. 6)")
        results = rows(measure(task, options.rounds, Path(folder)))
        table(f"{title}, {threads_text(torch.get_num_threads())}", (*head, "loss of xcompress against it"), results)


if __name__ == "__main__":
    run_script(main)
