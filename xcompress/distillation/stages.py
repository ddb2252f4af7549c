"""The stages of a recipe: plan their length, then build each: load its model, train, score and save it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from math import gcd
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import nn
from torch.nn.utils import parametrize

from xcompress import __version__
from xcompress.distillation import distributed
from xcompress.distillation.assistant import TOKEN_COUNTS
from xcompress.distillation.collapse import check_weights
from xcompress.distillation.data.batches import BatchesByKind
from xcompress.distillation.data.corpus import Corpus
from xcompress.distillation.data.groups import Groups
from xcompress.distillation.data.labelled import Labelled
from xcompress.distillation.data.labels import encode_distinct
from xcompress.distillation.data.monolingual import Monolingual
from xcompress.distillation.data.sentences import SIDES
from xcompress.distillation.dev import dev_scores
from xcompress.distillation.hardware import fast_inference, trains_in_bf16
from xcompress.distillation.initialization import (
    initial_student,
    least_squares_head,
    mean_of_weights,
    with_head,
    without_head,
)
from xcompress.distillation.losses.stage import (
    Loss,
    SentenceVectors,
    TokenVectors,
    after_step,
    sentence_loss,
    token_loss,
)
from xcompress.distillation.run_folder import Run, Step
from xcompress.distillation.stage_inputs import StageModels, StageSettings, StageText, open_batches
from xcompress.distillation.teachers.vectors import student_encoder
from xcompress.distillation.training_data import TrainingData
from xcompress.errors import InputError
from xcompress.modeling.four_bits import keep_rounded, round_weights
from xcompress.modeling.student import Student, StudentConfig, encode, set_dropout, shallower
from xcompress.recipe import GROUP, ON_LABELS, Recipe, Stage


def plan_text_stages(recipe: Recipe, corpus: Corpus, monolingual: Monolingual) -> dict[str, Stage]:
    """Return the stages that read translations or monolingual sentences, with epochs turned into steps.

    Epochs count translations, where the stage reads any.
    """
    planned = {}
    for name, stage in recipe.stages.items():
        kinds = stage.pairs_in_step
        if "translations" in kinds:
            planned[name] = _in_steps(stage, sum(map(len, corpus.rows_by_language(stage.text, f"stages.{name}.text"))))
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


def check_batch(name: str, stage: Stage) -> None:
    """Check that the workers can share the batch of a stage equally.

    :raises InputError: when they cannot share it, or its groups of similar sentences.
    """
    workers = distributed.world_size()
    if stage.batch_size % workers:
        raise InputError(
            f"stages.{name}.batch_size: {stage.batch_size} cannot be shared equally by {workers} workers; choose a "
            "multiple of their number"
        )
    if "correlation" in stage.objectives and stage.batch_size // workers * stage.correlation_pairs % GROUP:
        least = workers * GROUP // gcd(GROUP, stage.correlation_pairs)
        raise InputError(
            f"stages.{name}.batch_size: {workers} workers cannot share {stage.batch_size} x {stage.correlation_pairs} "
            f"pairs equally in groups of {GROUP}; make it a multiple of {least}"
        )


def check_depths(name: str, stage: Stage, student: StudentConfig) -> None:
    """Check that a stage of elastic depth has a weight for each recurrence.

    :raises InputError: when it has more or fewer.
    """
    weights = len(stage.depth_weights or ())
    if weights and stage.train != "student":
        raise InputError(
            f"stages.{name}.depth_weights: weighs the recurrences of the student, and `train: {stage.train}` runs none "
            "of them; leave it out"
        )
    if weights and weights != student.recurrences:
        raise InputError(
            f"stages.{name}.depth_weights: {weights} values, but the unit of the student is applied "
            f"{student.recurrences} times; give one for each time, or leave it out"
        )


def stage_step(run: Run, number: int, settings: StageSettings, models: StageModels, text: StageText) -> Step:
    """Train a stage, or reuse it. With `soup`, train it with several seeds and take the mean of their weights.

    A model soup: https://arxiv.org/abs/2203.05482, section 3 (uniform soup).

    :param number: position among the stages, from 1.
    """
    name, count = f"{number}-{settings.name}", settings.stage.soup
    if count == 1:
        return _training_step(run, name, settings, models, text)
    trainings = [
        _training_step(run, f"{name}-of-seed-{seed}", replace(settings, seed=seed), models, text)
        for seed in range(settings.seed, settings.seed + count)
    ]
    key = {"version": __version__, "trainings": [training.key for training in trainings]}
    return run.step(name, key, partial(_build_soup, settings, text, [training.folder for training in trainings]))


def _training_step(run: Run, name: str, settings: StageSettings, models: StageModels, text: StageText) -> Step:
    """Train a stage with one seed, or reuse it."""
    recipe, stage, encoders = settings.recipe, settings.stage, models.encoders
    student: object = None
    if stage.train != "assistant":
        student = models.student.key if models.student else recipe.student.model_dump(by_alias=True)
    key: dict[str, object] = {
        "version": __version__,
        "corpus": text.corpus.step.key,
        "teacher": encoders.teacher.fingerprint if encoders.teacher else None,
        "assistant": models.assistant.key if models.assistant else None,
        "advice": encoders.assistant.fingerprint if encoders.assistant and settings.uses_frozen_assistant else None,
        "labelled": text.labelled.key if set(ON_LABELS) & set(stage.objectives) else None,
        "monolingual": text.monolingual.key if "monolingual" in stage.pairs_in_step else None,
        "student": student,
        "stage": stage.model_dump(exclude={"checkpoint_steps", "seed", "soup"}, by_alias=True),
        "seed": settings.seed,
        "precision": recipe.precision,
        "distances": "means over the width",  # they were sums: a stage trained so is not reused
        "batches": "random",  # they were of pairs of similar length
    }
    if "correlation" in stage.objectives and text.groups:
        key["groups"] = text.groups.key
    if settings.seed != (seed := recipe.seed_of(settings.name)):  # of a soup, whose trainings share pairs and start
        key["seed of the pairs"] = seed
    return run.step(name, key, partial(_build_training, run, settings, models, text, run.work(name, key)))


def _build_training(
    run: Run, settings: StageSettings, models: StageModels, text: StageText, work: Path, folder: Path
) -> Mapping[str, object]:
    """Train and score the model of a stage.

    :param work: folder of checkpoints.
    """
    from transformers import set_seed

    from xcompress.distillation.trainer import Job, train  # seconds, and half of the memory

    name, stage, data = settings.name, settings.stage, text.get_data()
    facts: dict[str, object] = {}

    # Load the model, the same for all trainings of a soup, and score it where no earlier stage has.
    seed = settings.recipe.seed_of(name)
    set_seed(seed)
    model, tokenizer, assistant = _load_models(settings, models, data)
    if settings.seed != seed:
        set_seed(settings.seed)
    if stage.train != "assistant" and models.student is None and settings.seed == seed:
        facts["untrained"] = asdict(dev_scores(student_encoder("untrained student", model, tokenizer), data.dev))

    # Open the pairs with their labels, and tokenise them.
    live = models.encoders.teacher if settings.has_live_teacher else None
    teacher = live.load() if live else None
    batches = BatchesByKind(
        {
            kind: open_batches(run, settings, models, text, kind, model, tokenizer, teacher)
            for kind in stage.pairs_in_step
        }
    )

    # Add what is trained beside the model, which draws random weights.
    if stage.quantize:
        round_weights(model)  # before the moving teacher is copied from it
    module: nn.Module
    loss: Loss
    if assistant:
        module, loss = TokenVectors(model.embeddings), token_loss(assistant.embeddings)
    else:
        module, loss = SentenceVectors(model, stage, f"stages.{name}"), sentence_loss(stage)
    if stage.quantize and not settings.recipe.compile:  # which would compile the cache as well
        loss = parametrize.cached()(loss)  # round once a step, not for each recurrence and kind of pairs
    set_dropout(model, stage.dropout)

    # Train, and score the model meanwhile where the recipe asks for that.
    def score() -> Mapping[str, float]:
        with fast_inference():
            return dev_scores(partial(encode, model, tokenizer), data.dev).means()

    label = name if stage.soup == 1 else f"{name}-of-seed-{settings.seed}"
    job = Job(
        name=label,
        stage=stage,
        work=work,
        seed=settings.seed,
        bf16=trains_in_bf16(settings.recipe.precision),
        compile=settings.recipe.compile,
        collates_itself=settings.has_live_teacher,
        score=score,
        score_steps=None if assistant else settings.recipe.dev.steps,
        board=settings.tensorboard / label if settings.tensorboard else None,
    )
    history = train(job, module, loss, batches, after_step(stage, module))
    keep_rounded(model)
    check_weights(model, f"stages.{name}")
    model.eval().save(folder, tokenizer)

    # Score the result.
    return facts | _scores(settings, model, tokenizer, data) | asdict(history) | {"sizes": model.sizes()}


def _build_soup(
    settings: StageSettings, text: StageText, trainings: Sequence[Path], folder: Path
) -> Mapping[str, object]:
    """Save and score the model whose weights are the means of those of several trainings.

    :param trainings: their folders.
    """
    (model, tokenizer), *others = map(Student.load, trainings)
    model.load_state_dict(mean_of_weights([model.state_dict(), *(other.state_dict() for other, _ in others)]))
    model.eval().save(folder, tokenizer)
    return _scores(settings, model, tokenizer, text.get_data()) | {"sizes": model.sizes()}


def _scores(settings: StageSettings, model: Student, tokenizer: Tokenizer, data: TrainingData) -> dict[str, object]:
    """Return the dev scores of a trained model, with elastic depth also after each smaller number of recurrences."""
    scores: dict[str, object] = {"dev": asdict(dev_scores(student_encoder(settings.name, model, tokenizer), data.dev))}
    if settings.stage.depth_weights is not None:
        scores["dev_by_depth"] = {
            depth: asdict(dev_scores(student_encoder(f"depth {depth}", shallower(model, depth), tokenizer), data.dev))
            for depth in range(1, model.config.recurrences)
        }
    return scores


def _load_models(
    settings: StageSettings, models: StageModels, data: TrainingData
) -> tuple[Student, Tokenizer, Student | None]:
    """Load the model that a stage trains, and the assistant whose embeddings it learns; None in other stages."""
    train = settings.stage.train
    if train == "assistant":
        return *models.load_assistant(), None
    if train == "student" and models.student:
        return *Student.load(models.student.folder), None
    assistant, tokenizer = models.load_assistant()
    if models.student:
        student, tokenizer = Student.load(models.student.folder)
    else:
        counts = np.load(models.start.folder / TOKEN_COUNTS)
        student = _make_student(settings.recipe, assistant, tokenizer, counts, data)
    return student, tokenizer, assistant if train == "embeddings" else None


def _make_student(
    recipe: Recipe, assistant: Student, tokenizer: Tokenizer, counts: NDArray[np.int64], data: TrainingData
) -> Student:
    """Make the untrained student from the assistant.

    :param counts: how often each of the V tokens occurs in the text, (V,).
    """
    section = recipe.student
    student = initial_student(assistant, section, counts)
    stack = (*section.prelude, *section.unit * student.config.recurrences, *section.coda)
    if student.head and stack != tuple(range(1, assistant.config.depth + 1)) and data.teacher:
        # The assistant's head is fitted to the output of its own layers, one after the other.
        texts = [getattr(pair, side) for side in SIDES for pair in data.fit_pairs]
        labels = np.tile(data.teacher.of_text([pair.source for pair in data.fit_pairs]), (len(SIDES), 1))
        # A small corpus is drawn several times over, and languages share English sentences.
        encode_texts = student_encoder("student before training", without_head(student), tokenizer)
        vectors = encode_distinct(encode_texts, texts)
        fitted = with_head(without_head(student), least_squares_head(vectors, labels))
        student.load_state_dict(fitted.state_dict())
    return student
