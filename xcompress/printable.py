"""Make text safe to show: nothing in it can steer a terminal or reorder a line.

Texts, names and paths come from users and from models of others. What a terminal would obey is shown as an escape.
"""

import re
from typing import Final

_CONTROLS: Final = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
"""C0 and C1 but tab and line feed, line and paragraph separators, and characters that override the direction."""
_SURROGATES: Final = r"\ud800-\udfff"
_LONGEST_MESSAGE: Final = 1500
"""Characters of a message."""
_MARKDOWN: Final = re.compile(r"[\\`*<|]|(?<=\])\(|(?<!\w)_|_(?!\w)")
"""What Markdown would not show as it is in a line: code, emphasis, HTML, columns and the address of a link."""
UNPRINTABLE: Final = re.compile(f"[{_CONTROLS}{_SURROGATES}]")


def printable(text: str) -> str:
    r"""Replace control characters by escapes such as `\u001b`, and lone surrogates by U+FFFD.

    Tabs and line feeds stay. JSON stays valid and keeps its meaning: it holds such characters only inside of strings,
    where the escape stands for the character.
    """
    return UNPRINTABLE.sub(_escape, text)


def one_line(text: str) -> str:
    """Make a text printable, with a space in place of each tab and line break."""
    return printable(" ".join(text.splitlines()).replace("\t", " "))


def message_line(text: str) -> str:
    """Make a message one printable line, as it may quote names and texts of others.

    The middle of a very long one is left out: its start says where, its end what to do.
    """
    line = one_line(text)
    half = _LONGEST_MESSAGE // 2
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:half]} ... {line[-half:]}"


def counted(count: int, noun: str) -> str:
    """Return a number of things, such as `1 column` or `2,000 columns`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def markdown_text(text: str) -> str:
    """Write text as one line of Markdown that shows it as it is: no markup, HTML or link, no end of a table cell."""
    return _MARKDOWN.sub(r"\\\g<0>", one_line(text))


def table_cell(markdown: str) -> str:
    """Escape what would end a cell of a Markdown table, unless it is escaped already."""
    return re.sub(r"(\\.)|\|", lambda found: found[1] or r"\|", one_line(markdown))


def code_span(text: str) -> str:
    """Write text as code in a line of Markdown, between more backticks than it has in a row."""
    line = one_line(text)
    marks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    room = " " if not line or line[0] == "`" or line[-1] == "`" else ""
    return f"{marks}{room}{line}{room if line else ''}{marks}"


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"\\u{code:04x}"
