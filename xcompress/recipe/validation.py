"""Check the references and sizes of a loaded recipe. Nothing is fetched."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from xcompress.bundle.manifest import read_manifest
from xcompress.bundle.released import RELEASED, released_folder
from xcompress.console import warn
from xcompress.corpus.labelled import table_kind
from xcompress.corpus.lines import DEVICE
from xcompress.errors import InputError
from xcompress.paths import as_path
from xcompress.recipe.encoders import EncoderSection
from xcompress.recipe.loading import first_of
from xcompress.recipe.parameters import count_parameters, shape_of
from xcompress.recipe.schema import Recipe
from xcompress.sources import looks_like_path, parse_wheel, parts_of, resolve
from xcompress.sources.model_folder import check_model_folder
from xcompress.sources.python_code import PYTHON, PYTHON_REFERENCE

_OTHER_FORMAT = re.compile(
    r"\.(csv|jsonl?|ndjson|parquet|arrow|feather|xlsx?|ods|pdf|zip|tar|7z|bz2|zst)(\.gz|\.xz)?$", re.I
)
_FOLDERS = ("corpus.catalogues.", "labelled.augment.", "dev.")
"""How the keys of folders begin; all others that are no encoders name files."""


def file_references(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield the keys of files and folders that a run reads, other than the encoders themselves, and the references."""
    for key, encoder in recipe.encoders.items():
        if encoder.tokenizer:
            yield f"{key}.tokenizer.source", encoder.tokenizer.source
        if encoder.sentences_source:
            yield f"{key}.sentences", encoder.sentences_source
    yield from _text_references(recipe)
    cross_encoder = recipe.labelled.augment.cross_encoder if recipe.labelled.augment else ""
    if cross_encoder and (cross_encoder.startswith("wheel:") or looks_like_path(cross_encoder)):  # else a hub id
        yield "labelled.augment.cross_encoder", cross_encoder
    if recipe.vocabulary.method == "trim" or (recipe.monolingual and recipe.monolingual.word_sequences):
        yield from (("vocabulary.words", reference) for reference in recipe.vocabulary.word_lists(recipe.languages))
    if recipe.dev.sts:
        yield "dev.sts", recipe.dev.sts


def _text_references(recipe: Recipe) -> Iterator[tuple[str, str]]:
    yield from ((f"corpus.catalogues.{row}", reference) for row, reference in enumerate(recipe.corpus.catalogues))
    for row, tsv in enumerate(recipe.corpus.tsv):
        if tsv.language in recipe.languages:
            yield f"corpus.tsv.{row}.source", tsv.source
    for row, file in enumerate(recipe.monolingual.text if recipe.monolingual else ()):
        yield f"monolingual.text.{row}.source", file.source
    for kind in ("entailment", "graded"):
        for row, entry in enumerate(getattr(recipe.labelled, kind)):
            references = [entry] if isinstance(entry, str) else entry.sources.values()
            yield from ((f"labelled.{kind}.{row}", reference) for reference in references)


def problems(recipe: Recipe, *, missing: bool = True) -> list[str]:
    """Return what is wrong with a recipe, each problem in one line that names the key.

    :param missing: whether files that are not on this machine count.
    """
    lines = []
    for key, encoder in recipe.encoders.items():
        lines += [f"{key}.source: {problem}" for problem in _source_problems(encoder.source, missing)]
        lines += idle_keys(key, encoder)
        lines += _folder_problems(key, encoder)
    for key, reference in file_references(recipe):
        found = [*_reference_problems(reference, missing)] or [*_format_problems(key, reference)]
        lines += [f"{key}: {problem}" for problem in found]
    if not recipe.corpus.catalogues:  # which languages those have is known once they are read
        known = {tsv.language for tsv in recipe.corpus.tsv}
        lines += [
            f"languages: no file of corpus.tsv is in {language!r}; add one, or remove the language"
            for language in recipe.languages
            if language not in known
        ]
    try:
        count_parameters(recipe)
    except InputError as error:
        lines.append(str(error))
    return lines


def idle_keys(key: str, encoder: EncoderSection) -> Iterator[str]:
    """Yield a problem for each key of an encoder that has no effect on an encoder of its kind.

    :param key: of the encoder.
    """
    is_table = encoder.sentences_source is not None
    if encoder.gives_only_vectors:
        for name in ("tokenizer", "pooling", "shape", "prefix" if is_table else "sha256"):
            if getattr(encoder, name) != EncoderSection.model_fields[name].default:
                yield f"{key}.{name}: {encoder.source} gives only vectors, so this key does not apply; remove it"
    if encoder.sentences and not is_table:
        yield f"{key}.sentences: {encoder.source} is no .npy, so this key does not apply; remove it"


def refuse(found: Sequence[str]) -> None:
    """Raise the first of some problems, with the number of the others.

    :raises InputError: when there is one.
    """
    if found:
        raise InputError(first_of(found))


