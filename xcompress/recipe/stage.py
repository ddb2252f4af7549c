"""A stage of training: its objectives, its length and how it learns."""

from collections.abc import Mapping
from math import ceil
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from xcompress.recipe.section import Name, NonNegativeNumber, Number, Positive, PositiveNumber, Section, Seed, Whole

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
    "cosent",
    "masked_word",
    "reconstruction",
    "unified",
    "alignment",
    "similarity",
    "monolingual",
    "monolingual_contrast",
    "correlation",
]
ON_TEACHER: Mapping[Literal["source", "target"], tuple[str, ...]] = {
    "source": ("teacher", "contrast", "contrast_bool", "contrast_ce"),
    "target": ("teacher_targets",),
}
"""Objectives that need the teacher's vectors, by the side of the pair that the teacher encodes."""
ON_WORDS: tuple[WordTask, ...] = ("masked_word", "reconstruction", "unified")
"""Objectives that predict tokens."""
ON_LABELS: Mapping[str, Literal["entailment", "graded"]] = {
    "entailment": "entailment",
    "graded": "graded",
    "cosent": "graded",
}
"""Objectives on the pairs of `labelled`, and the kind of pairs that each reads."""
ON_SENTENCES = ("monolingual", "monolingual_contrast")
"""Objectives on the sentences of `monolingual`. All others but correlation are on translations."""
PairKind = Literal["translations", "monolingual", "entailment", "graded", "groups"]
"""A kind of sentence pairs. Each step has one batch of every kind that its stage reads."""
GROUP = 8
"""Pairs in a group of similar sentences, for the objective correlation."""
MOST_PAIRS = 10**12
"""Pairs that a stage may train on, counted once for each time."""


def kind_of(objective: ObjectiveName) -> PairKind:
    """Return the kind of pairs that an objective learns from."""
    if objective in ON_SENTENCES:
        return "monolingual"
    if objective == "correlation":
        return "groups"
    return ON_LABELS.get(objective, "translations")


