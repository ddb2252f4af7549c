import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from transformers import AutoModel

from tests.helpers.foreign import KINDS, TEXTS, WIDTH, encoder, save_encoder, save_pipeline
from tests.helpers.student import make_tokenizer, save_student
from tests.helpers.vocabularies import make
from xcompress.distillation.teachers.layer_sources import import_layers
from xcompress.errors import InputError
from xcompress.files import read_json, write_json
from xcompress.modeling.load import import_encoder
from xcompress.modeling.student import Student, encode, pad, shallower
from xcompress.recipe import EncoderSection

pytestmark = pytest.mark.usefixtures("offline")
POOLINGS = ("mean", "cls")
HEADS = ((), ("Identity",), ("Tanh",), ("Identity", "Identity", "Tanh"))


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr("xcompress.console.warn", said.append)
    return said


@pytest.mark.parametrize("kind", KINDS)
def test_imported_encoder_gives_the_same_token_vectors(kind: str, tmp_path: Path) -> None:
    model = save_encoder(tmp_path, kind)
    student, _ = import_encoder(tmp_path, prefix="query: ", pooling="mean", max_tokens=512)
    ids, mask = pad([[0, *range(5, 150), 2], [0, 7, 2]], 1)
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
        tokens, sentences = student(ids, mask)
    real = mask.bool()
    torch.testing.assert_close(tokens[real], expected[real], atol=1e-5, rtol=1e-4)
    mean = torch.stack([expected[0].mean(0), expected[1, :3].mean(0)])
    torch.testing.assert_close(sentences, torch.nn.functional.normalize(mean, dim=-1), atol=1e-5, rtol=1e-4)
    assert student.config.max_tokens == (180 if kind in ("roberta", "xlm-roberta", "camembert", "mpnet") else 182)
    assert student.config.prefix == "query: "


@pytest.mark.parametrize(("kind", "pooling", "dense"), product(KINDS, POOLINGS, HEADS))
@pytest.mark.parametrize("normalize", [True, False])
def test_a_pipeline_gives_the_same_sentence_vectors(
    kind: str, pooling: str, dense: tuple[str, ...], normalize: bool, tmp_path: Path
) -> None:
    model = save_pipeline(tmp_path, kind, pooling=pooling, dense=dense, normalize=normalize, longest=170)
    student, tokenizer = import_encoder(tmp_path)
    expected = model.encode(TEXTS, batch_size=4)
    np.testing.assert_allclose(encode(student, tokenizer, TEXTS), expected, atol=1e-5)
    assert (student.config.pooling, student.config.normalize) == (pooling, normalize)
    assert student.config.head_activation == ("tanh" if "Tanh" in dense else None)
    assert student.config.max_tokens == 170


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("electra", {"embedding_size": WIDTH}),
        ("ernie", {}),
        ("ernie", {"use_task_id": True, "task_type_vocab_size": 3, "type_vocab_size": 4}),
        ("data2vec-text", {}),
    ],
)
def test_bert_and_roberta_under_other_names_are_read(kind: str, changes: dict[str, object], tmp_path: Path) -> None:
    save_encoder(tmp_path, kind, **changes)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    assert model[0].auto_model.config.model_type == kind
    model.max_seq_length = 170
    model.save(str(tmp_path), create_model_card=False)
    np.testing.assert_allclose(encode(*import_encoder(tmp_path), TEXTS), model.encode(TEXTS), atol=1e-5)


def test_the_models_of_the_matrix_differ(tmp_path: Path) -> None:
    vectors = []
    kinds = [kind for kind in KINDS if kind != "camembert"]  # a RoBERTa of another name
    for number, (kind, pooling) in enumerate(product(kinds, POOLINGS)):
        (tmp_path / str(number)).mkdir()
        save_pipeline(tmp_path / str(number), kind, pooling=pooling, longest=170)
        vectors.append(encode(*import_encoder(tmp_path / str(number)), TEXTS))
    found = [np.abs(left - right).max() for row, left in enumerate(vectors) for right in vectors[:row]]
    assert min(found) > 0.01


def test_an_older_folder_is_read_as_well(tmp_path: Path) -> None:
    """Types that have moved since, a folder of its own for the encoder, one flag per way of pooling."""
    model = save_pipeline(tmp_path, "mpnet", pooling="cls", dense=["Tanh"], longest=170)
    inner = tmp_path / "0_Transformer"
    inner.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).rename(inner / name)
    (tmp_path / "sentence_bert_config.json").unlink()
    write_json(inner / "sentence_roberta_config.json", {"max_seq_length": 12, "do_lower_case": False})
    modules = read_json(tmp_path / "modules.json")
    for module in modules:
        module["type"] = "sentence_transformers.models." + module["type"].rpartition(".")[2]
    modules[0]["path"] = "0_Transformer"
    write_json(tmp_path / "modules.json", modules)
    write_json(
        tmp_path / "1_Pooling" / "config.json", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    )
    model.max_seq_length = 12
    student, tokenizer = import_encoder(tmp_path)
    np.testing.assert_allclose(encode(student, tokenizer, TEXTS), model.encode(TEXTS), atol=1e-5)


