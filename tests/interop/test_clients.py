"""Other libraries open a bundle unchanged and give the same vectors.

Texts are encoded one at a time: an int8 vector depends slightly on the rest of its batch.
"""

import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.helpers import GRADED
from tests.helpers.export import use_little_text
from tests.helpers.student import make_student
from xcompress.bundle.encoder import Encoder
from xcompress.corpus.graded import read_folder
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.metrics import cosines
from xcompress.modeling.student import Student, encode

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("offline")]
"""Slow: the exports that all tests share take most of the time."""
TEXTS = [
    "The ferry to the island leaves every morning at eight.",
    "Die Rechnung liegt auf dem Küchentisch, neben der Brille.",
    "Où se trouve la pharmacie la plus proche ?",
    "El perro duerme bajo el árbol después de comer.",
    "Il treno per Torino è in ritardo di dodici minuti.",
    "Kütüphane bugün öğleden sonra kapalı olacak.",
    "السفينة تصل إلى الميناء غدا",
    "今日は雨が降っています。",
    "Thanks a lot 🎉👍🏽 see you at 7:30!",
    "",
    "  ",
    "one word after another " * 60,
]
KINDS = {"plain": {"head_size": None}, "head": {"head_size": 24}}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
HERE = Path(__file__).parent
GRAPHS = {"int8": "onnx/model_quantized.onnx", "int4": "onnx/model_q4.onnx", "fp32": "onnx/model.onnx"}
DTYPES = {"int8": "q8", "int4": "q4", "fp32": "fp32"}
Bundles = dict[tuple[str, str], Path]
"""By kind of student and precision."""
Vectors = np.ndarray


