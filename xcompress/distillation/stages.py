"""The stages of a recipe: plan their length, then build each: load its model, train, score and save it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import nn
from transformers import set_seed

from xcompress import __version__
from xcompress.corpus.columns import Rows
from xcompress.corpus.pairs import Pair
from xcompress.distillation.assistant import TOKEN_COUNTS
from xcompress.distillation.collapse import check_weights
from xcompress.distillation.data.batches import BatchesByKind, PairBatches, WordLabels, draw
from xcompress.distillation.data.corpus import Corpus
from xcompress.distillation.data.groups import Groups
from xcompress.distillation.data.labelled import Labelled
from xcompress.distillation.data.labels import Labels, LiveLabels, VectorTable
from xcompress.distillation.data.monolingual import Monolingual
from xcompress.distillation.data.sentences import SIDES, Sentences
from xcompress.distillation.data.tokens import tokens_step
from xcompress.distillation.dev import dev_scores
from xcompress.distillation.hardware import fast_inference, has_bf16
from xcompress.distillation.initialization import (
    embedding_errors,
    initial_student,
    least_squares_head,
    mean_of_weights,
    with_head,
    without_head,
)
from xcompress.distillation.losses.stage import (
    SentenceVectors,
    TokenVectors,
    after_step,
    embedding_loss,
    sentence_loss,
    word_labels,
)
from xcompress.distillation.run_folder import Run, Step
from xcompress.distillation.teachers.ensemble import Encoders
from xcompress.distillation.teachers.vectors import VectorStore, student_encoder
from xcompress.distillation.trainer import Job, Loss, Scoring, train
from xcompress.distillation.training_data import TrainingData
from xcompress.metrics import Encode
from xcompress.modeling.four_bits import keep_rounded, round_weights
from xcompress.modeling.student import Student, encode, set_dropout, shallower
from xcompress.recipe import GROUP, ON_LABELS, PairKind, Recipe, Stage


def plan_text_stages(recipe: Recipe, corpus: Corpus, monolingual: Monolingual) -> dict[str, Stage]:
    """Return the stages that read translations or monolingual sentences, with epochs turned into steps.

    Epochs count translations, where the stage reads any.
    """
    planned = {}
    for name, stage in recipe.stages.items():
        kinds = stage.pairs_in_step
        if "translations" in kinds:
            planned[name] = _in_steps(stage, sum(map(len, corpus.rows_by_language(stage.text))))
        elif "monolingual" in kinds:
            planned[name] = _in_steps(stage, len(monolingual.pairs))
    return planned


def plan_stages(
    recipe: Recipe, planned: Mapping[str, Stage], labelled: Labelled, groups: Groups | None
) -> dict[str, Stage]:
    """Return all stages in order, with epochs turned into steps.

    :param planned: the stages that read translations or sentences. The others count epochs in labelled pairs, or in the
        pairs that groups are made of.
    """
    pairs = {kind: len(of_kind.pairs) for kind, of_kind in labelled.kinds.items()}
    if groups:
        pairs["groups"] = len(groups.rows)
    return {
        name: planned[name] if name in planned else _in_steps(stage, max(pairs[kind] for kind in stage.pairs_in_step))
        for name, stage in recipe.stages.items()
    }


def _in_steps(stage: Stage, pairs: int) -> Stage:
    return stage.model_copy(update={"steps": stage.steps_on(pairs), "epochs": None})


@dataclass(frozen=True)
class StageInputs:
    """A stage, and everything that it reads."""

    recipe: Recipe
    name: str
    stage: Stage
    """With its length in steps."""
    corpus: Corpus
    labelled: Labelled
    monolingual: Monolingual
    groups: Groups | None
    """None where no stage reads groups of similar sentences."""
    get_data: Callable[[], TrainingData]
    """Called when the stage is built."""
    encoders: Encoders
    store: VectorStore
    start: Step
    assistant: Step | None
    """The assistant after the stages that trained it; None for a student that starts from scratch."""
    student: Step | None
    """The student after the last stage; None before its first one, where it is made from the assistant."""
    seed: int
    tensorboard: Path | None

    @property
    def frozen_assistant(self) -> bool:
        """Whether the stage learns from an assistant that gives only vectors, in place of the trained one."""
        section = self.recipe.assistant
        return section is not None and "assistant" in self.stage.objectives and section.gives_only_vectors

    @property
    def has_live_teacher(self) -> bool:
        """Whether the teacher's vectors are computed in the training steps."""
        return self.recipe.teacher is not None and self.recipe.teacher.targets == "live"

    @cached_property
    def live_teacher(self) -> Encode:
        """The teacher, opened once for all that the stage learns from it."""
        assert self.encoders.teacher is not None  # checked when the recipe was loaded
        return self.encoders.teacher.load()

    def load_assistant(self) -> tuple[Student, Tokenizer]:
        """Load the trained assistant; the recipe's checks ensure that a stage which needs it has one."""
        assert self.assistant is not None
        return Student.load(self.assistant.folder)


