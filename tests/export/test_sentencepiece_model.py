"""A Unigram vocabulary as a SentencePiece model."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.helpers.student import make_tokenizer
from xcompress.bundle.released import released_folder, released_names
from xcompress.corpus.graded import DATA
from xcompress.export.sentencepiece_model import count_equal, write_sentencepiece


@pytest.mark.parametrize("name", released_names())
def test_sentencepiece_gives_the_ids_of_the_released_models(name: str, tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    tokenizer = Tokenizer.from_file(str(released_folder(name) / "tokenizer.json"))
    tokenizer.enable_truncation(24)
    lines = [line for file in DATA.glob("sentences.*.txt") for line in file.read_text(encoding="utf-8").splitlines()]
    texts = ["", *(f"query: {line}" for line in lines), "Ω ≈ ½ ﬁ 日本 😀"]
    file = tmp_path / "tokenizer.model"
    assert write_sentencepiece(tokenizer, file)
    expected = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    assert count_equal(file, texts, expected) == len(texts)
    assert count_equal(file, texts, [[0, 5, 2]] * len(texts)) == 0
    cpp = pytest.importorskip("pytorch_tokenizers", reason="executorch is not installed").CppSPTokenizer()
    cpp.load(str(file))
    tokenizer.no_truncation()
    assert all(list(cpp.encode(text, 1, 1)) == tokenizer.encode(text).ids for text in texts)


def test_other_vocabularies_are_left_alone(tmp_path: Path) -> None:
    assert not write_sentencepiece(make_tokenizer(), tmp_path / "tokenizer.model")
    assert not (tmp_path / "tokenizer.model").exists()
