"""What passes and what stays: told by the error alone, also by its text; and what is done about either. Without a broker."""

from __future__ import annotations

import ctypes
import logging
import pickle
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicCollection, TopicPartition

from state.errors import (
    AuthorizationError,
    ClientFailure,
    FencedError,
    KafkaClientError,
    ReadTimeoutError,
    TopicNotFoundError,
)
from state.kafka import connection as rights
from state.kafka import consumers as group_member
from state.kafka.admin import KafkaAdmin, TransientRetry, delete_if_possible
from state.kafka.config import QUIET, admin_config
from state.kafka.error_mapping import failure_of
from state.kafka.librdkafka import PRODUCER, RdKafkaLibrary, _candidates
from state.kafka.topics import TopicInfo

PASSING = [
    "_ALL_BROKERS_DOWN",
    "_DESTROY_BROKER",
    "_TRANSPORT",
    "_TIMED_OUT",
    "_MSG_TIMED_OUT",
    "_WAIT_COORD",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_ENOUGH_REPLICAS",
    "REQUEST_TIMED_OUT",
]
STAYING = ["UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED", "_AUTHENTICATION", "OFFSET_OUT_OF_RANGE", "_FENCED"]


def error_of(name: str) -> KafkaClientError:
    return KafkaClientError("reading t-0 failed", failure_of(KafkaError(getattr(KafkaError, name))))


@pytest.mark.parametrize("name", PASSING)
def test_what_passes(name: str) -> None:
    error = error_of(name)
    assert error.transient
    assert pickle.loads(pickle.dumps(error)).transient
    found = ClientFailure.in_text(f"Traceback [X]:\nstate.errors.KafkaClientError: {error}")
    assert found is not None
    assert found.transient
    assert found.name == name


@pytest.mark.parametrize("name", STAYING)
def test_what_stays(name: str) -> None:
    error = error_of(name)
    assert not error.transient
    found = ClientFailure.in_text(str(error))
    assert found is not None
    assert not found.transient


def test_flags_count() -> None:
    assert ReadTimeoutError("t", 0, 5, 9, seconds=60).transient
    assert not KafkaClientError("this admin client is closed").transient
    assert ClientFailure.in_text("SerdeError: [a] is no number (in t-0)") is None
    retriable = ClientFailure(99, "SOMETHING_NEW", "x", retriable=True)
    assert ClientFailure.in_text(f"... [{retriable}]") == retriable
    assert retriable.transient
    assert not FencedError("m", ClientFailure(-144, "_FENCED", "x", retriable=True, fatal=True)).transient


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_patience_ends() -> None:
    clock, asked = Clock(), []
    patience = TransientRetry(60, clock.sleep, clock)

    def request(failures: int, name: str = "_TRANSPORT") -> int:
        asked.append(clock.now)
        if len(asked) <= failures:
            raise error_of(name)
        return len(asked)

    assert patience(lambda: request(5)) == 6
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses == sorted(pauses)
    for name, tries in (("_TRANSPORT", 18), ("TOPIC_AUTHORIZATION_FAILED", 1)):
        asked.clear()
        begun = clock.now
        with pytest.raises(KafkaClientError):
            patience(lambda name=name: request(1_000, name))  # type: ignore[misc]
        assert clock.now - begun <= 60
        assert abs(len(asked) - tries) <= 2


def test_failed_housekeeping_is_harmless_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Deleter:
        name: str | None = "TOPIC_AUTHORIZATION_FAILED"
        asked = 0

        def describe_topics(self, names: Sequence[str]) -> Mapping[str, TopicInfo]:
            return {"housekeeping-of-test": TopicInfo("new", 1)}

        def delete_records(self, before: Mapping[tuple[str, int], int]) -> None:
            self.asked += 1
            if self.name is not None:
                raise error_of(self.name)

    deleter = Deleter()
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        assert not delete_if_possible(deleter, {("housekeeping-of-test", 0): 5}, {})
    assert len(caplog.records) == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in caplog.text
    assert "granted Delete" in caplog.text
    deleter.name = "LEADER_NOT_AVAILABLE"
    assert not delete_if_possible(deleter, {("housekeeping-of-test", 0): 5}, {})
    assert len(caplog.records) == 2
    deleter.name = None
    assert delete_if_possible(deleter, {("housekeeping-of-test", 0): 5}, {})
    assert deleter.asked == 5
    assert delete_if_possible(deleter, {}, {})
    assert deleter.asked == 5


@pytest.mark.parametrize("ids", [{"t": "old"}, {"t": "new", "gone": "old"}])
def test_records_of_another_topic_of_the_same_name_are_not_deleted(ids: Mapping[str, str]) -> None:
    """A process that slept through a reset or a rescale wakes up, and nothing has fenced it."""
    deleted: list[Mapping[tuple[str, int], int]] = []
    deleter = SimpleNamespace(
        delete_records=deleted.append, describe_topics=lambda names: {"t": TopicInfo("new", 1)} if "t" in names else {}
    )
    assert not delete_if_possible(deleter, {("t", 0): 5}, ids)
    assert deleted == []
    assert delete_if_possible(deleter, {("t", 0): 5}, {"t": "new"})
    assert deleted == [{("t", 0): 5}]


class Described(NamedTuple):
    topic_id: str
    partitions: list[int]


class Listed(NamedTuple):
    offset: int


class Cluster(NamedTuple):
    topics: dict[str, Described]


