"""What a finished run leaves beside its models: the whole recipe, where all came from, and what it scored."""

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch
import yaml

from xcompress import __version__
from xcompress.distill import workers
from xcompress.distill.dev import DevScores
from xcompress.distill.encoders import encoder_fingerprint
from xcompress.distill.hardware import device, has_bf16
from xcompress.distill.run import Step
from xcompress.files import hash_of, sha256_of, write_json, write_text
from xcompress.recipe import Recipe

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
        **(recipe.teacher.together if recipe.teacher else {}),
        "assistant": assistant,
        "unit_from": assistant and assistant.unit_from,
        "rows_from": assistant and assistant.rows_from,
    }
    return {name: {"source": part.source, "hash": encoder_fingerprint(part)} for name, part in parts.items() if part}


def _machine() -> Mapping[str, object]:
    return {
        "device": torch.cuda.get_device_name() if device().type == "cuda" else platform.machine(),
        "arithmetic": "bfloat16" if has_bf16() else "float32",
        "workers": workers.count(),
        "threads": torch.get_num_threads(),
    }
