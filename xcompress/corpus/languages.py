"""The codes of languages in names of files."""

# The library langcodes does not replace this table. It maps arz to arz and tgl to fil, where XTREME's groups say ar and
# tl. It knows every registered code, so `corpus.src.txt` and `notes.run.txt` would be text in Sardinian and Rundi: a
# list of the codes that may name a language is needed in any case. Evaluation also works without the bench extra.
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


def short_code(code: str) -> str:
    """Return the two-letter code (ISO 639-1) of a three-letter code (ISO 639-3); unknown codes stay as they are."""
    return _TWO_LETTERS.get(code, code)


def is_language(code: str) -> bool:
    """Tell whether a part of a file's name is a language: any two letters, or three that are a known code."""
    return len(code) == 2 or code in _TWO_LETTERS
