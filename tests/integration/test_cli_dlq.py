"""`lamina dlq` as an operator runs it: on an emulator that the environment names, and on a local stack."""

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from lamina.ports import Message
from lamina.pubsub.dead_letters import DeadLetters
from lamina_services.local.polling import until
from lamina_services.local.stack import Stack
from tests.contract.dead_letter_yard import PROJECT, Yard
from tests.contract.pubsub_servers import OwnServer, World


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int | None
    printed: str
    said: str

    @property
    def json(self) -> Any:
        return json.loads(self.printed)


class Operator:
    """Runs `lamina dlq` in a folder of its own."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        outside = {name: text for name, text in os.environ.items() if not name.startswith("LAMINA_")}
        self._env = {**outside, **env}

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lamina_services.cli.main", "dlq", *words),
            cwd=self.folder,
            env=self._env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *words: str) -> Ran:
        process = await self.start(*words)
        printed, said = await process.communicate()
        return Ran(process.returncode, printed.decode(), said.decode())

    async def ask(self, *words: str) -> Any:
        """What a command that succeeds prints as JSON."""
        ran = await self.run(*words, "--json")
        assert ran.code == 0, ran.said
        return ran.json


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    running = OwnServer()
    yield running
    running.stop()


@pytest.fixture
def world(server: OwnServer) -> Iterator[World]:
    clients = World(server.endpoint)
    yield clients
    clients.close()


@pytest.fixture
async def yard(world: World) -> AsyncGenerator[Yard]:
    made = Yard(world)
    yield made
    await made.aclose()


@pytest.fixture
def operator(yard: Yard, tmp_path: Path) -> Operator:
    return Operator(
        tmp_path,
        {
            "LAMINA_HOME": str(tmp_path / "home"),
            "GOOGLE_CLOUD_PROJECT": PROJECT,
            "PUBSUB_EMULATOR_HOST": yard.world.endpoint,
            "LAMINA_TOPIC_PREFIX": yard.prefix,
            "COLUMNS": "160",
        },
    )


async def test_list_tells_how_many_there_are_why_and_since_when_and_changes_nothing(
    yard: Yard, operator: Operator
) -> None:
    await yard.bury(1)
    await yard.bury(2, reason="blocked again")
    await yard.bury_as_pubsub("turn-ingest", Message(b"\xff\x1b[2J", {}, ""))
    told = await operator.ask("list")
    assert told == await operator.ask("list")
    assert told["depth"] == len(told["letters"]) == 3
    assert [(group["subscription"], group["error"], group["count"]) for group in told["groups"]] == [
        ("summarizer", "ModelRefused", 2),
        ("turn-ingest", "DeliveryAttemptsExhausted", 1),
    ]
    assert told["groups"][0]["sample"] == "blocked again"
    assert told["oldest"]
    shown = await operator.run("list")
    assert "3 dead letters" in shown.printed
    assert "\x1b" not in shown.printed


async def test_show_tells_everything_of_one_by_the_beginning_of_its_id(
    yard: Yard, operator: Operator
) -> None:
    plain = await yard.bury(1)
    await yard.bury(2)
    event_id = plain.attributes["ce-id"]
    shown = await operator.run("show", event_id[:12])
    assert shown.code == 0
    assert all(text in shown.printed for text in (event_id, "ModelRefused", "blocked", '"question 1"'))
    ((letter),) = await operator.ask("show", event_id)
    assert (letter["event_id"], letter["json"]["turn"]["turn_id"]) == (event_id, "t1")
    missing = await operator.run("show", "nobody")
    assert (missing.code, missing.said.count("\n")) == (1, 1)
    assert "no dead letter that can be had now has the id 'nobody'" in missing.said


async def test_show_of_binary_data_gives_its_bytes(yard: Yard, operator: Operator) -> None:
    await yard.bury_as_pubsub(
        "turn-ingest", Message(b"\xff\x00\x1b]0;owned\x07", {"ce-id": "bin\x1b[2J"}, "")
    )
    shown = await operator.run("show", "bin")
    assert "ff 00 1b 5d" in shown.printed
    assert "bin\\x1b[2J" in shown.printed
    assert not {"\x1b", "\x07"} & set(shown.printed)


async def test_replay_only_shows_what_it_would_do_until_it_is_told_yes(
    yard: Yard, operator: Operator
) -> None:
    await yard.bury(1)
    told = await operator.ask("replay")
    assert (told["would_replay"], told["letters"][0]["user_id"]) == (1, "ana")
    assert len(await yard.lying()) == 1
    assert yard.received_now("summarizer") == 0
    shown = await operator.run("replay")
    assert "1 dead letters would be replayed; --yes does it" in shown.printed
    assert await operator.ask("replay", "--yes") == {"replayed": 1, "failed": [], "untried": 0}
    assert await yard.lying() == []
    assert len(yard.received("summarizer", 1)) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("--subscription", "entity-extractor"),
        ("--reason", "invalidevent"),
        ("--reason", "no TURN"),
        ("--user", "bo"),
        ("--user", "bo", "--app", "shop", "--since", "1h", "--until", "2999-01-01"),
    ],
    ids=" ".join,
)
async def test_each_filter_replays_what_it_names_and_leaves_the_rest(
    words: tuple[str, ...], yard: Yard, operator: Operator
) -> None:
    await yard.bury(1)
    await yard.bury(2, user="bo", subscription="entity-extractor", error="InvalidEvent", reason="no turn")
    assert (await operator.ask("replay", *words, "--yes"))["replayed"] == 1
    assert [letter.owner.user_id for letter in await yard.lying()] == ["ana"]
    assert len(yard.received("entity-extractor", 1)) == 1


async def test_ids_filters_and_a_limit_narrow_down_together(yard: Yard, operator: Operator) -> None:
    plain = [await yard.bury(number) for number in range(4)]
    first = plain[0].attributes["ce-id"]
    assert (await operator.ask("replay", first[:12], "--yes"))["replayed"] == 1
    assert (await operator.run("replay", first, "--yes")).code == 1
    assert (await operator.ask("replay", "--since", "2999-01-01"))["would_replay"] == 0
    assert (await operator.ask("replay", "--limit", "2", "--yes"))["replayed"] == 2
    assert len(await yard.lying()) == 1


async def test_a_message_that_cannot_be_read_is_replayed_by_its_reason(
    yard: Yard, operator: Operator
) -> None:
    await yard.bury(1)
    await yard.bury(
        subscription="turn-ingest",
        error="InvalidEvent",
        reason="body: is not JSON",
        message=Message(b"{", {}, ""),
    )
    assert (await operator.ask("replay", "--reason", "not json", "--user", "", "--yes"))["replayed"] == 1
    (again,) = yard.received("turn-ingest", 1)
    assert again.data == b"{"


async def test_a_replay_that_is_killed_half_way_loses_nothing_and_can_be_run_again(
    yard: Yard, operator: Operator
) -> None:
    published = [await yard.bury(number) for number in range(6)]
    process = await operator.start("replay", "--yes", "--rate", "1")

    async def under_way() -> bool:
        return yard.received_now("summarizer") >= 1

    await until(under_way, timeout_s=30, what="the first to be replayed", every_s=0.05)
    process.send_signal(signal.SIGKILL)
    await process.communicate()
    done = 0

    async def all_are_back() -> bool:
        nonlocal done
        done += (await operator.ask("replay", "--yes"))["replayed"]
        return done >= 4  # the others were sent before

    await until(all_are_back, timeout_s=60, what="the leases to run out", every_s=0.5)
    assert await yard.lying() == []
    ids = {message.attributes["ce-id"] for message in published}
    received: set[str] = set()

    async def every_event_arrived() -> bool:
        received.update(m.attributes["ce-id"] for m in yard.received("summarizer", 1))
        return received == ids

    await until(every_event_arrived, timeout_s=30, what="every event", every_s=0.01)


async def test_ctrl_c_gives_the_rest_back_at_once(yard: Yard, operator: Operator) -> None:
    for number in range(3):
        await yard.bury(number)
    process = await operator.start("replay", "--yes", "--rate", "0.01")

    async def under_way() -> bool:
        return yard.received_now("summarizer") >= 1

    await until(under_way, timeout_s=30, what="the first to be replayed", every_s=0.05)
    process.send_signal(signal.SIGINT)
    _, said = await process.communicate()
    assert process.returncode == 130
    assert "interrupted: 1 of 3 were replayed" in said.decode()
    assert len(await yard.lying()) == 2


async def test_a_replay_that_fails_says_so_and_leaves_the_dead_letter(yard: Yard, operator: Operator) -> None:
    await yard.bury(1)
    yard.world.topics.delete_topic(topic=yard.topic("turn.recorded"))
    ran = await operator.run("replay", "--yes")
    assert ran.code == 1
    assert "turn.recorded does not exist" in ran.said
    assert "1 were not replayed and are dead letters still" in ran.said
    assert len(await yard.lying()) == 1


async def test_what_an_export_wrote_can_be_replayed_after_pubsub_let_go_of_it(
    yard: Yard, operator: Operator
) -> None:
    plain = await yard.bury(1)
    await yard.bury(2, user="bo")
    assert (await operator.ask("export", "all.jsonl"))["exported"] == 2
    assert len(await yard.lying()) == 2
    refused = await operator.run("export", "all.jsonl")
    assert (refused.code, refused.said) == (1, "lamina: all.jsonl: File exists\n")
    piped = await operator.run("export", "-")
    assert {json.loads(line)["user_id"] for line in piped.printed.splitlines()} == {"ana", "bo"}

    async with yard.dead() as dead:
        await dead.remove([letter async for letter in dead.scan()])
    words = ("replay", "--from-file", "all.jsonl", "--user", "ana")
    assert (await operator.ask(*words))["would_replay"] == 1
    assert (await operator.ask(*words, "--yes"))["replayed"] == 1
    (again,) = yard.received("summarizer", 1)
    assert (again.data, again.attributes["ce-id"]) == (plain.data, plain.attributes["ce-id"])


async def test_purge_removes_what_it_names_and_only_after_it_is_in_a_file(
    yard: Yard, operator: Operator
) -> None:
    await yard.bury(1)
    await yard.bury(2, user="bo")
    assert (await operator.ask("purge", "--user", "bo"))["would_purge"] == 1
    assert len(await yard.lying()) == 2
    told = await operator.ask("purge", "--user", "bo", "--yes")
    assert told["purged"] == 1
    assert [letter.owner.user_id for letter in await yard.lying()] == ["ana"]
    file = operator.folder / told["file"]
    assert [json.loads(line)["user_id"] for line in file.read_bytes().splitlines()] == ["bo"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("target", ["taken.jsonl", "no/such/folder.jsonl"])
async def test_purge_removes_nothing_where_it_cannot_write(
    target: str, yard: Yard, operator: Operator
) -> None:
    operator.folder.joinpath("taken.jsonl").write_text("mine", "utf-8")
    await yard.bury(1)
    ran = await operator.run("purge", "--yes", "--to", target)
    assert ran.code == 1
    assert ran.said.startswith(f"lamina: {target}: ")
    assert len(await yard.lying()) == 1
    assert operator.folder.joinpath("taken.jsonl").read_text("utf-8") == "mine"


async def test_a_mistake_is_one_line(operator: Operator) -> None:
    for words, says in (
        (("list", "--subscription", "nobody"), "--subscription: there is no nobody; the subscribers are"),
        (("replay", "--since", "yesterday"), "--since: 'yesterday' is no date or time"),
        (("replay", "--from-file", "missing.jsonl"), "missing.jsonl: No such file"),
    ):
        ran = await operator.run(*words)
        assert (ran.code, ran.said.count("\n")) == (1, 1)
        assert says in ran.said


async def test_on_a_local_stack_a_dead_letter_is_found_held_and_replayed_to_its_service(
    tmp_path: Path,
) -> None:
    isolated = {"PUBSUB_EMULATOR_HOST": "", "LAMINA_TOPIC_PREFIX": "", "LAMINA_MODEL": "offline"}
    async with Stack(tmp_path / "home", env=isolated, preferred_ports=False) as stack:
        state = stack.state
        operator = Operator(tmp_path, {**isolated, "LAMINA_HOME": str(tmp_path / "home"), "COLUMNS": "160"})
        async with httpx.AsyncClient() as http:
            push = {
                "message": {"data": "eyJvb3Bz", "messageId": "41"},
                "subscription": "projects/p/subscriptions/turn-ingest",
            }
            answer = await http.post(f"{state.services['turn-ingest']}/push/turn-ingest", json=push)
            assert answer.status_code == 204

        async def listed() -> bool:
            return (await operator.ask("list"))["depth"] == 1

        await until(listed, timeout_s=30, what="the dead letter", every_s=0.2)
        async with DeadLetters.connect(state.project, emulator=state.pubsub) as dead:
            assert len([letter async for letter in dead.scan()]) == 1
            told = await operator.ask("list")
            assert (told["depth"], told["held_elsewhere"]) == (0, {"turn-ingest": 1})
            said = (await operator.run("show", "41")).said
            assert "1 more of turn-ingest are held by somebody else" in said
        (letter,) = await operator.ask("show", "41")
        assert (letter["error"], letter["failures"]) == ("InvalidEvent", 1)
        assert (await operator.ask("replay", "--yes"))["replayed"] == 1

        async def failed_again() -> bool:
            letters = (await operator.ask("list"))["letters"]
            return [each["failures"] for each in letters] == [2]

        await until(failed_again, timeout_s=30, what="the second failure", every_s=0.2)
        assert (await operator.ask("purge", "--yes"))["purged"] == 1
        after = await operator.ask("list")
        assert (after["depth"], after["held_elsewhere"]) == (0, {})
