import doctest
import json
import shutil
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_type_hints

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import ROOT
from tests.helpers.student import SENTENCES, bundle, change_manifest, student_of_bundle
from xcompress.bundle import encoder as runtime
from xcompress.bundle import released
from xcompress.bundle.encoder import Encoder, Precision, VectorPrecision, top_k
from xcompress.bundle.engines import Session, default_threads
from xcompress.bundle.released import released_names
from xcompress.errors import InputError
from xcompress.export.text import real_sentences
from xcompress.modeling.student import encode
from xcompress.python_process import python_command

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
"""Any code points, halves of surrogate pairs too."""
REFUSED = ("torch", "transformers", "onnx", "pydantic", "rich", "typer", "yaml", "safetensors", "filelock", "scipy")


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(bundle(), threads=1)


@pytest.fixture(scope="module")
def exact() -> Encoder:
    return Encoder(bundle(), precision="fp32", threads=1)


def test_vectors_are_the_students(encoder: Encoder) -> None:
    vectors = encoder.encode(SENTENCES)
    expected = encode(*student_of_bundle(), SENTENCES)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(SENTENCES), encoder.dimension) == (5, 24)
    assert (vectors * expected).sum(1).min() > 0.99
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_order_is_kept_at_any_batch_size(batch_size: int) -> None:
    encoder = Encoder(bundle(), precision="fp32")
    alone = np.stack([encoder.encode(text) for text in SENTENCES])
    np.testing.assert_allclose(encoder.encode(SENTENCES, batch_size), alone, atol=1e-5)


def test_auto_takes_int8_where_there_is_one(encoder: Encoder, bundle_copy: Path) -> None:
    assert encoder.precision == "int8"
    (bundle_copy / "onnx/model_quantized.onnx").unlink()
    assert Encoder(bundle_copy).precision == "fp32"
    with pytest.raises(InputError, match="'int8', but the graphs are fp32; choose one"):
        Encoder(bundle_copy, precision="int8")
    (bundle_copy / "onnx/model.onnx").unlink()
    with pytest.raises(InputError, match="none of the graphs"):
        Encoder(bundle_copy)


def test_one_sentence_gives_one_vector_and_a_list_gives_rows(encoder: Encoder) -> None:
    vector = encoder.encode("rain")
    assert (vector.shape, vector.dtype) == ((24,), np.float32)
    np.testing.assert_array_equal(encoder.encode(["rain"]), [vector])
    np.testing.assert_array_equal(encoder.encode(np.str_("rain")), vector)


def test_nothing_gives_no_rows(encoder: Encoder) -> None:
    assert encoder.encode([]).shape == (0, 24)


def test_empty_and_long_texts_are_encoded(encoder: Encoder) -> None:
    vectors = encoder.encode(["", "rain " * 1000, "rain " * 2000])
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(vectors[1], vectors[2], atol=1e-5)


def test_a_tokenizer_without_special_tokens_may_give_no_tokens(bundle_copy: Path) -> None:
    described = json.loads((bundle_copy / "tokenizer.json").read_text())
    (bundle_copy / "tokenizer.json").write_text(json.dumps({**described, "post_processor": None}))
    change_manifest(bundle_copy, prefix="")
    assert np.isfinite(Encoder(bundle_copy, check=False).encode(["", "rain"])).all()


def test_the_prefix_comes_from_the_manifest(encoder: Encoder, bundle_copy: Path) -> None:
    change_manifest(bundle_copy, prefix="")
    bare = Encoder(bundle_copy, threads=1)
    np.testing.assert_allclose(bare.encode("query: rain"), encoder.encode("rain"), atol=1e-6)
    assert np.abs(bare.encode("rain") - encoder.encode("rain")).max() > 1e-3


@pytest.mark.parametrize(
    ("texts", "where"),
    [
        (["fine", 3], r"item 1 is 3 \(int\), not str"),
        (7, "are int"),
        ([None], "item 0 is None"),
        (["fine", float("nan")], r"item 1 is nan \(float\), not str"),
        (b"rain", "are bytes; decode them"),
        ([b"rain"], r"item 0 is b'rain' \(bytes\)"),
        (np.array(["rain", "sea"], dtype=object)[:, None], "ndarray of 2 dimensions; give one column, as in"),
        (SimpleNamespace(ndim=2), "are SimpleNamespace; give a string or a list"),
        (np.array("rain"), "are ndarray"),
    ],
)
def test_texts_that_are_not_strings_are_refused(encoder: Encoder, texts: object, where: str) -> None:
    for function in (encoder.encode, encoder.token_ids):
        with pytest.raises(InputError, match=f"^{function.__name__}: .*{where}"):
            function(texts)


