"""Read human translations from the gettext catalogues (.po, .mo) of localised software."""

import codecs
import gettext
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from xcompress import console
from xcompress.corpus.pairs import Pair
from xcompress.errors import InputError, first_line
from xcompress.files import explain_read_error, megabytes

VARIANTS = {  # regional locales that are read where there is no catalogue of the plain language, best first
    "pt": ("pt_br", "pt_pt"),
    "zh": ("zh_hans", "zh_cn", "zh_hans_cn", "zh_hant", "zh_tw"),
    "no": ("nb", "nb_no"),
    "sr": ("sr_cyrl", "sr_latn"),
}
_LOCALE = re.compile(r"([a-z]{2,3})(_[a-z0-9]{2,8})*(@[a-z]+)?")
_SPACED_SHARE = 0.2
_ZOPE_DEFAULT = re.compile(r'Default:\s*"')
_CHARSET = re.compile(rb"Content-Type:[^\n]{1,200}? charset=([\w.:-]{1,80})")
_SLOW_ENCODINGS = ("punycode", "idna")
"""Those of host names. Reading a long message takes quadratic time, and no catalogue is written in them."""
_TRANSLATION = re.compile(rb"^[ \t]*(?:#~[ \t]+)?msgstr", re.MULTILINE)
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n\s*")
"""Begins at a line break, not at the spaces in front of it: a long run of spaces would take quadratic time."""
_LARGEST = 20_000_000
"""Bytes of a catalogue; the largest of those that the recipes name has 1.7 MB."""
_LONGEST_ENTRY = 100_000
"""Bytes of a message with its comments: twelve times those of the longest known one."""
_MOST_LINES = 1000
"""Lines of a message with its comments, six times those of the longest known one. For each, polib copies all before."""
_SHARED = 10
"""The messages of a .mo may share their bytes, and so be this many times as long as the file."""
_MANY = 5
"""A count that takes the plural form in languages with two forms."""


Family = tuple[str, str]
"""Folder and domain, which a catalogue shares with those of its other languages."""


def read_catalogues(root: Path, languages: Sequence[str], origin: str) -> Iterator[Pair]:
    """Yield every translated message below a folder, for some languages.

    Known layouts are `<locale>/LC_MESSAGES/<domain>.po`, `<locale>/<domain>.po` and `<locale>.po`, with .po or .mo.
    A .po is read instead of the .mo of the same name. A regional variant is read only where the plain language
    is missing. Fuzzy, obsolete and untranslated messages are left out.

    :raises InputError: when `root` is no folder or holds no catalogue of these languages.
    """
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; give the folder of the catalogues")

    # Find the catalogues of each family by locale.
    wanted = {*languages, *(locale[:2] for language in languages for locale in VARIANTS.get(language, ()))}
    families: dict[Family, dict[str, Path]] = defaultdict(dict)
    with explain_read_error(root):
        paths = sorted(root.rglob("*"))
    for path in paths:
        if path.suffix == ".po" or (path.suffix == ".mo" and not path.with_suffix(".po").is_file()):
            found = _locate(path, wanted)
            if found and path.is_file():
                family, locale_of_path = found
                families[family].setdefault(locale_of_path, path)

    # Read one catalogue per family and language.
    chosen = [
        (language, families[family][locale])
        for family in sorted(families)
        for language in languages
        if (locale := _choose_locale(language, families[family]))
    ]
    if not chosen:
        raise InputError(f"{root}: no .po or .mo catalogue for {', '.join(languages)}; give the folder of the locales")
    for language, path in chosen:
        yield from _read_pairs(path, language, origin)


def _locate(path: Path, wanted: set[str]) -> tuple[Family, str] | None:
    """Read a catalogue's family and locale from its path; None if it is of no wanted language."""
    in_messages = path.parent.name == "LC_MESSAGES"
    folder = path.parent.parent if in_messages else path.parent
    candidates = [(folder.name, (str(folder.parent), path.stem))]
    if not in_messages:
        candidates.insert(0, (path.stem, (str(folder), "")))
    for name, family in candidates:
        locale = name.replace("-", "_").casefold()
        match = _LOCALE.fullmatch(locale)
        if match and match[1] in wanted:
            return family, locale
    return None


def _choose_locale(language: str, locales: Iterable[str]) -> str | None:
    """Return the locale of the plain language, or the best variant that exists."""
    existing = sorted(locales)
    preferred = (language, *VARIANTS.get(language, ()), f"{language}_{language}")
    variants = [locale for locale in existing if locale.startswith(f"{language}_") and "@" not in locale]
    return next((locale for locale in (*preferred, *variants) if locale in existing), None)


