"""Any encoder as teacher or assistant: what a recipe's `source` leads to becomes a function from texts to vectors."""

import importlib.metadata
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer
from torch import nn

from xcompress.corpus.normalise import normalise
from xcompress.distillation.hardware import device, fast_inference
from xcompress.distillation.teachers.vectors import Mapped, VectorsOf, in_batches, vectors_of
from xcompress.errors import InputError
from xcompress.files import hash_of, read_json, sha256_of, write_text
from xcompress.modeling.e5s1 import is_e5s1
from xcompress.modeling.load import import_encoder
from xcompress.modeling.st_folder import pooling_of
from xcompress.modeling.student import MODEL_TYPE, Student, StudentConfig
from xcompress.recipe import EncoderSection, EnsembleMember
from xcompress.recipe.encoders import CONFIG_KEYS
from xcompress.sources import check, fingerprint, resolve
from xcompress.sources.python_code import FAILURES, PYTHON, current_folder_importable, open_code


def open_function(part: EncoderSection, key: str) -> VectorsOf:
    """Import what `python:package.module:name` names, as `open_code` does.

    :param key: the part's key in the recipe, for error texts.
    :raises InputError: when there is no such code, it fails, or what it gives is not an (N, D) array of finite numbers.
    """
    where = f"{key}.source: {part.source}"
    code = open_code(part.source, where)

    def encode_batch(texts: Sequence[str]) -> NDArray[np.float32]:
        return code([part.prefix + text for text in texts])

    return lambda texts: _of_one_width(encode_batch, key, texts, where)


def function_fingerprint(source: str) -> list[str | None]:
    """Return what stands for the code: its name, the version of its distribution, the hash of its source file.

    The file counts beside the version, because an editable installation changes without a new version.
    """
    module = source.removeprefix("python:").rpartition(":")[0]
    owners = importlib.metadata.packages_distributions().get(module.split(".")[0], [])
    versions = sorted({f"{owner}=={importlib.metadata.version(owner)}" for owner in owners})
    return [source, " ".join(versions) or None, _source_hash(module)]


def _source_hash(module: str) -> str | None:
    with suppress(*FAILURES), current_folder_importable():
        found = importlib.util.find_spec(module)
        return sha256_of(Path(found.origin)) if found and found.origin else None
    return None


def _of_one_width(encoder: VectorsOf, key: str, texts: Sequence[str], where: str) -> NDArray[np.float32]:
    widths: list[int] = []

    def same_width(batch: Sequence[str]) -> NDArray[np.float32]:
        vectors = encoder(batch)
        widths.append(vectors.shape[1])
        if widths[0] != widths[-1]:
            raise InputError(
                f"{where}: gave vectors of width {widths[0]} for a batch and {widths[-1]} for another; give one width"
            )
        return vectors

    return in_batches(key, same_width, texts)


ABSENT = -1
NUMBERS = (np.dtype("float16"), np.dtype("float32"), np.dtype("float64"))


