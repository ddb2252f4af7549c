import shutil
import tracemalloc
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

from xcompress import metrics
from xcompress.corpus.labelled import GradedPair
from xcompress.distillation import distributed
from xcompress.distillation.data import augment
from xcompress.distillation.data.augment import cross_encoder, grade, neighbour_pairs
from xcompress.errors import InputError
from xcompress.files import read_json, write_json
from xcompress.recipe.schema import AugmentSection

WORDS = ["the", "a", "boat", "ship", "late", "is", "was", "red", "blue", "near", "far", "old", "new", "harbour"]
SHAPE = {
    "vocab_size": 32,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "initializer_range": 0.2,
}
PAIRS = [
    ("the boat is late", "a ship was late"),
    ("red", "blue"),
    ("the old ship near the harbour is red", "a new boat"),
    ("near", "the old harbour was far"),
]


def save(folder: Path, kind: type[Any], labels: int = 1) -> Path:
    """Write a random model of 2 layers and a tokenizer of some words."""
    torch.manual_seed(1)
    kind(BertConfig(**SHAPE, num_labels=labels)).eval().save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **special).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder without an output layer."""
    return save(tmp_path_factory.mktemp("bare"), BertModel)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("ready"), BertForSequenceClassification)


@pytest.fixture
def graded() -> list[GradedPair]:
    """Draw 24 pairs of five words with random scores, which can only be memorised."""
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, 5)) for _ in range(48)]
    scores = generator.choice([0.1, 0.9], 24).tolist()
    return [GradedPair(*pair) for pair in zip(texts[::2], texts[1::2], scores, strict=True)]


def by_loops(sentences: list[str], vectors: np.ndarray, known: list[tuple[str, str]], count: int) -> list:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs: list[tuple[str, str]] = []
    for row in range(len(sentences)):
        others = [other for other in range(len(sentences)) if other != row]
        for other in sorted(others, key=lambda other: -(unit[row] @ unit[other]))[:count]:
            pair = (sentences[row], sentences[other])
            if not {pair, pair[::-1]} & {*known, *pairs}:
                pairs.append(pair)
    return pairs


@pytest.mark.parametrize("cells", [1, 70, 10_000])
def test_neighbours_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    monkeypatch.setattr(metrics, "MAX_COSINES", cells)
    vectors = np.random.default_rng(3).normal(size=(30, 5)).astype(np.float32)
    sentences = [f"s{row}" for row in range(30)]
    everything = by_loops(sentences, vectors, [], 4)
    known = [everything[3], everything[10][::-1], ("s0", "elsewhere")]
    found = neighbour_pairs(sentences, vectors, known, 4)
    assert found == by_loops(sentences, vectors, known, 4)
    assert 0 < len(found) < len(everything) <= 30 * 4
    assert len({frozenset(pair) for pair in found}) == len(found)


def test_neighbours_taken_count_known_pairs() -> None:
    """The nearest sentence is chosen first. If the pair is known, it is left out, and no other takes its place."""
    vectors = np.array([[1, 0], [1, 0.1], [0, 1]], dtype=np.float32)
    assert neighbour_pairs(["a", "b", "c"], vectors, [("b", "a")], 1) == [("c", "b")]


def test_fewer_sentences_than_neighbours() -> None:
    vectors = np.eye(3, dtype=np.float32)
    assert len(neighbour_pairs(["a", "b", "c"], vectors, [], 10)) == 3
    assert neighbour_pairs(["a"], vectors[:1], [], 10) == []


def test_no_matrix_of_all_cosines_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_COSINES", 1 << 16)
    count = 3000
    vectors = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    tracemalloc.start()
    neighbour_pairs([str(row) for row in range(count)], vectors, [], 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < count * count, "a quarter of what the matrix would take"


def test_grades_are_the_models_own_in_the_order_of_the_pairs(
    ready: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(augment, "fast_inference", nullcontext)
    monkeypatch.setattr(augment, "GRADING_CHUNK", 3)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(ready)
    model = BertForSequenceClassification.from_pretrained(ready).eval()
    capsys.readouterr()
    found = grade(cross_encoder(ready, [], 0, seed=1), PAIRS)
    assert capsys.readouterr().err == "", "transformers shows a progress bar of its own"
    assert [(one.first, one.second) for one in found] == PAIRS
    with torch.no_grad():
        expected = [model(**tokenizer(*pair, return_tensors="pt")).logits.sigmoid().item() for pair in PAIRS]
    assert [one.score for one in found] == pytest.approx(expected, abs=1e-6)
    assert max(expected) - min(expected) > 0.01, "equal grades would hide a wrong order"
    assert grade(cross_encoder(ready, [], 0, seed=1), []) == []


def test_training_learns_the_scores_and_depends_on_the_seed_alone(
    bare: Path, graded: list[GradedPair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(augment, "LEARNING_RATE", 3e-3)
    pairs = [(one.first, one.second) for one in graded]

    def grades(epochs: float, seed: int) -> np.ndarray:
        model = cross_encoder(bare, graded, epochs, seed)
        assert not model.training
        return np.array([one.score for one in grade(model, pairs)])

    scores = np.array([one.score for one in graded])
    assert np.abs(grades(60, seed=1) - scores).mean() < 0.15
    short = grades(0.5, seed=1)
    assert np.abs(short - scores).mean() > 0.25
    np.testing.assert_array_equal(short, grades(0.5, seed=1))
    assert np.abs(short - grades(0.5, seed=2)).max() > 0.01


def test_training_writes_nothing_into_the_models_folder(ready: Path, graded: list[GradedPair]) -> None:
    before = {path: path.read_bytes() for path in ready.iterdir()}
    cross_encoder(ready, graded, 0.1, seed=1)
    assert {path: path.read_bytes() for path in ready.iterdir()} == before


def test_models_that_cannot_grade_are_refused(bare: Path, ready: Path, tmp_path: Path) -> None:
    three = save(tmp_path / "three", BertForSequenceClassification, labels=3)
    for folder, says in {
        bare: "has no output layer for grades; set epochs",
        three: "cannot be opened as a cross-encoder with one output",
        tmp_path / "none": "holds neither modules.json nor config.json",
        ready / "config.json": "holds neither modules.json nor config.json",
    }.items():
        with pytest.raises(InputError, match=f"labelled.augment.cross_encoder: .*{says}") as caught:
            cross_encoder(folder, [], 0, seed=1)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bias", [7.0, float("nan")])
def test_grades_outside_0_to_1_are_refused(ready: Path, bias: float) -> None:
    model = cross_encoder(ready, [], 0, seed=1)
    model.activation_fn = nn.Identity()
    model.model.classifier.bias.data.fill_(bias)
    with pytest.raises(InputError, match=r"grades from \S+ to \S+, but training needs 0 to 1"):
        grade(model, PAIRS)


def test_several_workers_cannot_train_a_cross_encoder(
    ready: Path, graded: list[GradedPair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    with pytest.raises(InputError, match=r"labelled\.augment\.epochs: is 1, .* not by 2; start the run without a lau"):
        cross_encoder(ready, graded, 1, seed=1)
    assert len(grade(cross_encoder(ready, graded, 0, seed=1), PAIRS)) == len(PAIRS)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("config.json", {"auto_map": {"AutoModelForSequenceClassification": "evil.Evil"}}),
        ("config.json", {"sentence_transformers": {"activation_fn": "evil.Evil"}}),
        ("config.json", {"sentence_transformers": {"activation_fn": "torch.hub.load"}}),
        ("config.json", {"sbert_ce_default_activation_function": "evil.Evil"}),
        ("modules.json", [{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]),
    ],
)
def test_code_in_a_cross_encoders_folder_never_runs(name: str, change: Any, ready: Path, tmp_path: Path) -> None:  # noqa: ANN401
    folder = Path(shutil.copytree(ready, tmp_path / "model"))
    (folder / "evil.py").write_text(
        "import pathlib; pathlib.Path(__file__).with_name('ran').touch()\nclass Evil: pass\n"
    )
    values = read_json(folder / name) if (folder / name).is_file() else {}
    write_json(folder / name, change if isinstance(change, list) else values | change)
    with pytest.raises(InputError, match=f"{name}: .*set labelled.augment.trust_remote_code to true"):
        cross_encoder(folder, [], 0, seed=1)
    assert not list(tmp_path.rglob("ran"))


def test_a_cross_encoder_in_a_recipe_runs_code_only_by_choice() -> None:
    section = {"cross_encoder": "org/name"}
    assert not AugmentSection(**section).trust_remote_code
    assert AugmentSection(**section).model_dump() == AugmentSection(**section, trust_remote_code=False).model_dump()
    assert "trust_remote_code" not in AugmentSection(**section).model_dump(by_alias=True)
    assert AugmentSection(**section, trust_remote_code=True).model_dump()["trust_remote_code"]
