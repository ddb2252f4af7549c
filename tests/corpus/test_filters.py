import pytest

from xcompress.corpus.filters import OVER_TOKENS, Limits, TokenLimit, clean, same_key
from xcompress.corpus.pairs import Pair


def pair(source: str, target: str, language: str = "de") -> Pair:
    return Pair(source, target, language, "o")


def why_dropped(pair: Pair, limits: Limits) -> str | None:
    kept = clean(pair, limits)
    return kept if isinstance(kept, str) else None


@pytest.mark.parametrize(
    "kept",
    [
        pair("The cat sleeps on the sofa.", "Die Katze schläft auf dem Sofa."),
        pair("Your letter to %(name)s was sent.", "Dein Brief an %(name)s wurde verschickt."),
        pair("The shop opens at nine today.", "Dükkân bugün dokuzda açılıyor.", "tr"),
        pair("The children play in the garden.", "يلعب الأطفال في الحديقة.", "ar"),
        pair("The children are playing in the garden behind the house.", "孩子们在屋后的花园里玩耍。", "zh"),
        pair("word " * 64, "Wort " * 64),
        pair("From %s to %s by %s they all went.", "Von %s bis %s mit %s gingen alle."),
        pair("The cat sleeps on the sofa in the garden", "Es schläft"),
        pair("Press the “Pay now”-button to go on.", 'Auf den "Jetzt zahlen"-Knopf drücken.'),
    ],
)
def test_sentences_are_kept(kept: Pair) -> None:
    assert why_dropped(kept, Limits()) is None


@pytest.mark.parametrize(
    ("dropped", "reason"),
    [
        (pair("Open the door", "Die Tür öffnen"), "too short"),
        (pair("%s and %s and %s", "%s und %s und %s"), "too short"),
        (pair("word " * 65, "Wort " * 65), "too long"),
        (pair("the red door of house " + "<b>" * 700, "die rote Tür des Hauses"), "too long"),
        (pair("the red door of house", "die rote Tür des Hauses" + "<b>" * 700), "too long"),
        (pair("The cat sleeps on the sofa.", "Die Katze schläft\0 auf dem Sofa."), "code or symbols"),
        (pair("The cat sleeps on the sofa.", "Die Katze schläft\ud800 auf dem Sofa."), "code or symbols"),
        (pair("There are %d cats here", "Hier sind Katzen"), "placeholders"),
        (pair("From %s to %s by %s and %s", "Von %s bis %s mit %s und %s"), "placeholders"),
        (pair("The Cat sleeps on the sofa.", "the cat sleeps on the sofa."), "not translated"),
        (
            pair("Read more at https://example.org/page now", "Mehr unter https://example.org/page lesen"),
            "code or symbols",
        ),
        (pair("Call the function open_door() with care", "Die Funktion open_door() aufrufen"), "code or symbols"),
        (pair("a 1 b 2 c 3 d 4 5 6 7 8 9", "e 1 f 2 g 3 h 4 5 6 7 8 9"), "code or symbols"),
        (pair("The cat sleeps on the sofa.", ""), "code or symbols"),
        (pair("The cat sleeps on the sofa in the garden.", "Es schläft"), "lengths differ"),
        (pair("The children play in the garden.", "Les enfants jouent dans الحديقة", "ar"), "wrong script"),
    ],
)
def test_other_pairs_are_dropped(dropped: Pair, reason: str) -> None:
    assert why_dropped(dropped, Limits()) == reason


@pytest.mark.parametrize(
    "code",
    [
        "a://b",
        "www.",
        "<b",
        "|",
        "c=d",
        "^x",
        "~y",
        "snake_case",
        "run()",
        "a@b",
        "io.text.Reader",
        "-v",
        "--verbose",
        "%d{",
        "%(n",
    ],
)
def test_code_is_dropped(code: str) -> None:
    coded = pair(f"Read all about {code} in this old book", f"Lies alles zu {code} in diesem alten Buch")
    assert why_dropped(coded, Limits()) == "code or symbols"


