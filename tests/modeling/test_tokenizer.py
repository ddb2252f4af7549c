import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from tests.helpers.foreign import save_encoder
from tests.helpers.student import make_tokenizer
from xcompress.errors import InputError
from xcompress.export.folder import write_tokenizer
from xcompress.files import read_json, write_json
from xcompress.modeling.load import import_encoder
from xcompress.modeling.tokenizer import open_tokenizer

pytestmark = pytest.mark.usefixtures("offline")
TEXTS = [
    "the BOAT is late",
    "the bóat is late",
    "日本 boat",
    "<extra> boat",
    "a<extra>boat",
    "boat <blank>",
    " boat",
    "a<s> boat",
]
EXTRA = {"content": "<extra>", "lstrip": False, "normalized": False, "rstrip": True, "single_word": False}
CLASSES = ("BertTokenizerFast", "DistilBertTokenizer", "MPNetTokenizerFast", "PreTrainedTokenizerFast", None)


def ids_of(tokenizer: Tokenizer) -> list[list[int]]:
    tokenizer.no_truncation()
    return [tokenizer.encode(text).ids for text in TEXTS]


def ids_of_transformers(folder: Path) -> list[list[int]]:
    from transformers import AutoTokenizer

    ids: list[list[int]] = AutoTokenizer.from_pretrained(folder)(TEXTS)["input_ids"]
    return ids


def needs_transformers_4() -> None:
    """Skip a comparison with a class of tokenizers that transformers 5 makes anew, of the vocabulary alone."""
    import transformers

    if int(transformers.__version__.split(".")[0]) > 4:
        pytest.skip("transformers 5 does not read the whole tokenizer.json of this class")


def words() -> Tokenizer:
    tokenizer = make_tokenizer()
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, handle_chinese_chars=False)
    return tokenizer


