"""The codes of languages that a recipe may name: those that the identifier of languages can give.

They stand here so that a recipe is checked without the model.
"""

UNKNOWN_LANGUAGE = "unknown"  # of a document of none of them
IDENTIFIED = """
af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce ceb ckb co cs cv cy da de diq
dsb dty dv el eml en eo es et eu fa fi fr frr fy ga gd gl gn gom gu gv he hi hif hr hsb ht hu hy ia id ie ilo io is
it ja jbo jv ka kk km kn ko krc ku kv kw ky la lb lez li lmo lo lrc lt lv mai mg mhr min mk ml mn mr mrj ms mt mwl
my myv mzn nah nap nds ne new nl nn no oc or os pa pam pfl pl pms pnb ps pt qu rm ro ru rue sa sah sc scn sco sd sh
si sk sl so sq sr su sv sw ta te tg th tk tl tr tt tyv ug uk ur uz vec vep vi vls vo wa war wuu xal xmf yi yo yue zh
"""
CODES = frozenset(IDENTIFIED.split())
# A code, and how else its language is written: ISO 639-2 and 639-3, old codes, and countries that are no code.
WRITTEN_ELSE = """
    en eng; zh zho chi cmn; es spa; hi hin; ar ara arb; fr fra fre; bn ben; pt por; ru rus; ur urd; id ind in;
    de deu ger; ja jpn jp; sw swa swh; mr mar; te tel; tr tur; ta tam; vi vie; ko kor; it ita; th tha; gu guj;
    kn kan; fa fas per pes; pl pol; pa pan; ms msa may zsm; uk ukr ua; ro ron rum mo; nl nld dut; el ell gre
    gr; cs ces cze cz; hu hun; sv swe; da dan dk; fi fin; no nor nob nb; sk slk slo; bg bul; sr srp; hr
    hrv; he heb iw; ca cat; lt lit; lv lav lvs; et est ekk; sl slv; tl tgl fil; ml mal
"""
CODE_OF = {other: code for code, *others in (line.split() for line in WRITTEN_ELSE.split(";")) for other in others}


def require_code(language: str, *, unknown: bool) -> None:
    """Raises ValueError, with the code to write where that can be told, for what no document is identified as.
    unknown: whether documents of no known language can be meant."""
    if language in CODES or (unknown and language == UNKNOWN_LANGUAGE):
        return
    parts = language.lower().replace("-", "_").split("_")
    code = CODE_OF.get(parts[0], parts[0])
    if code in CODES:
        raise ValueError(f"{language!r} is no code that a document can have; write {code!r}")
    raise ValueError(
        f"{language!r} is unknown to the identifier of languages; it knows {', '.join(sorted(CODES))}"
        f"{' and ' + UNKNOWN_LANGUAGE if unknown else ''}"
    )
