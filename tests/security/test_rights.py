"""The rights of an application: which it needs, and how a start without them is refused."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from state.errors import AuthorizationError
from state.kafka import consumers as sampler
from state.kafka.consumers import RecordSampler
from streams import Consumed, StreamsBuilder, StringSerde
from streams.application.rights import (
    NeededRights,
    Resource,
    Right,
    check_created,
    check_replay_rights,
    check_reset_rights,
    check_rights,
    command,
    needed_rights,
    operating_rights,
)
from streams.topology.topology import Topology
from tests.security.secured import counts_by_country, settings

CLIENT = {"bootstrap.servers": "kafka:9093", "sasl.username": "alice"}
EVERYTHING = frozenset({"READ", "WRITE", "CREATE", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS"})


def needed(topology: Topology | None = None) -> NeededRights:
    return needed_rights(topology or counts_by_country(), settings(CLIENT, Path("unused")))


@dataclass
class Brokers:
    """What brokers allow: everything on what exists, unless something is taken away."""

    existing: dict[str, frozenset[str]] = field(
        default_factory=lambda: dict.fromkeys(("orders", "customers", "counts", "dead-orders"), EVERYTHING)
    )
    super_user: bool = False
    creates: bool = True
    commits: bool = True
    reads: bool = True
    transactions: bool = True
    deletes_group: bool = True
    asked: list[str] = field(default_factory=list)

    def unlimited(self) -> bool:
        return self.super_user

    def operations(self, topics: Collection[str]) -> Mapping[str, frozenset[str]]:
        self.asked.append("operations")
        return {name: allowed for name, allowed in self.existing.items() if name in topics}

    def not_creatable(self, topics: Iterable[str]) -> set[str]:
        return set() if self.creates else set(topics)

    def not_readable(self, group: str, topics: Iterable[str]) -> tuple[bool, set[str]]:
        return not self.commits, set() if self.reads else set(topics)

    def may_delete_group(self, group: str) -> bool:
        return self.deletes_group

    def may_write_transactions(self, transactional_id: str) -> bool:
        self.asked.append(transactional_id)
        return self.transactions


def refusal(brokers: Brokers) -> str:
    with pytest.raises(AuthorizationError) as caught:
        check_rights(needed(), brokers, CLIENT)
    return str(caught.value)


def test_every_right_there_is_nothing_to_say() -> None:
    brokers = Brokers()
    assert check_rights(needed(), brokers, CLIENT) == set(needed().internal)
    # An id of its own: a producer of a task's id would be fenced.
    assert brokers.asked == ["operations", "secured-rights-check"]


def test_who_may_do_everything_is_asked_nothing_more() -> None:
    brokers = Brokers({}, super_user=True, creates=False)
    assert check_rights(needed(), brokers, CLIENT) == set()
    assert brokers.asked == []


@pytest.mark.parametrize(
    ("taken", "lacks"),
    [
        ({"creates": False}, "Create on topics that begin with 'secured-'"),
        ({"reads": False}, "Read on topics that begin with 'secured-'"),
        ({"commits": False}, "Read on group 'secured'"),
        ({"transactions": False}, "Write on transactional ids that begin with 'secured-'"),
    ],
)
def test_what_does_not_exist_yet_is_checked_too(taken: dict[str, bool], lacks: str) -> None:
    said = refusal(Brokers(**taken))  # type: ignore[arg-type]
    assert f"User:alice lacks rights that the application 'secured' needs: {lacks}. Nothing was written" in said


@pytest.mark.parametrize(
    ("topic", "allowed", "lacks"),
    [
        ("orders", {"DESCRIBE"}, "Read on topic 'orders'"),
        ("counts", {"READ", "DESCRIBE"}, "Write on topic 'counts'"),
        ("dead-orders", {"WRITE", "DESCRIBE"}, "DescribeConfigs on topic 'dead-orders'"),
        ("customers", set(), "Read on topic 'customers'"),
    ],
)
def test_a_missing_operation_on_a_topic_is_named_with_the_command_that_grants_it(
    topic: str, allowed: set[str], lacks: str
) -> None:
    brokers = Brokers()
    brokers.existing[topic] = frozenset(allowed)
    said = refusal(brokers)
    assert f"needs: {lacks}." in said
    operation = lacks.split(" ", maxsplit=1)[0]
    assert (
        f"`kafka-acls.sh --bootstrap-server kafka:9093 --command-config admin.properties --add --allow-principal User:alice "
        f"--operation {operation} --topic {topic}`" in said
    )


def test_internal_topics_of_an_earlier_start_are_checked_for_every_operation() -> None:
    brokers = Brokers()
    brokers.existing |= dict.fromkeys(needed().internal, EVERYTHING - {"WRITE", "DELETE"})
    assert "needs: Write, Delete on topics that begin with 'secured-'." in refusal(brokers)


def test_new_internal_topics_are_checked_before_the_first_record() -> None:
    brokers = Brokers()
    created = check_rights(needed(), brokers, CLIENT)
    brokers.existing |= dict.fromkeys(needed().internal, EVERYTHING - {"WRITE"})
    with pytest.raises(AuthorizationError, match=r"Write on topics that begin .* are empty, and no record was written"):
        check_created(needed(), created, brokers, CLIENT)
    brokers.existing |= dict.fromkeys(needed().internal, EVERYTHING)
    check_created(needed(), created, brokers, CLIENT)


def test_a_topic_that_does_not_exist_is_left_to_the_check_of_topics() -> None:
    brokers = Brokers()
    del brokers.existing["orders"]
    check_rights(needed(), brokers, CLIENT)


def test_a_topic_that_is_read_and_written_is_one_right() -> None:
    builder = StreamsBuilder()
    builder.stream("both").to("both-2")
    builder.stream("both-2").to("both")
    rights = {right.name: right.operations for right in needed(builder.build()).rights if not right.prefixed}
    assert (rights["both"], rights["both-2"]) == (("Read", "Write"), ("Read", "Write"))


@pytest.mark.parametrize(
    ("pattern", "name", "prefixed"),
    [
        (r"orders-.*", "orders-", True),
        (r"orders-?x", "orders", True),
        (r"a|b", "*", False),
        (r".*-orders", "*", False),
        (r"orders\.eu", "orders", True),
    ],
)
def test_a_pattern_needs_all_names_that_begin_like_it(pattern: str, name: str, prefixed: bool) -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile(pattern), Consumed(key_serde=StringSerde(), value_serde=StringSerde())).to("out")
    found = next(right for right in needed(builder.build()).rights if "match" in right.why)
    assert (found.name, found.prefixed, found.operations) == (name, prefixed, ("Read",))


def test_operating_an_application_needs_more_than_running_it() -> None:
    more = [str(right) for right in operating_rights(needed())]
    assert more == [
        "Read, Delete on topic 'dead-orders'",
        "Create, Read, Write, DescribeConfigs on topic 'dead-orders-replays'",
        "Write on transactional id 'streams-replay-of-dead-orders'",
        "Delete on group 'secured'",
        "Read on group 'secured-replicas'",
        "Read on groups that begin with 'secured-serve'",
    ]


def test_a_reset_that_would_stop_half_way_is_refused_before_it_deletes_anything() -> None:
    brokers = Brokers(dict.fromkeys(needed().internal, EVERYTHING))
    check_reset_rights("secured", needed().internal, brokers, CLIENT)
    brokers.existing[needed().internal[0]] = EVERYTHING - {"DELETE"}
    brokers.deletes_group = False
    with pytest.raises(AuthorizationError) as caught:
        check_reset_rights("secured", needed().internal, brokers, CLIENT)
    assert (
        "User:alice lacks rights that a reset of 'secured' needs: Delete on topics that begin with 'secured-'; "
        "Delete on group 'secured'. Nothing was deleted." in str(caught.value)
    )


def test_a_replay_that_may_not_write_where_letters_go_is_refused_before_it_sends_anything() -> None:
    brokers = Brokers()
    check_replay_rights("dead-orders", ["orders"], brokers, CLIENT)
    brokers.existing["orders"] = frozenset({"DESCRIBE", "READ"})
    with pytest.raises(AuthorizationError) as caught:
        check_replay_rights("dead-orders", ["orders", "counts"], brokers, CLIENT)
    assert (
        "User:alice lacks rights that a replay of 'dead-orders' needs: Write on topic 'orders'. Nothing was sent."
        in str(caught.value)
    )


def test_names_in_commands_are_quoted_for_a_shell() -> None:
    right = Right(Resource.TOPIC, "*", ("Read",), "sources")
    assert command(right, None, "").endswith("--allow-principal User:NAME --operation Read --topic '*'")


# --- Readers join no group, so the right on their group is not needed: its refusal comes as a message without a topic.


class Refusal:
    """What librdkafka delivers of an error that is about the client as a whole."""

    def topic(self) -> None:
        return None

    def partition(self) -> int:
        return 0

    def error(self) -> KafkaError:
        return KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)


class Record:
    def topic(self) -> str:
        return "in"

    def partition(self) -> int:
        return 3

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes:
        return b"value"


class Consumer:
    """A consumer that is first refused its group, and then has a record."""

    def __init__(self, *_: Any) -> None:
        self._waiting: list[Any] = [Refusal(), Record()]

    def consume(self, *_: Any) -> Sequence[Any]:
        return [self._waiting.pop(0)]

    def assign(self, *_: Any) -> None:
        """Nothing to do."""

    unassign = pause = resume = close = assign


def test_a_sample_goes_on_without_the_right_on_the_readers_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "Consumer", Consumer)
    found = RecordSampler({}).sample({("in", 3): 7}, {("in", 3): 8})
    assert [(one.offset, one.timestamp_ms, one.size) for one in found["in", 3]] == [(7, 1_000, 8)]