def test_older_names_of_a_layer_norms_weights_and_any_prefix(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    before = encode(*import_encoder(tmp_path, pooling="cls"), TEXTS)
    renamed = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    weights = {"cls.predictions.bias": torch.zeros(400)}
    for name, weight in load_file(tmp_path / "model.safetensors").items():
        for new, old in renamed.items():
            name = name.replace(new, old)
        weights[f"model.bert.{name}"] = weight
    save_file(weights, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(encode(*import_encoder(tmp_path, pooling="cls"), TEXTS), before)


@pytest.mark.parametrize(("said", "asked", "expected"), [(40, None, 40), (40, 20, 20), (40, 60, 40), (None, None, 180)])
def test_the_longest_text_is_the_models_own_and_can_be_lowered(
    said: int | None, asked: int | None, expected: int, tmp_path: Path
) -> None:
    save_pipeline(tmp_path, "roberta", longest=said)
    assert import_encoder(tmp_path, max_tokens=asked)[0].config.max_tokens == expected


def test_the_longest_text_has_an_older_name_as_well(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    file = tmp_path / "tokenizer_config.json"
    settings = read_json(file)
    del settings["model_max_length"]
    write_json(file, settings | {"max_len": 9})
    assert SentenceTransformer(str(tmp_path), device="cpu").max_seq_length == 9
    assert import_encoder(tmp_path)[0].config.max_tokens == 9


@pytest.mark.parametrize("file", ["tokenizer_config.json", "tokenizer.json"])
def test_a_tokenizer_that_keeps_the_end_of_a_long_text_is_refused(file: str, tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    if file == "tokenizer.json":
        tokenizer = Tokenizer.from_file(str(tmp_path / file))
        tokenizer.enable_truncation(8, direction="left")
        tokenizer.save(str(tmp_path / file))
    else:
        write_json(tmp_path / file, read_json(tmp_path / file) | {"truncation_side": "left"})
    with pytest.raises(InputError, match=r"tokenizer_config\.json: truncation_side is 'left', .* set it to 'right'"):
        import_encoder(tmp_path)
    # the setting of transformers decides
    write_json(
        tmp_path / "tokenizer_config.json", read_json(tmp_path / "tokenizer_config.json") | {"truncation_side": "right"}
    )
    import_encoder(tmp_path)


def test_a_tokenizer_that_splits_special_tokens_is_refused(tmp_path: Path) -> None:
    """A tokenizer.json always takes them for one token, so a bundle could not do as sentence-transformers does."""
    model, texts = save_pipeline(tmp_path), ["the boat<s>rain"]
    np.testing.assert_allclose(encode(*import_encoder(tmp_path), texts), model.encode(texts), atol=1e-5)
    file = tmp_path / "tokenizer_config.json"
    write_json(file, read_json(file) | {"split_special_tokens": True})
    assert np.abs(SentenceTransformer(str(tmp_path), device="cpu").encode(texts) - model.encode(texts)).max() > 0.1
    with pytest.raises(InputError, match=r"tokenizer_config\.json: split_special_tokens is set, .* remove it there if"):
        import_encoder(tmp_path)


def test_the_default_prompt_is_the_prefix_unless_one_is_given(tmp_path: Path) -> None:
    model = save_pipeline(tmp_path, prompts={"rain": "rain ", "sea": "la mer "}, default_prompt_name="sea")
    np.testing.assert_allclose(encode(*import_encoder(tmp_path), TEXTS), model.encode(TEXTS), atol=1e-5)
    other, tokenizer = import_encoder(tmp_path, prefix="rain ")
    expected = model.encode(TEXTS, prompt_name="rain")
    np.testing.assert_allclose(encode(other, tokenizer, TEXTS), expected, atol=1e-5)
    settings = read_json(tmp_path / "config_sentence_transformers.json")
    write_json(tmp_path / "config_sentence_transformers.json", settings | {"default_prompt_name": "snow"})
    with pytest.raises(InputError, match=r"default_prompt_name is 'snow', prompts are \["):
        import_encoder(tmp_path)


def test_texts_are_put_in_lower_case_where_the_model_says_so(tmp_path: Path) -> None:
    model = save_pipeline(tmp_path, longest=40)
    settings = read_json(tmp_path / "sentence_bert_config.json")
    write_json(tmp_path / "sentence_bert_config.json", settings | {"do_lower_case": True})
    found = encode(*import_encoder(tmp_path), ["RAIN", "The Boat"])
    np.testing.assert_allclose(found, model.encode(["rain", "the boat"]), atol=1e-5)


def test_a_folder_without_a_pipeline_is_pooled_as_the_caller_says(tmp_path: Path, warnings: list[str]) -> None:
    folder = encoder("mpnet")
    vectors = {pooling: encode(*import_encoder(folder, pooling=pooling), TEXTS) for pooling in POOLINGS}
    assert warnings == []
    np.testing.assert_array_equal(encode(*import_encoder(folder), TEXTS), vectors["mean"])
    assert len(warnings) == 1 and "no modules.json" in warnings[0]
    assert np.abs(vectors["mean"] - vectors["cls"]).max() > 0.1
    with pytest.raises(InputError, match="pooled by 'max', only mean, cls, lasttoken are supported; choose one"):
        import_encoder(folder, pooling="max")


def test_a_pipeline_is_not_pooled_in_another_way_than_its_own(tmp_path: Path) -> None:
    save_pipeline(tmp_path, pooling="cls")
    with pytest.raises(InputError, match="pooling 'mean' requested, but the model declares 'cls'"):
        import_encoder(tmp_path, pooling="mean")


@pytest.mark.parametrize(("pooling", "named"), [("max", "'max'"), (["mean", "cls"], r"'mean\+cls'")])
def test_other_ways_of_pooling_are_refused_by_name(pooling: str | list[str], named: str, tmp_path: Path) -> None:
    save_pipeline(tmp_path, pooling=pooling, dense=())
    with pytest.raises(InputError, match=f"pooled by {named}, only mean, cls, lasttoken are supported; choose another"):
        import_encoder(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({2: "sentence_transformers.models.LayerNorm"}, r"module sentence_transformers\.models\.LayerNorm is not supp"),
        ({1: "someone.Pooling"}, r"names .someone\.Pooling., which could run code"),
        ({2: "sentence_transformers.models.Normalize"}, "Transformer, Pooling, Normalize, Normalize, supported is"),
        ({1: "sentence_transformers.models.Dense"}, "modules come as Transformer, Dense, Dense, Normalize"),
    ],
)
def test_modules_without_a_place_in_a_student_are_refused(change: dict[int, str], message: str, tmp_path: Path) -> None:
    save_pipeline(tmp_path, dense=["Identity"])
    modules = read_json(tmp_path / "modules.json")
    for number, kind in change.items():
        modules[number]["type"] = kind
    write_json(tmp_path / "modules.json", modules)
    with pytest.raises(InputError, match=message):
        import_encoder(tmp_path)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("2_Dense", {"activation_function": "torch.nn.modules.activation.ReLU"}, "activation_function is .*ReLU"),
        ("2_Dense", {"activation_function": "torch.nn.modules.activation.Tanh"}, "tanh between dense modules"),
        ("3_Dense", {"use_residual": True}, "3_Dense: only dense .* without a residual"),
        ("3_Dense", {"module_input_name": "token_embeddings"}, "3_Dense: only dense modules from sentence vector"),
        ("1_Pooling", {"include_prompt": False}, "leaves the tokens of the prompt 'sea ' out of its pooling"),
        ("", {"model_type": "gpt2"}, "model_type is 'gpt2'; supported are bert, roberta, xlm-roberta, camembert, dist"),
        ("", {"model_type": None}, "model_type is None"),
        ("", {"hidden_act": "gelu_new"}, r"config\.json: hidden_act is 'gelu_new', only 'gelu' is supported"),
        ("", {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ("", {"quantization_config": {"quant_method": "awq"}}, r"config\.json: has a quantization_config; give"),
        ("", {"model_type": "ernie", "use_task_id": True}, r"weight embeddings\.token_type\.weight is missing"),
        ("", {"model_type": "electra", "embedding_size": 16}, "embedding_size is 16, only 32 is supported"),
        ("", {"num_hidden_layers": None}, r"config\.json: no num_hidden_layers"),
        ("", {"num_hidden_layers": 4}, r"weight unit\.3\.\S+ is missing"),
        ("", {"vocab_size": 401}, r"embeddings\.word\.weight is of shape \(400, 32\), expected shape \(401, 32\)"),
    ],
)
def test_features_that_a_student_lacks_are_refused(
    file: str, change: dict[str, object], message: str, tmp_path: Path
) -> None:
    save_pipeline(tmp_path, dense=["Identity", "Identity"], prompts={"sea": "sea "}, default_prompt_name="sea")
    place = tmp_path / file / "config.json"
    write_json(place, read_json(place) | change)
    with pytest.raises(InputError, match=message):
        import_encoder(tmp_path)


def test_prompts_by_name_whose_tokens_are_not_pooled_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "1_Pooling" / "config.json"
    save_pipeline(tmp_path, prompts={"query": "rain ", "document": ""})
    write_json(file, read_json(file) | {"include_prompt": False})
    with pytest.raises(InputError, match="leaves the tokens of the prompt 'rain ' out of its pooling"):
        import_encoder(tmp_path)
    save_pipeline(tmp_path, prompts={"query": "", "document": ""})
    write_json(file, read_json(file) | {"include_prompt": False})
    import_encoder(tmp_path)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"processing_kwargs": {"text": {"max_length": 6}}}, "max_length"),
        ({"processing_kwargs": {"common": {"add_special_tokens": False}}}, "add_special_tokens"),
        ({"tokenizer_args": {"model_max_length": 6}}, "model_max_length"),
        ({"processor_kwargs": {"truncation_side": "left"}}, "truncation_side"),
        ({"config_kwargs": {"is_decoder": True}}, "is_decoder"),
    ],
)
@pytest.mark.parametrize("name", ["sentence_bert_config.json", "sentence_roberta_config.json"])
def test_arguments_of_transformers_that_change_vectors_are_refused(
    settings: dict[str, object], named: str, name: str, tmp_path: Path
) -> None:
    save_pipeline(tmp_path)
    file = (tmp_path / "sentence_bert_config.json").rename(tmp_path / name)
    write_json(file, read_json(file) | settings)
    with pytest.raises(InputError, match=f"{name}: sets {named} in arguments of transformers"):
        import_encoder(tmp_path)


