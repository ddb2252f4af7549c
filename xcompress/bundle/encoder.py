"""Encode text with a bundle; with onnxruntime, without PyTorch."""

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from math import inf
from operator import index
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self, SupportsIndex, get_args

import numpy as np
from numpy.typing import NDArray

from xcompress.batches import run_in_threads
from xcompress.bundle import MOST_THREADS
from xcompress.bundle.engines import Engine, Session, choose_engine, default_threads, open_session, takes_several_calls
from xcompress.bundle.integrity import check_bundle, external_files, state_of
from xcompress.bundle.manifest import INPUTS, OUTPUT, choose_graph, read_manifest
from xcompress.bundle.native_calls import native_call
from xcompress.bundle.prompts import DOCUMENT, QUERY, choose_prompt
from xcompress.bundle.released import DEFAULT, find_bundle, released_folder, released_names
from xcompress.bundle.tokenizer import BundleTokenizer, batches_by_length, list_texts, text_steps
from xcompress.bundle.unpacked import unpacked_copy
from xcompress.bundle.vectors import as_floats, unit_rows, unpacked_rows
from xcompress.errors import InputError, on_one_line, short_repr
from xcompress.machine import available_threads
from xcompress.metrics import Vectors
from xcompress.paths import as_path
from xcompress.printable import counted
from xcompress.runtimes import PHONE_FILES

Precision = Literal["auto", "int8", "int4", "fp16", "fp32"]
VectorPrecision = Literal["float32", "int8", "ubinary"]
LongTexts = Literal["cut", "mean"]

_MANY_BATCHES = 64
"""From this many on, each thread takes batches of its own. Opening the graph again takes what some dozens save."""
_MOST_AT_ONCE = 16
"""The most batches at a time, whatever the number of threads: each needs memory."""


