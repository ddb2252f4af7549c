"""Open the encoders of a recipe, teachers and assistants of any kind, as functions from texts to vectors."""

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xcompress.bundle.encoder import Encoder
from xcompress.bundle.manifest import MANIFEST
from xcompress.bundle.released import RELEASED, released_folder
from xcompress.console import without_loading_bars
from xcompress.distillation.hardware import device, fast_inference
from xcompress.distillation.teachers.layer_sources import (
    check_encoder,
    check_layer_sources,
    check_pooling,
    compare_shape,
    open_student,
)
from xcompress.distillation.teachers.precomputed import open_precomputed
from xcompress.distillation.teachers.vectors import in_batches, student_encoder
from xcompress.errors import InputError, on_one_line
from xcompress.files import hash_of, read_mapping, sha256_of
from xcompress.metrics import Encode, unit_length
from xcompress.modeling.load import is_rotary_bert, is_student
from xcompress.modeling.st_folder import folders_of, is_pipeline
from xcompress.modeling.tokenizer import NEWER_CLASS
from xcompress.paths import as_path
from xcompress.recipe import EncoderSection, EnsembleMember, Recipe
from xcompress.recipe.validation import idle_keys, local_encoders, refuse
from xcompress.sources import check, fingerprint, resolve
from xcompress.sources.model_folder import NORMALIZE, check_model_folder, read_modules
from xcompress.sources.python_code import FAILURES, PYTHON, current_folder_importable, open_code
from xcompress.tokenizer_file import check_tokenizers


def open_encoder(section: EncoderSection, key: str) -> Encode:
    """Open the encoder of a recipe's section.

    :param key: the section's key in the recipe, for error messages.
    :returns: a function from N texts to vectors (N, D), of unit length with a teacher's `normalize`.
    :raises InputError: when there is no such encoder, it is damaged, or the recipe does not fit it.
    """
    refuse([*idle_keys(key, section)])
    normalize = isinstance(section, EnsembleMember) and section.normalize
    if section.sentences_source:
        return open_precomputed(section, key, locate(section, key), normalize=normalize)
    encoder: Encode
    function: Callable[[list[str]], NDArray[np.float32]]
    if section.gives_only_vectors:
        if section.source.startswith(PYTHON):
            function = open_code(section.source, f"{key}.source: {section.source}")
        else:
            function = Encoder(released_folder(section.source.removeprefix(RELEASED))).encode
        encoder = partial(in_batches, key, lambda texts: function([section.prefix + text for text in texts]))
    else:
        encoder = _open_model(section, key)
    return (lambda texts: unit_length(encoder(texts))) if normalize else encoder


def encoder_fingerprint(section: EncoderSection) -> str:
    """Hash everything that the encoder's vectors depend on: its content, and its settings in the recipe."""
    if section.source.startswith(PYTHON):
        content = _function_fingerprint(section.source)
    elif section.source.startswith(RELEASED):
        content = [sha256_of(released_folder(section.source.removeprefix(RELEASED)) / MANIFEST)]
    elif section.sentences_source:
        content = [fingerprint(section.source), fingerprint(section.sentences_source)]
    else:
        tokenizer = section.tokenizer
        content = [fingerprint(section.source), fingerprint(tokenizer.source) if tokenizer else None]
    settings: dict[str, Any] = {"prefix": section.prefix, "pooling": section.pooling, "sha256": section.sha256}
    if section.trust_remote_code:  # absent otherwise, so that the hashes of earlier versions stay valid
        settings["trust_remote_code"] = True
    return hash_of(
        {"content": content, **settings, "normalize": isinstance(section, EnsembleMember) and section.normalize}
    )


def locate(section: EncoderSection, key: str) -> Path:
    """Return the local path of an encoder, after checking its digests.

    :raises InputError: when it cannot be fetched, or a digest differs.
    """
    path = resolve(section.source, section.sha256 if isinstance(section.sha256, str) else None)
    if isinstance(section.sha256, dict):
        if not path.is_dir():
            raise InputError(
                f"{key}.sha256: names files inside a folder, but {section.source} is a file; give one digest"
            )
        check(path, section.sha256, section.source)
    return path


def check_local_encoders(recipe: Recipe) -> None:
    """Check the encoders of a recipe that are on this machine, as far as that takes no weights.

    A teacher's vectors are needed hours later, and a dry run needs none.

    :raises InputError: as `open_encoder` and `import_layers`, or when the student cannot have the layers that the
        recipe names.
    """
    for key, section in local_encoders(recipe).items():
        if not key.startswith("assistant"):
            _check_model(section, as_path(section.source), key)
    check_layer_sources(recipe)