class Table:
    """The vectors of N sentences, by sentence; a `Lookup`."""

    def __init__(self, vectors: NDArray[np.floating], sentences: Iterable[str], where: str, missing: Path) -> None:
        """Index the sentences as they are and normalised.

        :param vectors: one row a sentence, (N, D).
        :param where: what to put in front of error texts.
        :param missing: where sentences are written that are asked for and not here.
        """
        self._vectors, self._where, self._missing = vectors, where, missing
        self._row_of: dict[str, int] = {}
        for row, sentence in enumerate(sentences):
            self._row_of[normalise(sentence)] = self._row_of[sentence] = row

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, (len(texts), D).

        :raises InputError: when some are missing, or are not finite numbers.
        """
        self.require(texts)
        vectors = self._vectors[[self._row(text) for text in texts]].astype(np.float32)
        finite = np.isfinite(vectors).all(1)
        if not finite.all():
            number = int(finite.argmin())
            raise InputError(
                f"{self._where}: row {self._row(texts[number])}, of {texts[number]!r}, holds NaN or infinity; "
                "compute it again"
            )
        return vectors

    def require(self, texts: Sequence[str]) -> None:
        """Find out whether all texts have vectors; write those that have none to a file, one a line.

        :raises InputError: when some have none.
        """
        distinct = dict.fromkeys(texts)
        absent = [" ".join(text.split()) for text in distinct if self._row(text) == ABSENT]
        if absent:
            write_text(self._missing, "".join(f"{text}\n" for text in absent))
            raise InputError(
                f"{self._where}: has no vectors of {len(absent)} of {len(distinct)} sentences, the first of which is "
                f"{absent[0]!r}; they are in {self._missing}: add their vectors to the .npy, and them to its sentences"
            )

    def _row(self, text: str) -> int:
        row = self._row_of.get(text, ABSENT)
        return self._row_of.get(normalise(text), ABSENT) if row == ABSENT else row


def open_table(part: EncoderSection, key: str, path: Path, missing: Path | None = None) -> Table:
    """Open an .npy of (N, D) numbers, which stays on disk, and its text file of N sentences.

    :param path: where the .npy is.
    :param missing: where sentences are written that are asked for and not there; beside the text file by default.
    :raises InputError: when a file cannot be used, or they do not go together.
    """
    where = f"{key}.source: {part.source}"
    vectors = _open_array(path, where)
    reference = str(part.sentences_source)
    file = resolve(reference)
    sentences = _read_lines(file, f"{key}.sentences: {reference}")
    if len(vectors) != len(sentences):
        raise InputError(
            f"{where}: has {len(vectors)} rows, but {reference} has {len(sentences)} lines; "
            "there must be a line for every row, in the same order"
        )
    return Table(vectors, sentences, where, missing or file.with_suffix(".missing.txt"))


def _open_array(path: Path, where: str) -> NDArray[np.floating]:
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"{where}: not a readable .npy of plain numbers ({error}); save it with numpy.save") from error
    if vectors.ndim != 2 or vectors.dtype.newbyteorder("=") not in NUMBERS:
        raise InputError(
            f"{where}: holds {vectors.dtype} of shape {vectors.shape}; it must be float16, float32 or float64 of (N, D)"
        )
    return vectors  # type: ignore[no-any-return]


def _read_lines(path: Path, where: str) -> list[str]:
    """Read lines, blank ones, too; only line ends separate them, and no other characters that look like some."""
    try:
        with path.open(encoding="utf-8") as stream:
            return [line.removesuffix("\n") for line in stream]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: cannot be read as UTF-8 text ({error}); save it as such") from error


def open_encoder(part: EncoderSection, key: str, missing: Path | None = None) -> VectorsOf:
    """Open what a recipe's part describes.

    :param key: the part's key in the recipe, for error texts.
    :param missing: where sentences are written whose vectors a table lacks; beside its sentences when not given.
    :returns: a function from N texts to vectors (N, D); of unit length, where a teacher's `normalize` asks for it.
    :raises InputError: when there is no such encoder, it is damaged, or the recipe does not fit it.
    """
    encoder = _vectors_only(part, key, missing) if part.gives_only_vectors else _model(part, key)
    return Mapped(encoder, unit_length) if isinstance(part, EnsembleMember) and part.normalize else encoder


def encoder_fingerprint(part: EncoderSection) -> str:
    """Hash everything that the encoder's vectors depend on: its content and how the recipe has it used."""
    if part.source.startswith(PYTHON):
        content = function_fingerprint(part.source)
    elif part.sentences_source:
        content = [fingerprint(part.source), fingerprint(part.sentences_source)]
    else:
        content = [fingerprint(part.source), fingerprint(part.tokenizer.source) if part.tokenizer else None]
    used = {"prefix": part.prefix, "pooling": part.pooling, "sha256": part.sha256}
    return hash_of({"content": content, **used, "normalize": isinstance(part, EnsembleMember) and part.normalize})


def locate(part: EncoderSection, key: str) -> Path:
    """Return the local path of a part's source, with its digests checked.

    :raises InputError: when it cannot be had, or a digest is another one.
    """
    path = resolve(part.source, part.sha256 if isinstance(part.sha256, str) else None)
    if isinstance(part.sha256, dict):
        if not path.is_dir():
            raise InputError(f"{key}.sha256: names files inside a folder, but {part.source} is a file; give one digest")
        check(path, part.sha256, part.source)
    return path


def check_shape(part: EncoderSection, config: StudentConfig, key: str) -> None:
    """Compare the shape that a recipe states with an imported encoder's.

    :raises InputError: when they differ.
    """
    names = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings")
    sizes = {name: getattr(config, name) for name in (*names, "type_vocab_size")}
    _compare_shape(part, sizes | {"num_hidden_layers": config.depth}, key)


def check_mean_pooling(part: EncoderSection, path: Path, key: str) -> None:
    """Make sure that an encoder is meant to be pooled by the mean, as everything that lends its layers is.

    :raises InputError: when the recipe or the model's folder says otherwise.
    """
    _check_pooling(part, path, key)
    pooling = part.pooling or pooling_of(path) or "mean"
    if pooling != "mean":
        raise InputError(
            f"{key}.source: {part.source} is pooled by {pooling!r}, and what lends layers can only be pooled by 'mean';"
            " choose another encoder, or use this one as the teacher"
        )


def import_layers(part: EncoderSection, path: Path, key: str, max_tokens: int = 128) -> tuple[Student, Tokenizer]:
    """Open an E5S1 file, a student's folder or that of a BERT-family encoder as a `Student`.

    :param path: where the part's source is, as `locate` returns it.
    :raises InputError: when it is none of these, is not pooled by the mean, has something that a student is not made
        with, or the recipe does not fit it.
    """
    if path.is_file() and not is_e5s1(path):
        raise InputError(f"{key}.source: {part.source} is neither a model's folder, an E5S1 file nor .npy; name one")
    if path.is_file() and part.tokenizer is None:
        raise InputError(f"{key}.tokenizer: not given, and {part.source} brings none; name its tokenizer.json")
    check_mean_pooling(part, path, key)
    tokenizer_file = resolve(part.tokenizer.source, part.tokenizer.sha256) if part.tokenizer else None
    student, tokenizer = import_encoder(
        path, tokenizer_file, prefix=part.prefix, pooling=part.pooling, max_tokens=max_tokens
    )
    is_foreign = _model_type(path) != MODEL_TYPE
    _check_lends(part, student.config, key, is_foreign)
    if is_foreign:
        student.config = replace(student.config, normalize=True)
    check_shape(part, student.config, key)
    return student, tokenizer