def _read_pairs(path: Path, language: str, origin: str) -> list[Pair]:
    """Read one catalogue; none of it where its message ids are keys such as `label_save` and not English."""
    import polib  # part of the extra `train`; `bench` and `export` import this module without it

    try:
        encoding = _check_content(path)
        read_file = polib.pofile if path.suffix == ".po" else polib.mofile
        catalogue = read_file(str(path), encoding=encoding)
        entries = catalogue.translated_entries()
    except (OSError, UnicodeDecodeError, LookupError, ValueError, struct.error) as error:
        console.warn(f"{path}: skipped, not a readable catalogue ({first_line(error):.200})")
        return []
    plural_form = _parse_plural_rule(catalogue.metadata.get("Plural-Forms", ""))
    texts = [
        paragraph
        for entry in entries
        for source, target in _read_entry(entry, plural_form)
        for paragraph in _split_paragraphs(source, target)
    ]
    spaced = sum(" " in source.strip() for source, _ in texts)
    if spaced == 0 or spaced < _SPACED_SHARE * len(texts):
        return []
    return [Pair(source, target, language, origin) for source, target in texts]


def _check_content(path: Path) -> str:
    """Refuse a catalogue that would take polib much memory or time; return its encoding, UTF-8 where it names none.

    :raises ValueError: when the file is large, or a message is.
    """
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"over {megabytes(_LARGEST)}")
    data = path.read_bytes()
    if path.suffix == ".mo":
        _check_tables(data)
    elif any(
        len(entry) > _LONGEST_ENTRY or len(entry.splitlines()) > _MOST_LINES for entry in _TRANSLATION.split(data)
    ):
        raise ValueError(f"a message of over {_LONGEST_ENTRY:,} bytes or {_MOST_LINES:,} lines, comments included")
    for match in _CHARSET.finditer(data):
        with suppress(LookupError):
            name = codecs.lookup(match[1].decode()).name
            return "utf-8" if name in _SLOW_ENCODINGS else name
    return "utf-8"


def _check_tables(data: bytes) -> None:
    """Check the tables of a .mo.

    :raises ValueError: when its messages are longer than the file, as they may all lie in the same bytes.
    """
    order = ">" if data.startswith(b"\x95\x04\x12\xde") else "<"
    count, *tables = struct.unpack_from(f"{order}3I", data, 8)
    if 16 * count > len(data):
        raise ValueError(f"its header claims {count:,} messages")
    lengths = (sum(struct.unpack_from(f"{order}{2 * count}I", data, table)[::2]) for table in tables)
    if sum(lengths) > _SHARED * len(data):
        raise ValueError("its messages are far longer than the file")


def _read_entry(entry: Any, plural_form: Callable[[int], int]) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - polib is untyped
    """Yield the pairs of an entry: for plurals the singular, and the plural in languages without a third form."""
    if not entry.msgid_plural:
        # Zope's catalogues note the English text beside an id that is only a key
        english, comment = str(entry.msgid), (getattr(entry, "comment", "") or "").rstrip()
        default = None if " " in english else _ZOPE_DEFAULT.search(comment)
        if default and comment.endswith('"', default.end()):
            english = comment[default.end() : -1].replace('\\"', '"').replace("\n", " ")
        yield english, entry.msgstr
        return
    forms = {int(index): text for index, text in entry.msgstr_plural.items()}
    singular, plural = plural_form(1), plural_form(_MANY)
    if singular != plural and singular in forms:
        yield entry.msgid, forms[singular]
    if len(forms) <= 2 and plural in forms:
        yield entry.msgid_plural, forms[plural]


def _split_paragraphs(source: str, target: str) -> list[tuple[str, str]]:
    """Split a long message, such as an e-mail, at blank lines if both sides have the same number of paragraphs."""
    sources, targets = ([part.rstrip() for part in _BLANK_LINE.split(side.strip())] for side in (source, target))
    paragraphs = zip(sources, targets, strict=True) if len(sources) == len(targets) else [(source, target)]
    return [paragraph for paragraph in paragraphs if all(paragraph)]


def _parse_plural_rule(header: str) -> Callable[[int], int]:
    """Return the catalogue's function from a count to the index of the plural form; that of English if it has none."""
    rule = re.search(r"plural\s*=\s*([^;]+)", header)
    try:
        plural_form: Callable[[int], int] = gettext.c2py(rule[1].strip()) if rule else gettext.c2py("n != 1")
        plural_form(1), plural_form(_MANY)
    except (ValueError, ZeroDivisionError, RecursionError):
        return lambda count: int(count != 1)
    return plural_form
