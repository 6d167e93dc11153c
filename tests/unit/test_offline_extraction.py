"""What the offline model takes out of a turn: kinds, scopes, subjects, and the words as they were said."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.event import Speaker
from lamina.model import Kind, Scope, Statement, Turn
from lamina.models.offline import OfflineModel
from lamina.models.offline.extraction import extract_turn, find
from lamina.models.offline.times import annotate
from tests.strategies import events
from tests.unit.offline_cases import CASES

MONDAY = datetime(2026, 1, 5, 10, tzinfo=UTC)


def turn(user: str, project: str | None = None, **fields: Any) -> Turn:
    return Turn.model_validate(
        {
            "app": "shop",
            "user_id": "ana",
            "session_id": "sess_2026_01",
            "turn_id": "t1",
            "occurred_at": MONDAY,
            "project_id": project,
            **({"user": user} if "events" not in fields else {}),
            **fields,
        }
    )


def said(user: str, project: str | None = None, **fields: Any) -> tuple[Statement, ...]:
    return extract_turn(turn(user, project, **fields))


def only(user: str, project: str | None = None, **fields: Any) -> Statement:
    (statement,) = said(user, project, **fields)
    return statement


@pytest.mark.parametrize(
    ("text", "expected"),
    [pair for pairs in CASES.values() for pair in pairs],
    ids=lambda value: str(value)[:40],
)
def test_a_sentence_gets_its_label(text: str, expected: str | None) -> None:
    found = [each.label.value for each in find(text, Speaker.USER, MONDAY)]
    assert found == ([expected] if expected else [])


# --- the story, in three languages ---------------------------------------------------------------

STORY = {
    "en": (
        ("My universal preferences for all projects: dark mode UI, Python 3.11 and PostgreSQL.", None),
        (
            "In project CloudRetail we use Python with FastAPI on AlloyDB and Memorystore "
            "for Valkey as cache. "
            "Every tool execution timeout is capped at 30 seconds. We deploy to region us-east1.",
            "CloudRetail",
        ),
        (
            "API rate limiting: 100 requests per minute per client, burst of 20. "
            "And never run migrations against production.",
            "CloudRetail",
        ),
    ),
    "es": (
        (
            "Mis preferencias universales para todos los proyectos: interfaz en modo oscuro, "
            "Python 3.11 y PostgreSQL.",
            None,
        ),
        (
            "En el proyecto CloudRetail usamos Python con FastAPI sobre AlloyDB y "
            "Memorystore para Valkey como caché. "
            "El tiempo de espera de cada ejecución de herramienta está limitado a 30 segundos. "
            "Desplegamos en la región us-east1.",
            "CloudRetail",
        ),
        (
            "Límite de tasa de la API: 100 solicitudes por minuto por cliente, ráfaga de 20. "
            "Y nunca ejecutes migraciones en producción.",
            "CloudRetail",
        ),
    ),
    "pt": (
        (
            "Minhas preferências universais para todos os projetos: interface em modo "
            "escuro, Python 3.11 e PostgreSQL.",
            None,
        ),
        (
            "No projeto CloudRetail usamos Python com FastAPI sobre AlloyDB e Memorystore "
            "para Valkey como cache. "
            "O tempo limite de cada execução de ferramenta é limitado a 30 segundos. "
            "Implantamos na região us-east1.",
            "CloudRetail",
        ),
        (
            "Limite de taxa da API: 100 requisições por minuto por cliente, rajada de 20. "
            "E nunca rode migrações em produção.",
            "CloudRetail",
        ),
    ),
}
PROJECT = (Scope.PROJECT, "CloudRetail")
EXPECTED = {
    (Scope.GLOBAL, None, Kind.PREFERENCE, "ui theme"),
    (Scope.GLOBAL, None, Kind.PREFERENCE, "programming language"),
    (Scope.GLOBAL, None, Kind.PREFERENCE, "database"),
    (*PROJECT, Kind.DECISION, "programming language"),
    (*PROJECT, Kind.DECISION, "backend framework"),
    (*PROJECT, Kind.DECISION, "database"),
    (*PROJECT, Kind.DECISION, "cache"),
    (*PROJECT, Kind.DECISION, "region"),
    (*PROJECT, Kind.RULE, "tool timeout"),
    (*PROJECT, Kind.RULE, "api rate limit"),
    (*PROJECT, Kind.VETO, "never: migration production"),
}


@pytest.mark.parametrize("language", STORY)
def test_the_story_means_the_same_in_every_language(language: str) -> None:
    statements = [each for text, project in STORY[language] for each in said(text, project)]
    assert {(s.scope, s.project_id, s.kind, s.subject) for s in statements} == EXPECTED
    assert len(statements) == len(EXPECTED)
    assert {s.language for s in statements} == {language}
    assert all(s.said_by is Speaker.USER for s in statements)
    assert [s.ordinal for s in said(*STORY[language][1])] == list(range(6))


OTHER_WORDS = {
    "en": (
        "CloudRetail stack: Python + FastAPI, AlloyDB, Memorystore for Valkey as cache, region us-east1. "
        "Tool execution timeouts must never exceed 30 seconds. "
        "Each client gets at most 100 requests per minute with bursts of 20. "
        "Rule: never run migrations against production."
    ),
    "es": (
        "Para CloudRetail el backend será Python con FastAPI sobre AlloyDB. "
        "Usa Memorystore para Valkey como caché. "
        "Limita cada ejecución de herramienta a 30 segundos. Todo corre en us-east1. "
        "Definamos los límites de la API: 100 peticiones por minuto por cliente con ráfagas de 20. "
        "Regla: nunca ejecutes migraciones contra producción."
    ),
    "pt": (
        "Para o CloudRetail o backend será em Python com FastAPI no AlloyDB. "
        "Use Memorystore para Valkey como cache. "
        "Limite cada execução de ferramenta a 30 segundos. Tudo roda em us-east1. "
        "Vamos definir os limites da API: 100 requisições por minuto por cliente com rajadas de 20. "
        "Regra: nunca execute migrações contra produção."
    ),
}


@pytest.mark.parametrize("language", OTHER_WORDS)
def test_the_project_s_part_may_be_told_in_other_words(language: str) -> None:
    statements = said(OTHER_WORDS[language], "CloudRetail")
    assert {(s.scope, s.project_id, s.kind, s.subject) for s in statements} == {
        slot for slot in EXPECTED if slot[1] == "CloudRetail"
    }


def test_what_one_person_uses_is_a_preference() -> None:
    text = "I always want dark mode in the UI, I write Python 3.11, and I use PostgreSQL for databases."
    assert [(s.kind, s.subject) for s in said(text)] == [
        (Kind.PREFERENCE, "ui theme"),
        (Kind.PREFERENCE, "programming language"),
        (Kind.PREFERENCE, "database"),
    ]


def test_another_project_has_its_own_slots() -> None:
    text = (
        "In project CloudBank we use Java with Spring on MySQL, tool timeout 60 seconds, region europe-west1."
    )
    found = {(s.project_id, s.subject): s.text for s in said(text, "CloudBank")}
    assert set(found) == {
        ("CloudBank", subject)
        for subject in ("programming language", "backend framework", "database", "tool timeout", "region")
    }
    assert "60 seconds" in found["CloudBank", "tool timeout"]


# --- lists ---------------------------------------------------------------------------------------


def test_each_item_of_a_list_stands_on_its_own() -> None:
    statements = said("I prefer dark mode UI, Python 3.11 and PostgreSQL")
    assert [s.text for s in statements] == [
        "I prefer dark mode UI",
        "I prefer Python 3.11",
        "I prefer PostgreSQL",
    ]


def test_two_values_of_one_slot_stay_together() -> None:
    statement = only("We use Python and Go for everything.", "CloudRetail")
    assert (statement.subject, statement.text) == (
        "programming language",
        "We use Python and Go for everything.",
    )


def test_bullets_take_their_meaning_from_the_line_above() -> None:
    text = "My coding preferences are:\n- dark mode UI\n- Python 3.11\n- PostgreSQL\n\nThanks!"
    assert [(s.kind, s.subject) for s in said(text)] == [
        (Kind.PREFERENCE, "ui theme"),
        (Kind.PREFERENCE, "programming language"),
        (Kind.PREFERENCE, "database"),
    ]


def test_a_veto_in_the_middle_of_a_sentence_is_cut_out_word_for_word() -> None:
    statements = said("I like short answers, and never touch the billing table.")
    assert [(s.kind, s.text) for s in statements] == [
        (Kind.PREFERENCE, "I like short answers"),
        (Kind.VETO, "never touch the billing table."),
    ]


# --- subjects ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("We use PostgreSQL.", "We moved from PostgreSQL to MySQL."),
        ("I prefer dark mode.", "Prefiero el modo claro."),
        ("Every tool call is limited to 30 seconds.", "Cada chamada de ferramenta é limitada a 60 segundos."),
        ("The survey deadline is March 15.", "The survey deadline is April 2."),
        ("I prefer tea over coffee.", "I prefer coffee over tea."),
        ("I like jazz.", "I don't like jazz anymore."),
        (
            "Keep functions under 40 lines, that is mandatory.",
            "Keep functions under 60 lines, that is mandatory.",
        ),
    ],
)
def test_the_same_thing_said_with_another_value_fills_the_same_slot(before: str, after: str) -> None:
    assert only(before).subject == only(after).subject


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I prefer PostgreSQL.", "Never use PostgreSQL in the demo."),
        ("I prefer PostgreSQL.", "I don't like MongoDB."),
        ("I prefer PostgreSQL.", "I think PostgreSQL is overrated."),
        ("I prefer tabs.", "Dara prefers tabs."),
        ("We use Redis for sessions.", "We use Memcached for thumbnails."),
        ("The HTTP client timeout is 10 seconds.", "The lock timeout is 3 seconds."),
        ("The tool timeout is 10 seconds.", "The HTTP client timeout is 10 seconds."),
        ("Our server room is at 19°C.", "Our server room is 40 square metres."),
        ("Never push to main.", "Never push secrets."),
        ("Always write tests first.", "Always answer politely."),
    ],
)
def test_different_things_never_share_a_slot(one: str, other: str) -> None:
    assert only(one).subject != only(other).subject


# --- scope ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "project", "scope"),
    [
        ("I prefer tabs.", None, (Scope.GLOBAL, None)),
        ("I prefer tabs.", "CloudRetail", (Scope.PROJECT, "CloudRetail")),
        ("In general I prefer tabs.", "CloudRetail", (Scope.GLOBAL, None)),
        ("En todos mis proyectos prefiero tabulaciones.", "CloudRetail", (Scope.GLOBAL, None)),
        ("Em geral prefiro tabulações.", "CloudRetail", (Scope.GLOBAL, None)),
        ("For this session I prefer tabs.", "CloudRetail", (Scope.SESSION, None)),
        ("Por ahora prefiero tabulaciones.", "CloudRetail", (Scope.SESSION, None)),
        ("Nesta sessão prefiro tabulações.", None, (Scope.SESSION, None)),
        ("For project Osprey I prefer tabs.", None, (Scope.PROJECT, "Osprey")),
        ("En el proyecto Osprey prefiero tabulaciones.", "CloudRetail", (Scope.PROJECT, "Osprey")),
        ("In project cloudretail I prefer tabs.", "CloudRetail", (Scope.PROJECT, "CloudRetail")),
        ("Unlike in project Osprey, I prefer tabs here.", "CloudRetail", (Scope.PROJECT, "CloudRetail")),
    ],
)
def test_a_statement_holds_where_it_says(
    text: str, project: str | None, scope: tuple[Scope, str | None]
) -> None:
    statement = only(text, project)
    assert (statement.scope, statement.project_id) == scope


def test_a_project_named_once_holds_for_the_sentences_after_it() -> None:
    statements = said("This is about project Osprey. We use Java. The region is us-east1.")
    assert {s.project_id for s in statements} == {"Osprey"}


# --- words and times -----------------------------------------------------------------------------


def test_the_words_keep_their_accents_and_punctuation() -> None:
    assert (
        only("  «Señal»: prefiero la caché de São Tomé…  ").text == "«Señal»: prefiero la caché de São Tomé…"
    )


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("We use Valkey now.", "We use Valkey now (2026-01-05)."),
        ("I'll send it by Friday.", "I'll send it by Friday (2026-01-09)."),
        ("We moved two weeks ago.", "We moved two weeks ago (week of 2025-12-22)."),
        ("Ahora usamos Valkey.", "Ahora (2026-01-05) usamos Valkey."),
        ("Lo decidimos ayer por la mañana.", "Lo decidimos ayer (2026-01-04) por la mañana."),
        ("Enviarei amanhã de manhã.", "Enviarei amanhã (2026-01-06) de manhã."),
        ("O prazo é no próximo mês.", "O prazo é no próximo mês (2026-02)."),
        ("As in the last session.", "As in the last session (sess_0)."),
        ("Como en la sesión anterior.", "Como en la sesión anterior (sess_0)."),
        ("Como na última sessão.", "Como na última sessão (sess_0)."),
        ("Reports on Monday mornings.", "Reports on Monday (2026-01-05) mornings."),
        ("Nothing relative here.", "Nothing relative here."),
    ],
)
def test_relative_times_are_written_out(text: str, written: str) -> None:
    assert annotate(text, MONDAY, "sess_0") == written


def test_an_event_s_own_time_is_when_it_was_said() -> None:
    event = {
        "author": "user",
        "timestamp": MONDAY.timestamp() + 60,
        "content": {"role": "user", "parts": [{"text": "I prefer tabs."}]},
    }
    assert only("", events=[event]).said_at == datetime(2026, 1, 5, 10, 1, tzinfo=UTC)


@pytest.mark.parametrize("stamp", [True, "soon", -1, 0, 1e300, None])
def test_an_impossible_event_time_gives_way_to_the_turn_s(stamp: Any) -> None:
    event = {"author": "user", "timestamp": stamp, "content": {"parts": [{"text": "I prefer tabs."}]}}
    assert only("", events=[event]).said_at == MONDAY


# --- what is no statement ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "```\nI prefer tabs.\n```",
        "> I prefer tabs.",
        "2026-01-05 10:00:00 INFO I prefer tabs.",
        "    I prefer tabs.",
        "ERROR: never run this again",
        "<log>never run migrations</log>",
        'The page said "I prefer tabs over spaces in every file".',
        "Do I prefer tabs?",
        "¿Prefiero tabulaciones?",
        "My preferences:",
    ],
)
def test_code_logs_quotations_and_questions_are_not_statements(text: str) -> None:
    assert said(text) == ()


def test_an_agent_states_only_what_it_marks_as_a_decision_or_a_fact() -> None:
    spoken = "I prefer tabs. Never touch main. Decision: the cache is Valkey. I like your plan."
    fields: dict[str, Any] = {
        "events": [{"author": "planner", "content": {"role": "model", "parts": [{"text": spoken}]}}]
    }
    statement = only("", **fields)
    assert (statement.kind, statement.said_by) == (Kind.DECISION, Speaker.AGENT)


@settings(max_examples=60)
@given(st.lists(events, min_size=1, max_size=4))
def test_any_turn_can_be_read(values: list[dict[str, Any]]) -> None:
    read = extract_turn(turn("", events=values))
    assert [s.ordinal for s in read] == list(range(len(read)))
    assert read == extract_turn(turn("", events=values))


async def test_what_is_known_already_changes_nothing() -> None:
    spoken = turn("I prefer tabs.")
    assert await OfflineModel().extract(spoken, ()) == extract_turn(spoken)
