"""Write the folder: the page, the bundle's graph and tokenizer, the sentences with their vectors, onnxruntime-web.

Large files are packed with gzip and unpacked in the page, so that any web server sends them small.
"""

import gzip
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcompress.bundle.encoder import Encoder, Vectors
from xcompress.bundle.integrity import external_files
from xcompress.bundle.manifest import graphs_of
from xcompress.demo.text import DemoText, Sentence, own_text, packaged_text
from xcompress.errors import InputError
from xcompress.files import read_json, whole_folder, write_json
from xcompress.web import GRAPH_SCRIPT
from xcompress.web.onnxruntime_web import BINARY, SCRIPT, find_package, runtime_files, version_of

KNOWN: Mapping[str, AbstractSet[str]] = {
    "normalizer": {
        "Sequence",
        "Precompiled",
        "Replace",
        "Prepend",
        "Strip",
        "Lowercase",
        "StripAccents",
        "NFC",
        "NFD",
        "NFKC",
        "NFKD",
        "BertNormalizer",
    },
    "pre_tokenizer": {
        "Sequence",
        "Whitespace",
        "WhitespaceSplit",
        "BertPreTokenizer",
        "Punctuation",
        "Digits",
        "Split",
        "Metaspace",
        "ByteLevel",
    },
    "model": {"Unigram", "WordPiece", "BPE", "WordLevel"},
    "post_processor": {"Sequence", "TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel"},
}
"""The parts of tokenizer.json and their kinds, as page/tokenizer/ has them."""
_LISTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}


def check_tokenizer(file: Path, described: Mapping[str, Any]) -> None:
    """Refuse a tokenizer that the page could not do.

    :param file: its tokenizer.json, for the message.
    :param described: what is in it.
    :raises InputError: naming the first part that is not known.
    """
    for part, kinds in KNOWN.items():
        for kind in _kinds(part, described.get(part)):
            if kind not in kinds:
                raise InputError(
                    f"{file}: its {part} is {kind}, which the demo's page cannot do "
                    f"(it can do {', '.join(sorted(kinds))}); choose another bundle with --model"
                )


def _kinds(part: str, described: Mapping[str, Any] | None) -> Iterator[str]:
    if described is None:
        return
    yield str(described.get("type"))
    for inner in described.get(_LISTS.get(part, ""), ()):
        yield from _kinds(part, inner)


DESCRIPTION = "demo.json"
"""What the page reads first; it lists what was written, and only that is ever replaced."""
PACKED = ".gz"
_FORMAT = 1
_PAGE = Path(__file__).parent / "page"
_CHECKED = 8
"""The page compares its token ids with ours on so many sentences before it searches."""


def write_demo(folder: Path, bundle: Path, text: Path | None = None, package: Path | None = None) -> Path:
    """Write a folder that any static web server can show; it replaces one that was written before.

    :param bundle: the folder of the bundle that searches.
    :param text: the user's own sentences, see `own_text`; None takes the package's.
    :param package: the folder of onnxruntime-web; None looks where npm puts it.
    :returns: the folder.
    :raises InputError: when something is missing, with the command that installs it, or cannot be used.
    """
    runtime = _runtime(package)
    _refuse_foreign(folder)
    encoder = Encoder(bundle)
    check_tokenizer(bundle / "tokenizer.json", read_json(bundle / "tokenizer.json"))
    shown = own_text(text) if text else packaged_text(encoder.languages)
    with whole_folder(folder) as temporary:
        shutil.copytree(_PAGE, temporary, dirs_exist_ok=True)
        shutil.copyfile(GRAPH_SCRIPT, temporary / GRAPH_SCRIPT.name)
        files = _copy_runtime(runtime, temporary) | _copy_bundle(encoder, bundle, temporary)
        files |= _write_text(encoder, shown, temporary)
        described = _description(encoder, bundle, shown) | {"onnxruntime_web": version_of(runtime), "files": files}
        described |= {"download": _bytes(temporary), "contents": sorted(_names(temporary))}
        write_json(temporary / DESCRIPTION, described)
    return folder


def served_files(folder: Path) -> dict[str, Path]:
    """List the folder's files by the path under which a server shows them."""
    return {f"/{name}": folder / name for name in _names(folder)} | {"/": folder / "index.html"}


