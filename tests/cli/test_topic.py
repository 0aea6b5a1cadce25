"""Records as lines: what `streams topic send` takes, and what `streams topic read` prints."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from state.errors import KafkaClientError, TopicNotFoundError
from state.kafka.topics import TopicInfo
from streams.cli.output import print_json_line, visible, visible_bytes
from streams.cli.topic import LineFormat, RecordPrinter, SerdeOptions, TopicSerdes, records_of, topic_serdes
from streams.cluster import records
from streams.cluster.records import Begin, Incoming, Outgoing, read_records
from streams.errors import ConfigError
from streams.serdes import (
    AvroSerde,
    BytesSerde,
    Float64Serde,
    Int64Serde,
    JsonSerde,
    SchemaRegistry,
    StringSerde,
    TimeWindowedSerde,
)
from streams.serdes.json_text import dumps
from tests.serdes.registry_server import running

TWO = (2).to_bytes(8, "big")


def sent(line: str, **form: object) -> Outgoing:
    (found,) = records_of([b"\n", line.encode() + b"\r\n"], LineFormat("t", **form))  # type: ignore[arg-type]
    return found


def record(key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()) -> Incoming:
    return Incoming(1, 7, 1_700_000_000_000, key, value, headers)


@pytest.mark.parametrize(
    ("line", "form", "wanted"),
    [
        ("k\tv", {}, Outgoing(b"k", b"v")),
        ("only a value", {}, Outgoing(None, b"only a value")),
        ("k\ttwo\ttabs", {}, Outgoing(b"k", b"two\ttabs")),
        ("k|v", {"separator": "|"}, Outgoing(b"k", b"v")),
        ("k\tNULL", {"null": "NULL"}, Outgoing(b"k", None)),
        (
            "k\tv",
            {"timestamp": 5, "headers": (("h", b"1"),), "partition": 2},
            Outgoing(b"k", b"v", 5, (("h", b"1"),), 2),
        ),
        ("1700000000000\tk\tv", {"timestamps": True}, Outgoing(b"k", b"v", 1_700_000_000_000)),
        ("2023-11-14T22:13:20Z\tk\tv", {"timestamps": True}, Outgoing(b"k", b"v", 1_700_000_000_000)),
        ("a\t2", {"serdes": TopicSerdes(StringSerde(), Int64Serde())}, Outgoing(b"a", TWO)),
        ("5\t{'a'}", {"serdes": TopicSerdes(StringSerde(), StringSerde())}, Outgoing(b"5", b"{'a'}")),
        ('{"value": "text"}', {"as_json": True}, Outgoing(None, b"text")),
        ('{"key": "k", "value": null}', {"as_json": True}, Outgoing(b"k", None)),
        (
            '{"key": "k", "value": {"n": 1}, "timestamp": 9, "headers": {"h": "x", "n": null}, "partition": 3}',
            {"as_json": True},
            Outgoing(b"k", b'{"n":1}', 9, (("h", b"x"), ("n", None)), 3),
        ),
        ('{"value": 2}', {"as_json": True, "serdes": TopicSerdes(None, Int64Serde())}, Outgoing(None, TWO)),
    ],
)
def test_a_line_is_a_record(line: str, form: dict[str, object], wanted: Outgoing) -> None:
    assert sent(line, **form) == wanted


@pytest.mark.parametrize(
    ("line", "form", "said"),
    [
        ("{", {"as_json": True}, "line 2: it is not JSON"),
        ("[1]", {"as_json": True}, 'line 2: an object with "value" is needed'),
        ('{"value": 1, "keys": 2}', {"as_json": True}, r"line 2: unknown fields \['keys'\]"),
        ('{"value": 1, "headers": [1]}', {"as_json": True}, "headers"),
        ('{"value": 1, "value_base64": "YQ=="}', {"as_json": True}, 'both "value" and "value_base64"'),
        ('{"value_base64": "a"}', {"as_json": True}, '"value_base64" is not base64'),
        ('{"value_base64": {"a": 1}}', {"as_json": True}, '"value_base64" is not base64'),
        ('{"value": 1, "headers": {"h": {"hex": "00"}}}', {"as_json": True}, "the header 'h' is a text, null, or"),
        ('{"value": 1, "timestamp": 0}', {"as_json": True}, "no record can have it"),
        ("v", {"timestamps": True}, "line 2: a time and"),
        ("soon\tv", {"timestamps": True}, "line 2: 'soon' is not a time: write milliseconds"),
        ("two", {"serdes": TopicSerdes(None, Int64Serde())}, "line 2: Int64Serde cannot write"),
    ],
)
def test_a_wrong_line_is_reported_with_its_number(line: str, form: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        sent(line, **form)


@pytest.mark.parametrize(
    ("found", "serdes", "line"),
    [
        (record(b"k", b"v"), TopicSerdes(), "k\tv"),
        (record(None, b"v"), TopicSerdes(), "v"),
        (record(b"k", None), TopicSerdes(), "k\tnull"),
        (record(b"\xff", b"v"), TopicSerdes(), "\\xff\tv"),
        (record(b"a", TWO), TopicSerdes(), "a\t" + "\\x00" * 7 + "\\x02"),
        (record(b"a", TWO), TopicSerdes(None, Int64Serde()), "a\t2"),
        (record(b"k", b"\x1b]0;owned\x07\n"), TopicSerdes(), "k\t\\x1b]0;owned\\x07\\n"),
        (record(b"k", b'"\\u001b[2J"'), TopicSerdes(None, JsonSerde()), "k\t\\x1b[2J"),
    ],
)
def test_a_record_is_a_line_without_control_characters(found: Incoming, serdes: TopicSerdes, line: str) -> None:
    assert RecordPrinter("t", serdes).line(found) == line


def test_windowed_keys_are_readable() -> None:
    serde = TimeWindowedSerde(StringSerde(), 60_000)
    key = b"ann" + (1_700_000_040_000).to_bytes(8, "big")
    line = RecordPrinter("t", TopicSerdes(serde, Int64Serde())).line(record(key, TWO))
    assert line == '{"key":"ann","start":1700000040000,"end":1700000100000}\t2'


def test_times_and_headers_come_first() -> None:
    printer = RecordPrinter("t", TopicSerdes(), timestamps=True, headers=True)
    assert (
        printer.line(record(b"k", b"v", (("a", b"1"), ("b\x1b", None))))
        == "2023-11-14T22:13:20.000Z\ta=1,b\\x1b=null\tk\tv"
    )


def test_what_a_serde_cannot_read_is_shown_as_bytes_and_counted() -> None:
    printer = RecordPrinter("t", TopicSerdes(None, Int64Serde()))
    assert printer.line(record(b"k", b"short")) == "k\tshort"
    assert (printer.unreadable, "Int64Serde cannot read 5 bytes" in printer.why) == (1, True)


def test_json_that_was_read_can_be_sent_again() -> None:
    found = record(b"k\x01", b'{"a": 1}', (("h", b"x"), ("h", None)))
    line = json.dumps(RecordPrinter("t", TopicSerdes()).as_dict(found))
    assert sent(line, as_json=True) == Outgoing(found.key, found.value, found.timestamp, found.headers, found.partition)


DATA = st.none() | st.binary(max_size=5) | st.text(max_size=3).map(lambda text: text.encode(errors="replace"))


@given(
    DATA, DATA, st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=2), DATA), max_size=2), st.booleans()
)
def test_all_bytes_that_were_read_are_sent_again(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], named: bool
) -> None:
    serdes = TopicSerdes(BytesSerde(), BytesSerde()) if named else TopicSerdes()
    found = record(key, value, tuple(headers))
    (again,) = records_of(
        [dumps(RecordPrinter("t", serdes).as_dict(found))], LineFormat("t", as_json=True, serdes=serdes)
    )
    assert again == Outgoing(key, value, found.timestamp, found.headers, found.partition)


@pytest.mark.parametrize(
    ("serde", "data", "shown"),
    [
        (None, b"\xff", {"value_base64": "/w=="}),
        (None, b"", {"value": ""}),
        (JsonSerde(), b"null", {"value_base64": "bnVsbA=="}),
        (JsonSerde(), b"no json", {"value_base64": "bm8ganNvbg=="}),
        (JsonSerde(), b'{"base64":"/w=="}', {"value": {"base64": "/w=="}}),
        (JsonSerde(), b'{"n":18446744073709551617}', {"value": {"n": 2**64 + 1}}),
        (StringSerde(), b"\xff", {"value_base64": "/w=="}),
        (StringSerde(), b"18446744073709551617", {"value": "18446744073709551617"}),
        (Int64Serde(), TWO, {"value": 2}),
        (Int64Serde(), b"two", {"value_base64": "dHdv"}),
        (Float64Serde(), struct.pack(">d", 0.1), {"value": 0.1}),
    ],
)
def test_what_has_no_text_of_its_own_is_sent_again_in_base64(serde: Any, data: bytes, shown: dict[str, Any]) -> None:
    serdes = TopicSerdes(None, serde)
    found = RecordPrinter("t", serdes).as_dict(record(None, data))
    assert shown.items() <= found.items()
    assert len(found.keys() & {"value", "value_base64"}) == 1
    (again,) = records_of([dumps(found)], LineFormat("t", as_json=True, serdes=serdes))
    assert again.value == data


def test_nothing_is_registered_to_show_records_of_a_registry() -> None:
    text = {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["string", "bytes", "double"]}]}
    with running() as fake:
        registry = SchemaRegistry(fake.url, {"max.retries": 0})
        write = AvroSerde(registry, json.dumps(text)).serialize
        read = RecordPrinter("t", TopicSerdes(None, AvroSerde(registry, json.dumps(text | {"doc": "another"}))))
        shown = {
            kind: read.as_dict(record(None, write("t", {"x": value})))
            for kind, value in (("text", "a"), ("bytes", b"a"), ("nan", float("nan")))
        }
        assert fake.subjects == {"t-value": [1]}
    assert shown["text"]["value"] == {"x": "a"}
    # As texts they would be sent as the other branch of the union.
    assert "value_base64" in shown["bytes"]
    assert "value_base64" in shown["nan"]


@pytest.mark.parametrize(("number", "text"), [(float("nan"), "NaN"), (float("-inf"), "-Infinity")])
def test_a_number_that_json_does_not_have_is_shown_and_not_sent(number: float, text: str) -> None:
    serdes = TopicSerdes(None, Float64Serde())
    found = RecordPrinter("t", serdes).as_dict(record(None, struct.pack(">d", number)))
    assert found["value"] == text
    with pytest.raises(ConfigError, match="Float64Serde cannot write a str"):
        sent(dumps(found).decode(), as_json=True, serdes=serdes)


def test_json_is_written_in_the_notation_of_its_serde() -> None:
    serdes = TopicSerdes(JsonSerde(), JsonSerde())
    found = RecordPrinter("t", serdes).as_dict(record(b'{"k": 1}', b'{"n": 1.0}'))
    assert (found["key"], found["value"]) == ({"k": 1}, {"n": 1.0})
    assert sent(dumps(found).decode(), as_json=True, serdes=serdes).value == b'{"n":1.0}'


def test_a_record_without_a_time_is_sent_with_the_time_of_writing() -> None:
    found = RecordPrinter("t", TopicSerdes()).as_dict(Incoming(0, 0, -1, None, b"v", ()))
    assert found["timestamp"] is None
    for time in (None, -1):
        assert sent(dumps({**found, "timestamp": time}).decode(), as_json=True).timestamp is None


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('{"value_base64": "/w=="}', Outgoing(None, b"\xff")),
        ('{"key_base64": "", "value": null}', Outgoing(b"", None)),
        ('{"value": null, "value_base64": "YQ=="}', Outgoing(None, b"a")),
        ('{"value": {"base64": "/w=="}}', Outgoing(None, b'{"base64":"/w=="}')),
        ('{"value": 18446744073709551617}', Outgoing(None, b"18446744073709551617")),
        ('{"value": "", "headers": {"h": {"base64": "/w=="}}}', Outgoing(None, b"", None, (("h", b"\xff"),))),
    ],
)
def test_bytes_in_base64(line: str, wanted: Outgoing) -> None:
    assert sent(line, as_json=True) == wanted


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [("events", StringSerde(), JsonSerde()), ("app-by-word-repartition", StringSerde(), JsonSerde())],
)
def test_a_topology_has_serdes_for_its_topics(topic: str, key: object, value: object) -> None:
    target = "tests.cli.topology:build" if topic == "events" else "tests.cli.topology:repartitioned"
    assert topic_serdes(SerdeOptions(topology=target), topic) == TopicSerdes(key, value)


def test_a_named_serde_wins_over_the_topologys() -> None:
    options = SerdeOptions(value_serde="int64", topology="tests.cli.topology:build")
    assert topic_serdes(options, "events") == TopicSerdes(StringSerde(), Int64Serde())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (SerdeOptions(key_serde="int46"), "'int46' is not the name of a serde: .* Did you mean 'int64'"),
        (SerdeOptions(topology="tests.cli.topology:build"), "does not use the topic 'event'; .* Did you mean 'events'"),
    ],
)
def test_a_wrong_serde_is_reported(options: SerdeOptions, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        topic_serdes(options, "event")


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b2J", "\u202eabc", "\U000e0001", "äö 😀"])
def test_no_control_character_is_printed_in_json(capsys: pytest.CaptureFixture[str], text: str) -> None:
    print_json_line({"value": text})
    printed = capsys.readouterr().out
    assert printed.rstrip("\n").isprintable()
    assert json.loads(printed) == {"value": text}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain äö 😀", "plain äö 😀"),
        ("a\x00b", "a\\x00b"),
        ("\u202eabc", "\\u202eabc"),
        ("\U000e0001", "\\U000e0001"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_no_control_character_is_printed(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible_bytes(text.encode()) == shown


# --- Reading a topic: where it begins, where it ends, and that it may wait for more. (The client is a fake.)


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
    found.close()  # type: ignore[attr-defined]


def test_silence_before_the_end_is_an_error(kafka) -> None:
    with pytest.raises(KafkaClientError, match="no records arrived from 't'"):
        list(values(kafka([None])))


def test_a_permanent_error_is_raised(kafka) -> None:
    with pytest.raises(KafkaClientError, match="'t' cannot be read: broken"):
        list(values(kafka([FakeMessage(0, error=FakeError(1))])))


@pytest.mark.parametrize(("topic", "begin"), [("missing", None), ("t", Begin(0, partition=2))])
def test_a_missing_topic_or_partition_is_named(kafka, topic: str, begin: Begin | None) -> None:
    kafka([])
    with pytest.raises(TopicNotFoundError):
        list(read_records({}, topic, begin))
