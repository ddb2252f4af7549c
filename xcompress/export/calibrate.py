"""Measure the input range of each MatMul on calibration text."""

from collections.abc import Sequence
from functools import partial

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from xcompress.batches import group_by_length
from xcompress.export.matmul import Range, floats, matmuls
from xcompress.export.verify import BATCH, most_rows
from xcompress.modeling.student import Student, pad, token_ids


def calibrate(
    student: Student, tokenizer: Tokenizer, texts: Sequence[str], *, moments: bool = False
) -> dict[str, Range]:
    """Return the range of the inputs of each MatMul, over all tokens and recurrences.

    Short texts have ranges of their own, so the first word of each text is encoded, too, with and without special
    tokens, and so is the empty text.

    :param texts: real text, a few hundred sentences in each language of the model.
    :param moments: also sum up X^T X of the inputs X, for GPTQ.
    """
    words = {text.split(maxsplit=1)[0]: None for text in texts if text.strip()}
    bare = [encoding.ids[:1] for encoding in tokenizer.encode_batch(list(words), add_special_tokens=False)]
    sequences = [*token_ids(tokenizer, [*texts, *words, ""], student.config), *filter(None, bare)]

    observer = _InputObserver(moments)
    modules = dict(student.named_modules())
    hooks = [modules[name].register_forward_pre_hook(partial(observer.observe, name)) for name in matmuls(student)]
    try:
        with torch.inference_mode():
            for rows in group_by_length(list(map(len, sequences)), lambda tokens: min(BATCH, most_rows(tokens))):
                input_ids, observer.mask = pad([sequences[row] for row in rows], student.config.pad_token_id)
                student(input_ids, observer.mask)
    finally:
        for hook in hooks:
            hook.remove()
    return {
        name: Range(floats(low), floats(high), floats(observer.moments[name]) if moments else None)
        for name, (low, high) in observer.ranges.items()
    }


class _InputObserver:
    """Tracks the least and largest input of each channel, and X^T X, over all batches."""

    def __init__(self, with_moments: bool) -> None:
        self.with_moments = with_moments
        self.moments: dict[str, Tensor] = {}
        self.ranges: dict[str, tuple[Tensor, Tensor]] = {}
        self.mask = torch.empty(0)
        """Attention mask (N, L) of the current batch."""

    def observe(self, name: str, _: nn.Module, inputs: tuple[Tensor]) -> None:
        """Add the inputs of one call of a module: (N, L, in) without padding, or (N, in) after pooling."""
        values = inputs[0][self.mask.bool()] if inputs[0].dim() == 3 else inputs[0]
        low, high = values.amin(0), values.amax(0)
        before_low, before_high = self.ranges.get(name, (low, high))
        self.ranges[name] = (torch.minimum(before_low, low), torch.maximum(before_high, high))
        if self.with_moments:
            self.moments[name] = values.T @ values + self.moments.get(name, 0)
