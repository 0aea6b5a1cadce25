"""Global stores that a processor of the user's keeps: who sees them, what may be done with them, and over restarts."""

import pytest

from streams import Consumed, JsonSerde, Processor, StreamsBuilder, StringSerde, TopologyError
from streams.dsl.stores import Stores
from streams.errors import RecordFailedError
from streams.operators.processor import ValueTransformer
from streams.testing import TopologyTestDriver
from streams.topology.diff import compare, worst
from streams.topology.manifest import manifest


class ByCode(Processor):
    """Airports by code; a null value deletes all of a name, a null key is dropped."""

    def process(self, record):
        if record.key is None:
            self.ctx.drop(record, "null_key")
            return
        store = self.ctx.store("by-code")
        if record.value is None:
            for code, name in list(store.all()):
                if name == record.key:
                    store.put(code, None, record.timestamp)
        else:
            where = self.ctx.record_metadata
            assert (where.topic, self.ctx.task_id) == ("airports", "global")
            store.put(record.value["code"], record.key, record.timestamp)


class LookUp(Processor):
    def process(self, record):
        self.ctx.forward(record.with_value(self.ctx.store("by-code").get(record.value)))


class Rename(ValueTransformer):
    def transform(self, key, value):
        return list(self.ctx.store("by-code").get(value))


def built(supplier=ByCode, reader=LookUp, store="by-code"):
    builder = StreamsBuilder()
    builder.add_global_store(Stores.key_value_store(store, StringSerde(), JsonSerde()), "airports", supplier)
    builder.stream("in").process(reader, stores=[store]).to("out")
    return builder.build()


def test_every_task_reads_what_the_processor_keeps():
    with TopologyTestDriver(built(), partitions={"in": 3, "airports": 2}, tasks=3) as driver:
        airports, stream, out = (
            driver.create_input_topic("airports"),
            driver.create_input_topic("in"),
            driver.create_output_topic("out"),
        )
        airports.pipe_input("Newark", {"code": "EWR"}, 5)
        airports.pipe_input(None, {"code": "XXX"}, 5)
        for number in range(9):
            stream.pipe_input(f"k{number}", "EWR", 1)
        assert out.read_values_to_list() == ["Newark"] * 9
        assert driver.dropped("null_key") == 1
        driver.restart()
        stream.pipe_input("k", "EWR", 1)
        airports.pipe_input("Newark", None, 6)
        stream.pipe_input("k", "EWR", 1)
        assert out.read_values_to_list() == ["Newark", None]
        assert driver.get_store("by-code").get("EWR") is None


def test_a_value_transformer_reads_it_too():
    builder = StreamsBuilder()
    store = Stores.timestamped_key_value_store("by-code", StringSerde(), JsonSerde())
    builder.add_global_store(store, "airports", Consumed(), ByCode)  # Java's order
    builder.table("in").transform_values(Rename, ["by-code"]).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("airports").pipe_input("Newark", {"code": "EWR"}, 5)
        driver.create_input_topic("in").pipe_input("a", "EWR", 6)
        assert driver.create_output_topic("out").read_values_to_list() == [["Newark", 5]]


class Failing(ByCode):
    def process(self, record):
        if record.value == "bad":
            raise ValueError("no code")
        super().process(record)


def test_what_fails_follows_the_processing_policy():
    with TopologyTestDriver(built(Failing), processing="skip") as driver:
        airports = driver.create_input_topic("airports")
        airports.pipe_input("x", "bad", 1)
        airports.pipe_input("Newark", {"code": "EWR"}, 5)
        assert driver.dropped("processing") == 1
        assert driver.get_store("by-code").get("EWR") == "Newark"
    with TopologyTestDriver(built(Failing)) as driver:
        airports = driver.create_input_topic("airports")
        with pytest.raises(RecordFailedError, match=r"airports-0 offset 0.*GLOBAL-STORE-airports"):
            airports.pipe_input("x", "bad", 1)


class Writing(Processor):
    def process(self, record):
        self.ctx.store("by-code").put("EWR", "mine", 0)


