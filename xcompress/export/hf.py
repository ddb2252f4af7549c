"""From a student to a checkpoint that transformers and sentence-transformers open without xcompress."""

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

import xcompress
from xcompress import console
from xcompress.errors import GateError, InputError
from xcompress.export.exporter import is_current
from xcompress.export.folder import list_files, transformers_config, write_pipeline, write_tokenizer
from xcompress.export.source import Source, SourceOptions, find_source, is_bundle
from xcompress.export.verify import real_sentences
from xcompress.files import hash_of, whole_folder, write_json, write_text
from xcompress.modeling.architectures import BERT_NAMES, from_student_names
from xcompress.modeling.student import Student, StudentConfig, encode, shallower

TRANSFORMERS = "4.57.0"
"""Oldest transformers that the files are written for. Named in config.json, as transformers 4.57 otherwise takes the
tokenizer of a large vocabulary for one that it has to repair."""


def check_expressible(config: StudentConfig) -> None:
    """Refuse a student that neither BertModel nor XLMRobertaModel can be.

    :raises InputError: naming what they lack.
    """
    if config.relative_buckets is not None:
        raise InputError(
            f"export: relative_buckets is {config.relative_buckets}; BertModel and XLMRobertaModel have no relative "
            "attention bias, export with --format onnx"
        )


def checkpoint_config(config: StudentConfig) -> dict[str, Any]:
    """Describe the unrolled network for AutoConfig."""
    described = transformers_config(config) | {
        "type_vocab_size": max(1, config.type_vocab_size),
        "transformers_version": TRANSFORMERS,
    }
    if _counts_like_roberta(config):
        described |= {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta"}
        described |= {"max_position_embeddings": config.max_position_embeddings}
    return described


def checkpoint_weights(student: Student) -> dict[str, Tensor]:
    """Unroll the unit, fold the bottleneck and split the joint attention product.

    :returns: float32 weights under the names of BertModel and XLMRobertaModel, which are the same.
    """
    config, embeddings = student.config, student.embeddings
    word_embeddings = embeddings.word.weight
    if embeddings.projection is not None:
        word_embeddings = word_embeddings @ embeddings.projection.weight.t()
    first = 0 if _counts_like_roberta(config) else config.position_offset
    types = torch.zeros(1, config.hidden_size) if embeddings.token_type is None else embeddings.token_type.weight
    state = {
        "embeddings.word.weight": word_embeddings,
        "embeddings.position.weight": embeddings.position.weight[first:],
        "embeddings.token_type.weight": types,
        **{f"embeddings.norm.{kind}": weight for kind, weight in embeddings.norm.named_parameters()},
    }
    for depth in range(config.depth):
        layer = student.unit[depth % config.unit_layers]
        state |= {f"unit.{depth}.{name}": weight for name, weight in layer.named_parameters()}
    weights = from_student_names(state, BERT_NAMES, config.depth)
    width = config.hidden_size
    # nobody trained a pooler; one of zeros shows that, where a missing one would be filled with random numbers
    weights |= {"pooler.dense.weight": torch.zeros(width, width), "pooler.dense.bias": torch.zeros(width)}
    # layers of a recurrent unit share memory, which the file format does not allow
    return {name: weight.detach().float().cpu().clone().contiguous() for name, weight in weights.items()}


def weight_values(config: StudentConfig) -> int:
    """Count the numbers that `checkpoint_weights` returns, without making them."""
    width, inner = config.hidden_size, config.intermediate_size
    rows = config.vocab_size + config.max_position_embeddings + max(1, config.type_vocab_size) + 2
    layer = 4 * (width + 1) * width + 2 * width * inner + inner + 5 * width
    return rows * width + config.depth * layer + (width + 1) * width


def _counts_like_roberta(config: StudentConfig) -> bool:
    """Tell whether positions start behind the padding token's index, as RoBERTa and XLM-R count them.

    Every other student is a BERT whose position table begins with the first row in use.
    """
    return config.position_offset == config.pad_token_id + 1


BOUND = 1e-5
"""Largest absolute difference of any component of a unit vector from the student's."""
_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, feature-extraction, sentence-similarity]
{languages}---

# {source}