def test_one_sentence_has_one_list_of_token_ids(encoder: Encoder) -> None:
    assert encoder.token_ids("rain") == encoder.token_ids(["rain"]) == encoder.token_ids(iter(["rain"]))


def test_a_graph_that_fails_is_named(bundle_copy: Path) -> None:
    described = json.loads((bundle_copy / "tokenizer.json").read_text())
    described["truncation"]["max_length"] = 600  # the graph has 160 positions
    (bundle_copy / "tokenizer.json").write_text(json.dumps(described))
    change_manifest(bundle_copy, max_tokens=600)
    encoder = Encoder(bundle_copy, check=False)
    with pytest.raises(InputError, match=r"onnxruntime fails on 1 x 600 tokens .* export the bundle again") as error:
        encoder.encode("rain " * 1000)
    assert str(error.value).startswith(str(bundle_copy / "onnx/model_quantized.onnx"))


def test_the_encoder_has_the_facts_of_the_manifest(encoder: Encoder, bundle_copy: Path) -> None:
    assert encoder.languages == ()
    assert encoder.manifest["dimension"] == encoder.dimension == 24
    encoder.manifest["files"].clear()
    assert encoder.manifest["files"]
    assert json.loads(json.dumps(encoder.manifest)) == json.loads((bundle() / "manifest.json").read_text())
    change_manifest(bundle_copy, languages=["en", "de"])
    assert Encoder(bundle_copy).languages == ("en", "de")


def test_an_encoder_shows_how_to_open_it_again(encoder: Encoder) -> None:
    again = eval(repr(encoder), {"Encoder": Encoder})
    assert isinstance(again, Encoder)
    assert (again.folder, again.precision, again.engine) == (encoder.folder, encoder.precision, encoder.engine)
    assert "int8" in repr(encoder)


def test_the_manifest_names_graphs_and_the_one_to_open(bundle_copy: Path) -> None:
    graphs = {"int8": "onnx/model_quantized.onnx", "fp16": "onnx/model.onnx"}
    change_manifest(bundle_copy, graphs=graphs, precision="fp16")
    assert Encoder(bundle_copy).precision == "fp16"
    assert Encoder(bundle_copy, precision="int8").precision == "int8"


def test_threads_follow_the_target_unless_they_are_given(bundle_copy: Path) -> None:
    def threads(**options: int) -> int:
        return Encoder(bundle_copy, **options).session.get_session_options().intra_op_num_threads

    assert (threads(), threads(threads=2)) == (default_threads({}), 2)
    change_manifest(bundle_copy, target="mobile")
    assert (threads(), threads(threads=2)) == (1, 2)
    with pytest.raises(InputError, match="threads is 0"):
        threads(threads=0)


@pytest.mark.parametrize(
    "changes", [{"dimension": 25}, {"max_tokens": 4096}, {"max_tokens": 2}, {"vocab_size": 50}, {"pad_token_id": 400}]
)
def test_a_manifest_of_another_bundle_is_refused(bundle_copy: Path, changes: dict[str, int]) -> None:
    change_manifest(bundle_copy, mean_vector=[], **changes)
    with pytest.raises(
        InputError, match=f"manifest.json says .*{next(iter(changes)).replace('pad_token_id', 'vocab_size')}"
    ):
        Encoder(bundle_copy)


def test_a_graph_that_is_no_sentence_encoder_is_refused(bundle_copy: Path) -> None:
    import onnx

    model = onnx.load(bundle_copy / "onnx/model.onnx")
    del model.graph.output[1:]
    model.graph.output[0].name = model.graph.node[-1].output[0]
    model.graph.output[0].ClearField("type")
    onnx.save(model, bundle_copy / "onnx/model.onnx")
    with pytest.raises(InputError, match="no output 'sentence_embedding'"):
        Encoder(bundle_copy, precision="fp32", check=False)