class Stage(Section):
    """One stage of training."""

    train: Literal["assistant", "embeddings", "student"]
    """What is trained: the assistant, only the embedding layer of the student, or the whole student."""
    objectives: dict[ObjectiveName, PositiveNumber]
    """Objectives and their weights in the loss.

    Multi-stage distillation: teacher (eq. 2 and 6), embedding (eq. 3), assistant (eq. 4), contrast (eq. 5),
    contrast_bool (eq. 8), contrast_ce (eq. 9). For teachers that know the target languages: teacher_targets, their
    vectors of the translations. Calibrated similarity: moving_teacher (eq. 1 and 2), and on labelled English pairs
    entailment and graded. Lightweight dual transformer: masked_word (eq. 1), reconstruction (eq. 2 and 3), unified
    (eq. 2 and 4), alignment (eq. 5), similarity (eq. 6). On sentences without translations, for teachers that know
    all languages: monolingual, monolingual_contrast. On graded pairs in any language: cosent. On groups of similar
    sentences: correlation.
    """
    word_head: Literal["linear", "transform"] = "linear"
    """The head of masked_word, reconstruction and unified. linear: a linear layer on the sentence vector, then inner
    products with the token embeddings. transform: SiLU and LayerNorm after that layer, and a bias for each token. The
    head is not saved."""
    ema_decay: Annotated[Number, Field(ge=0, le=1)] = 0.99999
    """tau, the decay of the moving average that moving_teacher learns from, at the first step. It rises to 1 on a
    cosine. The default is the paper's, for 105,000 steps; for fewer, start with 1 - 1 / steps."""
    depth_weights: Annotated[tuple[NonNegativeNumber, ...], Field(min_length=1)] | None = None
    """Elastic depth: weights of the loss on the vectors after recurrence 1 ... R; null: only after the last one."""
    text: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    """Names of corpus.tsv that the stage trains on; null: all text."""
    steps: Positive | None = None
    """Length of the stage in steps; give either steps or epochs."""
    epochs: Annotated[Number, Field(gt=0, le=1e6)] | None = None
    """Length of the stage: this many times the number of its training pairs, divided by batch_size. As languages are
    drawn equally often, a small one is repeated, and a large one is not finished."""
    batch_size: Positive = 64
    """Pairs per step; each pair is two sentences."""
    monolingual_pairs: Annotated[Whole, Field(gt=0, le=100)] = 1
    """For each translation of a step, so many pairs of sentences without translations are read."""
    correlation_pairs: Literal[1, 2, 4, 8] = 1
    """For the objective correlation: this many pairs in groups of eight for each pair of the other objectives."""
    optimizer: Literal["adamw", "lars"] = "adamw"
    """lars scales the step of each matrix by |weight| / |gradient|; use learning rates of about 0.02 to 2."""
    momentum: Annotated[Number, Field(ge=0, lt=1)] = 0.9
    """Momentum of lars."""
    dropout: Annotated[Number, Field(ge=0, lt=1)] = 0.0
    """Dropout after the embeddings, attention and feed-forward layers."""
    learning_rate: PositiveNumber = 2e-5
    """Peak learning rate."""
    embedding_learning_rate: PositiveNumber | None = None
    """Learning rate of the token embeddings; a higher one helps, as each token is seen rarely. Null: learning_rate."""
    warmup: Annotated[Number, Field(ge=0, lt=1)] = 0.1
    """Share of the steps in which the learning rate rises from 0 to its peak; `schedule` continues from there."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """The learning rate after the warm-up: it falls to 0 on a cosine or on a line, or stays at its peak."""
    weight_decay: NonNegativeNumber = 0.01
    """Weight decay."""
    seed: Seed | None = None
    """Seed of the order of the pairs and of the initial values; null derives one from the seed of the recipe."""
    soup: Annotated[Whole, Field(gt=0, le=100)] = 1
    """Train the stage this many times from the same start, with this seed and the next ones, and take the mean of the
    weights. Often better; takes as many times as long."""
    quantize: Literal["int4"] | None = None
    """int4: train with weights rounded to 4 bits (quantization-aware training), and save the student with them.
    `export --precision int4` then changes it less."""
    checkpoint_steps: Positive = 100
    """Save a checkpoint every this many steps; an interrupted stage continues from the last one."""

    def steps_on(self, pairs: int) -> int:
        """Return the number of steps for this number of training pairs."""
        return self.steps or ceil((self.epochs or 0) * pairs / self.batch_size)

    @property
    def planned_steps(self) -> int:
        """The length in steps of a stage whose epochs were turned into steps."""
        assert self.steps is not None
        return self.steps

    @property
    def pairs_in_step(self) -> dict[PairKind, int]:
        """The number of pairs of each kind that a step reads: translations first, groups last."""
        kinds = {kind_of(objective) for objective in self.objectives}
        times = {
            "monolingual": self.monolingual_pairs if "translations" in kinds else 1,
            "groups": self.correlation_pairs,
        }
        in_order = sorted(kinds, key=lambda kind: (kind != "translations", kind == "groups", kind))
        return {kind: self.batch_size * times.get(kind, 1) for kind in in_order}

    @property
    def teacher_sides(self) -> list[Literal["source", "target"]]:
        """The sides of a pair whose teacher vectors an objective needs."""
        return [side for side, names in ON_TEACHER.items() if set(names) & set(self.objectives)]

    @property
    def needs_teacher(self) -> bool:
        """Whether the stage learns a teacher's vectors."""
        return bool(self.teacher_sides) or "monolingual" in self.pairs_in_step

    @property
    def needs_assistant(self) -> bool:
        """Whether the stage trains the assistant or learns from it."""
        return self.train != "student" or "assistant" in self.objectives

    @model_validator(mode="after")
    def _check_length(self) -> "Stage":
        if self.steps is None and self.epochs is None:
            raise ValueError("has no length; give steps or epochs")
        if self.steps is not None and self.epochs is not None:
            raise ValueError(f"has steps ({self.steps}) and epochs ({self.epochs:g}); set one of them to null")
        if (self.steps or 0) * self.batch_size > MOST_PAIRS:
            raise ValueError(f"steps x batch_size are over {MOST_PAIRS:,} pairs; give fewer steps, or a smaller batch")
        return self

    @model_validator(mode="after")
    def _check_objectives(self) -> "Stage":
        if not self.objectives:
            raise ValueError(f"objectives is empty; name at least one of {', '.join(get_args(ObjectiveName))}")
        if (self.train == "embeddings") != (tuple(self.objectives) == ("embedding",)):
            raise ValueError(
                "`train: embeddings` needs the objective embedding alone, and embedding needs `train: embeddings`"
            )
        if self.word_head != "linear" and not set(ON_WORDS) & set(self.objectives):
            raise ValueError(
                f"word_head is {self.word_head}, but no objective predicts words; leave it out, or add one of "
                f"{', '.join(ON_WORDS)}"
            )
        if self.quantize and (self.train != "student" or self.soup > 1):
            other = f"soup is {self.soup}" if self.train == "student" else f"it trains the {self.train}"
            raise ValueError(
                f"quantize needs `train: student` and one training, but {other}; make it a stage of its own"
            )
        if self.train == "assistant" and "assistant" in self.objectives:
            raise ValueError("the assistant cannot be its own teacher; use the objective teacher")
        return self

    @model_validator(mode="after")
    def _check_pairs(self) -> "Stage":
        if self.text and "translations" not in self.pairs_in_step:
            raise ValueError(
                f"text is {', '.join(self.text)}, but no objective reads translations; leave it out (groups are of "
                "correlation.text)"
            )
        if self.depth_weights and not any(self.depth_weights):
            raise ValueError("depth_weights are all 0, so nothing would be trained; give one above 0, or leave it out")
        pairs = self.batch_size * self.correlation_pairs
        if self.correlation_pairs > 1 and not {"correlation"} < set(self.objectives):
            raise ValueError(
                f"correlation_pairs is {self.correlation_pairs}, for the objective correlation beside others; leave it "
                "out, or add objectives"
            )
        if "correlation" in self.objectives and pairs % GROUP:
            raise ValueError(
                f"batch_size x correlation_pairs is {pairs}, and correlation learns from groups of {GROUP} pairs; make "
                f"it a multiple of {GROUP}"
            )
        return self
