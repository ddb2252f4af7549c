"""Run a recipe: prepare text and models, train the stages, publish the student with a manifest."""

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

import torch
import yaml

from xcompress import __version__
from xcompress.bundle.manifest import MANIFEST
from xcompress.console import say, warn
from xcompress.distillation import distributed
from xcompress.distillation.assistant import reference_step, start_step
from xcompress.distillation.data.corpus import corpus_step
from xcompress.distillation.data.groups import groups_step, pairs_of_groups
from xcompress.distillation.data.labelled import (
    augmented_step,
    check_hub_cross_encoder,
    check_local_cross_encoder,
    labelled_step,
)
from xcompress.distillation.data.monolingual import monolingual_step
from xcompress.distillation.dev import DevScores
from xcompress.distillation.failures import explain_failures, watch_workers
from xcompress.distillation.file_records import check_files, describe
from xcompress.distillation.hardware import check_compiler, device, trains_in_bf16
from xcompress.distillation.initialization import check_vocabulary
from xcompress.distillation.run_folder import Run, Step, open_run
from xcompress.distillation.shape import scratch_config, student_config
from xcompress.distillation.stage_inputs import StageModels, StageSettings, StageText
from xcompress.distillation.stages import check_batch, check_depths, plan_stages, plan_text_stages, stage_step
from xcompress.distillation.teachers.encoder import check_local_encoders
from xcompress.distillation.teachers.ensemble import Encoders, find_encoders
from xcompress.distillation.training_data import check_widths, prepare_training_data
from xcompress.errors import InputError
from xcompress.files import hash_of, read_mapping, sha256_of, whole_folder, write_json, write_text
from xcompress.machine import available_threads
from xcompress.modeling.student import StudentConfig, read_config
from xcompress.packages import require_package
from xcompress.recipe import Recipe
from xcompress.recipe.validation import check_outside, problems, refuse, warn_of_likely_mistakes
from xcompress.sources import commit_of
from xcompress.sources.hub import COMMITS_READ

RECIPE = "recipe.yaml"
HUB = "hub.json"
"""The commits of the hub models that a run read, by the references in the recipe."""
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


def distill(recipe: Recipe, folder: Path, *, tensorboard: bool = False, processes: int | None = None) -> Path:
    """Run all stages of a recipe. Finished steps are reused, and an interrupted one resumes at its last checkpoint.

    :param folder: the run folder; created if it does not exist.
    :param tensorboard: write TensorBoard logs to its folder tensorboard/.
    :param processes: number of processes that filter a large text; None: one for each core that this process may use.
    :returns: the run folder, with student/, assistant/, reference/, recipe.yaml and manifest.json.
    :raises InputError: when a source is missing or cannot be fetched or read, or the folder cannot be used.
    :raises XCompressError: when the disk is full, another worker ends, or training diverges or collapses.
    """
    for package in ("transformers", "sentence_transformers"):  # imported late: that takes seconds
        require_package(package, "train", "distill")
    with explain_failures(folder):
        _check_sources(recipe, folder)
    with explain_failures(folder), watch_workers(), open_run(folder) as run, _record_commits(recipe, run):
        # 1. Hash the encoders of the recipe, load the unmodified assistant, and check vocabulary and stages against it.
        encoders = find_encoders(recipe)
        check_local_encoders(recipe)
        check_widths(recipe)
        check_local_cross_encoder(recipe)
        check_hub_cross_encoder(recipe, run)
        reference = reference_step(recipe, run, encoders)
        check_vocabulary(recipe, reference.folder / "tokenizer.json" if reference else None)
        config = _student_config(recipe, reference)
        for name, stage in recipe.stages.items():
            check_depths(name, stage, config)
            check_batch(name, stage)
        if recipe.compile:
            check_compiler()
        if tensorboard:
            require_package("tensorboard", "tensorboard", "--tensorboard")

        # 2. Gather the text, and plan the stages that read it.
        corpus = corpus_step(recipe, run, reference, processes or available_threads())
        monolingual = monolingual_step(recipe, run, corpus)
        labelled = labelled_step(recipe, run, corpus)
        text_stages = plan_text_stages(recipe, corpus, monolingual)
        rows_of_groups = pairs_of_groups(recipe, corpus)

        # 3. Draw pairs and compute the teacher's vectors when the first step is built, and what only some stages learn
        # when such a stage is built: a finished run reads and loads nothing.
        get_data = cache(
            partial(prepare_training_data, recipe, run, corpus, monolingual, text_stages, encoders, config.dimension)
        )

        # 4. Give the assistant the student's vocabulary and a head, add graded pairs, group similar sentences.
        start = start_step(recipe, run, corpus, monolingual, labelled, encoders, reference, get_data)
        labelled = augmented_step(recipe, run, labelled, encoders.teacher, start)
        groups = groups_step(recipe, run, corpus, rows_of_groups, encoders.correlation)

        # 5. Train the stages, each on the models that the ones before it leave.
        text = StageText(corpus, monolingual, labelled, groups, get_data)
        logs = folder / "tensorboard" if tensorboard else None
        assistant, student = (start, None) if recipe.assistant else (None, start)
        for number, (name, stage) in enumerate(plan_stages(recipe, text_stages, labelled, groups).items(), 1):
            settings = StageSettings(recipe, name, stage, recipe.seed_of(name), logs)
            step = stage_step(run, number, settings, StageModels(encoders, start, assistant, student), text)
            if stage.train == "assistant":
                assistant = step
            else:
                student = step

        # 6. Publish the result.
        assert student is not None  # the recipe's last stage trains a student
        if recipe.dev.sts and student.reused and not student.facts["dev"]["sts"]:
            warn("dev.sts: the student was trained and scored without it; score it with `xcompress bench --data`")
        if distributed.is_main():
            _publish(recipe, run, encoders, assistant, student)
        distributed.barrier()
    return folder


