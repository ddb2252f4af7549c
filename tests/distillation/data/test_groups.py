from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.recipe import small_recipe, stages_of
from xcompress.distillation.data import groups as groups_module
from xcompress.distillation.data.corpus import Corpus, corpus_step
from xcompress.distillation.data.groups import Groups, groups_step, pairs_of_groups
from xcompress.distillation.run_folder import open_run
from xcompress.distillation.teachers.ensemble import find_encoders
from xcompress.errors import InputError
from xcompress.metrics import cosine_matrix

STAGE = stages_of(a="objectives: {correlation: 1}, steps: 4")


def make(folder: Path, *overrides: str, section: str = "") -> tuple[Corpus, Groups | None]:
    own = f"correlation={{teacher: {{source: {folder / 'teacher'}}}{section}}}"
    recipe = small_recipe(folder, own, STAGE, *overrides)
    with open_run(folder / "run") as run:
        corpus = corpus_step(recipe, run, None)
        rows, teacher = pairs_of_groups(recipe, corpus), find_encoders(recipe).correlation
        return corpus, groups_step(recipe, run, corpus, rows, teacher)


def test_a_recipe_whose_stages_read_no_groups_has_no_step(tmp_path: Path) -> None:
    _, groups = make(tmp_path, stages_of(a="objectives: {teacher: 1}, steps: 4"))
    assert groups is None and not (tmp_path / "run" / "groups").exists()


def test_a_group_is_a_sentence_and_others_near_it_each_with_a_translation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_module, "NEAREST", 10)
    corpus, groups = make(tmp_path)
    assert groups is not None
    rows, vectors = groups.draw(8 * len(groups.nearest), seed=5)
    english = np.array([corpus.train[row].source for row in rows]).reshape(-1, 8)
    of_group = vectors.take(range(len(rows))).reshape(len(english), 8, -1)
    table = groups.table()
    cosines = cosine_matrix(of_group[:, 0], table.vectors[np.arange(len(table.vectors))])
    tenth = np.sort(cosines, axis=1)[:, -11]  # the sentence itself is nearest
    for sentences, group, least in zip(english, of_group, tenth, strict=True):
        assert len(set(sentences)) == 8
        assert (cosine_matrix(group[:1], group)[0] >= least - 1e-5).all()
    assert Counter(english[:, 0]).most_common(1)[0][1] == 1, "each sentence is the first of one group"
    assert {corpus.train[row].language for row in rows} == {"de", "fr"}


def test_a_draw_depends_on_the_seed_and_goes_round_again(tmp_path: Path) -> None:
    _, groups = make(tmp_path)
    assert groups is not None
    count = 8 * 2 * len(groups.nearest)
    (first, _), (again, _), (other, _) = (groups.draw(count, seed) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist() and len(first) == count


def test_pairs_and_text_limit_what_groups_are_made_of(tmp_path: Path) -> None:
    named = f"corpus.tsv=[{{source: {tmp_path}/en-de.tsv, language: de, name: talks}}, " + (
        f"{{source: {tmp_path}/en-fr.tsv, language: fr}}]"
    )
    corpus, groups = make(tmp_path, named, section=", text: [talks], pairs: 20")
    assert groups is not None and len(groups.rows) == 20
    assert {corpus.train[row].language for row in groups.rows} == {"de"}
    assert groups.nearest.shape == (20, 19)


def test_too_few_sentences_are_refused(tmp_path: Path) -> None:
    animals = ("bear", "crow", "deer", "frog", "goat", "hare", "lion", "moth", "seal")
    lines = [f"The old {name} sleeps all day.\tDas Tier {name} schläft den ganzen Tag.\n" for name in animals]
    (tmp_path / "few.tsv").write_text("".join(lines), encoding="utf-8")
    few = f"corpus={{tsv: [{{source: {tmp_path}/few.tsv, language: de}}], holdout: 4}}"
    with pytest.raises(InputError, match="correlation: the text has 7 English sentences, and a group 8; give more"):
        make(tmp_path, few, "languages=[de]")
    assert not (tmp_path / "run" / "vectors").exists(), "no teacher has run"
