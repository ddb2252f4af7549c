"""How many parameters a recipe's models have, counted from sizes alone: no weights, no network, no PyTorch."""

from dataclasses import dataclass, replace
from pathlib import Path

from xcompress.errors import InputError
from xcompress.files import read_json
from xcompress.recipe.encoders import CONFIG_KEYS, Encoder, Shape
from xcompress.recipe.schema import Recipe, StudentSection


@dataclass(frozen=True, slots=True)
class Counts:
    """Parameters of one encoder by part, named as in `Student.sizes`."""

    word: int
    projection: int
    position: int
    token_type: int
    norm: int
    encoder: int
    """Of the distinct layers, each counted once however often it is applied."""
    head: int | None
    """None where the head's width, the teacher's, is not known."""
    recurrences: int
    """R, how often the layers are applied."""

    @property
    def embedding(self) -> int:
        """Everything in front of the layers."""
        return self.word + self.projection + self.position + self.token_type + self.norm

    @property
    def total(self) -> int:
        """All parameters; without the head where its width is not known."""
        return self.embedding + self.encoder + (self.head or 0)

    def megabytes(self, bytes_each: int) -> float:
        """Return the size in millions of bytes: 4 bytes a parameter in float32, 1 in int8."""
        return self.total * bytes_each / 1e6


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts of the assistant and of the student; None where they are not known before a model is fetched."""

    assistant: Counts | None
    student: Counts | None
    notes: tuple[str, ...]
    """What the counts do not say by themselves."""


def parameters(recipe: Recipe) -> Parameters:
    """Count the parameters of the assistant, as it comes, and of the student.

    :raises InputError: when the student's shape cannot be made from the assistant's.
    """
    part = recipe.assistant
    if part is None:
        return Parameters(None, _from_nothing(recipe), ())
    donor_key = "assistant" + (".layers_from" if part.layers_from else "")
    shape = shape_of(part.layer_source)
    table = shape_of(part.embeddings_from) if part.embeddings_from else shape
    own = None if part.gives_only_vectors else shape_of(part)
    head, notes = _head(recipe)
    if part.gives_only_vectors:
        notes.append("assistant: it gives only vectors, whose parameters cannot be counted")
    if shape is None or table is None:
        missing = donor_key if shape is None else "assistant.embeddings_from"
        notes.append(f"{missing}: counts are unknown until the model is fetched; give {missing}.shape")
        return Parameters(count(own, head=head) if own else None, None, tuple(notes))
    vocabulary = _vocabulary(recipe, table.vocabulary, notes)
    student = _student(recipe.student, shape.model_copy(update={"vocabulary": vocabulary}), head)
    return Parameters(count(own, head=head) if own else None, student, tuple(notes))


def count(
    shape: Shape,
    *,
    layers: int | None = None,
    recurrences: int = 1,
    bottleneck: int | None = None,
    head: int | None = 0,
) -> Counts:
    """Count the parameters of an encoder.

    :param layers: M, distinct layers; all those of the shape when not given.
    :param bottleneck: B, width of the word table in front of a B x H projection; None for a V x H table.
    :param head: D, width of the linear head; 0 for none, None for one whose width is not known.
    """
    hidden, wide = shape.hidden, shape.intermediate
    attention = 4 * (hidden * hidden + hidden)
    feed_forward = 2 * hidden * wide + wide + hidden
    two_norms = 4 * hidden
    return Counts(
        word=shape.vocabulary * (bottleneck or hidden),
        projection=(bottleneck or 0) * hidden,
        position=shape.positions * hidden,
        token_type=shape.types * hidden,
        norm=2 * hidden,
        encoder=(layers or shape.layers) * (attention + feed_forward + two_norms),
        head=head and head * hidden + head,
        recurrences=recurrences,
    )


def shape_of(encoder: Encoder) -> Shape | None:
    """Return an encoder's sizes from the recipe, else from config.json of a local folder; None if both are silent."""
    if encoder.shape:
        return encoder.shape
    config = Path(encoder.source).expanduser() / "config.json"
    if not config.is_file():
        return None
    described = read_json(config)
    if not isinstance(described, dict) or any(not isinstance(described.get(key), int) for key in CONFIG_KEYS.values()):
        return None
    return Shape(**{ours: described[theirs] for ours, theirs in CONFIG_KEYS.items()})


def _head(recipe: Recipe) -> tuple[int | None, list[str]]:
    if recipe.widths != "head" or recipe.teacher is None:
        return 0, []
    if recipe.teacher.dimensions:
        return recipe.teacher.dimensions, []
    shapes = {key: shape_of(teacher) for key, teacher in recipe.teacher.together.items()}
    unknown = [key for key, shape in shapes.items() if shape is None]
    if unknown:
        return None, [f"head: its width is the teacher's, unknown until that is fetched; give {unknown[0]}.shape"]
    return sum(shape.hidden for shape in shapes.values() if shape), []


def _vocabulary(recipe: Recipe, rows: int, notes: list[str]) -> int:
    if recipe.vocabulary.method == "train":
        most = recipe.vocabulary.trained_size
        notes.append(f"student: {most:,} pieces, the most that the trained vocabulary may have")
        return most
    if recipe.vocabulary.method == "trim" and recipe.vocabulary.size:
        most = min(recipe.vocabulary.size, rows)
        notes.append(f"student: {most:,} pieces; trimming may leave fewer, or a few more for single characters")
        return most
    if recipe.vocabulary.method == "trim":
        notes.append(f"student: all {rows:,} pieces; how many trimming leaves is known once the text is read")
    return rows


def _from_nothing(recipe: Recipe) -> Counts:
    """Count a student that starts from nothing, whose sizes are all in the recipe."""
    part = recipe.student
    shape = Shape(
        vocabulary=recipe.vocabulary.trained_size,
        hidden=part.hidden or 1,
        layers=part.unit_layers,
        heads=part.heads or 1,
        intermediate=part.intermediate or 1,
        positions=part.max_tokens,
    )
    head, _ = _head(recipe)
    counted = count(shape, recurrences=part.recurrences or 1, bottleneck=part.bottleneck, head=head)
    return replace(counted, token_type=0)


def check_layers(part: StudentSection, depth: int) -> None:
    """Refuse layers that the assistant does not have.

    :param depth: how many it has.
    :raises InputError: when one is not there.
    """
    if part.layers and part.layers[-1] > depth:
        raise InputError(f"student.layers: there is no layer {part.layers[-1]}, the assistant has {depth}; take others")


def _student(part: StudentSection, shape: Shape, head: int | None) -> Counts:
    check_layers(part, shape.layers)
    if part.unit_layers > shape.layers:
        raise InputError(
            f"student.unit_layers: {part.unit_layers} is more than the assistant's {shape.layers} layers; take fewer"
        )
    if part.recurrences is None and shape.layers % part.unit_layers:
        divisors = ", ".join(str(unit) for unit in range(1, shape.layers + 1) if shape.layers % unit == 0)
        raise InputError(
            f"student.unit_layers: {part.unit_layers} does not divide the assistant's {shape.layers} layers; "
            f"choose {divisors}, or give student.recurrences"
        )
    if part.bottleneck and part.bottleneck >= shape.hidden:
        raise InputError(
            f"student.bottleneck: {part.bottleneck} is not below the assistant's width {shape.hidden}; "
            "take a smaller one, or null for none"
        )
    recurrences = part.recurrences or shape.layers // part.unit_layers
    return count(shape, layers=part.unit_layers, recurrences=recurrences, bottleneck=part.bottleneck, head=head)
