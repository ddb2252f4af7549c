"""Open encoders of other libraries as a `Student` with M = their layers, R = 1 and no bottleneck."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, get_args

import torch
from tokenizers import Tokenizer
from torch import Tensor

from xcompress import console
from xcompress.errors import InputError
from xcompress.files import read_json, read_mapping
from xcompress.modeling.architectures import (
    BERT_NAMES,
    WeightNames,
    gemma_weights,
    load_state,
    read_architecture,
    to_student_names,
)
from xcompress.modeling.bounds import check_fits, check_ids
from xcompress.modeling.e5s1 import is_e5s1, read_e5s1
from xcompress.modeling.layers import Uninitialized
from xcompress.modeling.rotary_config import ROTARY_BERTS
from xcompress.modeling.st_folder import (
    LARGEST_HEAD,
    Head,
    Pipeline,
    folders_of,
    is_lowercased,
    is_pipeline,
    load_weights,
    longest_text,
    read_pipeline,
    truncated_dimension,
    weights_files,
)
from xcompress.modeling.student import Pooling, Student, StudentConfig
from xcompress.modeling.tokenizer import SETTINGS, lowercase, open_tokenizer
from xcompress.sources.model_folder import MODULES, PROMPTS, STUDENT, check_model_folder, read_modules, read_prompts
from xcompress.tokenizer_file import as_value_error, encode_batch

MIN_TEXT_TOKENS = 3
"""Tokens of the shortest text: a token between the first and the last special token."""
_RARE_LETTERS = "\U00010000 \u16a0 \ua000 \U00012000"
"""Of Linear B, Runic, Yi and Cuneiform, which few vocabularies have."""
_NEIGHBOURS = 1000
"""Tokens between which the padding is put, to see whether a text can have it."""
_IN_PYTHON_ALONE = ("BertJapaneseTokenizer", "BertweetTokenizer", "PhobertTokenizer")
"""Tokenizers of transformers that split words in Python, which no tokenizer.json can hold."""
_OTHER_VOCABULARIES = ("vocab.txt", "sentencepiece.bpe.model", "vocab.json", "spiece.model", "tokenizer.model")


def import_encoder(
    path: Path,
    tokenizer: Path | None = None,
    *,
    prefix: str = "",
    pooling: str | None = None,
    max_tokens: int | None = None,
    trust_remote_code: bool = False,
) -> tuple[Student, Tokenizer]:
    """Open an encoder as a `Student` that gives the same vectors.

    :param path: a student's folder; a sentence-transformers folder (Transformer, Pooling, Dense, Normalize); a folder
        with only config.json and weights of one of `ARCHITECTURES`, whose vectors are normalised; or an E5S1 file
        (4-bit BERT).
    :param tokenizer: a tokenizer.json; required where the model has none.
    :param prefix: text in front of every sentence; default: the model's default prompt.
    :param pooling: mean, cls or lasttoken, where the model does not say; default: mean.
    :param max_tokens: longer texts are truncated; default, and upper limit: the model's own.
    :param trust_remote_code: whether the folder may name code, as some do whose layers are known; none is run here.
    :raises InputError: when the model is not supported, is damaged, names code, or has no tokenizer.
    """
    if path.is_dir():
        check_model_folder(path, trust_remote_code=trust_remote_code, only_read=True)
    if is_student(path):
        with Uninitialized():
            student, student_tokenizer = Student.load(path)
        _check_student_alone(path, student.config)
        return student, student_tokenizer
    if is_e5s1(path):
        config, weights = read_e5s1(path)
        config = replace(config, prefix=prefix, pooling=_choose_pooling(path, None, pooling))
        config = replace(config, max_tokens=_choose_max_tokens(config, None, max_tokens))
        transformer, state = path, to_student_names(weights, BERT_NAMES, config.unit_layers)
    else:
        described = describe(path, prefix=prefix, pooling=pooling, max_tokens=max_tokens)
        config, transformer, head = described.config, described.transformer, described.head
        if pooling is None and not is_pipeline(path):
            console.warn(f"{path}: no modules.json names the pooling; using the mean of the token vectors")
        weights = load_weights(transformer)
        if config.rotary_bert and any(".self_attn." in name for name in weights):
            raise InputError(
                f"{transformer}: its weights have names that only the code of transformers 5 knows; open it with "
                "transformers 5, and save it again with save_pretrained(folder, save_original_format=True)"
            )
        state = to_student_names(weights, described.names, config.unit_layers)
        state = gemma_weights(state, config) if config.gemma else state
        state |= {"head.weight": head.weight, "head.bias": head.bias} if head else {}
    check_fits(vars(config), sum(map(Tensor.numel, state.values())), transformer)
    with Uninitialized():
        student = Student(config)
    load_state(student, state, transformer)
    own_tokenizer = open_own_tokenizer(transformer, tokenizer, config.vocab_size)
    if config.position_offset:
        _check_padding_is_in_no_text(own_tokenizer, config.position_offset - 1, transformer)
    return student.eval(), own_tokenizer


@dataclass(frozen=True)
class Description:
    """All about the folder of an encoder of another library but its weights."""

    config: StudentConfig
    names: WeightNames
    transformer: Path
    """Folder of the encoder and its tokenizer."""
    head: Head | None


def describe(path: Path, *, prefix: str = "", pooling: str | None = None, max_tokens: int | None = None) -> Description:
    """Read what the files of an encoder say about it, but not its weights.

    The parameters are those of `import_encoder`.

    :raises InputError: when a `Student` cannot express the encoder, or a file is damaged.
    """
    pipeline = read_pipeline(path) if is_pipeline(path) else Pipeline(path)
    file = pipeline.transformer / "config.json"
    config, architecture = read_architecture(read_mapping(file), file)
    head = _cut_head(pipeline, config.hidden_size)
    config = replace(
        config,
        prefix=prefix or pipeline.prefix,
        pooling=_choose_pooling(path, pipeline.pooling, pooling),
        normalize=pipeline.normalize,
        head_size=len(head.bias) if head else None,
        head_activation=head.activation if head else None,
        max_tokens=_choose_max_tokens(config, longest_text(pipeline.transformer), max_tokens),
    )
    prompts = [] if pipeline.pools_prompt else [config.prefix, *read_prompts(path).values()]
    if prompt := next(filter(None, prompts), None):
        raise InputError(
            f"{path}: leaves the tokens of the prompt {prompt!r} out of its pooling, which is not supported; choose "
            "another model"
        )
    return Description(config, architecture.names, pipeline.transformer, head)


def _cut_head(pipeline: Pipeline, width: int) -> Head | None:
    """Return the head that gives the first `truncate_dim` dimensions alone, where the model keeps no more."""
    head, kept = pipeline.head, pipeline.dimension
    if kept is None or kept >= (len(head.bias) if head else width):
        return head
    if head is None:
        if kept * width > LARGEST_HEAD:
            raise InputError(
                f"{pipeline.transformer}: {width:,} dimensions are too many to be cut; choose another model"
            )
        head = Head(torch.eye(kept, width), torch.zeros(kept), None)
    return replace(head, weight=head.weight[:kept], bias=head.bias[:kept])


def is_student(path: Path) -> bool:
    """Tell whether a folder holds a student of xcompress."""
    config = read_json(path / "config.json") if (path / "config.json").is_file() else None
    return isinstance(config, dict) and config.get("model_type") == STUDENT


def is_rotary_bert(path: Path) -> bool:
    """Tell whether a folder holds a GTE, jina-embeddings-v3 or nomic-embed-text: BERT with rotary positions."""
    file = folders_of(path)[0] / "config.json"
    return file.is_file() and str(read_mapping(file).get("model_type")) in ROTARY_BERTS


def _check_student_alone(folder: Path, config: StudentConfig) -> None:
    """Refuse what sentence-transformers does with the vectors of a student, as it would be left out.

    :raises InputError: when modules.json has another module that does something, or vectors are shortened.
    """
    idle = ("Dropout", "Normalize") if config.normalize else ("Dropout",)
    for module in read_modules(folder)[1:] if is_pipeline(folder) else ():
        if module["type"].rpartition(".")[2] not in idle:
            raise InputError(
                f"{folder / MODULES}: module {module['type']} behind a student is not supported; train the student "
                "without it"
            )
    kept = truncated_dimension(folder)
    if kept is not None and kept < config.dimension:
        raise InputError(
            f"{folder / PROMPTS}: truncate_dim is {kept}, which is not applied to a student; remove it, and export "
            f"with --dim {kept} --shorten slice"
        )


def files_of(path: Path) -> list[Path]:
    """List the files that `import_encoder` may read to open an encoder of another library."""
    files: set[Path] = set()
    for folder in {path, *folders_of(path)} if path.is_dir() else ():
        files |= {file for file in folder.glob("*.json") if file.is_file()}
        with suppress(InputError):  # of a folder without weights
            files |= set(weights_files(folder))
    return sorted(files) or [path]


def check_files(path: Path, tokenizer: Path | None = None) -> None:
    """Check that an encoder of another library is supported and complete, without reading its weights.

    :raises InputError: when it is not.
    """
    transformer = path
    if not is_e5s1(path):
        transformer = describe(path).transformer
        weights_files(transformer)
    tokenizer_file(transformer, tokenizer)


def tokenizer_file(path: Path, named: Path | None = None) -> Path:
    """Return the named tokenizer.json, or the one in the encoder's folder.

    :raises InputError: when there is none.
    """
    file = named or (path / "tokenizer.json" if path.is_dir() else None)
    if file is not None and file.is_file():
        return file
    problem = f"{path}: brings no tokenizer" if file is None else f"{file}: no such file"
    vocabularies = [name for name in _OTHER_VOCABULARIES if (path / name).is_file()]
    if not vocabularies:
        raise InputError(f"{problem}; name the tokenizer.json that belongs to this model")
    settings = path / SETTINGS
    if settings.is_file() and (name := read_mapping(settings).get("tokenizer_class")) in _IN_PYTHON_ALONE:
        raise InputError(
            f"{problem}, and none can be made of a {name}; choose another encoder, or take this one as the teacher of "
            "a recipe"
        )
    raise InputError(
        f"{problem}; make it from {vocabularies[0]} with transformers: "
        f"AutoTokenizer.from_pretrained({str(path)!r}).save_pretrained({str(path)!r})"
    )


def _choose_pooling(path: Path, of_model: str | None, requested: str | None) -> Pooling:
    """Take the model's pooling, else the caller's, else the mean; refuse a contradiction."""
    if of_model and requested and of_model != requested:
        raise InputError(f"{path}: pooling {requested!r} requested, but the model declares {of_model!r}; leave it out")
    pooling = of_model or requested
    if pooling not in (*get_args(Pooling), None):
        advice = "choose another model" if of_model else "choose one of them"
        raise InputError(f"{path}: pooled by {pooling!r}, only {', '.join(get_args(Pooling))} are supported; {advice}")
    return cast(Pooling, pooling or "mean")


def _choose_max_tokens(config: StudentConfig, of_model: int | None, requested: int | None) -> int:
    """Take the lowest of the requested limit, the model's, and the number of positions."""
    if requested is not None and requested < MIN_TEXT_TOKENS:
        raise InputError(f"max_tokens: {requested} is too few for a text; give at least {MIN_TEXT_TOKENS}")
    positions = config.max_position_embeddings - config.position_offset
    chosen = min(limit for limit in (positions, of_model, requested) if limit is not None)
    if chosen < MIN_TEXT_TOKENS:
        raise InputError(f"max_seq_length: {chosen} is too few for a text; set at least {MIN_TEXT_TOKENS} in the model")
    return chosen


