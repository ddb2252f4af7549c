"""Supported architectures: read their config.json, and rename weights between them and a `Student`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from xcompress.errors import InputError
from xcompress.modeling.bounds import check_finite, check_sizes
from xcompress.modeling.rotary_config import LayerKind, read_rotary
from xcompress.modeling.student import Student, StudentConfig

RELATIVE_BUCKETS = 32
"""Buckets of MPNet's relative attention bias: transformers always uses this many, whatever config.json says."""
_SUPPORTED: Mapping[LayerKind, Mapping[str, object]] = {
    "bert": {"position_embedding_type": "absolute"},  # ModernBERT does not read this key: mmBERT has sans_pos there
    "modernbert": {"attention_bias": False, "mlp_bias": False, "norm_bias": False, "rope_scaling": None},
    "gemma": {"attention_bias": False, "attn_logit_softcapping": None, "rope_scaling": None},
    "qwen": {"attention_bias": False, "use_sliding_window": False, "rope_scaling": None},
    "jina": {},
    "nomic": {"num_experts": 0, "prenorm": False, "rotary_emb_fraction": 1.0, "rotary_scaling_factor": None},
    "gte": {
        "position_embedding_type": "rope",
        "layer_norm_type": "layer_norm",
        "logn_attention_scale": False,
        "pack_qkv": True,
    },
}
"""Values of keys in config.json that a `Student` supports, by the kind of the layers."""
_READABLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Types of weights that hold the numbers themselves."""


@dataclass(frozen=True)
class WeightNames:
    """The names that an architecture gives to the weights of a `Student`."""

    embeddings: Mapping[str, str]
    """Full names of the weights outside the layers, by their names in a `Student`."""
    layer: Mapping[str, tuple[str, ...]]
    """Modules of a layer by their names in a `Student`, where queries, keys and values are one module."""
    layer_prefix: str = "encoder.layer.{}."
    """Prefix of a layer's weights; the layer's number takes the place of the braces."""
    weight: str = "weight"
    """Last part of the name of a weight."""
    bias: str = "bias"
    """Last part of the name of a bias."""
    gate_first: bool = False
    """Whether the half of a gated product that is not activated comes first, unlike in a `Student`."""

    def by_student_name(self, layers: int) -> dict[str, tuple[str, ...]]:
        """Map the name of each weight of a `Student` to its names here: three for queries, keys and values, else one.

        :param layers: number of layers.
        """
        names: dict[str, tuple[str, ...]] = {student_name: (name,) for student_name, name in self.embeddings.items()}
        for number in range(layers):
            prefix = self.layer_prefix.format(number)
            for student_module, modules in self.layer.items():
                for student_kind, kind in (("weight", self.weight), ("bias", self.bias)):
                    student_name = f"unit.{number}.{student_module}.{student_kind}"
                    names[student_name] = tuple(f"{prefix}{module}.{kind}" for module in modules)
        return names


@dataclass(frozen=True)
class Architecture:
    """Names of an architecture's sizes and weights, and its differences from BERT."""

    sizes: Mapping[str, str]
    """Keys in config.json by the fields of `StudentConfig`."""
    names: WeightNames
    activation_key: str = "hidden_act"
    """Key of the activation function in config.json."""
    activation: str = "gelu"
    """Its value there; others are not supported."""
    token_types: bool = True
    """Whether there are token types."""
    padding_id: int | None = 0
    """Id of the padding token where config.json names none; None: that of the token that ends a text."""
    positions_follow_padding: bool = False
    """Whether the first position is the padding token's id + 1, as in RoBERTa."""
    relative_bias: bool = False
    """Whether there is a relative attention bias."""
    embedding_width: str | None = None
    """Key of the width of the token embeddings, where it may differ from the hidden size, which is not supported."""
    layers: LayerKind = "bert"
    """Kind of the layers."""
    epsilon: str = "layer_norm_eps"
    """Key of what is added to the variance in a norm."""
    default_epsilon: float = 1e-12
    """Where config.json has none."""


