"""Dead letters are read under a lease, go back to the subscriber that failed, and are never lost."""

import asyncio
import time

import pytest

from lamina import dead_letters
from lamina.dead_letters import EXHAUSTED, Failure
from lamina.errors import ConfigurationError, DependencyUnavailable
from lamina.ports import Message
from lamina.pubsub.dead_letters import CLOUD, DeadLetters, Patience
from lamina.pubsub.letter import DeadLetter
from lamina.topology import REPLAY_ATTRIBUTE
from lamina_services.local.polling import until
from tests.contract.dead_letter_yard import (
    DEADLINE_S,
    Doubling,
    Unacknowledging,
    Unpublishing,
    Yard,
    keys,
    scanned,
    yard,
)
from tests.contract.pubsub_servers import QUIET, server, world

__all__ = ["server", "world", "yard"]

pytestmark = QUIET


async def test_a_scan_gives_each_dead_letter_once_with_its_failure_and_its_owner(yard: Yard) -> None:
    await yard.bury(1, user="ana")
    await yard.bury(2, user="bo", subscription="entity-extractor", error="InvalidEvent", reason="no turn")
    async with yard.dead() as dead:
        letters = {letter.owner.user_id: letter for letter in await scanned(dead)}
        assert dead.held == 2
    assert (letters["ana"].subscription, letters["ana"].failure.error) == ("summarizer", "ModelRefused")
    bo = letters["bo"]
    assert (bo.subscription, bo.failure.reason, bo.owner.turn_id) == ("entity-extractor", "no turn", "t2")


async def test_a_scan_of_one_subscription_leaves_the_others_alone(yard: Yard) -> None:
    await yard.bury(1)
    await yard.bury(2, subscription="compactor")
    async with yard.dead() as dead:
        assert [letter.subscription for letter in await scanned(dead, "compactor")] == ["compactor"]
        assert len(await yard.lying()) == 1


async def test_more_than_one_pull_can_carry_are_all_found(yard: Yard) -> None:
    await asyncio.gather(*(yard.bury(number) for number in range(250)))
    big = Message(b'"' + b"x" * 4_000_000 + b'"', {"ce-id": "big"}, "")
    for _ in range(4):
        await yard.bury(message=big)
    assert len(await yard.lying()) == 254


async def test_a_message_that_comes_twice_in_one_scan_is_one_dead_letter(yard: Yard) -> None:
    await yard.bury(1)
    async with yard.dead_with(leases=Doubling) as dead:
        letters = await scanned(dead)
        assert (len(letters), dead.held) == (1, 1)
        assert (await dead.replay(letters)).done == 1
    assert await yard.lying() == []


async def test_a_scan_changes_nothing_and_can_be_done_again_at_once(yard: Yard) -> None:
    await yard.bury(1)
    first, second = await yard.lying(), await yard.lying()
    assert len(first) == 1
    assert first == second


async def test_what_is_held_is_not_seen_by_another_until_it_is_released(yard: Yard) -> None:
    await yard.bury(1)
    await yard.bury(2)
    async with yard.dead() as dead:
        one, two = await scanned(dead)
        assert await yard.lying() == []
        await dead.release([one])
        assert keys(await yard.lying()) == {one.key}
        await dead.keep([])
        assert keys(await yard.lying()) == {one.key, two.key}


async def test_a_lease_is_extended_for_as_long_as_it_is_held(yard: Yard) -> None:
    await yard.bury(1)
    async with yard.dead(lease_s=8) as dead:
        await scanned(dead)
        over = time.monotonic() + DEADLINE_S + 2

        async def outlived() -> bool:
            assert await yard.lying() == []
            return time.monotonic() > over

        await until(outlived, timeout_s=30, what="the first lease to run out", every_s=0.5)
        assert dead.held == 1


async def test_a_killed_process_loses_nothing_since_its_leases_run_out(yard: Yard) -> None:
    await yard.bury(1)
    killed = yard.dead(lease_s=600)
    (letter,) = await scanned(killed)  # and it is never heard of again

    async def back() -> bool:
        return keys(await yard.lying()) == {letter.key}

    await until(back, timeout_s=30, what="the lease to run out", every_s=0.5)
    await killed.aclose()


