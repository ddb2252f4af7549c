import os
import random
import subprocess
import sys
import textwrap
from dataclasses import replace
from itertools import combinations
from math import dist
from pathlib import Path
from struct import unpack
from xml.etree import ElementTree

import pytest

from tests.helpers.files import digest
from tests.helpers.report import BROKEN, FP32, INT8, REFERENCE, STATIC, small_report, without
from xcompress.bench.report.format import in_megabytes, milliseconds, shorten, signed, times
from xcompress.bench.report.headlines import headlines, pareto_front
from xcompress.bench.report.html import html
from xcompress.bench.report.pictures import pictures, svg, write_pngs
from xcompress.bench.report.pictures.catalogue import accuracy_rows
from xcompress.bench.report.pictures.labels import Box, beside, nearest
from xcompress.bench.results import Accuracy, Report, Size
from xcompress.errors import InputError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
matplotlib_needed = pytest.mark.skipif(
    __import__("importlib.util").util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


def names_of(report: Report) -> list[str]:
    return [one.name for one in pictures(report)]


def draw(report: Report, name: str, dark: bool = False) -> str:
    return svg(report, next(one for one in pictures(report) if one.name == name), dark)


@matplotlib_needed
def test_a_matplotlibrc_changes_no_picture(tmp_path: Path) -> None:
    """matplotlib reads the one in the current folder. LaTeX would run commands that a name holds."""
    code = """
        import hashlib
        from xcompress.bench.report.pictures import pictures, svg
        from tests.helpers.report import small_report
        picture = pictures(small_report())[0]
        print(hashlib.sha256(svg(small_report(), picture, False).encode()).hexdigest())
    """
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nlines.linewidth: 9\n")
    command = [sys.executable, "-c", textwrap.dedent(code)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("MATPLOTLIBRC", None)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-300:]
    assert done.stdout.strip() == digest(draw(small_report(), "size").encode())


def test_front_of_points_by_hand() -> None:
    points = [(5.0, 1.0), (1.0, 3.0), (2.0, 2.0), (4.0, 9.0), (4.0, 8.0)]
    assert pareto_front(points) == [1, 3]


def test_front_of_none_and_of_one() -> None:
    assert pareto_front([]) == []
    assert pareto_front([(3.0, 3.0)]) == [0]


@pytest.mark.parametrize("seed", range(8))
def test_nothing_dominates_the_front_and_the_rest_is_dominated(seed: int) -> None:
    draw = random.Random(seed)
    points = [(float(draw.randint(0, 6)), float(draw.randint(0, 6))) for _ in range(12)]

    def dominated(one: tuple[float, float]) -> bool:
        return any(x <= one[0] and y >= one[1] and (x < one[0] or y > one[1]) for x, y in points)

    kept = set(pareto_front(points))
    assert kept == {number for number, point in enumerate(points) if not dominated(point)}


def test_labels_do_not_cover_each_other_in_a_crowd() -> None:
    points = [(100.0 + 6 * (number % 3), 100.0 + 5 * number) for number in range(8)]
    frame = Box(0, 0, 400, 300)
    boxes = beside(points, [(90.0, 12.0)] * 8, [Box(x - 5, y - 5, x + 5, y + 5) for x, y in points], frame)
    assert all(one.common(other) == 0 for one, other in combinations(boxes, 2))
    assert all(box.common(frame) == pytest.approx(box.area) for box in boxes)


def test_a_label_stays_in_the_frame() -> None:
    (box,) = beside([(395.0, 50.0)], [(90.0, 12.0)], [], Box(0, 0, 400, 300))
    assert box.right <= 400


def test_a_label_is_nearer_to_its_own_point_than_to_others() -> None:
    points = [(100.0, 100.0), (170.0, 112.0)]  # at the right edge; to its left, the label would touch the first point
    boxes = beside(points, [(20.0, 12.0), (110.0, 12.0)], [], Box(0, 0, 180, 200))
    for own, box in zip(points, boxes, strict=True):
        assert own == min(points, key=lambda point: dist(point, nearest(point, box)))


def test_words() -> None:
    assert [in_megabytes(size) for size in (1_234_567_000, 99_940_000, 1_500_000)] == ["1,235", "99.9", "1.50"]
    assert [milliseconds(one) for one in (1.5, 0.0123, 0.0002)] == ["1,500", "12.3", "0.20"]
    assert [times(one) for one in (149.5, 3.94, 1.2)] == ["150×", "3.9×", "1.20×"]
    assert [signed(one) for one in (-0.84, -0.04, 2.0)] == ["−0.8", "0.0", "2.0"]


def test_a_long_name_keeps_both_ends_and_one_line() -> None:
    name = shorten("runs/some/where/far\ndown/in/a/tree/of/folders/bundle int8")
    assert len(name) <= 44 and "\n" not in name
    assert name.startswith("runs/some") and name.endswith("bundle int8")


def test_a_set_of_the_users_comes_before_the_built_in_one_however_small() -> None:
    report = small_report()
    own = next(accuracy for accuracy in report.results[0].accuracy if accuracy.kind == "similarity")
    tests = (replace(own, test="built-in", rows=5000), replace(own, test="mine", rows=10))
    results = tuple(replace(one, accuracy=tests) for one in report.results)
    assert headlines(replace(report, results=results))[0].test == "mine"


def test_rows_that_training_may_have_seen_are_no_headline() -> None:
    report = small_report()
    own = next(accuracy for accuracy in report.results[0].accuracy if accuracy.kind == "similarity")
    names = "sts", "sts: unseen", "sts: news", "sts: news, unseen"
    tests = tuple(replace(own, test=name, rows=900 - row) for row, name in enumerate(names))
    results = tuple(replace(one, accuracy=tests) for one in report.results)
    assert headlines(replace(report, results=results))[0].test == "sts: unseen"


def test_headlines_are_one_for_each_kind() -> None:
    assert [one.label for one in headlines(small_report())] == [
        "stsb-multi-mt, average",
        "tatoeba, average",
        "topics, average",
    ]


def test_likeness_is_a_headline_only_where_nothing_else_is() -> None:
    report = small_report()
    alike = [replace(test, kind="agreement") for test in report.results[2].accuracy[:1]]
    both = replace(report.results[2], accuracy=(*alike, report.results[2].accuracy[1]))
    assert [one.kind for one in headlines(replace(report, results=(both,)))] == ["retrieval"]
    assert [one.kind for one in headlines(replace(report, results=(replace(both, accuracy=tuple(alike)),)))] == [
        "agreement"
    ]


def test_pictures_of_a_report() -> None:
    assert names_of(small_report()) == [
        "size",
        "size-retrieval",
        "size-classification",
        "latency-1-thread",
        "latency-2-threads",
        "accuracy-stsb-multi-mt",
        "accuracy-tatoeba",
        "accuracy-topics",
        "memory",
    ]


def test_pictures_without_data_are_left_out() -> None:
    report = small_report()
    assert names_of(without(report, "accuracy", "memory")) == ["latency-1-thread", "latency-2-threads"]
    assert names_of(without(report, "latency", "accuracy")) == ["memory"]
    assert names_of(without(report, "latency", "accuracy", "memory")) == []


def test_tests_of_like_names_have_files_of_their_own() -> None:
    report = small_report()
    first = report.results[0]
    tests = tuple(replace(one, test=name) for one, name in zip(first.accuracy, ("a b", "a/b", "ü"), strict=True))
    names = names_of(replace(report, results=(replace(first, accuracy=tests),)))
    assert [one for one in names if one.startswith("accuracy")] == ["accuracy-a-b-1", "accuracy-a-b-2", "accuracy-test"]


def test_alt_texts_hold_names_and_figures() -> None:
    found = {one.name: one.alt for one in pictures(small_report())}
    assert f"{INT8}: 42.0 MB, 71.6" in found["size"]
    assert all(name in found["size"] for name in (REFERENCE, FP32, STATIC))
    assert BROKEN not in found["size"]
    assert f"{FP32}: 1 × 16 tokens 5.30 ms" in found["latency-1-thread"]
    assert STATIC not in found["latency-1-thread"]
    assert f"{INT8}: 79.0 MB resident" in found["memory"]


def test_of_too_many_pairs_those_that_differ_most_are_drawn() -> None:
    report = small_report()

    def many(name: str, spread: float) -> Report:
        result = next(one for one in report.results if one.name == name)
        test = result.accuracy[0]
        figures = {f"p{n}": replace(test.figures["en-en"], value=50 + spread * n) for n in range(40)}
        return replace(result, accuracy=(replace(test, figures=figures),))  # type: ignore[return-value]

    wide = replace(report, results=(many(REFERENCE, 0.0), many(INT8, 1.0)))  # type: ignore[arg-type]
    rows, count = accuracy_rows(wide, "stsb-multi-mt")
    assert count == 41
    names = [row.name for row in rows]
    assert names[0] == "average" and names[-1] == "p39" and "p0" not in names
    assert f"The {len(rows)} rows of 41" in next(
        one.caption for one in pictures(wide) if one.name.startswith("accuracy")
    )


@matplotlib_needed
def test_the_95th_percentile_of_few_calls_is_not_drawn() -> None:
    def drawn(**changes: object) -> str:
        report = without(small_report(), "memory", "accuracy")
        first = report.results[0]
        latency = tuple(replace(one, **changes) for one in first.latency[:1])  # type: ignore[arg-type]
        return draw(replace(report, results=(replace(first, latency=latency),)), "latency-1-thread")

    assert drawn(calls=19, p95=0.9) == drawn(calls=19, p95=0.8) != drawn(calls=20, p95=0.9)
    assert drawn(calls=20, p95=0.9) != drawn(calls=20, p95=0.8)


@matplotlib_needed
def test_pngs_are_pngs(tmp_path: Path) -> None:
    report = small_report()
    written = write_pngs(report, tmp_path)
    assert [path.name for path in written] == [f"{name}.png" for name in names_of(report)]
    assert sorted(tmp_path.iterdir()) == sorted(written)
    for path in written:
        head = path.read_bytes()[:24]
        width, height = unpack(">II", head[16:24])
        assert head.startswith(SIGNATURE)
        assert 900 < width < 1400 and 200 < height < 2400


@matplotlib_needed
def test_dark_pngs_have_names_and_a_ground_of_their_own(tmp_path: Path) -> None:
    report = without(small_report(), "latency", "accuracy")
    (light,), (dark,) = write_pngs(report, tmp_path), write_pngs(report, tmp_path, dark=True)
    assert (light.name, dark.name) == ("memory.png", "memory-dark.png")
    assert light.read_bytes() != dark.read_bytes()


@matplotlib_needed
def test_a_folder_that_is_a_file_leaves_it_alone(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(InputError, match="taken: is a file"):
        write_pngs(without(small_report(), "latency", "accuracy"), tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


@matplotlib_needed
@pytest.mark.parametrize("dark", [False, True])
def test_svgs_are_complete_and_load_no_external_file(dark: bool) -> None:
    report = small_report()
    for name in ("size", "latency-1-thread", "accuracy-topics", "memory"):
        drawn = draw(report, name, dark)
        assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
        rest = drawn.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xlink", "")
        assert "http" not in rest and "url(" not in rest.replace("url(#", "") and "<image" not in rest


@matplotlib_needed
def test_svgs_are_the_same_every_time() -> None:
    assert draw(small_report(), "memory") == draw(small_report(), "memory")
    assert draw(small_report(), "memory") != draw(small_report(), "memory", dark=True)


@matplotlib_needed
@pytest.mark.parametrize(
    "names", [('<b>&"x', "$\\frac$ {x} %s", "_hidden", ""), ("長い\x00\n名前", "\udcff", "w" * 300)]
)
def test_names_are_never_markup_nor_formulas(names: tuple[str, ...]) -> None:
    report = small_report()
    new = dict(zip((INT8, FP32, REFERENCE, STATIC), names, strict=False))
    results = tuple(replace(one, name=new.get(one.name, one.name)) for one in report.results)
    hostile = replace(report, results=results, reference=new.get(REFERENCE, REFERENCE))
    for picture in pictures(hostile):
        if picture.name in ("size", "latency-1-thread", "accuracy-topics", "memory"):
            ElementTree.fromstring(svg(hostile, picture, False))


@matplotlib_needed
def test_tests_languages_and_metrics_are_drawn_as_they_are() -> None:
    report = small_report()
    name = "$\\frac{1}$ \x1b[31m\u202e \udcff <b>"

    def renamed(accuracy: Accuracy) -> Accuracy:
        figures = {f"{name} {pair}": figure for pair, figure in accuracy.figures.items()}
        averages = {f"{name} {pair}": figure for pair, figure in accuracy.averages.items()}
        return replace(accuracy, test=f"{name} {accuracy.test}", metric=name, figures=figures, averages=averages)

    results = tuple(replace(one, accuracy=tuple(map(renamed, one.accuracy))) for one in report.results)
    hostile = replace(report, results=results)
    for picture in pictures(hostile):
        if picture.name == "size" or picture.name.startswith("accuracy"):
            ElementTree.fromstring(svg(hostile, picture, False))


@matplotlib_needed
def test_one_subject_without_a_reference_is_drawn() -> None:
    report = without(small_report(), "memory")
    alone = replace(report, results=(report.results[2],), reference=None)
    for picture in pictures(alone):
        ElementTree.fromstring(svg(alone, picture, False))


@matplotlib_needed
def test_a_dollar_is_drawn_as_a_dollar() -> None:
    from xcompress.bench.report.pictures.style import LIGHT, canvas, head, styled

    with styled(LIGHT):
        figure, axes = canvas(2)
        head(figure, "$a$")
        axes.set_xlabel("$b_1$")
        axes.set_yticks([0], ["$c$"])
        texts = [figure.legends[0].get_title(), axes.xaxis.label, *axes.get_yticklabels()]
        assert [(text.get_text(), text.get_parse_math()) for text in texts] == [
            ("$a$", False),
            ("$b_1$", False),
            ("$c$", False),
        ]


@matplotlib_needed
def test_labels_of_the_size_picture_do_not_overlap() -> None:
    from matplotlib.text import Text

    from xcompress.bench.report.pictures.scatter import draw_size
    from xcompress.bench.report.pictures.style import LIGHT, styled

    report = small_report()
    crowd = tuple(
        replace(one, name=f"{one.name} {n}", size=replace(one.size, weights=int(one.size.weights * (1 + 0.05 * n))))
        for one in report.results[:3]
        for n in range(3)
    )
    with styled(LIGHT):
        figure = draw_size(replace(report, results=crowd), headlines(report)[0], LIGHT)
        figure.draw_without_rendering()
        (axes,) = figure.axes
        boxes = [Text.get_window_extent(text) for text in axes.texts]  # without the line to the marker
    assert len(boxes) == 9
    frame = axes.get_window_extent()
    for one, other in combinations(boxes, 2):
        assert min(one.x1, other.x1) - max(one.x0, other.x0) < 1 or min(one.y1, other.y1) - max(one.y0, other.y0) < 1
    assert all(box.x0 >= frame.x0 and box.x1 <= frame.x1 + 1 for box in boxes)


def test_listing_pictures_imports_no_matplotlib() -> None:
    code = (
        "import sys, xcompress.bench.report.html, xcompress.bench.report.pictures; print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_missing_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.packages.is_installed", lambda _: False)
    with pytest.raises(InputError, match=r"pip install 'xcompress\[bench\]'"):
        draw(small_report(), "memory")


def test_a_subject_of_unknown_size_is_left_out_of_the_picture_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    report = small_report()
    unknown = replace(report.results[-2], size=Size(0, 0, ""))
    shown = replace(report, results=(*report.results[:-2], unknown, report.results[-1]))
    picture = next(one for one in pictures(shown) if one.name == "size")
    assert unknown.name not in picture.alt
    assert svg(shown, picture, False).startswith("<svg")
    none = replace(report, results=tuple(replace(one, size=Size(0, 0, "")) for one in report.results))
    monkeypatch.setattr("xcompress.bench.report.html.svg", lambda *_: "<svg/>")  # the text of the page is read
    assert "size" not in [one.name for one in pictures(none)]
    assert "No other subject" not in html(none)