_WORD_EMBEDDINGS = "embeddings.word.weight"
_TOKEN_TYPES, _TASKS = "embeddings.token_type.weight", "embeddings.task.weight"
_EMBEDDINGS = {
    _WORD_EMBEDDINGS: "embeddings.word_embeddings.weight",
    "embeddings.position.weight": "embeddings.position_embeddings.weight",
    _TOKEN_TYPES: "embeddings.token_type_embeddings.weight",
    "embeddings.norm.weight": "embeddings.LayerNorm.weight",
    "embeddings.norm.bias": "embeddings.LayerNorm.bias",
}
_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "unit_layers": "num_hidden_layers",
    "max_position_embeddings": "max_position_embeddings",
}
_LAYER = {
    "attention": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention_output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "intermediate": ("intermediate.dense",),
    "output": ("output.dense",),
    "output_norm": ("output.LayerNorm",),
}
_MPNET_LAYER = {
    "attention": ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    "attention_output": ("attention.attn.o",),
    "attention_norm": ("attention.LayerNorm",),
}
_MPNET_EMBEDDINGS = {"relative.table.weight": "encoder.relative_attention_bias.weight"}
_DISTILBERT_SIZES = {
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "unit_layers": "n_layers",
}
_DISTILBERT_LAYER = {
    "attention": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention_output": ("attention.out_lin",),
    "attention_norm": ("sa_layer_norm",),
    "intermediate": ("ffn.lin1",),
    "output": ("ffn.lin2",),
    "output_norm": ("output_layer_norm",),
}
_MODERNBERT_EMBEDDINGS = {
    _WORD_EMBEDDINGS: "embeddings.tok_embeddings.weight",
    "embeddings.norm.weight": "embeddings.norm.weight",
    "final_norm.weight": "final_norm.weight",
}
_MODERNBERT_LAYER = {
    "attention_norm": ("attn_norm",),
    "attention": ("attn.Wqkv",),
    "attention_output": ("attn.Wo",),
    "intermediate_norm": ("mlp_norm",),
    "intermediate": ("mlp.Wi",),
    "output": ("mlp.Wo",),
}
_LANGUAGE_MODEL_SIZES = {"key_value_heads": "num_key_value_heads", "head_width": "head_dim"}
_LANGUAGE_MODEL_EMBEDDINGS = {_WORD_EMBEDDINGS: "embed_tokens.weight", "final_norm.weight": "norm.weight"}
_QWEN_LAYER = {
    "attention_norm": ("input_layernorm",),
    "attention": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "query_norm": ("self_attn.q_norm",),
    "key_norm": ("self_attn.k_norm",),
    "attention_output": ("self_attn.o_proj",),
    "intermediate_norm": ("post_attention_layernorm",),
    "intermediate": ("mlp.gate_proj", "mlp.up_proj"),
    "output": ("mlp.down_proj",),
}
_GEMMA_LAYER = _QWEN_LAYER | {
    "context_norm": ("post_attention_layernorm",),
    "intermediate_norm": ("pre_feedforward_layernorm",),
    "output_norm": ("post_feedforward_layernorm",),
}
# transformers 5 saves these three under the names of the code that they were published with
_EMBEDDINGS_WITH_OUTER_NORM = _EMBEDDINGS | {
    "embeddings.norm.weight": "emb_ln.weight",
    "embeddings.norm.bias": "emb_ln.bias",
}
_JINA_LAYER = {
    "attention": ("mixer.Wqkv",),
    "attention_output": ("mixer.out_proj",),
    "attention_norm": ("norm1",),
    "intermediate": ("mlp.fc1",),
    "output": ("mlp.fc2",),
    "output_norm": ("norm2",),
}
_NOMIC_LAYER = _JINA_LAYER | {
    "attention": ("attn.Wqkv",),
    "attention_output": ("attn.out_proj",),
    "intermediate": ("mlp.fc12", "mlp.fc11"),
}
_GTE_LAYER = {
    "attention": ("attention.qkv_proj",),
    "attention_output": ("attention.o_proj",),
    "attention_norm": ("attn_ln",),
    "intermediate": ("mlp.up_gate_proj",),
    "output": ("mlp.down_proj",),
    "output_norm": ("mlp_ln",),
}
BERT_NAMES = WeightNames(_EMBEDDINGS, _LAYER)
"""Names in BertModel, RobertaModel and XLMRobertaModel, which are the same."""
E5S1_NAMES = WeightNames(
    {
        _WORD_EMBEDDINGS: "emb.word",
        "embeddings.position.weight": "emb.pos",
        "embeddings.token_type.weight": "emb.type",
        "embeddings.norm.weight": "emb.ln.w",
        "embeddings.norm.bias": "emb.ln.b",
    },
    {
        "attention": ("q", "k", "v"),
        "attention_output": ("ao",),
        "attention_norm": ("aln",),
        "intermediate": ("fi",),
        "output": ("fo",),
        "output_norm": ("oln",),
    },
    layer_prefix="l{}.",
    weight="w",
    bias="b",
)
"""Names in an E5S1 file."""

