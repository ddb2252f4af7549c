"""The model card of a bundle, written from its manifest."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from json import dumps
from pathlib import PurePosixPath
from typing import Any

import yaml

from xcompress.bundle.manifest import FLOAT, GRAPH_SUFFIXES
from xcompress.files import megabytes
from xcompress.printable import code_span, markdown_text, printable, table_cell
from xcompress.runtimes import COREML, OPENVINO, PHONE_FILES

_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, onnx, feature-extraction, sentence-similarity]
{header}---

# {title}

A sentence encoder for CPUs: text in, vectors of {dimension} numbers out. {normalized}
Made with xcompress {xcompress} from {source}.

| | |
|---|---|
| languages | {languages} |
| parameters | {parameters:,} |
| layers | {layers} |
| token embeddings | {vocab_size:,} tokens x {table_width} |
| longest text | {max_tokens} tokens; longer texts are cut |
| prefix | {prefix} |
{files}
{scores}{sections}
## How to load

With xcompress (needs only numpy, tokenizers and onnxruntime):

```python
from xcompress import Encoder

encoder = {opened}
vectors = encoder.encode(["A first sentence.", "Ein zweiter Satz."])
print(encoder.similarity(vectors, vectors))
```

With sentence-transformers (needs optimum-onnx, which needs transformers below 4.58):

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(
    "path/to/this/folder",
    backend="onnx",
    model_kwargs={{"file_name": {graph}, "provider": "CPUExecutionProvider"}},
)
vectors = model.encode(["A first sentence.", "Ein zweiter Satz."])
```

With onnxruntime alone:

```python
import numpy, onnxruntime, tokenizers

tokenizer = tokenizers.Tokenizer.from_file("path/to/this/folder/tokenizer.json")
session = onnxruntime.InferenceSession({graph_path})
encoded = tokenizer.encode_batch([{first_text}, {second_text}])
feeds = {{
    "input_ids": numpy.array([line.ids for line in encoded], dtype=numpy.int64),
    "attention_mask": numpy.array([line.attention_mask for line in encoded], dtype=numpy.int64),
}}
vectors = session.run(["sentence_embedding"], feeds)[0]
```

{ort}{openvino}{phones}## Limits

- Texts beyond {max_tokens} tokens are cut. Other languages than those it was trained for may work badly or not at all.
{differences}{int8}{limits}
## Checked at export

{checks}
"""

_ORT_SECTION = """With onnxruntime on a phone: of the graphs, an app needs {ort} alone, the same one in
onnxruntime's own format. It takes `input_ids` and `attention_mask`, int64 (N, L) for N texts, L up to {max_tokens}, and
returns `sentence_embedding`, float32 (N, {dimension}). Put the prefix in front of a text, and pad shorter texts with
{pad_token_id} in `input_ids` and 0 in `attention_mask`.

"""
_OPENVINO_SECTION = """With OpenVINO, through sentence-transformers (needs optimum-intel):

```python
model = SentenceTransformer("path/to/this/folder", backend="openvino")
```

"""

_INT8_LIMIT = """\
- Weights in 8 or 4 bits are multiplied in int8. That is as fast as intended where the CPU has int8 dot products
  (AVX512-VNNI, AVX-VNNI, ARM dot product). Weights are chosen so that the 16-bit sums of x86 CPUs without them cannot
  overflow.
"""

_PHONE_SECTIONS = {
    "executorch": """With ExecuTorch on a phone: the method `forward` of `executorch/model.pte` (XNNPACK backend) takes
`input_ids` and `attention_mask`, int64 (1, L), L from 2 to {max_tokens}, and returns the vector, float32
(1, {dimension}). Put the prefix in front of a text. Padding is not needed; it does not change the vector.

""",
    "litert": """With LiteRT on a phone: `litert/model.tflite` has signatures for some numbers of tokens, `encode_16`,
`encode_32` and so on up to `encode_{max_tokens}`. Each takes `input_ids` and `attention_mask`, int32 (1, L) for its
number L, and returns `sentence_embedding`, float32 (1, {dimension}). Put the prefix in front of a text, take the
shortest signature that holds its tokens, and pad on the right with 0 in both inputs: it does not change the vector.

""",
}
"""By runtime of phones, how to call its file."""
_SENTENCEPIECE_SECTION = """`{file}` is the tokenizer for the SentencePiece library, whose `encode` leaves
out the special tokens: put `bos_id` in front and `eos_id` behind, and cut the ids between them so that all are at most
{max_tokens}.

"""
_COREML_SECTION = """With Core ML, from iOS 16 or macOS 13 on: `coreml/model.mlpackage` takes `input_ids` and
`attention_mask`, int32 (1, L), L from 2 to {max_tokens}, and returns `sentence_embedding`, float32 (1, {dimension}).
Put the prefix in front of a text. Padding is not needed. It was not run in Core ML (see below).

"""