@pytest.mark.parametrize("long", ["cut", "mean"])
@pytest.mark.parametrize(
    ("vectors", "what"),
    [
        (np.ones((1, 24), np.float32), r"outputs the shape \[1, 24\] for 2 texts, manifest.json says dimension 24"),
        (np.ones((2, 1), np.float32), r"outputs the shape \[2, 1\] for 2 texts"),
        (np.ones((2, 25), np.float32), r"outputs the shape \[2, 25\] for 2 texts"),
        (np.full((2, 24), np.nan, np.float32), "outputs vectors with NaN or infinity"),
        (np.full((2, 24), -np.inf, np.float32), "outputs vectors with NaN or infinity"),
    ],
)
def test_a_graph_that_gives_other_vectors_than_it_says_is_refused(
    vectors: np.ndarray, what: str, long: Literal["cut", "mean"], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder(bundle(), precision="fp32")
    monkeypatch.setattr(encoder, "session", SimpleNamespace(run=lambda *_: [vectors]))
    with pytest.raises(InputError, match=rf"model\.onnx: {what}"):
        encoder.encode(["the boat", "rain"], long=long)


def test_texts_in_arrays(exact: Encoder) -> None:
    expected = exact.encode(SENTENCES)
    for texts in (np.array(SENTENCES), np.array(SENTENCES, dtype=object), tuple(SENTENCES), iter(SENTENCES)):
        np.testing.assert_allclose(exact.encode(texts), expected, atol=1e-5)


def test_any_iterable_of_texts_has_the_type_of_texts() -> None:
    for function in (Encoder.encode, Encoder.encode_query, Encoder.encode_document, Encoder.token_ids):
        assert get_type_hints(function)["texts"] == str | Iterable[str]


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(ANY_TEXT, min_size=1, max_size=6), data=st.data())
def test_any_text_has_one_vector(exact: Encoder, texts: list[str], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(texts))))
    vectors = exact.encode(texts)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(exact.encode([texts[row] for row in order]), vectors[order], atol=1e-5)
    np.testing.assert_allclose(exact.encode(texts[0]), vectors[0], atol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n\t ",
        "\0",
        "a\0b",
        "\ud800",
        "x\udfffy",
        "\ud83d\ude00",
        "😀" * 300,
        "שלום עולם",
        "مرحبا",
        "a" + "\u0301" * 2000,
    ],
)
def test_odd_texts(encoder: Encoder, text: str) -> None:
    assert np.isfinite(encoder.encode([text, "rain"])).all()


def test_half_a_surrogate_pair_is_a_question_mark(exact: Encoder) -> None:
    np.testing.assert_array_equal(exact.encode("rain \ud800"), exact.encode("rain ?"))


