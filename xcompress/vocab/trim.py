"""Trim a model's folder to the tokens that some languages or texts use: `xcompress trim`."""

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer

import xcompress
from xcompress import console
from xcompress.bundle.manifest import CARD, MANIFEST, is_export
from xcompress.bundle.released import refuse_bundle
from xcompress.errors import InputError
from xcompress.files import prepare_target, read_mapping, whole_folder, write_json
from xcompress.modeling.bounds import check_ids
from xcompress.modeling.load import import_encoder, is_student
from xcompress.modeling.st_folder import WEIGHTS, folders_of, is_lowercased, is_pipeline, load_weights, weights_files
from xcompress.modeling.tokenizer import SETTINGS, known_to_both, lowercase, named_tokens, open_tokenizer
from xcompress.runtimes import GRAPH_FOLDERS
from xcompress.sources import resolve
from xcompress.sources.model_folder import MODULES, NORMALIZE, PROMPTS, check_paths, read_modules, read_prompts
from xcompress.tokenizer_file import prefix_problem, tokenizer_to_json
from xcompress.vocab.choose import VocabularyReport, choose_tokens
from xcompress.vocab.count import check_languages, count_words_and_files
from xcompress.vocab.student import encode_ids, trim_student
from xcompress.vocab.tokenizer_json import renumber

RECORD = "trim.json"
"""The report of `trim_model` in the folder that it writes."""
TOKEN_EMBEDDINGS = (
    "word_embeddings.weight",
    "tok_embeddings.weight",
    "embed_tokens.weight",
    "wte.weight",
    "shared.weight",
)
_OUTPUT_LAYER = re.compile(r"(^|[._])(predictions|lm_head|vocab_projector|decoder)\.")
_OTHER_VOCABULARIES = {
    *("vocab.txt", "vocab.json", "merges.txt", "added_tokens.json", "unigram.json"),
    *("sentencepiece.bpe.model", "sentencepiece.model", "spiece.model", "spm.model", "tokenizer.model"),
}
"""Other formats of the vocabulary, which would contradict tokenizer.json."""
_OTHER_WEIGHTS = {".bin", ".ckpt", ".h5", ".msgpack", ".onnx", ".ot", ".pt", ".pth", ".safetensors", ".gguf", ".tflite"}
_MAX_ID = 2**32
_MAX_FIXED_PADDING = 1000
"""Padding keeps its id up to this one, as that keeps the tokens in front of it, too."""


@dataclass(frozen=True)
class TrimReport:
    """A model before and after trimming; the fields are keys of trim.json."""

    model: str
    output: str
    rows_before: int
    """Rows of the token embeddings, which may be more than the tokens."""
    rows_after: int
    bytes_before: int
    """Size of the weights, in one file or several."""
    bytes_after: int
    left_out: tuple[str, ...]
    """Files with the old weights or the old vocabulary in other formats."""
    vocabulary: VocabularyReport

    def show(self) -> None:
        """Print a table."""
        rows = [
            ("rows of the token embeddings", f"{self.rows_before:,}", f"{self.rows_after:,}"),
            ("MB of the weights", f"{self.bytes_before / 1e6:.1f}", f"{self.bytes_after / 1e6:.1f}"),
        ]
        for text in self.vocabulary.held_out:
            name = f"{text.name}, held out ({text.words:,} words)"
            unknown = f"{text.unknown_before:.3%}", f"{text.unknown_after:.3%}"
            length = f"{text.pieces_per_word_before:.2f}", f"{text.pieces_per_word_after:.2f}"
            rows += [(f"{name}: unknown tokens", *unknown), (f"{name}: tokens per word", *length)]
        console.table(self.output, ["", "before", "after"], rows)


@dataclass(frozen=True)
class _TrimmableModel:
    """An open model of any kind."""

    tokenizer: Tokenizer
    """It lower-cases where the model does; padding and truncation may be turned off."""
    rows: int
    """Rows of the token embeddings."""
    needed: set[int]
    """Ids to keep whatever the counts."""
    write: Callable[[tuple[int, ...], Path], list[str]]
    """Write the model with the tokens of ascending ids into a folder; return the names of files left out."""


