import pytest

from xcompress import console


def test_a_log_gets_a_line_with_an_eta_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 0.0, 1.0, 20.0, 21.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    ticker = console.LineTicker("training", 40)
    ticker.advance(2)
    ticker.advance(8, note="loss 0.5")
    ticker.advance(1)
    assert capsys.readouterr().err.strip() == "training 10/40 loss 0.5 ETA 60 s"


def test_the_eta_of_work_that_goes_on_is_of_the_steps_done_now(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 0.0, 5.0, 25.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    ticker = console.LineTicker("training", 4000)
    ticker.start_at(2000)
    ticker.advance(10)
    assert capsys.readouterr().err.strip() == "training 2010/4000 ETA 3980 s"


def test_names_from_users_are_not_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console.fail("runs/[bold]: no such folder")
    assert "runs/[bold]: no such folder" in capsys.readouterr().err


def test_markdown_tables_align_figures_to_the_right() -> None:
    expected = "| model | size |\n| --- | --: |\n| small | 13 |"
    assert console.markdown_table(["model", "size"], [["small", "13"]]) == expected
