"""Human translations from gettext catalogues (.po and .mo), as localised software ships them."""

import gettext
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xcompress import console
from xcompress.corpus.pairs import Pair
from xcompress.errors import InputError

VARIANTS = {
    "pt": ("pt_br", "pt_pt"),
    "zh": ("zh_hans", "zh_cn", "zh_hans_cn", "zh_hant", "zh_tw"),
    "no": ("nb", "nb_no"),
    "sr": ("sr_cyrl", "sr_latn"),
}
_LOCALE = re.compile(r"([a-z]{2,3})(_[a-z0-9]{2,8})*(@[a-z]+)?")
_SPACED_SHARE = 0.2
_ZOPE_DEFAULT = re.compile(r'Default:\s*"(.*)"\s*$', re.S)
_BLANK_LINE = re.compile(r"\s*\n\s*\n\s*")
_DAMAGED = (OSError, UnicodeDecodeError, LookupError, ValueError, struct.error)
_MANY = 5


@dataclass(frozen=True, slots=True)
class Catalogue:
    """One catalogue file: the place and domain it shares with its other languages, and its locale."""

    path: Path
    family: tuple[str, str]
    locale: str


def read_catalogues(root: Path, languages: Sequence[str], origin: str) -> Iterator[Pair]:
    """Yield every translated message below a folder, for some languages.

    Known layouts are `<locale>/LC_MESSAGES/<domain>.po`, `<locale>/<domain>.po` and `<locale>.po`, with .po or .mo.
    A .po is read instead of the .mo of the same name. A regional variant is read only where the plain language
    is missing. Fuzzy, obsolete and untranslated messages are left out.

    :raises InputError: when `root` is no folder or holds no catalogue of these languages.
    """
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; catalogues are read from a folder")
    chosen = list(_choose(_find(root, languages), languages))
    if not chosen:
        raise InputError(f"{root}: no .po or .mo catalogue for {', '.join(languages)}; give the folder of the locales")
    for language, catalogue in chosen:
        yield from _pairs(catalogue.path, language, origin)


def _find(root: Path, languages: Sequence[str]) -> Iterator[Catalogue]:
    wanted = {*languages, *(locale[:2] for language in languages for locale in VARIANTS.get(language, ()))}
    for path in sorted(root.rglob("*")):
        if path.suffix == ".po" or (path.suffix == ".mo" and not path.with_suffix(".po").is_file()):
            catalogue = _placed(path, wanted)
            if catalogue:
                yield catalogue


def _placed(path: Path, wanted: set[str]) -> Catalogue | None:
    """Tell a catalogue's locale from its path, when it is one of a wanted language."""
    inside = path.parent.name == "LC_MESSAGES"
    folder = path.parent.parent if inside else path.parent
    if not inside and _language(path.stem) in wanted:
        return Catalogue(path, (str(folder), ""), _tidy(path.stem))
    if _language(folder.name) in wanted:
        return Catalogue(path, (str(folder.parent), path.stem), _tidy(folder.name))
    return None


def _language(locale: str) -> str | None:
    match = _LOCALE.fullmatch(_tidy(locale))
    return match[1] if match else None


def _tidy(locale: str) -> str:
    return locale.replace("-", "_").casefold()


def _choose(found: Iterable[Catalogue], languages: Sequence[str]) -> Iterator[tuple[str, Catalogue]]:
    """Give one catalogue per family and language: the plain language, else its nearest variant."""
    families: dict[tuple[str, str], dict[str, Catalogue]] = defaultdict(dict)
    for catalogue in found:
        families[catalogue.family].setdefault(catalogue.locale, catalogue)
    for family in sorted(families):
        for language in languages:
            locale = _nearest(language, families[family])
            if locale:
                yield language, families[family][locale]


def _nearest(language: str, locales: Iterable[str]) -> str | None:
    there = sorted(locales)
    preferred = (language, *VARIANTS.get(language, ()), f"{language}_{language}")
    variants = [locale for locale in there if locale.startswith(f"{language}_") and "@" not in locale]
    return next((locale for locale in (*preferred, *variants) if locale in there), None)


def _pairs(path: Path, language: str, origin: str) -> list[Pair]:
    import polib  # not part of the extras `bench` and `export`, which import this module

    try:
        catalogue = polib.pofile(str(path)) if path.suffix == ".po" else polib.mofile(str(path))
        entries = catalogue.translated_entries()
    except _DAMAGED as error:
        console.warn(f"{path}: left out, not a readable catalogue ({error})")
        return []
    form = _plural_form(catalogue.metadata.get("Plural-Forms", ""))
    texts = [part for entry in entries for text in _texts(entry, form) for part in _paragraphs(*text)]
    return [Pair(source, target, language, origin) for source, target in texts] if _in_english(texts) else []


def _texts(entry: Any, form: Callable[[int], int]) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - polib is untyped
    """Give an entry's pairs; of plural entries the singular, and the plural where a language has no third form."""
    if not entry.msgid_plural:
        yield _english(entry), entry.msgstr
        return
    forms = {int(index): text for index, text in entry.msgstr_plural.items()}
    one, many = form(1), form(_MANY)
    if one != many and one in forms:
        yield entry.msgid, forms[one]
    if len(forms) <= 2 and many in forms:
        yield entry.msgid_plural, forms[many]


def _paragraphs(source: str, target: str) -> Iterable[tuple[str, str]]:
    """Split a long message, such as a whole e-mail, at its blank lines, where both sides have equally many parts."""
    sources, targets = _BLANK_LINE.split(source.strip()), _BLANK_LINE.split(target.strip())
    parts = zip(sources, targets, strict=True) if len(sources) == len(targets) else [(source, target)]
    return [part for part in parts if all(part)]


def _english(entry: Any) -> str:  # noqa: ANN401 - polib is untyped
    """Return the English text: the message id, or what Zope's catalogues note beside an id that is only a key."""
    default = None if " " in entry.msgid else _ZOPE_DEFAULT.search(getattr(entry, "comment", "") or "")
    return default[1].replace('\\"', '"').replace("\n", " ") if default else str(entry.msgid)


def _plural_form(header: str) -> Callable[[int], int]:
    """Return the function from a count to the index of the plural form, as the catalogue's header defines it."""
    rule = re.search(r"plural\s*=\s*([^;]+)", header)
    try:
        form: Callable[[int], int] = gettext.c2py(rule[1].strip()) if rule else gettext.c2py("n != 1")
        form(1), form(_MANY)
    except (ValueError, ZeroDivisionError, RecursionError):
        return lambda count: int(count != 1)
    return form


def _in_english(texts: Sequence[tuple[str, str]]) -> bool:
    """Tell sentences from keys such as `label_save`: keys have no spaces."""
    spaced = sum(" " in source.strip() for source, _ in texts)
    return spaced >= _SPACED_SHARE * len(texts) and spaced > 0