@pytest.mark.parametrize("what", ["forward", "schedule", "state", "stream_time"])
def test_a_processor_of_a_global_store_does_nothing_else(what):
    class Greedy(Processor):
        def process(self, record):
            given = getattr(self.ctx, what)
            if callable(given):
                given(record) if what == "forward" else given(10, "stream_time", print)

    with TopologyTestDriver(built(Greedy)) as driver:
        airports = driver.create_input_topic("airports")
        with pytest.raises(TopologyError, match=f"has no '{what}'"):
            airports.pipe_input("x", 1, 1)


def test_others_cannot_write_to_it():
    with TopologyTestDriver(built(reader=Writing)) as driver:
        stream = driver.create_input_topic("in")
        with pytest.raises(TopologyError, match="can only be read"):
            stream.pipe_input("k", "EWR", 1)


class Scanning(Processor):
    def process(self, record):
        store = self.ctx.store("by-code")
        shown = {name for name in dir(store) if not name.startswith("_")}
        rows = list(store.all()), list(store.prefix_scan("E")), store.approximate_num_entries(), hasattr(store, "codec")
        self.ctx.forward(record.with_value([sorted(shown), *rows]))


def test_it_shows_what_can_be_read():
    with TopologyTestDriver(built(reader=Scanning)) as driver:
        driver.create_input_topic("airports").pipe_input("Newark", {"code": "EWR"}, 5)
        driver.create_input_topic("in").pipe_input("k", 1, 6)
        [[shown, *rows]] = driver.create_output_topic("out").read_values_to_list()
    reads = [
        "all",
        "approximate_num_entries",
        "get",
        "name",
        "prefix",
        "prefix_scan",
        "range",
        "reverse_all",
        "reverse_range",
    ]
    assert (shown, rows) == (reads, [[["EWR", "Newark"]], [["EWR", "Newark"]], 1, False])


def test_it_is_described_and_compared():
    topology = built()
    assert list(topology.stores) == []
    assert "Processor: GLOBAL-STORE-airports (stores: [by-code])" in topology.describe()
    assert worst(compare(manifest(topology), built(store="other"))).value != "loses state"
    assert manifest(topology)["global_tables"] == {"by-code": "airports"}


KEYED = Stores.key_value_store("by-code", StringSerde(), JsonSerde())


def test_a_global_store_must_be_a_key_value_store() -> None:
    windows = Stores.window_store("w", StringSerde(), JsonSerde(), retention=10)
    with pytest.raises(TopologyError, match="must be a key-value store"):
        StreamsBuilder().add_global_store(windows, "airports", ByCode)


def test_a_global_store_needs_a_supplier_of_processors() -> None:
    with pytest.raises(TopologyError, match="makes processors"):
        StreamsBuilder().add_global_store(KEYED, "airports", ByCode())


@pytest.mark.parametrize(
    ("declare", "reason"),
    [
        (lambda builder: builder.add_state_store(KEYED), "Two stores are called 'by-code'"),
        (lambda builder: builder.global_table("airports"), "read already"),
    ],
    ids=["store", "topic"],
)
def test_the_store_and_the_topic_of_a_global_store_are_taken(declare, reason: str) -> None:
    builder = StreamsBuilder()
    builder.add_global_store(KEYED, "airports", ByCode)
    with pytest.raises(TopologyError, match=reason):
        declare(builder)


class FailsAtTheEnd(ByCode):
    """As a processor that writes what it has gathered only then."""

    def flush(self):
        raise ValueError("no room")


def test_what_fails_at_the_end_follows_the_policy_too():
    with (
        TopologyTestDriver(built(FailsAtTheEnd)) as driver,
        pytest.raises(RecordFailedError, match=r"a result emitted at the end of the step, .* ValueError: no room"),
    ):
        driver.create_input_topic("airports").pipe_input("Kennedy", {"code": "JFK"}, 1)
    with TopologyTestDriver(built(FailsAtTheEnd), processing="skip") as driver:
        driver.create_input_topic("airports").pipe_input("Kennedy", {"code": "JFK"}, 1)
        assert driver.dropped("processing") == 1
        assert driver.get_store("by-code").get("JFK") == "Kennedy"
