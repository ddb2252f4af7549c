"""A recipe from beginning to end: preparation, stages, and what each of them scored."""

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import nn
from transformers import set_seed

from xcompress import __version__
from xcompress.distillation import distributed
from xcompress.distillation.assistant import PIECE_COUNTS, fit_head, reference_step, start_step
from xcompress.distillation.data.batches import BatchesByKind, PairBatches, write_tokens
from xcompress.distillation.data.labelled import Labelled, labelled_step
from xcompress.distillation.data.targets import Column, Goal, VectorTable
from xcompress.distillation.dev import DevScores, dev_scores
from xcompress.distillation.hardware import device, fast_inference, has_bf16
from xcompress.distillation.initialization import config_from_nothing, embedding_errors, initial_student, student_config
from xcompress.distillation.losses.stage import (
    PairKind,
    SentenceVectors,
    TokenVectors,
    after_step,
    check_depths,
    embedding_loss,
    pair_kinds,
    sentence_loss,
    word_goals,
)
from xcompress.distillation.materials import SIDES, Materials
from xcompress.distillation.run_folder import Run, Step, open_run
from xcompress.distillation.teachers.encoder import encoder_fingerprint
from xcompress.distillation.teachers.ensemble import open_teacher
from xcompress.distillation.teachers.vectors import VectorsOf, vectors_of
from xcompress.distillation.trainer import Job, Loss, Scoring, share_of, train
from xcompress.files import hash_of, read_json, sha256_of, whole_folder, write_json, write_text
from xcompress.modeling.student import Student, StudentConfig, encode, read_config, set_dropout, shallower
from xcompress.recipe import ON_LABELS, Recipe, Stage

MANIFEST = "manifest.json"
RECIPE = "recipe.yaml"
LIBRARIES = (
    "torch",
    "transformers",
    "sentence-transformers",
    "accelerate",
    "tokenizers",
    "numpy",
    "scipy",
    "safetensors",
)


def write_manifest(folder: Path, recipe: Recipe, steps: Sequence[Step], student: Step) -> None:
    """Write recipe.yaml, which can be run again, and manifest.json.

    :param steps: all steps of the run in their order; `student` is the last that trained the student.
    """
    described = recipe.model_dump(mode="json")
    write_text(folder / RECIPE, yaml.safe_dump(described, sort_keys=False, allow_unicode=True))
    manifest = {
        "name": recipe.name,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "xcompress": __version__,
        "code": code_hash(),
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "machine": _machine(),
        "recipe": described,
        "recipe_hash": recipe.hash,
        "models": _models(recipe),
        "student_hash": sha256_of(folder / "student" / "model.safetensors"),
        "languages": ["en", *recipe.languages],
        "dev": DevScores(**student.facts["dev"]).means(),
        "seconds": round(sum(step.seconds for step in steps), 1),
        "steps": {step.name: {"key": step.key, "seconds": step.seconds, "facts": step.facts} for step in steps},
    }
    write_json(folder / MANIFEST, manifest)


def code_hash() -> str:
    """Return a hash of the package's modules, which tells two states of one version apart."""
    package = Path(__file__).parent.parent
    files = sorted(package.rglob("*.py"))
    return hash_of([(file.relative_to(package).as_posix(), sha256_of(file)) for file in files])


def _models(recipe: Recipe) -> Mapping[str, object]:
    """Name each encoder's source and a hash of it; the manifest says so of whatever gave vectors, layers or rows."""
    assistant = recipe.assistant
    parts = {
        **(recipe.teacher.members if recipe.teacher else {}),
        "assistant": assistant,
        "layers_from": assistant and assistant.layers_from,
        "embeddings_from": assistant and assistant.embeddings_from,
    }
    return {name: {"source": part.source, "hash": encoder_fingerprint(part)} for name, part in parts.items() if part}


def _machine() -> Mapping[str, object]:
    return {
        "device": torch.cuda.get_device_name() if device().type == "cuda" else platform.machine(),
        "arithmetic": "bfloat16" if has_bf16() else "float32",
        "workers": distributed.count(),
        "threads": torch.get_num_threads(),
    }


def distill(recipe: Recipe, folder: Path, *, tensorboard: bool = False) -> Path:
    """Run all stages of a recipe, reusing those that are finished and going on with one that was interrupted.

    :param folder: the run folder; made when it is not there.
    :param tensorboard: whether to write TensorBoard logs to its folder tensorboard/.
    :returns: the run folder, with student/, assistant/, reference/, recipe.yaml and manifest.json in it.
    :raises InputError: when a source cannot be had, or the folder cannot be used.
    """
    with open_run(folder) as run:
        reference = reference_step(recipe, run)
        shape = _shape(recipe, reference)
        _refuse_impossible(recipe, shape)
        materials = Materials(recipe, run, shape.hidden_size, reference)
        start = start_step(recipe, run, materials, reference)
        materials.labelled = _labelled(recipe, run, materials, start)
        stages = _Stages(recipe, run, materials, start, boards=folder / "tensorboard" if tensorboard else None)
        for number, name in enumerate(recipe.stages, 1):
            stages.run_stage(number, name)
        if distributed.is_main():
            _finish(recipe, run, stages)
        distributed.wait()
    return folder


