"""The language of a text decides which words are searched and which rules apply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.language import detect
from tests.unit.offline_cases import CASES


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "I prefer dark mode"),
        ("en", "never run migrations against production"),
        ("en", "Cap the timeout at 30 seconds"),
        ("es", "Prefiero modo oscuro"),
        ("es", "¿Cuáles son mis reglas de tiempo de espera?"),
        ("es", "nunca ejecutes migraciones en producción"),
        ("es", "Limita el timeout a 30 segundos"),
        ("pt", "Prefiro modo escuro"),
        ("pt", "Quais são as minhas regras de tempo limite?"),
        ("pt", "nunca rode migrações em produção"),
        ("pt", "Não gosto de tabulações"),
        ("fr", "Je préfère le mode sombre pour tous mes projets"),
        ("de", "Ich bevorzuge den dunklen Modus und keine langen Texte"),
        ("it", "Preferisco la modalità scura in tutti i progetti"),
        ("zh", "我更喜欢深色模式，并使用 PostgreSQL"),
        ("ja", "本番環境でマイグレーションを実行しないでください"),
        ("ko", "다크 모드를 선호합니다"),
        ("ru", "Я предпочитаю тёмную тему"),
    ],
)
def test_a_short_sentence_is_enough(language: str, text: str) -> None:
    assert detect(text) == language


@pytest.mark.parametrize(
    "text", ["", "   ", "12345 67", "FastAPI AlloyDB", "```\nthe of and to in is it\n```", "\x00"]
)
def test_what_says_too_little_is_undetermined(text: str) -> None:
    assert detect(text) == "und"


def test_code_and_addresses_do_not_count_as_words() -> None:
    assert detect("Usa `the_only_way_to_be` y mira https://example.com/the/and/of para los datos") == "es"


def test_a_name_in_another_script_does_not_change_the_language() -> None:
    assert detect("The restaurant 東京 is my favourite place for dinner") == "en"


def test_invented_sentences_are_told_apart() -> None:
    cases = [(language, text) for language, pairs in CASES.items() for text, _ in pairs]
    found = [(language, detect(text), text) for language, text in cases]
    assert [case for case in found if case[1] not in (case[0], "und")] == []
    assert sum(1 for case in found if case[1] == "und") <= len(cases) // 25


@given(st.text(max_size=300))
def test_any_text_has_one_answer(text: str) -> None:
    assert detect(text) == detect(text)
