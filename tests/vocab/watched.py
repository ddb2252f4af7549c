"""A tokenizer that notes how much it is given."""

from typing import Any

from tokenizers import Encoding, Tokenizer


class WatchedTokenizer:
    """Notes how many characters are tokenized at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.characters: list[int] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a tokenizer
        return self._encode if name.startswith("encode_batch") else getattr(self._tokenizer, name)

    def _encode(self, texts: list[str], add_special_tokens: bool) -> list[Encoding]:
        self.characters.append(sum(map(len, texts)))
        return list(self._tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens))