class NoLeaders:
    """An admin client of a cluster that knows topic `there` with two partitions, whose leaders are away."""

    def list_topics(self, **_: Any) -> Cluster:
        return Cluster({"there": Described("id", [0, 1])})

    def describe_topics(self, topics: TopicCollection, **_: Any) -> dict[str, Future[Described]]:
        return {name: self._described(name) for name in topics.topic_names}

    def _described(self, name: str) -> Future[Described]:
        future: Future[Described] = Future()
        if name == "there":
            future.set_result(Described("id", [0, 1]))
        else:
            future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return future

    def list_offsets(self, request: Mapping[TopicPartition, object], **_: Any) -> dict[TopicPartition, Future[Any]]:
        futures: dict[TopicPartition, Future[Any]] = {}
        for where in request:
            futures[where] = Future()
            futures[where].set_exception(KafkaException(KafkaError(KafkaError._NOENT, "No leaders found")))
        return futures


class DyingLeader(NoLeaders):
    """A cluster in which a leader dies within a request, for whose partitions the library then has neither answer nor error."""

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths

    def list_offsets(self, request: Mapping[TopicPartition, object], **_: Any) -> dict[TopicPartition, Future[Any]]:
        futures: dict[TopicPartition, Future[Any]] = {where: Future() for where in request}
        for future in futures.values():
            future.set_result(Listed(OFFSET_INVALID if self.deaths else 7))
        self.deaths -= 1
        return futures


def test_offsets_without_an_answer_are_asked_for_again_and_never_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    dying = DyingLeader(1)
    monkeypatch.setattr("state.kafka.admin.AdminClient", lambda _: dying)
    admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=0.2)
    assert admin.end_offsets([("there", 1)]) == {("there", 1): 7}
    dying.deaths = -1
    with pytest.raises(KafkaClientError, match="partition 1 of topic 'there' has no leader") as caught:
        admin.begin_offsets([("there", 1)])
    assert caught.value.transient


def test_no_leader_is_not_no_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, timeout_s=0.2)
    monkeypatch.setattr(admin._requests, "_admin", NoLeaders())
    monkeypatch.setattr("state.kafka.admin._NEW_PARTITION_S", 0.1)
    with pytest.raises(KafkaClientError, match="partition 1 of topic 'there' has no leader") as caught:
        admin.end_offsets([("there", 1)])
    assert caught.value.transient
    assert not isinstance(caught.value, TopicNotFoundError)
    for missing in (("there", 2), ("gone", 0)):
        with pytest.raises(TopicNotFoundError) as refused:
            admin.end_offsets([missing])
        assert not refused.value.transient


def test_an_admin_client_looks_for_the_successor_of_a_dead_controller_within_seconds() -> None:
    client = {"bootstrap.servers": "127.0.0.1:1"}
    assert int(admin_config(client)["topic.metadata.refresh.interval.ms"]) <= 5_000
    name = "topic.metadata.refresh.interval.ms"
    assert admin_config({**client, name: "60000"})[name] == "60000"


# --- What is told of requests that brokers refuse for want of a right. (The client library is a fake.)

REQUEST = "Request Request(processor=0, session=org.apache.kafka.network.Session@17, buffer=HeapByteBuffer[pos=290])"


class Refused:
    """A client whose every request is refused."""

    def __init__(self, *_: object) -> None: ...

    def subscribe(self, *_: object, **__: object) -> None: ...

    def poll(self, timeout_s: float) -> Refused:
        return self

    def error(self) -> KafkaError:
        return KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "FindCoordinator response error")

    def create_acls(self, wanted: Sequence[object], **_: object) -> dict[object, Future[Any]]:
        answer: Future[Any] = Future()
        failure = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, REQUEST)
        answer.set_exception(KafkaException(failure))
        return dict.fromkeys(wanted, answer)


def test_a_group_that_may_not_be_joined_is_a_missing_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_member, "Consumer", Refused)
    with pytest.raises(AuthorizationError, match=r"joining the consumer group 'shop-replicas' failed.*--operate"):
        group_member.GroupMember({}, "shop-replicas", ["shop-orders-commits"]).poll(0)


def test_who_may_not_grant_rights_is_told_so_without_the_brokers_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "AdminClient", Refused)
    with pytest.raises(AuthorizationError) as raised:
        rights.grant_rights({"bootstrap.servers": "kafka:9093"}, "User:bob", [("topic", "orders", False, ["Read"])])
    told = str(raised.value)
    assert "granting rights to 'User:bob' failed: these credentials may not alter ACLs" in told
    assert told.endswith("Cluster authorization failed]")
    assert "HeapByteBuffer" not in told


def test_an_admin_client_of_a_broker_that_is_away_writes_nothing_by_itself(capfd: pytest.CaptureFixture[str]) -> None:
    with KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=1) as admin, pytest.raises(KafkaClientError):
        admin.describe_topics(["t"])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("level", "own_lines"), [(QUIET["log_level"], 0), ("6", 1)])
def test_a_fatal_error_is_raised_and_not_written_in_a_form_of_its_own(
    level: str, own_lines: int, capfd: pytest.CaptureFixture[str]
) -> None:
    path = next(iter(_candidates()))
    library, fail = RdKafkaLibrary(path), ctypes.CDLL(str(path)).rd_kafka_test_fatal_error
    fail.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    conf = library.configuration({"bootstrap.servers": "127.0.0.1:1", "enable.idempotence": "true", "log_level": level})
    producer = library.client(PRODUCER, conf)
    try:
        fail(producer, KafkaError._FENCED, b"as a test")
        assert library.fatal_error(producer, None, 0) == KafkaError._FENCED
    finally:
        library.destroy_flags(producer, 0)
    assert ("as a test" in capfd.readouterr().err) == bool(own_lines)