def test_how_texts_are_padded_may_be_set_as_it_changes_no_vectors(tmp_path: Path) -> None:
    save_pipeline(tmp_path)
    file = tmp_path / "sentence_bert_config.json"
    write_json(file, read_json(file) | {"processing_kwargs": {"text": {"padding": "max_length"}}})
    import_encoder(tmp_path)


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_vectors_are_computed_in_float32_where_the_folder_sets_another_type(name: str, tmp_path: Path) -> None:
    expected = save_pipeline(tmp_path).encode(TEXTS)
    file = tmp_path / "sentence_bert_config.json"
    write_json(file, read_json(file) | {"model_kwargs": {name: "bfloat16"}})
    np.testing.assert_allclose(encode(*import_encoder(tmp_path), TEXTS), expected, atol=1e-5)
    rounded = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    assert 1e-3 < np.abs(rounded - expected).max() < 0.02


@pytest.mark.parametrize("name", ["sentence_bert_config.json", "sentence_roberta_config.json"])
def test_a_model_for_another_task_is_refused(name: str, tmp_path: Path) -> None:
    save_pipeline(tmp_path)
    (tmp_path / "sentence_bert_config.json").unlink()
    write_json(tmp_path / name, {"transformer_task": "fill-mask"})
    message = f"{name}: outputs .* of the task 'fill-mask', only 'last_hidden_state' of 'feature-extraction'"
    with pytest.raises(InputError, match=message):
        import_encoder(tmp_path)