def trim_model(
    model: str,
    output: Path | None = None,
    *,
    languages: Sequence[str] = (),
    texts: Sequence[Path] = (),
    size: int | None = None,
    min_count: int = 1,
    prefixes: Sequence[str] = (),
) -> TrimReport:
    """Write a model with only the tokens, and token embeddings, that languages or texts use.

    :param model: a folder of xcompress, transformers or sentence-transformers, or a reference to one.
    :param output: the folder to write; default: `<model>-<languages>` in the current folder.
    :param languages: ISO 639-1 codes; the frequent words of each are counted.
    :param texts: text files to count, too.
    :param size: keep at most this many of the tokens seen.
    :param min_count: keep tokens that are seen at least this often.
    :param prefixes: texts such as `query: ` that will stand in front of sentences; their tokens are kept. Those that
        the folder names are known: the prompts of sentence-transformers, and a student's prefix.
    :raises InputError: when the model cannot be trimmed, there is nothing to count, a prefix cannot be printed, or the
        folder cannot be written.
    """
    if not languages and not texts:
        raise InputError("trim: neither languages nor text is given; add --languages de,en or --text FILE, or both")
    check_languages(languages)
    for prefix in prefixes:
        if problem := prefix_problem(prefix):
            raise InputError(f"prefix: {problem}; give another")
    refuse_bundle(model)
    source = resolve(model)
    name = model.rstrip("/").split("/")[-1].partition("@")[0] or "model"
    target = output or Path("-".join([name, *(languages or ["trimmed"])]))
    target = prepare_target(target)
    _check_target(target, source)
    trimmable = _open_trimmable(source)
    counts = count_words_and_files(trimmable.tokenizer, languages, texts)
    needed = trimmable.needed | _token_ids(trimmable.tokenizer, prefixes)
    choice = choose_tokens(trimmable.tokenizer, counts, size=size, min_count=min_count, needed=needed)
    with whole_folder(target) as folder:
        left_out = trimmable.write(choice.ids, folder)
        rows, sizes = (trimmable.rows, len(choice.ids)), (_bytes_of_weights(source), _bytes_of_weights(folder))
        report = TrimReport(model, str(target), *rows, *sizes, tuple(left_out), choice.report)
        write_json(folder / RECORD, {"xcompress": xcompress.__version__, **asdict(report)})
    if left_out:
        console.say(f"left out, as they hold the old vocabulary: {', '.join(left_out)}")
    return report


def _check_target(target: Path, source: Path) -> None:
    target_path, source_path = target.resolve(), source.resolve()
    if target_path == source_path or target_path in source_path.parents or source_path in target_path.parents:
        raise InputError(f"{target}: overlaps the model's own folder {source}; name another folder with --output")
    if target.is_file():
        raise InputError(f"{target}: is a file; name a folder with --output")
    if target.is_dir() and any(target.iterdir()) and not (target / RECORD).is_file():
        raise InputError(f"{target}: is not empty and was not written by trim; name another folder with --output")


def _open_trimmable(source: Path) -> _TrimmableModel:
    if not source.is_dir():
        raise InputError(f"{source}: is a file; give a model's folder")
    if is_student(source / "student") and not (source / "config.json").exists():
        raise InputError(f"{source}: is a run; give its student, {source / 'student'}")
    check_paths(source)
    if is_student(source):
        return _open_student(source)
    model = _open_folder(source)
    return _TrimmableModel(
        model.tokenizer,
        rows=model.shapes[model.token_embeddings][0],
        needed=_needed_ids(model),
        write=partial(_write_folder, model),
    )


def _open_student(source: Path) -> _TrimmableModel:
    student, tokenizer = import_encoder(source)

    def write(ids: tuple[int, ...], folder: Path) -> list[str]:
        trimmed, trimmed_tokenizer = trim_student(student, tokenizer, ids)
        trimmed.save(folder, trimmed_tokenizer)
        for name in (PROMPTS, CARD):  # prompts and similarity, and languages
            if (source / name).is_file():
                shutil.copyfile(source / name, folder / name)
        return []

    prompts = [student.config.prefix, *read_prompts(source).values()]
    needed = {student.config.pad_token_id} | _token_ids(tokenizer, prompts)
    return _TrimmableModel(tokenizer, student.config.vocab_size, needed, write)


def _bytes_of_weights(folder: Path) -> int:
    return sum(file.stat().st_size for file in weights_files(folders_of(folder)[0]))


def _token_ids(tokenizer: Tokenizer, texts: Sequence[str]) -> set[int]:
    """Return the ids of the tokens in texts."""
    ids, _ = encode_ids(tokenizer, texts)
    return set(ids.tolist())