def stage_step(run: Run, number: int, inputs: StageInputs) -> Step:
    """Train a stage, or reuse it. With `soup`, train it with several seeds and take the mean of their weights.

    A model soup: https://arxiv.org/abs/2203.05482, section 3 (uniform soup).

    :param number: position among the stages, from 1.
    """
    name, count = f"{number}-{inputs.name}", inputs.stage.soup
    if count == 1:
        return _training_step(run, name, inputs)
    trainings = [
        _training_step(run, f"{name}-of-seed-{seed}", replace(inputs, seed=seed))
        for seed in range(inputs.seed, inputs.seed + count)
    ]
    key = {"version": __version__, "trainings": [training.key for training in trainings]}
    return run.step(name, key, partial(_build_soup, inputs, [training.folder for training in trainings]))


def _training_step(run: Run, name: str, inputs: StageInputs) -> Step:
    """Train a stage with one seed, or reuse it."""
    recipe, stage, encoders = inputs.recipe, inputs.stage, inputs.encoders
    student: object = None
    if stage.train != "assistant":
        student = inputs.student.key if inputs.student else recipe.student.model_dump(by_alias=True)
    key: dict[str, object] = {
        "version": __version__,
        "corpus": inputs.corpus.step.key,
        "teacher": encoders.teacher.fingerprint if encoders.teacher else None,
        "assistant": inputs.assistant.key if inputs.assistant else None,
        "advice": encoders.assistant.fingerprint if encoders.assistant and inputs.frozen_assistant else None,
        "labelled": inputs.labelled.key if set(ON_LABELS) & set(stage.objectives) else None,
        "monolingual": inputs.monolingual.key if "monolingual" in stage.pairs_in_step else None,
        "student": student,
        "stage": stage.model_dump(exclude={"checkpoint_steps", "seed", "soup"}, by_alias=True),
        "seed": inputs.seed,
        "precision": recipe.precision,
        "distances": "means over the width",  # they were sums: a stage trained so is not reused
        "batches": "random",  # they were of pairs of similar length
    }
    if "correlation" in stage.objectives and inputs.groups:
        key["groups"] = inputs.groups.key
    if inputs.seed != (seed := recipe.seed_of(inputs.name)):  # of a soup, whose trainings share the pairs and the start
        key["seed of the pairs"] = seed
    return run.step(name, key, partial(_build_training, run, inputs, run.work(name, key)))


def _build_training(run: Run, inputs: StageInputs, work: Path, folder: Path) -> Mapping[str, object]:
    """Train and score the model of a stage.

    :param work: folder of checkpoints.
    """
    name, stage, data = inputs.name, inputs.stage, inputs.get_data()
    facts: dict[str, object] = {}

    # Load the model, the same for all trainings of a soup, and score it where no earlier stage has.
    seed = inputs.recipe.seed_of(name)
    set_seed(seed)
    model, tokenizer = _load_model(inputs, data)
    if inputs.seed != seed:
        set_seed(inputs.seed)
    if stage.train != "assistant" and inputs.student is None and inputs.seed == seed:
        facts["untrained"] = asdict(dev_scores(student_encoder("untrained student", model, tokenizer), data.dev))
    if stage.train == "embeddings":
        facts["embedding_error_before"] = _embedding_errors(inputs, model, tokenizer, data)

    # Tokenise the pairs and open their labels. Then add what is trained beside the model, which draws random weights.
    batches = BatchesByKind(
        {kind: _open_batches(run, inputs, kind, model, tokenizer, data) for kind in stage.pairs_in_step}
    )
    if stage.quantize:
        round_weights(model)  # before the moving teacher is copied from it
    module: nn.Module
    loss: Loss
    if stage.train == "embeddings":
        module = TokenVectors(model.embeddings)
        loss = embedding_loss(inputs.load_assistant()[0].embeddings)
    else:
        module = SentenceVectors(model, stage)
        loss = sentence_loss(stage, f"stages.{name}")
    set_dropout(model, stage.dropout)

    # Train.
    label = name if stage.soup == 1 else f"{name}-of-seed-{inputs.seed}"
    job = Job(
        name=label,
        stage=stage,
        work=work,
        seed=inputs.seed,
        bf16=has_bf16() and inputs.recipe.precision == "auto",
        compile=inputs.recipe.compile,
        collates_itself=inputs.has_live_teacher,
        scoring=_scoring(inputs, model, tokenizer, data),
        board=inputs.tensorboard / label if inputs.tensorboard else None,
    )
    history = train(job, module, loss, batches, after_step(stage, module))
    keep_rounded(model)
    check_weights(model, f"stages.{name}")
    model.eval().save(folder, tokenizer)

    # Score the result.
    if stage.train == "embeddings":
        facts["embedding_error_after"] = _embedding_errors(inputs, model, tokenizer, data)["start"]
    facts |= _scores(inputs, model, tokenizer, data)
    return facts | asdict(history) | {"sizes": model.sizes()}


