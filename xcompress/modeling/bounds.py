"""Bounds of an encoder's sizes, checked before anything is allocated, and of its weights. Imports no PyTorch."""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from xcompress.errors import InputError, short_repr
from xcompress.tokenizer_file import id_range

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

LARGEST: Mapping[str, int] = {
    "vocab_size": 100_000_000,
    "hidden_size": 100_000,
    "num_attention_heads": 10_000,
    "intermediate_size": 1_000_000,
    "unit_layers": 1_000,
    "recurrences": 1_000,
    "prelude_layers": 1_000,
    "coda_layers": 1_000,
    "bottleneck": 100_000,
    "head_size": 1_000_000,
    "max_position_embeddings": 1_000_000,
    "position_offset": 1_000_000,
    "type_vocab_size": 10_000,
    "pad_token_id": 100_000_000,
    "max_tokens": 1_000_000,
    "relative_buckets": 10_000,
    "key_value_heads": 10_000,
    "head_width": 100_000,
}
"""The largest value of each size of `StudentConfig`, far above those of real encoders."""
MOST_PARAMETERS = 10_000_000_000
"""40 GB in float32."""
_SLACK = 1_000_000
"""Weights, which take 4 MB."""
_FROM_ZERO = ("position_offset", "type_vocab_size", "pad_token_id", "prelude_layers", "coda_layers")
_OPTIONAL = ("bottleneck", "head_size", "relative_buckets", "key_value_heads", "head_width")


def check_sizes(config: Mapping[str, object], names: Mapping[str, str] | None = None) -> None:
    """Check the sizes of an encoder, each and together.

    :param config: fields of `StudentConfig`.
    :param names: what the user's file calls a field, where it has another name.
    :raises InputError: when one is no number of its type or is out of bounds, or when together they make more than
        `MOST_PARAMETERS` parameters.
    """
    shown, sizes = names or {}, dict[str, int]()
    for name in LARGEST.keys() & config.keys():
        value, least = config[name], 0 if name in _FROM_ZERO else 1
        if value is None and name in _OPTIONAL:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST[name]:
            raise InputError(
                f"{shown.get(name, name)} is {short_repr(value)}, expected a whole number from {least} to "
                f"{LARGEST[name]:,}; correct it"
            )
        sizes[name] = value
    epsilon = config.get("layer_norm_eps", 0)
    if not isinstance(epsilon, int | float) or not 0 <= epsilon < 1:  # also refuses NaN
        raise InputError(f"layer_norm_eps is {short_repr(epsilon)}, expected a number from 0 to 1; correct it")
    if sizes["pad_token_id"] >= sizes["vocab_size"]:
        raise InputError(
            f"pad_token_id is {sizes['pad_token_id']}, but {shown.get('vocab_size', 'vocab_size')} is "
            f"{sizes['vocab_size']}; correct one of them"
        )
    parameters = count_matrix_entries(sizes)
    if parameters > MOST_PARAMETERS:
        raise InputError(f"the sizes make {parameters:,} parameters, over {MOST_PARAMETERS:,}; correct them")


def count_matrix_entries(sizes: Mapping[str, int | None]) -> int:
    """Count the entries of an encoder's matrices; biases, norms and relative biases are left out."""
    size = {name: sizes.get(name) or 0 for name in LARGEST}
    hidden, bottleneck = size["hidden_size"], size["bottleneck"]
    layers = size["prelude_layers"] + size["unit_layers"] + size["coda_layers"]
    queries = size["num_attention_heads"] * size["head_width"] or hidden
    keys = size["key_value_heads"] * size["head_width"] or queries
    layer = 2 * hidden * (queries + keys + size["intermediate_size"])
    rows = size["max_position_embeddings"] + size["type_vocab_size"] + bottleneck + size["head_size"]
    return size["vocab_size"] * (bottleneck or hidden) + rows * hidden + layers * layer


def check_fits(sizes: Mapping[str, int | None], weights: int, file: Path) -> None:
    """Check that there are about as many weights as an encoder's sizes say, before memory is taken for them.

    A few that are missing are for the caller to name.

    :param sizes: fields of `StudentConfig`.
    :param weights: number of weights in its files.
    :param file: for error messages.
    :raises InputError: when there are far fewer.
    """
    parameters = count_matrix_entries(sizes)
    if parameters > 2 * weights + _SLACK:
        raise InputError(
            f"{file}: {weights:,} weights, but the configuration describes {parameters:,} or more; give a complete "
            "encoder"
        )


def check_finite(weights: Mapping[str, "Tensor"], file: Path) -> None:
    """Check that no weight is NaN or infinite.

    :param weights: none of them empty.
    :param file: for error messages.
    :raises InputError: when one is; the message names the first.
    """
    for name, weight in weights.items():
        # the smallest and the largest number, NaN if one is NaN, without a copy of the weight
        if not all(isfinite(bound) for bound in weight.aminmax()):
            raise InputError(f"{file}: weight {name} holds NaN or infinity; fetch or train the model again")


def check_ids(tokenizer: "Tokenizer", rows: int, file: Path) -> None:
    """Check that a tokenizer has no ids beyond the token embeddings, also around a text and as padding.

    :param rows: V, rows of the token embeddings.
    :param file: its tokenizer.json, or the folder of the model, for error messages.
    :raises InputError: when it has some.
    """
    highest = id_range(tokenizer) - 1
    if highest >= rows:
        raise InputError(
            f"{file}: the tokenizer has ids up to {highest}, the token embeddings {rows} rows; they do not belong "
            "together, give the tokenizer.json that came with the weights"
        )
