"""The student as the exporters of phones' runtimes take it: one text, written with operators that all of them know."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from xcompress.export import LEAST_NORM, MASKED_SCORE
from xcompress.modeling.layers import Layer
from xcompress.modeling.student import Student, StudentConfig


class Int8Rows(nn.Module):
    """Token embeddings in int8 with one scale per row; only the rows that are looked up become float32."""

    rows: Tensor
    scales: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        scales = (table.abs().amax(1, keepdim=True) / 127).clamp(min=torch.finfo(torch.float32).tiny)
        self.register_buffer("rows", torch.round(table / scales).to(torch.int8))
        self.register_buffer("scales", scales)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the rows (L, W) of token ids (L,)."""
        return functional.embedding(ids, self.rows).float() * functional.embedding(ids, self.scales)


class PhoneLayer(nn.Module):
    """A `Layer` for one text, with queries, keys and values in products of their own: XNNPACK cannot split a joint one.

    Queries are scaled in their weights.
    """

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.heads = layer.heads
        width = layer.attention_output.in_features
        weights, biases = layer.attention.weight.chunk(3), layer.attention.bias.chunk(3)
        scales = ((width // self.heads) ** -0.5, 1.0, 1.0)
        joint = [_linear(w * s, b * s) for w, b, s in zip(weights, biases, scales, strict=True)]
        self.query, self.key, self.value = joint
        self.attention_output, self.attention_norm = layer.attention_output, layer.attention_norm
        self.intermediate, self.output, self.output_norm = layer.intermediate, layer.output, layer.output_norm

    def forward(self, tokens: Tensor, bias: Tensor) -> Tensor:
        """Map token vectors (L, H) to (L, H).

        :param bias: added to the attention scores, (1, 1, L) or (heads, L, L).
        """
        width = tokens.shape[1]
        query, key, value = (
            part(tokens).view(-1, self.heads, width // self.heads).transpose(0, 1)
            for part in (self.query, self.key, self.value)
        )
        attention = torch.softmax(torch.bmm(query, key.transpose(1, 2)) + bias, dim=-1)
        context = self.attention_output(torch.bmm(attention, value).transpose(0, 1).reshape(-1, width))
        attended = self.attention_norm(tokens + context)
        expanded = self.output(functional.gelu(self.intermediate(attended)))
        return self.output_norm(attended + expanded)  # type: ignore[no-any-return]


class PhoneModel(nn.Module):
    """A student that encodes one text. It shares the student's weights, except those that it stores in another form.

    :param fold: multiply the token embeddings by the projection of the bottleneck.
    :param int8_rows: store the token embeddings in int8; otherwise in float32.
    """

    positions: Tensor
    biases: Tensor

    def __init__(self, student: Student, *, fold: bool = False, int8_rows: bool = True) -> None:
        super().__init__()
        embeddings, self.config = student.embeddings, student.config
        table = embeddings.word.weight.detach()
        projection = embeddings.projection
        if projection is not None and fold:
            table, projection = table @ projection.weight.detach().T, None
        self.word = Int8Rows(table) if int8_rows else nn.Embedding(table.shape[0], table.shape[1], _weight=table)
        self.projection = projection
        assert embeddings.position is not None  # rotary positions are refused before
        # one table for positions and the only token type
        positions = embeddings.position.weight.detach()[embeddings.offset :][: self.config.max_tokens]
        if embeddings.token_type is not None:
            positions = positions + embeddings.token_type.weight.detach()[0]
        self.register_buffer("positions", positions.clone())
        if student.relative is not None:
            self.register_buffer("biases", student.relative.by_distance(self.config.max_tokens).detach())
        self.norm, self.is_relative, self.head = embeddings.norm, student.relative is not None, student.head
        layers = {name: layer for name, layer in student.layers().items() if isinstance(layer, Layer)}
        self.layers = nn.ModuleList(map(PhoneLayer, layers.values()))
        self.order = [list(layers).index(name) for name in self.config.stack]
        self.eval().requires_grad_(False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Encode one text.

        :param input_ids: token ids, (1, L) with L from 2 to `max_tokens`.
        :param attention_mask: 1 for tokens, 0 for padding, (1, L).
        :returns: its vector, (1, D).
        """
        length = input_ids.shape[1]
        tokens = self.word(input_ids[0])
        if self.projection is not None:
            tokens = self.projection(tokens)
        tokens = self.norm(tokens + self.positions[:length])
        visible = attention_mask.float()
        bias = ((1 - visible) * MASKED_SCORE)[None]
        if self.is_relative:
            places = torch.arange(length)
            distances = places[None, :] - places[:, None] + self.config.max_tokens - 1
            bias = bias + functional.embedding(distances, self.biases).permute(2, 0, 1)
        for number in self.order:
            tokens = self.layers[number](tokens, bias)
        return self._pool(tokens, visible)

    def _pool(self, tokens: Tensor, visible: Tensor) -> Tensor:
        """Apply pooling, head and normalisation; a linear head commutes with pooling."""
        if self.config.pooling == "cls":
            sentence = tokens[:1]
        else:
            sentence = torch.mm(visible, tokens) / visible.sum(1, keepdim=True)
        if self.head is not None:
            sentence = self.head(sentence)
            sentence = torch.tanh(sentence) if self.config.head_activation else sentence
        if self.config.normalize:
            length = torch.sqrt((sentence * sentence).sum(1, keepdim=True))
            sentence = sentence / length.clamp(min=LEAST_NORM)
        return sentence


def example_inputs(config: StudentConfig) -> tuple[Tensor, Tensor]:
    """Return `input_ids` and `attention_mask` to trace a `PhoneModel` with; their 16 tokens stand for any number."""
    tokens = min(16, config.max_tokens)
    return torch.full((1, tokens), config.pad_token_id), torch.ones(1, tokens, dtype=torch.int64)


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0])
    linear.weight, linear.bias = nn.Parameter(weight.detach().clone()), nn.Parameter(bias.detach().clone())
    return linear
