"""Options of a recipe, each in a run of a few steps."""

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.helpers.foreign import encoder
from tests.helpers.recipe import SHAPE, stages_of, write_labelled, write_recipe
from tests.helpers.runs import CONTRAST, TRAINING, load_finite, run
from xcompress.bundle.encoder import Encoder
from xcompress.corpus.graded import DATA, builtin
from xcompress.distillation.pipeline import _check_sources, distill
from xcompress.distillation.plan import plan
from xcompress.distillation.teachers.ensemble import FrozenEncoder
from xcompress.distillation.teachers.vectors import student_encoder
from xcompress.errors import InputError
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.files import read_json
from xcompress.metrics import Encode, cosines
from xcompress.modeling.four_bits import RoundToFourBits, block_size_for
from xcompress.modeling.load import import_encoder
from xcompress.modeling.student import Student, encode
from xcompress.recipe import Recipe, load_recipe
from xcompress.recipe.lineage import runs_before

IMITATION = f"stages={{imitation: {{train: student, objectives: {{assistant: 1}}, {TRAINING}}}}}"
FUNCTION = '''
import numpy as np

def encode(texts):
    """Return a hashed bag of words, (N, 40): an assistant without layers."""
    vectors = np.zeros((len(texts), 40), dtype=np.float32)
    for row, text in enumerate(texts):
        for word in text.split():
            vectors[row, sum(word.encode()) % 40] += 1
    return vectors
'''


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"))


