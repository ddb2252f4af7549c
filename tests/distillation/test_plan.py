"""Dry runs: what they count before the text is filtered, and what they know of a run."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.foreign import save_pipeline
from tests.helpers.recipe import small_recipe, stages_of, write_labelled, write_monolingual, write_recipe
from tests.helpers.runs import CONTRAST, run
from xcompress.distillation.pipeline import distill
from xcompress.distillation.plan import Plan, _size, _time, plan, show
from xcompress.errors import InputError
from xcompress.files import read_json, write_json
from xcompress.modeling.student import Student
from xcompress.recipe import load_recipe

EPOCH = stages_of(a="objectives: {teacher: 32}, epochs: 1")
FILE = "{{source: {}/en-{}.tsv, language: {}{}}}"


@pytest.fixture(autouse=True)
def no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.distillation.plan._measure_flops", lambda _: 1e9)


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"))


def planned(folder: Path, files: list[str], *overrides: str) -> Plan:
    tsv = f"corpus.tsv=[{', '.join(files)}]"
    return plan(small_recipe(folder, EPOCH, tsv, *overrides), folder / "run")


@pytest.mark.parametrize(("overrides", "pairs"), [((), 40 + 162), (("corpus.max_pairs=80",), 40 + 80)])
def test_epochs_count_as_many_pairs_as_are_read_at_most(overrides: tuple[str, ...], pairs: int, tmp_path: Path) -> None:
    files = [FILE.format(tmp_path, "de", "de", ", max_pairs: 40"), FILE.format(tmp_path, "fr", "fr", "")]
    found = planned(tmp_path, files, *overrides)
    assert found.lines == {"de": 162, "fr": 162}
    assert found.stages[0].steps == -(-pairs // 8)


@pytest.mark.parametrize("more", ["file", "catalogue"])
def test_epochs_are_not_known_where_not_all_text_is_counted(
    more: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [FILE.format(tmp_path, name, name, "") for name in ("de", "fr")]
    files += [FILE.format(tmp_path, "absent", "de", "")] if more == "file" else []
    found = planned(tmp_path, files, *([f"corpus.catalogues=[{tmp_path}]"] if more == "catalogue" else []))
    assert found.lines == {"de": 162, "fr": 162}
    assert found.stages[0].steps is found.token_megabytes is None
    show(found)
    assert "stored, ? GB on disk; live, no disk; the recipe has stored" in capsys.readouterr().err


def test_a_table_of_vectors_is_no_live_teacher(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "api.npy", np.ones((2, 32), np.float32))
    (tmp_path / "api.txt").write_text("It rains.\nIt snows.\n")
    files = [FILE.format(tmp_path, name, name, "") for name in ("de", "fr")]
    show(planned(tmp_path, files, f"teacher.source={tmp_path}/api.npy"))
    said = capsys.readouterr().err
    assert re.search(r"^teacher's vectors, at most: stored, \d MB on disk$", said, re.MULTILINE), said
    assert "live" not in said


def test_epochs_of_sentences_are_not_those_of_translations(tmp_path: Path) -> None:
    files = [FILE.format(tmp_path, name, name, "") for name in ("de", "fr")]
    stages = stages_of(a="objectives: {teacher: 32}, steps: 2", b="objectives: {monolingual: 1}, epochs: 1")
    found = planned(tmp_path, files, *write_monolingual(tmp_path / "words"), stages)
    assert found.targets and found.targets.megabytes is found.token_megabytes is None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["vocabulary={{method: trim}}"],
            "vocabulary: the tokenizer is WordLevel, only .* can be trimmed; .* without --languages",
        ),
        (["vocabulary={{method: train}}"], "vocabulary.method train: the tokenizer is WordLevel"),
        (["corpus.tsv=[{{source: {}/pairs.csv, language: de}}]"], "corpus.tsv.0.source: .*/pairs.csv: is a .csv file"),
        (
            ["corpus.tsv=[{{source: /dev/null, language: de}}]"],
            "^corpus.tsv.0.source: /dev/null: is a device, not a reg",
        ),
        (["teacher.sha256=abc"], "teacher.sha256: .* is a folder; give the digests of files inside it"),
        (["teacher.source=python:absent"], "teacher.source: python:absent: not of the form"),
        (["teacher.dimensions=50"], "teacher.dimensions cannot widen vectors of width 32 to 50"),
        (["teacher.source={}/narrow", "widths=pca"], "widths: pca cannot widen vectors of width 24 to 32"),
        (
            ["teacher={{source: 'released:small'}}", "widths=equal"],
            "widths: equal, but the targets have 384 dimensions and the encoder 32",
        ),
    ],
)
def test_a_dry_run_refuses_what_distill_refuses(overrides: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").touch()
    save_pipeline(tmp_path / "narrow", dense=["Identity", "Tanh"])
    recipe = small_recipe(tmp_path, *(override.format(tmp_path) for override in overrides))
    with pytest.raises(InputError, match=message):
        plan(recipe, tmp_path / "run")
    with pytest.raises(InputError, match=message):
        distill(recipe, tmp_path / "run")
    assert not list(tmp_path.glob("run/corpus"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("graded: [{0}/two.en.tsv]", r"two\.en\.tsv: 2 of 2 lines are bad: 2 fewer than three columns"),
        ("entailment: [{0}/three.en.tsv]", r"three\.en\.tsv: 2 of 2 lines are bad: 2 no label"),
        ("graded: [{{source: '{0}/three.{{language}}.tsv', languages: [en, de]}}]", "row 1 has score 4, but .* has 3"),
    ],
)
def test_a_dry_run_refuses_labelled_files_as_distill_does(override: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "two.en.tsv").write_text("It rains.\t3\nIt snows.\t4\n")
    for language, score in (("en", 3), ("de", 4)):
        (tmp_path / f"three.{language}.tsv").write_text(f"It rains.\tIt pours.\t{score}\nIt snows.\tIt hails.\t1\n")
    recipe = small_recipe(tmp_path, EPOCH, f"labelled={{{override.format(tmp_path)}}}")
    with pytest.raises(InputError, match=message):
        plan(recipe, tmp_path / "run")
    with pytest.raises(InputError, match=message):
        distill(recipe, tmp_path / "run")


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("assistant/config.json", {"model_type": "gpt2"}, "model_type is 'gpt2'; supported are bert, "),
        ("assistant/config.json", {"quantization_config": {"bits": 8}}, "has a quantization_config"),
        ("assistant/model.safetensors", None, r"model\.safetensors: no such file; only safetensors weights are read"),
        ("assistant/tokenizer.json", None, r"tokenizer\.json: no such file; name the tokenizer\.json"),
        ("assistant/tokenizer_config.json", {"truncation_side": "left"}, "truncation_side is 'left'"),
        (
            "assistant/adapter_config.json",
            {"base_model_name_or_path": "a/b"},
            "an adapter of 'a/b'.*; merge",
        ),
        ("teacher/modules.json", None, "teacher.pooling: not given"),
        ("teacher/model.safetensors", None, "teacher.source: .* has no safetensors weights"),
        (
            "teacher/config.json",
            {"model_type": "walrus"},
            "teacher.source: .* 'walrus', which transformers .* know",
        ),
    ],
)
def test_a_dry_run_refuses_the_models_that_distill_refuses(
    file: str, change: dict[str, object] | None, message: str, tmp_path: Path
) -> None:
    recipe, path = small_recipe(tmp_path), tmp_path / file
    if change is None:
        path.unlink()
    else:
        write_json(path, (read_json(path) if path.is_file() else {}) | change)
    for refuse in (plan, distill):
        with pytest.raises(InputError, match=message):
            refuse(recipe, tmp_path / "run")


def test_a_teacher_without_token_types_is_accepted(tmp_path: Path) -> None:
    recipe, file = small_recipe(tmp_path), tmp_path / "teacher" / "config.json"
    write_json(file, read_json(file) | {"model_type": "deberta-v2", "type_vocab_size": 0})
    assert plan(recipe, tmp_path / "run").student


def test_a_dry_run_refuses_a_model_inside_the_run_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"teacher.source: .* is inside the run folder; choose another --run"):
        plan(small_recipe(tmp_path), tmp_path)


def test_a_dry_run_refuses_what_cannot_be_a_run_folder(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/mine.txt").touch()
    with pytest.raises(InputError, match="notes: is not empty and not a run; choose another --run"):
        plan(recipe, tmp_path / "notes")
    with pytest.raises(InputError, match=r"mine\.txt: cannot be a run folder"):
        plan(recipe, tmp_path / "notes/mine.txt")
    for target in ("link", "absent"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(tmp_path / target)
        with pytest.raises(InputError, match=r"link: cannot be a run folder \(a link that leads nowhere\)"):
            plan(recipe, tmp_path / "link")


def test_a_dry_run_lists_files_that_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(plan(small_recipe(tmp_path, "teacher.source=./absent", "dev.sts=sets"), tmp_path / "run"))
    said = capsys.readouterr().err
    assert "no such file: ./absent" in said
    assert "no such file: sets" in said  # no hub has text


def test_sizes_and_times_of_any_length_are_readable() -> None:
    assert [_size(megabytes) for megabytes in (None, 0, 999, 1234)] == ["? GB", "0 MB", "999 MB", "1.2 GB"]
    times = ["? min", "0 s", "99 s", "1.7 min", "100.0 min", "1.7 h", "100.0 h"]
    assert [_time(seconds) for seconds in (None, 0, 99, 100, 5999, 6000, 360_000)] == times


def test_a_dry_run_writes_nothing(recipe_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(recipe_file)
    planned = plan(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert [stage.name for stage in planned.stages] == list(recipe.stages)
    assert all(planned.sources.values()) and not planned.pairs
    assert planned.lines == {"de": 162, "fr": 162}


def test_a_dry_run_after_the_run_knows_its_pairs_and_its_stages(recipe_file: Path, tmp_path: Path) -> None:
    stages = stages_of(first="objectives: {assistant: 1}, steps: 1", second="objectives: {contrast: 1}, steps: 1")
    finished, _ = run(recipe_file, tmp_path, stages)
    planned = plan(load_recipe(recipe_file, [stages]), finished)
    assert sum(planned.pairs.values()) > 0 and all(stage.finished for stage in planned.stages)
    sizes = Student.load(finished / "student")[0].sizes()
    assert planned.stages[-1].parameters == sum(sizes.values())


def test_a_dry_run_tells_stages_of_similar_names_apart(recipe_file: Path, tmp_path: Path) -> None:
    stage = "{train: student, objectives: {contrast: 1}, steps: 4}"
    recipe = load_recipe(recipe_file, [f"stages={{warm-up: {stage}, up: {stage}}}"])
    (tmp_path / "run/1-warm-up").mkdir(parents=True)
    (tmp_path / "run/1-warm-up/step.json").write_text("{}")
    assert [stage.finished for stage in plan(recipe, tmp_path / "run").stages] == [True, False]


def test_a_dry_run_knows_the_width_of_a_released_teacher_but_not_its_speed(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = plan(load_recipe(recipe_file, [CONTRAST, "teacher={source: 'released:small'}"]), tmp_path / "run")
    assert planned.targets and planned.targets.megabytes is not None
    assert planned.targets.stored_seconds is planned.targets.live_seconds is None
    show(planned)
    assert "stored, 0 MB on disk; live, no disk; the recipe has stored" in " ".join(capsys.readouterr().err.split())


def test_a_dry_run_does_not_guess_the_epochs_of_pairs_that_it_has_not_read(recipe_file: Path, tmp_path: Path) -> None:
    stage = "{train: student, objectives: {graded: 1}, epochs: 2}"
    changes = [f"stages={{labels: {stage}}}", *write_labelled(tmp_path)]
    (planned,) = plan(load_recipe(recipe_file, changes), tmp_path / "run").stages
    assert (planned.steps, planned.pairs, planned.seconds) == (None, None, None)


def test_a_dry_run_counts_the_tokens_of_each_pair_once(
    recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("xcompress.distillation.plan._measure_flops", lambda _: 1e6)

    def megabytes(*changes: str) -> int | None:
        planned = plan(load_recipe(recipe_file, [CONTRAST, *changes]), tmp_path / "run")
        show(planned)
        return planned.token_megabytes

    each = 2 * 24 * 2 + 16  # two sides of 24 tokens, which is 60 % of 40, and their offsets
    assert megabytes("stages.contrast.steps=100000000") == round(648 * each / 1e6) == 0, "each line of the files once"
    missing = ["corpus.tsv=[{source: none.tsv, language: de}]", "languages=[de]"]
    read = 8 * 1_000_000
    assert megabytes("stages.contrast.steps=1000000", *missing) == round(read * each / 1e6)
    assert f"tokens of the text, at most: {read * each / 1e6:.0f} MB on disk" in capsys.readouterr().err
    shape = "{vocabulary: 250002, hidden: 32, layers: 4, heads: 4, intermediate: 64, positions: 64}"
    large = f"assistant={{source: org/large, shape: {shape}}}"
    twice = round(read * (each + 2 * 24 * 2) / 1e6)
    assert megabytes("stages.contrast.steps=1000000", *missing, large) == twice


def test_a_dry_run_counts_the_pairs_of_every_kind(
    recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xcompress.distillation.plan._measure_flops", lambda _: 1e6)
    groups = f"correlation={{teacher: {{source: {recipe_file.parent}/teacher}}, pairs: 100000}}"
    more = ["stages.contrast.objectives={teacher: 1, correlation: 1}", "stages.contrast.correlation_pairs=4", groups]
    one, several = (plan(load_recipe(recipe_file, [CONTRAST, *changes]), tmp_path / "run") for changes in ([], more))
    assert one.stages[0].seconds and several.stages[0].seconds
    assert several.stages[0].seconds == pytest.approx(5 * one.stages[0].seconds, rel=0.1), "1 translation, 4 in groups"
    assert several.token_megabytes == round(100_000 * (2 * 24 * 2 + 16) / 1e6) > (one.token_megabytes or 0)
