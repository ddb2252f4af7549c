import sys
import unicodedata

import pytest

from xcompress.corpus.normalise import is_visible, normalise, one_sign, placeholders


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("&Save the letter &as…", "Save the letter as…"),
        ("_Open the next page", "Open the next page"),
        ("E_xit", "Exit"),
        ("Datei ö&ffnen (&F)", "Datei öffnen"),
        ("Kaydet (_K)", "Kaydet"),
        ("&حفظ الرسالة", "حفظ الرسالة"),
        ("Drag && drop your picture", "Drag & drop your picture"),
        ("Do not sho&w this message to the others again", "Do not show this message to the others again"),
        ("Tom&&jerry are here", "Tom&jerry are here"),
        ("Two B&Bs of Amsterdam&Partners", "Two B&Bs of Amsterdam&Partners"),
        ("Иванов&Петров пишут письмо", "Иванов&Петров пишут письмо"),
        ("AT&T在最后", "AT&T在最后"),
        ("张&李", "张&李"),
        ("Ask AT&T or read the Q&A", "Ask AT&T or read the Q&A"),
        ("Set file_name before you start the long copy job", "Set file_name before you start the long copy job"),
        ("Run __init__ first", "Run __init__ first"),
    ],
)
def test_mnemonics(raw: str, plain: str) -> None:
    assert normalise(raw) == plain


@pytest.mark.parametrize(
    ("raw", "plain", "count"),
    [
        ("Delete %(count)d letters from %(name)s?", "Delete X letters from X?", 2),
        ("%1$s mag %2$s", "X mag X", 2),
        ("{name} yazdı: {0}", "X yazdı: X", 2),
        ("وصلت ${count} رسالة إلى %1", "وصلت X رسالة إلى X", 2),
        ("Hello {{ user.name }}, you have %.2f euros", "Hello X, you have X euros", 2),
        ("Done: 100%% of %s", "Done: 100% of X", 1),
        ("Write %%s for a name", "Write %s for a name", 0),
        ("50% of the price is paid", "50% of the price is paid", 0),
        ("Fiyatın %50'si ödendi", "Fiyatın %50'si ödendi", 0),
        ("It costs US$ 5", "It costs US$ 5", 0),
    ],
)
def test_format_codes(raw: str, plain: str, count: int) -> None:
    assert normalise(raw) == plain
    assert placeholders(raw) == count


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("<b>Your</b> <a href='%(url)s'>letter</a><br>is here", "Your letter is here"),
        ("<0>Liebe</0> Grüße &amp; &quot;Küsse&quot;", 'Liebe Grüße & "Küsse"'),
        ("R&copy is not &copy; here", "Rcopy is not © here"),
        ("See :ref:`the garden <garden>` and ``tea`` in **the** `house <x>`_", "See the garden and tea in the house"),
        ("Read [the rules](rules.html) first", "Read the rules first"),
        ("If 3 < 4 and 5 > 4", "If 3 < 4 and 5 > 4"),
        ("{% if x %}Come in{% endif %}", "Come in"),
    ],
)
def test_markup(raw: str, plain: str) -> None:
    assert normalise(raw) == plain


def test_white_space_escapes_and_invisible_characters() -> None:
    assert normalise(" One\\n two\u00a0three\n\tfour ") == "One two three four"
    assert normalise('He said \\"yes\\"') == 'He said "yes"'
    assert normalise("\u200fمرحبا\u200e soft\u00adhy\ufeffphen") == "مرحبا softhyphen"
    assert normalise("\u2068one\u2069 \u061ctwo\u2064 \u202eth\u2060ree\u202c \ufefffour") == "one two three four"


def test_a_control_character_becomes_no_other() -> None:
    assert normalise("a\0b") == "a\0b"


def test_joiners_stay_where_spelling_needs_them() -> None:
    assert normalise("نمی\u200cخواهم") == "نمی\u200cخواهم"
    assert normalise("क्\u200dष 👩\u200d💻") == "क्\u200dष 👩\u200d💻"
    assert normalise("\u200dAuf\u200clage,\u200d \u200b\u200dalles") == "Auflage, alles"


def test_text_is_visible_when_anything_has_a_form() -> None:
    assert all(map(is_visible, ["a", " .", "\u200f؟", "\0"]))
    assert not any(map(is_visible, ["", " \t", "\u200f\ufeff \u200d"]))


def test_canonical_but_not_compatibility_forms() -> None:
    assert normalise("Tu\u0308r ½ …") == "Tür ½ …"


def test_a_plain_sentence_stays_and_twice_is_once() -> None:
    text = "It’s 5 o’clock - time for “tea” (or coffee), isn’t it?"
    assert normalise(text) == text
    raw = "<p>&Hello, %s &amp; co.</p>"
    assert normalise(normalise(raw)) == normalise(raw)


def test_one_sign_for_quotation_marks_hyphens_and_dashes() -> None:
    german = "„So“, «sagte» ‘er’ ‹dort› – 3‑mal—„½ … ﬁn“"
    assert one_sign(german) == """"So", "sagte" 'er' 'dort' - 3-mal-"1⁄2 ... fin\""""
    assert one_sign("１２３　ｶﾞ a´b") == "123 ガ a \u0301b"
    plain = "It's \"5\" o'clock - 3 − 2 「a」 ′ ʼ"
    assert one_sign(plain) == plain


def test_one_sign_covers_what_unicode_names_and_can_be_repeated() -> None:
    for character in map(chr, range(sys.maxunicode + 1)):
        name, category = unicodedata.name(character, ""), unicodedata.category(character)
        if category == "Cn":
            continue  # what a later Unicode defines
        if category == "Pd":
            assert one_sign(character) == "-", name
        elif "QUOTATION MARK" in name and category != "Cf":
            single = "SINGLE" in name or "POINTING ANGLE" in name
            assert one_sign(character) == ("'" if single else '"'), name
        elif one_sign(character) in ("-", '"', "'"):
            assert name in ("APOSTROPHE", "FULLWIDTH APOSTROPHE"), name
    once = one_sign("«a» – ‚b‘ ½ ´ ﬁ …")
    assert one_sign(once) == once