def int8_rows(vectors: Vectors) -> NDArray[np.int8]:
    """Round each row, (n, D), to int8 by a scale of its own, which no cosine depends on: none is kept."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    rows: NDArray[np.int8] = np.rint(vectors * (127 / np.where(largest > 0, largest, 1))).astype(np.int8)
    return rows


def _runtime(package: Path | None) -> Path:
    try:
        return find_package(package)
    except LookupError as error:
        raise InputError(f"demo: not everything is installed; needed: {error.args[0]}") from error


def _refuse_foreign(folder: Path) -> None:
    """Let nothing be replaced but what a demo wrote."""
    if folder.resolve() == Path.cwd():
        raise InputError(f"{folder}: this folder itself cannot be replaced; name one inside it")
    if not folder.exists():
        return
    foreign = [folder.name] if not folder.is_dir() else sorted(_names(folder) - _written(folder))
    if foreign:
        raise InputError(f"{folder}: {foreign[0]} is not from a demo, and would be lost; name another folder")


def _written(folder: Path) -> set[str]:
    """Return the names of the files that a demo wrote here; none where it did not."""
    file = folder / DESCRIPTION
    told = read_json(file) if file.is_file() else None
    contents = told.get("contents") if isinstance(told, dict) else None
    return {DESCRIPTION, *map(str, contents)} if isinstance(contents, list) else set()


def _names(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if not file.is_dir()}


def _copy_runtime(package: Path, to: Path) -> dict[str, Any]:
    (to / "ort").mkdir()
    files = runtime_files(package)
    for name, file in files.items():
        if name != BINARY:
            shutil.copyfile(file, to / "ort" / name)
    return {"script": {"path": f"ort/{SCRIPT}"}, "wasm": _pack(files[BINARY], to, f"ort/{BINARY}")}


def _copy_bundle(encoder: Encoder, bundle: Path, to: Path) -> dict[str, Any]:
    graph = graphs_of(bundle, encoder.manifest)[encoder.precision]
    home = PurePosixPath(graph).parent
    external = [
        {"name": str(PurePosixPath(name).relative_to(home)), **_pack(bundle / name, to, f"model/{name}")}
        for name in sorted(external_files(bundle, graph))
    ]
    return {
        "graph": _pack(bundle / graph, to, f"model/{graph}"),
        "external": external,
        "tokenizer": _pack(bundle / "tokenizer.json", to, "model/tokenizer.json"),
    }


def _write_text(encoder: Encoder, shown: DemoText, to: Path) -> dict[str, Any]:
    texts = [sentence.text for sentence in shown.sentences]
    lines = [asdict(sentence) for sentence in shown.sentences]
    vectors = int8_rows(encoder.encode(texts))
    return {
        "sentences": _packed(json.dumps(lines, ensure_ascii=False).encode(), to, "sentences.json"),
        "vectors": _packed(vectors.tobytes(), to, "vectors.int8"),
    }


def _description(encoder: Encoder, bundle: Path, shown: DemoText) -> dict[str, Any]:
    manifest = encoder.manifest
    checked = [sentence.text for sentence in _spread(shown)]
    return {
        "format": _FORMAT,
        "model": {
            "name": bundle.resolve().name,
            "source": str(manifest.get("source", "")),
            "precision": encoder.precision,
            "languages": list(encoder.languages),
            "dimension": encoder.dimension,
            "prefix": manifest["prefix"],
            "max_tokens": manifest["max_tokens"],
            "pad_token_id": manifest["pad_token_id"],
        },
        "count": len(shown.sentences),
        "languages": shown.languages,
        "examples": [asdict(example) for example in shown.examples],
        "checks": [{"text": text, "ids": ids} for text, ids in zip(checked, encoder.token_ids(checked), strict=True)],
    }


def _bytes(folder: Path) -> int:
    """Add up what a browser loads."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _spread(shown: DemoText) -> Sequence[Sentence]:
    return shown.sentences[:: max(1, len(shown.sentences) // _CHECKED)][:_CHECKED]


def _pack(file: Path, to: Path, name: str) -> dict[str, Any]:
    return _packed(file.read_bytes(), to, name)


def _packed(content: bytes, to: Path, name: str) -> dict[str, Any]:
    """Write packed content; say its path, its bytes, and those that travel."""
    place = to / f"{name}{PACKED}"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(gzip.compress(content, 9, mtime=0))
    return {"path": f"{name}{PACKED}", "bytes": len(content), "packed": place.stat().st_size}
