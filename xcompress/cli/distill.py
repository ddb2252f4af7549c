"""`xcompress distill`: train a student from a recipe."""

from pathlib import Path
from typing import Annotated

import typer

from xcompress.bundle import MOST_THREADS
from xcompress.cli.options import AsJson, whole_number


def distill(
    recipe: Annotated[
        str,
        typer.Argument(
            help="Recipe file, or name of a shipped recipe (xcompress recipe list); recipes/NAME.yaml "
            "means the shipped one where there is no such file."
        ),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes to the recipe as key=value, such as stages.contrast.steps=100.")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run", "--run-folder", help="Run folder; default: runs/<name>. Under torchrun use --run-folder."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Estimate memory and time, list stages, text and parameters; train nothing."),
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard logs to <run>/tensorboard.")
    ] = False,
    processes: Annotated[
        int | None,
        whole_number(
            "--processes", 1, MOST_THREADS, help="Processes that filter a large text; default: one on each core."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Train a small student from a recipe.

    Finished stages are reused, and an interrupted stage continues from its last checkpoint. Under torchrun, several
    processes or hosts share the work.

    Example:  xcompress distill minilm_ru3

    Example:  xcompress distill mine.yaml --dry-run

    Example:  xcompress distill mine.yaml student.bottleneck=256 --run runs/b256

    Example:  torchrun --nproc-per-node 2 -m xcompress distill mine.yaml
    """
    from xcompress.console import emit, emit_json
    from xcompress.recipe import load_recipe

    loaded = load_recipe(recipe, overrides or [])
    if dry_run:
        from xcompress.bundle.manifest import RUNS
        from xcompress.distillation.plan import plan
        from xcompress.distillation.plan import show as show_plan

        planned = plan(loaded, run or RUNS / loaded.name)
        if json:
            emit_json(planned)
        else:
            show_plan(planned)
        return
    from xcompress.api import distill as run_recipe
    from xcompress.distillation.summary import show

    finished = run_recipe(loaded, run=run, tensorboard=tensorboard, processes=processes)
    if json:
        emit((finished.folder / "manifest.json").read_text(encoding="utf-8"))
    else:
        show(finished.folder)