def _shape(recipe: Recipe, reference: Step | None) -> StudentConfig:
    if reference:
        return student_config(read_config(reference.folder), recipe.student)
    return config_from_nothing(recipe, recipe.vocabulary.trained_size, 0)


def _labelled(recipe: Recipe, run: Run, materials: Materials, start: Step) -> Labelled:
    """Read the labelled pairs; the teacher, or the encoder before training, tells which sentences are near."""

    def vectors(texts: Sequence[str]) -> NDArray[np.float32]:
        if recipe.teacher:
            return open_teacher(recipe.teacher)(texts)
        return vectors_of("encoder before training", *Student.load(start.folder))(texts)

    return labelled_step(recipe, run, vectors, materials.teacher_key or start.key)


def _refuse_impossible(recipe: Recipe, student: StudentConfig) -> None:
    """Refuse, before anything is trained, what only the encoder's shape or the number of workers shows to be wrong."""
    for name, stage in recipe.stages.items():
        check_depths(name, stage, student)
        share_of(name, stage)


class _Stages:
    """The stages of a recipe, each starting from what came before it."""

    def __init__(self, recipe: Recipe, run: Run, materials: Materials, start: Step, *, boards: Path | None) -> None:
        self.recipe = recipe
        self.run = run
        self.materials = materials
        self.start = start
        self.boards = boards
        self.assistant = start if recipe.assistant else None
        self.student = None if recipe.assistant else start

    def run_stage(self, number: int, name: str) -> None:
        """Run one stage, or reuse it."""
        stage = self.materials.stages[name]
        key = {
            "version": __version__,
            "corpus": self.materials.corpus.key,
            "teacher": self.materials.teacher_key,
            "assistant": self.assistant.key if self.assistant else None,
            "advice": self._advice_key(stage),
            "labelled": self.materials.labelled.key if set(ON_LABELS) & set(stage.objectives) else None,
            "student": self._student_key(stage),
            "stage": stage.model_dump(exclude={"checkpoint_steps", "seed"}, by_alias=True),
            "seed": self.recipe.seed_of(name),
            "precision": self.recipe.precision,
        }
        step_name = f"{number}-{name}"
        work = self.run.work(step_name, key)
        step = self.run.step(step_name, key, lambda folder: self._build(name, stage, work, folder))
        if stage.train == "assistant":
            self.assistant = step
        else:
            self.student = step

    def _student_key(self, stage: Stage) -> object:
        if stage.train == "assistant":
            return None
        return self.student.key if self.student else self.recipe.student.model_dump(by_alias=True)

    def _advice_key(self, stage: Stage) -> str | None:
        part = self.recipe.assistant
        return encoder_fingerprint(part) if part and self._is_advised(stage) else None

    def _is_advised(self, stage: Stage) -> bool:
        part = self.recipe.assistant
        return part is not None and "assistant" in stage.objectives and part.gives_only_vectors

    def _build(self, name: str, stage: Stage, work: Path, folder: Path) -> Mapping[str, object]:
        set_seed(self.recipe.seed_of(name))
        model, tokenizer = self._open(stage)
        facts: dict[str, object] = {}
        if stage.train != "assistant" and self.student is None:
            facts["untrained"] = self._scores("untrained student", model, tokenizer)
        if stage.train == "embeddings":
            facts["embedding_error_before"] = self._embedding_errors(model, tokenizer)
        feeds = BatchesByKind({feed: self._feed(name, feed, model, tokenizer, work) for feed in pair_kinds(stage)})
        trained, loss = self._trained(name, stage, model)
        set_dropout(model, stage.dropout)
        job = self._job(name, stage, model, tokenizer, work)
        course = train(job, trained, loss, feeds, after_step(stage, trained))
        model.eval().save(folder, tokenizer)
        if stage.train == "embeddings":
            facts["embedding_error_after"] = self._embedding_errors(model, tokenizer)["start"]
        return facts | {
            "dev": self._scores(name, model, tokenizer),
            **self._depth_scores(stage, model, tokenizer),
            **asdict(course),
            "sizes": model.sizes(),
        }

    def _job(self, name: str, stage: Stage, model: Student, tokenizer: Tokenizer, work: Path) -> Job:
        return Job(
            name=name,
            stage=stage,
            work=work,
            seed=self.recipe.seed_of(name),
            bf16=has_bf16() and self.recipe.precision == "auto",
            scoring=self._scoring(model, tokenizer) if stage.train != "embeddings" else None,
            board=self.boards / name if self.boards else None,
        )

    def _feed(self, name: str, feed: PairKind, model: Student, tokenizer: Tokenizer, work: Path) -> PairBatches:
        folder, pad, words = work / f"tokens-{feed}", model.config.pad_token_id, None
        goals: Mapping[str, Goal | Column]
        if feed == "translations":
            pairs, rows, goals = self.materials.train, self.materials.drawn[name], self._goals(name)
            words = word_goals(name, self.materials.stages[name], tokenizer, self.recipe.seed_of(name))
        else:
            labelled, rows = self.materials.labelled.kinds[feed], self.materials.drawn_labelled(name, feed)
            pairs, goals = labelled.pairs, labelled.goal(feed, rows)
        if distributed.is_main():
            write_tokens(folder, pairs, rows, tokenizer, model.config)
        distributed.wait()
        return PairBatches(folder, goals, pad, words)

    def _goals(self, name: str) -> dict[str, Goal]:
        stage = self.materials.stages[name]
        goals = {}
        if "source" in stage.teacher_sides:
            goals["teacher_sources"] = self.materials.taught.goal(name)
        if "target" in stage.teacher_sides:
            goals["teacher_targets"] = self.materials.taught_targets.goal(name)
        if "assistant" in stage.objectives:
            sources, targets = (f"{name} {side}" for side in SIDES)
            table = self.materials.advised if self._is_advised(stage) else self._assistant_table(name)
            goals |= {"assistant_sources": table.goal(sources), "assistant_targets": table.goal(targets)}
        return goals

    def _assistant_table(self, name: str) -> VectorTable:
        """Encode both sides of a stage's pairs with the trained assistant."""
        groups = {f"{name} {side}": self.materials.sentences(name, side) for side in SIDES}
        store, trained = self.materials.store, self.required_assistant

        def opened() -> VectorsOf:
            return vectors_of("assistant", *Student.load(trained.folder))

        return VectorTable(groups, lambda texts: store.vectors("assistant", trained.key, texts, opened))

    def _open(self, stage: Stage) -> tuple[Student, Tokenizer]:
        if stage.train == "assistant":
            return Student.load(self.required_assistant.folder)
        if self.student:
            return Student.load(self.student.folder)
        assistant, tokenizer = Student.load(self.required_assistant.folder)
        student = initial_student(assistant, self.recipe.student, np.load(self.start.folder / PIECE_COUNTS))
        if student.head and student.config.depth < assistant.config.depth and self.recipe.teacher:
            student = fit_head(student, tokenizer, self.materials)
        return student, tokenizer

    def _trained(self, name: str, stage: Stage, model: Student) -> tuple[nn.Module, Loss]:
        if stage.train == "embeddings":
            goal = Student.load(self.required_assistant.folder)[0].embeddings
            return TokenVectors(model.embeddings), embedding_loss(goal)
        return SentenceVectors(model, stage), sentence_loss(stage, f"stages.{name}")

    @property
    def required_assistant(self) -> Step:
        """The assistant, where something learns from it: the recipe's own checks made sure that there is one."""
        assert self.assistant is not None
        return self.assistant

    def _scoring(self, model: Student, tokenizer: Tokenizer) -> Scoring | None:
        steps = self.recipe.dev.steps
        if steps is None:
            return None

        def vectors(texts: Sequence[str]) -> NDArray[np.float32]:
            with fast_inference():
                return encode(model, tokenizer, texts)

        return Scoring(steps, lambda: dev_scores(vectors, self.materials).means())

    def _embedding_errors(self, model: Student, tokenizer: Tokenizer) -> dict[str, float]:
        assistant, _ = Student.load(self.required_assistant.folder)
        texts = [pair.target for pair in self.materials.holdout]
        return embedding_errors(assistant, model.cpu(), tokenizer, texts)

    def _depth_scores(self, stage: Stage, model: Student, tokenizer: Tokenizer) -> dict[str, Any]:
        """Score a student of elastic depth with each smaller number of recurrences."""
        if stage.depth_weights is None:
            return {}
        depths = range(1, model.config.recurrences)
        scores = {depth: self._scores(f"depth {depth}", shallower(model, depth), tokenizer) for depth in depths}
        return {"dev_by_depth": scores}

    def _scores(self, what: str, model: Student, tokenizer: Tokenizer) -> dict[str, Any]:
        return asdict(dev_scores(vectors_of(what, model, tokenizer), self.materials))


def _finish(recipe: Recipe, run: Run, stages: _Stages) -> None:
    """Put the results where they are looked for; a run that was finished before stays as it is."""
    assert stages.student is not None  # the recipe's last stage trains a student
    finished = run.folder / MANIFEST
    if (
        all(step.reused for step in run.steps)
        and finished.exists()
        and read_json(finished)["recipe_hash"] == recipe.hash
    ):
        return
    finished.unlink(missing_ok=True)
    results = {"assistant": stages.assistant, "student": stages.student}
    for name, step in ((name, step) for name, step in results.items() if step):
        with whole_folder(run.folder / name) as temporary:
            shutil.copytree(step.folder, temporary, dirs_exist_ok=True, copy_function=_link)
    write_manifest(run.folder, recipe, run.steps, stages.student)


def _link(source: str, target: str) -> None:
    """Link where the file system can, so that a step's weights take their place once; copy elsewhere."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
