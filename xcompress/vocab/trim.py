"""`xcompress trim`: from a model and languages or text to a folder of the same kind with a smaller vocabulary."""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer

import xcompress
from xcompress import console
from xcompress.errors import InputError
from xcompress.files import read_json, whole_folder, write_json
from xcompress.modeling.student import MODEL_TYPE, Student
from xcompress.sources import resolve
from xcompress.vocab.choose import HeldOut, VocabularyReport, choose_pieces
from xcompress.vocab.count import Counted, check_languages, count_file, count_words
from xcompress.vocab.student import described_by, piece_rows, trim
from xcompress.vocab.tokenizer_json import renumbered

WEIGHTS = "model.safetensors"
TABLES = ("word_embeddings.weight", "tok_embeddings.weight", "embed_tokens.weight", "wte.weight")
_OUTPUT = re.compile(r"(^|[._])(predictions|lm_head|vocab_projector|decoder)\.")
_OLD_VOCABULARIES = {
    *("vocab.txt", "vocab.json", "merges.txt", "added_tokens.json", "unigram.json"),
    *("sentencepiece.bpe.model", "sentencepiece.model", "spiece.model", "spm.model", "tokenizer.model"),
}
"""Other spellings of the vocabulary, which would contradict tokenizer.json."""
_OTHER_WEIGHTS = {".bin", ".h5", ".msgpack", ".onnx", ".ot", ".pt", ".pth", ".ckpt", ".safetensors"}
_OTHER_FORMATS = {"onnx", "openvino", "coreml"}
_FARTHEST_PADDING = 1000


@dataclass(frozen=True)
class Model:
    """A model's folder, and what in it hangs on the vocabulary."""

    folder: Path
    encoder: Path
    """Where config.json, the weights and the tokenizer are: `folder`, or a folder in it."""
    config: Mapping[str, Any]
    tokenizer: Tokenizer
    described: Mapping[str, Any]
    """The tokenizer's JSON as it was found, padding and truncation included."""
    shapes: Mapping[str, tuple[int, ...]]
    """Every tensor's shape."""
    table: str
    """The word table's name."""


def open_model(folder: Path) -> Model:
    """Open a folder to trim it.

    :raises InputError: when a file is missing, there is not exactly one word table, or the tokenizer does not fit it.
    """
    encoder = _encoder_folder(folder)
    config = read_json(encoder / "config.json")
    tokenizer = _open_tokenizer(encoder)
    shapes = _shapes(encoder / WEIGHTS)
    table = _table(encoder, config, shapes)
    if piece_rows(tokenizer) > shapes[table][0]:
        raise InputError(
            f"{encoder}: the tokenizer has ids up to {piece_rows(tokenizer) - 1}, the word table {shapes[table][0]} "
            "rows; they do not belong together, give the tokenizer.json that came with the weights"
        )
    return Model(folder, encoder, config, tokenizer, described_by(tokenizer), shapes, table)


def needed_ids(model: Model) -> set[int]:
    """Choose the ids that the files around the tokenizer name, or need where they are.

    RoBERTa, MPNet and their kin number positions from the id of the padding, so it stays the same where that costs
    little: the ids in front of it are kept.
    """
    names = _named_tokens(model.encoder)
    named = {model.tokenizer.token_to_id(name) for name in names} - {None}
    used = {number for key, value in model.config.items() for number in _token_ids(key, value)}
    padding = model.config.get("pad_token_id")
    if isinstance(padding, int) and padding <= _FARTHEST_PADDING:
        used |= set(range(padding))
    prompts = model.tokenizer.encode_batch(_prompts(model.folder), add_special_tokens=False)
    prompted = {number for prompt in prompts for number in prompt.ids}
    return named | prompted | {number for number in used if model.tokenizer.id_to_token(number) is not None}


