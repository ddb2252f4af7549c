"""Vectors in .npy files: computed in blocks that survive an interruption, described beside, and read for a search."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from math import gcd
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from xcompress import console
from xcompress.bundle.encoder import Encoder, LongTexts, VectorPrecision, check_option
from xcompress.bundle.prompts import choose_prompt
from xcompress.bundle.released import MODELS
from xcompress.errors import InputError, on_one_line, short_repr
from xcompress.files import check_writable, read_json, scratch_folder, whole_file, write_json
from xcompress.metrics import Vectors
from xcompress.printable import counted

BLOCK = 1024
"""Texts that are encoded, and whose vectors are written, at a time: what an interruption costs at most."""
_PATIENCE = 10.0
"""Seconds to wait for another process that writes the same file."""
_NAME = "name"
"""In the facts beside a file: what --model was given. For messages alone, as a folder may be moved or overwritten."""
_PROMPT = "prompt"
"""There, too: the text in front of each text. Earlier versions did not write it, and knew the prefix alone."""
_SUMS = "vectors"
"""There, too: what ties the facts to the file, see `_hash_sums`. Earlier versions did not write it."""
_TEXTS = "texts.json"
"""Beside finished blocks: what they are of."""
FLOATS = ("float16", "float32", "float64")
_DTYPES = (*FLOATS, "int8", "uint8")
_LONGEST_HEADER = 10_000
"""Bytes of an .npy's header, as in NumPy, which reads all of it before it checks."""

AnyVectors = NDArray[Any]
"""float32 or int8, (N, D); or uint8 that hold eight dimensions each, (N, D / 8)."""


def encode_with_progress(
    encoder: Encoder,
    texts: Sequence[str],
    precision: VectorPrecision = "float32",
    long: LongTexts = "cut",
    prompt: str | None = None,
) -> AnyVectors:
    """Encode texts under a progress bar; the result is that of `Encoder.encode`."""
    encode = partial(encoder.encode, prompt=prompt, precision=precision, long=long)
    with console.bar("encoding", len(texts)) as ticker:
        return _encode(encode, texts, ticker.advance)


def encode_to_file(
    encoder: Encoder,
    texts: Sequence[str],
    output: Path,
    precision: VectorPrecision = "float32",
    long: LongTexts = "cut",
    prompt: str | None = None,
) -> AnyVectors:
    """Encode texts into a .npy file, and write `<output>.json` beside it, which says what they are vectors of.

    With more than `BLOCK` texts, finished blocks are kept in the folder `<output>.partial` until the file is complete:
    an interrupted call continues there. Blocks of other texts, another model or other options are dropped.

    :returns: the vectors, mapped into memory.
    :raises InputError: when an option is unknown, or the file cannot be written.
    """
    check_option("encode: precision", precision, get_args(VectorPrecision))  # a typo must not drop finished blocks
    check_option("encode: long", long, get_args(LongTexts))
    prompt = choose_prompt(encoder.manifest, prompt=prompt)
    for file in (output, _facts_file(output)):
        check_writable(file)
    facts = _describe(encoder, texts) | {"precision": precision, "long": long, _PROMPT: prompt}
    parts = output.with_name(f"{output.name}.partial")
    with scratch_folder(parts, _PATIENCE):  # one process at a time has the blocks, until they are removed
        with whole_file(output) as temporary:  # an output that cannot be written is refused before the work
            facts_of_parts = facts | {"graph": encoder.precision, "engine": encoder.engine, "block": BLOCK}
            _drop_other_blocks(parts, facts_of_parts, encoder.manifest["prefix"])
            if len(texts) <= BLOCK:
                vectors = encode_with_progress(encoder, texts, precision, long, prompt)
                with temporary.open("wb") as stream:
                    np.save(stream, vectors)
                facts[_SUMS] = _hash_sums(vectors)
            else:
                write_json(parts / _TEXTS, facts_of_parts)
                encode = partial(encoder.encode, prompt=prompt, precision=precision, long=long)
                blocks = _encode_blocks(encode, texts, parts, output)
                none = encoder.store_as(np.empty((0, encoder.dimension), dtype=np.float32), precision)
                facts[_SUMS] = _join(blocks, temporary, len(texts), none.shape[1], none.dtype)
        write_json(_facts_file(output), facts)
        if parts.exists():
            shutil.rmtree(parts)
    complete: AnyVectors = np.load(output, mmap_mode="r")
    return complete