def _check_sources(recipe: Recipe, folder: Path) -> None:
    """Refuse what `recipe validate` finds, and a model inside the run folder; warn of likely mistakes."""
    check_outside(recipe, folder)
    # Hours may pass before the last source is read. A finished run may have lost models that it no longer needs. Other
    # hosts follow the first one: where only they lack a file, the step that reads it says so.
    is_checked = distributed.is_main() and not _is_finished(recipe, folder)
    refuse(distributed.all_gather_object(problems(recipe) if is_checked else [])[0])
    warn_of_likely_mistakes(recipe)


def _is_finished(recipe: Recipe, folder: Path) -> bool:
    """Tell whether the folder has the manifest of a run of this recipe; its steps are checked later."""
    with suppress(InputError):  # no manifest, or a damaged one
        return bool(read_mapping(folder / MANIFEST).get("recipe_hash") == recipe.hash)
    return False


@contextmanager
def _record_commits(recipe: Recipe, run: Run) -> Iterator[None]:
    """Warn of hub models that have changed since the run read them; record the commits that it reads in the block."""
    COMMITS_READ.clear()  # of other runs in this process
    augment = recipe.labelled.augment
    named = {encoder.source for encoder in recipe.encoders.values()} | ({augment.cross_encoder} if augment else set())
    for source, earlier in _commits_of(run).items() if distributed.is_main() else ():
        commit = commit_of(source) if source in named else None
        if commit not in (None, earlier):
            warn(
                f"{source}: the model of the hub was commit {earlier} when this run read it, and is {commit} in the "
                f"cache now; finished steps keep the old one: choose another --run, or name a revision after @"
            )
    try:
        yield
    finally:
        if distributed.is_main() and (commits := _commits_of(run)):
            write_json(run.folder / HUB, commits)


def _commits_of(run: Run) -> dict[str, str]:
    """Return the commits of the hub models that the steps of a run were made of.

    Those that were read first, unless no step is reused.
    """
    recorded: dict[str, str] = {}
    with suppress(InputError):  # no hub model was read, or the file is damaged
        recorded = dict(read_mapping(run.folder / HUB))
    is_new = bool(run.steps) and not any(step.reused for step in run.steps)
    return recorded | COMMITS_READ if is_new else COMMITS_READ | recorded


