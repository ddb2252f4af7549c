"""The model card of a bundle, made from its manifest."""

from collections.abc import Mapping
from typing import Any

from xcompress.export.release_card import release_limits, release_rows, release_text

CARD = "README.md"
"""The card's file in a bundle."""

_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, onnx, feature-extraction, sentence-similarity]
{header}---

# {title}

A sentence encoder for CPUs: text in, vectors of {dimension} numbers out. {normalized}
Made with xcompress {xcompress} from `{source}`.

| | |
|---|---|
| languages | {languages} |
| parameters | {parameters:,} |
| layers | {unit_layers} stored, applied {applied} |
| word table | {vocab_size:,} rows of {table_width} numbers |
| longest text | {max_tokens} tokens; longer texts are cut |
| prefix | {prefix} |
{files}
{scores}{release}
## How to load

With xcompress (needs only numpy, tokenizers and onnxruntime):

```python
from xcompress import Encoder

encoder = {opened}
vectors = encoder.encode(["A first sentence.", "Ein zweiter Satz."])
print(encoder.similarity(vectors, vectors))
```

With sentence-transformers:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(
    "path/to/this/folder",
    backend="onnx",
    model_kwargs={{"file_name": "{graph}", "provider": "CPUExecutionProvider"}},
)
vectors = model.encode(["A first sentence.", "Ein zweiter Satz."])
```

With onnxruntime alone:

```python
import numpy, onnxruntime, tokenizers

tokenizer = tokenizers.Tokenizer.from_file("path/to/this/folder/tokenizer.json")
session = onnxruntime.InferenceSession("path/to/this/folder/{graph}")
encoded = tokenizer.encode_batch(["{prefix_text}A first sentence.", "{prefix_text}Ein zweiter Satz."])
feeds = {{
    "input_ids": numpy.array([line.ids for line in encoded], dtype=numpy.int64),
    "attention_mask": numpy.array([line.attention_mask for line in encoded], dtype=numpy.int64),
}}
vectors = session.run(["sentence_embedding"], feeds)[0]
```

## Limits

- Texts beyond {max_tokens} tokens are cut. Other languages than those it was trained for may work badly or not at all.
- The int8 graph is as fast as intended where the CPU has int8 dot products (AVX512-VNNI, AVX-VNNI, ARM dot product).
  Weights are chosen so that the 16-bit sums of x86 CPUs without them cannot overflow; no other CPU was tried.
{limits}
## Checked at export

{checks}
"""


_WRITTEN_HERE = ("files", "languages", "prefix", "release")


def model_card(manifest: Mapping[str, Any]) -> str:
    """Write the card; every figure in it is one of the manifest.

    Where the manifest has an entry `release`, as released models have, it also says on what the model was trained, how
    it scores and what it is bad at.
    """
    release = manifest.get("release")
    bottleneck = manifest["bottleneck"]
    codes = list(manifest["languages"])
    graphs = [name for name in manifest["files"] if name.endswith(".onnx")]
    return _CARD.format(
        **{name: value for name, value in manifest.items() if name not in _WRITTEN_HERE},
        languages=", ".join(codes) or "not recorded",
        header=_header(codes, release),
        title=f"xcompress {release['name']}" if release else manifest["source"],
        opened=f'Encoder.released("{release["name"]}")' if release else 'Encoder("path/to/this/folder")',
        normalized="They have unit length." if manifest["normalize"] else "They are not normalised.",
        table_width=bottleneck["width"] if bottleneck else manifest["hidden_size"],
        prefix=f"`{manifest['prefix']}`" if manifest["prefix"] else "none",
        prefix_text=manifest["prefix"],
        applied=_applied(manifest["recurrences"], manifest["student_recurrences"]),
        files="\n".join(f"| {name} | {manifest['files'][name]['bytes'] / 1e6:.1f} MB |" for name in graphs),
        scores=release_rows(manifest) if release else _scores(manifest.get("dev")),
        release=release_text(release) if release else "",
        limits=release_limits(release) if release else "",
        graph=max(graphs, key=len),
        checks=_checks(manifest),
    )


def _header(codes: list[str], release: Mapping[str, Any] | None) -> str:
    """Write what hubs read of languages and licence."""
    languages = [f"language: [{', '.join(codes)}]"] if codes else []
    licence = [f"license: {release['licence'].lower()}"] if release else []
    return "".join(f"{line}\n" for line in [*licence, *languages])


def _applied(recurrences: int, trained: int) -> str:
    fewer = f" of the {trained} that the student has" if recurrences < trained else ""
    return "once" if trained == 1 else f"{recurrences} times{fewer}"


def _scores(dev: object) -> str:
    """Write the training run's own scores, where they are plain numbers."""
    found = dev.items() if isinstance(dev, Mapping) else ()
    rows = [f"| {name} | {value:.4g} |\n" for name, value in found if isinstance(value, int | float)]
    return "".join(rows)


def _checks(manifest: Mapping[str, Any]) -> str:
    parity, machine = manifest["parity"], manifest["machine"]
    fp32 = parity["fp32"]
    lines = [
        f"- float32 against PyTorch: largest difference {fp32['max_abs_difference']:.1e} (bound {fp32['bound']:.0e})"
    ]
    for name in parity:
        lines += _smaller(name, parity[name]) if name != "fp32" else []
    lines += _graded(manifest.get("graded", {}))
    return "\n".join(
        [*lines, f"- on {machine['processor']} ({', '.join(machine['cpu_flags']) or machine['architecture']})"]
    )


def _smaller(name: str, figures: Mapping[str, Any]) -> list[str]:
    sentences = sum(one["sentences"] for one in figures["languages"].values())
    return [
        f"- {name} against PyTorch, {sentences:,} sentences: cosine {figures['mean_cosine']:.4f} on average, "
        f"{figures['worst_cosine']:.4f} at worst",
        f"- {name} against PyTorch: similarities of sentences correlate at {figures['similarity_correlation']:.4f}",
        f"- {name}, one sentence alone and among others: cosine {figures['invariance_cosine']:.4f} at worst",
    ]


def _graded(graded: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Write what the graded pairs lost; the source is scored as it came, before its vocabulary or vectors were cut."""
    before, after = graded.get("before"), graded.get("after")
    if not before or not after:
        return []
    worst = max(before, key=lambda pair: before[pair] - after[pair])
    means = [sum(scores.values()) / len(scores) for scores in (before, after)]
    return [
        f"- Spearman x 100 on graded pairs, {len(before)} pairs of languages: {means[0]:.1f} before, {means[1]:.1f} "
        f"after; most was lost in {worst}, {before[worst]:.1f} to {after[worst]:.1f}"
    ]
