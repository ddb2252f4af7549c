"""A teacher whose vectors are computed in the training step."""

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from tests.helpers.recipe import losses, stages_of, write_monolingual, write_recipe
from tests.helpers.rotary import save_rotary
from xcompress.distillation.pipeline import distill
from xcompress.distillation.plan import plan, show
from xcompress.distillation.teachers.disk import TextCounts, check_disk, count_texts
from xcompress.distillation.teachers.ensemble import TeacherEnsemble
from xcompress.errors import InputError
from xcompress.recipe import load_recipe

OBJECTIVES = "objectives: {teacher: 100, teacher_targets: 100, contrast: 10, monolingual: 100}, steps: 12"
LIVE = "teacher.targets=live"
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"))


def test_live_targets_give_the_losses_of_stored_ones_and_take_less_disk(recipe: Path, tmp_path: Path) -> None:
    """The stored vectors are float16, and differ by 0.05 %."""
    changes = [*write_monolingual(tmp_path / "text"), stages_of(all=OBJECTIVES), "precision=float32", "widths=equal"]
    stored = distill(load_recipe(recipe, changes), tmp_path / "stored")
    live = distill(load_recipe(recipe, [*changes, LIVE]), tmp_path / "live")
    assert losses(live, "1-all") == pytest.approx(losses(stored, "1-all"), rel=1e-3)
    bytes_of = [sum(file.stat().st_size for file in (run / "vectors").rglob("*.npy")) for run in (stored, live)]
    assert bytes_of[1] < bytes_of[0]


def test_a_family_whose_code_is_not_run_is_a_stored_or_live_teacher(recipe: Path, tmp_path: Path) -> None:
    teacher = save_rotary(tmp_path / "gte", "new", auto_map={"AutoModel": "modeling.Own"})
    stage = stages_of(all="objectives: {teacher: 100}, steps: 4")
    changes = [stage, "precision=float32", "widths=equal", f"teacher={{source: {teacher}}}"]
    plan(load_recipe(recipe, changes), tmp_path / "0")
    (teacher / "tokenizer.json").rename(tmp_path / "kept.json")
    with pytest.raises(InputError, match=r"tokenizer\.json: no such file; name the tokenizer\.json that belongs"):
        plan(load_recipe(recipe, changes), tmp_path / "0")
    (tmp_path / "kept.json").rename(teacher / "tokenizer.json")
    runs = [distill(load_recipe(recipe, [*changes, *more]), tmp_path / str(len(more))) for more in ((), (LIVE,))]
    assert losses(runs[1], "1-all") == pytest.approx(losses(runs[0], "1-all"), rel=1e-3)


def test_a_table_of_vectors_cannot_be_live(recipe: Path) -> None:
    with pytest.raises(InputError, match=r"teacher: targets: live computes vectors, but teacher.source is a table"):
        load_recipe(recipe, ["teacher.source=api.npy", LIVE])


def test_texts_are_counted_once_where_they_are_stored_and_at_each_step_where_they_are_live(recipe: Path) -> None:
    stage = stages_of(all="objectives: {teacher: 1, teacher_targets: 1}, steps: 100, soup: 3")  # 800 pairs
    loaded = load_recipe(recipe, [stage])
    assert count_texts(loaded.stages, 300) == TextCounts(live=4800, most_stored=600, least_stored=0)
    assert count_texts(loaded.stages, 0) == TextCounts(live=4800, most_stored=1600, least_stored=0)


def test_the_fewest_texts_are_those_of_languages_drawn_equally_often(recipe: Path) -> None:
    """Of each language a stage draws 400 pairs; a smaller one is drawn again, and stages share what they read."""
    both = "objectives: {teacher: 1, teacher_targets: 1}, steps: 100"  # 800 pairs
    loaded = load_recipe(recipe, [stages_of(first=both, second=both)])
    assert count_texts(loaded.stages, 9000, lambda _: [8990, 10]).least_stored == 400 + (400 + 10)
    assert count_texts(loaded.stages, 9000, lambda _: [4500, 4500]).least_stored == 400 + 800


def test_monolingual_pairs_are_counted_as_a_step_reads_them(recipe: Path, tmp_path: Path) -> None:
    """Without translations, `monolingual_pairs` has no effect: the batch is of monolingual pairs alone."""

    def live(objectives: str) -> int:
        stage = stages_of(all=f"objectives: {objectives}, steps: 100, monolingual_pairs: 4")
        loaded = load_recipe(recipe, [*write_monolingual(tmp_path / "text"), stage])
        return count_texts(loaded.stages, 300).live

    assert live("{monolingual: 1}") == 2 * 800
    assert live("{alignment: 1, monolingual: 1}") == 2 * 4 * 800


def test_a_dry_run_says_what_stored_and_live_vectors_take(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("xcompress.distillation.plan._measure_flops", lambda _: 1e6)  # slow: no estimate rounds to 0
    stage = stages_of(all="objectives: {teacher: 1}, steps: 1000")
    planned = plan(load_recipe(recipe, [stage, LIVE]), tmp_path / "run")
    assert planned.targets and planned.targets.chosen == "live"
    assert planned.targets.live_seconds and planned.targets.stored_seconds
    assert planned.targets.live_seconds / planned.targets.stored_seconds == pytest.approx(8000 / 324, rel=0.01)
    show(planned)
    assert "teacher's vectors, at most: stored, 0 MB on disk and" in capsys.readouterr().err
    without = plan(load_recipe(recipe, [stages_of(all="objectives: {alignment: 1}, steps: 9")]), tmp_path / "run")
    assert without.targets is None


def test_a_disk_that_is_too_small_is_refused_before_a_vector_is_computed(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 1000))
    message = r"the teacher's vectors need 0.0 GB or more, and the disk has 0.0 GB free; set teacher.targets to live"
    loaded, folder = load_recipe(recipe, [stages_of(all="objectives: {teacher: 1}, steps: 40")]), tmp_path / "run"
    plan(loaded, folder)  # filters may leave few enough pairs
    with pytest.raises(InputError, match=message):
        distill(loaded, folder)
    assert not (folder / "start").exists() and not (folder / "vectors").exists()
    with pytest.raises(InputError, match=message):
        plan(loaded, folder)
    plan(load_recipe(recipe, [LIVE]), folder)


def test_vectors_that_are_on_the_disk_already_need_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 100))
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors/0.npy").write_bytes(bytes(2000))
    check_disk(tmp_path, TextCounts(10, 10, 10), 100, can_be_live=True)
    check_disk(tmp_path, TextCounts(10, 10, 10), None, can_be_live=True)
    with pytest.raises(InputError, match=r"teacher's vectors need .* free; choose another --run"):
        check_disk(tmp_path, TextCounts(11, 11, 11), 100, can_be_live=False)


def test_a_stage_opens_its_teacher_once(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, opened = TeacherEnsemble.load, list[TeacherEnsemble]()
    monkeypatch.setattr(TeacherEnsemble, "load", lambda self: [opened.append(self), load(self)][1])
    distill(load_recipe(recipe, [stages_of(all="objectives: {alignment: 1}, steps: 1"), LIVE]), tmp_path / "none")
    before = len(opened)
    changes = [*write_monolingual(tmp_path / "text"), stages_of(all=OBJECTIVES), "widths=equal", LIVE]
    distill(load_recipe(recipe, changes), tmp_path / "live")
    assert len(opened) - before <= 2, "one for the vectors that are stored, one for the stage"