def _check_padding_is_in_no_text(tokenizer: Tokenizer, padding: int, transformer: Path) -> None:
    """Check that the padding of RoBERTa or MPNet is no token of a text or around one: they give it no position.

    :raises InputError: when it is one, so that the tokens behind it would have other positions than in a `Student`.
    """
    tokenizer.no_padding()
    texts = [_RARE_LETTERS]
    with suppress(ValueError), as_value_error():  # a decoder may fail
        texts.append(tokenizer.decode([padding]))  # empty for a special token
        # a token such as ##ing comes only inside a word: put it between others, some of which leave it as it is
        others = range(0, tokenizer.get_vocab_size(), max(1, tokenizer.get_vocab_size() // _NEIGHBOURS))
        texts += tokenizer.decode_batch([[other, padding, other] for other in others])
    if any(padding in encoding.ids for encoding in encode_batch(tokenizer, texts)):
        raise InputError(
            f"{transformer}: the tokenizer gives the id {padding} to {tokenizer.id_to_token(padding)!r}, but the model "
            "takes it for padding and gives it no position; give the tokenizer.json that came with the weights, or "
            "choose another model"
        )


def open_own_tokenizer(transformer: Path, named: Path | None, rows: int) -> Tokenizer:
    """Open an encoder's tokenizer.json; it lower-cases where sentence-transformers does.

    :param transformer: the encoder's folder or file.
    :param named: the tokenizer.json of an encoder without one.
    :param rows: V, rows of the token embeddings.
    :raises InputError: when it cannot be read, does not fit the embeddings, or keeps the end of a long text.
    """
    file = tokenizer_file(transformer, named)
    tokenizer = open_tokenizer(file, rows)
    check_ids(tokenizer, rows, file)
    file_of_settings = file.with_name(SETTINGS)
    settings = read_mapping(file_of_settings) if file_of_settings.is_file() else {}
    if settings.get("split_special_tokens"):
        raise InputError(
            f"{file_of_settings}: split_special_tokens is set, which no tokenizer.json can hold; choose another model, "
            "or remove it there if your texts spell out no special tokens"
        )
    side = settings.get("truncation_side", (tokenizer.truncation or {}).get("direction", "right"))
    if str(side).lower() == "left":
        raise InputError(
            f"{file_of_settings}: truncation_side is 'left', which keeps the end of a long text; xcompress keeps the "
            "start: choose another model, or set it to 'right' there if that suits your texts"
        )
    if is_lowercased(transformer):
        lowercase(tokenizer)
    return tokenizer