def make_tokenizer() -> Tokenizer:
    """Make pieces of words, as XLM-R has them, in small: letters and frequent words, the same ones in every process.

    The words of `TEXTS` are among the frequent ones, so that the texts differ in more than their letters.
    """
    words = [f"▁{word}" for text in [*read_folder(GRADED).sentences(), *TEXTS[:7] * 9] for word in text.split()]
    letters = Counter("".join(words))
    frequent = [pair for pair in Counter(words).most_common() if len(pair[0]) > 1]
    pieces = [*letters.most_common(250), *frequent][: 390 - len(SPECIAL)]
    scores = [(piece, math.log(count / len(words) / 10 ** (len(piece) == 1))) for piece, count in pieces]
    tokenizer = Tokenizer(models.Unigram([*((piece, 0.0) for piece in SPECIAL), *scores], unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    place, made, int4 = tmp_path_factory.mktemp("clients"), {}, ExportConfig(precision="int4")
    for kind, changes in KINDS.items():
        (place / kind).mkdir()
        student = make_student(prefix="", **changes)
        with torch.no_grad():
            student.embeddings.word.weight.mul_(100)  # so that other tokens give clearly other vectors
        student.save(place / kind, make_tokenizer())
        with pytest.MonkeyPatch.context() as monkeypatch:
            use_little_text(monkeypatch)
            made[kind, "int8"] = made[kind, "fp32"] = export(place / kind)
            made[kind, "int4"] = export(place / kind, place / f"{kind}-int4", options=int4)
    return made


@pytest.fixture(params=[(kind, precision) for kind in KINDS for precision in GRAPHS], ids="-".join)
def opened(request: pytest.FixtureRequest, bundles: Bundles) -> tuple[Path, str]:
    _, precision = request.param
    return bundles[request.param], precision


def one_by_one(encode_texts: Callable[[list[str]], Vectors]) -> Vectors:
    return np.concatenate([np.asarray(encode_texts([text])) for text in TEXTS])


def open_tokenizer(bundle: Path) -> Tokenizer:
    return Tokenizer.from_file(str(bundle / "tokenizer.json"))


def plain_vectors(bundle: Path, precision: str, sequences: list[list[int]] | None = None) -> Vectors:
    """Use nothing but onnxruntime and tokenizers; `sequences` are other token ids than the tokenizer's."""
    session = onnxruntime.InferenceSession(bundle / GRAPHS[precision], providers=["CPUExecutionProvider"])
    rows = []
    for ids in sequences or [line.ids for line in map(open_tokenizer(bundle).encode, TEXTS)]:
        row = np.array([ids], dtype=np.int64)
        rows.append(session.run(["sentence_embedding"], {"input_ids": row, "attention_mask": np.ones_like(row)})[0])
    return np.concatenate(rows)


def check(found: Vectors, expected: Vectors) -> None:
    assert found.shape == expected.shape
    assert cosines(found, expected).min() >= 0.9999
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-4)


def test_the_texts_are_short_long_and_different(bundles: Bundles) -> None:
    tokenizer = open_tokenizer(bundles["plain", "fp32"])
    lengths = [len(line.ids) for line in map(tokenizer.encode, TEXTS)]
    assert (min(lengths), max(lengths)) == (2, 128)
    tokenizer.no_truncation()
    assert len(tokenizer.encode(TEXTS[-1]).ids) > 200
    vectors = plain_vectors(bundles["plain", "fp32"], "fp32")[[*range(9), 11]]
    assert (vectors @ vectors.T - np.eye(len(vectors))).max() < 0.99


def test_our_encoder(opened: tuple[Path, str]) -> None:
    bundle, precision = opened
    check(one_by_one(Encoder(bundle, precision=precision).encode), plain_vectors(bundle, precision))


def test_optimum(opened: tuple[Path, str]) -> None:
    optimum = pytest.importorskip("optimum.onnxruntime", reason="optimum is not installed")
    transformers = pytest.importorskip("transformers")
    bundle, precision = opened
    tokenizer = transformers.AutoTokenizer.from_pretrained(bundle)
    folder, name = GRAPHS[precision].split("/")
    model = optimum.ORTModelForFeatureExtraction.from_pretrained(bundle, subfolder=folder, file_name=name)

    def run(texts: list[str]) -> Vectors:
        batch = tokenizer(texts, truncation=True, padding=True, return_tensors="pt")
        means = model(**batch).last_hidden_state.mean(1)
        return (means / means.norm(dim=-1, keepdim=True)).numpy()

    check(one_by_one(run), plain_vectors(bundle, precision))


def test_sentence_transformers(opened: tuple[Path, str]) -> None:
    pytest.importorskip("optimum.onnxruntime", reason="optimum is not installed")
    package = pytest.importorskip("sentence_transformers")
    bundle, precision = opened
    options = {"file_name": GRAPHS[precision], "provider": "CPUExecutionProvider"}
    model = package.SentenceTransformer(str(bundle), backend="onnx", model_kwargs=options)
    check(one_by_one(model.encode), plain_vectors(bundle, precision))


def test_fastembed(opened: tuple[Path, str]) -> None:
    package = pytest.importorskip("fastembed", reason="fastembed is not installed")
    description = pytest.importorskip("fastembed.common.model_description")
    bundle, precision = opened
    name = f"{bundle.name}-{precision}"
    package.TextEmbedding.add_custom_model(
        model=name,
        pooling=description.PoolingType.MEAN,
        normalization=True,
        sources=description.ModelSource(hf="not/asked"),
        dim=Encoder(bundle).dimension,
        model_file=GRAPHS[precision],
    )
    model = package.TextEmbedding(name, specific_model_path=str(bundle), providers=["CPUExecutionProvider"])
    check(one_by_one(lambda texts: list(model.embed(texts))), plain_vectors(bundle, precision))


@pytest.fixture(scope="module")
def node_vectors(
    bundles: Bundles, node_packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[list[float]]]:
    place = tmp_path_factory.mktemp("node")
    opened = [(str(bundle), DTYPES[precision]) for (_, precision), bundle in bundles.items()]
    work = {"opened": opened, "texts": TEXTS}
    (place / "question.json").write_text(json.dumps(work))
    script = str(HERE / "clients/feature_extraction.mjs")
    command = ["node", script, str(place / "question.json"), str(place / "answer.json")]
    done = subprocess.run(command, cwd=node_packages, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((place / "answer.json").read_text())


@pytest.mark.network
def test_transformers_js(opened: tuple[Path, str], node_vectors: dict[str, list[list[float]]]) -> None:
    bundle, precision = opened
    tokenizer = open_tokenizer(bundle)
    tokenizer.no_truncation()
    # where it cuts a text, transformers.js (4.3) cuts the closing token off as well, whatever the model
    sequences = [tokenizer.encode(text).ids[:128] for text in TEXTS]
    found = np.array(node_vectors[f"{bundle} {DTYPES[precision]}"])
    check(found, plain_vectors(bundle, precision, sequences))
    check(found[:-1], plain_vectors(bundle, precision)[:-1])


def test_no_client_changed_the_folder(bundles: Bundles) -> None:
    for bundle in bundles.values():
        listed = json.loads((bundle / "manifest.json").read_text())["files"]
        found = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}
        assert found == {*listed, "manifest.json"}


@pytest.mark.exhaustive
def test_optimum_exports_a_student(bundles: Bundles, tmp_path: Path) -> None:
    pytest.importorskip("optimum.exporters.onnx", reason="optimum-onnx is not installed")
    transformers = pytest.importorskip("transformers")
    student = bundles["head", "fp32"].with_name("head")
    paths = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "optimum.commands.optimum_cli", "export", "onnx", "--model", str(student)]
    done = subprocess.run(
        [*command, "--task", "feature-extraction", str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    session = onnxruntime.InferenceSession(tmp_path / "out/model.onnx")
    batch = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="np")
    found = session.run(["sentence_embedding"], dict(batch))[0]
    np.testing.assert_allclose(found, encode(*Student.load(student), TEXTS), atol=1e-5)
