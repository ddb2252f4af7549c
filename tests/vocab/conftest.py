from pathlib import Path

import pytest

from tests.helpers.vocabularies import write_word_lists


@pytest.fixture
def word_lists(empty_cache: Path, no_installed_wheels: None) -> None:
    """Put short lists of frequent words, German and English, into the cache."""
    german = ["der", "zug", "kommt", "nicht", "heute", "hafen"]
    write_word_lists(empty_cache, {"de": german, "en": ["the", "train"]})
