"""`xcompress bench`: what bundles cost and what they are worth, beside a reference."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xcompress.errors import InputError

if TYPE_CHECKING:
    from xcompress.bench.results import Report, Result
    from xcompress.recipe.schema import Budgets


def bench(
    bundles: Annotated[
        list[str] | None,
        typer.Argument(
            help="Bundles, side by side, or released models (xcompress models); the newest bundle when not given. "
            "Other models may stand beside them, named as for --reference. label=bundle gives it a name in the report."
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help="cpu; mobile: one thread and a memory ceiling; wasm: headless Chromium with onnxruntime-web; cuda; "
            "ssh:HOST: any Linux host with Python."
        ),
    ] = "cpu",
    reference: Annotated[
        str | None,
        typer.Option(
            help="What to compare with: a student, an encoder or a bundle (folder, hub id, wheel:...), or "
            "python:module:name; the run's assistant when not given.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder, of any depth, of STS, Tatoeba and classification sets; see README.", show_default=False
        ),
    ] = None,
    languages: Annotated[
        str | None,
        typer.Option(help="Languages to test, such as en,de; the bundles' own when not given.", show_default=False),
    ] = None,
    distractors: Annotated[
        int, typer.Option(min=0, max=200_000, help="Find translations among so many sentences more (text in --data).")
    ] = 0,
    margin: Annotated[
        bool, typer.Option("--margin", help="Rank translations by the ratio margin, not by the cosine.")
    ] = False,
    grid: Annotated[str, typer.Option(help="Shapes to time, batch x tokens.")] = "1x16,1x128,32x32",
    threads: Annotated[str, typer.Option(help="Numbers of threads to time with.")] = "1,all",
    memory: Annotated[
        int | None, typer.Option(help="mobile: ceiling in MB; 256 when not given.", show_default=False)
    ] = None,
    slow_down: Annotated[
        float | None,
        typer.Option(help="wasm: how many times slower the processor is; 4 when not given.", show_default=False),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds, under a minute.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown in place of tables.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with pictures, and PNGs beside it.", show_default=False)
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(help="An older bench.json: print what changed beyond noise.", show_default=False)
    ] = None,
    budgets: Annotated[
        str | None,
        typer.Option(
            help="Recipe with `budgets:` to hold; the run's own with --compare. Exit code 3 if broken.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Measure size, memory, start, latency, throughput and accuracy of bundles against the model that they came from.

    Example:  xcompress bench --device cpu

    Example:  xcompress bench runs/minilm_ru3/bundle --data path/to/sets --html report.html

    Example:  xcompress bench small other --reference path/to/model --device mobile --memory 100

    Example:  xcompress bench --compare bench-of-last-release.json --budgets recipes/minilm_ru3.yaml
    """
    from xcompress.bench.devices.device import DeviceOptions
    from xcompress.bench.latency import parse_grid
    from xcompress.bench.report.budgets import load_budgets, require
    from xcompress.bench.report.notes import failures
    from xcompress.bench.run import BenchConfig
    from xcompress.bench.run import bench as run_bench

    codes = tuple(code.strip() for code in (languages or "").split(",") if code.strip())
    config = BenchConfig(parse_grid(grid), _threads(threads), quick, data, codes, distractors, margin)
    old = _read(compare)
    limits = load_budgets(budgets) if budgets else None
    report = run_bench(
        bundles, device=device, reference=reference, config=config, options=DeviceOptions(memory, slow_down)
    )
    _print(report, json=json, markdown=markdown)
    if html:
        _write_page(report, html)
    if old:
        _show_changes(report, old)
    if limits := limits or (_own_budgets(bundles) if compare else None):
        require(report, limits)
    if broken := failures([one for one in report.results if not _over_ceiling(report, one)]):
        raise InputError(f"bench: {broken[0]}" + (f"; and {len(broken) - 1} more" if broken[1:] else ""))


def _threads(text: str) -> tuple[int, ...] | None:
    """Read `1,all`, which stands for one and all."""
    parts = [part.strip() for part in text.split(",")]
    if parts == ["1", "all"]:
        return None
    from xcompress.bench.machine import all_threads

    counts = [all_threads() if part == "all" else int(part) if part.isdecimal() else 0 for part in parts]
    if min(counts) < 1:
        raise InputError(f"--threads: {text!r} is no list of numbers; write such as 1,2 or 1,all")
    return tuple(counts)


def _over_ceiling(report: "Report", result: "Result") -> bool:
    """Tell a subject that needs too much memory, which is a finding, from one that cannot be measured."""
    return bool(report.device.memory_ceiling and result.failed and result.failed.startswith("needs "))


def _read(file: Path | None) -> "Report | None":
    from xcompress.bench.report.compare import read_report

    return read_report(file) if file else None


def _print(report: "Report", *, json: bool, markdown: bool) -> None:
    from xcompress.bench.report import tables
    from xcompress.console import emit

    if json or markdown:
        emit(report.to_json() if json else tables.markdown(report))
    else:
        tables.show(report)


def _write_page(report: "Report", file: Path) -> None:
    from xcompress.bench.report.figures import write_pngs
    from xcompress.bench.report.html import html
    from xcompress.console import say
    from xcompress.files import write_text

    write_text(file, html(report))
    for path in (file, *write_pngs(report, file.with_suffix(""))):
        say(f"written: {path}")


def _show_changes(report: "Report", old: "Report") -> None:
    from xcompress.bench.report.compare import compare

    compare(report, old).show()


def _own_budgets(bundles: list[str] | None) -> "Budgets | None":
    """Return the budgets of the recipe that the bundles' run was made with."""
    from xcompress.bench.subjects import find_subjects
    from xcompress.recipe import load_recipe

    run = find_subjects(bundles or []).run
    recipe = run / "recipe.yaml" if run else None
    return load_recipe(recipe).budgets if recipe and recipe.is_file() else None
