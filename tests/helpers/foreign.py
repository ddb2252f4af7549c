"""Small encoders saved by transformers and sentence-transformers; tests must not change the folder of `encoder`."""

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from tokenizers import Tokenizer

from tests.helpers.student import SENTENCES, make_tokenizer

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

KINDS = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "modernbert", "gemma3_text", "qwen3")
TEXTS = [*SENTENCES, "", "zzz", " ".join(SENTENCES * 6), "rain " * 400]
WIDTH = 32
SHAPE = {
    "vocab_size": 400,
    "hidden_size": WIDTH,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "pad_token_id": 1,
    "initializer_range": 0.3,
    "max_position_embeddings": 182,
}
GEMMA = {"num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8}
GEMMA |= {"use_bidirectional_attention": True, "sliding_window_pattern": 3}
GEMMA |= {"sliding_window": 2}  # transformers halves what it reads and adds 1, and saves the result: 2 stays 2
QWEN = {"num_key_value_heads": 2, "head_dim": 16}
DISTILBERT = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
DISTILBERT |= {"intermediate_size": "hidden_dim"}


def make_model(kind: str, **changes: object) -> torch.nn.Module:
    from transformers import AutoConfig, AutoModel

    own = {"xlm-roberta": {"type_vocab_size": 1}, "gemma3_text": GEMMA, "qwen3": QWEN}
    shape = SHAPE | own.get(kind, {}) | changes
    if kind == "distilbert":
        shape = {DISTILBERT.get(name, name): value for name, value in shape.items()}
    torch.manual_seed(3)
    return AutoModel.from_config(AutoConfig.for_model(kind, **shape)).eval()


def save_encoder(folder: Path, kind: str, tokenizer: Tokenizer | None = None, **changes: object) -> torch.nn.Module:
    from transformers import PreTrainedTokenizerFast

    model = make_model(kind, **changes)
    model.save_pretrained(folder)
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
    options = {**special, "model_input_names": ["input_ids", "attention_mask"]}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer or make_tokenizer(), **options).save_pretrained(folder)
    return model


@cache
def encoder(kind: str) -> Path:
    place = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    save_encoder(place, kind)
    return place


def save_pipeline(
    folder: Path,
    kind: str = "bert",
    *,
    pooling: str | Sequence[str] = "mean",
    dense: Sequence[str] = (),
    normalize: bool = True,
    longest: int | None = None,
    **options: object,
) -> "SentenceTransformer":
    """Save a model and return it; each activation in `dense` adds a Dense module that is 4 dimensions narrower."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    torch.manual_seed(4)
    steps = [modules.Transformer(str(encoder(kind)), max_seq_length=longest), modules.Pooling(WIDTH, pooling)]
    for number, activation in enumerate(dense):
        sizes = WIDTH - 4 * number, WIDTH - 4 * number - 4
        steps.append(modules.Dense(*sizes, bias=number == 0, activation_function=getattr(torch.nn, activation)()))
    steps += [modules.Normalize()] if normalize else []
    model = SentenceTransformer(modules=steps, device="cpu", **options)
    model.save(str(folder), create_model_card=False)
    return model
