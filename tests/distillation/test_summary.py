from pathlib import Path

import pytest

from xcompress.distillation.summary import show, table_of_languages, table_of_steps
from xcompress.files import write_json

DEV: dict[str, dict[str, float]] = {
    "sts": {},
    "spearman": {"de": 60.0, "fr": 70.0},
    "retrieval": {"de": 90.0, "fr": 95.0},
}
RUN = {
    "languages": ["en", "de", "fr"],
    "dev": {"spearman": 65.0, "retrieval": 92.5},
    "steps": {
        "corpus": {"seconds": 3.0, "facts": {}},
        "1-contrast": {
            "seconds": 61.7,
            "facts": {
                "untrained": DEV,
                "dev": DEV,
                "dev_by_depth": {"1": DEV},
                "loss": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.5}],
            },
        },
    },
}


def test_models_scored_before_training_have_a_row_without_a_time() -> None:
    assert table_of_steps(RUN)[1] == [
        ("corpus", "3 s", "", "", "", ""),
        ("student before training", "", "", "", "65.0", "92.5"),
        ("1-contrast", "62 s", "2.0000", "1.5000", "65.0", "92.5"),
        ("1-contrast, depth 1", "", "", "", "65.0", "92.5"),
    ]


def test_the_next_command_names_the_run_wherever_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name, export takes the newest run of runs/."""
    write_json(tmp_path / "my run/manifest.json", RUN)
    show(tmp_path / "my run")
    assert f"next: xcompress export '{tmp_path}/my run'" in " ".join(capsys.readouterr().err.split())


def test_every_language_has_its_column() -> None:
    head, rows = table_of_languages(RUN)
    assert head == ("step", "de", "fr")
    assert rows == [
        ("student before training", "60 / 90", "70 / 95"),
        ("1-contrast", "60 / 90", "70 / 95"),
        ("1-contrast, depth 1", "60 / 90", "70 / 95"),
    ]


def test_scores_on_sts_sets_have_columns_where_there_are_any() -> None:
    assert table_of_steps(RUN)[0][-2:] == ("agreement", "translations found")
    scored = DEV | {"sts": {"en-de": 50.0, "en-fr": 60.0, "de-de": 70.0}}
    run = {**RUN, "dev": {"spearman": 0.0, "retrieval": 0.0, "sts en-xx": 0.0}}
    steps = {"1-contrast": {"seconds": 1.0, "facts": {"dev": scored}}}
    head, rows = table_of_steps({**run, "steps": steps})
    assert head[-1] == "sts en-xx"
    assert [row[-1] for row in rows] == ["55.0"]
