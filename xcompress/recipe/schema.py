"""What a recipe may say: each key with its type, its meaning, and what must fit together."""

import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from xcompress.files import hash_of
from xcompress.recipe.encoders import Assistant, Positive, Section, Teacher, renamed

SHAPE = re.compile(r"[1-9]\d*x[1-9]\d*")


def _shape(text: str) -> str:
    if not SHAPE.fullmatch(text):
        raise ValueError("not of the form batch x tokens, such as 1x16")
    return text


Shape = Annotated[str, AfterValidator(_shape)]
Above = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Points = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class MemoryBudget(Section):
    """Megabytes (10^6 bytes) of memory over the bare interpreter, one thread."""

    resident: Above | None = None
    """At most this much after loading and a few calls of 1 x 16 tokens."""
    peak: Above | None = None
    """The highest until then, at most."""
    busy_peak: Above | None = None
    """The highest after all latency shapes with one thread, at most; depends on the grid."""


class Budgets(Section):
    """Limits that a bundle must keep; those left out are not held."""

    subject: str | None = None
    """The one held, as the report's tables name it; the smaller graph of each bundle when not given."""
    precision: str | None = None
    """Hold the graphs of this precision, such as fp32, in place of the smaller one of each bundle."""
    size_mb: Above | None = None
    """Weights and tokenizer on disk, at most, in megabytes (10^6 bytes)."""
    memory_mb: MemoryBudget = MemoryBudget()
    start_speedup: Above | None = None
    """From a fresh process to the first vector: at least this many times as fast as the reference."""
    speedup: dict[Shape, Above] = Field(default_factory=dict)
    """Latency by shape, `batch x tokens`: at least this many times as fast as the reference in the same run."""
    threads: Annotated[int, Field(gt=0)] = 1
    """Number of threads with which `speedup` is meant."""
    accuracy_drop: dict[str, dict[str, Points]] = Field(default_factory=dict)
    """By test, then by average, language pair, language or direction: points less than the reference, at most."""

    @model_validator(mode="after")
    def _names_one_way(self) -> "Budgets":
        if self.subject and self.precision:
            raise ValueError(f"has subject ({self.subject}) and precision ({self.precision}); take one of them out")
        return self

    @model_validator(mode="after")
    def _limits_something(self) -> "Budgets":
        limits = [self.size_mb, *self.memory_mb.model_dump().values(), self.start_speedup, self.speedup]
        if not any([*limits, *self.accuracy_drop.values()]):
            raise ValueError("sets no limit; give size_mb, memory_mb, start_speedup, speedup or accuracy_drop")
        return self


WordTask = Literal["masked_word", "reconstruction", "unified"]
ObjectiveName = Literal[
    "teacher",
    "teacher_targets",
    "contrast",
    "contrast_bool",
    "contrast_ce",
    "embedding",
    "assistant",
    "moving_teacher",
    "entailment",
    "graded",
    "masked_word",
    "reconstruction",
    "unified",
    "alignment",
    "similarity",
]
ON_TEACHER: Mapping[Literal["source", "target"], tuple[str, ...]] = {
    "source": ("teacher", "contrast", "contrast_bool", "contrast_ce"),
    "target": ("teacher_targets",),
}
"""Objectives that regress on the teacher's vectors, by the side of a pair whose vectors these are."""
ON_WORDS: tuple[WordTask, ...] = ("masked_word", "reconstruction", "unified")
"""Objectives that predict words of the vocabulary."""
ON_LABELS = ("entailment", "graded")
"""Objectives on the labelled English pairs of `labelled`; all others are on translations."""
TRAINED_SIZE = 50_000
"""Pieces of a trained vocabulary, where a recipe names no number."""
Weight = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}$")]


class Tsv(Section):
    """A file of `source<TAB>target` lines; .gz and .xz are unpacked."""

    source: str
    language: str
    """The language of the second column."""
    name: Name | None = None
    """The corpus it belongs to, for the stages that name what they read; files of several languages may share one."""
    max_pairs: Positive | None = None
    """At most this many training pairs of this corpus in this language."""


