"""The student as the exporters of phones' runtimes take it: one text, written with operators that all of them know."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from xcompress.export import LEAST_NORM, MASKED_SCORE
from xcompress.modeling.attention import token_distances
from xcompress.modeling.layers import Layer, ModernBertLayer, RmsNormLayer, rotary_angles
from xcompress.modeling.rotary_config import ModernBertAttention
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


class PhoneAttention(nn.Module):
    """Attention for one text, with queries, keys and values in products of their own: XNNPACK cannot split a joint one.

    Queries are scaled in their weights.
    """

    def __init__(self, layer: Layer | ModernBertLayer) -> None:
        super().__init__()
        self.heads = layer.heads
        width = layer.attention_output.in_features
        self.query, self.key, self.value = _split(layer.attention, (width // self.heads) ** -0.5, 1.0, 1.0)
        self.attention_output = layer.attention_output

    def attend(self, tokens: Tensor, bias: Tensor, rotation: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Map the inputs of attention (L, H) to its outputs (L, H).

        :param bias: added to the attention scores, (1, 1, L), (1, L, L) or (heads, L, L).
        :param rotation: cosines and sines of the angles of rotary positions, (L, H / heads / 2) each.
        """
        width = tokens.shape[1]
        query, key, value = (
            part(tokens).view(-1, self.heads, width // self.heads).transpose(0, 1)
            for part in (self.query, self.key, self.value)
        )
        if rotation is not None:
            query, key = _rotate(query, *rotation), _rotate(key, *rotation)
        attention = torch.softmax(torch.bmm(query, key.transpose(1, 2)) + bias, dim=-1)
        context = torch.bmm(attention, value).transpose(0, 1).reshape(-1, width)
        return self.attention_output(context)  # type: ignore[no-any-return]


class PhoneLayer(PhoneAttention):
    """A `Layer` for one text."""

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        self.attention_norm = layer.attention_norm
        self.intermediate, self.output, self.output_norm = layer.intermediate, layer.output, layer.output_norm

    def forward(self, tokens: Tensor, bias: Tensor) -> Tensor:
        """Map token vectors (L, H) to (L, H).

        :param bias: as for `attend`.
        """
        attended = self.attention_norm(tokens + self.attend(tokens, bias))
        expanded = self.output(functional.gelu(self.intermediate(attended)))
        return self.output_norm(attended + expanded)  # type: ignore[no-any-return]


class PhoneModernBertLayer(PhoneAttention):
    """A `ModernBertLayer` for one text, with the two halves of its gated part in products of their own."""

    def __init__(self, layer: ModernBertLayer) -> None:
        super().__init__(layer)
        self.attention_norm, self.intermediate_norm = layer.attention_norm, layer.intermediate_norm
        self.intermediate, self.gate = _split(layer.intermediate, 1.0, 1.0)
        self.output = layer.output

    def forward(self, tokens: Tensor, bias: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Map token vectors (L, H) to (L, H).

        :param bias: as for `attend`.
        :param rotation: likewise.
        """
        attended = tokens + self.attend(self.attention_norm(tokens), bias, rotation)
        normed = self.intermediate_norm(attended)
        expanded = functional.gelu(self.intermediate(normed)) * self.gate(normed)
        return attended + self.output(expanded)  # type: ignore[no-any-return]


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
        if embeddings.position is not None:
            # one table for positions and the only token type
            positions = embeddings.position.weight.detach()[embeddings.offset :][: self.config.max_tokens]
            if embeddings.token_type is not None:
                positions = positions + embeddings.token_type.weight.detach()[0]
            self.register_buffer("positions", positions.clone())
        self.rotations = list(dict.fromkeys(layer.rotation for layer in self.config.modernbert))
        for number, rotation in enumerate(self.rotations):
            width = self.config.hidden_size // self.config.num_attention_heads
            angles = rotary_angles(self.config.max_tokens, width, rotation)
            self.register_buffer(f"cosines_{number}", angles.cos())
            self.register_buffer(f"sines_{number}", angles.sin())
        if student.relative is not None:
            self.register_buffer("biases", student.relative.by_distance(self.config.max_tokens).detach())
        self.norm, self.is_relative, self.head = embeddings.norm, student.relative is not None, student.head
        self.final_norm = student.final_norm
        layers = student.layers()
        self.layers = nn.ModuleList(
            PhoneModernBertLayer(layer) if isinstance(layer, ModernBertLayer) else PhoneLayer(layer)
            for layer in layers.values()
            if not isinstance(layer, RmsNormLayer)  # refused before
        )
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
        tokens = self.norm(tokens if self.rotations else tokens + self.positions[:length])
        visible = attention_mask.float()
        bias = ((1 - visible) * MASKED_SCORE)[None]
        if self.is_relative:
            rows = token_distances(length) + self.config.max_tokens - 1
            bias = bias + functional.embedding(rows, self.biases).permute(2, 0, 1)
        rotary = {layer: self._rotary_inputs(layer, bias, length) for layer in dict.fromkeys(self.config.modernbert)}
        for number in self.order:
            own = rotary[self.config.modernbert[number]] if rotary else (bias,)
            tokens = self.layers[number](tokens, *own)
        if self.final_norm is not None:
            tokens = self.final_norm(tokens)
        return self._pool(tokens, visible)

    def _rotary_inputs(
        self, layer: ModernBertAttention, bias: Tensor, length: int
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return what a layer of ModernBERT adds to the attention scores, and the cosines and sines of its angles.

        :param bias: added in all layers, (1, 1, L).
        """
        if layer.window is not None:
            bias = bias + (token_distances(length).abs() > layer.window).float() * MASKED_SCORE
        number = self.rotations.index(layer.rotation)
        cosines, sines = (self.get_buffer(f"{kind}_{number}")[:length] for kind in ("cosines", "sines"))
        return bias, (cosines, sines)

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


def _split(joint: nn.Linear, *scales: float) -> list[nn.Linear]:
    """Return a product as several: equal parts of its outputs, each multiplied by a scale."""
    parts = []
    biases = [None] * len(scales) if joint.bias is None else joint.bias.detach().chunk(len(scales))
    for weight, bias, scale in zip(joint.weight.detach().chunk(len(scales)), biases, scales, strict=True):
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        linear.weight = nn.Parameter(weight * scale)
        if bias is not None:
            linear.bias = nn.Parameter(bias * scale)
        parts.append(linear)
    return parts


def _rotate(vectors: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate the pairs (i, i + W / 2) of vectors (heads, L, W) by angles, given as cosines and sines (L, W / 2)."""
    # not chunk, which has two outputs: `MlProgram` evaluates operators with one
    half = vectors.shape[-1] // 2
    first, second = vectors[..., :half], vectors[..., half:]
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)
