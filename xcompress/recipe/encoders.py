"""The encoders that a recipe names: where they are, what they must hash to, and which sizes they have."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from xcompress.sources.python_code import PYTHON


class Section(BaseModel):
    """What all parts of a recipe share: unknown keys are refused, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def renamed(name: str, old: str) -> AliasChoices:
    """Return the names under which a key is read: its own, and the one it had in earlier versions."""
    return AliasChoices(name, old)


Positive = Annotated[int, Field(gt=0)]


class File(Section):
    """A reference to one file, and what it must hash to."""

    source: str
    """A path, or wheel:name==version/path/inside."""
    sha256: str | None = None
    """SHA-256 of the file; checked when given."""


class Shape(Section):
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


class Encoder(Section):
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


class OneTeacher(Encoder):
    """An encoder whose vectors of English sentences are learned, alone or beside those of others."""

    normalize: bool = True
    """Whether its vectors are scaled to unit length; the student's then are, too. The paper leaves them as they are."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    """Of its cosine in the weighted mean of the cosines of all teachers."""


class Teacher(OneTeacher):
    """T: the encoder whose vectors of English sentences are learned; others may stand beside it."""

    ensemble: tuple[OneTeacher, ...] = Field(
        default=(), validation_alias=renamed("ensemble", "beside"), serialization_alias="beside"
    )
    """Further teachers: what is learned are all their vectors side by side."""
    dimensions: Positive | None = None
    """Width that the vectors are reduced to, by PCA fitted on the training targets, before they are learned; all of it
    when not given."""

    @property
    def together(self) -> Mapping[str, OneTeacher]:
        """Itself and those beside it, by their keys in the recipe."""
        return {"teacher": self, **{f"teacher.ensemble.{row}": other for row, other in enumerate(self.ensemble)}}

    @model_validator(mode="after")
    def _can_be_joined(self) -> "Teacher":
        if self.ensemble and not all(one.normalize for one in self.together.values()):
            raise ValueError("ensemble: several teachers are joined at unit length; leave out normalize: false")
        return self


class Assistant(Encoder):
    """A: a multilingual encoder that lends the student its layers and its word table."""

    layers_from: Encoder | None = Field(
        default=None, validation_alias=renamed("layers_from", "unit_from"), serialization_alias="unit_from"
    )
    """The encoder whose layers become the recurrent unit, where the assistant gives only vectors."""
    embeddings_from: Encoder | None = Field(
        default=None, validation_alias=renamed("embeddings_from", "rows_from"), serialization_alias="rows_from"
    )
    """The encoder whose word table and tokenizer are taken; the one that lends the layers when not given."""

    @property
    def layer_source(self) -> Encoder:
        """The encoder that lends its layers."""
        return self.layers_from or self

    @model_validator(mode="after")
    def _lends_layers(self) -> "Assistant":
        if self.layer_source.gives_only_vectors:
            raise ValueError(
                f"{self.layer_source.source} gives only vectors and has no layers; name an encoder in layers_from"
            )
        return self