def _build_soup(inputs: StageInputs, trainings: Sequence[Path], folder: Path) -> Mapping[str, object]:
    """Save and score the model whose weights are the means of those of several trainings.

    :param trainings: their folders.
    """
    model, tokenizer = Student.load(trainings[0])
    states = [Student.load(training)[0].state_dict() for training in trainings]
    model.load_state_dict(mean_of_weights(states))
    model.eval().save(folder, tokenizer)
    return _scores(inputs, model, tokenizer, inputs.get_data()) | {"sizes": model.sizes()}


def _scores(inputs: StageInputs, model: Student, tokenizer: Tokenizer, data: TrainingData) -> dict[str, object]:
    """Return the dev scores of a trained model, with elastic depth also after each smaller number of recurrences."""
    scores: dict[str, object] = {"dev": asdict(dev_scores(student_encoder(inputs.name, model, tokenizer), data.dev))}
    if inputs.stage.depth_weights is not None:
        scores["dev_by_depth"] = {
            depth: asdict(dev_scores(student_encoder(f"depth {depth}", shallower(model, depth), tokenizer), data.dev))
            for depth in range(1, model.config.recurrences)
        }
    return scores


def _load_model(inputs: StageInputs, data: TrainingData) -> tuple[Student, Tokenizer]:
    """Load the assistant or the student, or make the untrained student from the assistant."""
    if inputs.stage.train == "assistant":
        return inputs.load_assistant()
    if inputs.student:
        return Student.load(inputs.student.folder)
    assistant, tokenizer = inputs.load_assistant()
    student = initial_student(assistant, inputs.recipe.student, np.load(inputs.start.folder / TOKEN_COUNTS))
    section = inputs.recipe.student
    stack = (*section.prelude, *section.unit * student.config.recurrences, *section.coda)
    if student.head and stack != tuple(range(1, assistant.config.depth + 1)) and data.teacher:
        # The assistant's head is fitted to the output of its own layers, one after the other.
        texts = [getattr(pair, side) for side in SIDES for pair in data.fit_pairs]
        labels = np.tile(data.teacher.of_text([pair.source for pair in data.fit_pairs]), (len(SIDES), 1))
        # A small corpus is drawn several times over, and languages share English sentences: encode each text once.
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        distinct = student_encoder("student before training", without_head(student), tokenizer)(list(places))
        vectors = distinct[[places[text] for text in texts]]
        fitted = with_head(without_head(student), least_squares_head(vectors, labels))
        student.load_state_dict(fitted.state_dict())
    return student, tokenizer


@dataclass(frozen=True)
class StagePairs:
    """The pairs of one kind that a stage reads."""

    step_key: str | None
    """Key of the step that wrote the pairs."""
    pairs: Sequence[Pair]
    rows: Rows
    """The row of each pair that the stage reads, in the order of the training, (N,)."""
    rows_of_stages: Sequence[Rows]
    """Those of all stages, which share the tokens."""
    labels: Mapping[str, Labels]
    words: WordLabels | None = None


