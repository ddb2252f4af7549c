"""The pages of export_speed.py and text_speed.py say how they were made, and which figures are noise."""

from importlib import import_module

from tests.helpers.student import make_student
from xcompress.bench.latency import Shape


def test_the_page_has_its_command_and_marks_figures_whose_rounds_differ() -> None:
    export_speed = import_module("export_speed")
    int8 = export_speed.INT8
    form = export_speed.Form("onnxruntime", "nowhere.onnx")
    model = export_speed.Model("mine", make_student(), {int8: form}, {}, [{}, {}])
    times = {("mine", int8, *call): [0.010, 0.010, 0.011] for call in export_speed.CALLS}
    times["mine", int8, Shape(1, 128), 2] = [0.0066, 0.010, 0.0101]
    peaks = {("int8", threads): 1e9 for threads in (1, 2)}
    page = export_speed.page("python benchmarks/export_speed.py mine=runs/mine", [model], times, peaks)
    assert "\n    python benchmarks/export_speed.py mine=runs/mine\n" in page
    (row,) = [line for line in page.splitlines() if line.startswith(f"| {int8} |")]
    assert [cell.endswith(" ~") for cell in row.strip("| ").split(" | ")[1:6]] == [False, False, False, True, False]


def test_the_page_of_text_speed_has_its_command() -> None:
    text_speed = import_module("text_speed")
    times = {("Encoder, onnxruntime", threads): [{"seconds": 2.0, "tokenizer": 0.1}] for threads in (1, 2)}
    command = "python benchmarks/text_speed.py runs/mine"
    page = text_speed.page(command, "runs/mine", times)
    assert page.startswith(f"# From text to vectors\n\n    {command}\n\nWritten with mine on ")