@dataclass(frozen=True)
class ReleaseNotes:
    """What the card of a released model says in addition; benchmarks/release writes it."""

    name: str
    licence: str
    rows: str
    """Rows of the first table, each ending with a line break."""
    sections: str
    """Sections in front of `How to load`."""
    limits: str
    """Items of the list of limits, each ending with a line break."""


_FORMATTED = ("files", "languages", "prefix", "release", "source")
"""Entries of the manifest that the card shows in another form."""
_LEAST_LOSS = 0.05
"""Points of Spearman x 100 that show with one decimal."""


def model_card(manifest: Mapping[str, Any], release: ReleaseNotes | None = None) -> str:
    """Return the card; all its figures are those of the manifest.

    :param release: for a released model, what it was trained on, how it scores and what it is bad at.
    """
    prefix, bottleneck, codes = manifest["prefix"], manifest["bottleneck"], list(manifest["languages"])
    is_factored = bottleneck is not None and bottleneck["form"] == "factored"
    files, machine = manifest["files"], manifest["machine"]
    flags = ", ".join(machine["cpu_flags"]) or machine["architecture"]
    graphs, ort = ([name for name in files if name.endswith(suffix)] for suffix in GRAPH_SUFFIXES)
    sentencepiece = manifest.get("phone_tokenizer")
    # hubs read licence and languages in the header
    header = f"license: {release.licence.lower()}\n" if release else ""
    header += language_entry(codes)
    recurrences, trained = manifest["recurrences"], manifest["student_recurrences"]
    applied = f"{recurrences} times" + (f" of the {trained} that the student has" if recurrences < trained else "")
    applied = "once" if trained == 1 else applied
    unit, before, after = (manifest.get(f"{part}_layers", 0) for part in ("unit", "prelude", "coda"))
    layers = f"{unit} stored, applied {applied}"
    if before or after:
        layers = (
            f"{before + unit + after} stored: a unit of {unit}, applied {applied}, {before} before and {after} after it"
        )
    return _CARD.format(
        **{name: value for name, value in manifest.items() if name not in _FORMATTED},
        languages=markdown_text(", ".join(codes)) or "not recorded",
        source=code_span(manifest["source"]),
        header=header,
        title=f"xcompress {release.name}" if release else markdown_text(manifest["source"]),
        opened=f"Encoder.released({_quoted(release.name)})" if release else 'Encoder("path/to/this/folder")',
        normalized="They have unit length." if manifest["normalize"] else "They are not normalised.",
        table_width=bottleneck["width"] if is_factored else manifest["hidden_size"],
        prefix=table_cell(code_span(prefix)) if prefix else "none",
        first_text=_quoted(f"{prefix}A first sentence."),
        second_text=_quoted(f"{prefix}Ein zweiter Satz."),
        layers=layers,
        files="\n".join(f"| {markdown_text(name)} | {megabytes(size)} |" for name, size in sizes_of(manifest).items()),
        scores=release.rows if release else _run_scores(manifest.get("dev")),
        sections=release.sections if release else "",
        differences="".join(f"- {markdown_text(line)}\n" for line in differences_of(manifest)),
        int8="" if manifest.get("precision") in FLOAT else _INT8_LIMIT,
        limits=release.limits if release else "",
        graph=_quoted(max(graphs, key=len)),
        graph_path=_quoted(f"path/to/this/folder/{max(graphs, key=len)}"),
        phones="".join(
            section.format(max_tokens=manifest["max_tokens"], dimension=manifest["dimension"])
            for runtime, section in _PHONE_SECTIONS.items()
            if PHONE_FILES[runtime] in files
        )
        + (_SENTENCEPIECE_SECTION.format_map({**manifest, **sentencepiece}) if sentencepiece else "")
        + (_COREML_SECTION.format_map(manifest) if manifest.get("coreml") else ""),
        ort="".join(_ORT_SECTION.format_map({**manifest, "ort": code_span(name)}) for name in ort),
        openvino=_OPENVINO_SECTION if OPENVINO in files else "",
        checks="\n".join(
            f"- {line}" for line in (*checks_of(manifest), markdown_text(f"on {machine['processor']} ({flags})"))
        ),
    )


