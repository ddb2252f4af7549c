import ast
import re
from dataclasses import replace

import pytest
import yaml

from tests.helpers.student import CONFIG, bundle
from tests.test_printable import HOSTILE
from xcompress.bundle.manifest import read_manifest
from xcompress.export.card import ReleaseNotes, checks_of, differences_of, model_card, sizes_of
from xcompress.printable import UNPRINTABLE

PREFIXES = [
    '"]); import os; os.system("id") #',
    "\\",
    "```\nimport os\n```",
    "a`b|c",
    "{dimension} {",
    "Instruct: find it\nQuery: ",
    HOSTILE,
]


def examples(card: str) -> list[str]:
    """Return the code of the card's examples."""
    return re.findall(r"^```python\n(.*?)^```$", card, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_stays_text_in_the_example(prefix: str) -> None:
    plain, hostile = (read_manifest(bundle()) | {"prefix": text} for text in (CONFIG.prefix, prefix))
    expected, codes = examples(model_card(plain)), examples(model_card(hostile))
    assert len(codes) == len(expected) == 3
    for code, other in zip(codes, expected, strict=True):
        kinds, others = ([type(node) for node in ast.walk(ast.parse(text))] for text in (code, other))
        assert kinds == others
    texts = [node.value for node in ast.walk(ast.parse(codes[2])) if isinstance(node, ast.Constant)]
    assert prefix.replace("\ud800", "\ufffd") + "A first sentence." in texts


@pytest.mark.parametrize("text", PREFIXES)
def test_a_card_of_any_names_keeps_its_form(text: str) -> None:
    manifest = read_manifest(bundle())
    files = dict(manifest["files"])
    machine = manifest["machine"] | {"processor": text, "cpu_flags": [text]}
    hostile = manifest | {
        "source": text,
        "prefix": text,
        "languages": ["de", text],
        "machine": machine,
        "dev": {text: 1},
    }
    card = model_card(hostile | {"files": files | {f"onnx/{text}.onnx": {"bytes": 3}}})
    assert UNPRINTABLE.search(card) is None
    header = yaml.safe_load(card.split("---\n")[1])
    assert header["language"] == ["de", text.replace("\ud800", "\ufffd")]
    shape = [line.split(" ")[0] for line in card.splitlines()]
    plain = model_card(manifest | {"dev": {"a": 1}, "languages": ["de"]}).splitlines()
    assert [word for word in shape if word.startswith("#")] == [
        word.split(" ")[0] for word in plain if word.startswith("#")
    ]
    rows = [line for line in card.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {3}


def test_the_norwegian_code_stays_text_in_the_header() -> None:
    card = model_card(read_manifest(bundle()) | {"languages": ["no", "en"]})
    assert yaml.safe_load(card.split("---\n")[1])["language"] == ["no", "en"]
    assert 'language: ["no", en]' in card


def test_a_released_name_stays_text() -> None:
    notes = replace(ReleaseNotes("small", "MIT", "", "", ""), name='x"); import os #')
    (first, *_) = examples(model_card(read_manifest(bundle()), notes))
    assert not any(isinstance(node, ast.Import) for node in ast.walk(ast.parse(first)))


def test_a_float32_graph_for_another_engine_has_its_difference() -> None:
    manifest = read_manifest(bundle())
    parity = manifest["parity"] | {"openvino": manifest["parity"]["fp32"]}
    assert "- openvino against PyTorch: largest difference" in model_card(manifest | {"parity": parity})


def test_sizes_are_those_of_all_files_of_a_graph() -> None:
    parts = {
        "onnx/model.onnx": 1,
        "onnx/model.onnx_data": 20,
        "onnx/model.ort": 300,
        "openvino/openvino_model.xml": 4,
        "openvino/openvino_model.bin": 50,
        "litert/model.tflite": 7,
        "tokenizer.json": 9,
    }
    assert sizes_of({"files": {name: {"bytes": size} for name, size in parts.items()}}) == {
        "onnx/model.onnx": 21,
        "onnx/model.ort": 300,
        "openvino/openvino_model.xml": 54,
        "litert/model.tflite": 7,
    }


def test_a_pair_of_languages_is_named_only_where_it_lost_something() -> None:
    manifest, before = read_manifest(bundle()), {"de-de": 71.0, "en-de": 60.0}
    scored = [manifest | {"graded": {"before": before, "after": before | {"de-de": now}}} for now in (70.9, 70.96)]
    lines = [next(line for line in checks_of(each) if line.startswith("Spearman")) for each in scored]
    means = "Spearman x 100 on graded pairs, 2 pairs of languages: 65.5 before, 65.5 after"
    assert lines == [f"{means}; most was lost in de-de, 71.0 to 70.9", means]
    alone = manifest | {"graded": {"before": {"de-de": 71.0}, "after": {"de-de": 70.0}}}
    assert "Spearman x 100 on graded pairs, de-de: 71.0 before, 70.0 after" in checks_of(alone)


def test_vectors_of_unit_length_rank_alike_by_dot_product() -> None:
    manifest = read_manifest(bundle()) | {"similarity_fn_name": "dot"}
    assert differences_of(manifest) == []
    (line,) = differences_of(manifest | {"normalize": False})
    assert "The model compares vectors by dot" in line


def test_many_prompts_take_one_short_line() -> None:
    manifest = read_manifest(bundle())
    (line,) = differences_of(manifest | {"prompts": {f"p{number}": "x" for number in range(30)}})
    assert "(p0, p1, p2, p3, p4, p5, p6, p7 and others)" in line
    assert line.endswith("apply the prefix.")
    (line,) = differences_of(manifest | {"prompts": {"query": "q: "}, "prefix": ""})
    assert line.endswith("apply none.")


def test_the_width_of_the_token_embeddings_is_that_of_the_file() -> None:
    manifest = read_manifest(bundle())
    folded = manifest | {"bottleneck": {"width": 16, "form": "folded", "why": ""}}
    assert "| token embeddings | 400 tokens x 32 |" in model_card(folded)
    factored = manifest | {"bottleneck": {"width": 16, "form": "factored", "why": ""}}
    assert "| token embeddings | 400 tokens x 16 |" in model_card(factored)


@pytest.mark.parametrize(("precision", "is_said"), [("fp32", False), ("fp16", False), ("int8", True), ("int4", True)])
def test_limits_of_int8_are_those_of_bundles_that_compute_in_it(precision: str, is_said: bool) -> None:
    card = model_card(read_manifest(bundle()) | {"precision": precision})
    assert ("- Weights in 8 or 4 bits are multiplied in int8." in card) == is_said
    assert ("int8 dot products" in card) == is_said


def test_a_bundle_with_a_file_in_ort_format_says_what_an_app_does_with_it() -> None:
    manifest = read_manifest(bundle())
    assert "on a phone" not in model_card(manifest)
    card = model_card(manifest | {"files": manifest["files"] | {"onnx/model_quantized.ort": {"bytes": 3}}})
    assert "an app needs `onnx/model_quantized.ort` alone" in card
    assert f"pad shorter texts with\n{CONFIG.pad_token_id} in `input_ids`" in card


def test_a_card_says_which_ids_sentencepiece_leaves_out() -> None:
    tokenizer = {"file": "litert/tokenizer.model", "sentences": 1, "equal": 1}
    card = model_card(read_manifest(bundle()) | {"phone_tokenizer": tokenizer})
    assert "`litert/tokenizer.model` is the tokenizer for the SentencePiece library" in card
    assert "put `bos_id` in front and `eos_id` behind" in card