@pytest.mark.parametrize("kind", ["roberta", "mpnet"])
@pytest.mark.parametrize("token", ["<unk>", "<s>", "boat"])
def test_padding_that_texts_have_is_refused_as_it_has_no_position(kind: str, token: str, tmp_path: Path) -> None:
    """A tokenizer made for BERT has the unknown token where a new RoBERTa has its padding."""
    state = json.loads(make_tokenizer().to_str())
    vocabulary = state["model"]["vocab"]
    vocabulary[token], vocabulary["<pad>"] = vocabulary["<pad>"], vocabulary[token]
    for added in state["added_tokens"]:
        added["id"] = vocabulary[added["content"]]
    state["post_processor"]["special_tokens"]["<s>"]["ids"] = [vocabulary["<s>"]]
    save_encoder(tmp_path, kind, Tokenizer.from_str(json.dumps(state)))
    with pytest.raises(InputError, match=f"gives the id 1 to '{token}', but the model takes it for padding"):
        import_encoder(tmp_path, pooling="mean")
    save_encoder(tmp_path, "bert", Tokenizer.from_str(json.dumps(state)))
    import_encoder(tmp_path, pooling="mean")


@pytest.mark.parametrize(("kind", "token", "padding"), [("wordpiece", "##ed", "[PAD]"), ("unigram", "se", "<pad>")])
def test_padding_that_texts_have_only_inside_of_words_is_refused(
    kind: str, token: str, padding: str, tmp_path: Path
) -> None:
    tokenizer = make(kind)
    shape: dict[str, object] = {"vocab_size": tokenizer.get_vocab_size() + 5, "max_position_embeddings": 1000}
    save_encoder(tmp_path, "roberta", make(kind), pad_token_id=tokenizer.token_to_id(padding), **shape)
    import_encoder(tmp_path, pooling="mean")
    number = tokenizer.token_to_id(token)
    save_encoder(tmp_path, "roberta", make(kind), pad_token_id=number, **shape)
    with pytest.raises(InputError, match=f"gives the id {number} to '{token}', but the model takes it for padding"):
        import_encoder(tmp_path, pooling="mean")


