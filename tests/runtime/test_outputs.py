"""Results that Kafka would refuse: known before they are sent, so they meet the production policy one by one."""

import pytest

from state.errors import TopicNotFoundError
from state.kafka.topics import BATCH_OVERHEAD, RECORD_OVERHEAD, limits_of, wire_size
from streams import Processor, Record, StreamsBuilder
from streams.engine.graph.handlers import DeadLetter, error_headers, fitted
from streams.engine.graph.outputs import Outputs, UnlimitedTopics
from streams.engine.graph.settings import TaskSettings
from streams.errors import RecordFailedError
from streams.model.record import CUT, ERROR_HEADERS
from streams.testing import TopologyTestDriver

HOUR = 3_600_000
NOW = 1_700_000_000_000
POLICIES = ["fail", "skip", "dlq"]


def copy(*ways):
    """Writes on what it reads: to `out`, or where the function says."""
    builder = StreamsBuilder()
    builder.stream("in").to(*(ways or ("out",)))
    return builder.build()


def run(topology, policy, bad, said, configs, **settings):
    """A good record, the bad one, and another good one: only the bad one is not written, as the policy says."""
    settings = {"production": policy, "dead_letter_topic": "dead", "start_ms": NOW, **settings}
    with TopologyTestDriver(topology, topic_configs=configs, **settings) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", {"to": "out"}, NOW)
        if policy == "fail":
            with pytest.raises(RecordFailedError, match=rf"(?s)record at in-0 offset 1, key .*{said}") as caught:
                topic.pipe_input(*bad)
            assert caught.value.stage == "production"
            return []
        topic.pipe_input(*bad)
        topic.pipe_input("z", {"to": "out"}, NOW + 1)
        assert [key for key, _ in driver.create_output_topic("out").read_key_values_to_list()] == ["a", "z"]
        assert driver.dropped("production") == 1
        return driver.create_output_topic("dead").read_records_to_list()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("config", "time", "said"),
    [
        ({"message.timestamp.after.max.ms": str(HOUR)}, NOW + HOUR + 1, "message.timestamp.after.max.ms is 3600000"),
        ({"message.timestamp.before.max.ms": str(HOUR)}, NOW - HOUR - 1, "message.timestamp.before.max.ms is 3600000"),
    ],
)
def test_times_that_the_topic_does_not_take(policy, config, time, said):
    found = run(copy(), policy, ("k", {"n": 1}, time), said, {"out": config, "dead": config})
    assert [letter.timestamp for letter in found] == ([NOW] if policy == "dlq" else [])


def test_times_at_the_bound_and_where_the_broker_sets_them():
    after = {"message.timestamp.after.max.ms": str(HOUR)}
    by_broker = {**after, "message.timestamp.type": "LogAppendTime"}
    for config, time in ((after, NOW + HOUR), (by_broker, NOW + 2 * HOUR)):
        with TopologyTestDriver(copy(), topic_configs={"out": config}, start_ms=NOW) as driver:
            driver.create_input_topic("in").pipe_input("k", 1, time)
            assert driver.create_output_topic("out").read_values_to_list() == [1]


@pytest.mark.parametrize("policy", POLICIES)
def test_no_key_for_a_compacted_topic(policy):
    run(copy(), policy, (None, {"n": 1}, NOW), "has no key.*compacted", {"out": {"cleanup.policy": "compact,delete"}})


@pytest.mark.parametrize("policy", POLICIES)
def test_larger_than_the_topic_takes(policy):
    run(copy(), policy, ("k", "x" * 1_000, NOW), "the limit is 939", {"out": {"max.message.bytes": "1000"}})


@pytest.mark.parametrize("policy", POLICIES)
def test_headers_count_for_the_size(policy):
    headers = (("h", b"x" * 1_000),)
    run(copy(), policy, ("k", 1, NOW, headers), "the limit is 1000", None, max_record_bytes=1_000)


def test_sizes_are_those_of_librdkafka():
    assert wire_size(None, None) == RECORD_OVERHEAD == 36
    assert wire_size(b"k", b"value", (("h", None), ("ü", b"12"))) >= 36 + 6 + 1 + 2 + 2 + 4
    assert limits_of(1, {"max.message.bytes": "1000"}).max_bytes == 1000 - BATCH_OVERHEAD
    compressed = limits_of(1, {"max.message.bytes": "1000"}, compressed=True)
    assert compressed.max_bytes > 10**9, "what it will be when it is compressed nobody knows"


