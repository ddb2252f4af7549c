"""A small student, its tokenizer and its bundle."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tests.helpers.files import made_once
from xcompress.bundle.manifest import content_hash
from xcompress.distillation.losses.multi_stage import embedding_loss
from xcompress.export.exporter import export
from xcompress.export.text import real_sentences
from xcompress.modeling.rotary_config import ModernBertAttention, RotaryAttention, RotaryBertAttention
from xcompress.modeling.student import Student, StudentConfig, pad, token_ids

SENTENCES = [
    "the boat is late",
    "a red boat waits near the old bridge",
    "der Zug kommt heute nicht",
    "rain",
    "la mer est calme ce matin et le port reste ouvert",
]
CONFIG = StudentConfig(
    vocab_size=400,
    hidden_size=32,
    num_attention_heads=4,
    intermediate_size=64,
    unit_layers=2,
    recurrences=3,
    bottleneck=16,
    head_size=24,
    max_position_embeddings=160,
    position_offset=2,
    prefix="query: ",
)


def make_tokenizer() -> Tokenizer:
    return Tokenizer.from_str(_tokenizer_json())


@cache
def _tokenizer_json() -> str:
    """Choose the words, for which the text of the whole package is read."""
    words = list(dict.fromkeys(word for text in [*SENTENCES, *real_sentences()] for word in text.split()))[:390]
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "query:": 4}
    vocabulary |= {word: 5 + number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer.to_str()


MODERNBERT: dict[str, object] = {
    "unit_layers": 3,
    "recurrences": 1,
    "type_vocab_size": 0,
    "modernbert": (
        ModernBertAttention(1000.0, norm=False),
        ModernBertAttention(100.0, window=4),
        ModernBertAttention(100.0, window=4),
    ),
}
"""Changes that make the student a ModernBERT; texts of some tests are longer than its windows."""
GEMMA: dict[str, object] = {
    "unit_layers": 3,
    "recurrences": 1,
    "type_vocab_size": 0,
    "gemma": (RotaryAttention(100.0, window=4), RotaryAttention(100.0, window=4), RotaryAttention(1000.0)),
    "key_value_heads": 1,
}
"""Changes that make the student an EmbeddingGemma, likewise."""
QWEN: dict[str, object] = {
    "unit_layers": 3,
    "recurrences": 1,
    "type_vocab_size": 0,
    "qwen": (RotaryAttention(1000.0),) * 3,
    "key_value_heads": 2,
    "head_width": 16,
    "pooling": "lasttoken",
}
"""Changes that make the student a Qwen3, whose queries are wider than its token vectors."""
ROTARY_BERT: dict[str, object] = {"rotary_bert": (RotaryBertAttention(1000.0), RotaryBertAttention(1000.0, factor=1.5))}
"""Changes that make the student a BERT with rotary positions, such as jina-embeddings-v3."""
GATED_BERT: dict[str, object] = {
    "type_vocab_size": 0,
    "rotary_bert": (RotaryBertAttention(1000.0, gate="silu", biases=False),) * 2,
}
"""Likewise, with gates and without biases, such as nomic-embed-text."""


def make_student(**changes: object) -> Student:
    torch.manual_seed(0)
    student = Student(replace(CONFIG, **changes)).eval()
    with torch.no_grad():
        for name, weight in student.named_parameters():
            weight.add_(torch.randn_like(weight), alpha=0.02 if "norm" in name else 0.1)
            if name.endswith(("context_norm.weight", "output_norm.weight")) and student.config.gemma:
                weight.mul_(0.01)  # its layers add little to a token, as those of the other kinds do here
            if name.endswith("output.weight") and student.config.qwen:
                weight.mul_(0.05)  # likewise
    return student


def save_student(folder: Path, **changes: object) -> Path:
    folder.mkdir(parents=True)
    make_student(**changes).save(folder, make_tokenizer())
    return folder


@cache
def bundle() -> Path:
    """Export the small student once per test run, on little text; tests must not change it, see `bundle_copy`."""
    return made_once("student", _export_on_little_text) / "small-bundle"


def copy_int8_graph(folder: Path) -> Path:
    """Copy the bundle without its float32 graph: a bench starts a process for each graph."""
    return Path(shutil.copytree(bundle(), folder, ignore=shutil.ignore_patterns("model.onnx")))


def _export_on_little_text(folder: Path) -> None:
    from tests.helpers.export import use_little_text

    with pytest.MonkeyPatch.context() as patch:
        use_little_text(patch)
        export(save_student(folder / "small"))


def change_manifest(folder: Path, **changes: object) -> None:
    """Set keys of a bundle's manifest, as an export would have written them."""
    manifest = json.loads((folder / "manifest.json").read_text()) | changes
    (folder / "manifest.json").write_text(json.dumps(manifest | {"sha256": content_hash(manifest)}))


def student_of_bundle() -> tuple[Student, Tokenizer]:
    return Student.load(bundle().with_name("small"))


@torch.no_grad()
def embedding_error(assistant: Student, student: Student, tokenizer: Tokenizer, texts: Sequence[str]) -> float:
    """Return eq. 3 of multi-stage distillation on texts."""
    input_ids, mask = pad(token_ids(tokenizer, texts, student.config), student.config.pad_token_id)
    return float(embedding_loss(assistant.embeddings(input_ids), student.embeddings(input_ids), mask))
