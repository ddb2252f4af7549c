"""Turn a bundle back into a student in float32, to train it further: `xcompress dequantize`.

The constants of a graph are named after the modules of the student (see `MatMulWriter` and `write_lookup`). So each
weight can be read from the graph, as it was rounded.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from tokenizers import Tokenizer

import xcompress
from xcompress import console
from xcompress.bundle.encoder import Encoder, Precision
from xcompress.bundle.integrity import check_bundle
from xcompress.bundle.manifest import CARD, GRAPHS, graphs_of
from xcompress.errors import GateError, InputError, on_one_line, short_repr
from xcompress.export.card import language_entry
from xcompress.export.int4 import Floats, Int4Weights, unpack_int4
from xcompress.export.matmul import matmuls, token_steps
from xcompress.export.text import real_sentences
from xcompress.export.writer import all_nodes
from xcompress.files import prepare_target, read_mapping, whole_folder, write_json, write_text
from xcompress.metrics import cosines
from xcompress.modeling.architectures import load_state
from xcompress.modeling.bounds import check_fits
from xcompress.modeling.rotary_config import ModernBertAttention
from xcompress.modeling.student import Student, StudentConfig, encode
from xcompress.paths import as_path
from xcompress.printable import markdown_text
from xcompress.sources.model_folder import PROMPTS
from xcompress.tokenizer_file import read_tokenizer

LEAST_COSINE = {"fp32": 0.9999, "fp16": 0.999, "int8": 0.98, "int4": 0.98}
"""By precision, of the graph's vector of a sentence with the student's. Graphs in int8 and int4 round the inputs of
their products, too."""
_COMPARED = 256
"""Sentences of the package that are encoded with both."""
_SETTINGS = ("prompts", "default_prompt_name", "similarity_fn_name")
"""Entries of the manifest that config_sentence_transformers.json of a student has, too."""
_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
{languages}---

# {title}

The weights of the bundle `{title}` ({precision}) in float32, to train further. Made by `xcompress dequantize`, version
{version}. What the bundle was trained on, and the licences of that text, are on its own card.

```python
from xcompress.interop.sentence_transformers import open_student

model = open_student("path/to/this/folder")  # a SentenceTransformer
```
"""


class Dequantized(NamedTuple):
    """A student read from the graph of a bundle."""

    student: Student
    tokenizer: Tokenizer
    manifest: Mapping[str, Any]
    """Of the bundle."""
    precision: str
    """Of the graph."""
    cosine: float
    """The lowest, of the graph's vector of a sentence with the student's."""


def dequantize(model: str | Path, output: Path | None = None) -> Path:
    """Write the student that a bundle computes, with the weights of its most precise graph; return the folder.

    :param model: a released model by name, the folder of a bundle, or a hub id.
    :param output: the folder to write, which must be empty or absent; by default `<name>-student`.
    :raises InputError: when there is no bundle, its weights cannot be read, or the folder cannot be written.
    :raises GateError: when the student's vectors are not those of the bundle.
    """
    path = as_path(str(model))
    name = path.resolve().name if path.exists() else path.name.partition("@")[0]  # of a hub id org/name@revision
    target = prepare_target(output or Path(f"{name}-student"))
    if target.is_dir() and any(target.iterdir()):
        raise InputError(f"{target}: is not empty; name another folder for the student")
    read = read_student(model)
    manifest = read.manifest
    with whole_folder(target) as folder:
        read.student.save(folder, read.tokenizer)
        saved = read_mapping(folder / PROMPTS)
        write_json(folder / PROMPTS, saved | {key: manifest[key] for key in _SETTINGS if key in manifest})
        languages = language_entry(manifest.get("languages", []))
        facts = {"title": markdown_text(name), "precision": read.precision, "version": xcompress.__version__}
        write_text(folder / CARD, _CARD.format(languages=languages, **facts))
    console.say(f"read {name} ({read.precision}); lowest cosine with its vectors: {read.cosine:.4f}")
    prefix, prompts = manifest["prefix"], manifest.get("prompts", {})
    if prefix and (empty := [name for name, text in prompts.items() if not text]):
        # sentence-transformers fills in empty prompts of its own, so a student cannot tell one that was meant
        console.warn(
            f"{target / PROMPTS}: the prompt {', '.join(map(short_repr, empty))} is empty, but a student puts its "
            f"prefix {short_repr(prefix)} in front of such texts, and so does a bundle made of it; encode them with "
            "the bundle and prompt=''"
        )
    return target