class CorpusSection(Section):
    """Where the parallel text comes from, and what of it is kept."""

    catalogues: tuple[str, ...] = ()
    """References to wheels or folders with gettext catalogues (.po, .mo)."""
    tsv: tuple[Tsv, ...] = ()
    min_words: Positive = 4
    """English sentences with fewer words are left out."""
    max_words: Positive = 64
    max_ratio: Annotated[float, Field(gt=1)] = 2.5
    """Pairs whose longer side has more than this many times the characters of the shorter one are left out."""
    max_tokens: Positive | None = None
    """Pairs with a side of more tokens are left out, as the encoder that lends the layers counts them; null cuts them
    at student.max_tokens."""
    form: Literal["nfc", "nfkc"] = "nfc"
    """Unicode form of the text; with nfkc, quotation marks, hyphens and dashes also become one sign each."""
    max_pairs: Positive | None = None
    """At most this many training pairs a language."""
    holdout: Positive = 400
    """English sentences held out, with all their translations."""

    @model_validator(mode="after")
    def _has_text(self) -> "CorpusSection":
        if not self.catalogues and not self.tsv:
            raise ValueError("names no text; give catalogues or tsv")
        return self


class Augment(Section):
    """More graded pairs: the nearest sentences of each, graded by a cross-encoder (Augmented SBERT)."""

    cross_encoder: str
    """A hub id, a path, or wheel:name==version/path/inside."""
    sha256: str | dict[str, str] | None = None
    epochs: NotNegative = 0.0
    """How long it is first trained on the graded pairs; 0 for one that is ready."""
    neighbours: Positive = 10
    """Sentences taken for each: the nearest by the teacher's vectors, or the untrained student's without a teacher."""


class LabelledSection(Section):
    """English sentence pairs with labels, for the objectives entailment and graded."""

    entailment: tuple[str, ...] = ()
    """Files of `premise<TAB>hypothesis<TAB>entailment|neutral|contradiction`."""
    graded: tuple[str, ...] = ()
    """Files of sentence, sentence, score from 0 to 5: .csv or .tsv."""
    augment: Augment | None = None

    @model_validator(mode="after")
    def _augments_something(self) -> "LabelledSection":
        if self.augment and not self.graded:
            raise ValueError("augment: there are no graded pairs to start from; give graded, or drop it")
        return self


class VocabularySection(Section):
    """Which vocabulary the student has."""

    method: Literal["keep", "trim", "train"] = "trim"
    """keep the assistant's; trim it to the pieces that the languages use; or train a new one on the recipe's text, each
    of whose rows is composed from those of the assistant's table, where there is an assistant."""
    size: Positive | None = None
    """Number of pieces, at most: of a trained vocabulary, 50,000 when null; of a trimmed one, the most frequent, and
    beside them the characters of the text; null keeps all that are seen."""
    words: str | None = None
    """Reference to word lists, with {language} in it: text with a word a line, or wordfreq's .msgpack.gz."""
    words_per_language: Positive = 20_000

    @property
    def trained_size(self) -> int:
        """Number of pieces, at most, of a trained vocabulary."""
        return self.size or TRAINED_SIZE

    def word_lists(self, languages: Sequence[str]) -> list[str]:
        """Return references to the word lists that are read, English first."""
        if self.method != "trim" or self.words is None:
            return []
        return [self.words.replace("{language}", language) for language in ("en", *languages)]


