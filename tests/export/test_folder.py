import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from tests.helpers.foreign import TEXTS, save_pipeline
from tests.helpers.student import (
    CONFIG,
    QWEN,
    SENTENCES,
    bundle,
    make_student,
    make_tokenizer,
    save_student,
    student_of_bundle,
)
from xcompress.bundle.encoder import Encoder
from xcompress.errors import InputError
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.export.folder import announce, special_tokens, write_pipeline, write_tokenizer
from xcompress.export.hf import export_hf
from xcompress.export.source import find_source, read_settings
from xcompress.files import read_json, sha256_of, write_json
from xcompress.modeling.st_folder import read_pipeline
from xcompress.modeling.student import encode
from xcompress.sources.model_folder import PROMPTS

FILES = [
    "1_Pooling/config.json",
    "2_Normalize/config.json",
    "README.md",
    "config.json",
    "config_sentence_transformers.json",
    "manifest.json",
    "modules.json",
    "onnx/model.onnx",
    "onnx/model_quantized.onnx",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
]


@pytest.fixture(scope="module")
def manifest() -> dict[str, object]:
    return json.loads((bundle() / "manifest.json").read_text())


def test_the_bundle_is_complete_and_nothing_else() -> None:
    found = sorted(path.relative_to(bundle()).as_posix() for path in bundle().rglob("*") if path.is_file())
    assert found == FILES


def test_the_manifest_hashes_every_other_file(manifest: dict[str, dict[str, dict[str, object]]]) -> None:
    assert sorted(manifest["files"]) == [name for name in FILES if name != "manifest.json"]
    for name, entry in manifest["files"].items():
        assert entry == {"bytes": (bundle() / name).stat().st_size, "sha256": sha256_of(bundle() / name)}


def test_the_manifest_describes_the_model(manifest: dict[str, Any]) -> None:
    expected = {
        "format": 1,
        "source": "small",
        "precision": "int8",
        "opset": 20,
        "pooling": "mean",
        "normalize": True,
        "prefix": "query: ",
        "max_tokens": 128,
        "dimension": 24,
        "recurrences": 3,
        "unit_layers": 2,
        "parameters": sum(weight.numel() for weight in make_student().parameters()),
    }
    assert {name: manifest[name] for name in expected} == expected
    assert manifest["bottleneck"]["width"] == 16


def test_no_text_file_names_a_place_on_this_machine() -> None:
    here = re.compile(r"(^|[\s\"'`=(])(/[a-z]+/|[A-Z]:\\)|" + re.escape(str(bundle().parent)))
    for name in FILES:
        if not name.endswith(".onnx"):
            assert not here.search((bundle() / name).read_text(encoding="utf-8")), name


def test_the_tokenizer_cuts_pads_and_adds_special_tokens_by_itself() -> None:
    tokenizer = Tokenizer.from_file(str(bundle() / "tokenizer.json"))
    long, short = tokenizer.encode_batch(["rain " * 500, "rain"])
    assert len(long.ids) == len(short.ids) == 128
    assert (long.ids[0], long.ids[-1]) == (0, 2)
    assert short.attention_mask == [1] * 3 + [0] * 125


def test_transformers_opens_configuration_and_tokenizer() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.from_pretrained(bundle())
    assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (6, 32, 400)
    tokenizer = transformers.AutoTokenizer.from_pretrained(bundle())
    assert (tokenizer.model_max_length, tokenizer.pad_token_id, tokenizer.unk_token) == (128, 1, "<unk>")
    assert (tokenizer.cls_token, tokenizer.sep_token) == ("<s>", "</s>")
    assert set(tokenizer(SENTENCES[0])) == {"input_ids", "attention_mask"}


def test_padding_of_the_model_is_no_special_token() -> None:
    tokenizer = make_tokenizer()
    tokenizer.enable_padding(length=16, pad_id=1, pad_token="<pad>")
    assert special_tokens(tokenizer, 1)["sep_token"] == "</s>"


