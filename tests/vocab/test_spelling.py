import pytest
from tokenizers import pre_tokenizers

from tests.helpers.vocabularies import make
from xcompress.vocab.student import described_by
from xcompress.vocab.tokenizer_json import Spelling, _bytes_by_letter, is_number_like, is_sign


def test_bytes_are_read_back_as_characters() -> None:
    spelling = Spelling.of(described_by(make("byte_level")))
    assert spelling.surface("ĠSchÃ¶n") == "Schön"
    assert spelling.forms("ö") == {"Ã¶", "ĠÃ¶"}
    assert Spelling("##", "", in_bytes=False).surface("##heit") == "heit"


def test_the_letters_of_bytes_are_those_of_the_library() -> None:
    assert set(_bytes_by_letter()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(_bytes_by_letter().values()) == list(range(256))


@pytest.mark.parametrize(
    ("surface", "expected"),
    [
        ("1999", True),
        ("),", True),
        ("“,", True),
        ("€5", True),
        ("1st", False),
        ("۲۰", False),
        ("é!", False),
        ("", False),
    ],
)
def test_numbers_and_punctuation_are_told_from_words(surface: str, expected: bool) -> None:
    assert is_number_like(surface) is expected


def test_signs_are_of_every_script() -> None:
    assert all(map(is_sign, "?،。€+٣"))
    assert not any(map(is_sign, "aßж中"))