A sentence encoder, {architecture} with {layers} layers: text in, vectors of {dimension} numbers out.
Made with xcompress {version} from `{source}`; its unit of {unit} layers is written out {times} times here.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode(["A first sentence.", "Ein zweiter Satz."])
```

`AutoModel` and `AutoTokenizer` of transformers open the folder too; pool their token vectors as `modules.json` says.
The pooler is empty: `pooler_output` is all zeros. Texts beyond {tokens} tokens are cut. {prefix}

Largest difference from the student, in any component of a unit vector: {difference:.1e} (bound {bound:.0e}).
"""


def export_hf(
    source: str | Path | None = None,
    output: Path | None = None,
    *,
    recurrences: int | None = None,
    reading: SourceOptions | None = None,
    force: bool = False,
) -> Path:
    """Write a student as BertModel or XLMRobertaModel in safetensors, or return the folder that is there already.

    :param source: a run, a student, any encoder that `find_source` takes, or None for the newest finished run.
    :param output: where to; default `hf` in the run, or `<student>-hf` beside a bare student, with `-r<recurrences>`
        behind it where these are given.
    :param recurrences: how often the unit is applied; None means as often as the student does.
    :param reading: how to read a foreign encoder, where its own files do not say.
    :param force: export even when the folder there was made from the same student.
    :returns: the folder.
    :raises InputError: when there is no student, the architecture cannot be expressed, or nothing can be written.
    :raises GateError: when sentence-transformers makes other vectors of the folder than the student does.
    """
    found = find_source(source, reading)
    target = _place(found, recurrences) if output is None else output
    made_from = hash_of(["hf", found.fingerprint(), found.run, recurrences, xcompress.__version__])
    if not force and is_current(target, made_from):
        console.say(f"{target}: already exported from {found.name}")
        return target
    student, tokenizer = found.open()
    if recurrences is not None:
        student = shallower(student, recurrences)
    check_expressible(student.config)
    _check_target(target, student.config)
    if found.run and not found.run.get("finished"):
        console.warn(f"{found.name}: the run is not finished; its student is exported as it is now")
    console.say(f"exporting {found.name} ({found.student}) with {student.config.depth} layers to {target}")
    with whole_folder(target) as folder:
        _write(folder, student, tokenizer, found, made_from)
    return target


def difference(folder: Path, student: Student, tokenizer: Tokenizer) -> float:
    """Compare what sentence-transformers makes of a folder with the student, on real sentences.

    :returns: the largest absolute difference between components of their unit vectors.
    """
    sentences = real_sentences()[:24]
    texts = [*sentences, " ".join(sentences)]
    found = _vectors(folder, texts)
    ours = encode(student, tokenizer, texts)
    theirs, expected = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (found, ours))
    return float(np.abs(theirs - expected).max())


def _place(source: Source, recurrences: int | None) -> Path:
    name = f"{source.bundle.name.removesuffix('bundle')}hf"
    return source.bundle.with_name(name if recurrences is None else f"{name}-r{recurrences}")


def _check_target(target: Path, config: StudentConfig) -> None:
    if target.is_file():
        raise InputError(f"{target}: is a file; name a folder for the checkpoint")
    if target.is_dir() and any(target.iterdir()) and not is_bundle(target):
        raise InputError(f"{target}: is not empty and holds no export; name another folder, it would be replaced")
    place = next(folder for folder in target.resolve().parents if folder.exists())
    free, needed = shutil.disk_usage(place).free, 4 * weight_values(config) + 50_000_000
    if free < needed:
        raise InputError(
            f"{target}: {free / 1e6:.1f} MB free, the export needs {needed / 1e6:.1f}; "
            "free space or choose another folder"
        )


def _write(folder: Path, student: Student, tokenizer: Tokenizer, source: Source, made_from: str) -> None:
    save_file(checkpoint_weights(student), folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", checkpoint_config(student.config))
    write_tokenizer(folder, tokenizer, student.config)
    write_pipeline(folder, student.config, student.head)
    found = difference(folder, student, tokenizer)
    if not found <= BOUND:
        raise GateError(
            f"export: sentence-transformers' vectors differ from the student's by {found:.2e}, bound {BOUND:.0e}; "
            "install the transformers and sentence-transformers versions of constraints.txt"
        )
    write_text(folder / "README.md", _card(source, student.config, found))
    described = {"xcompress": xcompress.__version__, "source": source.name, "made_from": made_from}
    parity = {"max_abs_difference": found, "bound": BOUND}
    write_json(folder / "manifest.json", {**described, "parity": parity, "files": list_files(folder)})


def _vectors(folder: Path, texts: list[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Encode texts as a user of sentence-transformers would."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise InputError(
            "export: sentence-transformers, which checks the checkpoint, is not installed; "
            "pip install 'xcompress[train]'"
        ) from error
    with _quiet(), torch.inference_mode():
        model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        return np.asarray(model.encode(texts, show_progress_bar=False), dtype=np.float32)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' notes and progress bars about loading away from the user."""
    from transformers.utils import logging as their

    shown, before = their.is_progress_bar_enabled(), logging.root.manager.disable
    logging.disable(logging.WARNING)
    their.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.disable(before)
        if shown:
            their.enable_progress_bar()  # type: ignore[no-untyped-call]


def _card(source: Source, config: StudentConfig, found: float) -> str:
    described: Mapping[str, Any] = checkpoint_config(config)
    codes = ", ".join(source.languages)
    return _CARD.format(
        languages=f"language: [{codes}]\n" if codes else "",
        source=source.name,
        architecture=described["architectures"][0],
        layers=config.depth,
        dimension=config.dimension,
        version=xcompress.__version__,
        unit=config.unit_layers,
        times=config.recurrences,
        tokens=config.max_tokens,
        prefix=f"Every sentence gets the prefix `{config.prefix}`." if config.prefix else "No prefix is needed.",
        difference=found,
        bound=BOUND,
    )