def letters() -> Tokenizer:
    """Bytes as tokens, with a space in front of a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.add_special_tokens(["<s>"])
    return tokenizer


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_lower_case": True},
        {"do_lower_case": False},
        {"do_lower_case": False, "strip_accents": True},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "tokenize_chinese_chars": False},
        {"do_lower_case": False, "added_tokens_decoder": {"395": {**EXTRA, "special": False}}},
        {"do_lower_case": False, "added_tokens_decoder": {"0": {**EXTRA, "content": "<s>", "single_word": True}}},
        {"do_lower_case": False, "additional_special_tokens": ["<extra>"]},
        {"do_lower_case": False, "mask_token": "<blank>"},
        {"do_lower_case": False, "mask_token": "boat"},
    ],
)
def test_settings_count_for_more_than_tokenizer_json_as_in_transformers(
    name: str | None, settings: dict[str, object], tmp_path: Path
) -> None:
    if name != "PreTrainedTokenizerFast":
        needs_transformers_4()
    save_encoder(tmp_path, "bert", words())
    file = tmp_path / "tokenizer_config.json"
    saved = {key: value for key, value in read_json(file).items() if key != "added_tokens_decoder"}
    write_json(file, saved | {"tokenizer_class": name, "mask_token": "<unk>"} | settings)
    assert ids_of(import_encoder(tmp_path, pooling="mean")[1]) == ids_of_transformers(tmp_path)


@pytest.mark.parametrize(
    "name", ["LlamaTokenizerFast", "GemmaTokenizer", "GPTNeoXTokenizerFast", "PreTrainedTokenizerFast"]
)
@pytest.mark.parametrize(
    "settings", [{}, {"add_eos_token": True}, {"add_bos_token": True, "add_eos_token": True}, {"add_bos_token": False}]
)
def test_first_and_last_tokens_are_those_of_the_class(name: str, settings: dict[str, object], tmp_path: Path) -> None:
    if name != "PreTrainedTokenizerFast":
        needs_transformers_4()
    save_encoder(tmp_path, "modernbert")
    file = tmp_path / "tokenizer_config.json"
    named = {"tokenizer_class": name, "bos_token": "<s>", "eos_token": {"content": "</s>", "__type": "AddedToken"}}
    write_json(file, read_json(file) | named | settings)
    assert ids_of(import_encoder(tmp_path, pooling="mean")[1]) == ids_of_transformers(tmp_path)


def test_a_first_token_that_cannot_be_put_there_is_one_line(tmp_path: Path) -> None:
    save_encoder(tmp_path, "modernbert")
    file = tmp_path / "tokenizer_config.json"
    write_json(file, read_json(file) | {"tokenizer_class": "LlamaTokenizer", "bos_token": "a:b"})
    with pytest.raises(InputError, match=r"tokenizer_config\.json: bos_token or eos_token: "):
        import_encoder(tmp_path, pooling="mean")


def test_without_settings_the_model_says_whether_its_tokenizer_is_berts(tmp_path: Path) -> None:
    for kind in ("bert", "xlm-roberta"):
        save_encoder(tmp_path / kind, kind, words())
        (tmp_path / kind / "tokenizer_config.json").unlink()
        (tmp_path / kind / "special_tokens_map.json").unlink(missing_ok=True)  # transformers 5 writes none
    assert ids_of(open_tokenizer(tmp_path / "xlm-roberta" / "tokenizer.json", 400)) == ids_of(words())
    opened = open_tokenizer(tmp_path / "bert" / "tokenizer.json", 400)
    assert ids_of(opened) != ids_of(words())
    needs_transformers_4()
    assert ids_of(opened) == ids_of_transformers(tmp_path / "bert")


@pytest.mark.parametrize("value", [True, False, None])
def test_a_space_in_front_is_the_settings_to_decide_and_kept_in_a_bundle(value: bool | None, tmp_path: Path) -> None:
    save_encoder(tmp_path, "roberta", letters())
    file = tmp_path / "tokenizer_config.json"
    write_json(file, read_json(file) | ({} if value is None else {"add_prefix_space": value}))
    student, tokenizer = import_encoder(tmp_path, pooling="mean")
    assert (ids_of(tokenizer) == ids_of(letters())) == bool(value)
    (tmp_path / "bundle").mkdir()
    write_tokenizer(tmp_path / "bundle", tokenizer, student.config)
    assert ids_of_transformers(tmp_path / "bundle") == ids_of(tokenizer)
    needs_transformers_4()
    assert ids_of(tokenizer) == ids_of_transformers(tmp_path)


def test_a_tokenizer_alone_counts_as_it_is(tmp_path: Path) -> None:
    words().save(str(tmp_path / "tokenizer.json"))
    assert ids_of(open_tokenizer(tmp_path / "tokenizer.json", 400)) == ids_of(words())


def test_a_token_that_is_only_named_gets_no_id_beyond_the_embeddings(tmp_path: Path) -> None:
    tokenizer = words()
    save_encoder(tmp_path, "bert", tokenizer, vocab_size=tokenizer.get_vocab_size())
    file = tmp_path / "tokenizer_config.json"
    write_json(file, read_json(file) | {"additional_special_tokens": ["<extra>"], "do_lower_case": False})
    assert import_encoder(tmp_path, pooling="mean")[1].token_to_id("<extra>") is None


def test_special_tokens_beyond_the_embeddings_are_left_out_unless_a_text_gets_them(tmp_path: Path) -> None:
    tokenizer = words()
    rows = tokenizer.get_vocab_size()
    tokenizer.add_special_tokens(["<image>"])
    save_encoder(tmp_path, "gemma3_text", tokenizer, vocab_size=rows)
    assert import_encoder(tmp_path, pooling="mean")[1].get_vocab() == words().get_vocab()
    write_json(tmp_path / "tokenizer_config.json", {"tokenizer_class": "GemmaTokenizer", "bos_token": "<image>"})
    with pytest.raises(InputError, match=f"the tokenizer has ids up to {rows}, the token embeddings {rows} rows"):
        import_encoder(tmp_path, pooling="mean")


def test_names_that_are_no_text_are_no_tokens(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert", words())
    file = tmp_path / "tokenizer_config.json"
    settings = read_json(file)
    file.write_text(json.dumps(settings | {"additional_special_tokens": ["\ud800", ""], "do_lower_case": False}))
    assert import_encoder(tmp_path, pooling="mean")[1].get_vocab() == words().get_vocab()
    for content in ("\ud800", ""):
        file.write_text(json.dumps(settings | {"added_tokens_decoder": {"395": {**EXTRA, "content": content}}}))
        with pytest.raises(InputError, match="added_tokens_decoder must be tokens by id"):
            import_encoder(tmp_path, pooling="mean")
