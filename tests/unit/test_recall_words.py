"""Words: what is stored and what is asked come out alike, and nothing asked can break a query."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.recall.words import MAX_TERMS, MAX_WORD, or_query, searchable, text_search_config, websearch

ANY_TEXT = st.one_of(
    st.text(), st.text(st.characters()), st.sampled_from(["\x00", "\ud800", "' | !:*", '"OR" <->'])
)


def test_case_and_accents_do_not_matter() -> None:
    assert searchable("Sesión ÚLTIMA, configuração", "es") == "sesion ultima configuracao"


def test_a_run_of_chinese_or_japanese_becomes_overlapping_pairs() -> None:
    assert searchable("数据库超时", "zh") == "数据 据库 库超 超时"
    assert searchable("京でPostgreSQLを", "ja") == "京で postgresql を"


def test_a_single_ideograph_is_a_word_of_its_own() -> None:
    assert searchable("猫 cat", "zh") == "猫 cat"


def test_voiced_kana_and_hangul_keep_their_letters() -> None:
    assert searchable("ガカ", "ja") != searchable("カカ", "ja")
    assert searchable("한국어", "ko") == "한국 국어"


def test_half_width_and_full_width_forms_are_the_same_word() -> None:
    assert searchable("ﾃﾞｰﾀ ＡＰＩ", "ja") == searchable("データ API", "ja")


def test_names_with_signs_stay_apart_from_their_letter() -> None:
    assert searchable("C++ or C#", "en") == "cplusplus or csharp"


def test_version_numbers_stay_whole_and_other_marks_part_words() -> None:
    assert (
        searchable("Python 3.11, us-east1; FastAPI/AlloyDB", "en") == "python 3.11 us east1 fastapi alloydb"
    )


def test_a_blob_is_no_word() -> None:
    assert searchable(f"key {'a' * (MAX_WORD + 1)} end", "en") == "key end"


@pytest.mark.parametrize(
    ("language", "config"),
    [("en", "english"), ("es", "spanish"), ("pt", "portuguese"), ("zh", "simple"), ("und", "simple")],
)
def test_a_language_has_its_text_search_configuration(language: str, config: str) -> None:
    assert text_search_config(language) == config


def test_of_a_long_paste_the_beginning_and_the_end_are_asked_for() -> None:
    terms = or_query(" ".join(f"w{n}" for n in range(1_000)))
    assert len(terms) == MAX_TERMS
    assert (terms[0], terms[-1]) == ("w0", "w999")


def test_a_term_is_asked_for_once() -> None:
    assert or_query("Café cafe CAFÉ") == ("cafe",)


@given(ANY_TEXT)
def test_no_text_puts_syntax_into_a_query(text: str) -> None:
    query = websearch(or_query(text))
    assert re.fullmatch(r'(?:"[^"\s]+"(?: OR "[^"\s]+")*)?', query)
    assert not set(query) & set("\x00|&!:*()<>'\\")
    query.encode("utf-8")  # no lone surrogate is left


@given(ANY_TEXT)
def test_a_question_that_repeats_a_text_asks_for_exactly_its_words(text: str) -> None:
    words = searchable(text).split(" ") if searchable(text) else []
    assert set(or_query(text)) <= set(words)
    if len(set(words)) <= MAX_TERMS:
        assert set(or_query(text)) == set(words)


@given(ANY_TEXT)
def test_what_is_searchable_stays_as_it_is_when_made_searchable_again(text: str) -> None:
    once = searchable(text)
    assert searchable(once) == once
