"""A recipe from beginning to end: preparation, stages, and what each of them scored."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import nn
from transformers import set_seed

from xcompress import __version__
from xcompress.distill.dev import DevScores, dev_scores
from xcompress.distill.hardware import fast_inference
from xcompress.distill.initial import embedding_errors, initial_student, student_config
from xcompress.distill.materials import Materials
from xcompress.distill.pairs import Collator, PairDataset
from xcompress.distill.run import Run, Step, open_run
from xcompress.distill.stages import SentenceVectors, TokenVectors, embedding_loss, goals_of, sentence_loss
from xcompress.distill.starting import PIECE_COUNTS, reference_step, start_step
from xcompress.distill.targets import vectors_of
from xcompress.distill.trainer import Loss, Scoring, train
from xcompress.files import read_json, sha256_of, whole_folder, write_json
from xcompress.recipe import Recipe, Stage
from xcompress.student import Student, encode, read_config

RUN = "run.json"


def distill(recipe: Recipe, folder: Path) -> Path:
    """Run all stages of a recipe, reusing those that are finished and going on with one that was interrupted.

    :param folder: the run folder; made when it is not there.
    :returns: the run folder, with student/, assistant/, reference/ and run.json in it.
    :raises InputError: when a source cannot be had, or the folder cannot be used.
    """
    with open_run(folder) as run:
        materials = Materials(recipe, run)
        reference = reference_step(recipe, run)
        student_config(read_config(reference.folder), recipe.student)  # refuses an impossible shape before training
        start = start_step(recipe, run, materials, reference)
        stages = _Stages(recipe, run, materials, start)
        for number, name in enumerate(recipe.stages, 1):
            stages.run_stage(number, name)
        _finish(recipe, run, stages)
    return folder


class _Stages:
    """The stages of a recipe, each starting from what came before it."""

    def __init__(self, recipe: Recipe, run: Run, materials: Materials, start: Step) -> None:
        self.recipe = recipe
        self.run = run
        self.materials = materials
        self.start = start
        self.assistant = start
        self.student: Step | None = None

    def run_stage(self, number: int, name: str) -> None:
        """Run one stage, or reuse it."""
        stage = self.recipe.stages[name]
        seed = self.recipe.seed_of(name)
        key = {
            "version": __version__,
            "corpus": self.materials.corpus.key,
            "teacher": self.materials.teacher_key,
            "assistant": self.assistant.key,
            "student": self.student.key if self.student else self.recipe.student.model_dump(),
            "stage": stage.model_dump(exclude={"checkpoint_steps", "seed"}),
            "seed": seed,
        }
        step_name = f"{number}-{name}"
        work = self.run.work(step_name, key)
        step = self.run.step(step_name, key, lambda folder: self._build(name, stage, seed, work, folder))
        if stage.train == "assistant":
            self.assistant = step
        else:
            self.student = step

    def _build(self, name: str, stage: Stage, seed: int, work: Path, folder: Path) -> Mapping[str, object]:
        set_seed(seed)
        model, tokenizer = self._open(stage)
        facts: dict[str, object] = {}
        if stage.train != "assistant" and self.student is None:
            facts["untrained"] = self._scores("untrained student", model, tokenizer)
        if stage.train == "embeddings":
            facts["embedding_error_before"] = self._embedding_errors(model, tokenizer)
        pairs = self.materials.drawn[name]
        goals = goals_of(stage, pairs, self.materials.teacher, self._assistant_vectors)
        dataset = PairDataset(pairs, tokenizer, model.config, goals)
        trained, loss = self._trained(stage, model)
        collator = Collator(model.config.pad_token_id)
        scoring = self._scoring(model, tokenizer) if stage.train != "embeddings" else None
        course = train(name, trained, loss, stage, dataset, collator, work, seed, scoring)
        model.eval().save(folder, tokenizer)
        if stage.train == "embeddings":
            facts["embedding_error_after"] = self._embedding_errors(model, tokenizer)["start"]
        return facts | {
            "dev": self._scores(name, model, tokenizer),
            **asdict(course),
            "sizes": model.sizes(),
        }

    def _open(self, stage: Stage) -> tuple[Student, Tokenizer]:
        if stage.train == "assistant":
            return Student.load(self.assistant.folder)
        if self.student:
            return Student.load(self.student.folder)
        assistant, tokenizer = Student.load(self.assistant.folder)
        return initial_student(assistant, self.recipe.student, np.load(self.start.folder / PIECE_COUNTS)), tokenizer

    def _trained(self, stage: Stage, model: Student) -> tuple[nn.Module, Loss]:
        if stage.train == "embeddings":
            goal = Student.load(self.assistant.folder)[0].embeddings
            return TokenVectors(model.embeddings), embedding_loss(goal)
        return SentenceVectors(model, stage.depth_weights), sentence_loss(stage)

    def _scoring(self, model: Student, tokenizer: Tokenizer) -> Scoring | None:
        steps = self.recipe.dev.steps
        if steps is None:
            return None

        def vectors(texts: Sequence[str]) -> NDArray[np.float32]:
            with fast_inference():
                return encode(model, tokenizer, texts)

        return Scoring(steps, lambda: dev_scores(vectors, self.materials).means())

    def _assistant_vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.materials.cache.vectors(
            "assistant",
            self.assistant.key,
            texts,
            lambda: vectors_of("assistant", *Student.load(self.assistant.folder)),
        )

    def _embedding_errors(self, model: Student, tokenizer: Tokenizer) -> dict[str, float]:
        assistant, _ = Student.load(self.assistant.folder)
        texts = [pair.target for pair in self.materials.holdout]
        return embedding_errors(assistant, model.cpu(), tokenizer, texts)

    def _scores(self, what: str, model: Student, tokenizer: Tokenizer) -> dict[str, Any]:
        return asdict(dev_scores(vectors_of(what, model, tokenizer), self.materials))


def _finish(recipe: Recipe, run: Run, stages: _Stages) -> None:
    """Put the results where they are looked for, and write run.json; a run that was finished before stays as it is."""
    assert stages.student is not None  # the recipe's last stage trains a student
    finished = run.folder / RUN
    if (
        all(step.reused for step in run.steps)
        and finished.exists()
        and read_json(finished)["recipe_hash"] == recipe.hash
    ):
        return
    finished.unlink(missing_ok=True)
    for name, step in (("assistant", stages.assistant), ("student", stages.student)):
        with whole_folder(run.folder / name) as temporary:
            shutil.copytree(step.folder, temporary, dirs_exist_ok=True, copy_function=_link)
    described = {
        "name": recipe.name,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "xcompress": __version__,
        "recipe": recipe.model_dump(mode="json"),
        "recipe_hash": recipe.hash,
        "student_hash": sha256_of(run.folder / "student" / "model.safetensors"),
        "languages": ["en", *recipe.languages],
        "dev": DevScores(**stages.student.facts["dev"]).means(),
        "steps": {step.name: {"seconds": step.seconds, "facts": step.facts} for step in run.steps},
    }
    write_json(finished, described)


def _link(source: str, target: str) -> None:
    """Link where the file system can, so that a step's weights take their place once; copy elsewhere."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
