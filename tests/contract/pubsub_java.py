"""Google's Java emulator: where it is found, how it is run, and in what it differs from the service."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

from tests.contract.pubsub_waiting import eventually

JAR_VARIABLE = "LAMINA_JAVA_PUBSUB_EMULATOR"
_JAR = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"
_SDKS = (
    "/usr/lib/google-cloud-sdk",
    "/usr/share/google-cloud-sdk",
    "/usr/local/share/google-cloud-sdk",
    "/opt/google-cloud-sdk",
    "/snap/google-cloud-cli/current",
    "~/google-cloud-sdk",
)

DEVIATIONS: dict[str, str] = {
    "test_the_labels_of_a_topic_can_be_updated": "labels of a topic cannot be updated",
    "test_a_setting_can_be_updated_by_its_mask[labels-]": "labels of a subscription cannot be updated",
    "test_a_setting_can_be_updated_by_its_mask[expiration_policy-]": "the policy cannot be updated",
    "test_an_ack_deadline_outside_10_to_600_seconds_is_refused[5]": "short ack deadlines are accepted",
    "test_a_malformed_filter_is_refused[attributes.a]": "filters are not parsed",
    'test_a_malformed_filter_is_refused[attributes.a = "b" AND]': "filters are not parsed",
    "test_a_malformed_filter_is_refused[data:x]": "filters are not parsed",
    'test_a_malformed_filter_is_refused[attributes.a < "b"]': "filters are not parsed",
    "test_a_filter_above_256_bytes_is_refused": "filters are not parsed",
    "test_only_messages_that_match_the_filter_are_delivered": "filters are not applied",
    "test_a_dead_letter_can_be_replayed_to_one_subscriber_by_a_filter": "filters are not applied",
    "test_a_replay_reaches_only_the_subscriber_that_failed": "filters are not applied",
    "test_a_push_subscription_refuses_pulls_until_it_becomes_a_pull_subscription": "it does not",
    "test_a_request_above_ten_million_bytes_is_refused": "the size of a request is not limited",
    "test_a_retry_policy_delays_each_redelivery_longer": "pull ignores the retry policy",
    "test_a_nack_brings_back_the_message_and_all_that_follow_with_its_key": "a nack stalls its key",
    "test_the_subscriber_never_holds_more_than_its_flow_control_allows": "a stream has no limit",
    "test_two_streams_share_the_messages": "a stream has no limit",
    "test_ordered_messages_reach_the_callback_in_order_also_after_a_nack": "a nack breaks it",
    "test_a_stream_of_a_missing_subscription_says_not_found": "the stream just ends",
    "test_a_wrapped_push_carries_the_ordering_key": "a wrapped push has no orderingKey",
    "test_an_unwrapped_push_carries_the_ordering_key": "the header is called x-goog-ordering-key",
    "test_an_unwrapped_push_carries_binary_data_unharmed": "data is decoded as UTF-8",
    "test_an_attribute_that_no_header_can_hold_does_not_block_its_message": "such a message never arrives",
    "test_an_acknowledging_status_settles_the_message[202]": "202 is a nack",
    "test_any_other_status_brings_the_message_back[203]": "203 is an acknowledgement",
    "test_several_pushes_are_in_flight_at_once": "two pushes are in flight at most",
    "test_a_refused_message_is_dead_lettered_without_a_further_pull": "it waits for the next pull",
    "test_a_wrapped_push_tells_its_attempt": "a push has no deliveryAttempt",
    "test_an_ordering_key_goes_on_after_its_dead_letter": "the subscription stops for good",
}
"""Test name → how the Java emulator differs. Each is a strict expected failure there."""


def java_emulator_jar() -> Path | None:
    """The jar, from the environment or from the usual places of the SDK; None without it or without Java."""
    if shutil.which("java") is None:
        return None
    named = os.environ.get(JAR_VARIABLE)
    if named:
        return Path(named)
    gcloud = shutil.which("gcloud")
    beside = [str(Path(gcloud).resolve().parent.parent)] if gcloud else []
    found = [jar for sdk in (*beside, *_SDKS) for jar in Path(sdk).expanduser().glob(_JAR)]
    return found[0] if found else None


class JavaServer:
    """The Java emulator as a child process on a free port."""

    kind = "java"

    def __init__(self, jar: Path) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
        self.endpoint = f"127.0.0.1:{port}"
        self._process = subprocess.Popen(  # noqa: S603 - the arguments are ours
            ["java", "-jar", str(jar), "--host=127.0.0.1", f"--port={port}"],  # noqa: S607 - Java of the user
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually(lambda: self._listens(port), within=20)

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _listens(self, port: int) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"The Java emulator ended with {self._process.returncode}.")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0