def test_more_texts_than_are_tokenised_at_once(exact: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = exact.encode(SENTENCES)
    monkeypatch.setattr("xcompress.bundle.tokenizer._TEXTS_AT_ONCE", 2)
    np.testing.assert_allclose(exact.encode(SENTENCES), expected, atol=1e-5)


@pytest.mark.parametrize(("precision", "width"), [("float32", 96), ("int8", 24), ("ubinary", 3)])
def test_many_vectors_take_little_more_memory_than_they_are_stored_in(
    precision: VectorPrecision, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, texts = Encoder(bundle(), threads=1), ["rain"] * 40_000
    monkeypatch.setattr("xcompress.bundle.tokenizer._TEXTS_AT_ONCE", 1000)
    monkeypatch.setattr(
        encoder, "_run", lambda sequences, _: np.eye(24, dtype=np.float32)[np.arange(len(sequences)) % 24]
    )
    monkeypatch.setattr(encoder._tokenizer, "token_ids", lambda texts, _: [[1]] * len(texts))
    encoder.encode(texts[:5], precision=precision)
    tracemalloc.start()
    try:
        stored = encoder.encode(texts, precision=precision)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stored.nbytes == 40_000 * width
    assert peak < stored.nbytes + 1_000_000, "with a list of the texts, and what a step takes"


def test_top_k_has_the_best_first() -> None:
    assert top_k(np.array([0.1, 0.9, 0.5, 0.9]), 3).tolist() == [1, 3, 2]
    assert top_k(np.array([[1.0, 2.0], [4.0, 3.0]]), 1).tolist() == [[1], [0]]
    assert top_k(np.array([1.0, 2.0]), 5).tolist() == [1, 0]
    assert top_k(np.array([1.0]), 0).tolist() == []


@pytest.mark.skipif("tiny" not in released_names(), reason="the released models are not in this tree")
@pytest.mark.parametrize("documented", [Encoder, Encoder.from_pretrained, Encoder.encode, top_k])
def test_the_examples_of_the_documentation_run(documented: Callable[..., object]) -> None:
    (examples,) = doctest.DocTestFinder(recurse=False).find(documented, "example", globs=vars(runtime).copy())
    assert examples.examples
    result = doctest.DocTestRunner().run(examples)
    assert result.failed == 0


def test_a_pretrained_encoder_is_a_folder_or_a_released_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(released, "MODELS", tmp_path / "models")
    for place in ("models/small", "models/other", "here/runs/a/bundle"):
        shutil.copytree(bundle(), tmp_path / place)
        change_manifest(tmp_path / place, languages=[Path(place).name])
    monkeypatch.chdir(tmp_path / "here")

    def languages(*name: str | Path) -> tuple[str, ...]:
        return Encoder.from_pretrained(*name).languages

    assert languages() == languages("small") == ("small",)
    assert languages("other") == ("other",)
    assert languages("runs/a/bundle") == languages(Path("runs/a/bundle")) == languages("./runs/a/bundle") == ("bundle",)
    assert Encoder.from_pretrained("small", precision="fp32", threads=1).precision == "fp32"
    for name, message in (
        ("smal", "smal: neither a folder nor a released model; choose small or other"),
        ("./other", "other: no such folder"),
        ("runs/bundle", "runs/bundle: no such folder"),
        (Path("other"), "other: no such folder; give a bundle"),
    ):
        with pytest.raises(InputError, match=message):
            Encoder.from_pretrained(name)
    with pytest.raises(InputError, match=r"other: no such folder; Encoder\.from_pretrained\('other'\) opens"):
        Encoder("other")


def test_a_bundle_in_the_home_folder_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(bundle().parent))
    for path in ("~/small-bundle", Path("~/small-bundle")):
        assert Encoder(path).folder == Encoder.from_pretrained(path).folder == bundle().resolve()


def test_importing_the_runtime_imports_nothing_else() -> None:
    code = (
        "import sys\nfrom xcompress import Encoder\n"
        f"print([name for name in {REFUSED} if name in sys.modules], Encoder.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["[]", "xcompress.bundle.encoder"]


def test_the_package_alone_does_not_even_import_numpy() -> None:
    code = "import sys, xcompress\nprint('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "False"


def test_neither_torch_nor_transformers_is_needed(encoder: Encoder) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'onnx', 'sentence_transformers', 'scipy', 'rich', 'pydantic'):\n"
        "    sys.modules[name] = None\n"
        "from xcompress.bundle.encoder import Encoder\n"
        "print(*Encoder(sys.argv[1], threads=1).encode('rain'))\n"
    )
    command = [sys.executable, "-c", code, str(bundle())]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose([float(number) for number in done.stdout.split()], encoder.encode("rain"), atol=1e-5)


PADDING_BOUND = 1e-7
"""How far an element of a vector may move with the length of its batch in float32."""
PADDING_BOUND_INT8 = 2e-7
"""The same in int8, as the documentation says: an element of 0.53 moved by two units in the last place, 1.2e-7, on
processors with and without AVX-512 and AMX, and by one or none on others."""
ODD_LENGTHS = [" ".join(["the boat is late"] * (1 + number % 7)) + " rain" * (number % 4) for number in range(64)]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_sentence_has_the_same_vector_alone_and_among_others(precision: Literal["fp32", "int8"]) -> None:
    encoder = Encoder(bundle(), precision=precision, threads=1)
    alone = np.stack([encoder.encode(text) for text in ODD_LENGTHS])
    bound = PADDING_BOUND_INT8 if precision == "int8" else PADDING_BOUND
    np.testing.assert_allclose(encoder.encode(ODD_LENGTHS), alone, rtol=0, atol=bound)