def _encode_blocks(
    encode: Callable[[Sequence[str]], AnyVectors], texts: Sequence[str], parts: Path, output: Path
) -> list[Path]:
    """Encode texts into a file for each block; keep those that an earlier call has finished."""
    starts = range(0, len(texts), BLOCK)
    files = [parts / f"{start:012}.npy" for start in starts]
    done = min(BLOCK * sum(file.is_file() for file in files), len(texts))
    if done:
        console.say(f"{output}: {done:,} of {len(texts):,} texts were encoded earlier")
    with console.bar("encoding", len(texts)) as ticker:
        ticker.start_at(done)
        for start, file in zip(starts, files, strict=True):
            if not file.is_file():
                block = _encode(encode, texts[start : start + BLOCK], ticker.advance)
                with whole_file(file) as unfinished, unfinished.open("wb") as stream:
                    np.save(stream, block)
    return files


def _join(blocks: Sequence[Path], file: Path, count: int, width: int, numbers: np.dtype[Any]) -> str:
    """Join finished blocks into one file, (count, width); return `_hash_sums` of it.

    They are not written through a map, as a full disk would end the process then. No file is mapped afterwards: Windows
    would neither rename nor remove it.

    :raises InputError: naming a block that is damaged, or not as long or as wide as it must be.
    """
    advice = "remove it, then run the command again"
    header = {"descr": np.lib.format.dtype_to_descr(numbers), "fortran_order": False, "shape": (count, width)}
    with file.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        for number, block in enumerate(blocks):
            vectors = open_npy(block, (numbers.name,), str(block), advice)
            shape = min(BLOCK, count - number * BLOCK), width
            if vectors.shape != shape:
                raise InputError(f"{block}: holds vectors of shape {vectors.shape}, not {shape}; {advice}")
            stream.write(vectors.tobytes())
    return _hash_sums(np.load(file, mmap_mode="r"))


def read_vectors(file: Path, encoder: Encoder, texts: Sequence[str]) -> AnyVectors:
    """Read the vectors that `encode_to_file` wrote of these texts with this encoder.

    Without the facts beside them, which tell that, a line warns.

    :returns: mapped into memory.
    :raises InputError: when the file is no such array, is of other texts or another encoder, or is not the one that the
        facts beside it are about.
    """
    if not file.exists() and file.with_name(f"{file.name}.partial").exists():
        raise InputError(f"{file}: not finished; run the command of embed again that was interrupted")
    vectors = open_npy(file, _DTYPES, str(file), "give a file that embed --output wrote")
    if len(vectors) != len(texts):
        what = f"shape {vectors.shape} for {counted(len(texts), 'text')}"
        raise InputError(f"{file}: {what}; write it again with embed --output")
    facts = _read_facts(file)
    if not _facts_file(file).exists():
        console.warn(
            f"{file}: there is no {_facts_file(file).name} to tell whether these are vectors of these texts and this "
            "model; copy it, too, or write both again with embed --output"
        )
    wanted = _describe(encoder, texts)
    if difference := _difference(facts, wanted):
        name = facts.get(_NAME) if facts.get("model", wanted["model"]) != wanted["model"] else None
        advice = f"give --model {name}, or " if name not in (None, wanted[_NAME]) else ""
        raise InputError(f"{file}: {difference}; {advice}write it again with embed --output")
    width = -(-encoder.dimension // 8) if vectors.dtype == np.uint8 else encoder.dimension
    if vectors.shape[1] != width:
        raise InputError(
            f"{file}: vectors of {counted(vectors.shape[1], 'number')}, not {width}, so of another encoder; write it "
            "again with embed --output"
        )
    if _SUMS in facts and facts[_SUMS] != _hash_sums(vectors):
        raise InputError(
            f"{file}: holds other vectors than those that {_facts_file(file).name} describes; write it again with "
            "embed --output"
        )
    return vectors


def have_prefix(file: Path, encoder: Encoder) -> bool:
    """Tell whether the prefix stood in front of the texts whose vectors are in a file, and no other prompt."""
    prefix = encoder.manifest["prefix"]
    return bool(_read_facts(file).get(_PROMPT, prefix) == prefix)


def open_npy(file: Path, dtypes: Sequence[str], where: str, advice: str) -> AnyVectors:
    """Map the vectors of an .npy into memory, (N, D).

    :param dtypes: types that its numbers may have, in any byte order.
    :param where: beginning of error messages.
    :param advice: end of error messages, which says what to do.
    :raises InputError: when it is no such file. Its numbers are not read: they may be NaN.
    """
    if not os.path.lexists(file):
        raise InputError(f"{where}: there is no such file; {advice}")
    try:
        if not file.is_file():  # a named pipe would keep the reader waiting
            raise ValueError("it is not a file")
        with file.open("rb") as stream:
            start = stream.read(12)
        if not start.startswith(b"\x93NUMPY"):
            raise ValueError("it does not begin like one")
        if start[6:7] > b"\x01" and int.from_bytes(start[8:12], "little") > _LONGEST_HEADER:
            raise ValueError(f"its header is longer than {_LONGEST_HEADER:,} bytes")
        with np.errstate(over="raise"):  # a shape beyond all numbers would give a warning
            vectors: AnyVectors = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python, which raises errors of many kinds
        raise InputError(f"{where}: not a readable .npy of plain numbers ({on_one_line(error)}); {advice}") from error
    if vectors.ndim != 2 or vectors.dtype.newbyteorder("=").name not in dtypes:
        kinds = " or ".join(filter(None, (", ".join(dtypes[:-1]), dtypes[-1])))
        raise InputError(
            f"{where}: holds {vectors.dtype} of shape {vectors.shape}; it must be {kinds} of (N, D); {advice}"
        )
    return vectors


def similarity_in_blocks(encoder: Encoder, query: Vectors, vectors: AnyVectors) -> Vectors:
    """Return the cosines of one vector (D,) with vectors on disk (N, D), a block of them in memory at a time; (N,).

    :raises InputError: when a vector holds NaN or infinity.
    """
    starts = range(0, len(vectors), BLOCK)
    cosines = np.concatenate([encoder.similarity(query, vectors[start : start + BLOCK])[0] for start in starts])
    if not np.isfinite(cosines).all():
        raise InputError(
            f"{getattr(vectors, 'filename', 'vectors')}: row {int(np.isfinite(cosines).argmin())} holds NaN or "
            "infinity; write it again with embed --output"
        )
    return cosines


def _describe(encoder: Encoder, texts: Sequence[str]) -> dict[str, object]:
    digest = sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "replace") + b"\n")
    return {
        "model": str(encoder.manifest.get("made_from")),
        _NAME: encoder.folder.name if encoder.folder.parent == MODELS.resolve() else str(encoder.folder),
        "texts": len(texts),
        "text": digest.hexdigest()[:16],
    }


