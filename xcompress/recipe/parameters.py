"""Count the parameters of a recipe's models from their sizes: no weights, no network, no PyTorch."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from xcompress.bundle.manifest import read_manifest
from xcompress.bundle.released import RELEASED, released_folder
from xcompress.errors import InputError, short_repr
from xcompress.files import read_json
from xcompress.modeling.bounds import LARGEST, MOST_PARAMETERS
from xcompress.modeling.rotary_config import ROTARY_BERTS
from xcompress.paths import as_path
from xcompress.recipe.encoders import CONFIG_KEYS, EncoderSection, EncoderShape, is_modernbert, rotary_bert_of
from xcompress.recipe.schema import Recipe, StudentSection
from xcompress.sources.model_folder import STUDENT


@dataclass(frozen=True, slots=True)
class Counts:
    """Sizes of one encoder, and its parameters by component, named as in `Student.sizes`."""

    hidden: int
    """H, the width of the layers."""
    vocabulary: int
    """V, rows of the token embeddings."""
    word: int
    projection: int
    position: int
    token_type: int
    norm: int
    encoder: int
    """Of the distinct layers, each counted once however often it is applied."""
    applied: int
    """Of the layers, each counted as often as it is applied."""
    head: int | None
    """None where the width of the head, which is the teacher's, is unknown."""
    recurrences: int
    """R, how often the unit is applied."""
    depth: int
    """Number of layers that a token passes."""

    @property
    def embedding(self) -> int:
        """Everything before the layers."""
        return self.word + self.projection + self.position + self.token_type + self.norm

    @property
    def total(self) -> int:
        """All parameters; without a head of unknown width."""
        return self.embedding + self.encoder + (self.head or 0)

    def megabytes(self, bytes_each: int) -> float:
        """Return the size in millions of bytes: 4 bytes a parameter in float32, 1 in int8."""
        return self.total * bytes_each / 1e6


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts of assistant and student; None where they are unknown until a model is fetched."""

    assistant: Counts | None
    student: Counts | None
    notes: tuple[str, ...]
    """What to know about the counts, one sentence each."""


def count_parameters(recipe: Recipe) -> Parameters:
    """Count the parameters of the unmodified assistant and of the student.

    :raises InputError: when the sizes of the student do not fit the assistant's.
    """
    assistant, student = recipe.assistant, recipe.student
    head, notes = _head_width(recipe)
    if assistant is None:
        assert student.hidden and student.heads and student.intermediate  # checked when the recipe was loaded
        if student.hidden % student.heads:
            raise InputError(
                f"student.heads: {student.heads} do not divide the width, student.hidden: {student.hidden}; correct one"
            )
        if student.bottleneck and student.bottleneck >= student.hidden:
            raise InputError(
                f"student.bottleneck: {student.bottleneck} is not smaller than student.hidden, {student.hidden}; "
                "choose a smaller one, or null for none"
            )
        shape = EncoderShape(
            vocabulary=recipe.vocabulary.trained_size,
            hidden=student.hidden,
            layers=student.unit_layers,
            heads=student.heads,
            intermediate=student.intermediate,
            positions=student.max_tokens,
            types=0,
        )
        counts = count_encoder(shape, recurrences=student.recurrences or 1, bottleneck=student.bottleneck, head=head)
        return Parameters(None, counts, tuple(notes))

    if assistant.gives_only_vectors:
        assistant_counts = None
        notes.append("assistant: it gives only vectors, whose parameters cannot be counted")
    else:
        assistant_counts = _count_unmodified(assistant, head)
    layer_shape = shape_of(assistant.layer_source)
    embedding_shape = shape_of(assistant.embeddings_from) if assistant.embeddings_from else layer_shape
    if not (layer_shape and embedding_shape):
        of_layers = "assistant.layers_from" if assistant.layers_from else "assistant"
        key = "assistant.embeddings_from" if layer_shape else of_layers
        notes.append(f"{key}: counts are unknown until the model is opened; give {key}.shape")
        return Parameters(assistant_counts, None, tuple(notes))
    recurrences = count_recurrences(student, layer_shape.layers)
    if student.bottleneck and student.bottleneck >= layer_shape.hidden:
        raise InputError(
            f"student.bottleneck: {student.bottleneck} is not smaller than the assistant's width {layer_shape.hidden}; "
            "choose a smaller one, or null for none"
        )
    vocabulary = _vocabulary_size(recipe, embedding_shape.vocabulary, notes)
    counts = count_encoder(
        layer_shape.model_copy(update={"vocabulary": vocabulary}),
        layers=student.unit_layers,
        recurrences=recurrences,
        around=len(student.prelude) + len(student.coda),
        bottleneck=student.bottleneck,
        head=_head_or_own(assistant.layer_source, head),
        with_first=1 in (*student.prelude, *student.unit, *student.coda),
    )
    return Parameters(assistant_counts, counts, tuple(notes))


def count_encoder(
    shape: EncoderShape,
    *,
    layers: int | None = None,
    recurrences: int = 1,
    around: int = 0,
    bottleneck: int | None = None,
    head: int | None = 0,
    with_first: bool = True,
) -> Counts:
    """Count the parameters of an encoder by component.

    :param layers: M, distinct layers of the unit; default: those of the shape.
    :param around: layers of prelude and coda.
    :param bottleneck: B, width of the token embeddings before a B x H projection; None or 0 for V x H embeddings.
    :param head: D, width of the linear head; 0 for none, None for one of unknown width.
    :param with_first: whether the first layer of the shape is among them; a ModernBERT's has one norm only.
    :raises InputError: when there are more than `MOST_PARAMETERS`.
    """
    hidden, intermediate = shape.hidden, shape.intermediate
    beyond = 0
    if shape.modernbert:
        norm, positions, types, gated, biases = hidden, 0, 0, True, False
        beyond = 0 if with_first else norm  # a norm follows the layers, and the first one lacks one
    else:
        rotary = ROTARY_BERTS[shape.rotary_bert] if shape.rotary_bert else None
        norm, positions, types = 2 * hidden, 0 if rotary else shape.positions, shape.types
        gated, biases = (bool(rotary.gate), rotary.biases) if rotary else (False, True)
    layer = 4 * hidden * hidden + (3 if gated else 2) * hidden * intermediate + 2 * norm
    if biases:
        layer += 5 * hidden + (0 if gated else intermediate)
    unit_layers = layers or shape.layers
    depth = unit_layers * recurrences + around
    counts = Counts(
        hidden=hidden,
        vocabulary=shape.vocabulary,
        word=shape.vocabulary * (bottleneck or hidden),
        projection=(bottleneck or 0) * hidden,
        position=positions * hidden,
        token_type=types * hidden,
        norm=norm,
        encoder=(unit_layers + around) * layer + beyond,
        applied=depth * layer + beyond,
        head=head and head * hidden + head,
        recurrences=recurrences,
        depth=depth,
    )
    if counts.total > MOST_PARAMETERS:
        raise InputError(f"its sizes make {counts.total:,} parameters, over {MOST_PARAMETERS:,}; correct the sizes")
    return counts


def shape_of(encoder: EncoderSection) -> EncoderShape | None:
    """Return an encoder's sizes from the recipe, or from config.json of a local folder; None if neither has them.

    The layers of a student are those that a token passes, as the assistant's layers are numbered in that order.

    :raises InputError: when a size in config.json is out of bounds.
    """
    if encoder.shape:
        return encoder.shape
    config = _read_config(encoder)
    if student := _read_student(encoder):
        config[CONFIG_KEYS["layers"]] = student["layers"] * student["recurrences"] + student["around"]
    modernbert = is_modernbert(config)
    if modernbert:
        config[CONFIG_KEYS["types"]] = 0
    if any(not isinstance(config.get(key), int) for key in CONFIG_KEYS.values()):
        return None
    try:
        return EncoderShape(
            **{name: config[key] for name, key in CONFIG_KEYS.items()},
            modernbert=modernbert,
            rotary_bert=rotary_bert_of(config),
        )
    except ValidationError as error:
        first = error.errors()[0]
        key = CONFIG_KEYS[str(first["loc"][0])]
        raise InputError(
            f"{encoder.source}/config.json: {key}: {first['msg']}, got {short_repr(first['input'])}; correct it"
        ) from error


def _read_config(encoder: EncoderSection) -> dict[str, Any]:
    """Read config.json of a local folder; empty where there is no such mapping."""
    path = as_path(f"{encoder.source}/config.json")
    config = read_json(path) if path.is_file() else None
    return config if isinstance(config, dict) else {}


def _read_student(encoder: EncoderSection) -> dict[str, int] | None:
    """Read the sizes of a local student that an `EncoderShape` does not have, named as in `count_encoder`; 0 for none.

    :returns: None for other encoders, and for what opening a student refuses.
    """
    config = _read_config(encoder)
    names = ("unit_layers", "recurrences", "prelude_layers", "coda_layers", "bottleneck", "head_size")
    sizes = {name: config.get(name) or 0 for name in names}
    is_possible = all(isinstance(size, int) and 0 <= size <= LARGEST[name] for name, size in sizes.items())
    if config.get("model_type") != STUDENT or not is_possible or not (sizes["unit_layers"] and sizes["recurrences"]):
        return None
    return {
        "layers": sizes["unit_layers"],
        "recurrences": sizes["recurrences"],
        "around": sizes["prelude_layers"] + sizes["coda_layers"],
        "bottleneck": sizes["bottleneck"],
        "head": sizes["head_size"],
    }


def _count_unmodified(assistant: EncoderSection, head: int | None) -> Counts | None:
    """Count the parameters of an encoder as it comes, with the head that the recipe adds; None if they are unknown."""
    shape, student, head = shape_of(assistant), _read_student(assistant), _head_or_own(assistant, head)
    if shape is None:
        return None
    if student is None:
        return count_encoder(shape, head=head)
    return count_encoder(
        shape,
        layers=student["layers"],
        recurrences=student["recurrences"],
        around=student["around"],
        bottleneck=student["bottleneck"],
        head=head,
    )


def _head_or_own(encoder: EncoderSection, head: int | None) -> int | None:
    """Return the width of the head that the recipe adds, else of the one that a student has already."""
    student = _read_student(encoder)
    return student["head"] if student and head == 0 else head


def teacher_width(recipe: Recipe) -> int | None:
    """Return the width of the teacher's vectors before it is reduced, None where it is unknown until it is fetched.

    A folder whose modules after the pooling change the width is taken for one without.
    """
    widths = [width_of_vectors(member) for member in recipe.teacher.members.values()] if recipe.teacher else []
    known = [width for width in widths if width]
    return sum(known) if widths and len(known) == len(widths) else None


def width_of_vectors(encoder: EncoderSection) -> int | None:
    """Return the width of an encoder's vectors; None where it is unknown until the encoder is fetched or called."""
    source = encoder.source
    if source.startswith(RELEASED):
        try:
            return int(read_manifest(released_folder(source.removeprefix(RELEASED)))["dimension"])
        except InputError:  # no such model, which `problems` says
            return None
    if source.endswith(".npy"):
        from xcompress.bundle.stored_vectors import FLOATS, open_npy  # onnxruntime, which takes a moment to import

        with suppress(InputError):  # training says what is wrong with the file
            return int(open_npy(as_path(source), FLOATS, source, "").shape[1])
        return None
    if encoder.gives_only_vectors:
        return None
    shape = shape_of(encoder)
    return _head_or_own(encoder, 0) or (shape.hidden if shape else None)


