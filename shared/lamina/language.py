"""Tells the language of a text: by script, then by function words and spelling. No model, no download.

A statistical model was measured beside it: as good on whole sentences, worse on short ones (it always names
one of its 139 languages), and half a second and 100 MB to load, which every cold start would pay.
"""

import re
from functools import lru_cache

UNDETERMINED = "und"
"""What `detect` answers when the text does not say enough."""

_LIMIT = 4_000
"""Characters looked at: enough to tell, and a bound on the work for a long tool output."""

# Each alternative starts where a run of its characters does, or a long word would be read from every letter.
_NOISE = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|\b\w+://\S+|(?<!\S)\S+@\S+"
    r"|(?<![^\W\d_])[^\W\d_]*(?:-[^\W\d_]+)?[_\d/\\<>{}=][\w./\\<>{}=:-]*",
    re.DOTALL,
)
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")

_SCRIPTS = (
    ("ja", re.compile(r"[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9d]")),
    ("ko", re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]")),
    ("zh", re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")),
    ("uk", re.compile(r"[іїєґІЇЄҐ]")),
    ("ru", re.compile(r"[\u0400-\u04ff]")),
    ("el", re.compile(r"[\u0370-\u03ff]")),
    ("he", re.compile(r"[\u0590-\u05ff]")),
    ("ar", re.compile(r"[\u0600-\u06ff]")),
    ("hi", re.compile(r"[\u0900-\u097f]")),
    ("th", re.compile(r"[\u0e00-\u0e7f]")),
)

# Words that carry grammar or everyday speech. A word in several lists speaks for each of them, but less.
_WORDS = {
    "en": """
        the of and to in is it that for you was with on are be this have from or had by not but what some
        we can were there when your how said an each which she he do their will would could should about
        if then them these so her his him has more my than been who its it's now did down may after our me
        most just like over know also back first well because any us i i'm i've i'll i'd don't doesn't
        didn't won't can't isn't aren't wasn't we're we've we'll you're they they're that's there's let's
        let always never only use using used want need prefer please every all no as at a into through
        before between both during without while where why make made get keep yes thanks hi hello hey ok
        good great really very too much many new time day days week going gonna got told says still must
        shall am being here mode dark light project database user data code file files run running enjoy
        care take awesome bye later sure yeah see oh agreed totally signed off work works live lives go
        goes
    """,
    "es": """
        dos tres cuatro cinco seis siete ocho nueve diez veinte cien mil cambios directamente correo clave
        claves prohibido
        a el la los las un una unos unas de del al y o e que en es por con para como pero su sus se no lo le
        les me mi mis te tu tus nos nuestro nuestra nuestros nuestras si sí ya más muy esto esta este
        estas estos eso esa ese esos está están estoy estamos son fue era ser sido hay ha han he hemos
        había tiene tienen tengo tenemos hacer hace hecho también cuando donde dónde qué cuál cuáles cómo
        quién porque sobre entre hasta desde sin todo toda todos todas nada nunca siempre solo sólo ahora
        hoy ayer mañana después antes usa usar uso usamos usando prefiero prefiere quiero quiere necesito
        debe deben puede pueden vamos voy va cada otro otra otros mejor así aquí yo él ella ellos ellas
        nosotros usted ustedes gracias hola buenos bien día días semana ni tampoco mientras aunque según
        durante ante cosas dijo dice eran creo código datos proyecto modo oscuro claro favor trabajo vivo
        sesión región producción usuario usuarios archivo archivos respuesta pruebas semanas mes meses año
        años vale pena respecto fecha límite estricta acuerdo lenguaje servidor gusta gustan idioma regla
        reglas tarea tareas equipo
    """,
    "pt": """
        dois duas três quatro cinco seis sete oito nove dez vinte cem mil mudanças diretamente chave chaves
        proibido
        o a os as um uma uns umas de do da dos das no na nos nas ao aos à às e ou que em é por pelo pela
        pelos pelas com para pra como mas seu sua seus suas se não lhe me meu minha meus minhas te teu tua
        nosso nossa nossos nossas sim já mais muito isto isso esta este essa esse essas esses aquele
        aquela está estão estou estamos são foi era ser sido há tem têm tenho temos fazer faz feito também
        quando onde qual quais quem porque sobre entre até desde sem tudo toda todo todos todas nada nunca
        sempre só apenas agora hoje ontem amanhã depois antes usa usar uso usamos usando prefiro prefere
        quero quer preciso deve devem pode podem vamos vou vai cada outro outra outros melhor assim aqui
        eu ele ela eles elas nós você vocês obrigado obrigada olá oi bem dia dias semana nem enquanto
        embora segundo durante num numa dum disso neste nesta nesse nessa deste desta disse diz eram acho
        código dados projeto modo escuro claro favor trabalho moro sessão região produção usuário usuários
        arquivo arquivos resposta testes semanas mês meses ano anos vale respeito prazo acordo linguagem
        servidor gosto gosta idioma regra regras tarefa tarefas equipe
    """,
    "fr": """
        le la les un une des du de et ou que qui en est pour avec dans par sur au aux ce cette ces il elle
        nous vous ils elles je tu ne pas plus mais son sa ses leur leurs mon ma mes c'est j'ai n'est qu'il
        d'un d'une l'on été être avoir sont ont fait très bien tout tous toute toujours jamais comme quand
        où si
    """,
    "de": """
        der die das ein eine einen einem einer und oder nicht ist sind war mit für auf von zu im in den
        dem des ich du er sie es wir ihr mein meine sein auch aber wie wenn dass als bei nach aus noch nur
        schon kann wird werden haben hat immer nie bitte wo was
    """,
    "it": """
        il lo la gli le un una di del della dei delle e o che in è per con come ma suo sua si non mi ci
        sono ho ha abbiamo hanno essere fare anche quando dove perché più molto questo questa questi tutto
        tutti sempre mai nella nel alla al sul sulla dal dalla io lui lei noi voi preferisco
    """,
}

_SPELLING = {
    "en": re.compile(
        r"(?:ing|ed|ly|ght|tion|tions|ness|ous|ful|'s|n't|'ll|'ve|'re)\b|\b(?:wh|th|kn)|sh\b|ck\b"
    ),
    "es": re.compile(
        r"ñ|(?:ción|ciones|sión|siones|miento|mientos|dad|dades|ía|ías|ando|iendo|ción|ería|eza|able|aje)\b"
        r"|\bll|ué|(?:ió|ón|án|ás|arán|irán|erán)\b|ue(?=[rnblvd])|ie(?=[nrdbmg])"
    ),
    "pt": re.compile(
        r"[ãõâêôç]|(?:ção|ções|são|sões|mento|mentos|dade|dades|ável|ível|agem|ando|endo|eiro|eira|ez)\b"
        r"|nh|lh|ei\b|ou\b|ss|m\b"
    ),
    "fr": re.compile(r"[èêëùœç]|(?:eux|eaux|aient|ment|ique|ité)\b|\b[ldjcnsmtq][’']|é\b|ée"),
    "de": re.compile(r"[ßäöü]|sch|(?:ung|keit|heit|lich|isch|en)\b"),
    "it": re.compile(r"[òàì]\b|(?:zione|zioni|mente|ità|gli|gl)\b|zz|cch|tt[aeio]\b"),
}
_SPELLING_WEIGHT = 0.35
_PUNCTUATION = (("es", re.compile("[¿¡]"), 3.0),)


def _weights() -> dict[str, tuple[tuple[str, float], ...]]:
    """Each word's vote for its languages: one language gets a whole vote, several share it unevenly low."""
    owners: dict[str, list[str]] = {}
    for language, words in _WORDS.items():
        for word in dict.fromkeys(words.split()):
            owners.setdefault(word, []).append(language)
    return {
        word: tuple((language, 1.0 / len(languages)) for language in languages)
        for word, languages in owners.items()
    }


_VOTES = _weights()


def detect(text: str) -> str:
    """The text's language as an ISO 639-1 code, or `und` when it cannot be told.

    Sure of Chinese, Japanese, Korean and other scripts of their own; of English, Spanish, Portuguese,
    French, German and Italian from a short sentence on. Deterministic; tens of microseconds.
    """
    return _detect(text[:_LIMIT])


@lru_cache(maxsize=1_024)
def _detect(text: str) -> str:
    prose = _NOISE.sub(" ", text)
    words = _WORD.findall(prose.lower())
    if not words:
        return UNDETERMINED
    return _by_script(prose, words) or _by_words(prose, words)


def _by_script(prose: str, words: list[str]) -> str:
    """A language whose script outweighs the Latin words; a name in another script does not."""
    if prose.isascii():
        return ""
    latin = sum(1 for word in words if word[0] < "\u0250")
    counts = {language: len(pattern.findall(prose)) for language, pattern in _SCRIPTS}
    # Japanese and Korean write Chinese characters too: any syllable of their own decides.
    if counts["ja"] or counts["ko"]:
        counts["ja" if counts["ja"] >= counts["ko"] else "ko"] += counts["zh"]
        counts["zh"] = 0
    if counts["uk"]:
        counts["uk"] += counts["ru"]
    best = max(counts, key=lambda language: counts[language])
    # One ideograph or syllable is about half a word; letters of an alphabet are about a fifth.
    words_in_script = counts[best] / (2 if best in ("zh", "ja", "ko") else 5)
    return best if counts[best] and words_in_script * 2 >= latin else ""


def _by_words(prose: str, words: list[str]) -> str:
    scores = dict.fromkeys(_WORDS, 0.0)
    for word in words:
        for language, vote in _VOTES.get(word.replace("’", "'"), ()):
            scores[language] += vote
    lowered = " ".join(words)
    for language, pattern in _SPELLING.items():
        scores[language] += _SPELLING_WEIGHT * len(pattern.findall(lowered))
    for language, pattern, weight in _PUNCTUATION:
        scores[language] += weight * bool(pattern.search(prose))
    (first, best), (_, second) = sorted(scores.items(), key=lambda item: -item[1])[:2]
    # A lone shared word or ending is no evidence; neither is a dead heat.
    sure = best >= 0.6 and best - second >= 0.15 and best / len(words) >= 0.08
    return first if sure else UNDETERMINED