def _read_facts(file: Path) -> dict[str, Any]:
    facts = read_json(_facts_file(file)) if _facts_file(file).is_file() else {}
    if not isinstance(facts, dict):
        raise InputError(f"{_facts_file(file)}: not what embed --output wrote; write it again")
    return facts


def _hash_sums(vectors: AnyVectors) -> str:
    """Return a hash of the sums of all rows, whose bytes are added up as whole numbers, and of what the rows are.

    It tells vectors of other texts or models apart, at the speed of the disk: SHA-256 of all bytes would take longer
    than the search.
    """
    digest = sha256(f"{vectors.dtype.str} {vectors.shape}".encode())
    number = np.dtype(f"<u{gcd(vectors.shape[1] * vectors.dtype.itemsize, 8)}")
    for start in range(0, len(vectors), BLOCK):
        rows = np.ascontiguousarray(vectors[start : start + BLOCK])
        digest.update(rows.view(number).sum(axis=1, dtype="<u8"))
    return digest.hexdigest()[:16]


def _difference(facts: Mapping[str, Any], wanted: Mapping[str, object]) -> str | None:
    """Say how vectors differ from the wanted ones, by the facts beside them; None where they do not.

    What the facts do not say counts as equal: earlier versions wrote no name.
    """
    for key, value in wanted.items():
        if key == _NAME or facts.get(key, value) == value:
            continue
        if key == "model":
            name, wanted_name = facts.get(_NAME), wanted[_NAME]
            if name == wanted_name:
                return f"made with another version of {name}"
            return f"made with {name or 'another model'}, not {wanted_name}"
        if key == _PROMPT:
            return f"made with the prompt {short_repr(facts[key])}, not {short_repr(value)}"
        return "made of other texts" if key in ("texts", "text") else f"made with {key} {facts[key]}, not {value}"
    return None


def _drop_other_blocks(parts: Path, wanted: Mapping[str, object], prefix: str) -> None:
    """Remove the finished blocks of an earlier call unless they are the wanted ones, and say why.

    :param prefix: what earlier versions put in front of each text, and did not note.
    :raises InputError: when something else than a folder is there.
    """
    if not os.path.lexists(parts):
        return
    if parts.is_symlink() or not parts.is_dir():
        raise InputError(f"{parts}: is no folder, and finished blocks are to be kept there; move it away")
    facts = read_json(parts / _TEXTS) if (parts / _TEXTS).is_file() else None
    difference: str | None = "made with unknown options"
    if isinstance(facts, dict) and not wanted.keys() - facts.keys() - {_NAME, _PROMPT}:
        difference = _difference({_PROMPT: prefix} | facts, wanted)
    if difference:
        if any(parts.glob("*.npy")):
            console.say(f"{parts}: {difference}; starting anew")
        shutil.rmtree(parts)


def _facts_file(output: Path) -> Path:
    return output.with_name(f"{output.name}.json")


def _encode(
    encode: Callable[[Sequence[str]], AnyVectors], texts: Sequence[str], advance: Callable[[int], None]
) -> AnyVectors:
    steps = []
    for start in range(0, len(texts), BLOCK):
        step = texts[start : start + BLOCK]
        steps.append(encode(step))
        advance(len(step))
    return np.concatenate(steps)
