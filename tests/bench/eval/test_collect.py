"""The tasks collected from folders."""

import lzma
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.helpers import SHARED
from tests.helpers.files import nested_folders
from xcompress.bench.eval import QUICK_PAIRS, QUICK_SENTENCES, collect
from xcompress.bench.eval.classification import Classification
from xcompress.bench.eval.data import pair_up, sample
from xcompress.bench.eval.retrieval import Retrieval
from xcompress.bench.eval.similarity import Agreement
from xcompress.bench.eval.task import EvalTask
from xcompress.corpus.graded import builtin
from xcompress.errors import InputError
from xcompress.recipe import load_recipe

CODES = {"de": "deu", "fr": "fra"}


def put(path: Path, lines: Iterator[str] | list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(lzma.compress(content) if path.suffix == ".xz" else content)


def names(tests: tuple[EvalTask, ...]) -> list[tuple[str, str]]:
    return [(type(test).__name__, test.name) for test in tests]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with everything: 40 rows, in English, German and French."""
    folder, rows = tmp_path / "data", range(40)
    for lang in ("en", "de", "fr"):
        put(folder / f"stsb/stsb-{lang}-dev.csv.xz", [f"{lang} one {n},{lang} two {n},{n % 6}" for n in rows])
        put(folder / f"stsb/stsb-{lang}-train.csv", [f"{lang} learned one,{lang} learned two,3"])
        put(folder / f"topics/x/{lang}.dev.tsv", [f"{n}\t{'ab'[n % 2]}\t{lang} text {n}" for n in rows])
        put(folder / f"topics/x/{lang}.test.tsv", [f"{'ab'[n % 2]}\t{lang} test {n}" for n in range(5)])
        put(folder / f"mono/mine.{lang}.txt", [f"{lang} line {n}" for n in range(0, 400)])
    put(folder / "topics/x/en.train.tsv", [f"{'ab'[n % 2]}\tlearn {n}" for n in rows])
    put(folder / "topics/x/de.train.tsv", [f"{'ab'[n % 2]}\tlerne {n}" for n in rows])
    put(folder / "sts/STS.en-de.txt", [f"left {n}\tlinks {n}\t{n}" for n in rows])
    put(folder / "parallel/corpus.en-de.tsv.xz", [f"left {n}\tlinks {n}" for n in rows])
    put(folder / "parallel/other.en-fr.tsv", ["left\tgauche"])
    put(folder / "nli/x.de.dev.tsv", ["a\tb\tneutral"])
    for lang, code in CODES.items():
        put(folder / f"tatoeba/tatoeba.{code}-eng.{code}", [f"{lang} sentence {n}" for n in rows])
        put(folder / f"tatoeba/tatoeba.{code}-eng.eng", [f"sentence {n}" for n in rows])
    put(folder / ".hidden/STS.en-de.txt", ["no test"])
    (folder / "README.md").write_text("read me", encoding="utf-8")
    (folder / "stsb" / "again").symlink_to(folder, target_is_directory=True)
    return folder


@pytest.mark.parametrize(("repeated", "is_noted"), [(1, False), (2, True)])
def test_rows_that_are_repeated_are_noted(repeated: int, is_noted: bool, tmp_path: Path) -> None:
    rows = [f"left {n}\tlinks {n}\t{n}" for n in range(190)]
    put(tmp_path / "STS.en-de.txt", rows + rows[:repeated])
    note = f"{tmp_path.name}: 2 of 192 rows of en-de repeat others; its intervals are too narrow"
    assert (note in collect(tmp_path, ["en", "de"]).notes) == is_noted


def test_every_format_at_any_depth(data: Path) -> None:
    suite = collect(data)
    assert names(suite.tasks) == [
        ("Similarity", "built-in"),
        ("Agreement", "mono"),
        ("Similarity", "sts"),
        ("Similarity", "stsb"),
        ("Retrieval", "tatoeba"),
        ("Classification", "x"),
    ]
    assert [test.rows for test in suite.tasks] == [len(builtin().language_pairs["en-en"]), 200, 40, 40, 40, 40]
    assert suite.notes == (
        "nli: not recognised and left out: x.de.dev.tsv",
        "parallel: not recognised and left out: corpus.en-de.tsv.xz and 1 more",
    )
    sentences = suite.sentences()
    assert len(sentences) == len(set(sentences))
    assert {"learn 1", "lerne 1"} < set(sentences), "probes learn every language that there are rows for"
    assert not any(f"{lang} test 1" in sentences for lang in ("en", "de", "fr")), "the test part was not asked for"
    assert [len(text) for text in sentences] == sorted(len(text) for text in sentences)


@pytest.mark.slow
def test_every_collected_task_scores_an_encoder(data: Path) -> None:
    suite = collect(data, distractors=300)
    sentences = suite.sentences()
    random = np.random.default_rng(0)
    base = random.normal(size=(len(sentences), 12)).astype(np.float32)
    own = base + random.normal(size=base.shape).astype(np.float32)
    scores, reference = (suite.score(sentences, vectors) for vectors in (own, base))
    marked = suite.summarize(scores, reference)
    kinds = {(one.kind, one.test): set(one.figures) for one in marked}
    assert kinds[("similarity", "stsb")] == {"en-en", "de-de", "fr-fr", "en-de", "en-fr", "de-fr"}
    assert kinds[("similarity", "sts")] == {"en-de"}
    assert kinds[("retrieval", "tatoeba")] == {"de>en", "en>de", "fr>en", "en>fr"}
    assert kinds[("retrieval", "tatoeba + 300 distractors")] == {"de>en", "en>de", "fr>en", "en>fr"}
    assert kinds[("classification", "x")] == {"en>en", "en>de", "en>fr", "de>de", "de>en"}
    assert kinds[("agreement", "mono: agreement")] == {"en", "de", "fr"}
    for one in marked:
        for figure in (*one.figures.values(), *one.averages.values()):
            assert figure.low <= figure.value <= figure.high, one.test
            assert (figure.drop is None) == (one.kind == "agreement")
    assert suite.summarize(reference)[-1].kind != "agreement", "there is no reference to agree with"


def test_rows_with_a_sentence_of_the_train_split_are_left_out_of_a_part(tmp_path: Path) -> None:
    for lang in ("en", "de", "fr"):
        put(
            tmp_path / f"stsb/stsb-{lang}-dev.csv",
            [f"{lang} caption {n},{lang} other {n},{n % 6}" for n in range(1375)],
        )
    put(tmp_path / "stsb/stsb-en-train.csv", ["EN CAPTION 3!,en other 4,1", "elsewhere,En other 600,2"])
    put(tmp_path / "stsb/stsb-fr-train.csv.xz", ["ailleurs,fr caption 1000,2"])
    suite = collect(tmp_path, ["en", "de"])
    rows = {task.name: task.rows for task in suite.tasks if task.name.startswith("stsb")}
    assert rows == {
        "stsb": 1375,
        "stsb: captions": 500,
        "stsb: forums": 375,
        "stsb: news": 500,
        "stsb: unseen": 1371,
        "stsb: captions, unseen": 498,
        "stsb: forums, unseen": 374,
        "stsb: news, unseen": 499,
    }, "row 1000 is seen in French, which was not asked for, and so in every language"
    assert suite.notes == (
        "stsb: `unseen` is without 4 of 1,375 rows, which have a sentence of the train split in one of its languages",
    )
    quick = collect(tmp_path, quick=True)
    assert [task.name for task in quick.tasks if task.name.startswith("stsb")] == ["stsb"]
    assert not any("unseen" in note for note in quick.notes)
    for path in tmp_path.glob("stsb/*-train.*"):
        path.unlink()
    put(tmp_path / "stsb/stsb-en-train.csv", ["new,row,1"])
    assert [task.name for task in collect(tmp_path).tasks if "unseen" in task.name] == []


def test_a_set_whose_rows_are_all_in_its_train_split_has_no_part_without_them(tmp_path: Path) -> None:
    for split in ("dev", "train"):
        put(tmp_path / f"stsb/stsb-en-{split}.csv", [f"one {n},two {n},{n % 6}" for n in range(20)])
    suite = collect(tmp_path)
    assert [task.name for task in suite.tasks] == ["built-in", "stsb", "built-in"]
    assert suite.notes[0].startswith("stsb: `unseen` is without 20 of 20 rows")


def test_the_test_split_is_not_read(data: Path) -> None:
    for file in list(data.glob("stsb/*-dev.csv.xz")):
        file.rename(file.with_name(file.name.replace("-dev", "-test")))
    suite = collect(data)
    sentences = suite.sentences()
    assert "de test 4" not in sentences and "de text 4" in sentences
    assert "stsb: no stsb-<lang>-dev.csv, so nothing is tested" in suite.notes


def test_translations_have_english_without_a_word(data: Path) -> None:
    assert collect(data / "tatoeba", ["en", "de"]).notes == ()


def test_only_the_chosen_languages_are_collected(data: Path) -> None:
    suite = collect(data, ["fra", "ko"])
    assert "sts" not in [test.name for test in suite.tasks], "it is German"
    assert set().union(*(test.languages() for test in suite.tasks)) == {"en", "fr"}
    assert suite.notes[-1] == f"no test set in {data} has ko"
    with pytest.raises(InputError, match=r"sts: test sets in de, en, but none for fr, it and en"):
        collect(data / "sts", ["fr", "it"])


def test_a_folder_without_recognised_files_lists_the_formats(tmp_path: Path, data: Path) -> None:
    with pytest.raises(
        InputError,
        match=r"no test set recognised \(parallel: not recognised .* and 1 more\); expected STS.*tatoeba\.<xxx>",
    ):
        collect(data / "parallel")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: no test set recognised; expected STS"):
        collect(tmp_path / "empty")
    with pytest.raises(InputError, match="missing: no such folder"):
        collect(tmp_path / "missing")
    with pytest.raises(InputError, match="cannot be read as a path"):
        collect(tmp_path / ("x" * 300))


def test_parallel_text_alone_is_no_test_but_a_bad_line_among_graded_ones_is_named(data: Path) -> None:
    put(data / "sts" / "STS.en-fr.txt", ["left\tgauche"])
    with pytest.raises(InputError, match=r"STS\.en-fr\.txt:1: 2 columns"):
        collect(data)


def test_folders_of_the_same_name_get_different_task_names(data: Path) -> None:
    put(data / "more/sts/STS.en-fr.txt", ["a\tb\t1", "c\td\t2"])
    assert {"sts", "more/sts"} < {test.name for test in collect(data).tasks}


def test_kinds_of_tests_in_one_folder_get_different_names(tmp_path: Path) -> None:
    (tmp_path / "graded.en.tsv").write_text("A cat.\tA dog.\t2\nIt rains.\tIt snows.\t3\n", encoding="utf-8")
    for side, lines in (("deu", "eins\nzwei\n"), ("eng", "one\ntwo\n")):
        (tmp_path / f"tatoeba.deu-eng.{side}").write_text(lines, encoding="utf-8")
    names = [task.name for task in collect(tmp_path).tasks if task.name.startswith(tmp_path.name)]
    assert names == [tmp_path.name, f"{tmp_path.name}: translations"]


def test_holdouts_without_data(tmp_path: Path) -> None:
    put(tmp_path / "corpus/holdout.de.tsv", [f"sentence {n}\tSatz {n}" for n in range(150)])
    put(tmp_path / "corpus/holdout.fr.tsv", [f"sentence {n}\tphrase {n}" for n in range(150)])
    suite = collect(None, run=tmp_path)
    expected = [("Similarity", "built-in"), ("Retrieval", "held-out translations"), ("Agreement", "built-in")]
    assert names(suite.tasks) == expected
    assert suite.tasks[1].rows == 100
    assert collect(None, run=tmp_path, quick=True).tasks[1].rows == QUICK_PAIRS
    assert collect(None, ["fr"], run=tmp_path).tasks[1].languages() == {"fr"}
    assert names(collect(None).tasks) == [expected[0], expected[2]]


def test_sentences_that_an_earlier_run_trained_on_are_not_held_out(tmp_path: Path) -> None:
    """The earlier run's student was the layer source; case, punctuation and side do not matter."""
    first, second = tmp_path / "first", tmp_path / "second"
    put(second / "corpus/holdout.de.tsv", [f"sentence {n}\tSatz {n}" for n in range(9)])
    put(second / "corpus/holdout.fr.tsv", ["sentence 3\tphrase 3", "sentence 4\tphrase 4"])
    put(first / "corpus/train.de.tsv", ["Sentence 3!\tdritter Satz", "the seventh\tSATZ 7", "another\tanderer"])
    put(first / "corpus/train.it.tsv", ["Satz 8.\totto"])
    put(first / "manifest.json", ["{}"])
    for run, source in ((first, "anything"), (second, first / "student")):
        recipe = load_recipe("minilm_ru3", [f"assistant.source={source}"])
        (run / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    suite = collect(None, run=second)
    held_out = next(test for test in suite.tasks if isinstance(test, Retrieval))
    assert {code: {row[0][-1] for row in rows} for code, rows in held_out.pairs.items()} == {"de": set("012456")}
    left_out = f"without 4 of 11 pairs, because {first} trained on one of their sentences"
    assert suite.notes == (f"held-out translations: {left_out}",)
    assert collect(None, run=first).notes == ()


def test_quick_tasks_are_short(data: Path) -> None:
    put(data / "big/tatoeba.deu-eng.deu", [f"Satz {n}" for n in range(3000)])
    put(data / "big/tatoeba.deu-eng.eng", [f"A sentence {n}" for n in range(3000)])
    suite = collect(data, quick=True, distractors=100)
    assert len(suite.sentences()) <= 1600
    rows = {test.name: test.rows for test in suite.tasks}
    assert rows["tatoeba"] >= 20 and 40 <= rows["big"] <= 100
    assert f"big: quick: one row in {-(-3000 // rows['big'])}" in suite.notes
    assert "distractors are left out of a quick bench" in suite.notes
    assert "x: quick: trained on en only" in suite.notes
    assert not any(text.startswith("lerne") for text in suite.sentences())


def test_a_quick_task_keeps_every_label(data: Path) -> None:
    """Labels that alternate would be lost if every second row was kept, and a rare one if it was not the first."""
    for name in ("en.train.tsv", "en.dev.tsv"):
        labels = ["c", *("ab"[n % 2] for n in range(4000))]
        put(data / "alternating" / name, [f"{label}\t{name} sentence {n}" for n, label in enumerate(labels)])
    suite = collect(data, quick=True)
    (task,) = (task for task in suite.tasks if isinstance(task, Classification) and task.name == "alternating")
    assert task.rows < 400
    for rows in (*task.training.values(), *task.testing.values()):
        assert {label for label, _ in rows} == {"a", "b", "c"}


def test_a_task_that_is_somewhat_too_large_for_a_quick_bench_is_halved(tmp_path: Path) -> None:
    allowance = QUICK_SENTENCES - len(collect(None, quick=True).sentences())
    for side in ("deu", "eng"):
        put(tmp_path / f"tatoeba.deu-eng.{side}", [f"{side} sentence {n}" for n in range(allowance * 3 // 4)])
    assert len(collect(tmp_path, quick=True).sentences()) <= QUICK_SENTENCES


def test_distractors_come_from_plain_text(data: Path) -> None:
    put(data / "mono/mine.fr.txt", ["fr sentence 3", "fr autre"])
    suite = collect(data, distractors=300)
    among = [test for test in suite.tasks if isinstance(test, Retrieval)][1]
    assert (among.name, among.languages()) == ("tatoeba + 300 distractors", {"de", "fr"})
    assert {code: len(texts) for code, texts in among.distractors.items()} == {"en": 300, "de": 300, "fr": 2}
    assert "fewer than 300 distractors: fr 2" in suite.notes
    (data / "mono/mine.fr.txt").unlink()
    assert [test.languages() for test in collect(data, distractors=300).tasks if "+" in test.name] == [{"de"}]
    (data / "mono/mine.en.txt").unlink()
    with pytest.raises(InputError, match=r"distractors: translations in de, fr, plain text in de"):
        collect(data, distractors=300)
    with pytest.raises(InputError, match=r"distractors: 200,001; choose 0 to 200,000"):
        collect(data, distractors=200_001)


def test_the_margin_ranks_every_retrieval(data: Path) -> None:
    put(data / "corpus/holdout.de.tsv", [f"sentence {n}\tSatz {n}" for n in range(5)])
    suite = collect(data, margin=True, distractors=300, run=data)
    ranked = {test.name: test.margin for test in suite.tasks if isinstance(test, Retrieval)}
    both = ("held-out translations", "tatoeba")
    assert ranked == dict.fromkeys([*both, *(f"{name} + 300 distractors" for name in both)], True)
    assert names(suite.tasks) == names(collect(data, distractors=300, run=data).tasks)
    with pytest.raises(InputError, match="margin: there are no translations to find"):
        collect(data / "sts", margin=True)


def test_without_scikit_learn_classification_is_left_out(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.bench.eval.data.is_installed", lambda _: False)
    suite = collect(data)
    assert "Classification" not in [kind for kind, _ in names(suite.tasks)]
    assert any(
        "classification is left out" in note and "pip install 'xcompress[bench]'" in note for note in suite.notes
    )


def test_samples_are_always_the_same_and_keep_the_order() -> None:
    lines = [f"line {n:03}" for n in range(500)]
    drawn = sample([*lines, *lines], 50)
    assert drawn == sample(lines, 50) == sorted(drawn)
    assert len(set(drawn)) == 50
    assert sample(["b", "a", "b"], 5) == ["b", "a"]


def test_sentence_pairs_are_neighbours_or_far_apart() -> None:
    lines = [f"line {n}" for n in range(101)]
    pairs = pair_up(lines, 20)
    texts = [text for pair in pairs for text in pair]
    assert len(pairs) == 20 and len(set(texts)) == 40
    distances = [lines.index(other) - lines.index(one) for one, other in pairs]
    assert distances[:10] == [1] * 10
    assert all(abs(distance) > 1 for distance in distances[10:])
    assert pair_up(["one"], 5) == ()


def test_too_little_plain_text_leaves_the_builtin_sentences(tmp_path: Path) -> None:
    put(tmp_path / "mine.de.txt", ["eins", "zwei"])
    agreement = collect(tmp_path).tasks[-1]
    assert isinstance(agreement, Agreement) and agreement.name == "built-in"


@pytest.mark.exhaustive
def test_the_shared_data_is_collected() -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared data is not beside this checkout")
    suite = collect(SHARED, ["de", "ar"], distractors=1000)
    assert names(suite.tasks) == [
        ("Similarity", "built-in"),
        ("Classification", "sib200"),
        ("Agreement", "mono"),
        ("Similarity", "stsb-multi-mt"),
        ("Retrieval", "tatoeba"),
        ("Retrieval", "tatoeba + 1,000 distractors"),
        ("Similarity", "stsb-multi-mt: captions"),
        ("Similarity", "stsb-multi-mt: forums"),
        ("Similarity", "stsb-multi-mt: news"),
        ("Similarity", "stsb-multi-mt: unseen"),
        ("Similarity", "stsb-multi-mt: captions, unseen"),
        ("Similarity", "stsb-multi-mt: news, unseen"),
    ]
    assert [test.rows for test in suite.tasks[1:]] == [99, 250, 1375, 1000, 1000, 500, 375, 500, 1078, 260, 443]
    assert suite.tasks[3].languages() == {"en", "de"}
    assert suite.tasks[4].languages() == {"de", "ar"}
    assert [note.split(":")[0] for note in suite.notes] == ["nli", "parallel", "stsb-multi-mt"]
    quick = collect(SHARED, quick=True)
    assert len(quick.sentences()) <= 1700


def test_folders_without_end_are_refused_or_read(data: Path) -> None:
    with nested_folders(data / "deep"), suppress(InputError):
        assert collect(data, ["en"]).tasks


def test_folders_in_each_other_are_looked_up_once_each(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To resolve each path would look up all folders above, too."""
    looked_up, lstat = list[object](), os.lstat
    monkeypatch.setattr(os, "lstat", lambda path, **options: [looked_up.append(path), lstat(path, **options)][1])
    with nested_folders(data / "deep", 100):
        assert collect(data, ["en"]).tasks
    assert len(looked_up) < 5 * 100
