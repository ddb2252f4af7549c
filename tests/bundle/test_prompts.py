"""What stands in front of a text: a prompt that is named or given, or the prefix."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.student import SENTENCES, bundle, change_manifest
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.manifest import read_manifest, write_manifest
from xcompress.errors import InputError

TEXTS = [*SENTENCES, "", "rain 😀", "the boat is late " * 100]
PROMPTS = {"query": "rain ", "passage": "the sea: ", "none": "", "two\nlines": "x"}


def prompted(folder: Path, prompts: Mapping[str, str] = PROMPTS, prefix: str = "query: ") -> Encoder:
    """Open the bundle with these prompts."""
    change_manifest(folder, prompts=prompts, prefix=prefix)
    return Encoder(folder, precision="fp32", threads=1)


def bare(folder: Path, front: str, **options: str) -> np.ndarray:
    """Encode the texts with a text written in front of them."""
    return prompted(folder, {}, "").encode([front + text for text in TEXTS], **options)


def test_a_prompt_replaces_the_prefix(bundle_copy: Path) -> None:
    encoder = prompted(bundle_copy)
    assert not np.allclose(encoder.encode(TEXTS), encoder.encode(TEXTS, prompt_name="passage"), atol=1e-3)
    np.testing.assert_array_equal(encoder.encode(TEXTS), encoder.encode(TEXTS, prompt="query: "))
    for named, given in PROMPTS.items():
        found = encoder.encode(TEXTS, prompt_name=named)
        np.testing.assert_array_equal(found, encoder.encode(TEXTS, prompt=given))
        np.testing.assert_allclose(found, bare(bundle_copy, given), atol=1e-6)


def test_the_prompt_is_in_the_first_window_of_a_long_text(bundle_copy: Path) -> None:
    found = prompted(bundle_copy).encode(TEXTS, prompt_name="passage", long="mean")
    np.testing.assert_allclose(found, bare(bundle_copy, "the sea: ", long="mean"), atol=1e-6)


@pytest.mark.parametrize(
    ("prompts", "of_queries", "of_documents"),
    [
        ({"query": "q: ", "corpus": "c: ", "passage": "p: ", "document": "d: "}, "q: ", "d: "),
        ({"query": "", "corpus": "c: ", "passage": "p: "}, "", "p: "),
        ({"corpus": "c: "}, "query: ", "c: "),
        ({}, "query: ", "query: "),
        (None, "query: ", "query: "),
    ],
)
def test_queries_and_documents_have_the_prompts_that_sentence_transformers_tries(
    prompts: dict[str, str] | None, of_queries: str, of_documents: str, bundle_copy: Path
) -> None:
    if prompts is None:
        manifest = read_manifest(bundle_copy)
        del manifest["prompts"]  # as in earlier bundles
        write_manifest(bundle_copy, manifest)
        encoder = Encoder(bundle_copy, precision="fp32", threads=1)
    else:
        encoder = prompted(bundle_copy, prompts)
    np.testing.assert_array_equal(encoder.encode_query(TEXTS), encoder.encode(TEXTS, prompt=of_queries))
    np.testing.assert_array_equal(encoder.encode_document(TEXTS), encoder.encode(TEXTS, prompt=of_documents))
    assert encoder.prompts == (prompts or {})


def test_a_prompt_that_is_given_comes_before_that_of_queries(bundle_copy: Path) -> None:
    encoder = prompted(bundle_copy)
    expected = encoder.encode("rain", prompt_name="passage", precision="int8")
    np.testing.assert_array_equal(encoder.encode_query("rain", prompt_name="passage", precision="int8"), expected)
    np.testing.assert_array_equal(encoder.encode_document("rain", 1, prompt="the sea: ", precision="int8"), expected)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"prompt_name": "queri"},
            r"no prompt 'queri'; the bundle has 'query', 'passage', 'none', 'two\\nlines'; choose",
        ),
        ({"prompt_name": ["query"]}, r"no prompt \['query'\]"),
        ({"prompt_name": "query", "prompt": ""}, "are both given; give one of them"),
        ({"prompt": 3}, "the prompt is int, not text; give another"),
        ({"prompt": "long " * 300}, "the prompt has 1500 characters, more than 1000; give another"),
    ],
)
def test_a_prompt_that_does_not_exist_or_fit_is_one_line(options: dict[str, str], says: str, bundle_copy: Path) -> None:
    encoder = prompted(bundle_copy)
    for method in (encoder.encode, encoder.encode_query, encoder.encode_document):
        with pytest.raises(InputError, match=says) as error:
            method("rain", **options)
        assert "\n" not in str(error.value)


def test_a_prompt_that_leaves_no_room_for_a_text_is_refused(bundle_copy: Path) -> None:
    encoder = prompted(bundle_copy, {"query": "rain " * 126})
    for options in ({"prompt": "rain " * 126}, {"prompt_name": "query"}):
        with pytest.raises(InputError, match="the prompt fills all 128 tokens of a text, so all vectors would be the"):
            encoder.encode(TEXTS, **options)
    for options in ({"prompt": "rain " * 125}, {"prompt": "rain " * 126, "long": "mean"}):
        assert not np.allclose(*encoder.encode(["the", "sea"], **options), atol=1e-4)


def test_a_bundle_without_prompts_has_no_names(bundle_copy: Path) -> None:
    with pytest.raises(InputError, match="no prompt 'query'; the bundle has none; give the text of a prompt"):
        prompted(bundle_copy, {}).encode("rain", prompt_name="query")


def test_the_prompts_of_an_encoder_are_read_only() -> None:
    prompts = Encoder(bundle()).prompts
    assert prompts == {"query": "query: ", "document": "query: "}
    with pytest.raises(TypeError):
        prompts["query"] = "rain "  # type: ignore[index]
