"""Count the multiply-adds of an encoder's matrix products."""

import json
from pathlib import Path
from typing import NamedTuple

from xcompress.bundle.manifest import MANIFEST


class MultiplyAdds(NamedTuple):
    """Multiply-adds of an encoder's matrix products."""

    token: int
    """For each token."""
    pair: int
    """For each pair of tokens of a sentence."""

    def of_call(self, batch: int, tokens: int) -> int:
        """Return the multiply-adds of one call: N L (token + L pair)."""
        return batch * tokens * (self.token + tokens * self.pair)


def count_multiply_adds(
    layers: int,
    hidden: int,
    inner: int,
    bottleneck: int = 0,
    *,
    gated: bool = False,
    heads: tuple[int, int | None, int | None] = (1, None, None),
) -> MultiplyAdds:
    """Count those of a BERT: 4 H^2 + 2 H I for a token in each layer, 2 H for each pair (scores and context).

    :param bottleneck: B, when every token's embedding is multiplied with a B x H projection.
    :param gated: whether the feed-forward layers have a gate, as in ModernBERT: 3 H I in place of 2 H I.
    :param heads: number of heads, that of heads of keys and values (None: as many), and the width of a head (None: the
        heads are H wide together).
    """
    number, shared, width = heads
    width = width or hidden // number
    layer = 2 * hidden * width * (number + (shared or number)) + (3 if gated else 2) * hidden * inner
    return MultiplyAdds(layers * layer + bottleneck * hidden, layers * 2 * number * width)


def bundle_multiply_adds(folder: Path) -> MultiplyAdds | None:
    """Count those of a bundle, whose sizes are in config.json; None when its files lack them."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        bottleneck = manifest.get("bottleneck") or {}
        width = bottleneck["width"] if bottleneck.get("form") == "factored" else 0
        sizes = config["num_hidden_layers"], config["hidden_size"], config["intermediate_size"], width
        heads = config["num_attention_heads"], config.get("num_key_value_heads"), config.get("head_dim")
        return count_multiply_adds(*sizes, gated=manifest.get("gated", False), heads=heads)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return None
