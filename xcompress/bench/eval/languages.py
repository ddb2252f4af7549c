"""Language codes: those of three letters, as Tatoeba's files have them, as the usual ones of two."""

from collections.abc import Iterable

from xcompress.corpus.graded import PIVOT

_CODES = """
afr:af amh:am ara:ar arb:ar arz:ar aze:az bel:be ben:bn bos:bs bre:br bul:bg cat:ca ces:cs cmn:zh cor:kw cym:cy
dan:da deu:de div:dv ell:el eng:en epo:eo est:et eus:eu fao:fo fas:fa pes:fa fin:fi fra:fr fry:fy gla:gd gle:ga
glg:gl guj:gu hau:ha heb:he hin:hi hrv:hr hun:hu hye:hy ido:io ile:ie ina:ia ind:id isl:is ita:it jav:jv jpn:ja
kab:kab kan:kn kat:ka kaz:kk khm:km kor:ko kur:ku lat:la lav:lv lvs:lv lit:lt mal:ml mar:mr mkd:mk mon:mn msa:ms
zsm:ms mya:my nld:nl nno:nn nob:nb oci:oc ori:or pan:pa pol:pl por:pt pus:ps ron:ro rus:ru slk:sk slv:sl snd:sd
som:so spa:es sqi:sq srp:sr sun:su swa:sw swh:sw swe:sv tam:ta tat:tt tel:te tgl:tl tha:th tuk:tk tur:tr uig:ug
ukr:uk urd:ur uzb:uz vie:vi xho:xh yid:yi yue:yue zho:zh
"""
_TWO_LETTERS = dict(entry.split(":") for entry in _CODES.split())


def short(code: str) -> str:
    """Return the code of two letters (ISO 639-1) for one of three (ISO 639-3), where it is known to have one."""
    return _TWO_LETTERS.get(code, code)


def known(code: str) -> bool:
    """Tell whether a part of a file's name can be taken for a language: two letters, or three that are known."""
    return len(code) == 2 or code in _TWO_LETTERS


def wanted(languages: Iterable[str]) -> frozenset[str]:
    """Return the languages, as given and with the code of two letters, and English."""
    given = set(languages)
    return frozenset({PIVOT, *given, *map(short, given)})
