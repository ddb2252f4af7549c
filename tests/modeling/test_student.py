import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.helpers.student import (
    CONFIG,
    GATED_BERT,
    GEMMA,
    MODERNBERT,
    QWEN,
    ROTARY_BERT,
    make_student,
    make_tokenizer,
    save_student,
)
from xcompress.errors import InputError
from xcompress.modeling.attention import BatchPart, attend, distance_buckets
from xcompress.modeling.student import (
    Student,
    StudentConfig,
    encode,
    mean_pooling,
    pad,
    pad_joined,
    set_dropout,
    shallower,
    token_ids,
)

XLM_R = StudentConfig(
    vocab_size=250_002,
    hidden_size=768,
    intermediate_size=3072,
    max_position_embeddings=514,
    type_vocab_size=1,
    position_offset=2,
)
MINILM = StudentConfig(vocab_size=250_037)


def millions(config: StudentConfig) -> dict[str, float]:
    with torch.device("meta"):
        student = Student(config)
    assert all(weight.is_meta for weight in student.parameters())
    return {part: count / 1e6 for part, count in student.sizes().items()}


def printed(value: float) -> set[str]:
    """The paper rounds some sizes and cuts others off (2 x 21.26 = 42.52 for 42.527)."""
    return {f"{value:.2f}", f"{int(value * 100) / 100:.2f}"}


@pytest.mark.parametrize(("bottleneck", "expected"), [(128, "32.49"), (256, "64.59"), (None, "192.40")])
def test_xlm_r_embedding_sizes_are_those_of_tables_1_and_7(bottleneck: int | None, expected: str) -> None:
    sizes = millions(replace(XLM_R, bottleneck=bottleneck))
    assert expected in printed(sizes["word"] + sizes.get("projection", 0) + sizes["position"])


@pytest.mark.parametrize(("bottleneck", "expected"), [(128, "32.05"), (256, "64.10"), (None, "96.21")])
def test_minilm_embedding_sizes_are_those_of_tables_1_and_7(bottleneck: int | None, expected: str) -> None:
    sizes = millions(replace(MINILM, bottleneck=bottleneck))
    positions = 0 if bottleneck else sizes["position"]  # the paper counts them only where there is no bottleneck
    assert expected in printed(sizes["word"] + sizes.get("projection", 0) + positions)