async def test_a_replay_keeps_data_event_id_and_ordering_key_and_nothing_stays_dead(yard: Yard) -> None:
    plain = await yard.bury(1)
    async with yard.dead() as dead:
        outcome = await dead.replay(await scanned(dead))
        assert (outcome.done, outcome.failed, outcome.untried, dead.held) == (1, [], 0, 0)
    assert await yard.lying() == []
    (again,) = yard.received("summarizer", 1)
    assert (again.data, again.ordering_key) == (plain.data, plain.ordering_key)
    added = {name: text for name, text in again.attributes.items() if name not in plain.attributes}
    assert again.attributes.items() >= plain.attributes.items()
    assert added == {
        REPLAY_ATTRIBUTE: "summarizer",
        dead_letters.FAILURES: "1",
        dead_letters.MESSAGE_ID: "first-1",
    }


async def test_a_replay_reaches_only_the_subscriber_that_failed(yard: Yard) -> None:
    await yard.bury(1, subscription="entity-extractor")
    async with yard.dead() as dead:
        await dead.replay(await scanned(dead))
    assert len(yard.received("entity-extractor", 1)) == 1
    assert [yard.received_now(name) for name in ("summarizer", "episodic-embedder")] == [0, 0]


async def test_only_what_is_asked_for_is_replayed(yard: Yard) -> None:
    await yard.bury(1, user="ana")
    await yard.bury(2, user="bo")
    async with yard.dead() as dead:
        await dead.replay([letter for letter in await scanned(dead) if letter.owner.user_id == "bo"])
    assert [letter.owner.user_id for letter in await yard.lying()] == ["ana"]


async def test_killed_between_publish_and_acknowledgement_the_same_event_goes_out_again(yard: Yard) -> None:
    plain = await yard.bury(1)
    async with yard.dead_with(leases=Unacknowledging) as dead:
        outcome = await dead.replay(await scanned(dead))
        assert [type(error) for _, error in outcome.failed] == [DependencyUnavailable]
    async with yard.dead() as dead:
        assert (await dead.replay(await scanned(dead))).done == 1
    first, second = yard.received("summarizer", 2)
    assert first == second
    assert first.attributes["ce-id"] == plain.attributes["ce-id"]


async def test_a_bare_turn_that_pubsub_moved_has_one_message_id_however_often_it_is_replayed(
    yard: Yard,
) -> None:
    await yard.bury_as_pubsub("turn-ingest", Message(b'{"user_id": "ana", "user": "hi"}', {}, ""))
    async with yard.dead_with(leases=Unacknowledging) as dead:
        (letter,) = await scanned(dead)
        await dead.replay([letter])
    async with yard.dead() as dead:
        await dead.replay(await scanned(dead))
    first, second = yard.received("turn-ingest", 2)
    assert first == second
    assert first.attributes[dead_letters.MESSAGE_ID] == letter.message_id


async def test_an_outage_leaves_every_dead_letter_and_is_not_tried_a_thousand_times(yard: Yard) -> None:
    await asyncio.gather(*(yard.bury(number) for number in range(40)))
    async with yard.dead_with(publisher=Unpublishing) as dead:
        outcome = await dead.replay(await scanned(dead))
    assert (outcome.done, len(outcome.failed) + outcome.untried) == (0, 40)
    assert len(outcome.failed) < 40
    assert len(await yard.lying()) == 40


async def test_a_topic_that_is_missing_leaves_its_dead_letters_and_stops_no_others(yard: Yard) -> None:
    yard.world.topics.delete_topic(topic=yard.topic("compaction.requested"))
    await yard.bury(1, subscription="compactor")
    await yard.bury(2)
    async with yard.dead() as dead:
        outcome = await dead.replay(await scanned(dead))
    assert (outcome.done, [letter.subscription for letter, _ in outcome.failed]) == (1, ["compactor"])
    assert isinstance(outcome.failed[0][1], ConfigurationError)
    assert [letter.subscription for letter in await yard.lying()] == ["compactor"]