def _check_model(section: EncoderSection, path: Path, key: str) -> None:
    """Check that a model's files and the recipe say how a text becomes a vector."""
    if _is_read_here(section, path):
        check_encoder(section, path, key)
    else:
        check_folder(path, f"{key}.source", section.source, trust_remote_code=section.trust_remote_code)
        check_pooling(section, path, key)
    says_pooling = path.is_file() or is_pipeline(path) or is_student(path)
    if not (section.pooling or section.tokenizer or says_pooling):
        raise InputError(
            f"{key}.pooling: not given, and {section.source} has no modules.json that says how its token vectors "
            "become a sentence vector; set it to mean or cls, as its model card says"
        )


def _is_read_here(section: EncoderSection, path: Path) -> bool:
    """Tell whether xcompress opens a model without sentence-transformers.

    It does so with a BERT with rotary positions, which transformers does not know before version 5.19, or knows only
    with the code of the model, unless the recipe lets that code run.
    """
    if path.is_file() or section.tokenizer or is_student(path):
        return True
    return is_rotary_bert(path) and not section.trust_remote_code


def check_folder(path: Path, key: str, source: str, *, trust_remote_code: bool) -> None:
    """Check that sentence-transformers may open a folder, as far as that takes no weights.

    :param key: names the folder in the recipe, for error messages, as `source` does.
    :raises InputError: when it holds no model, none with safetensors weights, one that transformers does not know, or
        code that may not run.
    """
    if path.is_dir():
        check_model_folder(path, key.rpartition(".")[0], trust_remote_code=trust_remote_code)
    has_modules = (path / "modules.json").is_file()
    if not has_modules and not (path / "config.json").is_file():
        raise InputError(f"{key}: {source} holds neither modules.json nor config.json; name a model's folder")
    if trust_remote_code:  # the code may find weights, and knows its own kind of model
        return
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if not any(path.rglob("*.safetensors")):
        raise InputError(
            f"{key}: {source} has no safetensors weights, and others (.bin, ONNX, GGUF) are not read; save the model "
            "again with save_pretrained"
        )
    file = folders_of(path)[0] / "config.json"
    _check_tokenizer_settings(file.with_name("tokenizer_config.json"), key)
    kind = read_mapping(file).get("model_type") if file.is_file() else None
    is_transformer = not has_modules or read_modules(path)[0]["type"].endswith(".Transformer")
    if is_transformer and isinstance(kind, str) and kind not in CONFIG_MAPPING:
        raise InputError(
            f"{key}: {file} names the model_type {kind!r}, which transformers {transformers.__version__} does not "
            "know; choose another encoder, or install a version of transformers that knows it"
        )


def _check_tokenizer_settings(file: Path, key: str) -> None:
    """Refuse what transformers 5 writes of a tokenizer, where an older version cannot read it."""
    import transformers

    settings = read_mapping(file) if file.is_file() else {}
    changes = []
    if settings.get("tokenizer_class") == NEWER_CLASS:
        changes.append(f"PreTrainedTokenizerFast for the tokenizer_class {NEWER_CLASS}")
    if isinstance(settings.get("extra_special_tokens"), list):
        changes.append("additional_special_tokens for the name extra_special_tokens")
    if changes and not hasattr(transformers, NEWER_CLASS):
        raise InputError(
            f"{key}: {file} was written by transformers 5, and transformers {transformers.__version__} cannot read it; "
            f"write {' and '.join(changes)} there, or install transformers 5"
        )


def _function_fingerprint(source: str) -> list[str | None]:
    """Return the name of the code, the version of its distribution, and the hash of its source file.

    The file counts beside the version, because an editable installation changes without a new version.
    """
    module = source.removeprefix(PYTHON).rpartition(":")[0]
    owners = importlib.metadata.packages_distributions().get(module.split(".")[0], [])
    versions = sorted({f"{owner}=={importlib.metadata.version(owner)}" for owner in owners})
    digest = None
    with suppress(*FAILURES), current_folder_importable():
        spec = importlib.util.find_spec(module)
        digest = sha256_of(Path(spec.origin)) if spec and spec.origin else None
    return [source, " ".join(versions) or None, digest]