@pytest.mark.parametrize(
    ("config", "unit_layers", "expected"),
    [
        (XLM_R, 3, "21.26"),
        (XLM_R, 6, "42.52"),
        (XLM_R, 12, "85.05"),
        (MINILM, 3, "5.32"),
        (MINILM, 6, "10.64"),
        (MINILM, 12, "21.29"),
    ],
)
def test_encoder_sizes_are_those_of_tables_1_and_7(config: StudentConfig, unit_layers: int, expected: str) -> None:
    shape = replace(config, unit_layers=unit_layers, recurrences=12 // unit_layers)
    assert expected in printed(millions(shape)["encoder"])


def test_sizes_count_every_parameter_once_however_often_the_unit_is_applied() -> None:
    once, often = make_student(recurrences=1), make_student(recurrences=5)
    assert once.state_dict().keys() == often.state_dict().keys()
    assert sum(often.sizes().values()) == sum(weight.numel() for weight in often.parameters())
    assert len({weight.data_ptr() for weight in often.parameters()}) == len(list(often.parameters()))


def test_recurrence_applies_the_same_unit_again() -> None:
    twice = make_student(recurrences=2, head_size=None)
    ids, mask = pad([[0, 5, 6, 2], [0, 7, 2]], 1)
    tokens = twice.embeddings(ids)
    for layer in [*twice.unit, *twice.unit]:
        tokens = layer(tokens, [BatchPart(mask.bool()[:, None, None, :])])
    torch.testing.assert_close(twice(ids, mask)[0], tokens)


def test_prelude_and_coda_are_applied_once() -> None:
    student = make_student(prelude_layers=1, unit_layers=1, recurrences=2, coda_layers=2, head_size=None)
    assert student.config.stack == ("prelude.0", "unit.0", "unit.0", "coda.0", "coda.1")
    assert (student.config.depth, list(student.layers())) == (5, ["prelude.0", "unit.0", "coda.0", "coda.1"])
    ids, mask = batch()
    tokens = student.embeddings(ids)
    for layer in (student.prelude[0], student.unit[0], student.unit[0], *student.coda):
        tokens = layer(tokens, [BatchPart(mask.bool()[:, None, None, :])])
    torch.testing.assert_close(student(ids, mask)[0], tokens)
    assert student.sizes()["encoder"] == 4 * sum(weight.numel() for weight in student.unit.parameters())


def test_padding_does_not_change_a_sentence() -> None:
    student = make_student()
    alone, _ = pad([[0, 5, 6, 2]], 1)
    ids, mask = pad([[0, 5, 6, 2], [0, 7, 8, 9, 10, 11, 12, 2]], 1)
    expected = student(alone, torch.ones_like(alone))[1][0]
    torch.testing.assert_close(student(ids, mask)[1][0], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_attention_with_gradients_has_the_values_and_gradients_of_attention_without(kind: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 5, 8, generator=generator).unbind(0)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)[:, None, None, :]
    if kind == torch.float32:
        mask = torch.randn(2, 4, 5, 5, generator=generator).masked_fill(~mask, torch.finfo(torch.float32).min)
    inputs = [part.clone().requires_grad_() for part in (query, key, value)]
    references = [part.clone().requires_grad_() for part in (query, key, value)]
    found = attend(*inputs, mask)
    expected = functional.scaled_dot_product_attention(*references, attn_mask=mask)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(attend(query, key, value, mask), expected)
    for loss in (found, expected):
        loss.square().sum().backward()
    for part, reference in zip(inputs, references, strict=True):
        torch.testing.assert_close(part.grad, reference.grad)


def test_mean_pooling_leaves_padding_out() -> None:
    tokens = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [100.0, 100.0]]])
    assert mean_pooling(tokens, torch.tensor([[1, 1, 0]])).tolist() == [[2.0, 3.0]]


def test_a_head_on_every_token_equals_a_head_behind_the_mean() -> None:
    student = make_student(normalize=False)
    ids, mask = pad([[0, 5, 6, 2], [0, 7, 2]], 1)
    assert student.head is not None
    plain = Student(replace(student.config, head_size=None))
    plain.load_state_dict({k: v for k, v in student.state_dict().items() if not k.startswith("head")})
    torch.testing.assert_close(student(ids, mask)[1], student.head(plain(ids, mask)[1]), atol=1e-5, rtol=1e-4)


def test_encode_keeps_the_order_of_texts() -> None:
    student, tokenizer = make_student(), make_tokenizer()
    texts = ["a red boat waits near the old bridge", "rain", "the boat is late"]
    together = encode(student, tokenizer, texts, batch_tokens=16)
    for row, text in enumerate(texts):
        assert together[row] == pytest.approx(encode(student, tokenizer, [text])[0], abs=1e-5)


def test_prefix_and_truncation_are_the_models_own() -> None:
    tokenizer = make_tokenizer()
    ids = token_ids(tokenizer, ["rain " * 50], replace(CONFIG, max_tokens=10))[0]
    assert len(ids) == 10
    assert tokenizer.id_to_token(ids[1]) == "query:"


def test_half_a_surrogate_pair_is_a_question_mark() -> None:
    student, tokenizer = make_student(), make_tokenizer()
    # each alone: with several threads, rows of a batch may be added up in different orders
    np.testing.assert_array_equal(*(encode(student, tokenizer, [text]) for text in ("rain \ud800", "rain ?")))


def test_saving_over_a_student_leaves_hard_links_to_the_old_weights_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kept = save_student(tmp_path / "student"), tmp_path / "kept.safetensors"
    kept.hardlink_to(folder / "model.safetensors")
    before = kept.read_bytes()
    monkeypatch.setattr("xcompress.modeling.student.save_file", lambda _, file, **__: file.write_bytes(b"new"))
    make_student().save(folder, make_tokenizer())
    assert (kept.read_bytes(), (folder / "model.safetensors").read_bytes()) == (before, b"new")
    assert sorted(file.name for file in folder.iterdir() if file.name.startswith(".")) == []