async def test_a_second_failure_counts_one_more_also_where_pubsub_moved_it(yard: Yard) -> None:
    plain = await yard.bury(1)
    async with yard.dead() as dead:
        await dead.replay(await scanned(dead))
    (again,) = yard.received("summarizer", 1)
    await yard.bury_as_pubsub("summarizer", again)
    (letter,) = await yard.lying()
    assert (letter.failure.error, letter.failure.failures) == (EXHAUSTED, 2)
    assert letter.event_id == plain.attributes["ce-id"]
    async with yard.dead() as dead:
        await dead.replay(await scanned(dead))
    (third,) = yard.received("summarizer", 1)
    assert Failure.of(third.attributes).failures == 3


async def test_no_more_are_sent_in_a_second_than_was_asked_for(yard: Yard) -> None:
    for number in range(5):
        await yard.bury(number)
    sent: list[float] = []

    def note(_: DeadLetter) -> None:
        sent.append(time.monotonic())

    async with yard.dead() as dead:
        began = time.monotonic()
        await dead.replay(await scanned(dead), rate=20, on_done=note)
    assert len(sent) == 5
    assert max(sent) - began >= 4 / 20  # no slow machine can make it shorter


async def test_a_replay_that_is_cancelled_releases_what_it_has_not_sent(yard: Yard) -> None:
    for number in range(4):
        await yard.bury(number)

    def interrupt(_: DeadLetter) -> None:
        task.cancel()

    async def run() -> None:
        async with yard.dead() as dead:
            await dead.replay(await scanned(dead), rate=0.01, on_done=interrupt)

    task = asyncio.create_task(run())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await yard.lying()) == 3
    assert len(yard.received("summarizer", 1)) == 1


async def test_what_is_removed_is_gone_and_the_rest_stays(yard: Yard) -> None:
    await yard.bury(1, user="ana")
    await yard.bury(2, user="bo")
    async with yard.dead() as dead:
        doomed = [letter for letter in await scanned(dead) if letter.owner.user_id == "ana"]
        assert await dead.remove(doomed) == 1
    assert [letter.owner.user_id for letter in await yard.lying()] == ["bo"]


async def test_what_is_not_held_is_not_removed(yard: Yard) -> None:
    await yard.bury(1)
    letters = await yard.lying()
    async with yard.dead() as dead:
        with pytest.raises(ValueError, match="not held"):
            await dead.remove(letters)
    assert len(await yard.lying()) == 1


async def test_a_letter_that_is_not_held_can_be_replayed_all_the_same(yard: Yard) -> None:
    await yard.bury(1)
    letters = await yard.lying()
    async with yard.dead() as dead:
        assert (await dead.replay(letters)).done == 1
    assert len(yard.received("summarizer", 1)) == 1
    assert len(await yard.lying()) == 1


async def test_messages_of_any_kind_are_found(yard: Yard) -> None:
    odd = [
        Message(b"\xff\x00\xfe", {"ce-id": "binary"}, ""),
        Message(b"{oops", {"ce-id": "broken"}, ""),
        Message(b"", {"ce-id": "empty", "lamina-failures": "many", "lamina-parked-at": "late"}, ""),
        Message(b"[1]", {"ce-id": "list", "lamina-error": "Ü" * 99}, "key"),
    ]
    for message in odd:
        await yard.bury_as_pubsub("turn-ingest", message)
    letters = await yard.lying()
    assert {letter.event_id: letter.message for letter in letters} == {
        message.attributes["ce-id"]: message for message in odd
    }


async def test_waiting_pulls_find_the_same_as_the_cloud_needs_them(yard: Yard) -> None:
    await yard.bury(1)
    async with yard.dead(Patience(empty_pulls=CLOUD.empty_pulls, wait_s=0.5)) as dead:
        assert len(await scanned(dead)) == 1
    assert len(await yard.lying()) == 1


async def test_a_subscription_that_does_not_exist_is_named(yard: Yard) -> None:
    async with DeadLetters.connect("contract", "nowhere-", emulator=yard.world.endpoint) as dead:
        with pytest.raises(ConfigurationError, match=r"nowhere-compactor\.dead does not exist"):
            await scanned(dead, "compactor")
