import os
import re
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import polib
import pytest

from tests.helpers.files import nested_folders
from tests.helpers.limits import frugal
from xcompress.corpus.catalogues import _split_paragraphs, read_catalogues
from xcompress.corpus.pairs import Pair
from xcompress.errors import InputError

TWO = "nplurals=2; plural=(n != 1);"
ARABIC = "nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5;"


def catalogue(path: Path, *entries: polib.POEntry, plurals: str = TWO) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = polib.POFile()
    made.metadata = {"Content-Type": "text/plain; charset=utf-8", "Plural-Forms": plurals}
    made.extend(entries)
    made.save(str(path)) if path.suffix == ".po" else made.save_as_mofile(str(path))
    return path


def entry(source: str, target: str, **options: object) -> polib.POEntry:
    return polib.POEntry(msgid=source, msgstr=target, **options)


def texts(pairs: Iterable[Pair]) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in pairs]


OPEN = entry("Open the garden gate", "Das Gartentor öffnen")


@pytest.mark.parametrize(
    "name", ["de/LC_MESSAGES/app.po", "de/LC_MESSAGES/app.mo", "locale/de.po", "de/app.po", "de.mo"]
)
def test_layouts(tmp_path: Path, name: str) -> None:
    catalogue(tmp_path / name, OPEN)
    assert list(read_catalogues(tmp_path, ["de"], "app")) == [Pair(OPEN.msgid, OPEN.msgstr, "de", "app")]


def test_the_folder_of_one_language_may_be_given(tmp_path: Path) -> None:
    catalogue(tmp_path / "nl/LC_MESSAGES/app.po", entry("Close the garden gate", "Het tuinhek sluiten"))
    assert len(list(read_catalogues(tmp_path / "nl", ["nl"], "app"))) == 1


def test_po_before_mo(tmp_path: Path) -> None:
    catalogue(tmp_path / "de/LC_MESSAGES/app.mo", entry("Open the garden gate", "alt"))
    catalogue(tmp_path / "de/LC_MESSAGES/app.po", OPEN)
    assert texts(read_catalogues(tmp_path, ["de"], "app")) == [(OPEN.msgid, OPEN.msgstr)]


def test_unfinished_entries_are_left_out(tmp_path: Path) -> None:
    others = [
        entry("A fuzzy old sentence", "Etwas anderes", flags=["fuzzy"]),
        entry("An obsolete old sentence", "Veraltet", obsolete=True),
        entry("An untranslated new sentence", ""),
    ]
    catalogue(tmp_path / "de/LC_MESSAGES/app.po", OPEN, *others)
    assert texts(read_catalogues(tmp_path, ["de"], "app")) == [(OPEN.msgid, OPEN.msgstr)]


def test_regional_variants_only_where_nothing_else_is(tmp_path: Path) -> None:
    catalogue(tmp_path / "de/LC_MESSAGES/app.po", OPEN)
    catalogue(tmp_path / "de_CH/LC_MESSAGES/app.po", entry("Open the garden gate", "schweizerisch"))
    catalogue(tmp_path / "pt_PT/LC_MESSAGES/app.po", entry("Open the garden gate", "europeu"))
    catalogue(tmp_path / "pt-BR/LC_MESSAGES/app.po", entry("Open the garden gate", "brasileiro"))
    catalogue(tmp_path / "zh_Hans/LC_MESSAGES/app.po", entry("Open the garden gate", "打开花园的门"))
    found = read_catalogues(tmp_path, ["de", "pt", "zh"], "app")
    assert {pair.language: pair.target for pair in found} == {
        "de": "Das Gartentor öffnen",
        "pt": "brasileiro",
        "zh": "打开花园的门",
    }


def plural(*forms: str) -> polib.POEntry:
    return polib.POEntry(
        msgid="%d letter is waiting", msgid_plural="%d letters are waiting", msgstr_plural=dict(enumerate(forms))
    )


@pytest.mark.parametrize("suffix", ["po", "mo"])
def test_plurals_of_two_forms_give_both(tmp_path: Path, suffix: str) -> None:
    catalogue(tmp_path / f"de/LC_MESSAGES/app.{suffix}", plural("%d Brief wartet", "%d Briefe warten"))
    assert texts(read_catalogues(tmp_path, ["de"], "app")) == [
        ("%d letter is waiting", "%d Brief wartet"),
        ("%d letters are waiting", "%d Briefe warten"),
    ]


def test_plurals_of_one_form_give_the_plural(tmp_path: Path) -> None:
    catalogue(tmp_path / "tr.po", plural("%d mektup bekliyor"), plurals="nplurals=1; plural=0;")
    assert texts(read_catalogues(tmp_path, ["tr"], "app")) == [("%d letters are waiting", "%d mektup bekliyor")]