def test_padding_that_is_the_unknown_token_is_refused_whatever_rare_letter_the_vocabulary_has(tmp_path: Path) -> None:
    state = json.loads(make_tokenizer().to_str())
    vocabulary = state["model"]["vocab"]
    vocabulary["<unk>"], vocabulary["<pad>"] = 1, 3
    for added in state["added_tokens"]:
        added["id"] = vocabulary[added["content"]]
    vocabulary["\U00010000"] = vocabulary.pop("boat")
    save_encoder(tmp_path, "roberta", Tokenizer.from_str(json.dumps(state)))
    with pytest.raises(InputError, match="gives the id 1 to '<unk>', but the model takes it for padding"):
        import_encoder(tmp_path, pooling="mean")


def test_a_decoder_that_fails_on_the_padding_does_not_stop_an_import(tmp_path: Path) -> None:
    """One that strips more letters than a token has panics."""
    state = json.loads(make_tokenizer().to_str())
    vocabulary = state["model"]["vocab"]
    vocabulary["bbb"] = vocabulary.pop("boat")
    vocabulary["bbb"], vocabulary["<pad>"] = vocabulary["<pad>"], vocabulary["bbb"]
    for added in state["added_tokens"]:
        added["id"] = vocabulary[added["content"]]
    state["decoder"] = {"type": "Strip", "content": "b", "start": 0, "stop": 50}
    save_encoder(tmp_path, "roberta", Tokenizer.from_str(json.dumps(state)))
    import_encoder(tmp_path, pooling="mean")


def test_another_number_of_distance_buckets_is_refused(tmp_path: Path) -> None:
    save_encoder(tmp_path, "mpnet", relative_attention_num_buckets=64)
    with pytest.raises(InputError, match="relative_attention_num_buckets is 64, only 32 is supported"):
        import_encoder(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm_bias": True}, "norm_bias is True, only False is supported"),
        ({"hidden_activation": "silu"}, "hidden_activation is 'silu', only 'gelu' is supported"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0 and local_attention 128, expected"),
        ({"local_attention": "far"}, "local_attention 'far', expected"),
        (
            {"global_rope_theta": 0, "rope_parameters": None},
            "base of rotary positions is 0, expected a number from 1 to",
        ),
        ({"layer_types": ["full_attention"]}, r"layer_types is \['full_attention'\], expected full_attention or"),
        ({"layer_types": "full"}, "layer_types is 'full'"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling is .*, only None is supported"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "only the rope_type 'default' is supported"),
        ({"rope_parameters": {"full_attention": 5}}, "rope_parameters has 5"),
    ],
)
def test_a_modernbert_with_other_features_is_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    save_encoder(tmp_path, "modernbert")
    write_json(tmp_path / "config.json", read_json(tmp_path / "config.json") | change)
    with pytest.raises(InputError, match=rf"config\.json: .*{message}"):
        import_encoder(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_bidirectional_attention": False}, "use_bidirectional_attention is not true, so that a token sees only"),
        ({"attn_logit_softcapping": 30.0}, "attn_logit_softcapping is 30.0, only None is supported"),
        ({"hidden_activation": "gelu"}, "hidden_activation is 'gelu', only 'gelu_pytorch_tanh' is supported"),
        ({"head_dim": 16}, "query_pre_attn_scalar is 8, only that of head_dim, 16, is supported"),
        ({"query_pre_attn_scalar": "8"}, "query_pre_attn_scalar is '8', only"),
        ({"num_key_value_heads": 3}, "num_attention_heads 4 is not a multiple of key_value_heads 3"),
        ({"sliding_window": None}, "sliding_window None, expected whole numbers"),
        ({"layer_types": ["sliding_attention"]}, r"layer_types is \['sliding_attention'\], expected full_attention or"),
    ],
)
def test_a_gemma_with_other_features_is_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    save_encoder(tmp_path, "gemma3_text")
    write_json(tmp_path / "config.json", read_json(tmp_path / "config.json") | change)
    with pytest.raises(InputError, match=rf"config\.json: .*{message}"):
        import_encoder(tmp_path)