def test_onnxruntime_alone_follows_the_card() -> None:
    card = (bundle() / "README.md").read_text()
    code = [block for block in re.findall(r"```python\n(.*?)```", card, re.DOTALL) if "import numpy" in block]
    names: dict[str, object] = {}
    exec(code[0].replace("path/to/this/folder", bundle().as_posix()), names)
    expected = Encoder(bundle()).encode(["A first sentence.", "Ein zweiter Satz."])
    np.testing.assert_allclose(names["vectors"], expected, atol=1e-5)


def test_mean_pooled_tokens_are_the_sentence_vector() -> None:
    session = onnxruntime.InferenceSession(bundle() / "onnx/model.onnx")
    feeds = {"input_ids": np.array([[0, 7, 8, 2, 1]]), "attention_mask": np.array([[1, 1, 1, 1, 0]])}
    tokens, sentence = session.run(["token_embeddings", "sentence_embedding"], feeds)
    mean = tokens[0, :4].mean(0)
    np.testing.assert_allclose(sentence[0], mean / np.linalg.norm(mean), atol=1e-6)


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_sentence_transformers_gives_the_same_vectors(precision: str, offline: None) -> None:
    pytest.importorskip("optimum.onnxruntime", reason="optimum is not installed")
    package = pytest.importorskip("sentence_transformers")
    name = {"int8": "onnx/model_quantized.onnx", "fp32": "onnx/model.onnx"}[precision]
    options = {"file_name": name, "provider": "CPUExecutionProvider"}
    model = package.SentenceTransformer(str(bundle()), backend="onnx", model_kwargs=options)
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling", "Normalize"]
    assert model.max_seq_length == CONFIG.max_tokens
    expected = Encoder(bundle(), precision=precision).encode(SENTENCES)
    np.testing.assert_allclose(model.encode(SENTENCES), expected, atol=1e-5)


def test_optimum_opens_the_bundle() -> None:
    optimum = pytest.importorskip("optimum.onnxruntime", reason="optimum is not installed")
    transformers = pytest.importorskip("transformers")
    model = optimum.ORTModelForFeatureExtraction.from_pretrained(
        bundle(), file_name="model_quantized.onnx", subfolder="onnx"
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(bundle())
    tokens = model(**tokenizer([CONFIG.prefix + SENTENCES[0]], return_tensors="pt")).last_hidden_state
    mean = tokens[0].mean(0)
    expected = Encoder(bundle(), precision="int8").encode(SENTENCES[0])
    np.testing.assert_allclose(mean / mean.norm(), expected, atol=1e-5)


def test_the_bundle_agrees_with_the_student() -> None:
    student, tokenizer = student_of_bundle()
    expected = encode(student, tokenizer, SENTENCES)
    np.testing.assert_allclose(Encoder(bundle(), precision="fp32").encode(SENTENCES), expected, atol=1e-5)


def test_the_int8_file_is_as_small_as_its_parameters(manifest: dict[str, dict[str, dict[str, int]]]) -> None:
    assert manifest["files"]["onnx/model_quantized.onnx"]["bytes"] < manifest["parameters"] * 1.02 + 1_000_000


FOREIGN: list[dict[str, Any]] = [
    {"kind": "distilbert", "pooling": "cls", "dense": ["Identity", "Tanh"], "longest": 60},
    {"kind": "mpnet", "normalize": False, "longest": 170, "prompts": {"q": "rain "}, "default_prompt_name": "q"},
    {"kind": "roberta", "pooling": "cls", "dense": ["Identity"], "longest": 60},
    {"kind": "bert", "dense": ["Tanh"], "normalize": False, "longest": 60},
    {"kind": "modernbert", "longest": 170},
    {"kind": "gemma3_text", "dense": ["Identity", "Identity"], "longest": 170, "prompts": {"query": "rain "}},
    {"kind": "qwen3", "pooling": "lasttoken", "longest": 170},
]


@pytest.mark.slow
@pytest.mark.usefixtures("offline", "little_text")
@pytest.mark.parametrize("options", FOREIGN)
def test_a_foreign_encoder_gives_its_vectors_in_every_loader(options: dict[str, Any], tmp_path: Path) -> None:
    expected = save_pipeline(tmp_path / "mine", **options).encode(TEXTS)
    made = export(tmp_path / "mine", options=ExportConfig(precision="fp32"))
    assert made == tmp_path / "mine-bundle"
    np.testing.assert_allclose(Encoder(made).encode(TEXTS), expected, atol=2e-5)
    described = json.loads((made / "manifest.json").read_text())
    assert (described["pooling"], described["dimension"]) == (options.get("pooling", "mean"), expected.shape[1])
    assert "stored, applied once |" in (made / "README.md").read_text()
    pytest.importorskip("optimum.onnxruntime", reason="optimum is not installed")
    package = pytest.importorskip("sentence_transformers")
    graph = {"file_name": "onnx/model.onnx", "provider": "CPUExecutionProvider"}
    model = package.SentenceTransformer(str(made), backend="onnx", model_kwargs=graph)
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=2e-5)