def warn_of_likely_mistakes(recipe: Recipe) -> None:
    """Warn of languages that a released teacher was not made for, and of an assistant that nothing reads."""
    source = recipe.teacher.source if recipe.teacher else ""
    if source.startswith(RELEASED):
        known = read_manifest(released_folder(source.removeprefix(RELEASED))).get("languages", [])
        if unknown := [language for language in recipe.languages if language not in known]:
            warn(f"teacher.source: {source} was not made for {', '.join(unknown)}; take a teacher that knows them")
    assistant = recipe.assistant
    if assistant and assistant.layers_from and not assistant.gives_only_vectors:
        warn(f"assistant.source: {assistant.source} is not used, as layers_from takes its place; make that the source")


def local_encoders(recipe: Recipe) -> dict[str, EncoderSection]:
    """Return the encoders of a recipe whose files are on this machine, by key."""
    return {
        key: encoder
        for key, encoder in recipe.encoders.items()
        if not encoder.gives_only_vectors and as_path(encoder.source).exists()
    }


def check_outside(recipe: Recipe, folder: Path) -> None:
    """Refuse a model inside the run folder, which the run replaces.

    :raises InputError: naming the key.
    """
    for key, encoder in recipe.encoders.items():
        path = as_path(encoder.source)
        is_elsewhere = encoder.source.startswith((PYTHON, RELEASED, "wheel:"))  # none of them a path
        is_local = not is_elsewhere and (looks_like_path(encoder.source) or path.exists())
        # pathlib raises an error for a loop of links, which is refused elsewhere
        if is_local and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
            raise InputError(f"{key}.source: {encoder.source} is inside the run folder; choose another --run")


def _source_problems(source: str, missing: bool) -> Iterator[str]:
    if source.startswith(PYTHON):
        if not PYTHON_REFERENCE.fullmatch(source):
            yield f"{source}: not of the form {PYTHON}package.module:name"
    elif source.startswith(RELEASED):
        try:
            released_folder(source.removeprefix(RELEASED))
        except InputError as error:
            yield str(error)
    elif source.startswith("wheel:") or looks_like_path(source):  # else a hub id, or a folder of that name
        yield from _reference_problems(source, missing)


def _folder_problems(key: str, encoder: EncoderSection) -> Iterator[str]:
    """Check a local folder, and compare `sha256` and `shape` with it, as far as that takes no reading of weights."""
    folder = as_path(encoder.source)
    if not folder.is_dir():
        return
    if not any((folder / name).is_file() for name in ("modules.json", "config.json", "adapter_config.json")):
        yield f"{key}.source: {encoder.source} holds neither modules.json nor config.json; name a model's folder"
        return
    try:
        check_model_folder(folder, key, trust_remote_code=encoder.trust_remote_code, only_read=True)
    except InputError as error:
        yield str(error)
    if isinstance(encoder.sha256, str):
        advice = "give the digests of files inside it by name, or leave sha256 out"
        yield f"{key}.sha256: {encoder.source} is a folder; {advice}"
    found = shape_of(encoder.model_copy(update={"shape": None})) if encoder.shape else None
    for name, size in found or ():
        if (stated := getattr(encoder.shape, name)) not in (size, None):
            advice = "correct one of them, or leave shape out"
            yield f"{key}.shape.{name}: is {stated}, but {encoder.source} has {size}; {advice}"


def _format_problems(key: str, reference: str) -> Iterator[str]:
    """Check that a folder is named where one is needed, and text that is read, by its suffix."""
    path = as_path(reference)
    if key.startswith(_FOLDERS):
        if path.is_file():
            yield f"{reference}: is a file; name a folder"
    elif path.is_dir():
        yield f"{reference}: is a folder; name a file"
    elif key.startswith("labelled."):
        try:
            table_kind(Path(reference))
        except InputError as error:
            yield str(error)
    elif (other := _OTHER_FORMAT.search(reference)) and key.startswith(("corpus.", "monolingual.")):
        pairs = "parallel text is english<TAB>translation, without header and quotes: write it so, as .tsv"
        text = pairs if key.startswith("corpus.") else "this text is one sentence per line: write it so, as .txt"
        yield f"{reference}: is a {other[0]} file; {text}"


def _reference_problems(reference: str, missing: bool) -> Iterator[str]:
    for part in parts_of(reference):
        try:
            if part.startswith("wheel:"):
                if parse_wheel(part).folder.is_dir():  # it was fetched before
                    resolve(part)
            elif missing and not as_path(part).exists():
                start = "" if as_path(part).is_absolute() else f" (relative paths start in {Path.cwd()})"
                yield f"{part}: no such file or folder; put it there, or give another path{start}"
            elif as_path(part).is_char_device() or as_path(part).is_block_device():
                yield f"{part}: {DEVICE}"
        except InputError as error:
            yield str(error)
