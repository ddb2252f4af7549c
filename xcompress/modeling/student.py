"""The student: embeddings with a bottleneck, layers of which some recur, a head, pooling, and its folder on disk.

An encoder of the BERT family is the same class with M = its layers, R = 1 and no bottleneck. So the assistant is a
`Student`, too, and so is an encoder of another library that is exported without training. ModernBERT, EmbeddingGemma
and Qwen3 have layers of other classes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from xcompress.batches import group_by_length
from xcompress.errors import InputError, first_line, on_one_line
from xcompress.files import read_mapping, whole_file
from xcompress.modeling.attention import BatchPart, RelativeBias, parts_by_length, token_distances
from xcompress.modeling.bounds import check_finite, check_fits, check_ids, check_sizes
from xcompress.modeling.layers import Embeddings, TransformerLayer, Uninitialized, check_rotary, make_layers
from xcompress.modeling.packing import Packing
from xcompress.modeling.rotary_config import ROTARY_LAYERS, ModernBertAttention, RotaryAttention, RotaryBertAttention
from xcompress.paths import path_inside
from xcompress.sources.model_folder import STUDENT
from xcompress.tokenizer_file import LONGEST_TEXT, clean, encode_batch, prefix_problem, read_tokenizer

Pooling = Literal["mean", "cls", "lasttoken"]
STUDENT_FILES = ("model.safetensors", "config.json", "tokenizer.json")
"""The files of a student."""
BATCH_TOKENS_CPU = 2048
"""Tokens that `encode` gives to the model at once; 8,192 took twice as long for short texts."""
BATCH_TOKENS_GPU = 65_536
"""Enough to keep a GPU busy; not measured."""
_SENTENCE_TRANSFORMERS_FILES = {
    "modules.json": [{"idx": 0, "name": "0", "path": "", "type": "xcompress.st_module.StudentModule"}],
    "config_sentence_transformers.json": {"model_type": "SentenceTransformer", "similarity_fn_name": "cosine"},
}


@dataclass(frozen=True)
class StudentConfig:
    """The architecture of a student, as stored in config.json."""

    vocab_size: int
    """V, rows of the token embeddings."""
    hidden_size: int = 384
    """H, width of the encoder."""
    num_attention_heads: int = 12
    intermediate_size: int = 1536
    """Width of the feed-forward layer."""
    unit_layers: int = 12
    """M, distinct transformer layers: the recurrent unit."""
    recurrences: int = 1
    """R, number of times the unit is applied."""
    prelude_layers: int = 0
    """Distinct layers in front of the unit, applied once."""
    coda_layers: int = 0
    """Distinct layers behind the unit, applied once."""
    bottleneck: int | None = None
    """B, width of the token embeddings before the B x H projection; None: V x H embeddings without a projection."""
    head_size: int | None = None
    """D, width of the linear head before the pooling (after it, with an activation); None: no head, and D = H."""
    max_position_embeddings: int = 512
    position_offset: int = 0
    """Index of the first position: 0 in BERT, pad_token_id + 1 in RoBERTa and XLM-R."""
    type_vocab_size: int = 2
    """Rows of the token type embeddings; 0: none."""
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 1
    normalize: bool = True
    """Whether sentence vectors are scaled to unit length."""
    max_tokens: int = 128
    """Longer texts are truncated."""
    prefix: str = ""
    """Text the model expects in front of every sentence."""
    pooling: Pooling = "mean"
    """The sentence vector: the mean of the token vectors, the first of them (cls), or the last."""
    relative_buckets: int | None = None
    """Rows of the relative attention bias, which all layers share, as in MPNet; None: no such bias."""
    head_activation: Literal["tanh"] | None = None
    """Activation of the head. Such a head acts on the pooled vector, as it does not commute with pooling."""
    modernbert: tuple[ModernBertAttention, ...] = ()
    """The distinct layers of a ModernBERT: prelude, unit, coda."""
    gemma: tuple[RotaryAttention, ...] = ()
    """The distinct layers of an EmbeddingGemma."""
    qwen: tuple[RotaryAttention, ...] = ()
    """The distinct layers of a Qwen3, where a token sees itself and those before it."""
    rotary_bert: tuple[RotaryBertAttention, ...] = ()
    """The distinct layers of a BERT with rotary positions. None of these four kinds: layers of BERT, with position
    embeddings."""
    key_value_heads: int | None = None
    """Heads of keys and values in a layer of EmbeddingGemma or Qwen3; None: `num_attention_heads`."""
    head_width: int | None = None
    """Numbers of a head in such a layer; None: `hidden_size` / `num_attention_heads`."""

    def __post_init__(self) -> None:
        check_sizes(vars(self))
        if self.head_width is None and self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}; "
                "choose heads that divide it"
            )
        if self.bottleneck is not None and not 0 < self.bottleneck < self.hidden_size:
            raise InputError(
                f"bottleneck {self.bottleneck} must be between 1 and hidden_size - 1 = {self.hidden_size - 1}; "
                "leave it out for embeddings of full width"
            )
        if self.relative_buckets is not None and (self.relative_buckets < 4 or self.relative_buckets % 4):
            raise InputError(
                f"relative_buckets {self.relative_buckets} is not a multiple of 4; choose another, such as 32"
            )
        if self.pooling not in get_args(Pooling):
            raise InputError(f"pooling {self.pooling!r} is unknown; choose one of {', '.join(get_args(Pooling))}")
        if self.head_activation not in ("tanh", None):
            raise InputError(f"head_activation {self.head_activation!r} is unknown; choose tanh, or leave it out")
        if self.head_activation and not self.head_size:
            raise InputError(f"head_activation {self.head_activation!r} needs a head; give head_size")
        if not isinstance(self.prefix, str):
            raise InputError(f"prefix is {self.prefix!r}, not a text; correct it")
        if problem := prefix_problem(self.prefix):
            raise InputError(f"prefix {problem}; correct it")
        if self.rotary or self.key_value_heads or self.head_width:
            check_rotary(self)

    @property
    def rotary(self) -> tuple[RotaryAttention, ...]:
        """The distinct layers where positions are rotary; empty where they are embedded."""
        return self.modernbert or self.gemma or self.qwen or self.rotary_bert

    @property
    def language_model(self) -> str | None:
        """The language model that the layers come from, Gemma or Qwen3; None for others."""
        return "Gemma" if self.gemma else "Qwen3" if self.qwen else None

    @property
    def unusual_layers(self) -> str | None:
        """The name in messages of layers that are exported to no checkpoint and no file for phones.

        None for others.
        """
        return self.language_model or ("BERT with rotary positions" if self.rotary_bert else None)

    @property
    def gated(self) -> bool:
        """Whether feed-forward parts have a gate."""
        return all(layer.gate for layer in self.rotary_bert) if self.rotary_bert else bool(self.rotary)

    @property
    def width_of_head(self) -> int:
        """Numbers of a head of attention."""
        return self.head_width or self.hidden_size // self.num_attention_heads

    @property
    def dimension(self) -> int:
        """D, the length of a sentence vector."""
        return self.head_size or self.hidden_size

    @property
    def stack(self) -> tuple[str, ...]:
        """Names of the layers in the order in which they are applied: prelude, unit x R, coda."""
        parts = (("prelude", self.prelude_layers), *(("unit", self.unit_layers),) * self.recurrences)
        parts += (("coda", self.coda_layers),)
        return tuple(f"{part}.{number}" for part, layers in parts for number in range(layers))

    @property
    def depth(self) -> int:
        """Number of layers that a token passes: those of prelude and coda, and M x R."""
        return self.prelude_layers + self.unit_layers * self.recurrences + self.coda_layers


def check_recurrences(requested: int, most: int) -> None:
    """Refuse a number of recurrences that is not in 1 ... `most`, the student's.

    :raises InputError: when it is not.
    """
    if not 1 <= requested <= most:
        advice = "leave it out" if most == 1 else f"choose 1 to {most}"
        raise InputError(f"recurrences: {requested} requested, but the student has {most}; {advice}")


class Student(nn.Module):
    """A sentence encoder: embeddings, the unit of M layers applied R times, a head, pooling.

    A linear head acts on every token. Pooling commutes with a linear map, so this equals a head after the pooling, and
    any loader that pools the token vectors itself gets the right sentence vector. A head with an activation acts on the
    pooled vector; the token vectors are then those before the head.
    """

    def __init__(self, config: StudentConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        buckets = config.relative_buckets
        self.relative = RelativeBias(buckets, config.num_attention_heads) if buckets else None
        before, after = config.prelude_layers, config.prelude_layers + config.unit_layers
        layers = make_layers(config)
        self.prelude = nn.ModuleList(layers[:before])
        self.unit = nn.ModuleList(layers[before:after])
        self.coda = nn.ModuleList(layers[after:])
        width = config.hidden_size
        self.final_norm: nn.LayerNorm | nn.RMSNorm | None = None
        if config.modernbert:
            self.final_norm = nn.LayerNorm(width, eps=config.layer_norm_eps, bias=False)
        elif config.language_model:
            self.final_norm = nn.RMSNorm(width, eps=config.layer_norm_eps)
        self.head = nn.Linear(width, config.head_size) if config.head_size else None
        self.apply(_initialize_weights)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encode a batch.

        :param input_ids: token ids, (N, L).
        :param attention_mask: 1 for tokens, 0 for padding, (N, L).
        :param token_positions: as `token_positions` returns them, (T,). With them the layers compute without padding.
        :returns: token vectors (N, L, D), or (N, L, H) with an activated head, and sentence vectors (N, D).
        """
        tokens, parts, packing = self._embed(input_ids, attention_mask, token_positions)
        for _ in range(self.config.recurrences):
            tokens = _apply(self.unit, tokens, parts)
        tokens = _apply(self.coda, tokens, parts)
        return self._pool(tokens, attention_mask, packing)

    def at_depths(
        self, input_ids: Tensor, attention_mask: Tensor, token_positions: Tensor | None = None
    ) -> list[Tensor]:
        """Encode a batch, and return the sentence vectors (N, D) of students with 1 ... R recurrences.

        The parameters are those of `forward`, and the last vectors are its sentence vectors. Prelude and unit are
        computed once for all of them, the coda once for each.
        """
        tokens, parts, packing = self._embed(input_ids, attention_mask, token_positions)
        sentences = []
        for _ in range(self.config.recurrences):
            tokens = _apply(self.unit, tokens, parts)
            sentences.append(self._pool(_apply(self.coda, tokens, parts), attention_mask, packing)[1])
        return sentences

    def _embed(
        self, input_ids: Tensor, attention_mask: Tensor, token_positions: Tensor | None
    ) -> tuple[Tensor, Sequence[BatchPart], Packing | None]:
        """Return the token vectors behind the prelude, the parts of the batch, and how the vectors are packed."""
        packing = None if token_positions is None else Packing(token_positions, *input_ids.shape)
        tokens = self.embeddings(input_ids, packing)
        if packing and input_ids.device.type == "cpu" and not torch.compiler.is_compiling():
            parts = list(parts_by_length(attention_mask, self._mask))
        else:  # a GPU would wait for the lengths, and a compiled model be compiled anew for other lengths
            parts = [BatchPart(self._mask(attention_mask), packing)]
        return _apply(self.prelude, tokens, parts), parts, packing

    def _mask(self, attention_mask: Tensor) -> Tensor:
        visible = attention_mask.bool()[:, None, None, :]
        if self.config.qwen:
            visible = visible & (token_distances(attention_mask.shape[1], attention_mask.device) <= 0)
        if self.relative is None:
            return visible
        return self.relative(attention_mask.shape[1]).masked_fill(~visible, -torch.inf)  # type: ignore[no-any-return]

    def _pool(self, tokens: Tensor, attention_mask: Tensor, packing: Packing | None) -> tuple[Tensor, Tensor]:
        """Apply the final norm, if any, head, pooling and normalisation."""
        if packing:
            tokens = packing.unpack(tokens)
        if self.final_norm is not None:
            tokens = self.final_norm(tokens)
        activated = self.config.head_activation is not None
        if self.head is not None and not activated:
            tokens = self.head(tokens)
        if self.config.pooling == "cls":
            sentences = tokens[:, 0]
        elif self.config.pooling == "lasttoken":
            last = (attention_mask.cumsum(1) * attention_mask).argmax(1)
            sentences = tokens[torch.arange(tokens.shape[0], device=tokens.device), last]
        else:
            sentences = mean_pooling(tokens, attention_mask)
        if self.head is not None and activated:
            sentences = torch.tanh(self.head(sentences))
        return tokens, functional.normalize(sentences, dim=-1) if self.config.normalize else sentences

    def layers(self) -> dict[str, TransformerLayer]:
        """Return the distinct layers by name, such as unit.0, in the order in which they are first applied."""
        return {name: cast(TransformerLayer, self.get_submodule(name)) for name in self.config.stack}

    def sizes(self) -> dict[str, int]:
        """Count parameters by part: word, projection, position, token_type, norm, relative, encoder, head.

        A norm behind the layers counts as the encoder's.
        """
        modules = {name: module for name, module in self.embeddings.named_children() if name != "dropout"}
        encoder = nn.ModuleList([*self.layers().values(), *([self.final_norm] if self.final_norm else [])])
        others = {"relative": self.relative, "encoder": encoder, "head": self.head}
        modules |= {name: module for name, module in others.items() if module is not None}
        return {name: sum(weight.numel() for weight in module.parameters()) for name, module in modules.items()}

    def save(self, folder: Path, tokenizer: Tokenizer) -> None:
        """Write `STUDENT_FILES`, and the files that sentence-transformers needs, into an existing folder."""
        self.save_parts(folder, tokenizer)
        for name, value in _SENTENCE_TRANSFORMERS_FILES.items():
            (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")

    def save_parts(self, folder: Path, tokenizer: Tokenizer) -> None:
        """Write only `STUDENT_FILES` into an existing folder."""
        config = {"model_type": STUDENT, **asdict(self.config)}
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        weights = {name: weight.detach().cpu().contiguous() for name, weight in self.state_dict().items()}
        # written anew: a run's weights are hard links to those of its step, and some versions of safetensors overwrite
        with whole_file(folder / "model.safetensors") as temporary:
            save_file(weights, temporary, metadata={"format": "pt"})
        tokenizer.save(str(folder / "tokenizer.json"))

    @classmethod
    def load(cls, folder: Path) -> tuple["Student", Tokenizer]:
        """Read a folder that `save` wrote; the student is in eval mode.

        :raises InputError: when the folder does not hold a student.
        """
        config = read_config(folder)
        file, tokenizer = path_inside(folder, "model.safetensors"), path_inside(folder, "tokenizer.json")
        try:
            weights = load_file(file)
            check_fits(vars(config), sum(map(Tensor.numel, weights.values())), file)
            student = cls(config)
            student.load_state_dict(weights)
            check_finite(student.state_dict(), file)
        except InputError:
            raise
        except Exception as error:  # safetensors' errors have no common base class below Exception
            raise InputError(
                f"{file}: not the weights that config.json describes ({on_one_line(error)}); fetch it again"
            ) from error
        opened = read_tokenizer(tokenizer)
        check_ids(opened, config.vocab_size, tokenizer)
        return student.eval(), opened


def read_config(folder: Path) -> StudentConfig:
    """Read the configuration of a student's folder.

    :raises InputError: when the folder does not hold a student.
    """
    config = read_mapping(path_inside(folder, "config.json"))
    if config.get("model_type") != STUDENT:
        raise InputError(f"{folder}: model_type is {config.get('model_type')!r}, not {STUDENT!r}")
    known = {field.name for field in fields(StudentConfig)}
    given = {name: value for name, value in config.items() if name in known}
    try:
        for kind, settings in ROTARY_LAYERS.items():
            given[kind] = tuple(settings(**layer) for layer in given.get(kind, ()))
        student = StudentConfig(**given)
    except (InputError, TypeError) as error:  # TypeError: a field is missing
        raise InputError(f"{folder / 'config.json'}: {first_line(error)}") from error
    positions = student.max_position_embeddings - student.position_offset
    if student.max_tokens > positions:
        raise InputError(
            f"{folder / 'config.json'}: max_tokens is {student.max_tokens}, but there are positions for {positions} "
            "tokens; correct one of them"
        )
    return student


def shallower(student: Student, recurrences: int) -> Student:
    """Return a student that shares all weights and applies its unit fewer times.

    :raises InputError: when the number is not in 1 ... R.
    """
    check_recurrences(recurrences, student.config.recurrences)
    return reconfigured(student, replace(student.config, recurrences=recurrences), {})


def reconfigured(student: Student, config: StudentConfig, changes: Mapping[str, Tensor]) -> Student:
    """Return a student of another configuration that shares all weights that it has, but some.

    :param changes: the other weights, by name.
    """
    with torch.device("meta"), Uninitialized():
        changed = Student(config)
    state = {**student.state_dict(), **changes}
    changed.load_state_dict({name: state[name] for name in changed.state_dict()}, assign=True)
    return changed.train(student.training)


def set_dropout(student: Student, share: float) -> None:
    """Set the dropout rate after the embeddings' norm, the attention and the feed-forward layer, as in BERT.

    A student that is created or loaded has none. The rate is not saved, and has no effect in eval mode.
    """
    for module in student.modules():
        if isinstance(module, nn.Dropout):
            module.p = share


def _apply(layers: nn.ModuleList, tokens: Tensor, parts: Sequence[BatchPart]) -> Tensor:
    for layer in layers:
        tokens = layer(tokens, parts)
    return tokens


def _initialize_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def mean_pooling(tokens: Tensor, attention_mask: Tensor) -> Tensor:
    """Average the token vectors (N, L, D) that `attention_mask` (N, L) marks with 1; returns (N, D)."""
    weights = attention_mask.to(tokens.dtype).unsqueeze(-1)
    return (tokens * weights).sum(1) / weights.sum(1)


def token_ids(tokenizer: Tokenizer, texts: Sequence[str], config: StudentConfig) -> list[list[int]]:
    """Tokenize texts with the model's prefix and special tokens, truncated to `config.max_tokens`.

    Of each text only the first `LONGEST_TEXT` characters are read. Lone surrogates count as `?`.
    """
    tokenizer.no_padding()
    tokenizer.enable_truncation(config.max_tokens)
    encodings = encode_batch(tokenizer, [config.prefix + clean(text[:LONGEST_TEXT]) for text in texts])
    return [encoding.ids or [config.pad_token_id] for encoding in encodings]


def pad(sequences: Sequence[Sequence[int]], pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Pad token ids on the right, and return `input_ids` and `attention_mask`, both int64, (N, L)."""
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    return pad_joined(np.fromiter(chain.from_iterable(sequences), dtype=np.int64), lengths, pad_token_id)


def pad_joined(ids: NDArray[np.integer], lengths: NDArray[np.int64], pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Pad token ids of N sentences, one after the other in one array, as `pad` does.

    :param lengths: number of tokens of each sentence, (N,).
    """
    visible = np.arange(lengths.max()) < lengths[:, None]
    input_ids = np.full(visible.shape, pad_token_id, dtype=np.int64)
    input_ids[visible] = ids
    return torch.from_numpy(input_ids), torch.from_numpy(visible.astype(np.int64))


def encode(
    student: Student,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    batch_tokens: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> NDArray[np.float32]:
    """Encode texts on the student's device, in batches of similar length.

    :param batch_tokens: tokens of a batch, padding included, unless one text alone has more; default: 2,048 on a CPU,
        65,536 on a GPU.
    :param advance: called after every batch with its number of texts.
    :returns: sentence vectors in the order of `texts`, (len(texts), D).
    """
    sequences = token_ids(tokenizer, texts, student.config)
    vectors = np.empty((len(texts), student.config.dimension), dtype=np.float32)
    device = student.embeddings.word.weight.device
    most = batch_tokens or (BATCH_TOKENS_CPU if device.type == "cpu" else BATCH_TOKENS_GPU)
    student.eval()
    with torch.inference_mode():
        for rows in group_by_length([len(ids) for ids in sequences], lambda tokens: most // tokens):
            input_ids, mask = pad([sequences[row] for row in rows], student.config.pad_token_id)
            _, sentences = student(input_ids.to(device), mask.to(device))
            vectors[rows] = sentences.float().cpu().numpy()
            if advance:
                advance(len(rows))
    return vectors
