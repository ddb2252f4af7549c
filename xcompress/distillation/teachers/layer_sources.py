"""Encoders that are read as a `Student`: some teachers, and layer sources, whose layers or embeddings are copied."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from tokenizers import Tokenizer

from xcompress.distillation.shape import student_config
from xcompress.errors import InputError
from xcompress.modeling.e5s1 import is_e5s1
from xcompress.modeling.load import Description, describe, import_encoder, is_student, open_own_tokenizer
from xcompress.modeling.st_folder import classifier_of, pooling_of, weights_files
from xcompress.modeling.student import Student, StudentConfig, read_config
from xcompress.paths import as_path
from xcompress.recipe import EncoderSection, Recipe
from xcompress.recipe.encoders import CONFIG_KEYS, is_modernbert, rotary_bert_of
from xcompress.recipe.validation import local_encoders
from xcompress.sources import resolve
from xcompress.sources.model_folder import check_model_folder


def check_layer_sources(recipe: Recipe) -> None:
    """Check the layer sources of a recipe that are on this machine, as far as that takes no weights.

    :raises InputError: as `import_layers`, or when the student cannot have the layers that the recipe names.
    """
    has_another = recipe.assistant is not None and recipe.assistant.layers_from is not None
    for key, section in local_encoders(recipe).items():
        if not key.startswith("assistant") or (key == "assistant" and has_another):
            continue
        path = as_path(section.source)
        described = check_layers(section, path, key)
        if recipe.assistant and section is recipe.assistant.layer_source and path.is_dir():
            student_config(described.config if described else read_config(path), recipe.student)


def check_layers(section: EncoderSection, path: Path, key: str) -> Description | None:
    """Check a layer source as `import_layers` does, without its weights.

    :param path: its local path.
    :returns: what the files of a folder of another library say; None for a student and an E5S1 file.
    :raises InputError: as `import_layers`.
    """
    described = check_encoder(section, path, key)
    if path.is_file():
        return None
    config = described.config if described else read_config(path)
    # a student may have a linear head, as trained students have one
    unsupported = {
        "relative attention biases": config.relative_buckets,
        f"layers of {config.language_model}": config.language_model,
        "dense modules or a truncate_dim": config.head_activation or (described and config.head_size),
    }
    features = [name for name, is_present in unsupported.items() if is_present]
    if features:
        raise InputError(
            f"{key}.source: {section.source} has {' and '.join(features)}, and a layer source must not; "
            "choose another encoder, or use this one as the teacher"
        )
    return described


def check_encoder(section: EncoderSection, path: Path, key: str) -> Description | None:
    """Check an encoder before `open_student`, without its weights.

    :returns: as `check_layers`.
    :raises InputError: as `open_student`.
    """
    if path.is_file() and not is_e5s1(path):
        raise InputError(f"{key}.source: {section.source} is neither a model's folder, an E5S1 file nor .npy; name one")
    if path.is_file() and section.tokenizer is None:
        raise InputError(f"{key}.tokenizer: not given, and {section.source} has none; name its tokenizer.json")
    if path.is_dir():
        check_model_folder(path, key, trust_remote_code=section.trust_remote_code, only_read=True)
    if is_student(path) and section.tokenizer:
        raise InputError(f"{key}.tokenizer: {section.source} is a student, which has its own; leave tokenizer out")
    check_pooling(section, path, key)
    if path.is_file():
        return None
    described = None if is_student(path) else describe(path, prefix=section.prefix, pooling=section.pooling)
    if described:
        weights_files(described.transformer)
        if not section.tokenizer:
            open_own_tokenizer(described.transformer, None, described.config.vocab_size)
    check_shape(section, described.config if described else read_config(path), key)
    return described


def import_layers(section: EncoderSection, path: Path, key: str, max_tokens: int = 128) -> tuple[Student, Tokenizer]:
    """Open a layer source (an E5S1 file, or the folder of a student or a BERT-family encoder) as a `Student`.

    :param path: local path of the encoder, as returned by `locate`.
    :raises InputError: when it is none of these, has a pooling or features that a trained student lacks, or the recipe
        does not fit it.
    """
    check_layers(section, path, key)
    student, tokenizer = open_student(section, path, key, max_tokens)
    if not is_student(path):
        student.config = replace(student.config, normalize=True)
    return student, tokenizer


def open_student(section: EncoderSection, path: Path, key: str, max_tokens: int | None) -> tuple[Student, Tokenizer]:
    """Open an encoder as a `Student`, after `check_encoder`.

    :param max_tokens: longer texts are truncated; None: the encoder's own limit.
    :raises InputError: when it is damaged, has features that a `Student` lacks, or the recipe does not fit it.
    """
    tokenizer_file = resolve(section.tokenizer.source, section.tokenizer.sha256) if section.tokenizer else None
    student, tokenizer = import_encoder(
        path,
        tokenizer_file,
        prefix=section.prefix,
        pooling=section.pooling,
        max_tokens=max_tokens,
        trust_remote_code=section.trust_remote_code,
    )
    if is_student(path) and section.prefix:
        student.config = replace(student.config, prefix=section.prefix)
    check_shape(section, student.config, key)
    return student, tokenizer


def check_pooling(section: EncoderSection, path: Path, key: str) -> None:
    """Compare the pooling in a recipe with that of the model's folder.

    :raises InputError: when they differ, or neither is there for a cross-encoder or another classifier.
    """
    of_model = read_config(path).pooling if is_student(path) else pooling_of(path)
    if not section.pooling and not of_model and (name := classifier_of(path)):
        raise InputError(
            f"{key}.source: {section.source} is a {name}, a cross-encoder or another classifier, which gives grades "
            f"and no vectors; choose a sentence encoder, or set {key}.pooling to mean if you want the means of its "
            "token vectors"
        )
    if section.pooling and of_model and section.pooling != of_model:
        raise InputError(
            f"{key}.pooling: is {section.pooling!r}, but {section.source} declares {of_model!r}; leave pooling out"
        )


def check_shape(section: EncoderSection, config: StudentConfig, key: str) -> None:
    """Compare the shape in a recipe with that of an imported encoder.

    :raises InputError: when they differ.
    """
    compare_shape(section, asdict(config) | {"num_hidden_layers": config.depth}, key)


def compare_shape(section: EncoderSection, sizes: Mapping[str, object], key: str) -> None:
    """Compare the shape in a recipe with the sizes in a config.json, by the keys there.

    :raises InputError: when they differ.
    """
    stated = section.shape.model_dump() if section.shape else {}
    found = {name: sizes[in_file] for name, in_file in CONFIG_KEYS.items() if in_file in sizes}
    found |= {"modernbert": is_modernbert(sizes), "rotary_bert": rotary_bert_of(sizes)} if sizes else {}
    for name, value in stated.items():
        if value not in (found.get(name, value), None):
            raise InputError(
                f"{key}.shape.{name}: is {value}, but {section.source} has {found[name]}; correct one of them"
            )