def _open_batches(
    run: Run, inputs: StageInputs, kind: PairKind, model: Student, tokenizer: Tokenizer, data: TrainingData
) -> PairBatches:
    """Open the tokens of the pairs of one kind that the stage reads, and their labels."""
    count = inputs.stage.planned_steps * inputs.stage.pairs_in_step[kind]
    match kind:
        case "translations":
            read = _translations(inputs, data, tokenizer)
        case "monolingual":
            read = _monolingual(inputs, data)
        case "groups":
            assert inputs.groups is not None  # the recipe has them where a stage reads them
            rows, vectors = inputs.groups.draw(count, inputs.seed)
            labels = {"correlation_sources": vectors}
            read = StagePairs(inputs.corpus.step.key, inputs.corpus.train, rows, [inputs.groups.rows], labels)
        case "entailment" | "graded":
            labelled = inputs.labelled.kinds[kind]
            every = [np.arange(len(labelled.pairs))]
            rows = draw(every, count, inputs.seed)
            read = StagePairs(inputs.labelled.key, labelled.pairs, rows, every, labelled.labels(rows))
    folder, tokenised = tokens_step(
        run, f"tokens_{kind}", read.step_key, read.pairs, read.rows_of_stages, tokenizer, model.config
    )
    return PairBatches(
        folder,
        read.labels,
        model.config.pad_token_id,
        rows=np.searchsorted(tokenised, read.rows),
        word_labels=read.words,
        group_size=GROUP if kind == "groups" else 1,
    )


def _translations(inputs: StageInputs, data: TrainingData, tokenizer: Tokenizer) -> StagePairs:
    name = inputs.name
    return StagePairs(
        inputs.corpus.step.key,
        data.train,
        data.rows[name],
        [*data.rows.values()],
        _vector_labels(inputs, data),
        word_labels(name, inputs.stage, tokenizer, inputs.seed),
    )


def _monolingual(inputs: StageInputs, data: TrainingData) -> StagePairs:
    assert data.teacher is not None  # checked when the recipe was loaded
    name, pairs, rows = inputs.name, inputs.monolingual.pairs, data.monolingual_rows[inputs.name]
    labels: dict[str, Labels]
    if inputs.has_live_teacher:
        labels = {f"teacher_{side}s": _live_labels(inputs, data, Sentences(pairs, side, rows)) for side in SIDES}
    else:
        table = data.teacher.monolingual()
        labels = {f"teacher_{side}s": table.labels(f"{name} {side}") for side in SIDES}
    return StagePairs(inputs.monolingual.key, pairs, rows, [*data.monolingual_rows.values()], labels)


def _live_labels(inputs: StageInputs, data: TrainingData, texts: Sequence[str]) -> LiveLabels:
    """Return the teacher's vectors of texts, to be computed when they are read."""
    assert data.teacher is not None  # checked when the recipe was loaded
    return LiveLabels(texts, inputs.live_teacher, data.teacher.sources.transform)


def _vector_labels(inputs: StageInputs, data: TrainingData) -> dict[str, Labels]:
    """Return the vectors that the translations of the stage learn, by name."""
    name, stage, labels = inputs.name, inputs.stage, dict[str, Labels]()
    if inputs.has_live_teacher:
        for side in stage.teacher_sides:
            labels[f"teacher_{side}s"] = _live_labels(inputs, data, data.sentences(name, side))
    elif data.teacher:
        if "source" in stage.teacher_sides:
            labels["teacher_sources"] = data.teacher.sources.labels(name)
        if "target" in stage.teacher_sides:
            labels["teacher_targets"] = data.teacher.targets().labels(name)
    if "assistant" in stage.objectives:
        if data.assistant and inputs.frozen_assistant:
            table = data.assistant()
        else:
            assert inputs.assistant is not None  # checked when the recipe was loaded
            encode = partial(
                inputs.store.vectors,
                "assistant",
                inputs.assistant.key,
                open_model=lambda: student_encoder("assistant", *inputs.load_assistant()),
            )
            texts = {f"{name} {side}": data.sentences(name, side) for side in SIDES}
            table = VectorTable.compute(texts, encode, inputs.store.folder)
        labels["assistant_sources"] = table.labels(f"{name} source")
        labels["assistant_targets"] = table.labels(f"{name} target")
    return labels


def _scoring(inputs: StageInputs, model: Student, tokenizer: Tokenizer, data: TrainingData) -> Scoring | None:
    """Return how the model is scored while it trains, where the recipe asks for that."""
    steps = inputs.recipe.dev.steps
    if steps is None or inputs.stage.train == "embeddings":
        return None

    def vectors(texts: Sequence[str]) -> NDArray[np.float32]:
        with fast_inference():
            return encode(model, tokenizer, texts)

    return Scoring(steps, lambda: dev_scores(vectors, data.dev).means())


def _embedding_errors(
    inputs: StageInputs, model: Student, tokenizer: Tokenizer, data: TrainingData
) -> dict[str, float]:
    assistant, _ = inputs.load_assistant()
    return embedding_errors(assistant, model.cpu(), tokenizer, [pair.target for pair in data.held_out])