def test_a_gemma_has_the_window_that_transformers_halves_and_may_share_no_keys(tmp_path: Path) -> None:
    save_encoder(tmp_path, "gemma3_text", num_key_value_heads=4)
    file = tmp_path / "config.json"
    write_json(file, read_json(file) | {"sliding_window": 11})
    expected = AutoModel.from_pretrained(tmp_path)(torch.arange(5, 40)[None]).last_hidden_state
    student, _ = import_encoder(tmp_path, pooling="mean")
    assert [layer.window for layer in student.config.gemma] == [5, 5, None]
    tokens, _ = student(torch.arange(5, 40)[None], torch.ones(1, 35))
    torch.testing.assert_close(tokens, expected, atol=1e-5, rtol=1e-4)


def test_a_modernbert_has_rotary_positions_whatever_another_key_says(tmp_path: Path) -> None:
    """The config.json of mmBERT says sans_pos, which no code of transformers reads."""
    save_encoder(tmp_path, "modernbert")
    before = encode(*import_encoder(tmp_path, pooling="mean"), TEXTS)
    file = tmp_path / "config.json"
    write_json(file, read_json(file) | {"position_embedding_type": "sans_pos"})
    np.testing.assert_array_equal(encode(*import_encoder(tmp_path, pooling="mean"), TEXTS), before)


def test_a_modernbert_is_read_as_transformers_5_writes_it(tmp_path: Path) -> None:
    save_encoder(tmp_path, "modernbert", global_rope_theta=500.0, local_rope_theta=50.0, local_attention=20)
    before = encode(*import_encoder(tmp_path, pooling="mean"), TEXTS)
    config = read_json(tmp_path / "config.json")
    for name in ("global_rope_theta", "local_rope_theta", "global_attn_every_n_layers"):
        config.pop(name, None)  # transformers 5 has not written it
    bases = {"full_attention": 500.0, "sliding_attention": 50.0}
    config["rope_parameters"] = {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()}
    config["layer_types"] = ["full_attention", "sliding_attention", "sliding_attention"]
    write_json(tmp_path / "config.json", config)
    np.testing.assert_array_equal(encode(*import_encoder(tmp_path, pooling="mean"), TEXTS), before)


@pytest.mark.parametrize("dense", HEADS)
def test_truncate_dim_keeps_the_first_dimensions(dense: tuple[str, ...], tmp_path: Path) -> None:
    model = save_pipeline(tmp_path, dense=dense, normalize=False, truncate_dim=10)
    student, tokenizer = import_encoder(tmp_path)
    assert student.config.dimension == 10
    np.testing.assert_allclose(encode(student, tokenizer, TEXTS), model.encode(TEXTS), atol=1e-5)
    settings = read_json(tmp_path / "config_sentence_transformers.json")
    for kept, width in ((None, student.config.hidden_size), (100, student.config.hidden_size)):
        write_json(tmp_path / "config_sentence_transformers.json", settings | {"truncate_dim": kept})
        assert import_encoder(tmp_path)[0].config.dimension == width - 4 * len(dense)
    write_json(tmp_path / "config_sentence_transformers.json", settings | {"truncate_dim": "10"})
    with pytest.raises(InputError, match="truncate_dim is '10', not a number"):
        import_encoder(tmp_path)


def test_dropout_is_passed_over(tmp_path: Path) -> None:
    model = save_pipeline(tmp_path, dense=["Tanh"])
    modules = read_json(tmp_path / "modules.json")
    kind = "sentence_transformers.sentence_transformer.modules.dropout.Dropout"
    modules.insert(2, {"idx": 9, "name": "9", "path": "9_Dropout", "type": kind})
    write_json(tmp_path / "modules.json", modules)
    np.testing.assert_allclose(encode(*import_encoder(tmp_path), TEXTS), model.encode(TEXTS), atol=1e-5)