@pytest.fixture
def bag_of_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The source of a Python function whose vectors have 40 dimensions."""
    (tmp_path / "bag_of_words.py").write_text(FUNCTION)
    monkeypatch.syspath_prepend(tmp_path)
    yield "'python:bag_of_words:encode'"
    sys.modules.pop("bag_of_words", None)


def test_an_assistant_may_be_a_python_function(bag_of_words: str, recipe_file: Path, tmp_path: Path) -> None:
    layers = load_recipe(recipe_file).assistant.source
    changes = [IMITATION, f"assistant={{source: {bag_of_words}, layers_from: {{source: {layers}}}}}"]
    finished, facts = run(recipe_file, tmp_path, *changes)
    assert facts["start"]["assistant"]["retrieval"].keys() == {"de", "fr"}, "the function itself is scored"
    assert facts["start"]["widths"] == {"by": "head", "teacher": 32, "encoder": 32, "student": 32}
    assert read_json(finished / "manifest.json")["models"].keys() == {"teacher", "assistant", "layers_from"}
    load_finite(finished)


def test_vectors_of_a_python_function_are_reduced_to_the_encoders_width_where_no_teacher_gives_one(
    bag_of_words: str, recipe_file: Path, tmp_path: Path
) -> None:
    layers = load_recipe(recipe_file).assistant.source
    assistant = f"assistant={{source: {bag_of_words}, layers_from: {{source: {layers}}}}}"
    message = "widths: head, but the targets have 40 dimensions and the encoder 32; use pca, as a head needs a teacher"
    with pytest.raises(InputError, match=message):
        run(recipe_file, tmp_path, IMITATION, assistant, "teacher=null")
    finished, _ = run(recipe_file, tmp_path, IMITATION, assistant, "teacher=null", "widths=pca")
    assert load_finite(finished).config.dimension == 32


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("widths=equal", "widths: equal, but the targets have 40 dimensions and the encoder 32; use head or pca"),
        ("teacher.dimensions=50", "teacher.dimensions cannot widen vectors of width 40 to 50; choose 40 or fewer"),
    ],
)
def test_one_vector_of_the_teacher_shows_a_wrong_width(
    change: str, says: str, bag_of_words: str, recipe_file: Path, tmp_path: Path
) -> None:
    recipe = load_recipe(recipe_file, [CONTRAST, f"teacher={{source: {bag_of_words}}}", change])
    with pytest.raises(InputError, match=says):
        distill(recipe, tmp_path / "run")
    (file,) = tmp_path.glob("run/vectors/*/vectors.npy")
    assert len(np.load(file)) == 1


def test_a_teacher_whose_width_is_checked_is_opened_once(
    bag_of_words: str, recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, opened = FrozenEncoder.load, list[str]()
    monkeypatch.setattr(FrozenEncoder, "load", lambda self: [opened.append(self.key), load(self)][1])
    run(recipe_file, tmp_path, CONTRAST, f"teacher={{source: {bag_of_words}}}", "widths=pca")
    assert opened == ["teacher"]


def test_widths_are_compared_with_the_vectors_of_a_student_whose_head_stays(
    bag_of_words: str, recipe_file: Path, tmp_path: Path
) -> None:
    wide = f"teacher={{source: {bag_of_words}}}"
    first, _ = run(recipe_file, tmp_path / "first", CONTRAST, wide)
    assert (load_finite(first).config.hidden_size, load_finite(first).config.dimension) == (32, 40)
    assistant = f"assistant={{source: {first / 'student'}}}"
    finished, _ = run(recipe_file, tmp_path / "then", CONTRAST, wide, assistant, "widths=equal")
    assert load_finite(finished).config.dimension == 40
    with pytest.raises(InputError, match="widths: equal, but the targets have 32 dimensions and the encoder 40"):
        run(recipe_file, tmp_path / "refused", CONTRAST, assistant, "widths=equal")


def test_embeddings_may_come_from_another_encoder(unigram_assistant: str, recipe_file: Path, tmp_path: Path) -> None:
    embeddings_from = unigram_assistant.removeprefix("assistant=")
    source = load_recipe(recipe_file).assistant.source
    assistant = f"assistant={{source: {source}, embeddings_from: {embeddings_from}}}"
    finished, _ = run(recipe_file, tmp_path, CONTRAST, assistant)
    reference, tokenizer = Student.load(finished / "reference")
    (layers, _), (embeddings, unigram) = (import_encoder(tmp_path / name) for name in (source, "assistant"))
    assert tokenizer.to_str() == unigram.to_str()
    assert torch.equal(reference.embeddings.word.weight, embeddings.embeddings.word.weight)
    assert torch.equal(reference.unit[0].output.weight, layers.unit[0].output.weight)


@pytest.mark.slow
def test_layers_and_head_of_a_finished_student_go_with_full_embeddings_of_another_encoder(
    unigram_assistant: str, recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    embeddings_from = unigram_assistant.removeprefix("assistant=")
    earlier = load_finite(run(recipe_file, tmp_path / "first", CONTRAST, "corpus.holdout=20")[0])
    assert earlier.config.bottleneck and earlier.config.bottleneck < earlier.config.hidden_size
    assistant = (
        f"assistant={{source: {tmp_path}/first/run/student, embeddings_from: {embeddings_from}, "
        "shape: null, sha256: null}"
    )
    finished, _ = run(recipe_file, tmp_path / "then", CONTRAST, "widths=equal", assistant)
    message = f"pairs are not scored, as {tmp_path}/first/run trained on one of their sentences"
    assert message in " ".join(capsys.readouterr().err.split()), "the first run held out 20 sentences"
    start, _ = Student.load(finished / "start")
    reference, _ = Student.load(finished / "reference")
    assert reference.config.bottleneck is None
    table = import_encoder(tmp_path / "assistant")[0].embeddings.word.weight
    assert torch.equal(reference.embeddings.word.weight, table)
    assert torch.equal(start.unit[0].output.weight, earlier.unit[0].output.weight)
    assert torch.equal(start.head.weight, earlier.head.weight)
    assert load_finite(finished).config.bottleneck == earlier.config.bottleneck


@pytest.mark.slow
def test_a_student_starts_from_the_mean_of_several(recipe_file: Path, tmp_path: Path) -> None:
    """Two runs from one assistant, with other seeds; the third starts from the means of their weights."""
    students = []
    for seed in (1, 2):
        changes = (CONTRAST, f"stages.contrast.seed={seed}")
        students.append(load_finite(run(recipe_file, tmp_path / str(seed), *changes)[0]).state_dict())
    one, other = (f"{tmp_path}/{seed}/run/student" for seed in (1, 2))
    soup = f"assistant={{source: {one}, soup: [{{source: {other}}}], shape: null, sha256: null}}"
    finished, _ = run(recipe_file, tmp_path / "mean", CONTRAST, "widths=equal", soup)
    for name, weight in Student.load(finished / "reference")[0].state_dict().items():
        torch.testing.assert_close(weight, (students[0][name] + students[1][name]) / 2)
    recipe = load_recipe(finished / "recipe.yaml")
    assert runs_before(recipe) == [tmp_path / "1/run", tmp_path / "2/run"], "the card of a release names both"
    assert "soup.0" in read_json(finished / "manifest.json")["models"]
    narrow = load_recipe(recipe_file, [CONTRAST, "student.bottleneck=4"])
    distill(narrow, tmp_path / "narrow")
    with pytest.raises(InputError, match=r"assistant\.soup\.0: .*narrow.* differs from .* in shape or vocabulary"):
        run(
            recipe_file,
            tmp_path / "refused",
            CONTRAST,
            "widths=equal",
            soup.replace(other, f"{tmp_path}/narrow/student"),
        )


def test_an_assistant_without_layers_needs_layers_from(recipe_file: Path) -> None:
    with pytest.raises(InputError, match="has no layers; name an encoder in layers_from"):
        load_recipe(recipe_file, [IMITATION, "assistant={source: 'python:bag_of_words:encode'}"])
    with pytest.raises(InputError, match="gives only vectors and cannot be trained"):
        load_recipe(recipe_file, ["assistant={source: 'python:a:b', layers_from: {source: somewhere}}"])


def english_sentences(run: Path) -> list[str]:
    files = sorted((run / "corpus").glob("*.tsv"))
    return sorted({line.split("\t")[0] for file in files for line in file.read_text().splitlines()})


def test_a_teacher_may_be_a_table_of_vectors(recipe_file: Path, tmp_path: Path) -> None:
    """The first run lists the sentences without a vector; with their vectors the next run succeeds."""
    vectors, sentences = tmp_path / "api.npy", tmp_path / "api.txt"
    np.save(vectors, np.ones((1, 48)))
    sentences.write_text("Some sentence.\n")
    changes = [CONTRAST, f"teacher={{source: {vectors}}}"]
    with pytest.raises(InputError, match=r"has no vectors for (\d+) of \1 sentences"):
        run(recipe_file, tmp_path, *changes)
    missing = (tmp_path / "api.missing.txt").read_text().splitlines()
    sentences.write_text("".join(f"{text}\n" for text in missing))
    np.save(vectors, np.random.default_rng(1).normal(size=(len(missing), 48)))
    finished, facts = run(recipe_file, tmp_path, *changes)
    assert set(missing) <= set(english_sentences(finished))
    assert facts["start"]["widths"] == {"by": "head", "teacher": 48, "encoder": 32, "student": 48}
    load_finite(finished)


@pytest.mark.slow
def test_pca_reduces_wider_targets(recipe_file: Path, tmp_path: Path) -> None:
    corpus_only = distill(load_recipe(recipe_file, [CONTRAST]), tmp_path / "first")
    texts = english_sentences(corpus_only)
    (tmp_path / "wide.txt").write_text("".join(f"{text}\n" for text in texts))
    np.save(tmp_path / "wide.npy", np.random.default_rng(1).normal(size=(len(texts), 48)))
    wide = f"teacher={{source: {tmp_path / 'wide.npy'}}}"
    finished, facts = run(recipe_file, tmp_path, CONTRAST, wide, "widths=pca")
    assert facts["start"]["widths"] == {"by": "pca", "teacher": 48, "encoder": 32, "student": 32}
    assert load_finite(finished).head is None
    with pytest.raises(InputError, match=r"widths: equal, but the targets have 48 dimensions .* 32"):
        run(recipe_file, tmp_path, CONTRAST, wide, "widths=equal")


def test_equal_widths_without_normalization_have_no_head(recipe_file: Path, tmp_path: Path) -> None:
    finished, facts = run(recipe_file, tmp_path, CONTRAST, "widths=equal", "teacher.normalize=false")
    student = load_finite(finished)
    assert student.head is None and not student.config.normalize
    assert facts["start"]["widths"]["by"] == "equal"


@pytest.fixture(scope="module")
def unigram_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=390, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(builtin().within(["en", "de", "fr"]).every(3).sentences(), trainer)
    return tokenizer


@pytest.fixture
def unigram_assistant(recipe_file: Path, tmp_path: Path, unigram_tokenizer: Tokenizer) -> str:
    """Copy the assistant with a Unigram tokenizer; returns the change to the recipe."""
    folder = shutil.copytree(recipe_file.parent / "assistant", tmp_path / "assistant")
    unigram_tokenizer.save(str(folder / "tokenizer.json"))
    return f"assistant={{source: {folder}}}"


@pytest.mark.parametrize("vocabulary", ["{method: train, size: 250}", "{method: trim}"])
def test_the_student_may_have_its_own_vocabulary(
    vocabulary: str, unigram_assistant: str, recipe_file: Path, tmp_path: Path
) -> None:
    finished, facts = run(recipe_file, tmp_path, CONTRAST, unigram_assistant, f"vocabulary={vocabulary}")
    before, after = (facts["start"]["vocabulary"][name] for name in ("before", "after"))
    assert before == SHAPE["vocab_size"] and after < before
    assert Tokenizer.from_file(str(finished / "student/tokenizer.json")).get_vocab_size() == after
    assert load_finite(finished).config.vocab_size == after
    assert "train" not in vocabulary or after <= 250


@pytest.mark.parametrize(
    ("vocabulary", "key", "text"),
    [
        ("{method: trim}", "monolingual.text=[{{source: {}, language: en}}]", "How naïve that is!\nThat is naïve.\n"),
        ("{method: train}", "labelled.graded=[{}]", "How naïve that is!\tThat is naïve.\t4\nHow naïve!\tOh.\t2\n"),
    ],
)
def test_the_vocabulary_is_made_of_all_text_that_training_reads(
    vocabulary: str, key: str, text: str, unigram_assistant: str, recipe_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.tsv").write_text(text, encoding="utf-8")
    more = [CONTRAST, unigram_assistant, f"vocabulary={vocabulary}", key.format(tmp_path / "text.tsv")]
    finished, _ = run(recipe_file, tmp_path, *more)
    assert "ï" in Tokenizer.from_file(str(finished / "student/tokenizer.json")).get_vocab()


def test_every_depth_is_trained_and_scored(recipe_file: Path, tmp_path: Path) -> None:
    finished, facts = run(recipe_file, tmp_path, CONTRAST, "stages.contrast.depth_weights=[0.5, 1]")
    assert facts["1-contrast"]["dev_by_depth"]["1"].keys() == facts["1-contrast"]["dev"].keys()
    load_finite(finished)


@pytest.mark.parametrize(("objective", "length"), [("graded", "epochs: 0.2"), ("entailment", "steps: 4")])
def test_a_stage_may_read_labelled_pairs_alone_beside_a_teacher(
    objective: str, length: str, recipe_file: Path, tmp_path: Path
) -> None:
    """The start step reads the teacher's vectors of all stages, before the labelled pairs are there."""
    stage = f"{{train: student, objectives: {{{objective}: 1}}, {length}, batch_size: 8}}"
    stages = f"stages={{{objective}: {stage}}}"
    finished, facts = run(recipe_file, tmp_path, stages, *write_labelled(tmp_path / "labelled"))
    assert facts["start"]["held_out_cosine_to_teacher"] > 0.5
    pairs = facts["labelled"][objective]
    steps = 4 if length == "steps: 4" else -(-pairs // 40)
    assert facts[f"1-{objective}"]["loss"][-1]["step"] == steps
    load_finite(finished)


def test_one_sentence_is_not_text_enough_to_centre_vectors(recipe_file: Path, tmp_path: Path) -> None:
    (tmp_path / "one.tsv").write_text("The boat is late today.\tDas Boot ist heute spät dran.\n", encoding="utf-8")
    text = f"corpus.tsv=[{{source: {tmp_path}/one.tsv, language: de}}]"
    with pytest.raises(
        InputError, match=r"^teacher\.center: needs 2 English sentences or more, and the text has 1; give"
    ):
        run(recipe_file, tmp_path, CONTRAST, text, "languages=[de]", "teacher.center=true")


def test_three_sentences_are_text_enough_for_the_embeddings(recipe_file: Path, tmp_path: Path) -> None:
    (tmp_path / "en-de.tsv").write_text(
        "".join(f"This is sentence {row} here.\tDas ist Satz {row}.\n" for row in "abc")
    )
    stage = f"{{train: embeddings, objectives: {{embedding: 1}}, {TRAINING}}}"
    text = f"corpus.tsv=[{{source: {tmp_path}/en-de.tsv, language: de}}]"
    _, facts = run(recipe_file, tmp_path, text, "languages=[de]", f"stages={{embedding: {stage}}}")
    assert facts["corpus"]["holdout"] == {"de": 0} and facts["1-embedding"]["loss"]


@pytest.mark.parametrize(
    ("layers", "kept"),
    [
        ("student.unit_layers=4", True),
        ("student.unit_layers=2", False),
        ("student={unit_layers: 2, bottleneck: 16, recurrences: 1}", False),
        ("student={unit_layers: 4, bottleneck: 16, recurrences: 2}", False),
        ("student={prelude: [1], unit_layers: 2, coda: [4], bottleneck: 16, recurrences: 1}", True),
        ("student={prelude: [1], unit_layers: 1, coda: [4], bottleneck: 16, recurrences: 2}", False),
    ],
    ids=[
        "the assistant's own",
        "as deep, but recurrent",
        "less deep",
        "deeper",
        "the assistant's own in three parts",
        "prelude and coda around a recurrent unit",
    ],
)
def test_the_head_is_fitted_anew_for_another_stack_than_the_assistants(
    layers: str, kept: bool, recipe_file: Path, tmp_path: Path
) -> None:
    still = f"stages={{still: {{train: student, objectives: {{teacher: 1}}, {TRAINING.replace('0.001', '1.0e-20')}}}}}"
    finished, _ = run(recipe_file, tmp_path, layers, still)
    before = Student.load(finished / "assistant")[0].state_dict()["head.weight"]
    after = Student.load(finished / "student")[0].state_dict()["head.weight"]
    assert torch.allclose(before, after, atol=1e-6) is kept


def test_texts_that_a_head_is_fitted_on_are_encoded_once(
    recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The corpus has fewer pairs than are drawn, and its languages share English sentences."""
    encoded: list[str] = []

    def recorded(what: str, student: Student, tokenizer: Tokenizer) -> Encode:
        encoder = student_encoder(what, student, tokenizer)

        def encode_texts(texts: Sequence[str]) -> np.ndarray:
            if what == "student before training":
                encoded.extend(texts)
            return encoder(texts)

        return encode_texts

    monkeypatch.setattr("xcompress.distillation.stages.student_encoder", recorded)
    run(recipe_file, tmp_path, CONTRAST)
    assert len(encoded) == len(set(encoded)) > 100


def test_a_stage_may_read_named_text_in_epochs(recipe_file: Path, tmp_path: Path) -> None:
    texts = load_recipe(recipe_file).corpus.tsv
    named = [f"{{source: {text.source}, language: {text.language}, name: {text.language}}}" for text in texts]
    language = texts[0].language
    stage = f"{{train: student, objectives: {{contrast: 1}}, epochs: 2, batch_size: 8, text: [{language}]}}"
    changes = [f"corpus.tsv=[{', '.join(named)}]", f"stages={{contrast: {stage}}}"]
    _, facts = run(recipe_file, tmp_path, *changes)
    pairs = facts["corpus"]["train"][language][language]
    steps = load_recipe(recipe_file, changes).stages["contrast"].steps_on(pairs)
    assert steps == -(-2 * pairs // 8)
    assert 0 <= steps - facts["1-contrast"]["loss"][-1]["step"] < max(1, steps // 40)


def test_rows_of_sts_sets_that_leave_nothing_to_rank_are_refused(recipe_file: Path, tmp_path: Path) -> None:
    rows = len(builtin().language_pairs["en-de"])
    with pytest.raises(InputError, match=rf"^dev\.every: {rows} leaves one row of the {rows} of a language pair"):
        run(recipe_file, tmp_path, CONTRAST, f"dev={{sts: {DATA}, every: {rows}}}")
    run(recipe_file, tmp_path, CONTRAST, f"dev={{sts: {DATA}, every: {rows - 1}}}")


def test_dev_scores_on_sts_sets_and_while_training(recipe_file: Path, tmp_path: Path) -> None:
    _, facts = run(recipe_file, tmp_path, CONTRAST, f"dev={{sts: {DATA}, every: 8, steps: 2}}", "precision=float32")
    assert facts["1-contrast"]["dev"]["sts"].keys() == {"en-en", "de-de", "fr-fr", "en-de", "en-fr", "de-fr"}
    assert [point["step"] for point in facts["1-contrast"]["dev_course"]] == [2, 4]
    assert facts["1-contrast"]["dev_course"][-1]["dev"]["sts en-xx"] == pytest.approx(
        np.mean([facts["1-contrast"]["dev"]["sts"][pair] for pair in ("en-de", "en-fr")]),
        abs=1,
    )


def test_rows_of_sts_sets_that_a_run_learns_with_a_score_are_not_scored(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    english = builtin().language_pairs["en-en"]
    rows = [f"{text.upper()}\tSomething else {row}.\t1\n" for row, text in enumerate(english.first[20:])]
    (tmp_path / "graded.tsv").write_text("".join(rows))
    stage = stages_of(grade="objectives: {graded: 1}, steps: 1")
    finished, _ = run(recipe_file, tmp_path, stage, f"labelled.graded=[{tmp_path}/graded.tsv]", f"dev.sts={DATA}")
    learnt = len(read_json(finished / "labelled/graded.json"))  # those of held-out sentences are not
    said = " ".join(capsys.readouterr().err.split())
    assert f"dev.sts: {learnt} of {len(english)} rows are not scored, as training reads one of their sentences" in said


def test_rows_of_sts_sets_that_only_an_earlier_recipe_of_the_run_learned_are_scored(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = stages_of(grade="objectives: {graded: 1}, steps: 1")
    graded, _ = write_labelled(tmp_path)
    finished, _ = run(recipe_file, tmp_path, stage, graded, f"dev={{sts: {DATA}, every: 8}}")
    assert "rows are not scored" in " ".join(capsys.readouterr().err.split())
    run(recipe_file, tmp_path, CONTRAST, f"dev={{sts: {DATA}, every: 8}}")
    assert "rows are not scored" not in " ".join(capsys.readouterr().err.split())
    assert not (finished / "labelled").exists(), "a later run would take it for text that this one trained on"


def test_rows_that_one_language_pair_alone_loses_are_said(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = tmp_path / "sets"
    sets.mkdir()
    for language in ("de", "fr"):
        rows = [f"The {language} boat {row}.\tSatz {row}\t{row % 5}\n" for row in range(6)]
        (sets / f"STS.en-{language}.txt").write_text("".join(rows))
    (tmp_path / "graded.tsv").write_text("The de boat 1.\tA new one.\t3\nThe de boat 2.\tAnother one.\t1\n")
    stage = stages_of(grade="objectives: {graded: 1}, steps: 1")
    run(recipe_file, tmp_path, stage, f"labelled.graded=[{tmp_path}/graded.tsv]", f"dev.sts={sets}")
    assert "dev.sts: 2 of 6 rows are not scored" in " ".join(capsys.readouterr().err.split())


def test_sts_sets_that_no_model_is_scored_on_are_said(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(recipe_file, tmp_path, CONTRAST)
    run(recipe_file, tmp_path, CONTRAST, f"dev={{sts: {DATA}}}")
    assert "dev.sts: the student was trained and scored without it" in " ".join(capsys.readouterr().err.split())
    other = tmp_path / "other"
    other.mkdir()
    (other / "STS.ja-ko.txt").write_text("一\t하나\t5\n二\t셋\t1\n", encoding="utf-8")
    run(recipe_file, tmp_path / "new", CONTRAST, f"dev={{sts: {other}}}")
    said = " ".join(capsys.readouterr().err.split())
    assert "has no pairs of en, de, fr; models are not scored on STS" in said
    assert "without it" not in said


def test_tensorboard_is_missed_before_the_first_step(
    recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xcompress.packages.is_installed", lambda name: name != "tensorboard")
    with pytest.raises(InputError, match=r"^--tensorboard needs tensorboard; pip install 'xcompress\[tensorboard\]'$"):
        distill(load_recipe(recipe_file, [CONTRAST]), tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run" / "corpus").exists()


def test_embeddings_of_a_student_with_a_bottleneck_are_read_through_its_projection(
    recipe_file: Path, tmp_path: Path
) -> None:
    lender, _ = run(recipe_file, tmp_path / "lender", CONTRAST)
    source = load_recipe(recipe_file).assistant
    assert source is not None
    assistant = f"assistant={{source: {source.source}, embeddings_from: {{source: {lender / 'student'}}}}}"
    finished, _ = run(recipe_file, tmp_path, CONTRAST, assistant)
    student, reference = (Student.load(folder)[0].embeddings for folder in (lender / "student", finished / "reference"))
    assert student.projection is not None
    torch.testing.assert_close(reference.word.weight, student.projection(student.word.weight))


def test_files_of_languages_that_the_recipe_lacks_need_not_exist(recipe_file: Path, tmp_path: Path) -> None:
    more = "{source: ./absent.tsv, language: tr}"
    tsv = [f"{{source: {file.source}, language: {file.language}}}" for file in load_recipe(recipe_file).corpus.tsv]
    words = "vocabulary={method: keep, words: './absent.{language}.txt'}"
    run(recipe_file, tmp_path, CONTRAST, f"corpus.tsv=[{', '.join([*tsv, more])}]", words)


def test_a_model_inside_the_run_folder_is_refused(recipe_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(recipe_file, [f"assistant.source={tmp_path / 'run/student'}"])
    with pytest.raises(InputError, match=r"^assistant\.source: .* is inside the run folder; choose another --run"):
        distill(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("check", [_check_sources, plan])
def test_a_released_teacher_that_lacks_a_language_is_said(
    check: Callable[[Recipe, Path], object],
    recipe_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("xcompress.distillation.plan._measure_flops", lambda _: 1e9)
    text = f"corpus.tsv=[{', '.join(f'{{source: {recipe_file}, language: {language}}}' for language in ('de', 'ko'))}]"
    recipe = load_recipe(recipe_file, ["teacher.source=released:tiny", "languages=[de, ko]", text])
    check(recipe, tmp_path / "run")
    assert "teacher.source: released:tiny was not made for ko; take a teacher that knows" in capsys.readouterr().err


def test_tensorboard_logs_are_written_when_asked_for(recipe_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    finished = distill(load_recipe(recipe_file, [CONTRAST]), tmp_path / "run", tensorboard=True)
    assert list((finished / "tensorboard/contrast").glob("events.*"))


def test_a_stage_can_train_weights_of_4_bits(
    recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[int] = Counter()
    forward = RoundToFourBits.forward

    def counting(module: RoundToFourBits, weight: torch.Tensor) -> torch.Tensor:
        calls[id(module)] += module.training and weight.requires_grad
        return forward(module, weight)

    monkeypatch.setattr(RoundToFourBits, "forward", counting)
    errors = []
    for name, overrides in (("exact", []), ("rounded", ["stages.contrast.quantize=int4"])):
        finished, _ = run(recipe_file, tmp_path / name, CONTRAST, *overrides)
        rows = load_finite(finished).embeddings.word.weight.detach()
        rounded = RoundToFourBits(block_size_for(rows.shape[1]) or 1)(rows)
        errors.append(float((rounded - rows).abs().max() / rows.abs().max()))
    assert errors[0] > 0.01
    assert errors[1] < 1e-6
    assert len(set((+calls).values())) == 1, "weights of the recurrent unit are rounded as often as others"


@pytest.mark.usefixtures("little_text")
def test_layers_of_a_modernbert_are_distilled_and_exported(recipe_file: Path, tmp_path: Path) -> None:
    changes = [CONTRAST, f"assistant={{source: {encoder('modernbert')}, pooling: cls}}"]
    recurrent = load_recipe(recipe_file, [*changes, "student={unit_layers: 1, recurrences: 3, bottleneck: 16}"])
    for refuse in (lambda: plan(recurrent, tmp_path / "run"), lambda: distill(recurrent, tmp_path / "run")):
        with pytest.raises(InputError, match="the first layer of a ModernBERT has no norm"):
            refuse()
    shape = "student={prelude: [1], unit_layers: 1, layers: [3], recurrences: 2, bottleneck: 16}"
    finished, facts = run(recipe_file, tmp_path, *changes, shape)
    assert facts["1-contrast"]["loss"][-1]["step"] == 4
    student = load_finite(finished)
    assert [layer.window for layer in student.config.modernbert] == [None, 64]
    assert student.config.pooling == "cls"
    assert not torch.equal(
        student.unit[0].output.weight, import_encoder(encoder("modernbert"))[0].unit[2].output.weight
    )
    made = export(finished, options=ExportConfig(precision="fp32"))  # random weights lose too much in 8 bits
    texts = ["The boat is late.", "Der Zug ist weg. " * 40]
    assert cosines(Encoder(made).encode(texts), encode(*Student.load(finished / "student"), texts)).min() > 0.99999


@pytest.mark.parametrize("override", ["stages.contrast.soup=2", "stages.contrast.train=assistant"])
def test_weights_of_4_bits_are_those_of_one_training_of_a_student(recipe_file: Path, override: str) -> None:
    with pytest.raises(InputError, match="quantize needs `train: student` and one training"):
        load_recipe(recipe_file, [CONTRAST, "stages.contrast.quantize=int4", override])


def write_hub_cache(folder: Path, model: Path, commit: str) -> None:
    """Imitate Hugging Face's cache after a download of org/name at a commit."""
    repository = folder / "models--org--name"
    shutil.copytree(model, repository / "snapshots" / commit)
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs/main").write_text(commit)


def test_a_run_records_the_commits_of_hub_models_and_warns_of_others(
    recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    first, second = "1" * 40, "2" * 40
    recipe, folder = load_recipe(recipe_file, [CONTRAST, "teacher.source=org/name"]), tmp_path / "run"
    write_hub_cache(tmp_path, recipe_file.parent / "teacher", first)
    distill(recipe, folder)
    assert read_json(folder / "hub.json") == {"org/name": first}
    models = read_json(folder / "manifest.json")["models"]
    assert models["teacher"]["commit"] == first and "commit" not in models["assistant"]
    assert "org/name" not in capsys.readouterr().err

    write_hub_cache(tmp_path, recipe_file.parent / "teacher", second)
    distill(recipe, folder)
    assert read_json(folder / "hub.json") == {"org/name": first}
    said = " ".join(capsys.readouterr().err.split())
    assert f"org/name: the model of the hub was commit {first} when this run read it, and is {second}" in said

    for made in [*(step.parent for step in folder.glob("*/step.json")), folder / "vectors"]:
        shutil.rmtree(made)
    distill(recipe, folder)
    assert read_json(folder / "hub.json") == {"org/name": second}, "all steps and vectors were made again"


def test_a_model_that_a_stopped_run_did_not_read_is_not_recorded(
    recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    first, second = "1" * 40, "2" * 40
    recipe, folder = load_recipe(recipe_file, [CONTRAST, "teacher.source=org/name"]), tmp_path / "run"
    write_hub_cache(tmp_path, recipe_file.parent / "teacher", first)
    for file in (tmp_path / "models--org--name/snapshots" / first).rglob("*.safetensors"):
        file.unlink()
    with pytest.raises(InputError, match=r"org/name: .*could not be reached"):
        distill(recipe, folder)
    write_hub_cache(tmp_path, recipe_file.parent / "teacher", second)
    distill(recipe, folder)
    assert read_json(folder / "hub.json") == {"org/name": second}
    assert read_json(folder / "manifest.json")["models"]["teacher"]["commit"] == second
    assert "org/name: the model of the hub" not in capsys.readouterr().err
