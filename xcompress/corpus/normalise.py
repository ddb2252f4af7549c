"""Normalise interface messages to plain sentences: without mnemonics, mark-up, escapes and format codes."""

import html
import re
import unicodedata
from collections.abc import Callable, Mapping

PLACEHOLDER = "X"
"""Replaces placeholders such as %s; a capital letter reads as a name or a number in every language."""

_FORMAT_CODE = re.compile(
    r"""
      \{\{.*?\}\}                                       # {{ name }}
    | \$\{[^{}]*\} | \$\([^()]*\) | \$[A-Za-z_]\w*      # ${name} $name
    | \{[^{}\s,]*\}                                     # {} {0} {name!r:>4}
    | %%?\([^()%]*\)[-+#0]*\d*(?:\.\d+)?[a-zA-Z]        # %(name)s
    | %(?<!%%)(?:\d+\$)?[-+#0]*\d{0,2}(?:\.[\d*]+)?(?:hh|ll|[hlLqjzt])?[a-zA-Z](?![a-zA-Z])   # %s %1$s %.2f, not %%s
    | %L?[1-9](?!\d)                                    # %1
    """,
    re.X,
)
"""Each way starts with a plain character, so that the search skips to the next one of them."""
_MARKED = re.compile(r"[\\{<`\[*&$%_]")
"""Without one of these, a text has no mark-up, escape, mnemonic or format code."""
_TEMPLATE_TAG = re.compile(r"\{%.*?%\}")
_TAG = re.compile(r"</?[A-Za-z0-9][^<>]*>|<!--.*?-->", re.S)
_BREAK = re.compile(r"</?(?:br|p|div|li|ul|ol|tr|td|h[1-6])\b[^<>]*>", re.I)
_ENTITY = re.compile(r"&(?:#\d+|#x[0-9a-f]+|[a-z][a-z0-9]*);", re.I)
_ESCAPE = re.compile(r"\\[nrt]")
_ROLE = re.compile(r":[a-z][\w:+-]*:`([^`<]*?)(?:\s*<[^`>]*>)?`")
_REST_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{1,2}")
_MARKDOWN_LINK = re.compile(r"!?\[([^\][]+)\]\([^()\s]+\)")
_BACKTICKS = re.compile(r"`+([^`]+)`+_{0,2}")
_STARS = re.compile(r"(?<![\w*])(\*{1,3})(?=\S)([^*]+?)(?<=\S)\1(?![\w*])")
_SUFFIX_MNEMONIC = re.compile(r"\s*\((?:&amp;|[&_])\w\)")
_AMPERSAND = re.compile(r"(&&)|(?<!\w)&(?=\w)|((?<=[^\W\d_])&)(?=[^\W\d_\u2e80-\u9fff\uac00-\ud7af])")
"""`&&`, or `&` in front of a word, or in one: in front of a letter that is not Chinese, Japanese or Korean."""
_WORD_UNDERSCORE = re.compile(r"(?<!\w)_(?=[^\W_])(?!\w*_)")
_INNER_UNDERSCORE = re.compile(r"(?<=[^\W\d_])_(?=[^\W\d_])")
_MARKS = "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"
_JOINERS = "\u200c\u200d"
INVISIBLE = re.compile(f"[{_MARKS}]")
"""Characters that no reader sees, in any script; joiners are not among them."""
_STRAY_JOINER = re.compile(f"[{_JOINERS}](?<![\u0250-\U0010ffff].)[{_JOINERS}]*")
_VISIBLE = re.compile(rf"[^\s{_MARKS}{_JOINERS}]")
_LABEL_WORDS = 6
_DOUBLE_QUOTES = (
    "\u00ab\u00bb\u201c\u201d\u201e\u201f\u275d\u275e\u2760\u2e42\u301d\u301e\u301f\U0001f676\U0001f677\U0001f678"
)
_SINGLE_QUOTES = "\u2018\u2019\u201a\u201b\u2039\u203a\u275b\u275c\u275f\u276e\u276f"
_DASHES = (
    "\u058a\u05be\u1400\u1806\u2010\u2011\u2012\u2013\u2014\u2015\u2e17\u2e1a\u2e3a\u2e3b\u2e40\u2e5d"
    "\u301c\u3030\u30a0\U00010d6e\U00010ead"
)
_ONE_SIGN = str.maketrans(
    dict.fromkeys(_DOUBLE_QUOTES, '"') | dict.fromkeys(_SINGLE_QUOTES, "'") | dict.fromkeys(_DASHES, "-")
)


def normalise(text: str) -> str:
    """Return an interface message as the sentence that a person reads on the screen.

    The form is NFC, not NFKC: tokenizers apply their own compatibility mapping, and "½" or "…" should reach them as
    users type them. Placeholders become `X`. Mark-up, mnemonics, byte-order marks, direction marks and characters of no
    width are removed; ellipses stay, and joiners do in scripts that need them.
    """
    if _MARKED.search(text):
        text = _remove_markup(_ESCAPE.sub(" ", text).replace('\\"', '"'))
        text = _FORMAT_CODE.sub(PLACEHOLDER, _remove_mnemonics(text)).replace("%%", "%")
    if not text.isascii():
        text = unicodedata.normalize("NFC", _STRAY_JOINER.sub("", INVISIBLE.sub("", text)))
    return " ".join(text.split())


def one_sign(text: str) -> str:
    """Return a sentence in NFKC, with one sign for double quotation marks, single ones, and hyphens and dashes each.

    This is the preprocessing of calibrated similarity (section 4.1). The paper does not list the signs: here quotation
    marks are the characters that Unicode names so, and hyphens and dashes those of category Pd. Quoting brackets,
    primes, apostrophes that are letters and the minus sign stay.
    """
    return " ".join(unicodedata.normalize("NFKC", text).translate(_ONE_SIGN).split())


UNICODE_FORMS: Mapping[str, Callable[[str], str]] = {"nfc": str, "nfkc": one_sign}
"""What brings a normalised sentence into a Unicode form."""


def is_visible(text: str) -> bool:
    """Tell whether a text has any character other than white space, direction marks and other invisible ones."""
    return _VISIBLE.search(text) is not None


def placeholders(text: str) -> int:
    """Count the placeholders of a raw message; a translation has as many as its source."""
    return len(_FORMAT_CODE.findall(_TEMPLATE_TAG.sub("", text)))


def _remove_markup(text: str) -> str:
    text = _TAG.sub("", _BREAK.sub(" ", _TEMPLATE_TAG.sub(" ", text)))
    for pattern in (_ROLE, _REST_LINK, _MARKDOWN_LINK, _BACKTICKS):
        text = pattern.sub(lambda match: match[1], text)
    return _ENTITY.sub(lambda match: html.unescape(match[0]), _STARS.sub(lambda match: match[2], text))


def _remove_mnemonics(text: str) -> str:
    """Remove the marks of `&File`, `E&xit`, `_File`, `E_xit` and `(&F)`, but leave `AT&T`, `Q&A` and `file_name`."""

    def without_mark(match: re.Match[str]) -> str:
        is_name = match[2] and match.string[match.end()].isupper()  # such as B&B: nobody marks a capital in a word
        return "&" if match[1] or is_name else ""

    text = _AMPERSAND.sub(without_mark, _SUFFIX_MNEMONIC.sub("", text))
    if text.count("_") == 1:
        text = _WORD_UNDERSCORE.sub("", text)
        text = _INNER_UNDERSCORE.sub("", text) if len(text.split()) <= _LABEL_WORDS else text
    return text