class StudentSection(Section):
    """S: the shape of the student."""

    unit_layers: Positive = 3
    """|RU|: how many layers of the assistant become the recurrent unit; must divide its number of layers."""
    layers: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = None
    """Which layers of the assistant these are, counted from 1 and in ascending order; null takes the first ones."""
    recurrences: Positive | None = None
    """R: how often the unit is applied; null means layers of the assistant / unit_layers, or 1 without an assistant."""
    hidden: Positive | None = None
    """H: width of a student that starts from nothing; null takes the assistant's, as for the next two."""
    heads: Positive | None = None
    intermediate: Positive | None = None
    """Width of the feed-forward layer."""
    normalize: bool | None = None
    """Whether sentence vectors are scaled to unit length; null does as the teacher does, or does without a teacher."""
    bottleneck: Positive | None = 128
    """B: width of the word table; null keeps the full width."""
    initial_table: Literal["svd", "random"] = "svd"
    """Where the bottlenecked table starts: the truncated SVD of the assistant's table, or random values."""
    max_tokens: Positive = 128

    @model_validator(mode="after")
    def _names_as_many_layers(self) -> "StudentSection":
        if self.layers is None:
            return self
        if len(self.layers) != self.unit_layers:
            raise ValueError(
                f"layers: names {len(self.layers)} layers, and unit_layers is {self.unit_layers}; make them equal"
            )
        if list(self.layers) != sorted(set(self.layers)):
            raise ValueError(f"layers: {list(self.layers)} are not in ascending order; sort them, each once")
        return self

    @property
    def sizes(self) -> dict[str, int | None]:
        """What only a student that starts from nothing says itself."""
        return {"hidden": self.hidden, "heads": self.heads, "intermediate": self.intermediate}


class Dev(Section):
    """What models are scored on beside the held-out pairs; nothing here changes what is trained."""

    sts: str | None = None
    """A folder of STS sets with graded pairs, as `bench --data` reads them."""
    every: Positive = 1
    """Take every n-th row of the STS sets."""
    steps: Positive | None = None
    """Score the model after each so many steps of a stage; null scores it at the end of the stage only."""


class Stage(Section):
    """One stage of training."""

    train: Literal["assistant", "embeddings", "student"]
    """What is trained: the assistant, the student's embedding layer alone, or the whole student."""
    objectives: dict[ObjectiveName, Weight]
    """Weighted sum of any of these.

    Multi-stage distillation: teacher (eq. 2 and 6), embedding (eq. 3), assistant (eq. 4), contrast (eq. 5),
    contrast_bool (eq. 8), contrast_ce (eq. 9). Of a teacher that knows the target languages: teacher_targets, its own
    vectors of the targets. Calibrated similarity: moving_teacher (eq. 1 and 2), and on labelled
    English pairs entailment and graded. Lightweight dual transformer: masked_word (eq. 1), reconstruction (eq. 2 and
    3), unified (eq. 2 and 4), alignment (eq. 5), similarity (eq. 6).
    """
    moving_decay: Annotated[float, Field(ge=0, le=1)] = 0.99999
    """tau of moving_teacher at the first step, as printed; it rises to 1 on a cosine. Shorter stages need a smaller
    one: 1 - 1 / steps is a start."""
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
    optimizer: Literal["adamw", "lars"] = "adamw"
    """lars scales each matrix's step by |weight| / |gradient|; give it a learning rate of about 0.02 ... 2."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Of lars."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of components set to zero behind the embeddings, attention and feed-forward while the stage trains."""
    learning_rate: Weight = 2e-5
    embedding_learning_rate: Weight | None = Field(
        default=None,
        validation_alias=renamed("embedding_learning_rate", "table_learning_rate"),
        serialization_alias="table_learning_rate",
    )
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
    def taught_sides(self) -> list[Literal["source", "target"]]:
        """The sides of a pair whose vectors by the teacher an objective regresses on."""
        return [side for side, names in ON_TEACHER.items() if set(names) & set(self.objectives)]

    @property
    def needs_assistant(self) -> bool:
        """Whether it trains the assistant or learns from it."""
        return self.train != "student" or "assistant" in self.objectives

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
            raise ValueError(f"objectives is empty; name at least one of {', '.join(get_args(ObjectiveName))}")
        if (self.train == "embeddings") != (tuple(self.objectives) == ("embedding",)):
            raise ValueError("`train: embeddings` and the objective embedding go together, and with no other")
        if self.train == "assistant" and "assistant" in self.objectives:
            raise ValueError("the assistant cannot be its own teacher; use the objective teacher")
        return self


