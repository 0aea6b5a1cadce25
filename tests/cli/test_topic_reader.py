"""Reading a topic: where it begins, where it ends, and that it may wait for more. (The client is a fake.)"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, TopicPartition

from state.errors import KafkaClientError, TopicNotFoundError
from state.kafka.topics import TopicInfo
from streams.cluster import records
from streams.cluster.records import Begin, read_records


class FakeError:
    def __init__(self, code: int, retriable: bool = False) -> None:
        self._code, self._retriable = code, retriable

    def code(self) -> int:
        return self._code

    def retriable(self) -> bool:
        return self._retriable

    def str(self) -> str:
        return "broken"


class FakeMessage:
    def __init__(self, partition: int, value: bytes = b"", error: FakeError | None = None) -> None:
        self._partition, self._value, self._error = partition, value, error

    def error(self) -> FakeError | None:
        return self._error

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 5

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value

    def headers(self) -> None:
        return None


def end(partition: int) -> FakeMessage:
    return FakeMessage(partition, error=FakeError(KafkaError._PARTITION_EOF))


class FakeKafka:
    """A topic `t` of two partitions with ten records each; polls give what a test says."""

    def __init__(self, polls: list[FakeMessage | None]) -> None:
        self.polls = iter(polls)
        self.assigned: list[TopicPartition] = []
        self.closed = False

    def __enter__(self) -> FakeKafka:
        return self

    def __exit__(self, *_: object) -> None: ...

    def describe_topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo("id", 2) for name in names if name == "t"}

    def end_offsets(self, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, 10)

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned = places

    def poll(self, timeout: float) -> FakeMessage | None:
        return next(self.polls)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeKafka]]:
    made: list[FakeKafka] = []

    def make(polls: list[FakeMessage | None]) -> FakeKafka:
        made.append(FakeKafka(polls))
        monkeypatch.setattr(records, "KafkaAdmin", lambda client: made[0])
        monkeypatch.setattr(records, "Consumer", lambda config: made[0])
        return made[0]

    yield make  # type: ignore[misc]
    assert not made[0].assigned or made[0].closed


def values(kafka: FakeKafka, begin: Begin | None = None, *, follow: bool = False) -> Iterator[bytes | None]:
    return (record.value for record in read_records({}, "t", begin, follow=follow))


def test_reading_ends_at_the_end_of_each_partition(kafka) -> None:
    fake = kafka([FakeMessage(0, b"a"), end(0), FakeMessage(0, b"came later"), FakeMessage(1, b"b"), end(1)])
    assert list(values(fake)) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("begin", "offsets"),
    [
        (None, [(0, 0), (1, 0)]),
        (Begin(7), [(0, 7), (1, 7)]),
        (Begin(-3), [(0, 7), (1, 7)]),
        (Begin(-30), [(0, 0), (1, 0)]),
        (Begin(None), [(0, 10), (1, 10)]),
        (Begin(4, partition=1), [(1, 4)]),
    ],
)
def test_where_reading_begins(kafka, begin: Begin | None, offsets: list[tuple[int, int]]) -> None:
    fake = kafka([end(0), end(1)])
    list(values(fake, begin))
    assert [(place.partition, place.offset) for place in fake.assigned] == offsets


def test_a_follower_waits_for_further_records(kafka) -> None:
    fake = kafka([FakeMessage(0, b"a"), end(0), end(1), None, FakeMessage(1, b"b")])
    found = values(fake, follow=True)
    assert [next(found), next(found)] == [b"a", b"b"]
    found.close()


def test_silence_before_the_end_is_an_error(kafka) -> None:
    with pytest.raises(KafkaClientError, match="nothing came of 't'"):
        list(values(kafka([None])))


def test_a_permanent_error_is_raised(kafka) -> None:
    with pytest.raises(KafkaClientError, match="'t' cannot be read: broken"):
        list(values(kafka([FakeMessage(0, error=FakeError(1))])))


@pytest.mark.parametrize(("topic", "begin"), [("missing", None), ("t", Begin(0, partition=2))])
def test_a_missing_topic_or_partition_is_named(kafka, topic: str, begin: Begin | None) -> None:
    kafka([])
    with pytest.raises(TopicNotFoundError):
        list(read_records({}, topic, begin))