def test_save_and_load_give_the_same_model(tmp_path: Path) -> None:
    student, tokenizer = make_student(), make_tokenizer()
    student.save(tmp_path, tokenizer)
    loaded, loaded_tokenizer = Student.load(tmp_path)
    assert loaded.config == student.config
    assert (encode(loaded, loaded_tokenizer, ["rain"]) == encode(student, tokenizer, ["rain"])).all()


def test_a_tokenizer_with_more_ids_than_rows_is_refused(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    make_student(vocab_size=tokenizer.get_vocab_size() - 5).save(tmp_path, tokenizer)
    with pytest.raises(
        InputError, match=r"tokenizer\.json: the tokenizer has ids up to 39\d, the token embeddings 39\d"
    ):
        Student.load(tmp_path)


def test_a_prefix_that_no_bundle_may_have_is_refused(tmp_path: Path) -> None:
    make_student().save(tmp_path, make_tokenizer())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"prefix": "\x1b[31m"}))
    with pytest.raises(InputError, match=r"config\.json: prefix holds U\+001B, which cannot be printed; correct it"):
        Student.load(tmp_path)


def test_a_window_beyond_the_positions_is_refused(tmp_path: Path) -> None:
    make_student(max_tokens=158).save(tmp_path, make_tokenizer())
    assert Student.load(tmp_path)[0].config.max_tokens == 158
    make_student(max_tokens=159).save(tmp_path, make_tokenizer())
    with pytest.raises(InputError, match=r"config\.json: max_tokens is 159, but there are positions for 158 tokens"):
        Student.load(tmp_path)


def test_a_folder_of_another_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match="'bert', not 'xcompress-student'"):
        Student.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_attention_heads": 5}, "hidden_size 32 .* num_attention_heads 5"),
        ({"bottleneck": 32}, "bottleneck 32"),
        ({"relative_buckets": 30}, "relative_buckets 30 is not a multiple of 4"),
        ({"pooling": "max"}, "pooling 'max' is unknown; choose one of mean, cls, lasttoken"),
        ({"head_activation": "relu"}, "head_activation 'relu' is unknown; choose tanh"),
        ({"head_activation": "tanh", "head_size": None}, "head_activation 'tanh' needs a head"),
        (MODERNBERT | {"unit_layers": 4}, "modernbert has 3 entries, not one for each"),
        (MODERNBERT | {"type_vocab_size": 1}, "with rotary positions there is neither"),
        (GEMMA | {"unit_layers": 4}, "gemma has 3 entries, not one for each"),
        (GEMMA | {"key_value_heads": 3}, "num_attention_heads 4 is not a multiple of key_value_heads 3"),
        ({"key_value_heads": 1}, "key_value_heads: only layers of gemma and qwen have it; set it to null"),
        (MODERNBERT | {"head_width": 8}, "head_width: only layers of gemma and qwen have it"),
        (QWEN | {"unit_layers": 4}, "qwen has 3 entries, not one for each"),
        (QWEN | {"head_width": 7}, "a head is 7 wide, and rotary positions need an even number"),
        (GEMMA | {"qwen": QWEN["qwen"]}, "gemma and qwen: layers are of one kind"),
        (QWEN | {"rotary_bert": ROTARY_BERT["rotary_bert"]}, "qwen and rotary_bert: layers are of one kind"),
        (ROTARY_BERT | {"unit_layers": 3}, "rotary_bert has 2 entries, not one for each"),
        (ROTARY_BERT | {"relative_buckets": 8}, "with rotary positions there is neither"),
        (ROTARY_BERT | {"head_width": 8}, "head_width: only layers of gemma and qwen have it"),
        (MODERNBERT | {"gemma": GEMMA["gemma"]}, "modernbert and gemma: layers are of one kind"),
        (MODERNBERT | {"num_attention_heads": 32}, "a head is 1 wide, and rotary positions need an even number"),
        (MODERNBERT | {"recurrences": 2}, "the first layer of a ModernBERT has no norm in front of its attention"),
    ],
)
def test_impossible_shapes_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(CONFIG, **change)