def _student_config(recipe: Recipe, reference: Step | None) -> StudentConfig:
    """Return the student's shape; without an assistant the size of its vocabulary is an upper bound."""
    if reference:
        config = student_config(read_config(reference.folder), recipe.student)
        if config.max_tokens < recipe.student.max_tokens:
            warn(
                f"student.max_tokens: is {recipe.student.max_tokens}, but the assistant reads {config.max_tokens} at "
                "most, and so will the student"
            )
        return config
    return scratch_config(recipe, recipe.vocabulary.trained_size, 0)


def _publish(recipe: Recipe, run: Run, encoders: Encoders, assistant: Step | None, student: Step) -> None:
    """Copy the results to assistant/ and student/ and write the manifest, unless a finished run was reused whole."""
    manifest = run.folder / MANIFEST
    published = {name: step for name, step in {"assistant": assistant, "student": student}.items() if step}
    reused = all(step.reused for step in run.steps)
    if reused and _is_finished(recipe, run.folder) and (run.folder / RECIPE).is_file():
        damaged = {name: check_files(run.folder / name, step.files)[0] for name, step in published.items()}
        damaged = {name: damage for name, damage in damaged.items() if damage}
        if not damaged:
            return
        for name, damage in damaged.items():
            say(f"{name}: {describe(damage)}; copied again from the step {published[name].name}")
    # Remove what an earlier recipe left: models, checkpoints, and text that would count as trained on.
    manifest.unlink(missing_ok=True)
    left = {"assistant", "reference", "work", "labelled", "monolingual"}
    for name in left - {*published, *(step.name for step in run.steps)}:
        shutil.rmtree(run.folder / name, ignore_errors=True)
    for name, step in published.items():
        with whole_folder(run.folder / name) as temporary:
            shutil.copytree(step.folder, temporary, dirs_exist_ok=True, copy_function=_link_or_copy)
    write_manifest(recipe, run, encoders, student)


def _link_or_copy(source: str, target: str) -> None:
    """Hard-link weights where the file system can, so that they are on disk once; copy what users edit in place."""
    with suppress(OSError):
        if Path(source).suffix == ".safetensors":
            os.link(source, target)
            return
    shutil.copy2(source, target)


def write_manifest(recipe: Recipe, run: Run, encoders: Encoders, student: Step) -> None:
    """Write recipe.yaml, which can be run again, and manifest.json.

    :param student: the last step that trained the student.
    """
    recipe_json, commits = recipe.model_dump(mode="json"), _commits_of(run)
    write_text(run.folder / RECIPE, yaml.safe_dump(recipe_json, sort_keys=False, allow_unicode=True))
    manifest = {
        "name": recipe.name,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "xcompress": __version__,
        "code": code_hash(),
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
        "machine": {
            "device": torch.cuda.get_device_name() if device().type == "cuda" else platform.machine(),
            "arithmetic": "bfloat16" if trains_in_bf16(recipe.precision) else "float32",
            "workers": distributed.world_size(),
            "threads": torch.get_num_threads(),
        },
        "recipe": recipe_json,
        "recipe_hash": recipe.hash,
        "models": {
            name: {
                "source": (source := encoder.section.source),
                "hash": encoder.fingerprint,
                **({"commit": commits[source]} if source in commits else {}),
            }
            for name, encoder in encoders.by_name().items()
        },
        "student_hash": sha256_of(run.folder / "student" / "model.safetensors"),
        "languages": ["en", *recipe.languages],
        "dev": DevScores(**student.facts["dev"]).means(),
        "seconds": round(sum(step.seconds for step in run.steps), 1),
        "steps": {step.name: {"key": step.key, "seconds": step.seconds, "facts": step.facts} for step in run.steps},
    }
    write_json(run.folder / MANIFEST, manifest)


def code_hash() -> str:
    """Return a hash of the package's modules, which tells two states of one version apart."""
    package = Path(__file__).parent.parent
    files = sorted(package.rglob("*.py"))
    return hash_of([(file.relative_to(package).as_posix(), sha256_of(file)) for file in files])