class Recipe(Section):
    """A whole recipe."""

    name: Name
    """Also the name of the run folder."""
    seed: int = 1
    precision: Literal["auto", "float32"] = "auto"
    """Arithmetic of training: bfloat16 products where the machine has them natively, or float32 throughout."""
    languages: Annotated[tuple[Language, ...], Field(min_length=1)]
    """Target languages beside English, as ISO 639-1 codes."""
    teacher: Teacher | None = None
    """Null where no stage learns from one."""
    assistant: Assistant | None = None
    """Null for a student that starts from nothing, whose sizes stand under student."""
    widths: Literal["head", "pca", "equal"] = "head"
    """How vectors of unlike widths meet: by a linear head on assistant and student, fitted by least squares; by targets
    reduced to the assistant's width with PCA fitted on the training targets; or not at all, as in the paper."""
    corpus: CorpusSection
    labelled: LabelledSection = LabelledSection()
    vocabulary: VocabularySection = VocabularySection()
    student: StudentSection = StudentSection()
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
    def _has_one_width(self) -> "Recipe":
        if self.teacher and self.teacher.dimensions and self.widths != "head":
            raise ValueError(f"teacher.dimensions: `widths: {self.widths}` says how wide targets are; leave one out")
        return self

    @model_validator(mode="after")
    def _has_what_stages_need(self) -> "Recipe":
        for name, stage in self.stages.items():
            where = f"stages.{name}.objectives"
            if stage.taught_sides and not self.teacher:
                raise ValueError(f"{where}: learns from a teacher, and there is none; give teacher")
            if stage.needs_assistant and not self.assistant:
                raise ValueError(f"stages.{name}: needs an assistant, and there is none; give assistant")
            for objective in ON_LABELS:
                if objective in stage.objectives and not getattr(self.labelled, objective):
                    raise ValueError(f"{where}: {objective} has no text to learn from; give labelled.{objective}")
        return self

    @model_validator(mode="after")
    def _student_has_sizes(self) -> "Recipe":
        given = [name for name, value in self.student.sizes.items() if value]
        missing = [name for name, value in self.student.sizes.items() if not value]
        if self.assistant and given:
            raise ValueError(f"student.{given[0]}: an assistant lends its layers as they are; leave one out")
        if not self.assistant and self.student.layers:
            raise ValueError("student.layers: there is no assistant to lend them; give one, or leave layers out")
        if not self.assistant and missing:
            raise ValueError(f"student.{missing[0]}: needed without an assistant; give it, or an assistant")
        if not self.assistant and self.vocabulary.method != "train":
            raise ValueError(f"vocabulary.method: {self.vocabulary.method} needs an assistant; use train")
        if not self.assistant and self.corpus.max_tokens:
            raise ValueError("corpus.max_tokens: counts an assistant's tokens, and there is none; use corpus.max_words")
        return self

    @property
    def normalizes(self) -> bool:
        """Whether the student's vectors are scaled to unit length."""
        if self.student.normalize is not None:
            return self.student.normalize
        return self.teacher.normalize if self.teacher else True

    @model_validator(mode="after")
    def _trains_a_student(self) -> "Recipe":
        order = [stage.train for stage in self.stages.values()]
        if order[-1] == "assistant":
            raise ValueError("stages: the last one trains the assistant; add one that trains the student")
        if order != sorted(order, key=lambda train: train != "assistant"):
            raise ValueError("stages: those that train the assistant must come before those that train the student")
        if "assistant" in order and self.assistant and self.assistant.gives_only_vectors:
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
        return hash_of(self.model_dump(exclude={"budgets"}, by_alias=True))