def write_trimmed(model: Model, ids: tuple[int, ...], target: Path) -> list[str]:
    """Write the model with the kept pieces only.

    :param ids: ascending ids of the pieces.
    :param target: an empty folder.
    :returns: the files and folders that were left out: other formats of the weights.
    """
    new_ids = {old: new for new, old in enumerate(ids)}
    left_out = _copy_the_rest(model, target)
    inner = target / model.encoder.relative_to(model.folder)
    described = renumbered(model.described, new_ids)
    tokenizer = Tokenizer.from_str(json.dumps(described, ensure_ascii=False))
    _check_ids(model.tokenizer, tokenizer, new_ids, model.encoder)
    tokenizer.save(str(inner / "tokenizer.json"))
    _rewrite(inner / "tokenizer_config.json", lambda config: _tokenizer_config(config, described))
    for name in ("config.json", "generation_config.json"):
        _rewrite(inner / name, lambda config: _config(config, new_ids))
    _save_weights(model, ids, inner / WEIGHTS)
    return left_out


def rows_cut(model: Model) -> list[str]:
    """List the tensors that have a row per piece: the word table, and the output layers of a masked language model."""
    rows = model.shapes[model.table][0]
    outputs = [name for name, shape in model.shapes.items() if shape[:1] == (rows,) and _OUTPUT.search(name)]
    return [model.table, *outputs]


def _encoder_folder(folder: Path) -> Path:
    """Find the transformer, which older sentence-transformers folders hold in a folder of its own."""
    modules = read_json(folder / "modules.json") if (folder / "modules.json").is_file() else []
    inner = [module["path"] for module in modules if module["type"].endswith(".Transformer")]
    encoder = folder / inner[0] if inner else folder
    missing = [name for name in ("config.json", "tokenizer.json", WEIGHTS) if not (encoder / name).is_file()]
    if missing:
        raise InputError(
            f"{encoder}: no {', '.join(missing)} here; give a model's folder with its weights in one {WEIGHTS}, and "
            "with a tokenizer.json (save the tokenizer once with transformers if there is none)"
        )
    return encoder


def _open_tokenizer(encoder: Path) -> Tokenizer:
    """Open tokenizer.json, and add what transformers would add to it on loading."""
    path = encoder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        raise InputError(f"{path}: not a tokenizer.json ({error}); give the one that came with the model") from error
    more = _tokenizer_settings(encoder).get("added_tokens_decoder", {})
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    for _, token in sorted(more.items(), key=lambda entry: int(entry[0])):
        if token["content"] not in {known.content for known in tokenizer.get_added_tokens_decoder().values()}:
            tokenizer.add_tokens(
                [AddedToken(token["content"], **{flag: token[flag] for flag in flags if flag in token})]
            )
    return tokenizer