@pytest.mark.parametrize(
    ("changes", "side"), [(QWEN, "left"), ({"pooling": "lasttoken"}, "right"), (QWEN | {"pooling": "mean"}, "right")]
)
def test_clients_that_pool_find_the_last_token(changes: dict[str, Any], side: str, tmp_path: Path) -> None:
    """Some take the last row, which holds padding on the right; positions that are embedded allow for no other."""
    config = make_student(**changes).config
    write_tokenizer(tmp_path, make_tokenizer(), config)
    write_pipeline(tmp_path, config, {})
    assert read_json(tmp_path / "tokenizer_config.json")["padding_side"] == side
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).padding["direction"] == side
    pooling = read_json(tmp_path / "1_Pooling" / "config.json")
    assert [name for name, value in pooling.items() if value is True] == [
        f"pooling_mode_{'mean_tokens' if config.pooling == 'mean' else 'lasttoken'}"
    ]


ASYMMETRIC = {"query": "q: ", "passage": "p: ", "document": ""}


@pytest.mark.parametrize(
    ("prompts", "default", "prefix", "expected"),
    [
        (ASYMMETRIC, "passage", "p: ", (ASYMMETRIC, "passage")),
        (ASYMMETRIC, None, "", (ASYMMETRIC, None)),
        (ASYMMETRIC, None, "x: ", (ASYMMETRIC | {"sentence": "x: "}, "sentence")),
        (
            {"query": "q: ", "sentence": "s: ", "sentence2": "t: "},
            None,
            "x: ",
            ({"query": "q: ", "sentence": "s: ", "sentence2": "t: ", "sentence3": "x: "}, "sentence3"),
        ),
        ({"query": "", "document": ""}, None, "x: ", ({"query": "x: ", "document": "x: "}, "query")),
        ({}, None, "x: ", ({"query": "x: ", "document": "x: "}, "query")),
        ({}, None, "", (None, None)),
    ],
)
def test_prompts_are_those_of_the_model_or_all_its_prefix(
    prompts: dict[str, str],
    default: str | None,
    prefix: str,
    expected: tuple[dict[str, str] | None, str | None],
    tmp_path: Path,
) -> None:
    write_json(tmp_path / PROMPTS, {"prompts": prompts, "default_prompt_name": default, "similarity_fn_name": "dot"})
    settings = read_settings(tmp_path, prefix)
    assert (settings.get("prompts"), settings.get("default_prompt_name")) == expected
    assert settings["similarity_fn_name"] == "dot"


def test_an_empty_prompt_of_a_student_is_its_prefix(tmp_path: Path) -> None:
    folder = save_student(tmp_path / "student")
    write_json(folder / PROMPTS, {"prompts": {"query": "", "document": "d: "}, "similarity_fn_name": None})
    settings = read_settings(folder, CONFIG.prefix)
    assert settings["prompts"] == {"query": CONFIG.prefix, "document": "d: "}
    assert (settings["default_prompt_name"], settings["similarity_fn_name"]) == ("query", "cosine")