_BERT = Architecture(_SIZES, BERT_NAMES)
_ERNIE_WITH_TASKS = Architecture(
    _SIZES, WeightNames(_EMBEDDINGS | {_TASKS: "embeddings.task_type_embeddings.weight"}, _LAYER)
)
_ROBERTA = Architecture(_SIZES, BERT_NAMES, padding_id=1, positions_follow_padding=True)
_GTE = Architecture(_SIZES, WeightNames(_EMBEDDINGS, _GTE_LAYER, gate_first=True), padding_id=1, layers="gte")
ARCHITECTURES = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": Architecture(
        _SIZES | _DISTILBERT_SIZES,
        WeightNames(_EMBEDDINGS, _DISTILBERT_LAYER, layer_prefix="transformer.layer.{}."),
        activation_key="activation",
        token_types=False,
    ),
    "mpnet": Architecture(
        _SIZES,
        WeightNames(_EMBEDDINGS | _MPNET_EMBEDDINGS, _LAYER | _MPNET_LAYER),
        token_types=False,
        padding_id=1,
        positions_follow_padding=True,
        relative_bias=True,
    ),
    "electra": replace(_BERT, embedding_width="embedding_size"),
    "ernie": _BERT,
    "data2vec-text": _ROBERTA,
    "modernbert": Architecture(
        _SIZES,
        WeightNames(_MODERNBERT_EMBEDDINGS, _MODERNBERT_LAYER, layer_prefix="layers.{}."),
        activation_key="hidden_activation",
        token_types=False,
        layers="modernbert",
        epsilon="norm_eps",
        default_epsilon=1e-5,
    ),
    "gemma3_text": Architecture(
        _SIZES | _LANGUAGE_MODEL_SIZES,
        WeightNames(_LANGUAGE_MODEL_EMBEDDINGS, _GEMMA_LAYER, layer_prefix="layers.{}."),
        activation_key="hidden_activation",
        activation="gelu_pytorch_tanh",
        token_types=False,
        layers="gemma",
        epsilon="rms_norm_eps",
        default_epsilon=1e-6,
    ),
    "qwen3": Architecture(
        _SIZES | _LANGUAGE_MODEL_SIZES,
        WeightNames(_LANGUAGE_MODEL_EMBEDDINGS, _QWEN_LAYER, layer_prefix="layers.{}."),
        activation="silu",
        token_types=False,
        padding_id=None,
        layers="qwen",
        epsilon="rms_norm_eps",
        default_epsilon=1e-6,
    ),
    "jina_embeddings_v3": Architecture(
        _SIZES,
        WeightNames(_EMBEDDINGS_WITH_OUTER_NORM, _JINA_LAYER, layer_prefix="encoder.layers.{}."),
        padding_id=1,
        layers="jina",
        default_epsilon=1e-5,
    ),
    "nomic_bert": Architecture(
        _SIZES,
        WeightNames(_EMBEDDINGS_WITH_OUTER_NORM, _NOMIC_LAYER, layer_prefix="encoder.layers.{}."),
        activation="silu",
        layers="nomic",
    ),
    "gte": _GTE,
    "new": _GTE,
}
"""Supported architectures, by model_type."""