def _tokenizer_settings(encoder: Path) -> dict[str, Any]:
    path = encoder / "tokenizer_config.json"
    return read_json(path) if path.is_file() else {}


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    try:
        with safe_open(path, framework="pt") as weights:
            return {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
    except Exception as error:
        raise InputError(f"{path}: not a safetensors file ({error}); fetch it again") from error


def _table(encoder: Path, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> str:
    rows = config.get("vocab_size")
    named = [name for name in shapes if name.endswith(TABLES)]
    found = [name for name in named if shapes[name][0] == rows]
    if len(found) != 1:
        others = ", ".join(f"{name} {list(shapes[name])}" for name in named) or "none of such a name"
        raise InputError(
            f"{encoder / WEIGHTS}: {len(found)} word tables (*{', *'.join(TABLES)}) have the {rows} rows that "
            f"config.json gives as vocab_size, expected one; there are {others}"
        )
    return found[0]


def _named_tokens(encoder: Path) -> Iterator[str]:
    """Yield the content of every token that a file beside tokenizer.json names."""
    special = encoder / "special_tokens_map.json"
    for settings in (_tokenizer_settings(encoder), read_json(special) if special.is_file() else {}):
        for name, value in settings.items():
            if name.endswith(("_token", "_tokens")):
                yield from _contents(value)


def _contents(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _contents(value["content"] if "content" in value else list(value.values()))
    elif isinstance(value, list):
        for part in value:
            yield from _contents(part)


def _prompts(folder: Path) -> list[str]:
    path = folder / "config_sentence_transformers.json"
    prompts = (read_json(path) if path.is_file() else {}).get("prompts") or {}
    return [prompt for prompt in prompts.values() if prompt]


def _token_ids(key: str, value: object) -> list[int]:
    """Return the ids that an entry of a configuration holds."""
    values = value if isinstance(value, list) else [value]
    return [number for number in values if isinstance(number, int)] if key.endswith("_token_id") else []


def _config(config: Mapping[str, Any], new_ids: Mapping[int, int]) -> dict[str, Any]:
    """Give a configuration the new token ids; ids that no piece had become null."""
    changed: dict[str, Any] = {"vocab_size": len(new_ids)} if "vocab_size" in config else {}
    for key, value in config.items():
        if _token_ids(key, value):
            changed[key] = [new_ids.get(old) for old in value] if isinstance(value, list) else new_ids.get(value)
    return {**config, **changed}


def _tokenizer_config(config: Mapping[str, Any], described: Mapping[str, Any]) -> dict[str, Any]:
    old = config.get("added_tokens_decoder")
    if old is None:
        return dict(config)
    ids = {token["content"]: token["id"] for token in described["added_tokens"]}
    tokens = sorted(old.values(), key=lambda token: ids[token["content"]])
    return {**config, "added_tokens_decoder": {str(ids[token["content"]]): token for token in tokens}}


def _rewrite(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    if path.is_file():
        write_json(path, change(read_json(path)))


def _check_ids(old: Tokenizer, new: Tokenizer, new_ids: Mapping[int, int], encoder: Path) -> None:
    """Refuse a result that would read other rows; ids of added tokens follow rules of the library's own."""
    names = old.get_added_tokens_decoder()
    moved = [token.content for number, token in names.items() if new.token_to_id(token.content) != new_ids[number]]
    if moved:
        raise InputError(f"{encoder}: the ids of {', '.join(moved[:5])} cannot be kept in order; it cannot be trimmed")


def _save_weights(model: Model, ids: tuple[int, ...], path: Path) -> None:
    import torch

    weights = load_file(model.encoder / WEIGHTS)
    rows = torch.tensor(ids)
    cut = {name: weights[name].index_select(0, rows) for name in rows_cut(model)}
    with safe_open(model.encoder / WEIGHTS, framework="pt") as opened:
        metadata = opened.metadata() or {"format": "pt"}
    save_file({**weights, **cut}, path, metadata=metadata)


def _copy_the_rest(model: Model, target: Path) -> list[str]:
    left_out = set()
    for file in sorted(path for path in model.folder.rglob("*") if path.is_file()):
        relative = file.relative_to(model.folder)
        foreign = _foreign(file, model.encoder)
        if foreign and file != model.encoder / WEIGHTS:
            left_out.add(foreign)
        if not (foreign or any(part.startswith(".") for part in relative.parts)):
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / relative)
    return sorted(left_out)


def _foreign(file: Path, encoder: Path) -> str | None:
    """Name what a file belongs to if it holds the old weights or the old vocabulary."""
    if not file.is_relative_to(encoder):
        return None
    inside = file.relative_to(encoder)
    if inside.parts[0] in _OTHER_FORMATS and len(inside.parts) > 1:
        return f"{inside.parts[0]}/"
    weights = file.suffix in _OTHER_WEIGHTS or file.name.endswith(".safetensors.index.json")
    return file.name if len(inside.parts) == 1 and (weights or file.name in _OLD_VOCABULARIES) else None


RECORD = "trim.json"
"""What a trimmed folder says about how it was made."""


@dataclass(frozen=True)
class Trimmed:
    """A model before and after."""

    model: str
    output: str
    rows_before: int
    """Rows of the word table, of which there may be more than pieces."""
    rows_after: int
    bytes_before: int
    """Of the weights' file."""
    bytes_after: int
    left_out: tuple[str, ...]
    """Files that hold the old weights or the old vocabulary in other formats."""
    vocabulary: VocabularyReport

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON knows them."""
        return asdict(self)

    def show(self) -> None:
        """Print tables."""
        size = f"{self.bytes_before / 1e6:.1f}", f"{self.bytes_after / 1e6:.1f}"
        rows = [
            ("rows of the word table", f"{self.rows_before:,}", f"{self.rows_after:,}"),
            (f"MB of {WEIGHTS}", *size),
        ]
        for text in self.vocabulary.held_out:
            rows += _rates(text)
        console.table(self.output, ["", "before", "after"], rows)


def trim_model(
    model: str,
    output: Path | None = None,
    *,
    languages: Sequence[str] = (),
    texts: Sequence[Path] = (),
    size: int | None = None,
    min_count: int = 1,
) -> Trimmed:
    """Write a model with only the pieces, and rows of its word table, that languages or texts use.

    :param model: a folder of ours, of transformers or of sentence-transformers; or a reference to one.
    :param output: the folder to write; default `<model>-<languages>` here.
    :param languages: ISO 639-1 codes; the frequent words of each are counted.
    :param texts: files of text, which are counted too.
    :param size: how many of the pieces seen are kept at most.
    :param min_count: how often a piece must be seen.
    :raises InputError: when the model cannot be trimmed, there is nothing to count, or the folder cannot be written.
    """
    if not languages and not texts:
        raise InputError("trim: neither languages nor text is given; add --languages de,en or --text FILE, or both")
    source = resolve(model)
    target = output or Path(_name(model, languages))
    _check_target(target, source)
    if languages:
        check_languages(languages)
    opened = _open(source)
    counts = count(opened.tokenizer, languages, texts)
    kept = choose_pieces(opened.tokenizer, counts, size=size, min_count=min_count, needed=opened.needed)
    with whole_folder(target) as folder:
        left_out = opened.write(kept.ids, folder)
        before, after = ((place / opened.weights).stat().st_size for place in (source, folder))
        rows = opened.rows, len(kept.ids)
        trimmed = Trimmed(model, str(target), *rows, before, after, tuple(left_out), kept.report)
        write_json(folder / RECORD, {"xcompress": xcompress.__version__, **trimmed.to_json()})
    if left_out:
        console.say(f"left out, as they hold the old vocabulary: {', '.join(left_out)}")
    return trimmed


def count(tokenizer: Tokenizer, languages: Sequence[str], texts: Sequence[Path]) -> list[Counted]:
    """Count the pieces of languages' frequent words and of files of text.

    :raises InputError: when there is no word list for a language, or a file cannot be read.
    """
    return [count_words(tokenizer, one) for one in languages] + [count_file(tokenizer, path) for path in texts]


@dataclass(frozen=True)
class _Opened:
    """What trimming needs of a model, of whichever kind its folder is."""

    tokenizer: Tokenizer
    rows: int
    needed: set[int]
    weights: Path
    """Where they are in the folder."""
    write: Callable[[tuple[int, ...], Path], list[str]]


def _open(source: Path) -> _Opened:
    if not source.is_dir():
        raise InputError(f"{source}: is a file; give a model's folder")
    config = source / "config.json"
    if config.is_file() and read_json(config).get("model_type") == MODEL_TYPE:
        return _open_student(source)
    model = open_model(source)
    rows, weights = model.shapes[model.table][0], (model.encoder / WEIGHTS).relative_to(source)
    return _Opened(
        model.tokenizer, rows, needed_ids(model), weights, lambda ids, folder: write_trimmed(model, ids, folder)
    )


def _open_student(source: Path) -> _Opened:
    student, tokenizer = Student.load(source)
    prefix = tokenizer.encode(student.config.prefix, add_special_tokens=False).ids

    def write(ids: tuple[int, ...], folder: Path) -> list[str]:
        trimmed, its_tokenizer = trim(student, tokenizer, ids)
        trimmed.save(folder, its_tokenizer)
        return []

    needed = {student.config.pad_token_id, *prefix}
    return _Opened(tokenizer, student.config.vocab_size, needed, Path(WEIGHTS), write)


def _name(model: str, languages: Sequence[str]) -> str:
    last = model.rstrip("/").split("/")[-1].partition("@")[0] or "model"
    return "-".join([last, *(languages or ["trimmed"])])


def _check_target(target: Path, source: Path) -> None:
    here, there = target.resolve(), source.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise InputError(f"{target}: overlaps the model's own folder {source}; name another folder with --output")
    if target.is_file():
        raise InputError(f"{target}: is a file; name a folder with --output")
    if target.is_dir() and any(target.iterdir()) and not (target / RECORD).is_file():
        raise InputError(f"{target}: is not empty and was not written by trim; name another folder with --output")


def _rates(text: HeldOut) -> list[tuple[str, str, str]]:
    where = f"{text.name}, held out ({text.words:,} words)"
    unknown = f"{text.unknown_before:.3%}", f"{text.unknown_after:.3%}"
    length = f"{text.pieces_per_word_before:.2f}", f"{text.pieces_per_word_after:.2f}"
    return [(f"{where}: unknown pieces", *unknown), (f"{where}: pieces per word", *length)]