@pytest.mark.parametrize(
    ("prompts", "says"),
    [
        ({"query": "q " * 1000}, "the prompt 'query' has 2000 characters, more than 1000; shorten or remove it"),
        ({"query": "q\x1b"}, "the prompt 'query' holds U\\+001B"),
    ],
)
def test_a_prompt_that_no_bundle_can_have_is_refused(prompts: dict[str, str], says: str, tmp_path: Path) -> None:
    save_pipeline(tmp_path / "mine", prompts=prompts, longest=60)
    with pytest.raises(InputError, match=says):
        export(tmp_path / "mine", options=ExportConfig(precision="fp32"))


@pytest.mark.slow
@pytest.mark.usefixtures("offline", "little_text")
@pytest.mark.parametrize("form", ["onnx", "hf"])
def test_queries_and_documents_keep_their_prompts(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = {"query": "rain ", "passage": "la mer ", "document": "train "}
    source = save_pipeline(tmp_path / "mine", normalize=False, prompts=prompts, similarity_fn_name="dot", longest=60)
    package = pytest.importorskip("sentence_transformers")
    if form == "onnx":
        pytest.importorskip("optimum.onnxruntime", reason="optimum is not installed")
        made = export(tmp_path / "mine", options=ExportConfig(precision="fp32"))
        graph = {"file_name": "onnx/model.onnx", "provider": "CPUExecutionProvider"}
        model = package.SentenceTransformer(str(made), backend="onnx", model_kwargs=graph)
        said, card = capsys.readouterr().err, (made / "README.md").read_text()
        for text in (said, card):
            assert "prompts by name (" in text
            assert "compares vectors by dot" in text
        encoder = Encoder(made)
        assert encoder.prompts == model.prompts == prompts
        for name in ("encode", "encode_query", "encode_document"):
            np.testing.assert_allclose(getattr(encoder, name)(TEXTS), getattr(source, name)(TEXTS), atol=2e-4)
            np.testing.assert_allclose(
                getattr(encoder, name)(TEXTS, prompt_name="passage"),
                getattr(source, name)(TEXTS, prompt_name="passage"),
                atol=2e-4,
            )
    else:
        model = package.SentenceTransformer(str(export_hf(tmp_path / "mine")), device="cpu")
    assert model.similarity_fn_name == "dot"
    for name in ("encode", "encode_query", "encode_document"):
        np.testing.assert_allclose(getattr(model, name)(TEXTS), getattr(source, name)(TEXTS), atol=2e-4)
    np.testing.assert_allclose(
        model.encode(TEXTS, prompt_name="passage"), source.encode(TEXTS, prompt_name="passage"), atol=2e-4
    )


def test_a_head_with_an_activation_is_a_module_of_its_own(tmp_path: Path) -> None:
    student = make_student(head_activation="tanh", pooling="cls")
    write_pipeline(tmp_path, student.config, {}, student.head)
    kinds = [module["type"].rpartition(".")[2] for module in json.loads((tmp_path / "modules.json").read_text())]
    assert kinds == ["Transformer", "Pooling", "Dense", "Normalize"]
    pooling = json.loads((tmp_path / "1_Pooling" / "config.json").read_text())
    assert pooling["word_embedding_dimension"] == 32
    assert [name for name, on in pooling.items() if on is True] == ["pooling_mode_cls_token"]
    found = read_pipeline(tmp_path).head
    assert found is not None and student.head is not None
    assert found.activation == "tanh" and found.weight.equal(student.head.weight)


def test_a_folder_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_student(tmp_path / "models/mine")
    announce(find_source("models/mine"), Path("to"), "")
    monkeypatch.chdir("models")
    announce(find_source("mine"), Path("to"), "")
    lines = ["exporting mine (models/mine) to to", "exporting mine to to"]
    assert capsys.readouterr().err.splitlines() == lines