class SeveralCalls:
    """A session in which the first calls wait for each other, as only calls at the same time can."""

    def __init__(self, session: Session, threads: int) -> None:
        self.session, self.calls, self.together = session, count(1), threading.Barrier(threads)

    def run(self, outputs: Sequence[str], feeds: Any) -> Any:  # noqa: ANN401 - as the session's own
        if next(self.calls) <= self.together.parties:
            self.together.wait(timeout=30)
        return self.session.run(outputs, feeds)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_of_many_batches_each_thread_takes_some(precision: Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[SeveralCalls] = []

    def open_session(*facts: Any, streams: bool = False) -> Any:  # noqa: ANN401 - whatever is handed on
        session = open_in_engine(*facts, streams=streams)
        if not streams:
            return session
        assert session.get_session_options().intra_op_num_threads == 1  # type: ignore[union-attr]
        opened.append(SeveralCalls(session, 3))
        return opened[-1]

    open_in_engine = runtime.open_session
    monkeypatch.setattr(runtime, "open_session", open_session)
    encoder = Encoder(bundle(), precision=precision, threads=3)
    encoder.encode(ODD_LENGTHS[:63], batch_size=1)
    assert not opened
    vectors = [encoder.encode(ODD_LENGTHS, batch_size=1) for _ in range(2)]
    assert [next(session.calls) for session in opened] == [129]
    alone = Encoder(bundle(), precision=precision, threads=1).encode(ODD_LENGTHS, batch_size=1)
    assert all(np.array_equal(some, alone) for some in vectors)


def test_the_error_of_one_of_many_batches_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(outputs: Sequence[str], feeds: dict[str, np.ndarray]) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(Encoder, "_for_many_batches", SimpleNamespace(run=run))
    with pytest.raises(MemoryError, match="no room"):
        Encoder(bundle(), threads=2).encode(ODD_LENGTHS, batch_size=1)


AT_EXIT = """
import atexit, sys
from xcompress import Encoder
encoder = Encoder(sys.argv[1], threads=2)
atexit.register(lambda: print(encoder.encode(["rain"] * 70, batch_size=1).shape))
"""


def test_many_batches_are_encoded_where_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a limit on threads, and when the interpreter ends."""
    expected, encoder = Encoder(bundle(), threads=1).encode(ODD_LENGTHS, batch_size=1), Encoder(bundle(), threads=2)

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", start)
        np.testing.assert_array_equal(encoder.encode(ODD_LENGTHS, batch_size=1), expected)
    command = python_command("-c", AT_EXIT, str(bundle()))
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "(70, 24)\n"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_table_is_refused_and_its_columns_are_encoded_and_compared(exact: Encoder, library: str) -> None:
    table = pytest.importorskip(library).DataFrame({"text": SENTENCES})
    with pytest.raises(InputError, match=r"texts are DataFrame of 2 dimensions; give one column, as in df\['text'\]"):
        exact.encode(table)
    vectors = exact.encode(SENTENCES)
    np.testing.assert_array_equal(exact.encode(table["text"]), vectors)
    column = type(table)({"vector": vectors.tolist()})["vector"]
    np.testing.assert_allclose(exact.similarity(vectors, column), exact.similarity(vectors, vectors), atol=1e-6)
    with pytest.raises(InputError, match="similarity: right is not an array of numbers; give what `encode` returns"):
        exact.similarity(vectors, table["text"])


def test_a_phone_and_a_gpu_take_one_batch_at_a_time(bundle_copy: Path) -> None:
    class OnGpu(onnxruntime.InferenceSession):  # type: ignore[misc]
        def get_providers(self) -> list[str]:
            return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    encoder = Encoder(bundle_copy, threads=2)
    encoder.session = OnGpu(str(bundle_copy / "onnx/model_quantized.onnx"), providers=["CPUExecutionProvider"])
    encoder.encode(ODD_LENGTHS, batch_size=1)
    assert encoder._for_many_batches is None
    change_manifest(bundle_copy, target="mobile")
    encoder = Encoder(bundle_copy)
    encoder.encode(ODD_LENGTHS, batch_size=1)
    assert encoder._opened_again is None


@pytest.mark.skipif("tiny" not in released_names(), reason="the released models are not in this tree")
def test_a_released_model_gives_the_same_vector_alone_and_among_others() -> None:
    encoder, texts = Encoder.from_pretrained("tiny", threads=1), real_sentences()[:96]
    alone = np.stack([encoder.encode(text) for text in texts])
    np.testing.assert_allclose(encoder.encode(texts), alone, rtol=0, atol=PADDING_BOUND)
    np.testing.assert_allclose(encoder.encode(texts[::-1])[::-1], alone, rtol=0, atol=PADDING_BOUND)


MANY_DIGITS = 10**5000
"""Python refuses to write it."""


@pytest.mark.parametrize(
    "size", [None, 0, -1, 2.5, "8", True, float("nan"), [1], pytest.param(-MANY_DIGITS, id="many digits")]
)
def test_a_batch_size_is_a_positive_whole_number(encoder: Encoder, size: object) -> None:
    with pytest.raises(InputError, match=r"encode: batch_size is .*; (it must be|give) ") as error:
        encoder.encode(SENTENCES, size)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
    assert encoder.encode(SENTENCES, np.int64(2)).shape == (5, 24)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "threads", [2.5, "2", -1, True, float("nan"), [2], 1025, pytest.param(MANY_DIGITS, id="many digits")]
)
def test_threads_are_a_positive_whole_number(threads: object) -> None:
    with pytest.raises(InputError, match=r"Encoder: threads is "):
        Encoder(bundle(), threads=threads)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [None, 5, b"small", ["small"], True])
def test_a_path_is_text_or_a_path(path: object) -> None:
    for make in (Encoder, Encoder.from_pretrained, Encoder.released):
        with pytest.raises(InputError, match=r"^Encoder: .* is not a folder or a name; give "):
            make(path)  # type: ignore[operator]


@pytest.mark.parametrize("precision", ["int4", None, 8, ["int8"], np.array(["int8", "fp32"]), "int9" * 100])
def test_a_precision_is_one_of_the_names(precision: object) -> None:
    with pytest.raises(InputError, match=r"precision is .* but the graphs are int8, fp32; choose one") as error:
        Encoder(bundle(), precision=precision)  # type: ignore[arg-type]
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("option", ["precision", "long"])
@pytest.mark.parametrize("value", [np.array([1, 2]), np.array(["cut"]), np.array("float32"), ["mean"], None])
def test_an_option_is_one_of_the_names(encoder: Encoder, option: str, value: object) -> None:
    with pytest.raises(InputError, match=f"^encode: {option} is .*; choose"):
        encoder.encode("rain", **{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [None, 1.5, "3"])
def test_top_k_takes_a_whole_number(k: object) -> None:
    with pytest.raises(InputError, match="top_k: k is "):
        top_k(np.array([0.1, 0.9]), k)  # type: ignore[arg-type]


def test_the_mean_of_windows(encoder: Encoder) -> None:
    """A text of three windows has the mean of their vectors, weighted by tokens; a short text is not changed."""
    limit = encoder.manifest["max_tokens"]
    words = [word for sentence in SENTENCES for word in sentence.split()]
    long = " ".join((words * limit)[: 2 * limit])
    windows = encoder._tokenizer.windows([long, "rain"])
    assert [len(window) for window in windows[0][:2]] == [limit, limit] and len(windows[0]) == 3
    assert windows[0][0] == encoder.token_ids([long])[0] and len(windows[1]) == 1
    each = encoder._run(windows[0], 32)
    expected = sum(len(ids) * vector for ids, vector in zip(windows[0], each, strict=True))
    found = encoder.encode([long, "rain"], long="mean")
    np.testing.assert_allclose(found[0], expected / np.linalg.norm(expected), atol=1e-6)
    np.testing.assert_allclose(found[1], encoder.encode("rain"), atol=1e-6)
    assert encoder.encode(long, long="mean").shape == found[0].shape
    with pytest.raises(InputError, match="encode: long is 'middle'; choose cut or mean"):
        encoder.encode("rain", long="middle")


def test_steps_of_long_texts_have_few_characters(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, rows = ["rain", "the boat is late " * 20, "x" * 900, "snow", "rain"], list[int]()
    expected, windows = encoder.encode(texts, long="mean"), encoder._tokenizer.windows
    monkeypatch.setattr("xcompress.bundle.tokenizer._CHARACTERS_AT_ONCE", 400)
    monkeypatch.setattr(encoder._tokenizer, "windows", lambda some, *_: rows.append(len(some)) or windows(some))
    np.testing.assert_allclose(encoder.encode(texts, long="mean"), expected, atol=1e-6)
    assert rows == [2, 1, 2]


def test_the_error_of_a_generator_is_its_own(encoder: Encoder) -> None:
    with pytest.raises(TypeError, match="can only concatenate str"):
        encoder.encode(text + 1 for text in SENTENCES)  # type: ignore[operator]
    with pytest.raises(InputError, match="encode: texts are dict; give a string or a list"):
        encoder.encode({"rain": 1})  # type: ignore[arg-type]