@pytest.mark.parametrize(
    "sign", ["a:b", "end.", "(aside)", "well-known", "@", "_", "-", "--", "–", "50%", "3.5", "x.y", "...", "(x)"]
)
def test_signs_of_prose_are_no_code(sign: str) -> None:
    plain = pair(f"Read all about {sign} in this old book", f"Lies alles zu {sign} in diesem alten Buch")
    assert why_dropped(plain, Limits()) is None


def test_limits_are_knobs() -> None:
    short = pair("Open the door", "Die Tür öffnen")
    assert why_dropped(short, Limits(min_words=3)) is None
    assert why_dropped(short, Limits(min_words=1, max_words=2)) == "too long"


def test_what_is_kept_comes_back_normalised() -> None:
    assert clean(pair("&Open the <b>red</b> door", "Die rote Tür &öffnen"), Limits()) == pair(
        "Open the red door", "Die rote Tür öffnen"
    )
    assert clean(pair("&Open", "&Auf"), Limits()) == "too short"


def test_pairs_are_kept_in_the_form_that_is_asked_for() -> None:
    raw = pair("Press the “Pay now”-button – or wait…", "Auf „Jetzt zahlen“ drücken – oder warten…")
    assert clean(raw, Limits()) == raw
    assert clean(raw, Limits(form="nfkc")) == pair(
        'Press the "Pay now"-button - or wait...', 'Auf "Jetzt zahlen" drücken - oder warten...'
    )


def test_the_form_does_not_decide_which_pairs_are_kept() -> None:
    """In NFKC the signs would be < and |, which look like code."""
    wide = pair("Open the door ＜now｜then＞ please", "Bitte die Tür ＜jetzt｜dann＞ öffnen")
    assert why_dropped(wide, Limits()) is why_dropped(wide, Limits(form="nfkc")) is None


@pytest.mark.parametrize("longer", ["source", "target"])
def test_either_side_may_have_too_many_tokens(longer: str) -> None:
    sides = {"source": "Wait for the late boat…", "target": "Auf das Boot warten", longer: "Wait for the last boat …"}
    limited = Limits(tokens=TokenLimit(5, lambda text: len(text.split())))
    assert why_dropped(pair(**sides), limited) == OVER_TOKENS
    assert why_dropped(pair(**sides), Limits(tokens=TokenLimit(6, lambda text: len(text.split())))) is None


def test_only_texts_that_may_be_too_long_are_counted() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    limit = TokenLimit(26, count)
    assert limit.admits("Wait for the boat") and limit.admits("x" * 22) and counted == []
    assert limit.admits("x" * 26) and not limit.admits("x" * 27)
    assert limit.admits("\ufdfa" * 7)  # a ligature of three bytes, and of eighteen letters in NFKC
    assert len(counted) == 3
    of_bytes = TokenLimit(26, lambda text: len(text.encode()))
    assert not of_bytes.admits("\uff0c" * 10)  # full-width commas: three bytes each, and one in NFKC


def test_tokens_are_counted_in_the_form_that_is_kept() -> None:
    raw = pair("Wait for the late boat…", "Auf das späte Boot warten…")
    limit = TokenLimit(26, len)
    assert why_dropped(raw, Limits(tokens=limit)) is None
    assert why_dropped(raw, Limits(form="nfkc", tokens=limit)) == OVER_TOKENS


def test_case_and_compatibility_forms_make_no_other_sentence() -> None:
    assert same_key("Close the window.") == same_key("CLOSE the window．") != same_key("Close the window")


@pytest.mark.parametrize("junk", ["<!--", "{%", "{{", "`", ":a", "${", "&#"])
@pytest.mark.timeout(20)
def test_junk_of_the_longest_line_takes_no_time(junk: str) -> None:
    """Unbounded, clean-up looks at every pair of the 5,000 places where such mark-up could start and end."""
    text = "one two three four five " + (junk * 20_000)[:9_000]
    assert [why_dropped(pair(text, text), Limits()) for _ in range(20)] == ["too long"] * 20
