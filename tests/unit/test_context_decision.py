"""What goes into a prompt of limited size, and what must be in whatever the size."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lamina.api import ContextRequest, EntityView, EpisodeView
from lamina.event import Speaker
from lamina.model import Kind, Scope, SessionKey, Summary, SummaryLine, Turn
from lamina.models.tokens import EstimatedTokens
from lamina.ports import Recalled
from lamina.recall import render
from lamina_services.context.decision import Assembled, Material, assemble, newest

TOKENS = EstimatedTokens()
AT = datetime(2026, 1, 5, 10, tzinfo=UTC)
SESSION = SessionKey(app="shop", user_id="ana", session_id="s2")
LOG = "\n".join(f"line {n}: request served in {n} ms" for n in range(2_000))


def entity(
    text: str, kind: Kind = Kind.FACT, *, score: float = 0.0, project: str | None = None
) -> EntityView:
    return EntityView(
        entity_id=uuid.uuid5(uuid.NAMESPACE_URL, f"{kind}{text}"),
        scope=Scope.PROJECT if project else Scope.GLOBAL,
        project_id=project,
        kind=kind,
        subject=text[:20] or "-",
        text=text,
        said_by=Speaker.USER,
        turn_id="t1",
        said_at=AT,
        score=score,
    )


def episode(text: str, *, turn: str = "old", score: float = 1.0) -> EpisodeView:
    return EpisodeView(
        session_id="s2",
        turn_id=turn,
        ordinal=0,
        speaker=Speaker.USER,
        text=text,
        occurred_at=AT,
        score=score,
    )


def turn(number: int, text: str = "hello", output: str | None = None) -> Turn:
    events: list[dict[str, Any]] = [
        {"author": "user", "content": {"role": "user", "parts": [{"text": text}]}}
    ]
    if output is not None:
        parts: list[dict[str, Any]] = [
            {"function_call": {"id": f"c{number}", "name": "run", "args": {}}},
            {"function_response": {"id": f"c{number}", "name": "run", "response": {"result": output}}},
        ]
        events.extend({"author": "agent", "content": {"role": "model", "parts": [part]}} for part in parts)
    return Turn.model_validate(
        {
            **SESSION.model_dump(),
            "turn_id": f"t{number}",
            "occurred_at": AT + timedelta(minutes=number),
            "events": events,
        }
    )


def line(text: str, kind: str = "digest") -> SummaryLine:
    return SummaryLine(kind=kind, text=text, turn_id="t0", at=AT)


def summary(*lines: SummaryLine, version: int = 1, session: SessionKey = SESSION) -> Summary:
    return Summary(session=session, version=version, lines=lines)


def decide(material: Material, budget: int = 4_000, **request: Any) -> Assembled:
    asked = ContextRequest.model_validate({**SESSION.model_dump(), "token_budget": budget, **request})
    return assemble(asked, material, tokens=TOKENS, tool_output_tokens=300)


texts = st.text(max_size=300)


@given(
    st.integers(200, 1_500),
    st.lists(texts, max_size=6),
    st.lists(texts.filter(bool), max_size=6),
    st.lists(texts, max_size=6),
    st.lists(st.tuples(texts, st.none() | texts), max_size=5),
)
def test_the_prompt_keeps_to_its_budget_where_no_rule_stands_in_the_way(
    budget: int,
    entities: list[str],
    lines: list[str],
    episodes: list[str],
    turns: list[tuple[str, str | None]],
) -> None:
    material = Material(
        turns=tuple(turn(n, *each) for n, each in enumerate(turns)),
        summary=summary(*(line(text) for text in lines)),
        recalled=Recalled(
            entities=tuple(entity(text, score=n) for n, text in enumerate(entities)),
            episodes=tuple(episode(text) for text in episodes),
        ),
    )
    result = decide(material, budget)
    assert TOKENS.count(result.prompt) <= budget
    assert result.tokens["total"] == TOKENS.count(result.prompt)


@given(st.integers(200, 1_500), st.lists(texts, min_size=1, max_size=12, unique=True))
def test_every_rule_and_veto_is_in_whatever_the_budget(budget: int, rules: list[str]) -> None:
    pinned = tuple(entity(text, Kind.VETO if n % 2 else Kind.RULE) for n, text in enumerate(rules))
    result = decide(
        Material(
            turns=(turn(1, "x" * 2_000),), recalled=Recalled(rules=pinned, entities=(entity("y" * 900),))
        ),
        budget,
    )
    assert all(render.entity_line(rule) in result.prompt for rule in pinned)
    assert list(result.entities[: len(pinned)]) == list(pinned)
    alone = render.block([(render.RULES, [render.entity_line(rule) for rule in pinned])])
    assert TOKENS.count(result.prompt) <= max(budget, TOKENS.count(alone))


def test_what_seldom_changes_comes_first() -> None:
    result = decide(
        Material(
            turns=(turn(9, "newest question"),),
            summary=summary(line("they built a shop")),
            recalled=Recalled(
                rules=(entity("Never deploy on Fridays", Kind.VETO),),
                entities=(
                    entity("Region is us-east1", project="CloudRetail"),
                    entity("Dark mode", Kind.PREFERENCE),
                ),
                episodes=(episode("an old moment"),),
            ),
        ),
        project_id="CloudRetail",
    )
    marks = ["Never deploy", "Dark mode", "us-east1", "built a shop", "an old moment", "newest question"]
    positions = [result.prompt.index(mark) for mark in marks]
    assert positions == sorted(positions)
    assert set(result.tokens) == {"rules", "entities", "summary", "episodes", "recent", "total"}


def test_the_beginning_of_the_prompt_does_not_depend_on_the_ranking() -> None:
    known = [entity(f"fact {n}", score=n) for n in range(5)]
    first = decide(Material(recalled=Recalled(entities=tuple(known))))
    second = decide(Material(recalled=Recalled(entities=tuple(reversed(known)))))
    assert first.prompt == second.prompt


def test_the_newest_turns_stay_and_old_tool_output_is_cut() -> None:
    result = decide(Material(turns=tuple(turn(n, "go on", LOG) for n in range(4))))
    assert [view.turn_id for view in result.recent] == ["t0", "t1", "t2", "t3"]
    sizes = [
        TOKENS.count(view.events[2]["content"]["parts"][0]["function_response"]["response"]["output"])
        for view in result.recent
    ]
    assert max(sizes[:3]) <= 300 < sizes[3] <= 1_200
    assert all(view.elided for view in result.recent)


def test_a_turn_too_long_for_the_budget_is_shown_cut() -> None:
    result = decide(Material(turns=(turn(1, "word " * 5_000),)), 300)
    assert [view.turn_id for view in result.recent] == ["t1"]
    assert "[cut]" in result.prompt


def test_an_episode_that_the_recent_turns_show_anyway_is_left_out() -> None:
    result = decide(
        Material(turns=(turn(1),), recalled=Recalled(episodes=(episode("now", turn="t1"), episode("before"))))
    )
    assert [each.text for each in result.episodes] == ["before"]


def test_an_episode_far_behind_the_best_or_said_before_is_left_out() -> None:
    found = (
        episode("the answer", score=2.0),
        episode("ok", turn="a", score=1.5),
        episode("ok", turn="b", score=1.2),
        episode("small talk", score=0.9),
    )
    result = decide(Material(recalled=Recalled(episodes=found)))
    assert [(each.text, each.turn_id) for each in result.episodes] == [("the answer", "old"), ("ok", "a")]


def test_a_summary_line_that_repeats_a_rule_is_said_once() -> None:
    material = Material(
        summary=summary(line("Never touch  production", "veto")),
        recalled=Recalled(rules=(entity("never touch production", Kind.VETO),)),
    )
    assert decide(material).prompt.lower().count("never touch") == 1


def test_without_the_database_the_summarys_rules_bind() -> None:
    material = Material(summary=summary(line("Never touch production", "veto")), memory_missing=True)
    prompt = decide(material).prompt
    assert prompt.index(render.RULES) < prompt.index("Never touch production")
    assert render.SUMMARY not in prompt


def test_with_the_database_a_rule_that_no_longer_holds_is_only_history() -> None:
    prompt = decide(Material(summary=summary(line("Never touch production", "veto")))).prompt
    assert render.RULES not in prompt
    assert prompt.index(render.SUMMARY) < prompt.index("Never touch production")


def test_no_more_entities_and_episodes_than_asked_for() -> None:
    recalled = Recalled(
        rules=(entity("r", Kind.RULE),),
        entities=tuple(entity(f"e{n}") for n in range(9)),
        episodes=tuple(episode(f"p{n}") for n in range(9)),
    )
    result = decide(Material(recalled=recalled), max_entities=3, max_episodes=2)
    assert (len(result.entities), len(result.episodes)) == (1 + 3, 2)


def test_nothing_known_is_an_empty_prompt() -> None:
    result = decide(Material())
    assert (result.prompt, result.summary, result.tokens["total"]) == ("", None, 0)


def test_the_newest_summary_wins_and_an_inherited_one_only_stands_in() -> None:
    before = SESSION.model_copy(update={"session_id": "s1"})
    inherited = summary(line("old"), version=7, session=before)
    empty = summary(version=0)
    assert newest(SESSION, summary(version=3), summary(version=2)) == summary(version=3)
    assert newest(SESSION, summary(version=1), inherited) == summary(version=1)
    assert newest(SESSION, empty, inherited) == inherited
    assert newest(SESSION, summary(line("x"), version=0), None) == summary(line("x"), version=0)
    assert newest(SESSION, None, None) is None


def test_of_a_turn_with_very_many_steps_the_question_and_the_last_steps_are_shown() -> None:
    calls: list[dict[str, Any]] = [
        {"author": "agent", "content": {"role": "model", "parts": [{"text": f"step {n} " + "word " * 50}]}}
        for n in range(300)
    ]
    long = turn(1, "please mend the build").model_dump(mode="json")
    whole = Turn.model_validate({**long, "events": [*long["events"], *calls]})
    result = decide(Material(turns=(turn(0, "earlier"), whole)), 1_000)
    assert [view.turn_id for view in result.recent] == ["t1"]
    positions = [
        result.prompt.index(mark) for mark in ("earlier", "mend the build", "steps left out", "step 299")
    ]
    assert positions == sorted(positions)
    assert TOKENS.count(result.prompt) <= 1_000