def count_recurrences(student: StudentSection, layers: int) -> int:
    """Return R, how often the student applies its unit.

    :param layers: the assistant's number of layers.
    :raises InputError: when the assistant lacks a layer that the student copies, or M does not divide its layers.
    """
    if student.unit_layers > layers:
        raise InputError(
            f"student.unit_layers: {student.unit_layers} is more than the assistant's {layers} layers; choose fewer"
        )
    for name, copied in (("prelude", student.prelude), ("layers", student.unit), ("coda", student.coda)):
        if copied and copied[-1] > layers:
            raise InputError(
                f"student.{name}: there is no layer {copied[-1]}, the assistant has {layers}; choose others"
            )
    if student.recurrences is None and layers % student.unit_layers:
        divisors = ", ".join(str(unit) for unit in range(1, layers + 1) if layers % unit == 0)
        raise InputError(
            f"student.unit_layers: {student.unit_layers} does not divide the assistant's {layers} layers; "
            f"choose {divisors}, or give student.recurrences"
        )
    return student.recurrences or layers // student.unit_layers


def _head_width(recipe: Recipe) -> tuple[int | None, list[str]]:
    """Return D, the width of the linear head, and notes; 0 without a head, None where it is unknown."""
    if recipe.widths != "head" or recipe.teacher is None:
        return 0, []
    if recipe.teacher.dimensions:
        return recipe.teacher.dimensions, []
    if width := teacher_width(recipe):
        return width, []
    unknown = {key: member for key, member in recipe.teacher.members.items() if not width_of_vectors(member)}
    for key, member in unknown.items():
        if not member.gives_only_vectors:  # the others refuse `shape`
            return None, [f"head: its width is the teacher's, unknown until that is fetched; give {key}.shape"]
    return None, [f"head: its width is the teacher's, known once {next(iter(unknown))} has given a vector"]


def _vocabulary_size(recipe: Recipe, assistant_size: int, notes: list[str]) -> int:
    """Return the largest number of tokens that the student may have, and add a note that says so."""
    vocabulary = recipe.vocabulary
    if vocabulary.method == "keep":
        return assistant_size
    if vocabulary.method == "train":
        notes.append(f"student: {vocabulary.trained_size:,} tokens, the most that the trained vocabulary may have")
        return vocabulary.trained_size
    if vocabulary.size is None:
        notes.append(f"student: all {assistant_size:,} tokens; how many trimming leaves is known once the text is read")
        return assistant_size
    size = min(vocabulary.size, assistant_size)
    notes.append(f"student: {size:,} tokens; trimming may leave fewer, or a few more for single characters")
    return size
