"""An encoder that is BERT with rotary positions is opened as a student of the same vectors."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers.export import opened
from tests.helpers.foreign import SHAPE, TEXTS, WIDTH, make_model, save_encoder
from tests.helpers.rotary import CONFIGS, rotary_vectors, save_rotary
from xcompress.errors import InputError
from xcompress.export.graph import build
from xcompress.files import read_json, write_json
from xcompress.modeling.layers import rotary_angles
from xcompress.modeling.load import import_encoder
from xcompress.modeling.student import Student, encode, pad, token_ids

INNER_NAMES = r"that only the code of transformers 5 knows; .* save_pretrained\(folder, save_original_format=True\)$"
pytestmark = pytest.mark.usefixtures("offline")


def graph_vectors(student: Student, sequences: list[list[int]]) -> np.ndarray:
    ids, mask = pad(sequences, student.config.pad_token_id)
    feeds = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
    return opened(build(student)).run(["sentence_embedding"], feeds)[0]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_vectors_are_those_of_the_formulas(kind: str, pooling: str, tmp_path: Path) -> None:
    save_rotary(tmp_path, kind, pooling)
    student, tokenizer = import_encoder(tmp_path)
    ids = token_ids(tokenizer, TEXTS, student.config)
    assert max(map(len, ids)) == student.config.max_tokens == SHAPE["max_position_embeddings"]
    expected = rotary_vectors(tmp_path, ids)
    np.testing.assert_allclose(encode(student, tokenizer, TEXTS), expected, atol=5e-6)
    np.testing.assert_allclose(graph_vectors(student, ids), expected, atol=5e-6)


@pytest.mark.parametrize("kind", ["jina_embeddings_v3", "nomic_bert", "gte"])
def test_vectors_are_those_of_sentence_transformers(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers.models.gte", reason="needs transformers 5.19 or newer")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    options = {name: value for name, value in CONFIGS[kind].items() if name != "hidden_act"}
    save_encoder(tmp_path, kind, **options)
    model = make_model(kind, **options)
    with torch.no_grad():
        for weight in model.parameters():  # biases are 0 before
            weight.add_(torch.randn_like(weight), alpha=0.1)
    model.save_pretrained(tmp_path)
    steps = [modules.Transformer(str(tmp_path)), modules.Pooling(WIDTH, "mean"), modules.Normalize()]
    whole = SentenceTransformer(modules=steps, device="cpu")
    whole.save(str(tmp_path), create_model_card=False)

    student, tokenizer = import_encoder(tmp_path)
    ids, expected = token_ids(tokenizer, TEXTS, student.config), whole.encode(TEXTS, batch_size=4)
    assert whole.tokenizer(TEXTS, truncation=True, max_length=whole.max_seq_length)["input_ids"] == ids
    np.testing.assert_allclose(encode(student, tokenizer, TEXTS), expected, atol=5e-6)
    np.testing.assert_allclose(graph_vectors(student, ids), expected, atol=5e-6)
    np.testing.assert_allclose(rotary_vectors(tmp_path, ids), expected, atol=5e-6)
    model.save_pretrained(tmp_path, save_original_format=False)
    with pytest.raises(InputError, match=INNER_NAMES):
        import_encoder(tmp_path)


@pytest.mark.parametrize(
    ("kind", "base"), [("jina_embeddings_v3", 20_000.0), ("nomic_bert", 1000.0), ("gte", 160_000.0), ("new", 10_000.0)]
)
def test_positions_have_the_base_of_the_family_where_none_is_named(kind: str, base: float, tmp_path: Path) -> None:
    save_rotary(tmp_path, kind, rope_parameters=None, rope_scaling=None)
    config = read_json(tmp_path / "config.json")
    config.pop("rope_theta", None)
    write_json(tmp_path / "config.json", config)
    student, _ = import_encoder(tmp_path)
    assert student.config.rotary[0].rotation == (base, 1.0)


def test_positions_are_scaled_as_gte_does(tmp_path: Path) -> None:
    """The angles of gte-multilingual-base, whose heads are 64 wide, by the formula of its code, which vLLM has, too."""
    sizes = {"hidden_size": 128, "num_attention_heads": 2, "rope_theta": 20_000.0}
    student, _ = import_encoder(save_rotary(tmp_path / "ntk", "new", **sizes))
    pairs = torch.arange(0, 64, 2).float() / 64
    expected = 1 / (20_000.0 * 8) ** pairs / 8 ** (2 / 64)
    rotation = student.config.rotary[0].rotation
    torch.testing.assert_close(rotary_angles(2, 64, rotation)[1], expected, rtol=1e-6, atol=0)
    # as transformers 5 writes the same
    linear = {"rope_type": "linear", "factor": 8 ** (2 / 64), "rope_theta": 160_000.0}
    same, _ = import_encoder(save_rotary(tmp_path / "linear", "gte", **sizes, rope_parameters=linear))
    assert same.config.rotary[0].rotation == rotation == (160_000.0, 8 ** (2 / 64))


def test_a_student_saves_layers_with_rotary_positions(tmp_path: Path) -> None:
    student, tokenizer = import_encoder(save_rotary(tmp_path / "nomic", "nomic_bert"))
    (tmp_path / "student").mkdir()
    student.save(tmp_path / "student", tokenizer)
    again, _ = import_encoder(tmp_path / "student")
    assert again.config == student.config
    np.testing.assert_array_equal(encode(again, tokenizer, TEXTS), encode(student, tokenizer, TEXTS))


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("new", {"logn_attention_scale": True}, "logn_attention_scale is True, only False is supported"),
        ("new", {"layer_norm_type": "rms_norm"}, "layer_norm_type is 'rms_norm', only 'layer_norm' is supported"),
        ("new", {"position_embedding_type": "absolute"}, "position_embedding_type is 'absolute', only 'rope'"),
        ("new", {"pack_qkv": False}, "pack_qkv is False, only True is supported"),
        ("new", {"hidden_act": "relu"}, "hidden_act is 'relu', only 'gelu' is supported"),
        ("new", {"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.5}}, "scaled by .*mixed_b.*, only the"),
        ("new", {"rope_scaling": {"type": "yarn", "factor": 2.0}}, "are scaled by .*yarn.*, only the types default"),
        ("new", {"rope_scaling": {"type": ["ntk"], "factor": 2.0}}, "only the types default, linear and ntk are"),
        ("new", {"rope_scaling": {"type": "ntk"}}, "factor of rotary positions is None, expected a number from 1"),
        ("new", {"rope_scaling": {"type": "ntk", "factor": "8"}}, "factor of rotary positions is '8', expected"),
        ("new", {"rope_scaling": {"type": "ntk", "factor": 0.5}}, r"factor of rotary positions is 0\.5, expected"),
        ("new", {"rope_scaling": {"type": "ntk", "factor": 10**400}}, "factor of rotary positions is 1000"),
        ("new", {"rope_scaling": "ntk"}, "the rotary positions are scaled by 'ntk', only"),
        ("new", {"rope_theta": None}, "base of rotary positions is None, expected a number from 1"),
        ("new", {"rope_theta": 10**400}, "base of rotary positions is 1000"),
        ("new", {"rope_theta": 1e10, "rope_scaling": {"type": "ntk", "factor": 1e10}}, r"base of .* is 1e\+20, expect"),
        ("gte", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "scaled by .*partial_"),
        ("gte", {"rope_parameters": {"full_attention": {"rope_theta": 5.0}}}, "are scaled by .*full_attention"),
        ("gte", {"rope_parameters": [1]}, r"the rotary positions are scaled by \[1\], only"),
        ("nomic_bert", {"head_dim": 16}, "head_dim is 16, only hidden_size / num_attention_heads, 8, is supported"),
        ("nomic_bert", {"num_experts": 8}, "num_experts is 8, only 0 is supported"),
        ("nomic_bert", {"hidden_act": "gelu"}, "hidden_act is 'gelu', only 'silu' is supported"),
        ("nomic_bert", {"num_attention_heads": 0}, "num_attention_heads is 0, expected a whole number from 1"),
        ("jina_embeddings_v3", {"num_attention_heads": 5}, "hidden_size 32 is not a multiple of num_attention_heads 5"),
        ("jina_embeddings_v3", {"num_attention_heads": 32}, "a head is 1 wide, and rotary positions need an even"),
        ("jina_embeddings_v3", {"num_attention_heads": 64}, "hidden_size 32 is not a multiple of num_attention_heads"),
        ("jina_embeddings_v3", {"num_hidden_layers": "3"}, "no num_hidden_layers; give a complete encoder"),
        ("jina_embeddings_v3", {"type_vocab_size": None}, "type_vocab_size is None, expected a whole number from 0"),
        ("jina_embeddings_v3", {"layer_norm_eps": "x"}, "layer_norm_eps is 'x', expected a number from 0"),
    ],
)
def test_other_features_are_refused(kind: str, change: dict[str, object], message: str, tmp_path: Path) -> None:
    save_rotary(tmp_path, kind)
    write_json(tmp_path / "config.json", read_json(tmp_path / "config.json") | change)
    with pytest.raises(InputError, match=rf"^[^\n]*config\.json: [^\n]*{message}[^\n]*$"):
        import_encoder(tmp_path)


def test_the_families_are_among_those_that_a_message_names(tmp_path: Path) -> None:
    save_rotary(tmp_path, "jina_embeddings_v3")
    write_json(tmp_path / "config.json", {"model_type": "gte2"})
    with pytest.raises(InputError, match="jina_embeddings_v3, nomic_bert, gte, new: choose another encoder"):
        import_encoder(tmp_path)


def test_an_older_nomic_bert_is_refused_with_advice(tmp_path: Path) -> None:
    save_rotary(tmp_path, "nomic_bert")
    older = {"model_type": "nomic_bert", "n_embd": 32, "n_head": 4, "n_inner": 64, "n_layer": 3, "n_positions": 182}
    write_json(tmp_path / "config.json", older)
    with pytest.raises(InputError, match=r"no .*hidden_size, .*; open the model with transformers 5 and save it again"):
        import_encoder(tmp_path)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("nomic_bert", "encoder.layers.1.mlp.fc12.weight", "unit.1.intermediate.weight is missing, expected"),
        ("gte", "encoder.layer.0.mlp.up_gate_proj.weight", "unit.0.intermediate.weight is missing, expected"),
        ("jina_embeddings_v3", "roberta.embeddings.token_type_embeddings.weight", "token_type.weight is missing"),
    ],
)
def test_a_missing_weight_is_named(kind: str, name: str, message: str, tmp_path: Path) -> None:
    save_rotary(tmp_path, kind)
    weights = load_file(tmp_path / "model.safetensors")
    del weights[name]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=message):
        import_encoder(tmp_path)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((), torch.float32), ((0, 32), torch.float32), ((3, 32), torch.float32), ((128, 32), torch.int8)],
)
def test_a_gated_product_of_another_shape_or_type_is_one_line(
    shape: tuple[int, ...], dtype: torch.dtype, tmp_path: Path
) -> None:
    save_rotary(tmp_path, "gte")
    weights = load_file(tmp_path / "model.safetensors")
    weights["encoder.layer.0.mlp.up_gate_proj.weight"] = torch.ones(shape).to(dtype)
    save_file(weights, tmp_path / "model.safetensors")
    message = r"^[^\n]*unit\.0\.intermediate\.weight is (of shape|stored as (int8|float8))[^\n]*$"
    with pytest.raises(InputError, match=message):
        import_encoder(tmp_path)


def test_the_inner_names_of_transformers_5_are_refused_with_advice(tmp_path: Path) -> None:
    save_rotary(tmp_path, "gte")
    weights = load_file(tmp_path / "model.safetensors")
    inner = {name.replace("encoder.layer", "layers").replace("attention.qkv", "self_attn.q"): name for name in weights}
    save_file({name: weights[old] for name, old in inner.items()}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=INNER_NAMES):
        import_encoder(tmp_path)


def test_an_adapter_beside_the_weights_is_refused(tmp_path: Path) -> None:
    save_rotary(tmp_path, "jina_embeddings_v3")
    write_json(tmp_path / "text-matching" / "adapter_config.json", {"base_model_name_or_path": "jina"})
    with pytest.raises(InputError, match=r"an adapter of 'jina'.*; merge the adapter into it with peft"):
        import_encoder(tmp_path)


@pytest.mark.parametrize("kind", ["new", "gte", "nomic_bert"])
def test_code_that_a_known_family_names_is_not_needed(kind: str, tmp_path: Path) -> None:
    named = {"auto_map": {"AutoModel": "modeling.NewModel"}}
    save_rotary(tmp_path, kind, **named)
    (tmp_path / "modeling.py").write_text("raise SystemExit")
    assert import_encoder(tmp_path)[0].config.rotary_bert
    write_json(tmp_path / "tokenizer_config.json", named)
    with pytest.raises(InputError, match=r"tokenizer_config\.json: auto_map names 'modeling\.NewModel'"):
        import_encoder(tmp_path)


def test_code_of_another_family_is_refused(tmp_path: Path) -> None:
    save_rotary(tmp_path, "jina_embeddings_v3", auto_map={"AutoModel": "modeling.Own"})
    with pytest.raises(InputError, match=r"config\.json: auto_map names 'modeling\.Own'"):
        import_encoder(tmp_path)