@dataclass(frozen=True)
class _ModelFolder:
    """A folder of transformers or sentence-transformers, and the parts of it that depend on the vocabulary."""

    folder: Path
    encoder: Path
    """Folder of config.json, the weights and the tokenizer: `folder`, or one inside of it."""
    config: Mapping[str, Any]
    tokenizer: Tokenizer
    """It lower-cases where sentence-transformers does."""
    tokenizer_json: Mapping[str, Any]
    """The tokenizer's settings as in the file, with padding and truncation."""
    weights: Sequence[Path]
    """Paths of the weights, one file or several."""
    shapes: Mapping[str, tuple[int, ...]]
    """Shapes of all weights."""
    token_embeddings: str
    """Name of the token embeddings."""


def _open_folder(folder: Path) -> _ModelFolder:
    """Read a folder's configuration, tokenizer and the shapes of its weights, and check that they fit together."""
    encoder = folders_of(folder)[0]  # of older sentence-transformers, a folder inside this one
    missing = [name for name in ("config.json", "tokenizer.json") if not (encoder / name).is_file()]
    if missing:
        raise InputError(
            f"{encoder}: no {', '.join(missing)} here; give a model's folder with a tokenizer.json (save the tokenizer "
            "once with transformers if there is none)"
        )
    config, files = read_mapping(encoder / "config.json"), weights_files(encoder)
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as weights:
                shapes |= {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
        except Exception as error:
            raise InputError(f"{file}: not a safetensors file ({error}); fetch it again") from error
    # find the token embeddings
    rows = config.get("vocab_size", 0)
    candidates = [name for name in shapes if name.endswith(TOKEN_EMBEDDINGS)]
    matches = [name for name in candidates if shapes[name][:1] == (rows,)]
    if len(matches) != 1:
        listed = ", ".join(f"{name} {list(shapes[name])}" for name in candidates) or "none of such a name"
        raise InputError(
            f"{encoder}: {len(matches)} token embeddings (*{', *'.join(TOKEN_EMBEDDINGS)}) have the {rows} "
            f"rows that config.json gives as vocab_size, expected one; there are {listed}"
        )
    tokenizer = open_tokenizer(encoder / "tokenizer.json", rows)
    check_ids(tokenizer, rows, encoder)
    tokenizer_json = tokenizer_to_json(tokenizer)
    # these settings stay in their own files, so the tokenizer.json to write does not change
    settings = encoder / SETTINGS
    tokenizer.encode_special_tokens = settings.is_file() and bool(read_mapping(settings).get("split_special_tokens"))
    if is_lowercased(encoder):
        lowercase(tokenizer)
    return _ModelFolder(folder, encoder, config, tokenizer, tokenizer_json, files, shapes, matches[0])


def _needed_ids(model: _ModelFolder) -> set[int]:
    """Collect the ids that the files around the tokenizer name, or whose number matters.

    RoBERTa, MPNet and similar models count positions from the padding's id. So it stays the same where that costs
    little: the ids in front of it are kept.
    """
    # tokens that the tokenizer's settings name
    files = [model.encoder / name for name in ("tokenizer_config.json", "special_tokens_map.json")]
    names = [name for file in files if file.is_file() for name in named_tokens(read_mapping(file))]
    named = {model.tokenizer.token_to_id(name) for name in names} - {None}
    # ids that config.json names
    used = {number for key, value in model.config.items() for number in _config_token_ids(key, value)}
    padding = model.config.get("pad_token_id")
    if isinstance(padding, int) and padding <= _MAX_FIXED_PADDING:
        used |= set(range(padding))
    # tokens of prompts
    in_prompts = _token_ids(model.tokenizer, list(read_prompts(model.folder).values()))
    return named | in_prompts | {number for number in used if model.tokenizer.id_to_token(number) is not None}


def _config_token_ids(key: str, value: object) -> list[int]:
    """Return the token ids in an entry of config.json."""
    if not key.endswith("_token_id"):
        return []
    values = value if isinstance(value, list) else [value]
    return [number for number in values if isinstance(number, int) and 0 <= number < _MAX_ID]


def _write_folder(model: _ModelFolder, ids: tuple[int, ...], target: Path) -> list[str]:
    """Write the model with only the tokens of ascending ids, and return the names of files left out."""
    new_ids = {old: new for new, old in enumerate(ids)}
    left_out = _copy_other_files(model, target)
    encoder = target / model.encoder.relative_to(model.folder)
    tokenizer_json = renumber(model.tokenizer_json, new_ids)
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json, ensure_ascii=False))
    # the library has rules of its own for the ids of added tokens: refuse a tokenizer that would read other rows
    added_tokens = model.tokenizer.get_added_tokens_decoder()
    moved = [
        token.content for old, token in added_tokens.items() if tokenizer.token_to_id(token.content) != new_ids[old]
    ]
    if moved:
        raise InputError(
            f"{model.encoder}: the ids of {', '.join(moved[:5])} cannot be kept in order; it cannot be trimmed"
        )
    tokenizer.save(str(encoder / "tokenizer.json"))
    _rewrite(encoder / "tokenizer_config.json", lambda settings: _renumber_settings(settings, tokenizer_json))
    for name in ("config.json", "generation_config.json"):
        _rewrite(encoder / name, lambda config: _renumber_config(config, new_ids))
    if is_pipeline(model.folder):  # every version of sentence-transformers knows its classes by their oldest names
        modules = read_modules(model.folder)
        portable = [{**one, "type": one["type"].replace(NORMALIZE, "sentence_transformers.models")} for one in modules]
        write_json(target / MODULES, portable)
    _write_weights(model, ids, encoder / WEIGHTS)
    return left_out


