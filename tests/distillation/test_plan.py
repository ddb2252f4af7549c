"""What a dry run counts before the text is filtered."""

from pathlib import Path

import pytest

from tests.helpers.recipe import small_recipe, stages_of
from xcompress.distillation.plan import Plan, plan, show

EPOCH = stages_of(a="objectives: {teacher: 32}, epochs: 1")
FILE = "{{source: {}/en-{}.tsv, language: {}{}}}"


@pytest.fixture(autouse=True)
def no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.distillation.plan._measure_flops", lambda _: 1e9)


def planned(folder: Path, files: list[str], *overrides: str) -> Plan:
    tsv = f"corpus.tsv=[{', '.join(files)}]"
    return plan(small_recipe(folder, EPOCH, tsv, *overrides), folder / "run")


@pytest.mark.parametrize(("overrides", "pairs"), [((), 40 + 324), (("corpus.max_pairs=80",), 40 + 80)])
def test_epochs_count_as_many_pairs_as_are_read_at_most(overrides: tuple[str, ...], pairs: int, tmp_path: Path) -> None:
    files = [FILE.format(tmp_path, "de", "de", ", max_pairs: 40"), FILE.format(tmp_path, "fr", "fr", "")]
    found = planned(tmp_path, files, *overrides)
    assert found.lines == {"de": 324, "fr": 324}
    assert found.stages[0].steps == -(-pairs // 8)


@pytest.mark.parametrize("more", ["file", "catalogue"])
def test_epochs_are_not_known_where_not_all_text_is_counted(
    more: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [FILE.format(tmp_path, name, name, "") for name in ("de", "fr")]
    files += [FILE.format(tmp_path, "absent", "de", "")] if more == "file" else []
    found = planned(tmp_path, files, *([f"corpus.catalogues=[{tmp_path}]"] if more == "catalogue" else []))
    assert found.lines == {"de": 324, "fr": 324}
    assert found.stages[0].steps is found.token_megabytes is None
    show(found)
    assert "teacher's vectors, at most: stored ? on disk and ?, live none and ?;" in capsys.readouterr().err
