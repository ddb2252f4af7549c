"""`xcompress bench`: measure bundles and compare them with a reference."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from xcompress.bench import MAX_SLOW_DOWN, MOST_DISTRACTORS
from xcompress.bundle import MOST_THREADS
from xcompress.cli.options import AsJson, language_codes, real_number, whole_number
from xcompress.errors import InputError

if TYPE_CHECKING:
    from xcompress.bench.report.compare import Comparison
    from xcompress.bench.results import Report
    from xcompress.recipe.budgets import Budgets


def bench(
    context: typer.Context,
    bundles: Annotated[
        list[str] | None,
        typer.Argument(
            help="Bundles (folders or hub ids) or released models (xcompress models) to measure side by side; default: "
            "the newest bundle. Also any model that --reference takes. label=bundle sets the name in the report."
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help="Where to measure. cpu. cuda. mobile: this CPU with one thread and a memory ceiling. wasm: headless "
            "Chromium with onnxruntime-web. webgpu: the same on WebGPU. ssh:HOST: any Linux host with Python."
        ),
    ] = "cpu",
    reference: Annotated[
        str | None,
        typer.Option(
            help="Model to compare with: a student, an encoder or a bundle (folder, hub id, wheel:...), or "
            "python:module:name; default: the assistant of the run."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with evaluation sets (STS, Tatoeba, classification), at any depth.")
    ] = None,
    languages: Annotated[
        str | None, typer.Option(help="Languages to test, such as en,de; default: those of the bundles.")
    ] = None,
    distractors: Annotated[
        int,
        whole_number(
            "--distractors",
            0,
            MOST_DISTRACTORS,
            help="Search translations among this many more sentences per language (plain text in --data).",
        ),
    ] = 0,
    margin: Annotated[
        bool, typer.Option("--margin", help="Rank translations by the ratio margin instead of the cosine.")
    ] = False,
    grid: Annotated[str, typer.Option(help="Shapes to time, batch x tokens.")] = "1x16,1x128,32x32",
    threads: Annotated[str, typer.Option(help="Thread counts to time.")] = "1,all",
    memory: Annotated[
        int | None, whole_number("--memory", 1, 1_000_000, help="mobile: memory ceiling in MB; default: 256.")
    ] = None,
    slow_down: Annotated[
        float | None,
        real_number("--slow-down", 1, MAX_SLOW_DOWN, help="wasm: slow the processor down by this factor; default: 4."),
    ] = None,
    mteb: Annotated[
        str | None,
        typer.Option(
            help="Only score the bundles on these tasks of mteb, such as STS17,Tatoeba; downloads their data. Takes no "
            "other options than --languages and --json."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds and rows; a minute for small models.")] = False,
    json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of tables.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write an HTML report with charts to this file, and the charts as PNG files.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Older bench.json to compare with: print the changes that exceed the noise.")
    ] = None,
    budgets: Annotated[
        str | None,
        typer.Option(
            help="Recipe, or file with `budgets:` alone, whose limits must hold, else exit code 3; default with "
            "--compare: the recipe of the run."
        ),
    ] = None,
) -> None:
    """Measure size, speed, memory and accuracy of models.

    Example:  xcompress bench

    Example:  xcompress bench runs/minilm_ru3/bundle --data path/to/sets --html report.html

    Example:  xcompress bench my-bundle --reference path/to/my-encoder --budgets ci.yaml

    Example:  xcompress bench small tiny --reference path/to/model --device mobile --memory 100

    Example:  xcompress bench small tiny --mteb STS17,STSBenchmark --languages en,de

    Example:  xcompress bench --compare bench-of-last-release.json --budgets recipes/minilm_ru3.yaml
    """
    if mteb is not None:
        _refuse_with_mteb(context)
        tasks = [task.strip() for task in mteb.split(",") if task.strip()]
        _score_with_mteb(bundles or [], tasks, language_codes(languages), json=json)
        return
    if json and markdown:
        raise InputError("--json and --markdown: choose one of them")
    from xcompress.api import bench_models
    from xcompress.bench.report.budgets import load_budgets, require
    from xcompress.bench.report.compare import compare as compare_reports
    from xcompress.bench.report.compare import read_report
    from xcompress.bench.report.notes import failures

    # Read all input, and check the output, before the measurements, which take minutes.
    if html:
        _check_page(html)
    old_report = read_report(compare) if compare else None
    limits = load_budgets(budgets) if budgets is not None else None
    report = bench_models(
        bundles,
        reference=reference,
        device=device,
        data=data,
        languages=language_codes(languages),
        distractors=distractors,
        margin=margin,
        grid=grid,
        threads=_thread_counts(threads),
        quick=quick,
        memory_mb=memory,
        slow_down=slow_down,
    )
    comparison = compare_reports(report, old_report) if old_report else None
    _print(report, comparison, json=json, markdown=markdown)
    if html:
        _write_page(report, html)
    if limits := limits or (_budgets_of_run(bundles) if compare else None):
        require(report, limits)
    # A subject that exceeds the memory ceiling is a result; one that cannot be measured is an error.
    errors = failures([result for result in report.results if not result.over_memory])
    if errors:
        raise InputError(f"bench: {errors[0]}" + (f"; and {len(errors) - 1} more" if errors[1:] else ""))


def _refuse_with_mteb(context: typer.Context) -> None:
    """Refuse an option that the user gave and that has no effect with --mteb."""
    for name in context.params:
        source = context.get_parameter_source(name)
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and name not in ("bundles", "mteb", "languages", "json"):
            raise InputError(f"--{name.replace('_', '-')}: --mteb only scores; leave it out")


def _check_page(html: Path) -> None:
    """Refuse a page that could not be written, before the measurements."""
    from xcompress.bench.report.pictures import check_pictures
    from xcompress.files import check_writable

    check_writable(html)
    if html.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--html: {html} does not end in .html; write a name such as report.html")
    check_pictures(html.with_suffix(""))


def _print(report: "Report", comparison: "Comparison | None", *, json: bool, markdown: bool) -> None:
    """Print a report, and the comparison with an older one, in the form that was asked for."""
    from xcompress.bench.report import tables
    from xcompress.console import emit

    if json:
        emit(comparison.with_report(report) if comparison else report.to_json())
    elif markdown:
        emit(tables.markdown(report) + (f"\n{comparison.markdown()}" if comparison else ""))
    else:
        tables.show(report)
        if comparison:
            comparison.show()


def _write_page(report: "Report", html: Path) -> None:
    """Write the HTML report, and its pictures beside it."""
    from xcompress.bench.report.html import html as to_html
    from xcompress.bench.report.pictures import write_pngs
    from xcompress.console import say
    from xcompress.files import write_text

    write_text(html, to_html(report))
    for path in (html, *write_pngs(report, html.with_suffix(""))):
        say(f"written: {path}")


def _score_with_mteb(bundles: list[str], tasks: list[str], languages: Sequence[str], *, json: bool) -> None:
    """Print the scores of bundles on tasks of mteb."""
    from xcompress.bench.subjects import find_subjects
    from xcompress.console import emit_json, table
    from xcompress.interop.mteb import evaluate, open_model

    named = bundles or [str(bundle.folder) for bundle in find_subjects(()).bundles]
    scores = evaluate([open_model(name) for name in named], tasks, languages)
    if json:
        emit_json(scores)
        return
    rows = [
        [score.model, score.task, score.metric, f"{100 * value:.1f}", subset]
        for score in scores
        for subset, value in {"all": score.score, **score.subsets}.items()
    ]
    table("Main scores of mteb, x 100", ["model", "task", "metric", "score", "subset"], rows)


def _thread_counts(text: str) -> list[int | Literal["all"]]:
    """Read thread counts such as `1,2` or `1,all`."""
    counts: list[int | Literal["all"]] = []
    for part in map(str.strip, text.split(",")):
        if part != "all" and not (re.fullmatch("[0-9]{1,4}", part) and 1 <= int(part) <= MOST_THREADS):
            raise InputError(f"--threads: {text!r} is not a list of thread counts; write 1,2 or 1,all, for example")
        counts.append("all" if part == "all" else int(part))
    return counts


def _budgets_of_run(bundles: list[str] | None) -> "Budgets | None":
    """Return the budgets in the recipe of the run that the bundles belong to."""
    from xcompress.bench.subjects import find_subjects
    from xcompress.recipe import read_budgets

    run = find_subjects(bundles or []).run
    recipe = run / "recipe.yaml" if run else None
    return read_budgets(recipe) if recipe and recipe.is_file() else None