def read_architecture(config: Mapping[str, Any], file: Path) -> tuple[StudentConfig, Architecture]:
    """Derive a student's configuration from the config.json of an encoder.

    :param config: the content of config.json.
    :param file: its path, for error messages.
    :raises InputError: when the architecture is not supported, or has features that a `Student` lacks.
    """
    model_type = config.get("model_type")
    architecture = ARCHITECTURES.get(model_type) if isinstance(model_type, str) else None
    if architecture is None:
        raise InputError(
            f"{file}: model_type is {model_type!r}; supported are {', '.join(ARCHITECTURES)}: choose another encoder, "
            "or take this one as the teacher of a recipe"
        )
    if config.get("quantization_config"):
        raise InputError(f"{file}: has a quantization_config; give the encoder as it was before it was quantized")
    if model_type == "ernie" and config.get("use_task_id"):
        architecture = _ERNIE_WITH_TASKS
    supported_values: dict[str, object] = {architecture.activation_key: architecture.activation, "is_decoder": False}
    if architecture.embedding_width:
        supported_values[architecture.embedding_width] = config.get("hidden_size")
    if architecture.relative_bias:
        supported_values["relative_attention_num_buckets"] = RELATIVE_BUCKETS
    for name, supported in {**supported_values, **_SUPPORTED[architecture.layers]}.items():
        value = config.get(name, supported)
        if value != supported:
            raise InputError(f"{file}: {name} is {value!r}, only {supported!r} is supported; choose another encoder")
    missing = [name for name in architecture.sizes.values() if not isinstance(config.get(name), int)]
    if missing:
        older = "n_embd" in config  # a nomic_bert whose sizes have the names of GPT-2
        advice = "open the model with transformers 5 and save it again" if older else "give a complete encoder"
        raise InputError(f"{file}: no {', '.join(missing)}; {advice}")
    paddings = config.get("pad_token_id"), architecture.padding_id, config.get("eos_token_id")
    padding = next((number for number in paddings if number is not None), None)
    # MPNet counts positions from its default padding id, whatever config.json says
    last_unused: Any = architecture.padding_id if architecture.relative_bias else padding
    sizes = {
        **{field: config[name] for field, name in architecture.sizes.items()},
        "type_vocab_size": config.get("type_vocab_size", 2) if architecture.token_types else 0,
        "layer_norm_eps": config.get(architecture.epsilon, architecture.default_epsilon),
        "pad_token_id": padding,
    }
    try:
        check_sizes(sizes, architecture.sizes)
        return StudentConfig(
            **sizes,
            position_offset=last_unused + 1 if architecture.positions_follow_padding else 0,
            relative_buckets=RELATIVE_BUCKETS if architecture.relative_bias else None,
            **read_rotary(config, architecture.layers),
        ), architecture
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def gemma_weights(state: Mapping[str, Tensor], config: StudentConfig) -> dict[str, Tensor]:
    """Return the weights of an EmbeddingGemma as those of a `Student`, in float32.

    Gemma multiplies by 1 + w in a norm, and the token embeddings by the square root of H.
    """
    weights = {name: weight.float() for name, weight in state.items()}
    for name, weight in weights.items():
        if name.endswith("norm.weight"):
            weights[name] = 1 + weight
        elif name == _WORD_EMBEDDINGS:
            weights[name] = weight * config.hidden_size**0.5
    return weights


