"""Content words, made comparable across inflection and, for everyday and technical words, across languages.

A subject key is made of these, so that the same thing said in another language or with another ending
lands in the same slot.
"""

import re
import unicodedata

from lamina.models.offline.lists import sections

_TOKEN = re.compile(r"[^\W_]+(?:[.+#'’/-]*[^\W_]+)*[+#]*")
_NUMBER = re.compile(r"[$€£~]?\d")


def listed(section: str) -> frozenset[str]:
    """The words of a section of `data/words.txt`."""
    return frozenset(" ".join(sections("words")[section]).split())


_STOP = listed("stop")


def _canon_table() -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    whole: dict[str, str] = {}
    stems: list[tuple[str, str]] = []
    for entry in sections("words")["same"]:
        word, _, spellings = entry.partition(": ")
        for stem in spellings.split():
            if stem.endswith("$"):
                whole[stem[:-1]] = word
            else:
                stems.append((stem, word))
    return whole, tuple(sorted(stems, key=lambda pair: -len(pair[0])))


_WHOLE, _STEMS = _canon_table()


def fold(text: str) -> str:
    """Lower case without accents. The length may change: never use its positions on the original."""
    apart = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in apart if not unicodedata.combining(char))


def canonical(word: str) -> str:
    """One word's common form: folded, singular, and English where the word is known."""
    word = fold(word)
    if (known := _WHOLE.get(word)) is not None:
        return known
    for stem, known in _STEMS:
        if word.startswith(stem):
            return known
    for ending, plain in (("ciones", "tion"), ("cion", "tion"), ("coes", "tion"), ("cao", "tion")):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            return word[: -len(ending)] + plain
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


_PHRASES = re.compile(r"\bbases? de datos\b|\bbancos? de dados\b|\bdata ?bases?\b", re.IGNORECASE)


_GENERIC = listed("generic")


def is_generic(word: str) -> bool:
    """The word tells no two things of a kind apart: "the cache", "our backend"."""
    return canonical(word) in _GENERIC or fold(word) in _STOP


def keywords(text: str, *, numbers: bool = False) -> tuple[str, ...]:
    """The text's content words in canonical form, each once, in order of appearance."""
    found: dict[str, None] = {}
    text = _PHRASES.sub("database", text)
    for token in _TOKEN.findall(text):
        folded = fold(token)
        if folded in _STOP or (not numbers and _NUMBER.match(folded)):
            continue
        word = canonical(folded)
        if word and word not in _STOP:
            found[word] = None
    return tuple(found)