def _open_model(section: EncoderSection, key: str) -> Encode:
    """Open a model as a `Student` where xcompress alone can read it, else with sentence-transformers."""
    path = locate(section, key)
    _check_model(section, path, key)
    if not _is_read_here(section, path):
        return _open_sentence_transformer(section, path, key)
    # others have always been cut at 128 tokens, and vectors that a run has stored stay valid
    student, tokenizer = open_student(section, path, key, None if is_rotary_bert(path) else 128)
    if not is_student(path) and isinstance(section, EnsembleMember):
        is_scaled = section.normalize or (is_pipeline(path) and student.config.normalize)
        student.config = replace(student.config, normalize=is_scaled)
    return student_encoder(key, student, tokenizer)


def _open_sentence_transformer(section: EncoderSection, path: Path, key: str) -> Encode:
    """Open a folder with sentence-transformers; the recipe's prefix replaces the model's default prompt."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    # Models that sentence-transformers 6 saved name the new place of this class; version 5.7 opens them, too.
    sys.modules.setdefault(NORMALIZE, sys.modules[Normalize.__module__])
    check_tokenizers(path)
    trust = {"trust_remote_code": section.trust_remote_code}
    # code that the recipe allows may name further files on the hub
    options: dict[str, Any] = {"device": str(device()), "local_files_only": not section.trust_remote_code}
    model_kwargs = {"use_safetensors": True, **trust}
    model: SentenceTransformer
    try:
        with _absent_weights() as absent, without_loading_bars():
            if (path / "modules.json").is_file():
                model = SentenceTransformer(str(path), model_kwargs=model_kwargs, **trust, **options)
            else:
                transformer = Transformer(
                    str(path), model_kwargs=model_kwargs, processor_kwargs=dict(trust), config_kwargs=dict(trust)
                )
                pooling = Pooling(transformer.get_embedding_dimension(), section.pooling or "mean")
                model = SentenceTransformer(None, modules=[transformer, pooling], **options)
    except Exception as error:
        raise InputError(
            f"{key}.source: {section.source} cannot be opened by sentence-transformers ({on_one_line(error)}); "
            "give a complete folder, with safetensors weights and a tokenizer"
        ) from error
    if absent:
        raise InputError(
            f"{key}.source: {section.source} lacks {len(absent)} weights of its model, such as {absent[0]}, which "
            "would be random numbers; fetch the folder again"
        )
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    compare_shape(section, config.to_dict() if config else {}, key)
    batch_size = 256 if device().type == "cuda" else 64

    def encode_batch(texts: Sequence[str]) -> NDArray[np.float32]:
        try:
            return np.asarray(
                model.encode(list(texts), prompt=section.prefix or None, batch_size=batch_size, show_progress_bar=False)
            )
        except torch.OutOfMemoryError:
            raise
        except (IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                f"{key}.source: {section.source} was opened, but fails on a text ({on_one_line(error)}); check that "
                "its tokenizer and its longest text fit its weights, or choose another encoder"
            ) from error

    def encode_texts(texts: Sequence[str]) -> NDArray[np.float32]:
        with fast_inference():
            return in_batches(key, encode_batch, texts)

    return encode_texts


@contextmanager
def _absent_weights() -> Iterator[list[str]]:
    """Collect the names of the weights that transformers does not find in the files of models opened in the block.

    It gives them random numbers. A pooler does not count: many models are published without, and pooling skips it.

    `from_pretrained` is replaced in the block, because transformers returns these names only to callers that set
    `output_loading_info` (versions 4.57 and 5). It then returns a pair of model and report, but sentence-transformers
    5.7, which passes `model_kwargs` on, takes the result for the model.
    """
    from transformers import PreTrainedModel

    absent: list[str] = []
    original = PreTrainedModel.__dict__["from_pretrained"]

    def from_pretrained(cls: type[PreTrainedModel], *values: Any, **options: Any) -> Any:  # noqa: ANN401 - as original
        is_report_wanted = options.pop("output_loading_info", False)
        model, report = original.__func__(cls, *values, output_loading_info=True, **options)
        names = sorted(report["missing_keys"])
        absent.extend(name for name in names if "pooler" not in name and not name.endswith("position_ids"))
        return (model, report) if is_report_wanted else model

    PreTrainedModel.from_pretrained = classmethod(from_pretrained)  # type: ignore[method-assign]
    try:
        yield absent
    finally:
        PreTrainedModel.from_pretrained = original  # type: ignore[method-assign]