def _check_lends(part: EncoderSection, config: StudentConfig, key: str, is_foreign: bool) -> None:
    """Refuse what no student has that is made from an encoder's layers; a linear head is one of our own students'."""
    kept = {
        "relative attention biases": config.relative_buckets,
        "dense modules": config.head_activation or (is_foreign and config.head_size),
        "no mean as its pooling": config.pooling != "mean",
    }
    has = [name for name, there in kept.items() if there]
    if has:
        raise InputError(
            f"{key}.source: {part.source} has {' and '.join(has)}, and what lends layers must not; "
            "choose another encoder, or use this one as the teacher"
        )


def unit_length(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale each row of (N, D) to length 1; rows of zeros stay as they are."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _vectors_only(part: EncoderSection, key: str, missing: Path | None) -> VectorsOf:
    is_function = part.source.startswith(PYTHON)
    for name in ("tokenizer", "pooling", "shape", *(["sha256"] if is_function else [])):
        if getattr(part, name) is not None:
            raise InputError(
                f"{key}.{name}: {part.source} gives nothing but vectors, to which it does not apply; drop it"
            )
    return open_function(part, key) if is_function else open_table(part, key, locate(part, key), missing)


def _model(part: EncoderSection, key: str) -> VectorsOf:
    path = locate(part, key)
    if path.is_file() or part.tokenizer or _model_type(path) == MODEL_TYPE:
        return _imported(part, path, key)
    if not (path / "modules.json").is_file() and not (path / "config.json").is_file():
        raise InputError(
            f"{key}.source: {part.source} holds neither modules.json nor config.json; name a model's folder"
        )
    _check_pooling(part, path, key)
    if not (path / "modules.json").is_file() and part.pooling is None:
        raise InputError(
            f"{key}.pooling: not given, and {part.source} has no modules.json that says how its token vectors become "
            "a sentence vector; set it to mean or cls, as its model card says"
        )
    return _sentence_transformer(part, path, key)


def _model_type(path: Path) -> str | None:
    config = path / "config.json"
    return read_json(config).get("model_type") if config.is_file() else None


def _imported(part: EncoderSection, path: Path, key: str) -> VectorsOf:
    student, tokenizer = import_layers(part, path, key)
    if _model_type(path) == MODEL_TYPE:
        student.config = replace(student.config, prefix=part.prefix or student.config.prefix)
    elif isinstance(part, EnsembleMember):
        student.config = replace(student.config, normalize=part.normalize)
    return vectors_of(key, student, tokenizer)


def _check_pooling(part: EncoderSection, path: Path, key: str) -> None:
    own = pooling_of(path)
    if part.pooling and own and part.pooling != own:
        raise InputError(
            f"{key}.pooling: is {part.pooling!r}, but {part.source} says {own!r} itself; leave pooling out"
        )


def _sentence_transformer(part: EncoderSection, path: Path, key: str) -> VectorsOf:
    """Open a folder with sentence-transformers; its own prompt, if any, gives way to the recipe's prefix."""
    model = _loaded(part, path, key)
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    _compare_shape(part, config.to_dict() if config else {}, key)
    batch_size = 256 if device().type == "cuda" else 64

    def encode_batch(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.asarray(
            model.encode(list(texts), prompt=part.prefix or None, batch_size=batch_size, show_progress_bar=False)
        )

    def encode_texts(texts: Sequence[str]) -> NDArray[np.float32]:
        with fast_inference():
            return in_batches(key, encode_batch, texts)

    return encode_texts


def _loaded(part: EncoderSection, path: Path, key: str) -> SentenceTransformer:
    options: dict[str, Any] = {"model_kwargs": {"use_safetensors": True}}
    try:
        modules = None if (path / "modules.json").is_file() else _pooled(part, path, options)
        name = str(path) if modules is None else None
        model: SentenceTransformer = SentenceTransformer(name, modules=modules, device=str(device()), **options)
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise InputError(
            f"{key}.source: {part.source} cannot be opened by sentence-transformers ({reason}); "
            "give a complete folder, with safetensors weights and a tokenizer"
        ) from error
    return model


def _pooled(part: EncoderSection, path: Path, options: Mapping[str, Any]) -> list[nn.Module]:
    transformer = Transformer(str(path), **options)
    return [transformer, Pooling(transformer.get_embedding_dimension(), part.pooling or "mean")]


def _compare_shape(part: EncoderSection, sizes: Mapping[str, object], key: str) -> None:
    stated = part.shape.model_dump() if part.shape else {}
    for name, value in stated.items():
        found = sizes.get(CONFIG_KEYS[name], value)
        if found != value:
            raise InputError(f"{key}.shape.{name}: is {value}, but {part.source} has {found}; correct one of them")