def test_plurals_of_six_forms_give_the_singular_by_the_catalogues_own_rule(tmp_path: Path) -> None:
    forms = plural("لا رسائل", "رسالة واحدة تنتظر", "رسالتان", "رسائل", "رسالةً", "رسالة")
    catalogue(tmp_path / "ar.po", forms, plurals=ARABIC)
    assert texts(read_catalogues(tmp_path, ["ar"], "app")) == [("%d letter is waiting", "رسالة واحدة تنتظر")]


def test_a_bad_plural_rule_is_taken_as_the_usual_one(tmp_path: Path) -> None:
    catalogue(
        tmp_path / "de.po", plural("%d Brief wartet", "%d Briefe warten"), plurals="nplurals=2; plural=__import__(n)"
    )
    assert len(list(read_catalogues(tmp_path, ["de"], "app"))) == 2


def test_catalogues_of_keys_are_skipped(tmp_path: Path) -> None:
    catalogue(tmp_path / "de/LC_MESSAGES/keys.po", entry("label_open_gate", "Das Gartentor öffnen"))
    assert list(read_catalogues(tmp_path, ["de"], "app")) == []


def test_the_default_text_beside_a_key_is_its_english(tmp_path: Path) -> None:
    noted = entry("label_open_gate", "Das Gartentor öffnen", comment='Default: "Open the \\"garden\\" gate"')
    catalogue(tmp_path / "de/LC_MESSAGES/zope.po", noted)
    assert texts(read_catalogues(tmp_path, ["de"], "app")) == [('Open the "garden" gate', "Das Gartentor öffnen")]


def test_long_messages_are_split_at_blank_lines_on_both_sides(tmp_path: Path) -> None:
    both = entry("Dear guest,\n\nthe gate is open.", "Lieber Gast,\n \ndas Tor ist offen.")
    uneven = entry("Dear friend,\n\nthe gate is shut.", "Das Tor ist zu.")
    catalogue(tmp_path / "de.po", both, uneven)
    assert texts(read_catalogues(tmp_path, ["de"], "app")) == [
        ("Dear guest,", "Lieber Gast,"),
        ("the gate is open.", "das Tor ist offen."),
        (uneven.msgid, uneven.msgstr),
    ]


