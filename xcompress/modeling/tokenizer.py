"""Open the tokenizer.json of an encoder as transformers does: where the files beside it say otherwise, they count."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors

from xcompress.errors import InputError
from xcompress.files import read_mapping
from xcompress.tokenizer_file import clean, id_range, ids_around, read_tokenizer, tokenizer_to_json

SETTINGS = "tokenizer_config.json"
NEWER_CLASS = "TokenizersBackend"
"""The class that transformers 5 names where a tokenizer has none of its own. Version 4.57 does not know it."""
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_BERT_CLASSES = ("Bert", "DistilBert", "Electra", "MPNet", "ConvBert", "MobileBert", "LayoutLM", "SqueezeBert")
"""Classes of tokenizers, without `Tokenizer`, that take the flags of BERT's normalizer from their own settings."""
_CLASS_OF_MODEL = {"bert": "Bert", "ernie": "Bert", "distilbert": "DistilBert", "electra": "Electra", "mpnet": "MPNet"}
"""Such a class by model_type, where no file names one."""
_ENDS = {
    "Llama": ("<s>", "</s>", True),
    "CodeLlama": ("<s>", "</s>", True),
    "Gemma": ("<bos>", "<eos>", True),
    "Cohere": ("<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", True),
    "GPTNeoX": ("<|endoftext|>", "<|endoftext|>", False),
}
"""Classes that put a first and a last token around a text as their own settings say, not as tokenizer.json does: the
tokens where no setting names them, and whether the first one is put there by default. The last one is not."""


def open_tokenizer(file: Path, rows: int) -> Tokenizer:
    """Read a tokenizer.json, and change it as tokenizer_config.json and config.json beside it say.

    :param file: the tokenizer.json. Where it is alone in its folder, it counts as it is.
    :param rows: V, rows of the token embeddings: tokens that are only named get no id beyond them, and special tokens
        with such an id are left out, as EmbeddingGemma has one for images.
    :raises InputError: when a file cannot be read.
    """
    tokenizer = _open_as_transformers_does(file, rows)
    state = tokenizer_to_json(tokenizer) if id_range(tokenizer) > rows else {}
    unused = [token["id"] for token in state.get("added_tokens", []) if token["special"] and token["id"] >= rows]
    if not unused or not ids_around(tokenizer).isdisjoint(unused):
        return tokenizer
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] not in unused]
    return Tokenizer.from_str(json.dumps(state))


def _open_as_transformers_does(file: Path, rows: int) -> Tokenizer:
    tokenizer = read_tokenizer(file)
    settings, config = (_read(file.with_name(name)) for name in (SETTINGS, "config.json"))
    if settings is None and config is None:
        return tokenizer
    settings, config = settings or {}, config or {}
    _add_tokens(tokenizer, settings, file, rows)

    name = settings.get("tokenizer_class") or config.get("tokenizer_class")
    kind = str(name).removesuffix("Fast").removesuffix("Tokenizer") if name else None
    kind = kind or _CLASS_OF_MODEL.get(str(config.get("model_type")))
    if kind in _BERT_CLASSES and isinstance(tokenizer.normalizer, normalizers.BertNormalizer):
        strips_accents = settings.get("strip_accents")
        is_split = tokenizer.normalizer.handle_chinese_chars
        tokenizer.normalizer = normalizers.BertNormalizer(
            clean_text=tokenizer.normalizer.clean_text,
            handle_chinese_chars=is_split if kind == "MPNet" else _flag(settings, "tokenize_chinese_chars", True),
            strip_accents=strips_accents if isinstance(strips_accents, bool) else None,
            lowercase=_flag(settings, "do_lower_case", True),
        )
    if kind in _ENDS:
        tokenizer.post_processor = _ends_around(tokenizer, kind, settings, file)
    if isinstance(tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel):
        state = json.loads(tokenizer.pre_tokenizer.__getstate__())
        del state["type"]
        state["add_prefix_space"] = _flag(settings, "add_prefix_space", False)
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(**state)
    return tokenizer


