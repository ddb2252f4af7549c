"""The tokenizer's files, written so that every loader cuts and pads alike."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from xcompress.files import write_json
from xcompress.student import StudentConfig

_MASKS = ("<mask>", "[MASK]")


def write_tokenizer(folder: Path, tokenizer: Tokenizer, config: StudentConfig) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json."""
    special = special_tokens(tokenizer, config.pad_token_id)
    tokenizer.enable_truncation(config.max_tokens)
    tokenizer.enable_padding(pad_id=config.pad_token_id, pad_token=special["pad_token"])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "special_tokens_map.json", special)
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.max_tokens,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "right",
        "truncation_side": "right",
        "clean_up_tokenization_spaces": False,
        **special,
    }
    write_json(folder / "tokenizer_config.json", described)


def special_tokens(tokenizer: Tokenizer, pad_token_id: int) -> dict[str, str]:
    """Name the special tokens as the tokenizer itself uses them: pad, unk, and those it puts around a sentence."""
    described = json.loads(tokenizer.to_str())
    named = {"pad_token": tokenizer.id_to_token(pad_token_id) or "<pad>", "unk_token": _unknown(described["model"])}
    around = [token for token in tokenizer.encode("").tokens if token is not None]
    if len(around) >= 2:
        first, last = around[0], around[-1]
        named |= {"cls_token": first, "bos_token": first, "sep_token": last, "eos_token": last}
    mask = next((token for token in _MASKS if tokenizer.token_to_id(token) is not None), None)
    return {name: token for name, token in {**named, "mask_token": mask}.items() if token is not None}


def _unknown(model: dict[str, Any]) -> str | None:
    if "unk_token" in model:
        return model["unk_token"]  # type: ignore[no-any-return]
    number = model.get("unk_id")
    return None if number is None else model["vocab"][number][0]
