"""The encoders that a recipe names: one or several teachers, and the assistant with the encoders that complete it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

from xcompress.corpus.sequences import DistinctTexts
from xcompress.distillation.teachers.encoder import encoder_fingerprint, open_encoder
from xcompress.distillation.teachers.vectors import StoredVectors, VectorStore, check_finite, concatenate
from xcompress.files import hash_of
from xcompress.metrics import Encode
from xcompress.recipe import EncoderSection, EnsembleSection, Recipe, TeacherSection


@dataclass(frozen=True)
class FrozenEncoder:
    """An encoder that the recipe names. It is hashed when the run starts, and loaded when its vectors are needed."""

    key: str
    """Key in the recipe, such as `teacher.ensemble.0`; also the name in messages and in the vector store."""
    section: EncoderSection
    fingerprint: str
    """Hash of everything that the vectors depend on."""

    def load(self) -> Encode:
        """Load the encoder.

        :raises InputError: when it cannot be loaded.
        """
        return open_encoder(self.section, self.key)

    def stored_vectors(self, texts: DistinctTexts, store: VectorStore) -> StoredVectors:
        """Return the vectors of texts from the store; those that are missing are computed first.

        :raises InputError: when the encoder cannot be loaded, or has no vectors for a text.
        """
        return store.vectors(self.key, self.fingerprint, texts, self.load)


def ensemble_scales(weights: Sequence[float]) -> tuple[float, ...]:
    """Return the factor of each model's unit vectors, sqrt(w_i / sum of w)."""
    return tuple(sqrt(weight / sum(weights)) for weight in weights)


@dataclass(frozen=True)
class TeacherEnsemble:
    """The teacher: one encoder, or several whose vectors are concatenated."""

    encoders: tuple[FrozenEncoder, ...]
    scales: tuple[float, ...]
    fingerprint: str
    """Hash of everything that its vectors depend on, with the width that they are reduced to."""

    @classmethod
    def find(cls, section: EnsembleSection) -> "TeacherEnsemble":
        """Hash the encoders of a recipe section."""
        dimensions, center = None, False
        if isinstance(section, TeacherSection):
            dimensions, center = section.dimensions, section.center
        encoders = tuple(_hash_all(section.members).values())
        scales = ensemble_scales([member.weight for member in section.members.values()])
        if not section.ensemble and dimensions is None and not center:
            return cls(encoders, scales, encoders[0].fingerprint)
        hashes = [encoder.fingerprint for encoder in encoders]
        content: dict[str, object] = {"vectors": hashes, "scales": list(scales), "dimensions": dimensions}
        if center:  # absent otherwise, so that the hashes of earlier versions stay valid
            content["center"] = "cosines of groups"
        return cls(encoders, scales, hash_of(content))

    def load(self) -> Encode:
        """Load all encoders as one function from N texts to vectors (N, D1 + D2 + ...), not reduced to `dimensions`.

        :raises InputError: when one cannot be loaded; the function does, when vectors are not finite.
        """
        models = [(encoder.key, encoder.load()) for encoder in self.encoders]
        return lambda texts: concatenate([check_finite(key, encode(texts)) for key, encode in models], self.scales)

    def stored_vectors(self, texts: DistinctTexts, store: VectorStore) -> StoredVectors:
        """Return the concatenated vectors of N texts, (N, D1 + D2 + ...); the store keeps those of each encoder.

        :raises InputError: when an encoder cannot be loaded, or has no vectors for a text.
        """
        tables = [table for encoder in self.encoders for table in encoder.stored_vectors(texts, store).tables]
        return StoredVectors(*tables, scales=self.scales)


@dataclass(frozen=True)
class Encoders:
    """All encoders of a recipe, each hashed once."""

    teacher: TeacherEnsemble | None = None
    correlation: TeacherEnsemble | None = None
    """The teacher of the objective correlation."""
    of_assistant: Mapping[str, FrozenEncoder] = field(default_factory=dict)
    """The assistant and those that complete it, by their keys in the recipe; none for a student from scratch."""

    @property
    def assistant(self) -> FrozenEncoder | None:
        """The assistant, which may give only vectors."""
        return self.of_assistant.get("assistant")

    @property
    def layer_source(self) -> FrozenEncoder | None:
        """The encoder whose layers the student gets."""
        return self.of_assistant.get("assistant.layers_from", self.assistant)

    @property
    def embeddings_from(self) -> FrozenEncoder | None:
        """The encoder whose token embeddings the student gets, where that is another one."""
        return self.of_assistant.get("assistant.embeddings_from")

    @property
    def soup(self) -> list[FrozenEncoder]:
        """Encoders whose weights are averaged with those of the layer source."""
        return [encoder for key, encoder in self.of_assistant.items() if key.startswith("assistant.soup.")]

    def by_name(self) -> dict[str, FrozenEncoder]:
        """Return the encoders by the names that the manifest gives them."""
        teachers = [encoder for each in (self.teacher, self.correlation) if each for encoder in each.encoders]
        return {encoder.key.removeprefix("assistant."): encoder for encoder in (*teachers, *self.of_assistant.values())}


def find_encoders(recipe: Recipe) -> Encoders:
    """Hash the encoders that a recipe names. None is loaded."""
    return Encoders(
        TeacherEnsemble.find(recipe.teacher) if recipe.teacher else None,
        TeacherEnsemble.find(recipe.correlation.teacher) if recipe.correlation else None,
        _hash_all({key: section for key, section in recipe.encoders.items() if key.startswith("assistant")}),
    )


def _hash_all(sections: Mapping[str, EncoderSection]) -> dict[str, FrozenEncoder]:
    """Hash encoders by their keys in the recipe."""
    return {key: FrozenEncoder(key, section, encoder_fingerprint(section)) for key, section in sections.items()}
