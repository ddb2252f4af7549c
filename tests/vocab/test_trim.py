"""Whole models are trimmed and opened again in transformers and sentence-transformers."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5EncoderModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from tests.helpers.rotary import CONFIGS, save_rotary
from tests.helpers.student import SENTENCES, save_student
from tests.helpers.vocabularies import GERMAN, make, text_file, write_word_lists
from xcompress.errors import InputError
from xcompress.export.source import card_languages
from xcompress.files import read_json, write_json
from xcompress.metrics import cosines
from xcompress.modeling.load import import_encoder
from xcompress.modeling.student import Student, encode
from xcompress.vocab.trim import trim_model

SHAPE = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 70,
}
KINDS = {
    "wordpiece": (BertConfig, BertModel, "BertTokenizer", ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")),
    "unigram": (XLMRobertaConfig, XLMRobertaModel, "XLMRobertaTokenizer", ("<pad>", "<unk>", "<s>", "</s>", "<mask>")),
    "byte_level": (RobertaConfig, RobertaModel, "RobertaTokenizer", ("<pad>", "<unk>", "<s>", "</s>", "<mask>")),
}
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


@pytest.fixture(autouse=True)
def inside(working_folder: Path, empty_cache: Path, no_installed_wheels: None) -> Path:
    """A folder with German text, beside a cache with a German word list."""
    write_word_lists(empty_cache, {"de": [word for text in GERMAN for word in text.lower().split()]})
    text_file(working_folder, GERMAN)
    return working_folder


def save_model(folder: Path, kind: str, *, with_head: bool = False, more_rows: int = 0) -> Path:
    """Write a model with random weights as sentence-transformers lays it out."""
    config_class, model_class, tokenizer_class, names = KINDS[kind]
    tokenizer = make(kind)
    pad, unknown, first, last, mask = names
    ids = {"pad_token_id": pad, "bos_token_id": first, "eos_token_id": last}
    torch.manual_seed(0)
    config = config_class(
        vocab_size=tokenizer.get_vocab_size() + more_rows,
        **SHAPE,
        **{name: tokenizer.token_to_id(token) for name, token in ids.items()},
    )
    model = BertForMaskedLM(config) if with_head else model_class(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.3)
    model.save_pretrained(folder)
    tokenizer.enable_truncation(64)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(pad), pad_token=pad)
    tokenizer.save(str(folder / "tokenizer.json"))
    special = dict(
        zip(
            ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"),
            (pad, unknown, first, last, mask),
            strict=True,
        )
    )
    decoder = {str(tokenizer.token_to_id(token)): {"content": token, **FLAGS} for token in names}
    settings = {"tokenizer_class": tokenizer_class, "model_max_length": 64, "added_tokens_decoder": decoder, **special}
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "special_tokens_map.json", special)
    steps = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{name}"}
        for at, (path, name) in enumerate(steps)
    ]
    write_json(folder / "modules.json", modules)
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True})
    (folder / "onnx").mkdir()
    for name in ("vocab.txt", "merges.txt", "pytorch_model.bin", "onnx/model.onnx", "README.md", ".hidden"):
        (folder / name).write_text("old")
    return folder


def vectors(folder: Path, texts: list[str]) -> np.ndarray:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        rows = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state.mean(1)[0].numpy() for text in texts]
    return np.array(rows)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_kept_text_has_the_same_vectors_in_every_loader(kind: str, inside: Path) -> None:
    source = save_model(inside / "model", kind)
    trimmed = trim_model("model", languages=["de"], texts=[Path("text.txt")])
    target = Path("model-de")
    assert trimmed.output == str(target)
    assert trimmed.rows_after == read_json(target / "config.json")["vocab_size"] < trimmed.rows_before
    assert cosines(vectors(source, GERMAN), vectors(target, GERMAN)).min() > 0.99999
    pair = (SentenceTransformer(str(folder), device="cpu").encode(GERMAN) for folder in (source, target))
    assert cosines(*pair).min() > 0.99999
    before, after = (AutoTokenizer.from_pretrained(folder) for folder in (source, target))
    assert after.pad_token_id == AutoModel.from_pretrained(target).config.pad_token_id
    assert len(after) == trimmed.rows_after
    assert before.convert_ids_to_tokens(before(*GERMAN[:2]).input_ids) == after.convert_ids_to_tokens(
        after(*GERMAN[:2]).input_ids
    )
    for name in ("pad", "unk", "cls", "sep", "mask"):
        assert getattr(after, f"{name}_token") == getattr(before, f"{name}_token")
        assert 0 <= getattr(after, f"{name}_token_id") < trimmed.rows_after


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_file_agrees_with_the_new_ids(kind: str, inside: Path) -> None:
    save_model(inside / "model", kind)
    trimmed = trim_model("model", Path("small"), texts=[Path("text.txt")])
    tokenizer, config = read_json(Path("small/tokenizer.json")), read_json(Path("small/config.json"))
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    pad, _, first, last, _ = KINDS[kind][3]
    assert [config[f"{name}_token_id"] for name in ("pad", "bos", "eos")] == [ids[pad], ids[first], ids[last]]
    assert (tokenizer["padding"]["pad_id"], tokenizer["truncation"]["max_length"]) == (ids[pad], 64)
    decoder = read_json(Path("small/tokenizer_config.json"))["added_tokens_decoder"]
    assert {token["content"]: int(number) for number, token in decoder.items()}.items() <= ids.items()
    weights = load_file("small/model.safetensors")
    assert weights["embeddings.word_embeddings.weight"].shape == (trimmed.rows_after, 32)
    names = {path.relative_to("small").as_posix() for path in Path("small").rglob("*") if path.is_file()}
    assert names == {
        *("README.md", "config.json", "model.safetensors", "modules.json", "1_Pooling/config.json", "trim.json"),
        *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    }
    assert trimmed.left_out == ("merges.txt", "onnx/", "pytorch_model.bin", "vocab.txt")


def test_the_padding_keeps_its_id_as_roberta_numbers_positions_from_it(inside: Path) -> None:
    folder = save_model(inside / "model", "wordpiece")
    write_json(folder / "config.json", read_json(folder / "config.json") | {"pad_token_id": 5})
    trim_model("model", Path("small"), texts=[Path("text.txt")])
    assert read_json(Path("small/config.json"))["pad_token_id"] == 5
    vocabulary = read_json(Path("small/tokenizer.json"))["model"]["vocab"]
    assert vocabulary["[unused4]"] == 5
    assert "[unused6]" not in vocabulary


def test_token_ids_without_a_token_become_null(inside: Path) -> None:
    folder = save_model(inside / "model", "wordpiece")
    wrong = {"bos_token_id": 50256, "eos_token_id": [0, 50256, [1]]}
    write_json(folder / "config.json", read_json(folder / "config.json") | wrong)
    trim_model("model", Path("small"), texts=[Path("text.txt")])
    config = read_json(Path("small/config.json"))
    assert (config["bos_token_id"], config["eos_token_id"]) == (None, [0, None, None])


def test_a_list_without_added_tokens_is_kept(inside: Path) -> None:
    folder = save_model(inside / "model", "wordpiece")
    settings = read_json(folder / "tokenizer_config.json")
    write_json(folder / "tokenizer_config.json", settings | {"added_tokens_decoder": []})
    trim_model("model", Path("small"), texts=[Path("text.txt")])
    assert read_json(Path("small/tokenizer_config.json"))["added_tokens_decoder"] == []


def test_output_layers_are_trimmed_with_the_token_embeddings(inside: Path) -> None:
    save_model(inside / "model", "wordpiece", with_head=True)
    trimmed = trim_model("model", Path("small"), texts=[Path("text.txt")])
    weights = load_file("small/model.safetensors")
    assert weights["bert.embeddings.word_embeddings.weight"].shape[0] == trimmed.rows_after
    assert weights["cls.predictions.bias"].shape == (trimmed.rows_after,)
    before, after = (AutoModelForMaskedLM.from_pretrained(folder).eval() for folder in ("model", "small"))
    pair = AutoTokenizer.from_pretrained("model"), AutoTokenizer.from_pretrained("small")
    logits = [
        model(**tokenizer(GERMAN[0], return_tensors="pt")).logits
        for model, tokenizer in zip((before, after), pair, strict=True)
    ]
    kept = pair[0].convert_tokens_to_ids(pair[1].convert_ids_to_tokens(list(range(trimmed.rows_after))))
    assert torch.allclose(logits[0][..., kept], logits[1], atol=1e-4)


def test_weights_in_several_files_become_one(inside: Path) -> None:
    source = save_model(inside / "model", "unigram")
    whole = trim_model("model", Path("small"), texts=[Path("text.txt")])
    model = AutoModel.from_pretrained(source)
    (source / "model.safetensors").unlink()
    model.save_pretrained(source, max_shard_size="60KB")
    shards = sorted(source.glob("model-*.safetensors"))
    assert len(shards) > 2
    trimmed = trim_model("model", Path("of-shards"), texts=[Path("text.txt")])
    weights = [load_file(f"{name}/model.safetensors") for name in ("small", "of-shards")]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
    assert not list(Path("of-shards").glob("model[-.]*[-.]*")), "files of the old weights"
    assert trimmed.bytes_before == sum(file.stat().st_size for file in shards)
    assert (trimmed.bytes_after, trimmed.rows_after) == (whole.bytes_after, whole.rows_after)
    shards[1].write_text("x")
    with pytest.raises(InputError, match=f"{shards[1].name}: not a safetensors file"):
        trim_model("model", Path("none"), texts=[Path("text.txt")])
    shards[1].unlink()
    with pytest.raises(InputError, match=f"{shards[1].name}: no such file"):
        trim_model("model", Path("none"), texts=[Path("text.txt")])
    assert not Path("none").exists()


def test_a_t5_encoder_is_trimmed(inside: Path) -> None:
    source = save_model(inside / "model", "unigram")
    rows = read_json(source / "config.json")["vocab_size"]
    config = T5Config(vocab_size=rows, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, pad_token_id=1)
    T5EncoderModel(config).save_pretrained(source)
    trimmed = trim_model("model", Path("small"), texts=[Path("text.txt")])
    before, after = (SentenceTransformer(str(folder), device="cpu").encode(GERMAN) for folder in ("model", "small"))
    assert trimmed.rows_after < rows
    np.testing.assert_allclose(after, before, atol=1e-6)


def test_rows_without_a_token_are_dropped(inside: Path) -> None:
    save_model(inside / "model", "unigram", more_rows=35)
    trimmed = trim_model("model", Path("small"), texts=[Path("text.txt")])
    assert trimmed.rows_before == trimmed.vocabulary.pieces_before + 35
    assert trimmed.rows_after == trimmed.vocabulary.pieces_after


def test_prompts_and_tokens_that_other_files_name_are_kept(inside: Path) -> None:
    folder = save_model(inside / "model", "wordpiece")
    write_json(folder / "config_sentence_transformers.json", {"prompts": {"query": "hebben school: ", "none": ""}})
    settings = read_json(folder / "tokenizer_config.json")
    write_json(folder / "tokenizer_config.json", settings | {"additional_special_tokens": ["[unused5]"]})
    trim_model("model", Path("small"), texts=[Path("text.txt")])
    vocabulary = read_json(Path("small/tokenizer.json"))["model"]["vocab"]
    assert {"hebben", "school", "[unused5]"} <= vocabulary.keys()
    assert "[unused4]" not in vocabulary


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_special_tokens_in_a_text_are_counted_as_letters_where_the_model_reads_them_so(kind: str, inside: Path) -> None:
    folder = save_model(inside / "model", kind)
    settings = read_json(folder / "tokenizer_config.json")
    write_json(folder / "tokenizer_config.json", settings | {"split_special_tokens": True})
    texts = [f"{settings['cls_token']}{text}" for text in GERMAN]
    text_file(inside, texts * 7)
    trimmed = trim_model("model", Path("small"), texts=[Path("text.txt")])
    pair = (SentenceTransformer(str(folder), device="cpu").encode(texts) for folder in (folder, Path("small")))
    assert cosines(*pair).min() > 0.99999
    (held_out,) = trimmed.vocabulary.held_out
    assert held_out.pieces_per_word_after == held_out.pieces_per_word_before


@pytest.mark.parametrize("kind", ["byte_level", "unigram"])
def test_text_is_counted_in_lower_case_where_the_model_reads_it_so(kind: str, inside: Path) -> None:
    folder = save_model(inside / "model", kind)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": True})
    write_json(folder / "config_sentence_transformers.json", {"prompts": {"query": "HEBBEN: "}})
    text_file(inside, [text.upper() for text in GERMAN])
    trim_model("model", Path("small"), texts=[Path("text.txt")])
    texts = [*GERMAN, "HEBBEN: Zug"]
    pair = (SentenceTransformer(str(folder), device="cpu").encode(texts) for folder in (folder, Path("small")))
    assert cosines(*pair).min() > 0.99999
    for name in ("normalizer", "truncation"):
        assert read_json(Path("small/tokenizer.json"))[name] == read_json(folder / "tokenizer.json")[name]


def test_tokens_of_prefixes_are_kept(inside: Path) -> None:
    folder = save_model(inside / "model", "unigram")
    save_student(inside / "student", vocab_size=make("unigram").get_vocab_size())
    make("unigram").save(str(inside / "student" / "tokenizer.json"))
    for model in (folder, inside / "student"):
        for prefixes in ((), ("hebben: ", "school: ")):
            trim_model(str(model), Path("small"), texts=[Path("text.txt")], prefixes=prefixes)
            before, after = (Tokenizer.from_file(str(place / "tokenizer.json")) for place in (model, Path("small")))
            alike = [before.encode(text).tokens == after.encode(text).tokens for text in ("hebben: ", "school: ")]
            assert alike == [bool(prefixes)] * 2


def test_a_prefix_that_cannot_be_printed_is_refused(inside: Path) -> None:
    save_model(inside / "model", "unigram")
    with pytest.raises(InputError, match=r"prefix: holds U\+DC80, which cannot be printed; give another"):
        trim_model("model", Path("small"), texts=[Path("text.txt")], prefixes=["\udc80"])


def test_tokens_that_transformers_would_add_get_their_row(inside: Path) -> None:
    folder = save_model(inside / "model", "wordpiece", more_rows=1)
    settings = read_json(folder / "tokenizer_config.json")
    number = read_json(folder / "config.json")["vocab_size"] - 1
    settings["added_tokens_decoder"][str(number)] = {"content": "[EXTRA]", **FLAGS}
    write_json(folder / "tokenizer_config.json", settings)
    trimmed = trim_model("model", Path("small"), texts=[Path("text.txt")])
    assert AutoTokenizer.from_pretrained("small").convert_tokens_to_ids("[EXTRA]") == trimmed.rows_after - 1
    rows = [load_file(f"{name}/model.safetensors")["embeddings.word_embeddings.weight"] for name in ("model", "small")]
    assert torch.equal(rows[0][number], rows[1][-1])


def test_a_folder_that_newer_libraries_wrote_is_opened_by_the_older_ones_too(inside: Path) -> None:
    folder = save_model(inside / "model", "unigram")
    settings = read_json(folder / "tokenizer_config.json")
    kept_token = settings["added_tokens_decoder"].popitem()[1]["content"]
    newer = {"tokenizer_class": "TokenizersBackend", "extra_special_tokens": [kept_token]}
    write_json(folder / "tokenizer_config.json", settings | newer)
    modules = read_json(folder / "modules.json")
    new_name = "sentence_transformers.base.modules.normalize.Normalize"
    modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": new_name})
    write_json(folder / "modules.json", modules)
    trim_model("model", Path("small"), texts=[Path("text.txt")])
    tokenizer = AutoTokenizer.from_pretrained("small")
    assert tokenizer.tokenize(kept_token) == [kept_token]
    assert kept_token in tokenizer.all_special_tokens
    assert len(SentenceTransformer("small", device="cpu").encode(GERMAN)) == len(GERMAN)
    written = read_json(Path("small/tokenizer_config.json"))
    assert (written["tokenizer_class"], written["additional_special_tokens"]) == (
        "PreTrainedTokenizerFast",
        [kept_token],
    )
    assert "extra_special_tokens" not in written
    types = [module["type"] for module in read_json(Path("small/modules.json"))]
    assert types == [f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Normalize")]


def test_a_transformer_in_a_folder_of_its_own_is_found(inside: Path) -> None:
    folder = save_model(inside / "flat", "wordpiece")
    nested = inside / "model"
    (nested / "0_Transformer").mkdir(parents=True)
    modules = read_json(folder / "modules.json")
    modules[0]["path"] = "0_Transformer"
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).rename(nested / "0_Transformer" / name)
    write_json(nested / "modules.json", modules)
    (folder / "1_Pooling").rename(nested / "1_Pooling")
    (nested / "2_Dense").mkdir()
    (nested / "2_Dense" / "pytorch_model.bin").write_text("not the encoder's")
    outdated = ("0_Transformer/model.gguf", "0_Transformer/openvino/model.bin", "onnx/model.onnx", "vocab.txt")
    for name in (*outdated, "model.tflite", "tokenizer.json"):
        (nested / name).parent.mkdir(exist_ok=True)
        (nested / name).write_text("old")
    trimmed = trim_model("model", Path("small"), texts=[Path("text.txt")])
    folders = ("0_Transformer/model.gguf", "0_Transformer/openvino/", "model.tflite", "onnx/")
    assert trimmed.left_out == (*folders, "tokenizer.json", "vocab.txt")
    assert not any((Path("small") / name).exists() for name in trimmed.left_out)
    assert read_json(Path("small/0_Transformer/config.json"))["vocab_size"] == trimmed.rows_after
    assert Path("small/2_Dense/pytorch_model.bin").is_file()
    assert trimmed.bytes_after < trimmed.bytes_before


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "byte_fallback"])
def test_students_are_trimmed(kind: str, inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = make(kind)
    monkeypatch.setattr("tests.helpers.student.make_tokenizer", lambda: make(kind))
    pad = tokenizer.token_to_id("<pad>") or 0
    save_student(inside / "student", vocab_size=tokenizer.get_vocab_size() + 3, pad_token_id=pad)
    (inside / "student" / "step.json").write_text("{}")
    (inside / "text.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    trimmed = trim_model("student", texts=[inside / "text.txt"])
    before, after = Student.load(inside / "student"), Student.load(Path("student-trimmed"))
    assert after[0].config.vocab_size == trimmed.rows_after == after[1].get_vocab_size() < trimmed.rows_before
    assert cosines(encode(*before, SENTENCES), encode(*after, SENTENCES)).min() > 0.99999
    assert not Path("student-trimmed/step.json").exists()


def test_prompts_similarity_and_card_of_a_student_are_kept(inside: Path) -> None:
    folder = save_student(inside / "student", vocab_size=make("unigram").get_vocab_size())
    make("unigram").save(str(folder / "tokenizer.json"))
    settings = {"prompts": {"query": "hebben: ", "document": ""}, "similarity_fn_name": "dot"}
    write_json(folder / "config_sentence_transformers.json", settings)
    (folder / "README.md").write_text("---\nlanguage: [de]\n---\n")
    trim_model("student", Path("small"), texts=[Path("text.txt")])
    assert read_json(Path("small/config_sentence_transformers.json")) == settings
    assert card_languages(Path("small/README.md")) == ["de"]
    before, after = (Tokenizer.from_file(str(place / "tokenizer.json")) for place in (folder, Path("small")))
    assert after.encode("hebben: ").tokens == before.encode("hebben: ").tokens


def test_the_record_says_what_was_done_and_lets_the_folder_be_replaced(inside: Path) -> None:
    save_model(inside / "model", "wordpiece")
    first = trim_model("model", Path("small"), languages=["de"])
    assert json.loads(Path("small/trim.json").read_text())["rows_after"] == first.rows_after
    second = trim_model("model", Path("small"), languages=["de"], size=10)
    assert second.rows_after == read_json(Path("small/config.json"))["vocab_size"] < first.rows_after


def test_a_checkpoint_is_trimmed_without_the_manifest_of_its_export(inside: Path) -> None:
    model = save_model(inside / "model-hf", "unigram")
    write_json(model / "manifest.json", {"made_from": "abc", "files": {}})
    trim_model("model-hf", Path("out"), texts=[Path("text.txt")])
    assert not (inside / "out/manifest.json").exists()


def test_what_a_killed_trim_left_is_removed(inside: Path) -> None:
    save_model(inside / "model", "wordpiece")
    (inside / ".small.abcd1234.tmp" / "new" / "small").mkdir(parents=True)
    trim_model("model", Path("small"), languages=["de"])
    assert not list(inside.glob(".small.*"))


def test_other_folders_are_not_overwritten(inside: Path) -> None:
    save_model(inside / "models" / "model", "wordpiece")
    (inside / "mine").mkdir()
    (inside / "mine" / "letter.txt").write_text("mine")
    (inside / "file").write_text("mine")
    for place, message in [
        ("mine", "mine: is not empty and was not written by trim; name another"),
        ("file", "file: is a file"),
        ("models/model", "model: overlaps the model's own folder"),
        ("models/model/inner", "overlaps the model's own folder"),
        ("models", "models: overlaps the model's own folder"),
        (".", r"\.: has no name of its own, so it cannot be replaced; name a folder inside it"),
    ]:
        with pytest.raises(InputError, match=message):
            trim_model("models/model", Path(place), languages=["de"])
    assert (inside / "mine" / "letter.txt").read_text() == "mine"


def _wrong_rows(folder: Path) -> None:
    write_json(folder / "config.json", read_json(folder / "config.json") | {"vocab_size": 7})


def _two_embeddings(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    table = weights["embeddings.word_embeddings.weight"]
    save_file({**weights, "other.word_embeddings.weight": table.clone()}, folder / "model.safetensors")


def _too_many_tokens(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    table = weights["embeddings.word_embeddings.weight"]
    save_file({**weights, "embeddings.word_embeddings.weight": table[:500].clone()}, folder / "model.safetensors")
    write_json(folder / "config.json", read_json(folder / "config.json") | {"vocab_size": 500})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_wrong_rows, r"0 token embeddings .* have the 7 rows that config.json gives as vocab_size"),
        (_two_embeddings, r"2 token embeddings .* expected one; there are embeddings.word_embeddings.weight \["),
        (_too_many_tokens, r"the tokenizer has ids up to 899, the token embeddings 500 rows"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "not a tokenizer.json"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"no tokenizer.json here; give a model's folder"),
        (lambda folder: (folder / "model.safetensors").write_text("x"), "not a safetensors file"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors: no such file, only onnx"),
    ],
)
def test_folders_that_do_not_fit_together_are_refused(
    spoil: Callable[[Path], object], message: str, inside: Path
) -> None:
    spoil(save_model(inside / "model", "wordpiece"))
    with pytest.raises(InputError, match=message) as caught:
        trim_model("model", languages=["de"])
    assert "\n" not in str(caught.value)
    assert not Path("model-de").exists()


def test_nothing_to_go_by_is_refused(inside: Path) -> None:
    with pytest.raises(InputError, match="neither languages nor text is given; add --languages de,en or --text FILE"):
        trim_model("model")


def test_a_run_is_no_model_but_has_one(inside: Path) -> None:
    save_student(inside / "run" / "student")
    with pytest.raises(InputError, match=r"run: is a run; give its student, .*run/student"):
        trim_model("./run", languages=["de"])


def test_a_file_is_no_model(inside: Path) -> None:
    with pytest.raises(InputError, match=r"text.txt: is a file; give a model's folder"):
        trim_model("./text.txt", Path("small"), languages=["de"])


def _set_path(folder: Path, path: str) -> None:
    modules = read_json(folder / "modules.json")
    write_json(folder / "modules.json", [modules[0] | {"path": path}, modules[1]])


@pytest.mark.parametrize("path", ["../victim", "1_Pooling/../../victim", "linked"])
def test_nothing_beside_the_model_is_read_or_overwritten(path: str, inside: Path) -> None:
    folder = save_model(inside / "model", "wordpiece")
    save_model(inside / "victim", "wordpiece")
    (inside / "out" / "victim").mkdir(parents=True)
    (inside / "out" / "victim" / "config.json").write_text("mine")
    (folder / "linked").symlink_to(inside / "victim")
    _set_path(folder, path)
    with pytest.raises(InputError, match=r"not a path inside the folder|a link that leads out of the folder"):
        trim_model("model", Path("out/small"), languages=["de"])
    assert (inside / "out" / "victim" / "config.json").read_text() == "mine"
    assert not (inside / "out" / "small").exists()


@pytest.mark.parametrize("name", ["notes.txt", "1_Pooling/secret", "folder"])
def test_links_out_of_the_model_are_not_copied(name: str, inside: Path) -> None:
    folder = save_model(inside / "model", "wordpiece")
    (inside / "secret").mkdir()
    (inside / "secret" / "key").write_text("secret")
    (folder / name).symlink_to(inside / "secret" if name == "folder" else inside / "secret" / "key")
    with pytest.raises(InputError, match=f"{name}: a link that leads out of the folder; copy the file itself here"):
        trim_model("model", Path("small"), languages=["de"])
    assert not Path("small").exists()


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_bert_with_rotary_positions_is_trimmed(kind: str, inside: Path) -> None:
    save_rotary(inside / "model", kind, vocab_size=900)
    make("unigram").save(str(inside / "model" / "tokenizer.json"))
    trimmed = trim_model("model", Path("small"), texts=[Path("text.txt")])
    assert trimmed.rows_after < 900
    before, after = (encode(*import_encoder(Path(folder)), GERMAN) for folder in ("model", "small"))
    np.testing.assert_allclose(before, after, atol=1e-6)


def test_a_link_inside_the_model_is_copied_as_a_file(inside: Path) -> None:
    folder = save_model(inside / "model", "wordpiece")
    (folder / "LICENSE").symlink_to("README.md")
    trim_model("model", Path("small"), languages=["de"])
    assert Path("small/LICENSE").read_text() == "old" and not Path("small/LICENSE").is_symlink()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("modules.json", '[{"type": "sentence_transformers.models.Transformer", "path": 5}]'),
        ("modules.json", "[{}]"),
        ("config.json", "null"),
        ("config.json", "[" * 100_000),
        ("config_sentence_transformers.json", '{"prompts": true}'),
        ("tokenizer_config.json", "[]"),
        ("special_tokens_map.json", "5"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"a": 1}}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"5": {"content": 5}}}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"900": {"content": "", "special": true}}}'),
    ],
)
def test_a_damaged_file_is_one_line(name: str, text: str, inside: Path) -> None:
    (save_model(inside / "model", "wordpiece") / name).write_text(text)
    with pytest.raises(InputError, match=f"{name}: ") as caught:
        trim_model("model", Path("small"), languages=["de"])
    assert "\n" not in str(caught.value)
