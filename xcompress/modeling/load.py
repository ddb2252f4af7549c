"""Foreign encoders become a `Student` with M = their layers, R = 1 and no bottleneck: weights are mapped in."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

from tokenizers import Tokenizer, normalizers
from torch import Tensor

from xcompress import console
from xcompress.errors import InputError
from xcompress.files import read_json
from xcompress.modeling.architectures import BERT, Family, load_state, read_architecture, student_state
from xcompress.modeling.e5s1 import is_e5s1, read_e5s1
from xcompress.modeling.st_folder import (
    Head,
    Pipeline,
    folders_of,
    is_lowercased,
    is_pipeline,
    load_weights,
    longest_text,
    pooling_of,
    read_mapping,
    read_pipeline,
    weights_file,
)
from xcompress.modeling.student import MODEL_TYPE, Pooling, Student, StudentConfig

__all__ = ["check_files", "files_of", "import_encoder", "is_student", "pooling_of"]
FEWEST = 3
"""Tokens of the shortest text: one between those that begin and end it."""
_READ = ("*.json", "model.safetensors")
_VOCABULARIES = ("vocab.txt", "sentencepiece.bpe.model", "vocab.json", "spiece.model", "tokenizer.model")


def import_encoder(
    path: Path,
    tokenizer: Path | None = None,
    *,
    prefix: str = "",
    pooling: str | None = None,
    max_tokens: int | None = None,
) -> tuple[Student, Tokenizer]:
    """Open an encoder as a `Student`, which gives the vectors that the encoder gives.

    :param path: one of our own folders; a sentence-transformers folder (Transformer, Pooling, Dense, Normalize); a
        folder with config.json and model.safetensors of BERT, RoBERTa, XLM-R, DistilBERT or MPNet alone, whose vectors
        are normalised; or an E5S1 file (4-bit BERT).
    :param tokenizer: a tokenizer.json; needed where the model does not bring one.
    :param prefix: text in front of every sentence; the model's own default prompt when empty.
    :param pooling: mean or cls, where the model does not say; mean when not given.
    :param max_tokens: longer texts are cut; as the model says when not given, and never more than that.
    :raises InputError: when the model is of another kind, damaged, or has no tokenizer.
    """
    if is_student(path):
        return Student.load(path)
    if path.is_dir() and is_pipeline(path):
        return _from_pipeline(path, tokenizer, prefix, pooling, max_tokens)
    chosen = _pooling(path, None, pooling)
    if is_e5s1(path):
        config, weights = read_e5s1(path)
        family, limit = BERT, None
    else:
        (config, family), weights, limit = _read_encoder(path), load_weights(path), longest_text(path)
    config = replace(config, prefix=prefix, pooling=chosen, max_tokens=_shortest(config, limit, max_tokens))
    return _filled(config, weights, family, path), _open_tokenizer(path, tokenizer)


def is_student(path: Path) -> bool:
    """Tell whether a folder is one of our own students."""
    described = read_json(path / "config.json") if (path / "config.json").is_file() else None
    return isinstance(described, dict) and described.get("model_type") == MODEL_TYPE


def files_of(path: Path) -> list[Path]:
    """List the files of a foreign encoder that may be read to open it."""
    folders = {path, *folders_of(path)} if path.is_dir() else set()
    return sorted(file for folder in folders for part in _READ for file in folder.glob(part)) or [path]


def check_files(path: Path, tokenizer: Path | None = None) -> None:
    """Make sure that a foreign encoder is of a kind that is read, and whole, before its weights are.

    :raises InputError: when it is not, with what to do.
    """
    transformer = folders_of(path)[0]
    if not is_e5s1(path):
        _read_encoder(transformer)
        weights_file(transformer)
    tokenizer_file(transformer, tokenizer)


def _from_pipeline(
    path: Path, tokenizer: Path | None, prefix: str, pooling: str | None, max_tokens: int | None
) -> tuple[Student, Tokenizer]:
    pipeline = read_pipeline(path)
    config, family = _read_encoder(pipeline.transformer)
    limit = longest_text(pipeline.transformer)
    config = replace(
        config,
        prefix=prefix or pipeline.prefix,
        pooling=_pooling(path, pipeline.pooling, pooling),
        normalize=pipeline.normalize,
        head_size=len(pipeline.head.bias) if pipeline.head else None,
        head_activation=pipeline.head.activation if pipeline.head else None,
        max_tokens=_shortest(config, limit, max_tokens),
    )
    _check_prompt(config, pipeline, path)
    student = _filled(config, load_weights(pipeline.transformer), family, pipeline.transformer, pipeline.head)
    opened = _open_tokenizer(pipeline.transformer, tokenizer)
    return student, _lowercasing(opened) if is_lowercased(pipeline.transformer) else opened


def _check_prompt(config: StudentConfig, pipeline: Pipeline, path: Path) -> None:
    if config.prefix and not pipeline.pools_prompt:
        raise InputError(
            f"{path}: leaves the tokens of the prompt {config.prefix!r} out of its pooling, which is not supported; "
            "choose another model"
        )


def _filled(
    config: StudentConfig, weights: Mapping[str, Tensor], family: Family, file: Path, head: Head | None = None
) -> Student:
    student = Student(config)
    state = student_state(weights, family, config.unit_layers)
    load_state(student, state | ({"head.weight": head.weight, "head.bias": head.bias} if head else {}), file)
    return student.eval()


def _pooling(path: Path, own: str | None, asked: str | None) -> Pooling:
    """Choose between what the model says itself and what the caller says."""
    if own and asked and own != asked:
        raise InputError(f"{path}: pooling {asked!r} asked for, but the model says {own!r} itself; leave it out")
    chosen = own or asked
    if chosen is None and path.is_dir():
        console.warn(f"{path}: no modules.json says how token vectors become a sentence vector; their mean is taken")
    if chosen not in (*get_args(Pooling), None):
        raise InputError(f"{path}: pooled by {chosen!r}, only {' and '.join(get_args(Pooling))} are supported")
    return "cls" if chosen == "cls" else "mean"


def _read_encoder(folder: Path) -> tuple[StudentConfig, Family]:
    return read_architecture(read_mapping(folder / "config.json"), folder / "config.json")


def _shortest(config: StudentConfig, own: int | None, asked: int | None) -> int:
    if asked is not None and asked < FEWEST:
        raise InputError(f"max_tokens: {asked} is too few for a text; give at least {FEWEST}")
    positions = config.max_position_embeddings - config.position_offset
    return min(limit for limit in (positions, own, asked) if limit is not None)


def _lowercasing(tokenizer: Tokenizer) -> Tokenizer:
    normalizer = tokenizer.normalizer
    if normalizer is None:
        tokenizer.normalizer = normalizers.Lowercase()
    elif normalizer.normalize_str("A") == "A":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizer])
    return tokenizer


def tokenizer_file(path: Path, named: Path | None = None) -> Path:
    """Find the tokenizer.json of an encoder's folder, or the one that is named.

    :raises InputError: when there is none.
    """
    file = named or (path / "tokenizer.json" if path.is_dir() else None)
    if file is None:
        raise InputError(f"{path}: brings no tokenizer; {_how_to_get(path)}")
    if not file.is_file():
        raise InputError(f"{file}: no such file; {_how_to_get(path)}")
    return file


def _open_tokenizer(path: Path, named: Path | None) -> Tokenizer:
    file = tokenizer_file(path, named)
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:
        raise InputError(f"{file}: not a tokenizer.json ({error}); save the tokenizer again") from error
    _warn_of_case(tokenizer, file)
    return tokenizer


def _warn_of_case(tokenizer: Tokenizer, file: Path) -> None:
    """Say so where transformers would change what tokenizer.json says about upper and lower case."""
    settings = file.with_name("tokenizer_config.json")
    said = read_mapping(settings).get("do_lower_case") if settings.is_file() else None
    if not isinstance(tokenizer.normalizer, normalizers.BertNormalizer) or not isinstance(said, bool):
        return
    if tokenizer.normalizer.lowercase != said:
        console.warn(f"{settings}: do_lower_case is {said}, {file.name} does otherwise; the latter is used")


def _how_to_get(folder: Path) -> str:
    there = [name for name in _VOCABULARIES if (folder / name).is_file()]
    if not there:
        return "name the tokenizer.json that belongs to this model"
    return (
        f"make it from {there[0]} with transformers: "
        f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
    )