def read_student(model: str | Path) -> Dequantized:
    """Read the student from the most precise graph of a bundle, and compare their vectors.

    The bottleneck is kept unless the export folded it. Recurrences are those of the bundle. Positions hold the token
    type embedding, too, as in the graph.

    :param model: as for `dequantize`.
    :raises InputError: when the bundle cannot be opened, or its graph is not one that `export` writes.
    :raises GateError: when a cosine is under `LEAST_COSINE`.
    """
    # open the bundle, which checks its files, and choose the graph
    encoder = Encoder.from_pretrained(model, engine="onnxruntime")
    bundle, manifest = encoder.folder, encoder.manifest
    # beside a graph in ORT format, an export for phones keeps the same graph in ONNX
    beside = {name: f"{path.rpartition('.')[0]}.onnx" for name, path in graphs_of(bundle, manifest).items()}
    graphs = {name: path for name, path in beside.items() if (bundle / path).is_file()}
    precision = next((name for name in GRAPHS if name in graphs), None)
    if precision is None:
        raise InputError(f"{bundle}: has no .onnx graph to read weights from; give the model that it was made from")
    if encoder.precision != precision:
        encoder = Encoder(bundle, precision=cast(Precision, precision), engine="onnxruntime")
    check_bundle(bundle, manifest, graphs[precision])
    tokenizer, file = read_tokenizer(bundle / "tokenizer.json"), bundle / graphs[precision]

    # read the weights
    try:
        weights = _Weights.of(onnx.load(file).graph)
        word = weights.table("word")
        config = _config(weights, word, manifest, read_mapping(bundle / "config.json"))
        check_fits(vars(config), 2 * sum(array.size for array in weights.constants.values()), file)  # two in a byte
        student = Student(config).eval()
        arrays = {"embeddings.word.weight": word} | weights.by_student_name(student)
        if not config.modernbert:
            arrays["embeddings.position.weight"] = weights.table("position")
    except Exception as error:  # a graph that something else wrote can break in any line
        problem = f"no {error}" if isinstance(error, KeyError) else on_one_line(error)
        raise InputError(
            f"{file}: its weights cannot be read ({problem}); give the model that it was made from"
        ) from error
    load_state(student, {name: torch.from_numpy(array) for name, array in arrays.items()}, file)

    # compare
    texts = real_sentences()[:_COMPARED]
    cosine = float(cosines(encoder.encode(texts), encode(student, tokenizer, texts)).min())
    if not cosine >= LEAST_COSINE[precision]:
        raise GateError(
            f"{file}: the student read from it has other vectors (lowest cosine {cosine:.4f}, at least "
            f"{LEAST_COSINE[precision]} expected); give the model that it was made from"
        )
    return Dequantized(student, tokenizer, manifest, precision, cosine)