class Encoder:
    """A sentence encoder: an exported bundle, opened with onnxruntime or another engine.

        >>> from xcompress import Encoder
        >>> encoder = Encoder.from_pretrained("tiny")
        >>> encoder.encode("Where is the station?").shape
        (384,)
        >>> vectors = encoder.encode(["Where is the station?", "Wo ist der Bahnhof?", "I like soup."])
        >>> vectors.shape
        (3, 384)
        >>> cosines = encoder.similarity(vectors, vectors)
        >>> bool(cosines[0, 1] > cosines[0, 2])
        True

    `from_pretrained` also takes the names of released models and hub ids; the class itself takes a folder.
    `encode_query` and `encode_document` put the prompts of the model in front of questions and of the texts that are
    searched, as in sentence-transformers; `encode` puts its one prefix, which is the default prompt, in front of each.

    The cache keeps, for later processes, a graph in 4 bits, unpacked, and the tokenizer as a SentencePiece model. The
    bundle's folder may be replaced or removed later: that changes no vector.

    Threads may share an encoder, and a forked process may go on with it. A fork and the end of the process wait for
    calls of other threads, for ten seconds at most. A copy, or one that is pickled for another process, opens the
    folder again, and refuses another bundle there.

    :param path: folder of the bundle.
    :param precision: the graph to open; `auto` takes the precision that the manifest names, else int8 if it exists.
    :param engine: onnxruntime; openvino, which needs the extra of that name and a bundle exported with `--target
        openvino` or a graph in float32; executorch and litert, likewise; or auto: OpenVINO for bundles exported for it
        where it is installed, else onnxruntime.
    :param threads: threads that encode; they share the work of a batch. In onnxruntime and OpenVINO, each takes batches
        of its own where there are many, and the graph is opened once more for that. With litert, each takes texts of a
        batch. With executorch, open encoders share the first one's. None: 1 for phones and browsers, else one for
        each core that the process may use: of its affinity mask, and at most a container's quota of CPUs.
    :param check: compare the files with the manifest's hashes first. No file outside the folder is ever read.
    :raises InputError: when the folder is not a bundle, was changed, or lacks the precision; when the engine is not
        installed or cannot read the graph; when threads is below 1.
    """

    folder: Path
    """Folder of the bundle."""
    precision: str
    """Precision of the open graph: int8, int4, fp16 or fp32."""
    engine: str
    """What runs the graph: onnxruntime, openvino, executorch or litert."""
    engine_reason: str
    """Why it was chosen, in a few words."""
    mean_vector: Vectors
    """The mean of vectors of the text that the export verified on, (D,); (1,) with a 0 where the manifest has none."""
    session: Session
    """The open graph: an `onnxruntime.InferenceSession`, or an object with its method `run`."""

    def __init__(
        self,
        path: str | Path,
        *,
        precision: Precision = "auto",
        engine: Engine = "auto",
        threads: int | None = None,
        check: bool = True,
    ) -> None:
        if threads is not None:
            advice = f"give 1 to {MOST_THREADS}, or None for the engine's own choice"
            threads = _whole_number("Encoder: threads", threads, advice, 1, MOST_THREADS)
        folder = as_path(str(_name_or_path(path)))
        if isinstance(path, str) and path in released_names() and not folder.exists():
            raise InputError(f"{path}: no such folder; Encoder.from_pretrained({path!r}) opens the released model")
        self._manifest = read_manifest(folder)
        # The current folder may change later, and a link may come to lead elsewhere.
        self.folder = folder = Path(os.path.realpath(folder))
        self.precision, graph = choose_graph(folder, self._manifest, precision)
        self.engine, self.engine_reason = choose_engine(folder, self._manifest, self.precision, graph, engine)
        graph = PHONE_FILES.get(self.engine, graph)
        weights = check_bundle(folder, self._manifest, graph) if check else external_files(folder, graph)
        self._tokenizer = BundleTokenizer(folder, self._manifest)
        self.mean_vector = np.array(self._manifest.get("mean_vector") or [0.0], dtype=np.float32)
        self._graph = file = folder / graph
        # the hash by which a copy is found does not cover weights in other files
        if self.precision == "int4" and self.engine == "onnxruntime" and not weights:
            file = unpacked_copy(file, self._manifest["files"][graph]["sha256"] if check else None) or file
        self._options = {"precision": self.precision, "engine": self.engine, "threads": threads, "check": check}
        threads = threads or default_threads(self._manifest)
        facts = self._manifest, self.precision, self.engine, threads
        self._file, self._state = file, state_of(file.parent)
        try:
            self.session = open_session(file, *facts)
        except InputError:
            if file == self._graph:
                raise
            self._file, self._state = self._graph, state_of(self._graph.parent)
            self.session = open_session(self._graph, *facts)  # the cache was emptied just now
        self._at_once = min(threads or available_threads(), _MOST_AT_ONCE)
        self._opened_again: Session | None = None
        self._opening, self._process = threading.Lock(), 0
        self._inputs = {entry.name for entry in self.session.get_inputs()}

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path = DEFAULT,
        *,
        precision: Precision = "auto",
        engine: Engine = "auto",
        threads: int | None = None,
        check: bool = True,
    ) -> Self:
        """Open a released model, a bundle's folder, or a bundle on the Hugging Face hub.

            >>> Encoder.from_pretrained("small").dimension
            384

        :param name_or_path: the name of a released model (see `released_names`), the folder of a bundle, or a hub id
            `org/name[@revision]`. An existing folder wins over a hub id. A hub repository is downloaded once; later
            calls use the local copy and need no network.
        :param precision: the graph to open, as for `Encoder`.
        :param engine: what runs the graph, as for `Encoder`.
        :param threads: threads that encode, as for `Encoder`.
        :param check: compare the files with the hashes in the manifest first.
        :raises InputError: when there is no such model, the hub cannot be reached, or the bundle cannot be opened.
        """
        folder = find_bundle(_name_or_path(name_or_path))
        return cls(folder, precision=precision, engine=engine, threads=threads, check=check)

    @classmethod
    def released(
        cls,
        name: str = DEFAULT,
        *,
        precision: Precision = "auto",
        engine: Engine = "auto",
        threads: int | None = None,
        check: bool = True,
    ) -> Self:
        """Open a released model: `from_pretrained` for these names only.

        :raises InputError: when there is no released model of this name; the message lists those that exist.
        """
        folder = released_folder(str(_name_or_path(name)))
        return cls(folder, precision=precision, engine=engine, threads=threads, check=check)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r}, precision={self.precision!r}, engine={self.engine!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Let copies, and processes that an encoder is sent to, open the bundle again."""
        return _open_again, (type(self), self.folder, self._options, self._manifest)

    @property
    def manifest(self) -> Mapping[str, Any]:
        """A copy of the content of manifest.json."""
        return deepcopy(self._manifest)

    @property
    def dimension(self) -> int:
        """D, the length of a vector."""
        return int(self._manifest["dimension"])

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that the encoder was made for, as ISO 639 codes."""
        return tuple(self._manifest.get("languages", ()))

    @property
    def prompts(self) -> Mapping[str, str]:
        """The prompts by name, read-only; empty for bundles that have a prefix at most."""
        return MappingProxyType(dict(self._manifest.get("prompts", {})))

    def encode(
        self,
        texts: str | Iterable[str],
        batch_size: int = 32,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        precision: VectorPrecision = "float32",
        long: LongTexts = "cut",
    ) -> NDArray[Any]:
        """Encode a sentence, or a list of sentences; texts of similar length share a batch.

            >>> encoder = Encoder.from_pretrained("tiny")
            >>> encoder.encode("one sentence").shape
            (384,)
            >>> encoder.encode(["one sentence"]).shape
            (1, 384)

        A sentence has the same vector alone and among others, to within 1e-7 per element in float32 and 2e-7 in int8:
        pooling adds up tokens in an order that depends on the longest sentence of the batch. OpenVINO computes partly
        in bfloat16 on processors that have it: `manifest["parity"]["openvino"]["invariance_cosine"]` says how far the
        two are apart there.

        Any text is accepted: empty, long, in any script. Lone surrogates count as `?`.

        :param texts: one sentence, or an iterable of sentences.
        :param batch_size: maximum number of texts per call of the graph; batches of long texts are smaller.
        :param prompt_name: the name of one of `prompts`, whose text stands in front of each sentence in place of
            `manifest["prefix"]`.
        :param prompt: such a text itself; an empty one for none. Of a long text, the first window alone has it.
        :param precision: float32; int8, each vector on a scale of its own, which cosines do not depend on; or ubinary,
            a bit for each number (see `store_as`). `similarity` takes all three.
        :param long: what is done with texts of more than `manifest["max_tokens"]` tokens: cut, or the mean of the
            vectors of all windows of that many tokens, weighted by their tokens. Of each text the first 100,000
            characters are read.
        :returns: (D,) for one sentence, (n, D) for n sentences, in their order; (n, D / 8) for ubinary.
        :raises InputError: when an item is not a string, batch_size is no whole number from 1, or an option is unknown;
            when prompt_name and prompt are both given, there is no such prompt, or it has more than 1,000 characters
            or leaves no token to a text that is cut; when the tokenizer or the graph fails, or the graph gives
            something else than finite vectors of D numbers.
        """
        batch_size = _whole_number("encode: batch_size", batch_size, "it must be 1 or more", 1)
        check_option("encode: precision", precision, get_args(VectorPrecision))
        check_option("encode: long", long, get_args(LongTexts))
        prompt = choose_prompt(self._manifest, prompt_name, prompt)
        if long == "cut":
            self._tokenizer.check_prompt(prompt)
        sentences = list_texts("encode", texts)
        none = self.store_as(np.empty((0, self.dimension), dtype=np.float32), precision)
        stored = np.empty((len(sentences), none.shape[1]), dtype=none.dtype)
        # Each step is stored on its own: the float32 vectors of all texts may take 32 times the memory of their bits.
        for start, some in text_steps(sentences, by_characters=long == "mean"):
            if long == "cut":
                vectors = self._run(self._tokenizer.token_ids(some, prompt), batch_size)
            else:
                vectors = self._mean_of_windows(some, prompt, batch_size)
            stored[start : start + len(some)] = self.store_as(vectors, precision)
        return stored[0] if isinstance(texts, str) else stored

    def encode_query(
        self,
        texts: str | Iterable[str],
        batch_size: int = 32,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        precision: VectorPrecision = "float32",
        long: LongTexts = "cut",
    ) -> NDArray[Any]:
        """Encode what is searched for, with the prompt `query` if the bundle has one, else as `encode`.

        The parameters are those of `encode`; a prompt that is given comes first.
        """
        prompt = choose_prompt(self._manifest, prompt_name, prompt, defaults=QUERY)
        return self.encode(texts, batch_size, prompt=prompt, precision=precision, long=long)

    def encode_document(
        self,
        texts: str | Iterable[str],
        batch_size: int = 32,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        precision: VectorPrecision = "float32",
        long: LongTexts = "cut",
    ) -> NDArray[Any]:
        """Encode what is searched, with the first of the prompts `document`, `passage` and `corpus`, else as `encode`.

        The parameters are those of `encode`; a prompt that is given comes first.
        """
        prompt = choose_prompt(self._manifest, prompt_name, prompt, defaults=DOCUMENT)
        return self.encode(texts, batch_size, prompt=prompt, precision=precision, long=long)

    def store_as(self, vectors: Vectors, precision: VectorPrecision) -> NDArray[Any]:
        """Return vectors of this encoder as `encode` returns them in a precision.

        The vectors of many encoders lie in a narrow cone, where their signs are nearly alike. So a bit says whether a
        number of the vector, scaled to length 1, is above that of `mean_vector`.

        :param vectors: float32, (n, D).
        :returns: (n, D) of float32; of int8, with the largest number of a row at 127 or -127; or (n, D / 8) of uint8.
        :raises InputError: when the precision is unknown, or the vectors have another shape or hold NaN or an infinity.
        """
        check_option("store_as: precision", precision, get_args(VectorPrecision))
        rows = as_floats("store_as: vectors", vectors)
        if rows.ndim != 2 or rows.shape[1] != self.dimension:
            raise InputError(f"store_as: the vectors have shape {rows.shape}; give (n, {self.dimension})")
        largest = np.maximum(rows.max(axis=1, keepdims=True), -rows.min(axis=1, keepdims=True))
        if not np.isfinite(largest).all():
            row = int(np.isfinite(largest).argmin())
            raise InputError(f"store_as: row {row} of the vectors holds NaN or infinity; leave it out")
        if precision == "int8":
            rounded: NDArray[np.int8] = np.rint(rows / np.where(largest > 0, largest, 1) * 127).astype(np.int8)
            return rounded
        if precision == "ubinary":
            return np.packbits(unit_rows("store_as: vectors", rows) > self.mean_vector, axis=1)
        return rows.astype(np.float32, copy=False)

    def _run(self, sequences: Sequence[Sequence[int]], batch_size: int) -> Vectors:
        """Encode token ids, (N, D)."""
        vectors = np.empty((len(sequences), self.dimension), dtype=np.float32)
        batches = list(batches_by_length([len(ids) for ids in sequences], batch_size))
        are_many = self._at_once > 1 and len(batches) >= _MANY_BATCHES
        session = (self._for_many_batches if are_many else None) or self.session

        def run(rows: Sequence[int]) -> None:
            vectors[rows] = self._run_batch(session, [sequences[row] for row in rows])

        run_in_threads(run, batches, 1 if session is self.session else self._at_once)
        return vectors

    def _run_batch(self, session: Session, sequences: Sequence[Sequence[int]]) -> Vectors:
        """Pad token ids to the longest sequence, and run the graph; return (N, D)."""
        shape = (len(sequences), max(map(len, sequences)))
        input_ids = np.full(shape, self._manifest["pad_token_id"], dtype=np.int64)
        attention_mask = np.zeros(shape, dtype=np.int64)
        for row, ids in enumerate(sequences):
            input_ids[row, : len(ids)] = ids
            attention_mask[row, : len(ids)] = 1
        feeds = dict(zip(INPUTS, (input_ids, attention_mask, np.zeros_like(input_ids)), strict=True))
        try:
            with native_call():
                vectors: Vectors = session.run([OUTPUT], {name: feeds[name] for name in self._inputs})[0]
        except MemoryError:
            raise
        except Exception as error:  # the engines' errors have no common base class below Exception
            raise InputError(
                f"{self._graph}: {self.engine} fails on {shape[0]} x {shape[1]} tokens ({on_one_line(error)}); lower "
                "batch_size if memory is short, else export the bundle again"
            ) from error
        # NumPy would repeat a single row, or a single column, in the vectors of all texts.
        if vectors.shape != (shape[0], self.dimension):
            raise InputError(
                f"{self._graph}: outputs the shape {list(vectors.shape)} for {counted(shape[0], 'text')}, "
                f"manifest.json says dimension {self.dimension}; export the bundle again"
            )
        if not np.isfinite(vectors).all():
            raise InputError(f"{self._graph}: outputs vectors with NaN or infinity; export the bundle again")
        return vectors

    @property
    def _for_many_batches(self) -> Session | None:
        """The graph, open for a batch in each thread; None where that cannot be, or its files are gone or changed."""
        with native_call(), self._opening:
            if self._process != os.getpid():  # OpenVINO's threads stay in the process from which this one was forked
                self._opened_again = None
                if takes_several_calls(self.session) and state_of(self._file.parent) == self._state:
                    facts = self._file, self._manifest, self.precision, self.engine, self._at_once
                    with suppress(InputError):
                        self._opened_again = open_session(*facts, streams=True)
                self._process = os.getpid()
            return self._opened_again

    def _mean_of_windows(self, texts: Sequence[str], prompt: str, batch_size: int) -> Vectors:
        """Encode texts as the mean of their windows, weighted by tokens and scaled as the graph scales vectors."""
        windows = self._tokenizer.windows(texts, prompt)
        owners = np.repeat(np.arange(len(texts)), [len(of_text) for of_text in windows])
        sequences = [ids for of_text in windows for ids in of_text]
        weights = np.array([len(ids) for ids in sequences], dtype=np.float32)[:, None]
        vectors = self._run(sequences, batch_size)
        means = np.zeros((len(texts), self.dimension), dtype=np.float32)
        np.add.at(means, owners, weights * vectors)
        if self._manifest.get("normalize", True):
            return unit_rows("encode: vectors", means)
        totals = np.bincount(owners, weights[:, 0], minlength=len(texts))
        scaled: Vectors = (means / totals[:, None]).astype(np.float32)
        return scaled

    def similarity(self, left: NDArray[Any], right: NDArray[Any]) -> Vectors:
        """Return the cosine of each vector of `left` with each vector of `right`.

        Bits (uint8) count as 1 and -1. A vector of another type is compared with bits by its difference from the mean
        vector.

        :param left: (n, D), or (D,) for one vector, as `encode` returns it.
        :param right: (m, D), or (D,) for one vector.
        :returns: (n, m), also where n or m is 1; 0 for vectors of zeros.
        :raises InputError: when one is no array of numbers, they differ in D, or bits are of another D than this
            encoder's, or no longer uint8.
        """
        left, left_is_bits = unpacked_rows("similarity: left", left, self.dimension)
        right, right_is_bits = unpacked_rows("similarity: right", right, self.dimension)
        if left.shape[1] != right.shape[1]:
            raise InputError(
                f"similarity: the vectors are {left.shape[1]} and {right.shape[1]} numbers wide; "
                "give vectors of one encoder"
            )
        if left_is_bits and not right_is_bits:
            right = unit_rows("similarity: right", right - self.mean_vector)
        elif right_is_bits and not left_is_bits:
            left = unit_rows("similarity: left", left - self.mean_vector)
        return left @ right.T

    def token_ids(self, texts: str | Iterable[str]) -> list[list[int]]:
        """Return the token ids of each text, with prefix and special tokens, truncated to `max_tokens`.

        Only the start of a long text is tokenized, and more of it if the start does not fill the sequence.

        :param texts: an iterable of sentences; one sentence counts as a list of one.
        :raises InputError: when an item is not a string, or the tokenizer fails.
        """
        return self._tokenizer.token_ids(list_texts("token_ids", texts))


def top_k(scores: NDArray[np.floating[Any]], k: int) -> NDArray[np.int64]:
    """Return the columns of the k highest scores of each row, highest first; of equal scores the first.

        >>> top_k(np.array([0.1, 0.9, 0.5]), 2).tolist()
        [1, 2]

    :param scores: (n, m), or (m,) for one row.
    :returns: (n, k) or (k,); fewer than k columns if m is smaller.
    :raises InputError: when k is no whole number.
    """
    k = _whole_number("top_k: k", k, "give the number of columns")
    return np.argsort(-scores, axis=-1, kind="stable")[..., : max(k, 0)]


def _open_again(kind: type[Encoder], folder: Path, options: Mapping[str, Any], manifest: Mapping[str, Any]) -> Encoder:
    """Open the bundle of an encoder that was pickled or copied.

    :raises InputError: when it cannot be opened, or is another one now: its vectors would not go with the first ones.
    """
    encoder = kind(folder, **options)
    if encoder._manifest != manifest:
        raise InputError(f"{folder}: was replaced by another bundle since it was opened; open the encoder again")
    return encoder


def _name_or_path(value: object) -> str | Path:
    """Return the name or the path of a bundle.

    :raises InputError: when it is neither text nor a path.
    """
    if isinstance(value, str | os.PathLike):
        return value if isinstance(value, str) else Path(value)
    raise InputError(
        f"Encoder: {short_repr(value)} is not a folder or a name; give the folder of a bundle, a released name or a "
        "hub id"
    )


def _whole_number(name: str, value: SupportsIndex, advice: str, least: float = -inf, most: float = inf) -> int:
    """Return a whole number, also one of numpy's.

    :raises InputError: when it is none, as True and False are, or lies outside the bounds.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = index(value)
    except TypeError:
        raise InputError(f"{name} is {short_repr(value)}, not a whole number; {advice}") from None
    if not least <= number <= most:
        raise InputError(f"{name} is {short_repr(number)}; {advice}")
    return number


def check_option(name: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the choices, with an InputError that lists them."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} is {short_repr(value)}; choose {', '.join(choices[:-1])} or {choices[-1]}")