@pytest.mark.parametrize("name", ["fr.po", "fr.mo"])
def test_a_damaged_catalogue_is_passed_over(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_bytes(b'msgid "half\n\xff')
    catalogue(tmp_path / "de.po", OPEN)
    assert len(list(read_catalogues(tmp_path, ["de", "fr"], "app"))) == 1
    assert "not a readable catalogue" in capsys.readouterr().err


def test_missing_catalogues_are_refused(tmp_path: Path) -> None:
    catalogue(tmp_path / "de.po", OPEN)
    with pytest.raises(InputError, match=r"no \.po or \.mo catalogue for it, nl"):
        list(read_catalogues(tmp_path, ["it", "nl"], "app"))
    with pytest.raises(InputError, match="no such folder"):
        list(read_catalogues(tmp_path / "none", ["it"], "app"))


def mo_file(messages: int, length: int) -> bytes:
    """Return a .mo whose messages all lie in the same bytes."""
    tables = struct.pack("<2I", length, 28 + 8 * messages) * messages
    return struct.pack("<7I", 0x950412DE, 0, messages, 28, 28, 0, 0) + tables + b"word " * (length // 5)


HOSTILE = {
    "messages that share their bytes": ("x.mo", mo_file(10_000, 1_000_000)),
    "countless messages": ("x.mo", struct.pack("<7I", 0x950412DE, 0, 2**32 - 1, 28, 28, 0, 0)),
    "tables behind the end": ("x.mo", struct.pack("<7I", 0x950412DE, 0, 2, 2**31, 2**31, 0, 0)),
    "strings behind the end": (
        "x.mo",
        struct.pack("<7I", 0x950412DE, 0, 1, 28, 28, 0, 0) + struct.pack("<2I", 9, 2**31),
    ),
    "half a header": ("x.mo", b"\xde\x12\x04\x95"),
    "nothing": ("x.mo", b""),
    "no magic": ("x.mo", b"x" * 100),
    "a message of spaces": ("x.po", 'msgid "a{0}b"\nmsgstr "a{0}b"\n'.format(" " * 2_000_000).encode()),
    "a message of line breaks": ("x.po", 'msgid "a{0}b"\nmsgstr "a{0}b"\n'.format("\\n x" * 500_000).encode()),
    "a plural of 5,000 digits": ("x.po", f'msgid "a b"\nmsgid_plural "c d"\nmsgstr[{"9" * 5000}] "e"\n'.encode()),
    "a plural that is no number": ("x.po", b'msgid "a b"\nmsgid_plural "c d"\nmsgstr[x] "e"\n'),
    "a plural rule that divides by zero": (
        "x.po",
        b'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=n%0;\\n"\n\nmsgid "a b"\nmsgstr "c d"\n',
    ),
    "a deep plural rule": (
        "x.po",
        b'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=' + b"(" * 900 + b'n;\\n"\n\nmsgid "a b"\nmsgstr "c d"\n',
    ),
    "an unknown encoding": (
        "x.po",
        b'msgid ""\nmsgstr "Content-Type: text/plain; charset=x\\n"\n\nmsgid "a b"\nmsgstr "c d"\n',
    ),
    "an encoding that is no text": (
        "x.po",
        b'msgid ""\nmsgstr "Content-Type: text/plain; charset=hex\\n"\n\nmsgid "a b"\nmsgstr "c d"\n',
    ),
    "a line that is cut off": ("x.po", b'msgid "a'),
    "a comment of many defaults": ("x.po", b"#. " + b'Default: "' * 9000 + b'x\nmsgid "key"\nmsgstr "a"\n'),
    "countless comments": ("x.po", b"#. " + b"x" * 40 + b"\n" + b"#. more\n" * 500_000 + b'msgid "a b"\nmsgstr "c"\n'),
    "countless comments between contexts": ("x.po", b'#. more\nmsgctxt "a"\n' * 200_000 + b'msgid "a b"\nmsgstr "c"\n'),
    "countless lines of a text": ("x.po", b'msgid "a b"\nmsgstr "c"\n' + b'"more text"\n' * 500_000),
    "a header of countless lines": ("x.po", b'msgid ""\nmsgstr "a: b\\n' + b"x\\n" * 900_000 + b'"\n'),
    "a line of content types": ("x.po", b"# " + b"Content-Type:" * 20_000 + b'\nmsgid "a b"\nmsgstr "c"\n'),
    "a message of content types": (
        "x.mo",
        mo_file(1, 500_000).replace(b"word word word word ", b"Content-Type:word:: "),
    ),
    "an encoding of quadratic time": (
        "x.mo",
        mo_file(1, 500_000)[:36] + b"Content-Type: text/plain; charset=punycode\n-".ljust(500_000, b"a"),
    ),
    "bytes that are no text": ("x.po", b"\xff\xfe\x00\x00" * 9),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_catalogue_takes_neither_memory_nor_time(name: str, tmp_path: Path) -> None:
    file, content = HOSTILE[name]
    (tmp_path / "de").mkdir()
    (tmp_path / "de" / file).write_bytes(content)
    started = time.monotonic()
    with frugal(300):
        list(read_catalogues(tmp_path, ["de"], "x"))
    assert time.monotonic() - started < 4  # a TimeoutError is an OSError, so the file would count as unreadable


def test_a_catalogue_with_an_endless_message_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalogue(tmp_path / "de.po", OPEN, entry("Open the door", "Die Tür öffnen", comment="note\n" * 1000))
    assert not list(read_catalogues(tmp_path, ["de"], "x"))
    assert "a message of over 100,000 bytes or 1,000 lines, comments included" in capsys.readouterr().err


def test_a_named_pipe_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalogue(tmp_path / "de.po", OPEN)
    os.mkfifo(tmp_path / "fr.po")
    with frugal():
        assert len(list(read_catalogues(tmp_path, ["de", "fr"], "x"))) == 1
    assert not capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["po", "mo"])
def test_a_catalogue_is_read_in_the_encoding_that_it_names(tmp_path: Path, suffix: str) -> None:
    made = polib.POFile(encoding="iso-8859-1")
    made.metadata = {"Content-Type": "text/plain; charset=ISO-8859-1"}
    made.append(OPEN)
    (made.save if suffix == "po" else made.save_as_mofile)(str(tmp_path / f"de.{suffix}"))
    assert b"\xf6ffnen" in (tmp_path / f"de.{suffix}").read_bytes()
    assert texts(read_catalogues(tmp_path, ["de"], "x")) == [(OPEN.msgid, OPEN.msgstr)]


def test_a_catalogue_of_gigabytes_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("xcompress.console.warn", said.append)
    for name in ("x.po", "y.mo"):
        (tmp_path / "de").mkdir(exist_ok=True)
        with (tmp_path / "de" / name).open("wb") as stream:
            stream.truncate(2_000_000_000)
    with frugal(300):
        assert not list(read_catalogues(tmp_path, ["de"], "x"))
    assert len(said) == 2
    assert all("skipped" in line and "\n" not in line for line in said)


@pytest.mark.parametrize(
    "text", ["a b", "a\n\nb", "  a \n \t\n\n b\n c", "a\r\n\r\nb", "a\n\n\n\nb\n", "a \x0b\n\x0c\n b", "a\n b \n\n"]
)
def test_paragraphs_end_at_blank_lines(text: str) -> None:
    parts = re.split(r"\s*\n\s*\n\s*", text.strip())
    assert _split_paragraphs(text, text) == [(part, part) for part in parts]


def test_folders_without_end_are_refused_or_read(tmp_path: Path) -> None:
    catalogue(tmp_path / "de.po", OPEN)
    with nested_folders(tmp_path / "deep"), suppress(InputError):
        assert texts(read_catalogues(tmp_path, ["de"], "test"))