def test_a_vocabulary_alone_is_refused_with_the_way_to_a_tokenizer(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"tokenizer\.json: no such file; name the tokenizer\.json"):
        import_encoder(tmp_path)
    (tmp_path / "vocab.txt").write_text("rain\n")
    with pytest.raises(
        InputError, match=r"from vocab\.txt with transformers: AutoTokenizer\.from_pretrained\("
    ) as error:
        import_encoder(tmp_path)
    assert f"from_pretrained({str(tmp_path)!r}).save_pretrained({str(tmp_path)!r})" in str(error.value)
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "PhobertTokenizer"})
    with pytest.raises(InputError, match="none can be made of a PhobertTokenizer; choose another encoder, or take"):
        import_encoder(tmp_path)
    named = make_tokenizer()
    named.save(str(tmp_path / "other.json"))
    assert import_encoder(tmp_path, tmp_path / "other.json")[1].get_vocab() == named.get_vocab()


def test_a_tokenizer_with_more_ids_than_rows_is_refused(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert", vocab_size=300)
    with pytest.raises(InputError, match=r"tokenizer\.json: the tokenizer has ids up to \d+, the token embeddings 300"):
        import_encoder(tmp_path)


def test_a_text_has_room_for_a_token(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="max_tokens: 2 is too few"):
        import_encoder(encoder("bert"), pooling="mean", max_tokens=2)


def test_a_model_whose_own_limit_leaves_no_room_for_a_token_is_refused(tmp_path: Path) -> None:
    save_pipeline(tmp_path)
    settings = read_json(tmp_path / "sentence_bert_config.json")
    write_json(tmp_path / "sentence_bert_config.json", settings | {"max_seq_length": 2})
    with pytest.raises(InputError, match="max_seq_length: 2 is too few for a text; set at least 3"):
        import_encoder(tmp_path)


def test_code_that_a_folder_names_is_not_run_where_the_recipe_trusts_it(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    config = read_json(tmp_path / "config.json")
    write_json(tmp_path / "config.json", config | {"auto_map": {"AutoModel": "own.Own"}})
    with pytest.raises(InputError, match="could run code"):
        import_layers(EncoderSection(source=str(tmp_path)), tmp_path, "assistant")
    trusted = EncoderSection(source=str(tmp_path), trust_remote_code=True)
    assert import_layers(trusted, tmp_path, "assistant")[0].config.unit_layers > 0


def test_a_student_as_a_layer_source_keeps_its_tokenizer_and_takes_a_prefix(tmp_path: Path) -> None:
    folder = save_student(tmp_path / "student")
    student, _ = import_layers(EncoderSection(source=str(folder), prefix="passage: "), folder, "assistant")
    assert student.config.prefix == "passage: "
    section = EncoderSection.model_validate({"source": str(folder), "tokenizer": {"source": "a.json"}})
    with pytest.raises(InputError, match=r"assistant\.tokenizer: .* is a student, which has its own; leave tokenizer"):
        import_layers(section, folder, "assistant")


@pytest.mark.parametrize("name", ["modules.json", "config.json", "sentence_bert_config.json", "1_Pooling/config.json"])
def test_a_file_of_another_shape_is_refused_by_name(name: str, tmp_path: Path) -> None:
    save_pipeline(tmp_path)
    (tmp_path / name).write_text('["rain"]')
    with pytest.raises(InputError, match=f"{name}: expected "):
        import_encoder(tmp_path)


def test_a_students_folder_is_itself(tmp_path: Path) -> None:
    folder = save_student(tmp_path / "student")
    assert import_encoder(folder, prefix="rain ", max_tokens=5)[0].config.prefix == "query: "


@pytest.mark.parametrize("kind", ["student", "bert"])
def test_weights_that_are_read_or_shared_are_not_drawn_before(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_student(tmp_path / "student", recurrences=1) if kind == "student" else encoder(kind)
    for name in ("normal_", "uniform_"):
        monkeypatch.setattr(torch.Tensor, name, None)
    assert shallower(import_encoder(folder)[0], 1).config.recurrences == 1


def test_an_imported_encoder_is_saved_as_a_student(tmp_path: Path) -> None:
    save_pipeline(tmp_path / "model", "mpnet", pooling="cls", dense=["Tanh"], longest=170)
    student, tokenizer = import_encoder(tmp_path / "model")
    shutil.rmtree(tmp_path / "model")
    (tmp_path / "student").mkdir()
    student.save(tmp_path / "student", tokenizer)
    again = import_encoder(tmp_path / "student")
    assert again[0].config == student.config
    np.testing.assert_array_equal(encode(*again, TEXTS), encode(student, tokenizer, TEXTS))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dense": ["Identity"]}, r"assistant\.source: .* has dense modules or a truncate_dim, and a layer source"),
        ({"dense": ["Tanh"]}, "has dense modules"),
        ({"kind": "mpnet"}, "has relative attention biases"),
        ({"kind": "gemma3_text"}, "has layers of Gemma"),
        ({"kind": "qwen3"}, "has layers of Qwen3"),
    ],
)
def test_an_encoder_with_features_that_a_trained_student_lacks_is_no_layer_source(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    save_pipeline(tmp_path / "model", **options)
    with pytest.raises(InputError, match=message):
        import_layers(EncoderSection(source=str(tmp_path / "model")), tmp_path / "model", "assistant")
    student, tokenizer = import_encoder(tmp_path / "model")
    (tmp_path / "student").mkdir()
    student.save(tmp_path / "student", tokenizer)
    if options.get("dense") != ["Identity"]:  # a student may have a linear head
        with pytest.raises(InputError, match="a layer source must not"):
            import_layers(EncoderSection(source=str(tmp_path / "student")), tmp_path / "student", "assistant")


def test_a_layer_source_has_normalised_vectors(tmp_path: Path) -> None:
    save_pipeline(tmp_path, "distilbert", normalize=False, longest=40)
    student, _ = import_layers(EncoderSection(source=str(tmp_path)), tmp_path, "assistant", max_tokens=30)
    assert (student.config.normalize, student.config.max_tokens, student.config.unit_layers) == (True, 30, 3)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("1_Pooling/config.json", {"pooling_mode": True}),
        ("1_Pooling/config.json", {"pooling_mode": [5]}),
        ("2_Dense/config.json", {"module_input_name": []}),
        ("config_sentence_transformers.json", {"prompts": True}),
        ("config_sentence_transformers.json", {"prompts": {"a": 5}}),
        ("config_sentence_transformers.json", {"default_prompt_name": []}),
    ],
)
def test_a_value_of_another_type_is_one_line(name: str, change: dict[str, Any], tmp_path: Path) -> None:
    save_pipeline(tmp_path, dense=["Tanh"])
    write_json(tmp_path / name, read_json(tmp_path / name) | change)
    with pytest.raises(InputError, match=str(Path(name).parent / "")) as error:
        import_encoder(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_student_that_is_a_link_to_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    folder = save_student(tmp_path / "student")
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    for load in (import_encoder, Student.load):
        with pytest.raises(InputError, match=f"{name}: a link that leads out of the folder"):
            load(folder)


def test_damaged_files_of_a_student_are_one_line(tmp_path: Path) -> None:
    for name, message in {
        "model.safetensors": "not the weights that config.json describes",
        "tokenizer.json": "not a tokenizer.json",
        "config.json": "not valid JSON",
    }.items():
        folder = save_student(tmp_path / name)
        (folder / name).write_text("x")
        with pytest.raises(InputError, match=f"{name}: {message}") as error:
            import_encoder(folder)
        assert "\n" not in str(error.value)


def test_a_module_behind_a_student_is_refused_but_not_one_that_changes_nothing(tmp_path: Path) -> None:
    folder = save_student(tmp_path / "student")
    modules = read_json(folder / "modules.json")
    kind = "sentence_transformers.base.modules.{0}.{1}"
    for name, path in (("Dropout", "1_Dropout"), ("Normalize", "2_Normalize")):
        modules.append({"idx": len(modules), "name": path, "path": path, "type": kind.format(name.lower(), name)})
    write_json(folder / "modules.json", modules)
    import_encoder(folder)
    write_json(folder / "modules.json", [*modules, modules[1] | {"type": kind.format("dense", "Dense")}])
    with pytest.raises(InputError, match=r"modules\.json: module .*Dense behind a student is not .* without it"):
        import_encoder(folder)


def test_normalize_behind_a_student_is_refused_where_its_vectors_are_of_any_length(tmp_path: Path) -> None:
    folder = save_student(tmp_path / "student", normalize=False)
    modules = read_json(folder / "modules.json")
    write_json(folder / "modules.json", [*modules, modules[0] | {"type": "sentence_transformers.models.Normalize"}])
    with pytest.raises(InputError, match="Normalize behind a student"):
        import_encoder(folder)


def test_a_student_whose_vectors_are_to_be_shortened_is_refused(tmp_path: Path) -> None:
    folder = save_student(tmp_path / "student")
    settings = read_json(folder / "config_sentence_transformers.json")
    write_json(folder / "config_sentence_transformers.json", settings | {"truncate_dim": 24})
    import_encoder(folder)  # which keeps all 24
    write_json(folder / "config_sentence_transformers.json", settings | {"truncate_dim": 8})
    with pytest.raises(InputError, match=r"truncate_dim is 8, .* remove it, and export with --dim 8 --shorten slice"):
        import_encoder(folder)
