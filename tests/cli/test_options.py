"""Every option that takes a number, with numbers that no command can work with."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer

from tests.helpers.student import bundle
from xcompress.bench.latency import SHAPES, parse_grid
from xcompress.bench.run import BenchConfig
from xcompress.bundle.encoder import Encoder
from xcompress.cli.bench import _thread_counts
from xcompress.cli.main import app
from xcompress.cli.options import language_codes, real_number, whole_number
from xcompress.errors import InputError
from xcompress.export.config import ExportConfig
from xcompress.paths import cache_folder

IMPOSSIBLE = ["-1", str(10**30), "9" * 5000, "nan", "inf", "-inf", "1e400", "x", "", "1 2", "\0", "0x10", "one\ntwo"]


def commands(group: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401
    """Yield every command of the program and its name."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*names, name))
        else:
            yield (*names, name), command


def types_in(callback: Callable[..., Any], name: str) -> tuple[object, ...]:
    """Return the types that a parameter of a command may have."""
    annotation = get_type_hints(callback).get(name)
    return get_args(annotation) or (annotation,)


COMMANDS = dict(commands(typer.main.get_command(app)))
NUMBERS = [
    (names, option.opts[0])
    for names, command in COMMANDS.items()
    for option in command.params
    if option.param_type_name == "option" and {int, float} & set(types_in(command.callback, option.name))
]


@pytest.mark.parametrize("code", ["\udcff", "dé", "中"])
def test_a_language_code_is_ascii(code: str) -> None:
    with pytest.raises(InputError, match="is no language code"):
        language_codes(f"en,{code}")


def test_the_options_that_take_numbers_are_found() -> None:
    found = {" ".join((*names, option)) for names, option in NUMBERS}
    assert found == {
        "bench --distractors",
        "bench --memory",
        "bench --slow-down",
        "demo --port",
        "distill --processes",
        "embed --threads",
        "export --dim",
        "export --gate",
        "export --max-tokens",
        "export --recurrences",
        "export --vocabulary",
        "search --column",
        "search --threads",
        "search -k",
        "trim --min-count",
        "trim --vocabulary",
    }


@pytest.mark.parametrize(
    ("names", "option"), NUMBERS, ids=lambda value: " ".join(value) if isinstance(value, tuple) else value
)
def test_a_number_that_no_command_can_work_with_is_refused_in_one_line(names: tuple[str, ...], option: str) -> None:
    command = COMMANDS[names]
    arguments = ["x" for parameter in command.params if parameter.param_type_name == "argument"]
    for value in IMPOSSIBLE:
        with pytest.raises(InputError) as caught:
            command.make_context(" ".join(names), [*arguments, option, value])
        message = str(caught.value)
        assert message.startswith(f"{option} is ")
        assert "; give a " in message
        assert "\n" not in message
        assert len(message) < 200
    command.make_context(" ".join(names), [*arguments, option, "2"])


def test_defaults_are_within_the_bounds() -> None:
    for names, command in COMMANDS.items():
        arguments = ["x" for parameter in command.params if parameter.param_type_name == "argument"]
        command.make_context(" ".join(names), arguments)


def test_the_default_grid_of_the_command_is_that_of_python() -> None:
    grid = next(option.default for option in COMMANDS["bench",].params if option.name == "grid")
    assert parse_grid(grid) == SHAPES == BenchConfig().grid


def test_bounds_are_part_of_the_range() -> None:
    whole, real = whole_number("--n", 1, 5, help="").parser, real_number("--x", 0, 0.5, help="").parser
    assert [whole("1"), whole("5"), whole(3)] == [1, 5, 3]
    assert [real("0"), real("0.5"), real(0.25)] == [0, 0.5, 0.25]
    for parse, value in ((whole, "0"), (whole, "6"), (whole, "1.5"), (real, "-0.1"), (real, "0.51")):
        with pytest.raises(InputError, match="give a"):
            parse(value)


def test_all_threads_are_those_of_the_device_and_not_of_this_machine() -> None:
    assert _thread_counts("1, 2,all") == [1, 2, "all"]


@pytest.mark.parametrize("text", [*IMPOSSIBLE, "0", "1,", "1,x", "²", "٣", "1025", "all,0"])
def test_lists_of_threads_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match="--threads"):
        _thread_counts(text)


@pytest.mark.parametrize("text", [*IMPOSSIBLE, "0x0", "1x", f"1x{'9' * 5000}", "99999x99999", "1x16;1x8", "nanxnan"])
def test_grids_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match="--grid"):
        parse_grid(text)


@pytest.mark.parametrize("gate", [float("nan"), float("inf"), -1.0])
def test_a_gate_from_python_must_be_a_number(gate: float) -> None:
    with pytest.raises(InputError, match="gate"):
        ExportConfig(gate=gate)


@pytest.mark.parametrize("threads", [0, -1, 10**30])
def test_threads_from_python_must_be_a_number_of_threads(threads: int) -> None:
    with pytest.raises(InputError, match="threads"):
        Encoder(bundle(), threads=threads)


@pytest.mark.parametrize("value", ["~nobody-of-this-name/x", "x" * 5000, "/dev/null/x", "/proc/x"])
def test_a_cache_that_is_no_folder_is_named_with_its_variable(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from xcompress.paths import explain_cache_errors

    monkeypatch.setenv("XCOMPRESS_CACHE", value)
    with pytest.raises(InputError, match="XCOMPRESS_CACHE"), explain_cache_errors():
        (cache_folder() / "wheels").mkdir(parents=True)


def test_an_ssh_command_with_an_open_quote_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    from xcompress.bench.devices.ssh import SSH, SshHost

    monkeypatch.setenv(SSH, "ssh 'x")
    with pytest.raises(InputError, match=SSH):
        SshHost("host")


def test_a_folder_of_libraries_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from xcompress.web.onnxruntime_web import ONNXRUNTIME_WEB, find_package

    for value in ("x" * 5000, "~nobody-of-this-name", str(tmp_path)):
        monkeypatch.setenv(ONNXRUNTIME_WEB, value)
        with pytest.raises(LookupError):
            find_package()