FOREIGN: list[dict[str, object]] = [
    {"pooling": "cls"},
    {"relative_buckets": 8, "type_vocab_size": 0},
    {"head_activation": "tanh"},
    {"pooling": "cls", "head_activation": "tanh", "relative_buckets": 32, "type_vocab_size": 0, "bottleneck": None},
    MODERNBERT,
    GEMMA,
    QWEN,
    ROTARY_BERT,
    GATED_BERT,
]


def test_a_config_of_an_older_version_loads(tmp_path: Path) -> None:
    student = make_student()
    student.save(tmp_path, make_tokenizer())
    described = json.loads((tmp_path / "config.json").read_text())
    kinds = ("modernbert", "gemma", "qwen", "rotary_bert", "key_value_heads", "head_width")
    for name in ("pooling", "relative_buckets", "head_activation", *kinds):
        del described[name]
    (tmp_path / "config.json").write_text(json.dumps(described))
    assert Student.load(tmp_path)[0].config == student.config


@pytest.mark.parametrize("changes", FOREIGN)
def test_features_of_foreign_encoders_are_saved_traced_and_counted(changes: dict[str, object], tmp_path: Path) -> None:
    student = make_student(**changes)
    student.save(tmp_path, make_tokenizer())
    ids, mask = pad([[0, *range(5, 155), 2], [0, 7, 2]], 1)
    expected = student(ids, mask)
    torch.testing.assert_close(Student.load(tmp_path)[0](ids, mask), expected, atol=0, rtol=0)
    axes, once = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}, shallower(student, 1)
    program = torch.export.export(once, batch(), dynamic_shapes=(axes, axes))  # all recurrences are traced below
    torch.testing.assert_close(program.module()(ids, mask), once(ids, mask))
    assert sum(student.sizes().values()) == sum(weight.numel() for weight in student.parameters())
    assert student.at_depths(ids, mask)[-1].equal(expected[1])
    assert (expected[1] - make_student()(ids, mask)[1]).abs().max() > 1e-3


@pytest.mark.parametrize("changes", FOREIGN)
def test_padding_changes_no_foreign_encoder_either(changes: dict[str, object]) -> None:
    student = make_student(**changes)
    (ids, mask), (alone, whole) = batch(), pad([[0, 5, 6, 2]], 1)
    torch.testing.assert_close(student(ids, mask)[1][:1], student(alone, whole)[1], atol=1e-6, rtol=1e-5)


def test_an_activated_head_acts_behind_the_pooling() -> None:
    student = make_student(head_activation="tanh", pooling="cls", normalize=False)
    tokens, sentences = student(*batch())
    assert tokens.shape == (2, 7, 32)
    assert student.head is not None
    torch.testing.assert_close(sentences, torch.tanh(student.head(tokens[:, 0])))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_plain_head_stays_on_the_tokens(pooling: str) -> None:
    tokens, sentences = make_student(pooling=pooling, normalize=False)(*batch())
    assert tokens.shape == (2, 7, 24)
    expected = tokens[1, 0] if pooling == "cls" else tokens[1].mean(0)
    torch.testing.assert_close(sentences[1], expected)


def test_distances_fall_into_buckets_of_growing_width() -> None:
    assert distance_buckets(torch.arange(-4, 5), 8).tolist() == [2, 2, 2, 1, 0, 5, 6, 6, 6]
    found = distance_buckets(torch.arange(-400, 401), 32)
    left, right = found[:401].flip(0), found[400:]
    assert left[:8].tolist() == list(range(8))
    assert left.diff().min() == 0 and left.diff().max() == 1
    assert (left[127:] == 15).all() and left[:80].max() < 15
    assert right[1:].tolist() == (left[1:] + 16).tolist()


def test_the_relative_bias_is_that_of_the_distance_from_query_to_key() -> None:
    relative = make_student(relative_buckets=32).relative
    assert relative is not None
    bias = relative(9)
    assert bias.shape == (1, 4, 9, 9)
    assert bias[0, :, 2, 7].equal(relative.table.weight[distance_buckets(torch.tensor(5), 32)])
    assert not bias[0, :, 2, 7].equal(bias[0, :, 7, 2])
    assert relative.by_distance(9).shape == (17, 4)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return pad([[0, 5, 6, 2], [0, 7, 8, 9, 10, 11, 2]], 1)