INTERNAL = ["app-in-commits", "app-s-changelog", "other-x-repartition", "__consumer_offsets", "__transaction_state"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", [*INTERNAL, "", ".", "..", "a b", "x" * 250, "ünicode", None, 7, b"out", "nowhere"])
def test_a_record_chooses_no_internal_topic_and_none_that_is_none(policy, name):
    topology = copy(lambda key, value, ctx: name if value["to"] == "bad" else "out")
    said = "does not exist" if name == "nowhere" else "internal" if name in INTERNAL else "is not a valid topic name"
    found = run(topology, policy, ("k", {"to": "bad"}, NOW), said, {"out": {}}, application_id="app")
    assert len(found) == (policy == "dlq")


def test_internal_names_are_refused_even_if_the_topics_are_unknown():
    with pytest.raises(RecordFailedError, match="internal"):
        run(copy(lambda k, v, ctx: "app-in-commits"), "fail", (), "", None)


def test_a_topic_of_the_program_that_is_gone_is_no_records_fault():
    class Nothing(UnlimitedTopics):
        def limits(self, topic):
            return None

    with pytest.raises(TopicNotFoundError, match="'out'"):
        Outputs(Nothing(), TaskSettings("app")).target("out")


def test_a_result_with_a_time_of_more_than_64_bits():
    builder = StreamsBuilder()

    class Late(Processor):
        def process(self, record):
            timestamp = 2**70 if record.value == "bad" else record.timestamp
            self.ctx.forward(Record(record.key, record.value, timestamp))

    builder.stream("in").process(Late).to("out")
    with TopologyTestDriver(builder.build(), processing="skip", production="skip") as driver:
        topic = driver.create_input_topic("in")
        for value in ("good", "bad", "good"):
            topic.pipe_input("k", value, 1)
        assert driver.create_output_topic("out").read_values_to_list() == ["good", "good"]


@pytest.mark.parametrize("size", [100, 900_000, 999_990])
def test_a_dead_letter_always_fits(size):
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda v: v).to("out")
    with TopologyTestDriver(builder.build(), deserialization="dlq", dead_letter_topic="dead") as driver:
        driver.create_input_topic("in").pipe_bytes(b"k", b"{" * size, 0, headers=(("h", b"1"),))
        (letter,) = driver.create_output_topic("dead").read_records_to_list()
        assert wire_size(letter.key, letter.value, letter.headers) <= 1_000_000
        assert (CUT in dict(letter.headers)) == (size == 999_990)
        assert b"{" * size == letter.value or CUT in dict(letter.headers)


def failure():
    try:
        raise ValueError("x" * 5_000)
    except ValueError as error:
        return error_headers("processing", ("in", 3, 77), 5, error)


@pytest.mark.parametrize("limit", [600, 1_000, 3_000, 10_000, 50_000])
@pytest.mark.parametrize("key", [b"k", b"k" * 20_000, None])
@pytest.mark.parametrize("value", [None, b"v", b"v" * 20_000])
@pytest.mark.parametrize("own", [(), (("h", b"x" * 20_000),)])
def test_what_is_cut_of_a_dead_letter(limit, key, value, own):
    letter = DeadLetter(key, value, (*own, *failure()))
    cut = fitted(letter, limit)
    assert wire_size(*cut) <= limit
    headers = dict(cut.headers)
    assert [headers[ERROR_HEADERS + name] for name in ("topic", "partition", "offset", "stage")] == [
        b"in", b"3", b"77", b"processing",
    ]  # fmt: skip
    assert (letter == cut) == (wire_size(*letter) <= limit)
    if cut != letter:
        assert headers[CUT]
    assert (cut.key or b"") == (key or b"")[: len(cut.key or b"")]
    assert (cut.value or b"") == (value or b"")[: len(cut.value or b"")]
    if limit == 3_000 and value == b"v" and key != b"k" * 20_000:
        assert cut.value == value, "what is small and comes before the key stays"
    if limit == 10_000 and not own and value == b"v" and key != b"k" * 20_000:
        assert headers[ERROR_HEADERS + "message"] == b"x" * 5_000, "the stack trace goes first"


def test_a_dead_letter_fits_its_own_topic():
    found = run(
        copy(),
        "dlq",
        ("k", "x" * 2_000, NOW),
        "",
        {"out": {"max.message.bytes": "1500"}, "dead": {"max.message.bytes": "1500"}},
    )
    assert wire_size(found[0].key, found[0].value, found[0].headers) <= 1_500 - BATCH_OVERHEAD
    assert b"value of 2002 bytes" in dict(found[0].headers)[CUT]
