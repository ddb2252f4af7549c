import json

import pytest

from xcompress.errors import InputError
from xcompress.printable import code_span, counted, markdown_text, one_line, printable

HOSTILE = "a [/] [red]b[/red] \x1b[31m\x9b31m \x07\r\u202eevil\u2066 \ud800 :smile: $x$ | `c` <b> \x7f"
"""Markup of several languages, and everything that a terminal would obey."""


def test_control_characters_are_escaped_and_text_is_kept() -> None:
    assert printable("a\x1b[31m\tb\n\u202ec\x9b\ud800") == "a\\u001b[31m\tb\n\\u202ec\\u009b\ufffd"
    assert printable("日本語 😀 e\u0301 \u0645\u200f [/] $") == "日本語 😀 e\u0301 \u0645\u200f [/] $"


def test_json_keeps_its_meaning() -> None:
    value = {HOSTILE.replace("\ud800", ""): ["\x85\u2028\u202e\x1b", "\n"]}
    assert json.loads(printable(json.dumps(value, ensure_ascii=False, indent=1))) == value
    assert json.loads(printable(json.dumps("\udcff", ensure_ascii=False))) == "\ufffd"


@pytest.mark.parametrize("text", [HOSTILE, "a\nb", "a\r\nb", "a\u2028b", "\t", ""])
def test_a_line_is_one_line_and_has_no_control_characters(text: str) -> None:
    assert one_line(text).isprintable()
    assert printable(one_line(text)) == one_line(text)


@pytest.mark.parametrize("text", ["plain", "a_b, ONNX int8", "83.5 [82.1, 84.9]", "-1.2", "1 / 2 ~"])
def test_plain_text_is_plain_markdown(text: str) -> None:
    assert markdown_text(text) == text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a|b", "a\\|b"),
        ("a\nb", "a b"),
        ("`c", "\\`c"),
        ("<script>", "\\<script>"),
        ("[x](javascript:1)", "[x]\\(javascript:1)"),
        ("*a*", "\\*a\\*"),
        ("_a_ b_c", "\\_a\\_ b_c"),
        ("a\\|b", "a\\\\\\|b"),
    ],
)
def test_markup_in_text_is_escaped_in_markdown(text: str, written: str) -> None:
    assert markdown_text(text) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [("a", "`a`"), ("a`b", "``a`b``"), ("``", "``` `` ```"), ("a\nb\x1b", "`a b\\u001b`"), ("", "` `")],
)
def test_code_in_markdown_has_more_backticks_than_the_text(text: str, written: str) -> None:
    assert code_span(text) == written


@pytest.mark.parametrize(("count", "written"), [(0, "0 rows"), (1, "1 row"), (2000, "2,000 rows")])
def test_one_thing_is_singular(count: int, written: str) -> None:
    assert counted(count, "row") == written


def test_a_very_long_message_keeps_its_start_and_its_end() -> None:
    message = str(InputError(f"model/config.json: prefix is {'x' * 5000}; correct it"))
    assert message.startswith("model/config.json: prefix is xxx")
    assert message.endswith("xxx; correct it")
    assert len(message) < 1600
