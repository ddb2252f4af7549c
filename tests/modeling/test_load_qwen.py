"""A Qwen3 that is opened as a student has the vectors of sentence-transformers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer, processors

from tests.helpers.foreign import TEXTS, WIDTH, save_encoder
from tests.helpers.vocabularies import make
from xcompress.errors import InputError
from xcompress.files import read_json, write_json
from xcompress.modeling.load import import_encoder
from xcompress.modeling.student import encode, token_ids

pytestmark = pytest.mark.usefixtures("offline")
PROMPT = "Instruct: find the sentence that means the same\nQuery:"
END = 2


def ending_tokenizer() -> Tokenizer:
    """Make byte-level BPE that only ends a text with a token."""
    tokenizer = make("byte_level")
    end = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", END)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), end])
    return tokenizer


def save_qwen(folder: Path, **changes: object) -> None:
    own = {"vocab_size": 1200, "pad_token_id": None, "eos_token_id": END}
    save_encoder(folder, "qwen3", ending_tokenizer(), **own | changes)


@pytest.mark.parametrize(
    ("changes", "padding_side"),
    [
        ({"num_key_value_heads": 2, "head_dim": 16, "rope_theta": 500.0}, "left"),
        ({"num_key_value_heads": 1, "head_dim": 4}, "right"),
        ({"num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 10}, "left"),
    ],
)
def test_a_text_has_the_vector_of_its_last_token(changes: dict[str, object], padding_side: str, tmp_path: Path) -> None:
    save_qwen(tmp_path, **changes)
    steps = [modules.Transformer(str(tmp_path), max_seq_length=60), modules.Pooling(WIDTH, "lasttoken")]
    model = SentenceTransformer(modules=[*steps, modules.Normalize()], prompts={"query": PROMPT}, device="cpu")
    model.tokenizer.padding_side = padding_side
    model.save(str(tmp_path), create_model_card=False)

    student, tokenizer = import_encoder(tmp_path)
    assert (student.config.pooling, student.config.pad_token_id, student.config.max_tokens) == ("lasttoken", END, 60)
    np.testing.assert_allclose(encode(student, tokenizer, TEXTS), model.encode(TEXTS, batch_size=4), atol=1e-5)
    ids = token_ids(tokenizer, TEXTS, student.config)
    assert (len(ids[-1]), {row[-1] for row in ids}) == (60, {END}), "a text that is cut keeps its end"
    student.config = replace(student.config, prefix=PROMPT)
    expected = model.encode(TEXTS, prompt_name="query")
    np.testing.assert_allclose(encode(student, tokenizer, TEXTS), expected, atol=1e-5)


def test_positions_are_read_as_transformers_5_writes_them(tmp_path: Path) -> None:
    save_qwen(tmp_path, rope_theta=500.0)
    before = encode(*import_encoder(tmp_path, pooling="lasttoken"), TEXTS)
    file = tmp_path / "config.json"
    config = {name: value for name, value in read_json(file).items() if name not in ("rope_theta", "rope_scaling")}
    write_json(file, config | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}})
    np.testing.assert_array_equal(encode(*import_encoder(tmp_path, pooling="lasttoken"), TEXTS), before)
    write_json(file, config | {"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}})
    assert np.abs(encode(*import_encoder(tmp_path, pooling="lasttoken"), TEXTS) - before).max() > 0.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention_bias": True}, "attention_bias is True, only False is supported"),
        ({"use_sliding_window": True}, "use_sliding_window is True, only False is supported"),
        ({"layer_types": ["sliding_attention"] * 3}, "window of attention is 0"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', only 'silu' is supported"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling is .*, only None is supported"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "only the rope_type 'default' is supported"),
        ({"num_key_value_heads": 3}, "num_attention_heads 4 is not a multiple of key_value_heads 3"),
        ({"num_key_value_heads": None}, "no num_key_value_heads; give a complete encoder"),
        ({"head_dim": 0}, "head_dim is 0, expected a whole number from 1"),
        ({"head_dim": 7}, "a head is 7 wide, and rotary positions need an even number"),
        ({"head_dim": 100_000, "num_hidden_layers": 1000}, "the sizes make .* parameters, over 10,000,000,000"),
        ({"eos_token_id": None}, "pad_token_id is None, expected a whole number"),
    ],
)
def test_a_qwen_with_other_features_is_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    save_qwen(tmp_path)
    write_json(tmp_path / "config.json", read_json(tmp_path / "config.json") | change)
    with pytest.raises(InputError, match=rf"config\.json: .*{message}"):
        import_encoder(tmp_path)
