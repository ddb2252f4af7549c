"""Write the demo page into a folder that any static web server can serve.

The folder holds the page, the bundle's graph and tokenizer, the sentences with their vectors, and onnxruntime-web.
Large files are compressed with gzip and decompressed in the page, so they stay small whatever the server does.
"""

import gzip
import json
import shutil
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from xcompress.bundle.encoder import Encoder
from xcompress.bundle.integrity import external_files
from xcompress.bundle.manifest import graphs_of
from xcompress.bundle.prompts import DOCUMENT, QUERY, choose_prompt
from xcompress.bundle.tokenizer import BundleTokenizer
from xcompress.demo.sentences import packaged_sentences, read_sentences
from xcompress.errors import InputError
from xcompress.files import explain_read_error, prepare_target, read_json, size_of, whole_folder, write_json
from xcompress.tokenizer_file import read_tokenizer, steps_of, tokenizer_to_json
from xcompress.web import GRAPH_SCRIPT
from xcompress.web.onnxruntime_web import BUILDS, find_package, runtime_files, version_of

DESCRIPTION = "demo.json"
"""The file that the page reads first. It lists everything that was written, and only that is ever replaced."""
SUPPORTED: Mapping[str, AbstractSet[str]] = {
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
"""Component types of tokenizer.json that page/tokenizer/ implements."""
_FORMAT = 1
_PAGE = Path(__file__).parent / "page"
_CHECKS = 8
"""Number of sentences whose token ids the page compares with Python's before it searches."""


def write_demo(folder: Path, bundle: Path, text: Path | None = None) -> Path:
    """Write the demo, replacing one that was written to the same folder before.

    :param bundle: folder of the bundle to search with.
    :param text: the user's own sentences, see `read_sentences`; None takes those that come with the package.
    :returns: the folder.
    :raises InputError: when something is missing (with the command that installs it) or cannot be used.
    """
    try:
        package = find_package()
    except LookupError as error:
        raise InputError(f"demo: missing {error.args[0]}") from error
    folder = prepare_target(folder)
    _check_replaceable(folder)
    encoder = Encoder(bundle, engine="onnxruntime")  # which the page runs, too
    check_tokenizer(bundle / "tokenizer.json")
    text_shown = read_sentences(text) if text else packaged_sentences(encoder.languages)
    sentences = [sentence.text for sentence in text_shown.sentences]

    with whole_folder(folder) as target:
        shutil.copytree(_PAGE, target, dirs_exist_ok=True)
        shutil.copyfile(GRAPH_SCRIPT, target / GRAPH_SCRIPT.name)
        files = {"runtimes": _copy_runtimes(package, target)} | _copy_bundle(encoder, bundle, target)
        lines = json.dumps([asdict(sentence) for sentence in text_shown.sentences], ensure_ascii=False)
        files["sentences"] = _write_compressed(lines.encode(), target, "sentences.json")
        prompt = choose_prompt(encoder.manifest, defaults=DOCUMENT)
        vectors = encoder.encode(sentences, prompt=prompt, precision="int8")
        files["vectors"] = _write_compressed(vectors.tobytes(), target, "vectors.int8")
        # Sentences from all over the list, so that several languages are checked.
        rows = range(0, len(sentences), max(1, len(sentences) // _CHECKS))[:_CHECKS]
        ids = BundleTokenizer(bundle, encoder.manifest).token_ids([sentences[row] for row in rows], prompt)
        description = {
            "format": _FORMAT,
            "model": _describe_model(encoder, bundle),
            "count": len(sentences),
            "languages": text_shown.languages,
            "examples": [asdict(example) for example in text_shown.examples],
            "checks": [
                {"row": row, "text": sentences[row], "ids": ids_of_row}
                for row, ids_of_row in zip(rows, ids, strict=True)
            ],
            "onnxruntime_web": version_of(package),
            "files": files,
            "download": size_of(target) - size_of(target / "ort"),
            "contents": sorted(_file_names(target)),
        }
        write_json(target / DESCRIPTION, description)
    return folder


def served_files(folder: Path) -> dict[str, Path]:
    """Map each URL path of the demo to the file that a server answers with."""
    return {f"/{name}": folder / name for name in _file_names(folder)} | {"/": folder / "index.html"}


def check_tokenizer(path: Path) -> None:
    """Refuse a tokenizer.json that the page does not support.

    :raises InputError: naming the first component that is not supported.
    """
    # as the library has read it: the file may hold entries that it ignores, such as the steps of what is no sequence
    description = tokenizer_to_json(read_tokenizer(path))
    for component, supported in SUPPORTED.items():
        for step in steps_of(description[component]):
            kind = str(step.get("type"))
            if kind not in supported:
                raise InputError(
                    f"{path}: the demo page does not support the {component} {kind} "
                    f"(supported: {', '.join(sorted(supported))}); choose another bundle with --model"
                )


def _check_replaceable(folder: Path) -> None:
    """Refuse a file, and a folder with files that no demo wrote."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder}: is a file; name a folder for the page")
    path = folder / DESCRIPTION
    description = read_json(path) if path.is_file() else None
    contents = description.get("contents") if isinstance(description, dict) else None
    written = {DESCRIPTION, *map(str, contents)} if isinstance(contents, list) else set()
    if foreign := sorted(_file_names(folder) - written):
        raise InputError(f"{folder}: {foreign[0]} was not written by a demo and would be lost; name another folder")


def _file_names(folder: Path) -> set[str]:
    with explain_read_error(folder):
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def _copy_runtimes(package: Path, target: Path) -> dict[str, Any]:
    """Copy the builds of onnxruntime-web, of which a page loads one; return their entries in the description.

    The build for WebGPU is left out where the package is too old to have it.
    """
    (target / "ort").mkdir()
    runtimes: dict[str, Any] = {}
    for device, build in BUILDS.items():
        files = runtime_files(package, device)
        if not all(path.is_file() for path in files.values()):
            continue
        scripts = [name for name in files if name != build.binary]
        for name in scripts:
            shutil.copyfile(files[name], target / "ort" / name)
        wasm = _write_compressed(files[build.binary].read_bytes(), target, f"ort/{build.binary}")
        download = wasm["packed"] + sum(files[name].stat().st_size for name in scripts)
        runtimes[device] = {"script": {"path": f"ort/{build.script}"}, "wasm": wasm, "download": download}
    return runtimes


def _copy_bundle(encoder: Encoder, bundle: Path, target: Path) -> dict[str, Any]:
    """Copy the graph, its external data and the tokenizer; return their entries in the description."""
    graph = graphs_of(bundle, encoder.manifest)[encoder.precision]
    # The graph names its external data relative to its own folder. The page has names of its own for all of it: those
    # of the bundle may be one of them with .gz, or hold what a URL may not.
    home = PurePosixPath(graph).parent
    external = [
        {"name": str(PurePosixPath(name).relative_to(home))}
        | _write_compressed((bundle / name).read_bytes(), target, f"model/external_{number}")
        for number, name in enumerate(sorted(external_files(bundle, graph)))
    ]
    return {
        "graph": _write_compressed((bundle / graph).read_bytes(), target, "model/graph"),
        "external": external,
        "tokenizer": _write_compressed((bundle / "tokenizer.json").read_bytes(), target, "model/tokenizer.json"),
    }


def _describe_model(encoder: Encoder, bundle: Path) -> dict[str, Any]:
    manifest = encoder.manifest
    return {
        "name": bundle.resolve().name,
        "source": str(manifest.get("source", "")),
        "precision": encoder.precision,
        "languages": list(encoder.languages),
        "dimension": encoder.dimension,
        "query_prompt": choose_prompt(manifest, defaults=QUERY),
        "document_prompt": choose_prompt(manifest, defaults=DOCUMENT),
        "max_tokens": manifest["max_tokens"],
        "pad_token_id": manifest["pad_token_id"],
    }


def _write_compressed(content: bytes, target: Path, name: str) -> dict[str, Any]:
    """Write content with gzip; return its path and its sizes in bytes before and after."""
    path = target / f"{name}.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, 9, mtime=0))
    return {"path": f"{name}.gz", "bytes": len(content), "packed": path.stat().st_size}