def to_student_names(weights: Mapping[str, Tensor], names: WeightNames, layers: int) -> dict[str, Tensor]:
    """Give an encoder's weights the names that they have in a `Student`; leave out the weights that it lacks.

    :param weights: weights by the encoder's names, behind any common prefix (`bert.`, `roberta.`, `model.` ...).
    :param names: the encoder's names.
    :param layers: number of layers.
    :raises InputError: when the weights are of several encoders, and none of them has the shortest prefix.
    """
    word_embeddings = names.embeddings[_WORD_EMBEDDINGS]
    # an encoder inside another part, such as one that follows slowly in training, has a longer prefix
    matches = [name for name in weights if f".{name}".endswith(f".{word_embeddings}")]
    matches.sort(key=lambda name: name.count("."))
    if matches[1:] and matches[0].count(".") == matches[1].count("."):
        raise InputError(
            f"{matches[0]} and {matches[1]}: the weights are of several encoders; open the model with transformers, "
            "and save the encoder alone (save_pretrained)"
        )
    prefix = matches[0].removesuffix(word_embeddings) if matches else ""
    encoder_weights = {
        # older checkpoints call the weights of a LayerNorm gamma and beta
        name.removeprefix(prefix)
        .replace("LayerNorm.gamma", "LayerNorm.weight")
        .replace("LayerNorm.beta", "LayerNorm.bias"): weight
        for name, weight in weights.items()
        if name.startswith(prefix)
    }
    state = {}
    for student_name, encoder_names in names.by_student_name(layers).items():
        parts = [encoder_weights[name] for name in encoder_names if name in encoder_weights]
        if len(parts) == len(encoder_names):
            # parts that do not fit together are left to `load_state`, which refuses the first alone for its shape
            fit = len({(part.shape[1:], part.ndim, part.dtype in _READABLE) for part in parts}) == 1 and parts[0].ndim
            state[student_name] = torch.cat(parts) if len(parts) > 1 and fit else parts[0]
            if names.gate_first and fit and student_name.endswith(".intermediate.weight"):
                state[student_name] = torch.cat(state[student_name].chunk(2)[::-1])
    return _with_task(state) if _TASKS in names.embeddings else state


def _with_task(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add the embedding of ERNIE's first task to those of the token types, as it adds both to each token.

    A sentence encoder has no other task. Where a weight is missing or has another width, there are no token types.
    """
    weights = dict(state)
    types, tasks = weights.pop(_TOKEN_TYPES, None), weights.pop(_TASKS, None)
    if types is not None and tasks is not None and types.ndim == tasks.ndim == 2 and types.shape[1] == tasks.shape[1]:
        weights[_TOKEN_TYPES] = types.float() + tasks[:1].float()
    return weights


def from_student_names(state: Mapping[str, Tensor], names: WeightNames, layers: int) -> dict[str, Tensor]:
    """Give a student's weights the names that they have in an encoder: the inverse of `to_student_names`.

    Queries, keys and values become views of the joint weight. Weights that the encoder lacks are left out.

    :param state: weights by their names in a `Student`, one `unit.<number>` for each layer.
    :param names: the encoder's names, such as `BERT_NAMES`.
    :param layers: number of layers.
    """
    weights: dict[str, Tensor] = {}
    for student_name, encoder_names in names.by_student_name(layers).items():
        if student_name in state:
            weight = state[student_name]
            if names.gate_first and student_name.endswith(".intermediate.weight"):
                weight = torch.cat(weight.chunk(2)[::-1])
            weights |= zip(encoder_names, weight.chunk(len(encoder_names)), strict=True)
    return weights


def load_state(student: Student, state: Mapping[str, Tensor], file: Path) -> None:
    """Copy weights into a student, as float32.

    :param file: the weights' file, for error messages.
    :raises InputError: when a weight is missing, has another shape or a quantized type, or is NaN or infinite.
    """
    for name, expected in student.state_dict().items():
        weight = state.get(name)
        if weight is None or weight.shape != expected.shape:
            problem = "missing" if weight is None else f"of shape {tuple(weight.shape)}"
            raise InputError(
                f"{file}: weight {name} is {problem}, expected shape {tuple(expected.shape)}; give a complete encoder"
            )
        if weight.dtype not in _READABLE:
            raise InputError(
                f"{file}: weight {name} is stored as {str(weight.dtype).removeprefix('torch.')}, which means nothing "
                "without its scales; give the encoder as it was before it was quantized"
            )
    student.load_state_dict({name: state[name].float() for name in student.state_dict()})
    check_finite(student.state_dict(), file)