def differences_of(manifest: Mapping[str, Any]) -> list[str]:
    """Return what some ways to use a bundle do and others do not, each in a few sentences."""
    lines, prefix = [], manifest["prefix"]
    if names := [name for name, text in manifest.get("prompts", {}).items() if text != prefix]:
        named = ", ".join(names[:8]) + (" and others" if len(names) > 8 else "")
        lines.append(
            f"The model has prompts by name ({named}). encode_query, encode_document and encode(prompt_name=...) apply "
            "them, in Encoder as in sentence-transformers, and so do embed --prompt-name and search. encode without a "
            f"name and the page of demo apply {'the prefix' if prefix else 'none'}."
        )
    similarity = manifest.get("similarity_fn_name", "cosine")
    # of vectors of unit length, these rank alike
    if similarity not in (("cosine", "dot", "euclidean") if manifest["normalize"] else ("cosine",)):
        lines.append(
            f"The model compares vectors by {similarity}, and so does sentence-transformers. Encoder.similarity and "
            "search take the cosine, which may rank differently."
        )
    return lines


def sizes_of(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Map each graph, each file for phones and the folder for Core ML to its bytes, with weights beside it."""
    files = manifest["files"]
    names = [
        *(name for name in files if name.endswith(GRAPH_SUFFIXES)),
        *(name for name in (OPENVINO, *PHONE_FILES.values()) if name in files),
    ]
    sizes = {}
    for name in names:
        # weights may lie beside it: ONNX's external data, OpenVINO's binary
        parts = (name, f"{name}_data", str(PurePosixPath(name).with_suffix(".bin")))
        sizes[name] = sum(files[part]["bytes"] for part in parts if part in files)
    return sizes | ({COREML: manifest["coreml"]["bytes"]} if manifest.get("coreml") else {})


def _run_scores(dev: object) -> str:
    """Return the training run's own scores as rows, those that are plain numbers."""
    scores = dev.items() if isinstance(dev, Mapping) else ()
    rows = [f"| {markdown_text(name)} | {value:.4g} |\n" for name, value in scores if isinstance(value, int | float)]
    return "".join(rows)


def checks_of(manifest: Mapping[str, Any]) -> list[str]:
    """Return what was verified at export, a line for each measurement."""
    lines = []
    for graph, figures in manifest["parity"].items():
        name = "float32" if graph == "fp32" else graph
        if "max_abs_difference" in figures:
            lines.append(
                f"{name} against PyTorch: largest difference {figures['max_abs_difference']:.1e} (bound "
                f"{figures['bound']:.0e})"
            )
            continue
        sentences = sum(language["sentences"] for language in figures["languages"].values())
        lines += [
            f"{name} against PyTorch, {sentences:,} sentences: cosine {figures['mean_cosine']:.4f} on average, "
            f"{figures['worst_cosine']:.4f} at worst",
            f"{name} against PyTorch: similarities of sentences correlate at {figures['similarity_correlation']:.4f}",
            f"{name}, one sentence alone and among others: cosine {figures['invariance_cosine']:.4f} at worst",
        ]
    if coreml := manifest.get("coreml"):
        evaluated, weights = coreml["evaluated_in_numpy"], coreml["weights"]
        lines += [
            f"{COREML}: {coreml['status']}",
            f"{COREML}, evaluated with coremltools' numpy operators in place of Core ML, {evaluated['texts']} texts: "
            f"cosine to PyTorch {evaluated['mean_cosine']:.4f} on average, {evaluated['worst_cosine']:.4f} at worst",
            f"{COREML}: {weights['tensors']} tensors, {weights['int8']} of them in int8, are the student's within "
            "what their precision rounds",
        ]
    # the model is scored before its vocabulary or vectors are cut
    before, after = (manifest.get("graded", {}).get(when) for when in ("before", "after"))
    if before and after:
        worst = max(before, key=lambda pair: before[pair] - after[pair])
        means = [sum(scores.values()) / len(scores) for scores in (before, after)]
        pairs = next(iter(before)) if len(before) == 1 else f"{len(before)} pairs of languages"
        line = f"Spearman x 100 on graded pairs, {pairs}: {means[0]:.1f} before, {means[1]:.1f} after"
        if len(before) > 1 and before[worst] - after[worst] >= _LEAST_LOSS:
            line += f"; most was lost in {worst}, {before[worst]:.1f} to {after[worst]:.1f}"
        lines.append(line)
    if tokenizer := manifest.get("phone_tokenizer"):
        lines.append(
            f"{tokenizer['file']} (SentencePiece): the token ids of tokenizer.json for {tokenizer['equal']:,} of "
            f"{tokenizer['sentences']:,} sentences"
        )
    return lines


def _quoted(text: str) -> str:
    """Write text as a string in Python code; JSON's strings are Python's."""
    return printable(dumps(text, ensure_ascii=False))


def language_entry(codes: Iterable[str]) -> str:
    """Return the line in the header of a card that lists languages; nothing where there are none."""
    # `no` alone would be false
    plain = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")
    texts = [code if plain.fullmatch(code) and yaml.safe_load(code) == code else _quoted(code) for code in codes]
    return f"language: [{', '.join(texts)}]\n" if texts else ""
