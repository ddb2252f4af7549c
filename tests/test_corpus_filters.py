import pytest

from xcompress.corpus.filters import Limits, keep, why_dropped, without_duplicates
from xcompress.corpus.pairs import Pair


def pair(source: str, target: str, language: str = "de") -> Pair:
    return Pair(source, target, language, "o")


@pytest.mark.parametrize(
    "kept",
    [
        pair("The cat sleeps on the sofa.", "Die Katze schläft auf dem Sofa."),
        pair("Your letter to %(name)s was sent.", "Dein Brief an %(name)s wurde verschickt."),
        pair("The shop opens at nine today.", "Dükkân bugün dokuzda açılıyor.", "tr"),
        pair("The children play in the garden.", "يلعب الأطفال في الحديقة.", "ar"),
        pair("The children are playing in the garden behind the house.", "孩子们在屋后的花园里玩耍。", "zh"),
        pair("Press the “Pay now”-button to go on.", 'Auf den "Jetzt zahlen"-Knopf drücken.'),
    ],
)
def test_sentences_are_kept(kept: Pair) -> None:
    assert why_dropped(kept, Limits()) is None
    assert keep(kept, Limits())


@pytest.mark.parametrize(
    ("dropped", "reason"),
    [
        (pair("Open the door", "Die Tür öffnen"), "too short"),
        (pair("%s and %s and %s", "%s und %s und %s"), "too short"),
        (pair("word " * 65, "Wort " * 65), "too long"),
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
        (pair("The cat sleeps on the old sofa in the big room.", "Ja."), "lengths differ"),
        (pair("The children play in the garden.", "Les enfants jouent au jardin.", "ar"), "wrong script"),
    ],
)
def test_other_pairs_are_dropped(dropped: Pair, reason: str) -> None:
    assert why_dropped(dropped, Limits()) == reason
    assert not keep(dropped, Limits())


def test_limits_are_knobs() -> None:
    short = pair("Open the door", "Die Tür öffnen")
    assert keep(short, Limits(min_words=3))
    assert why_dropped(short, Limits(min_words=1, max_words=2)) == "too long"


def test_one_translation_per_sentence_and_language() -> None:
    first, again = pair("Close the window.", "Fenster zu."), pair("CLOSE the window．", "Das Fenster schließen.")
    dutch = pair("Close the window.", "Doe het raam dicht.", "nl")
    assert without_duplicates([first, again, dutch, first]) == [first, dutch]