def _ends_around(tokenizer: Tokenizer, kind: str, settings: Mapping[str, Any], file: Path) -> processors.PostProcessor:
    """Return what puts the first and the last token around a text, for one of the classes `_ENDS`.

    :param file: the tokenizer.json, for error messages.
    :raises InputError: when a token cannot be put there.
    """
    first, last, has_first = _ENDS[kind]
    ends: list[list[str]] = []
    ids: dict[str, int] = {}
    for name, default, is_there in (("bos", first, has_first), ("eos", last, False)):
        token = next(token_contents(settings.get(f"{name}_token")), default)
        number = tokenizer.token_to_id(token)
        is_there = number is not None and _flag(settings, f"add_{name}_token", is_there)
        ends.append([token] if is_there else [])
        ids |= {token: number} if is_there else {}
    try:
        return processors.TemplateProcessing(single=[*ends[0], "$A", *ends[1]], special_tokens=list(ids.items()))
    except ValueError as error:  # a token like a:b
        raise InputError(f"{file.with_name(SETTINGS)}: bos_token or eos_token: {error}; rename it") from error


def lowercase(tokenizer: Tokenizer) -> None:
    """Let a tokenizer lower-case a text first, unless it does so already."""
    normalizer = tokenizer.normalizer
    if normalizer is None:
        tokenizer.normalizer = normalizers.Lowercase()
    elif normalizer.normalize_str("A") != normalizer.normalize_str("a"):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizer])


def token_contents(value: object) -> Iterator[str]:
    """Yield the tokens in a value of tokenizer_config.json: strings, or objects with a content, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from token_contents(value["content"] if "content" in value else list(value.values()))
    elif isinstance(value, list):
        for entry in value:
            yield from token_contents(entry)


def named_tokens(settings: Mapping[str, Any]) -> list[str]:
    """Return the tokens that tokenizer_config.json or special_tokens_map.json names, such as `mask_token`."""
    values = [value for key, value in settings.items() if key.endswith(("_token", "_tokens"))]
    return list(dict.fromkeys(token_contents(values)))


def known_to_both(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return tokenizer_config.json in words that transformers 4.57 knows as well as 5, which may have written it."""
    known = dict(settings)
    if known.get("tokenizer_class") == NEWER_CLASS:
        known["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(known.get("extra_special_tokens"), list):  # 4.57 expects names and tokens there
        known["additional_special_tokens"] = known.pop("extra_special_tokens")
    return known


def _add_tokens(tokenizer: Tokenizer, settings: Mapping[str, Any], file: Path, rows: int) -> None:
    """Add the tokens that transformers would add: those of `added_tokens_decoder`, then special tokens by name.

    Of a token that is there with other flags, the flags are changed.
    """
    known = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
    added = _added_tokens(settings, file.with_name(SETTINGS))
    for _, entry in sorted(added.items(), key=lambda entry: int(entry[0])):
        flags = {flag: entry[flag] for flag in _FLAGS if isinstance(entry.get(flag), bool)}
        token = AddedToken(entry["content"], **flags)
        if known.get(token.content) != token:
            tokenizer.add_tokens([token])
            known[token.content] = token
    names = named_tokens(settings)
    if not added:
        names += named_tokens(_read(file.with_name("special_tokens_map.json")) or {})
    for name in filter(_is_token, names):
        is_new = tokenizer.token_to_id(name) is None
        if name not in known and not (is_new and tokenizer.get_vocab_size() >= rows):
            tokenizer.add_special_tokens([name])


def _is_token(name: str) -> bool:
    """Tell whether the tokenizers library takes a name: not an empty one, nor half of a pair of surrogates."""
    return bool(name) and name == clean(name)


def _added_tokens(settings: Mapping[str, Any], file: Path) -> dict[str, dict[str, Any]]:
    """Return `added_tokens_decoder`: added tokens by id; none where there is none.

    :raises InputError: when it is anything else, or a token is empty, which the tokenizers library would ignore.
    """
    tokens = settings.get("added_tokens_decoder") or {}
    is_readable = isinstance(tokens, dict) and all(
        number.isdecimal()
        and len(number) < 10
        and isinstance(token, dict)
        and isinstance(token.get("content"), str)
        and _is_token(token["content"])
        for number, token in tokens.items()
    )
    if not is_readable:
        raise InputError(f"{file}: added_tokens_decoder must be tokens by id, none of them empty; save it again")
    return tokens


def _read(file: Path) -> dict[str, Any] | None:
    return read_mapping(file) if file.is_file() else None


def _flag(settings: Mapping[str, Any], name: str, default: bool) -> bool:
    value = settings.get(name)
    return value if isinstance(value, bool) else default