@dataclass(frozen=True)
class _Weights:
    """The constants of a graph."""

    constants: Mapping[str, NDArray[Any]]
    joined: frozenset[str]
    """Weights of attention that is one operator, which scales the queries itself."""
    activated: bool
    """Whether the head has an activation."""

    @classmethod
    def of(cls, graph: onnx.GraphProto) -> "_Weights":
        """Read the constants of a graph, and what its nodes say of them.

        :raises ValueError: when its layers have a relative attention bias.
        """
        nodes = all_nodes(graph)
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        if "relative" in constants:
            raise ValueError("relative attention, as in MPNet, is stored as a table")
        return cls(
            constants=constants,
            joined=frozenset(node.input[1] for node in nodes if node.op_type == "QAttention"),
            activated=any(node.op_type == "Tanh" for node in nodes),
        )

    def by_student_name(self, student: Student) -> dict[str, Floats]:
        """Return the weights but the two tables, by their names in a `Student`."""
        weights = dict[str, Floats]()
        for name, array in self.constants.items():
            if name.endswith((".bias", "norm.weight")):
                weights[f"embeddings.{name}" if name.startswith("norm.") else name] = array.astype(np.float32)
        for name, product in matmuls(student).items():
            weight = self.product(name, token_steps(product))
            if name.endswith(".attention") and f"{name}.values" not in self.joined:
                # the graph's queries are divided by sqrt(H / heads)
                width = len(weight)
                queries = math.sqrt(width // student.config.num_attention_heads)
                weight[:, :width] *= queries
                if f"{name}.bias" in weights:
                    weights[f"{name}.bias"][:width] *= queries
            weights[f"{name}.weight"] = np.ascontiguousarray(weight.T)
        return weights

    def table(self, name: str) -> Floats:
        """Return a table (V, W) that `write_lookup` stored."""
        if name in self.constants:
            return self.constants[name].astype(np.float32)
        rows, scales = self.constants[f"{name}.rows"], self.constants[f"{name}.scales"].astype(np.float32)
        if rows.dtype != np.uint8:
            return rows * scales
        low, high = unpack_int4(rows)
        if scales.ndim == 3:  # standard operators: the first half of a block, then the second
            blocks = np.concatenate([low, high], axis=2)
        else:
            blocks = np.stack([low, high], axis=2).reshape(*scales.shape, -1)
            scales = scales[:, :, None]
        return (blocks * scales).reshape(len(rows), -1)

    def product(self, name: str, steps: int) -> Floats:
        """Return the weight (in, out) of a product.

        :param steps: what the weight was divided by if its inputs have a scale for each token.
        """
        for stored in (name, f"{name}.half"):
            if stored in self.constants:
                return self.constants[stored].astype(np.float32)
        scales = self.constants[f"{name}.scales"]
        packed = f"{name}.values.packed"
        if packed in self.constants:
            low, high = unpack_int4(self.constants[packed][0])
            values = np.concatenate([low, high], axis=1).reshape(len(scales), -1)
            eighths = self.constants[f"{name}.values.steps"].reshape(len(scales), -1)
            integers = Int4Weights(values, eighths).to_int8().T
        else:
            integers = self.constants[f"{name}.values"]
        weight: Floats = integers * scales
        if f"{name}.input_scale" not in self.constants:
            return weight * np.float32(steps)
        return weight * self.constants[f"{name}.smooth"][:, None] if f"{name}.smooth" in self.constants else weight


def _config(weights: _Weights, word: Floats, manifest: Mapping[str, Any], bert: Mapping[str, Any]) -> StudentConfig:
    """Return the configuration of the student.

    :param word: token embeddings, (V, B) or (V, H).
    :param bert: the bundle's config.json, which describes a BERT.
    :raises ValueError: when positions are rotary, but the manifest has no layers of ModernBERT.
    """
    constants = weights.constants
    modernbert = tuple(ModernBertAttention(**layer) for layer in manifest.get("modernbert", ()))
    if not modernbert and any(name.startswith("rotary_") for name in constants):
        raise ValueError(
            "rotary positions of an EmbeddingGemma, a Qwen3, a BERT that has them, or a ModernBERT that an earlier "
            "version exported"
        )
    is_factored = any(name.split(".")[:2] == ["embeddings", "projection"] for name in constants)
    return StudentConfig(
        vocab_size=len(word),
        hidden_size=manifest["hidden_size"],
        num_attention_heads=bert["num_attention_heads"],
        intermediate_size=bert["intermediate_size"],
        prelude_layers=manifest.get("prelude_layers", 0),
        unit_layers=manifest["unit_layers"],
        recurrences=manifest.get("recurrences", 1),
        coda_layers=manifest.get("coda_layers", 0),
        bottleneck=word.shape[1] if is_factored else None,
        head_size=manifest["dimension"] if "head.bias" in constants else None,
        head_activation="tanh" if weights.activated else None,
        max_position_embeddings=bert["max_position_embeddings"],
        position_offset=0,
        type_vocab_size=0,
        layer_norm_eps=bert["layer_norm_eps"],
        pad_token_id=manifest["pad_token_id"],
        normalize=manifest["normalize"],
        max_tokens=manifest["max_tokens"],
        prefix=manifest["prefix"],
        pooling=manifest["pooling"],
        modernbert=modernbert,
    )