@pytest.mark.parametrize("changes", [{}, {"normalize": False}, {"prelude_layers": 1, "coda_layers": 2}])
def test_every_depth_is_read_in_one_pass(changes: dict[str, object]) -> None:
    student = make_student(**changes)
    depths = student.at_depths(*batch())
    assert [found.shape for found in depths] == [(2, 24)] * 3
    torch.testing.assert_close(depths[-1], student(*batch())[1], atol=0, rtol=0)
    for recurrences, found in enumerate(depths, 1):
        torch.testing.assert_close(found, shallower(student, recurrences)(*batch())[1], atol=0, rtol=0)
    assert (depths[0] - depths[1]).abs().max() > 1e-3


def test_gradient_of_a_shallow_depth_reaches_the_unit() -> None:
    student = make_student()
    student.at_depths(*batch())[0].sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in student.unit.parameters())


def test_a_shallower_student_has_the_same_weights() -> None:
    student = make_student().train()
    shallow = shallower(student, 2)
    assert shallow.config == replace(student.config, recurrences=2)
    assert shallow.training
    for name, weight in shallow.named_parameters():
        assert weight.data_ptr() == student.get_parameter(name).data_ptr()


@pytest.mark.parametrize("recurrences", [0, 4])
def test_a_depth_that_the_student_lacks_is_refused(recurrences: int) -> None:
    with pytest.raises(InputError, match=f"recurrences: {recurrences} requested, but the student has 3; .* 1 to 3"):
        shallower(make_student(), recurrences)
    with pytest.raises(InputError, match="recurrences: 2 requested, but the student has 1; leave it out"):
        shallower(make_student(recurrences=1), 2)


def test_the_student_itself_can_be_traced() -> None:
    ids, mask = batch()
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    program = torch.export.export(make_student(), (ids, mask), dynamic_shapes=(axes, axes))
    longer = pad([[0, *range(5, 15), 2]] * 3, 1)
    torch.testing.assert_close(program.module()(*longer)[1], make_student()(*longer)[1])


def test_dropout_acts_in_training_alone_and_leaves_nothing_in_what_is_saved() -> None:
    student, (ids, mask) = make_student(), pad([[0, 5, 6, 2], [0, 7, 2]], 1)
    plain, names, sizes = student(ids, mask)[1], student.state_dict().keys(), student.sizes()
    torch.testing.assert_close(student.train()(ids, mask)[1], plain, rtol=0, atol=0)
    set_dropout(student, 0.5)
    first, second = (student(ids, mask)[1] for _ in range(2))
    assert not torch.allclose(first, second)
    torch.testing.assert_close(student.eval()(ids, mask)[1], plain, rtol=0, atol=0)
    assert (student.state_dict().keys(), student.sizes()) == (names, sizes)
    set_dropout(student, 0)
    torch.testing.assert_close(student.train()(ids, mask)[1], plain, rtol=0, atol=0)


def test_dropout_stands_behind_embeddings_attention_and_feed_forward() -> None:
    student = make_student().train()
    set_dropout(student, 1 - 1e-9)  # all is zeroed, but for the residual paths
    tokens = torch.randn(2, 4, 32)
    layer = student.unit[0]
    expected = layer.output_norm(layer.attention_norm(tokens))
    torch.testing.assert_close(layer(tokens, [BatchPart(torch.ones(2, 1, 1, 4, dtype=torch.bool))]), expected)
    assert not student.embeddings(torch.full((2, 4), 5)).any()


def test_padding_fills_up_to_the_longest_sentence() -> None:
    ids, mask = pad([[0, 5, 6, 2], [7]], 1)
    assert ids.dtype == mask.dtype == torch.int64
    assert ids.tolist() == [[0, 5, 6, 2], [7, 1, 1, 1]]
    assert mask.tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]
    joined = pad_joined(np.array([0, 5, 6, 2, 7], dtype=np.int32), np.array([4, 1]), 1)
    assert torch.equal(joined[0], ids) and torch.equal(joined[1], mask)
