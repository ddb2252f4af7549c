"""What values go into each product, measured on text."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from xcompress.export.matmul import Range, floats, matmuls
from xcompress.modeling.student import Student, pad, token_ids

BATCH = 16


def calibrate(
    student: Student, tokenizer: Tokenizer, texts: Sequence[str], *, moments: bool = False
) -> dict[str, Range]:
    """Return the range of every site's inputs over all tokens of some texts and all recurrences.

    Their first words are measured alone, too, with and without special tokens, and so is no text: what short texts
    reach.

    :param texts: real text, a few hundred sentences in every language of the model.
    :param moments: measure the products of channels with each other, too.
    """
    words = {text.split(maxsplit=1)[0]: None for text in texts if text.strip()}
    bare = [encoding.ids[:1] for encoding in tokenizer.encode_batch(list(words), add_special_tokens=False)]
    sequences = sorted([*token_ids(tokenizer, [*texts, *words, ""], student.config), *filter(None, bare)], key=len)
    watch = _Watch(moments)
    with watch.on(student), torch.inference_mode():
        for start in range(0, len(sequences), BATCH):
            input_ids, watch.mask = pad(sequences[start : start + BATCH], student.config.pad_token_id)
            student(input_ids, watch.mask)
    return {
        name: Range(floats(low), floats(high), floats(watch.moments[name]) if moments else None)
        for name, (low, high) in watch.seen.items()
    }


class _Watch:
    """Remembers the least and the largest input of each channel, and the sums of their products."""

    def __init__(self, products: bool) -> None:
        self.products = products
        self.moments: dict[str, Tensor] = {}
        self.seen: dict[str, tuple[Tensor, Tensor]] = {}
        self.mask = torch.empty(0)

    @contextmanager
    def on(self, student: Student) -> Iterator[None]:
        """Watch a student's products."""
        modules = dict(student.named_modules())
        handles = [modules[name].register_forward_pre_hook(self._noting(name)) for name in matmuls(student)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _noting(self, name: str) -> Callable[[nn.Module, tuple[Tensor]], None]:
        def note(_: nn.Module, inputs: tuple[Tensor]) -> None:
            values = inputs[0][self.mask.bool()] if inputs[0].dim() == 3 else inputs[0]
            low, high = values.amin(0), values.amax(0)
            before = self.seen.get(name, (low, high))
            self.seen[name] = (torch.minimum(before[0], low), torch.maximum(before[1], high))
            if self.products:
                self.moments[name] = values.T @ values + self.moments.get(name, 0)

        return note
