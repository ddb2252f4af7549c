"""YAML that people or machines write wrongly, on purpose or not: one line of error, little memory, little time."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.limits import frugal
from xcompress.errors import InputError
from xcompress.recipe import load_recipe
from xcompress.recipe.shipped import read_yaml, shipped
from xcompress.recipe.yaml_text import parse_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGE_BOMB = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 10)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
NESTED_BOMB = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name} {{{', '.join(f'{key}: *{before}' for key in 'klmnopqrst')}}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD = {
    "a line indented too far": ("a:\n b: 1\n  c: 2\n", "line 3: not valid YAML .*; correct it, or its indentation$"),
    "a key given twice": ("a: 1\na: 2\n", "given twice.; correct it$"),
    "a bomb of nested anchors": (NESTED_BOMB, "anchors"),
    "a bomb of anchors": (BOMB, "anchors"),
    "a bomb of merged anchors": (MERGE_BOMB, "anchors"),
    "anchors in an anchor of its own": ("a: &a [*a]\n", "line 1"),
    "too many values": ("a: [" + "x," * 20_000 + "]\n", "values"),
    "too many brackets": ("a: " + "[" * 3000, "nested"),
    "too many closed brackets": ("a: " + "[" * 400 + "]" * 400, "nested"),
    "too many levels": ("".join(f"{' ' * depth}a:\n" for depth in range(400)), "nested"),
    "too large a file": ("# " + "x" * 2_000_000 + "\nname: a\n", "over"),
    "a number of 5,000 digits": (f"name: a\nseed: {'9' * 5000}\n", "line 2"),
    "a number of 5,000 hex digits": (f"name: a\nseed: 0x{'f' * 5000}\n", "line 2"),
    "a number in base 60": (f"name: a\nseed: 1{':00' * 5000}\n", "line 2"),
    "a number in base 60 that looks like a time": ("name: a\nseed: 1:30\n", "line 2: .*'1:30' is in base 8 or 60"),
    "a number in base 8": ("name: a\nseed: 0100\n", "line 2: .*'0100' is in base 8 or 60; write it in base 10"),
    "a bad integer": ("a: !!int x\n", "line 1"),
    "a bad float": ("a: !!float x\n", "line 1"),
    "a bad bool": ("a: !!bool x\n", "line 1"),
    "a bad timestamp": ("a: !!timestamp x\n", "line 1"),
    "bad binary": ("a: !!binary é\n", "line 1"),
    "a Python object": ("a: !!python/object/apply:os.system [ls]\n", "line 1"),
    "an unknown tag": ("a: !x y\n", "line 1"),
    "a key twice": ("name: a\nseed: 1\nseed: 2\n", "line 3"),
    "a key twice inside": ("a:\n  b: 1\n  c: 2\n  b: 3\n", "line 4"),
    "a key that is a number": ("name: a\n1: b\n", "line 2"),
    "a key that is a bool": ("name: a\nno: b\n", "line 2"),
    "a key that is null": ("name: a\n~: b\n", "line 2"),
    "a key that is a list": ("name: a\n? [a]\n: b\n", "line 2"),
    "a key that is a mapping": ("name: a\n? {a: b}\n: b\n", "line 2"),
    "a NUL": ("name: a\0b\n", "special characters"),
    "two documents": ("name: a\n---\nname: b\n", "line 2"),
    "nothing": ("", "is empty"),
    "a list": ("[a]", "list"),
}


@pytest.mark.parametrize(("text", "expected"), BAD.values(), ids=BAD)
def test_bad_yaml_is_refused_in_one_line_with_little_memory(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(text, encoding="utf-8")
    with frugal(200, seconds=5), pytest.raises(InputError, match=expected) as caught:
        load_recipe(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert "\n" not in message
    assert len(message) < 500


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1"])
def test_other_encodings_are_refused_in_one_line(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("name: ä\n", encoding=encoding)
    with pytest.raises(InputError, match="give a UTF-8 YAML file"):
        load_recipe(file)


def test_an_endless_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").symlink_to("/dev/zero")
    with frugal(), pytest.raises(InputError, match="over"):
        load_recipe(tmp_path / "recipe.yaml")


def test_a_byte_order_mark_is_skipped_and_a_date_is_text(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("name: 2024-01-31\nother: 2024-13-45\n", encoding="utf-8-sig")
    assert read_yaml(file) == {"name": "2024-01-31", "other": "2024-13-45"}


def test_anchors_and_merged_keys_are_read(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("a: &a {k: 1, l: 2}\nb: {<<: *a, k: 3}\nc: [*a, *a]\n", encoding="utf-8")
    assert read_yaml(file) == {"a": {"k": 1, "l": 2}, "b": {"k": 3, "l": 2}, "c": [{"k": 1, "l": 2}] * 2}


def test_a_long_chain_of_extends_ends_in_one_line(tmp_path: Path) -> None:
    for number in range(1200):
        (tmp_path / f"{number}.yaml").write_text(f"extends: {number + 1}.yaml\nname: a\n")
    with frugal(seconds=10), pytest.raises(InputError, match=r"extends .* more than"):
        load_recipe(tmp_path / "0.yaml")


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "~nobody-of-this-name/x.yaml"])
def test_an_impossible_name_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        load_recipe(name)
    file = tmp_path / "recipe.yaml"
    file.write_text(f"extends: {name!r}\n".replace("\\x00", "."), encoding="utf-8")
    with pytest.raises(InputError):
        load_recipe(file)


@pytest.mark.parametrize(
    "override",
    [
        f"seed={'9' * 5000}",
        f"seed=0x{'f' * 5000}",
        f"{'.'.join('a' * 5000)}=1",
        "stages=" + "[" * 3000,
        f"student={{a: &a {'[x, ' * 3} *a]]]}}",
        "name=!!python/name:os.system",
        "student={unit_layers: 1, unit_layers: 2}",
        "student={1: 2}",
        "name=a\0b",
        "=",
        "a..b=1",
        ".=1",
        f"name={'x' * 3_000_000}",
    ],
    ids=lambda text: text[:24],
)
def test_a_bad_override_is_refused_in_one_short_line(override: str) -> None:
    with frugal(), pytest.raises(InputError) as caught:
        load_recipe("minilm_ru3", [override])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@settings(derandomize=True, max_examples=100, deadline=None, database=None)
@given(st.text(alphabet=st.sampled_from("abé1-.:?&*!|>%@`#,{}[]<~'\"\\ \t\n\r\0\ufeff\ud800\x85\u2028"), max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        load_recipe("minilm_ru3", [f"student={text}"])
    except InputError as error:
        assert "\n" not in str(error)


def test_every_shipped_recipe_keeps_far_below_the_limits() -> None:
    assert max(path.stat().st_size for path in shipped().values()) < 50_000
    for path in shipped().values():
        assert read_yaml(path)


def test_a_text_is_parsed_once_and_its_readers_share_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "read: [twice]\n"
    parse_yaml(text, "here")["read"].append("and changed")
    monkeypatch.setattr("xcompress.recipe.yaml_text._Loader", lambda _: pytest.fail("parsed again"))
    assert parse_yaml(text, "there") == {"read": ["twice"]}
    assert parse_yaml("a: no", "as text", as_text=True) == {"a": "no"}