def _copy_other_files(model: _ModelFolder, target: Path) -> list[str]:
    """Copy everything but hidden files and the old weights and vocabulary; return the names of what is left out.

    The manifest of `export --format hf` is not copied: it has the hashes of the old files.
    """
    left_out = set()
    manifest = model.folder / MANIFEST if is_export(model.folder) else None
    for file in sorted(path for path in model.folder.rglob("*") if path.is_file()):
        relative = file.relative_to(model.folder)
        if file in model.weights:
            continue
        if outdated := _outdated_name(file, model):
            left_out.add(outdated)
        is_hidden = any(part.startswith(".") for part in relative.parts)
        if not (outdated or is_hidden or file == manifest):
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / relative)
    return sorted(left_out)


def _outdated_name(file: Path, model: _ModelFolder) -> str | None:
    """Return the path, in the model's folder, of a file with the old weights or vocabulary, or of its format's folder.

    These are beside the encoder's files, or in the root. Other modules keep their weights.
    """
    place = model.encoder if file.is_relative_to(model.encoder) else model.folder
    first, *rest = file.relative_to(place).parts
    if rest:
        is_outdated = first in GRAPH_FOLDERS
    else:
        is_weights = file.suffix in _OTHER_WEIGHTS or first.endswith(".safetensors.index.json")
        is_second_tokenizer = first == "tokenizer.json" and place != model.encoder
        is_outdated = is_weights or is_second_tokenizer or first in _OTHER_VOCABULARIES
    name = (place / first).relative_to(model.folder).as_posix()
    return f"{name}{'/' if rest else ''}" if is_outdated else None


def _rewrite(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    if path.is_file():
        write_json(path, change(read_mapping(path)))


def _renumber_settings(settings: Mapping[str, Any], tokenizer_json: Mapping[str, Any]) -> dict[str, Any]:
    """Give the added tokens of tokenizer_config.json their new ids; leave out those that the tokenizer lacks."""
    settings = known_to_both(settings)
    added_tokens = settings.get("added_tokens_decoder")
    if not added_tokens:  # an empty list, too
        return settings
    ids = {token["content"]: token["id"] for token in tokenizer_json["added_tokens"]}
    tokens = [token for token in added_tokens.values() if token["content"] in ids]
    tokens.sort(key=lambda token: ids[token["content"]])
    return {**settings, "added_tokens_decoder": {str(ids[token["content"]]): token for token in tokens}}


def _renumber_config(config: Mapping[str, Any], new_ids: Mapping[int, int]) -> dict[str, Any]:
    """Give a configuration the new token ids; ids without a token, and what is no id, become null."""

    def new_id(old: object) -> int | None:
        return new_ids.get(old) if isinstance(old, int) else None

    changes: dict[str, Any] = {"vocab_size": len(new_ids)} if "vocab_size" in config else {}
    for key, value in config.items():
        if _config_token_ids(key, value):
            changes[key] = [new_id(old) for old in value] if isinstance(value, list) else new_id(value)
    return {**config, **changes}


def _write_weights(model: _ModelFolder, ids: tuple[int, ...], path: Path) -> None:
    """Write the weights with only the kept rows of the token embeddings and of a masked language model's output."""
    rows_before = model.shapes[model.token_embeddings][0]
    outputs = [
        name for name, shape in model.shapes.items() if shape[:1] == (rows_before,) and _OUTPUT_LAYER.search(name)
    ]
    weights = load_weights(model.encoder)
    rows = torch.tensor(ids)
    trimmed = {name: weights[name].index_select(0, rows) for name in [model.token_embeddings, *outputs]}
    with safe_open(model.weights[0], framework="pt") as opened:
        metadata = opened.metadata() or {"format": "pt"}
    save_file({**weights, **trimmed}, path, metadata=metadata)
