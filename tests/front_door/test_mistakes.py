"""What a newcomer writes, and what follows: a result, or a sentence that says what to write instead.

The newcomer knows Kafka Streams, Spark, Faust or Quix, and guesses before looking anything up. Each row is such a guess. A text
next to it is what the error says (… stands for any text); a list is what the program writes to topic `out`. Programs run on one
record for each topic, with the key `a` and an order as value (`newcomer.py`). Guesses in tests and on the command line follow.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.front_door.newcomer import ORDER, forwarding, matches, name_of, processor, run_program, run_test, says

Row = tuple[str, "str | list[Any]"]

UNCHANGED = [("a", ORDER)]
COUNTED = [("a", 1)]

OPTIONS: list[Row] = [
    # An option object in the place of the name, a name in the place of the option object.
    ('stream.group_by_key().count(Materialized("c")).to_stream().to("out")', COUNTED),
    ('stream.group_by_key().count(Named("n"), Materialized("c")).to_stream().to("out")', COUNTED),
    ('stream.group_by_key().count(Materialized("c"), "n").to_stream().to("out")', COUNTED),
    ('stream.group_by_key().aggregate(int, lambda v, n: n + 1, Materialized("c")).to_stream().to("out")', COUNTED),
    ('stream.group_by_key().cogroup(lambda v, n: n + 1).aggregate(int, Materialized("c")).to_stream().to("out")', COUNTED),
    ('stream.group_by(lambda v: v["customer"], "by-customer").count().to_stream().to("out")', [("ann", 1)]),
    ('stream.group_by(lambda v: v["customer"], Grouped(name="by-customer")).count().to_stream().to("out")', [("ann", 1)]),
    ('builder.stream("in", Consumed("read"))', "and key_serde cannot be 'read': write name=... instead."),
    ('stream.to("out", Produced("written"))', "and key_serde cannot be 'written': write name=... instead."),
    ('stream.repartition(Repartitioned(name="again")).to("out")', UNCHANGED),
    ('stream.join(table, lambda left, right: right["n"], Joined(name="priced")).to("out")', [("a", 5)]),
    (
        'stream.join(builder.stream("o"), lambda left, right: 1, JoinWindows.of_time_difference_with_no_grace(5),'
        ' StreamJoined(name="both")).to("out")',
        COUNTED,
    ),
    ('builder.global_table("customers", Materialized("c"))\nstream.to("out")', UNCHANGED),
    # Keywords in place of an option object; a serde where an option object belongs; a class in place of a serde.
    ('builder.stream("in", value_serde=JsonSerde()).to("out")', UNCHANGED),
    ('stream.to("out", StringSerde())', "to() takes Produced(...) here, not the serde StringSerde: write key_serde=..."),
    ('builder.stream("in", value_serde=StringSerde)', "takes an object, not the class StringSerde: write StringSerde()"),
    ('builder.stream("in", Consumed(StringSerde, JsonSerde))', "takes an object, not the class StringSerde"),
    # Stores in the place of their names.
    (
        'builder.table("in", Materialized(Stores.persistent_versioned_key_value_store("p", timedelta(days=1))))',
        "For the store of a table, write Materialized('p', history_retention=...) instead.",
    ),
    (
        'builder.table("in", Materialized(Stores.versioned_store("p", StringSerde(), JsonSerde(), history_retention=9)))',
        "Materialized takes no store: give the store's name, as in Materialized('p'), … history_retention=...",
    ),
    ('builder.table("in", Materialized("p", history_retention=timedelta(days=1))).to_stream().to("out")', UNCHANGED),
    # Durations.
    ('TimeWindowedSerde(StringSerde(), timedelta(hours=1))\nstream.to("out")', UNCHANGED),
    ('TimeWindowedSerde(StringSerde(), "1h")', "windows must be a timedelta or whole milliseconds (int), not '1h'"),
]  # fmt: skip

ARGUMENTS: list[Row] = [
    # Kafka Streams' order of arguments.
    ('stream.join(customers, lambda v: "a", lambda left, right: right["n"]).to("out")', [("a", 5)]),
    ('stream.left_join(customers, lambda v: "b", lambda left, right: right).to("out")', [("a", None)]),
    (
        'table.left_join(builder.table("t"), lambda v: "a", lambda left, right: right["n"]).to_stream().to("out")',
        [("a", 5)],
    ),
    ('stream.group_by_key().count().to_stream(lambda key, count: key + "!").to("out")', [("a!", 1)]),
    # One name where several may stand.
    (
        """
topology = TopologyBuilder()
topology.add_source("orders", "in")
class Pass(Processor):
    def process(self, record):
        self.ctx.forward(record)
topology.add_processor("pass", Pass, "orders")
topology.add_state_store(Stores.key_value_store("s", StringSerde(), JsonSerde()), "pass")
topology.add_sink("done", "out", parents="pass")""",
        UNCHANGED,
    ),
    (
        'topology = TopologyBuilder()\ntopology.add_source("orders", "in")\ntopology.add_sink("done", "out", "order")',
        "'done' has the parent 'order', which does not exist. Known: orders.",
    ),
    # What does not fit together.
    ('stream.join(builder.stream("o"), lambda left, right: 1)', "A join of two streams needs JoinWindows, not None"),
    (
        'stream.join(table, lambda left, right: 1, JoinWindows.of_time_difference_with_no_grace(5))',
        "A join with a table takes no windows: the table's value at the time of the record counts.",
    ),
    ('stream.join(builder.table("t", key_serde=Int64Serde()), lambda left, right: 1)', "Read both with the same key serde"),
    ('stream.merge(StreamsBuilder().stream("o"))', "take streams and tables of one builder"),
    ('stream.split().branch(lambda v: True)\nbuilder.build()', "end it with default_branch() or no_default_branch()"),
    (
        'stream.group_by_key().count().suppress(Suppressed.until_window_closes())',
        "has no windows that could close: suppress it with Suppressed.until_time_limit(...)",
    ),
    (
        'stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(9)).count(Materialized("c", retention=5))',
        "its retention is 5 ms: leave the retention out",
    ),
    ('stream.filter(bool, "same").filter(bool, "same")', "Two nodes are called 'same', the first one in app.py, line 1."),
    (
        'group = stream.group_by_key()\ngroup.count()\ngroup.count()',
        "Two stores are called … the first one in app.py, line 2. The same call twice … Materialized(name=...)",
    ),
    ('builder.build()', "The topology reads no topic: begin with builder.stream(topic)"),
]  # fmt: skip

NAMES: list[Row] = [
    # Names of Kafka Streams, of its older versions and of other libraries; many more are in tests/dsl/test_migration_hints.py.
    ('stream.mapValues(len)', "KStream has no 'mapValues': use map_values(...)."),
    ('stream.group_by_key().count().to("out")', "a table is written by to_stream().to('topic')"),
    ('stream.count()', "group first, with group_by_key() or group_by(...), as in group_by_key().count()"),
    ('stream.through("x")', "use repartition(), or to('topic') followed by builder.stream('topic')"),
    ('stream.transform(len)', "use process(...), with a Processor"),
    ('stream.branch(len)', "use split().branch(predicate, Branched('name'))"),
    ('stream.fliter(len)', "did you mean filter or filter_not?"),
    ('assert Consumed.with_(StringSerde(), JsonSerde()) == Consumed(StringSerde(), JsonSerde())\nstream.to("out")', UNCHANGED),
    ('assert Materialized.as_("x") == Materialized(name="x")\nstream.to("out")', UNCHANGED),
    ('Joined(StringSerde(), JsonSerde(), JsonSerde())', "is too many: the other side of the join has its own serde."),
    ('builder.stream(None)', "stream() takes a topic's name, several names or a pattern, not None."),
    ('Stores.key_value_store("s", StringSerde(), JsonSerde()).build()', "it is the store already"),
    ('TimeWindows.of(5)', "use TimeWindows.of_size_with_no_grace(size), or of_size_and_grace(size, grace)"),
    ('SessionWindows.with_(5)', "use SessionWindows.of_inactivity_gap_with_no_grace(gap)"),
    ('SessionWindows.with_gap(5)', "use SessionWindows.of_inactivity_gap_with_no_grace(gap)"),
    ('assert streams.Serdes.Long() == Int64Serde() == streams.Serdes.long()\nstream.to("out")', UNCHANGED),
    ('TopologyBuilder().addSource("s", "in")', "use add_source(...)"),
    ('builder.run()', "build() gives the topology, and `streams run module:topology` runs it"),
    ('KStream[str, dict]\nstream.to("out")', UNCHANGED),
    ('assert streams.__version__\nstream.to("out")', UNCHANGED),
    ('raise ValueError(stream.map_values(len))', "KStream('in' → map_values)"),
    ('stream.to("out")\nraise ValueError(builder.build())', "Topology(1 sub-topology: in -> out)"),
]  # fmt: skip

FUNCTIONS: list[Row] = [
    ('stream.map_values(lambda v, k, z: 1)', "The value mapper '<lambda>(v, k, z)' cannot be called: it must take (value)"),
    ('stream.map(lambda k, v: v).to("out")', "map must give a tuple (key, value), it gave {'id': 7, … (app.py, line 1)"),
    ('stream.map(lambda k, v: None).to("out")', "map must give a tuple (key, value), it gave None (app.py, line 1)"),
    ('stream.flat_map_values(lambda v: None).to("out")', "must give a list of values, [] for none, it gave None (app.py, "),
    ('stream.flat_map(lambda k, v: (k, v)).to("out")', "must give a list of tuples (key, value), it gave 'a' (app.py, "),
    (
        'stream.map_values(lambda v: v["x"]).to("out")',
        "record at in-0 offset 0, key b'a', … KeyError: 'x' (app.py, line 1). … set the policy 'processing' to 'skip' or 'dlq'",
    ),
    # Aggregators take the value first, as in Java; reducers the aggregate, as in Java and Python.
    ('stream.group_by_key().aggregate(int, lambda acc, value: acc)', "with (value, aggregate), … swap them, or rename 'acc'"),
    ('stream.group_by_key().aggregate(int, lambda total, value: total)', "is called with (value, aggregate)"),
    ('stream.group_by_key().reduce(lambda value, acc: acc)', "is called with (aggregate, value), the aggregate first"),
    # Keys of other types than text.
    ('stream.group_by(lambda v: v["id"]).count()', "makes a key that is an int, 7, … key_serde=Int64Serde() in Grouped"),
    (
        'stream.group_by(lambda v: (v["id"], v["customer"])).count()',
        "makes a key that is a tuple, (7, 'ann'), … key_serde=TupleSerde(Int64Serde(), StringSerde()) in Grouped",
    ),
    ('stream.select_key(lambda v: v["id"]).to("out")', "'KSTREAM-KEY-SELECT-in' makes a key that is an int, 7, … or Produced"),
    ('stream.group_by(lambda v: v["id"], Grouped(Int64Serde())).count().to_stream().to("out")', [(7, 1)]),
    # Built-in aggregates of values without fields.
    ('lines.group_by_key().sum("n")', "are those of StringSerde, which have no fields: read them with JsonSerde"),
    ('numbers.group_by_key().aggregate(total=agg.sum("n"))', "are those of Int64Serde, which have no fields"),
    (
        'stream.map_values(lambda v: v["n"]).group_by_key().sum("n")',
        "record at in-0 offset 0 made … which has no fields: first turn it into a dict or an object",
    ),
    # Times.
    ('builder.stream("in", timestamp_extractor="at")', "for a field of the value, timestamp_field('at')"),
    ('builder.stream("in", timestamp_extractor=timestamp_field("at"))', "For ISO 8601 text: timestamp_field('at', unit='iso')"),
    ('builder.stream("in", timestamp_extractor=timestamp_field("at", unit="iso")).to("out")', UNCHANGED),
]  # fmt: skip

CLASSES: list[Row] = [
    # Classes of the program itself, as values.
    (
        """
@dataclass
class Order:
    n: int
orders = stream.map_values(lambda v: Order(v["n"])).group_by_key().reduce(lambda old, new: new)
orders.map_values(lambda order: order.n).to_stream().to("out")""",
        [("a", 5)],
    ),
    (
        """
@dataclass
class Order:
    n: int
stream.map_values(lambda v: Order(v["n"])).group_by_key().sum("n").to_stream().to("out")""",
        [("a", {"sum": 5})],
    ),
    (
        """
class Order:
    def __init__(self, n):
        self.n = n
stream.map_values(lambda v: Order(v["n"])).group_by_key().aggregate(int, lambda o, n: n + o.n).to_stream().to("out")""",
        [("a", 5)],
    ),
    (
        """
@dataclass
class Order:
    id: int
    n: int
    at: str
    customer: str
json = JsonSerde(Order)
assert json.deserialize("in", json.serialize("in", Order(1, 2, "", ""))) == Order(1, 2, "", "")
stream.to("out")""",
        UNCHANGED,
    ),
    # A serde of one's own that takes no headers.
    (
        """
class Mine:
    def serialize(self, topic, value): return value
    def deserialize(self, topic, data): return data
builder.stream("in", value_serde=Mine())""",
        "write def serialize(self, topic, value, headers=None)",
    ),
]

PLAIN = "key_value_store('s', StringSerde(), JsonSerde())"
TIMED = "timestamped_key_value_store('s', StringSerde(), JsonSerde())"
WINDOWS = "window_store('s', StringSerde(), JsonSerde(), retention=timedelta(hours=1))"

PROCESSORS: list[Row] = [
    # What goes out.
    (
        processor("return record"),
        "Mine.process returns Record(key='a', … results are forwarded, as in self.ctx.forward(",
    ),
    (processor("yield record"), "Mine.process returns a generator (it has a yield"),
    (processor("self.ctx.forward(key, record.value)"), "forward takes a Record, … forward(record.with_value(value))"),
    (processor("self.ctx.forward(record, 'rejected')"), "forwards to 'rejected', which is not a child of it. It has: "),
    (processor("self.ctx.forward(record.with_timestamp(datetime(2026, 1, 1)).with_headers({'a': 'b'}))"), UNCHANGED),
    # What is remembered.
    (
        processor("self.n += 1", in_init="self.n = 0"),
        "changes its attribute 'n' after init, … so that the change is lost. Keep it in a store (self.ctx.store(...))",
    ),
    ("raise ValueError(Processor.__doc__)", "created for every micro-batch, so its attributes remember nothing"),
    # The clocks.
    (
        processor("pass", "context.schedule(1000, 'STREAM_TIME', lambda t: context.forward(Record('p', t, t)))"),
        [("p", 1000)],
    ),
    (
        processor(
            "pass",
            "context.schedule(timedelta(seconds=1), PunctuationType.STREAM_TIME, lambda t: context.forward(Record('p', t, t)))",
        ),
        [("p", 1000)],
    ),
    (forwarding("1").replace("pass", "context.schedule(1000, 'WALL_CLOCK_TIME', print)", 1), COUNTED),
    (
        processor("pass", "context.schedule(1000, 'stream-time', print)"),
        "There is no punctuation type 'stream-time': use ",
    ),
    (
        processor("pass", "context.schedule(timedelta(seconds=1), print)"),
        "write schedule(interval, PunctuationType.STREAM_TIME",
    ),
    (processor("pass", "context.schedule('1s', 'stream_time', print)"), "must be a timedelta or whole milliseconds"),
    # Names of the context and of its stores, as Java has them.
    (processor("self.ctx.getStateStore('s')"), "has no attribute 'getStateStore', use get_state_store(...)"),
    (processor("self.ctx.commit()"), "the engine commits after every step, by itself"),
    (processor("self.ctx.offset()"), "use record_metadata.offset"),
    (processor("self.store.putAll([])", store=PLAIN), "has no attribute 'putAll', use put_all(...)"),
    # Stores.
    (processor("pass", "context.store('s')"), "asks for the store 's', … Connect it: process(..., stores=[...])"),
    (
        'class Mine(Processor):\n    def process(self, record): ...\nstream.process(Mine, "spend")',
        "uses the store 'spend', which does not exist. … add_state_store(Stores.key_value_store('spend'",
    ),
    (
        "class Mine(Processor):\n    def process(self, record): ...\nstream.process(Mine())",
        "such as the class or a lambda",
    ),
    (forwarding("self.store.get(key).value", TIMED, "self.store.put(key, 1)"), COUNTED),
    (forwarding("self.store.get(key).timestamp", TIMED, "self.store.put(key, 1, 7)"), [("a", 7)]),
    (forwarding("self.store.get(key)", PLAIN, "self.store.put(key, 1); self.store.delete(key)"), [("a", None)]),
    (forwarding("self.store.put_if_absent(key, 2)", PLAIN, "self.store.put(key, 1)"), COUNTED),
    (forwarding("self.store.approximate_num_entries()", PLAIN, "self.store.put_all({key: 5})"), COUNTED),
    (forwarding("self.store.fetch(key, 0)", WINDOWS, "self.store.put(key, 1, 0)"), COUNTED),
    (forwarding("list(self.store.fetch_all(0, 9))", WINDOWS, "self.store.put(key, 1, 0)"), [("a", [["a", 0, 1]])]),
    (forwarding("list(self.store.backward_all())", WINDOWS, "self.store.put(key, 1, 0)"), [("a", [["a", 0, 1]])]),
    (
        'builder.add_state_store(Stores.persistent_window_store("s", timedelta(hours=1), timedelta(minutes=1), False))',
        "lacks retention: write Stores.window_store('s', key_serde, value_serde, retention=..., window_size=...).",
    ),
    # What an IDE shows.
    (
        forwarding("[name for name in dir(self.store) if name[0] != '_']", WINDOWS),
        [
            (
                "a",
                [
                    "all",
                    "backward_all",
                    "backward_fetch",
                    "backward_fetch_all",
                    "fetch",
                    "fetch_all",
                    "fetch_range",
                    "name",
                    "put",
                ],
            )
        ],
    ),
    (forwarding("[name for name in ('attempt', 'hold', 'resume', 'expire') if hasattr(self.ctx, name)]"), [("a", [])]),
]


@pytest.mark.parametrize(
    ("code", "follows"),
    rows := [*OPTIONS, *ARGUMENTS, *NAMES, *FUNCTIONS, *CLASSES, *PROCESSORS],
    ids=map(name_of, rows),
)
def test_a_program_works_or_says_what_to_write(code: str, follows: str | list[Any]) -> None:
    if isinstance(follows, list):
        assert run_program(code) == follows
        return
    says(follows, lambda: run_program(code))


# --- What a newcomer writes with `TopologyTestDriver`, and what follows.
#
# A text is what the error says (… stands for any text); a list has what the last line gives. `driver` runs a program that writes
# topic `in` to topic `out` and counts it in each kind of store; `topic` and `out` are the ends of both (`newcomer.py`).

TESTS: list[tuple[str, Any]] = [
    # Topics.
    ('driver.create_input_topic("inn")', "the topology does not read a topic 'inn': it has 'in', 'prices'. Did you mean 'in'?"),
    ('driver.create_output_topic("outt")', "does not write a topic 'outt': it has 'out'. Did you mean 'out'?"),
    ('topic.pipe_input(5)\nout.read_value()', [5]),
    ('topic.pipe_input("a", 5)\nout.read_key_value()', [("a", 5)]),
    ('topic.pipe_value_list([1, 2])\nout.read_values_to_list()', [[1, 2]]),
    ('topic.pipe_input(TestRecord("a", 1, 1000))\nrepr(out.read_record())', ["TestRecord('a', 1, timestamp=1000)"]),
    ('topic.pipe_input("a", 5)\nsorted(driver.produced_topic_names())[0]', ["out"]),
    ('topic.pipe_input(timestamp=5)', "pipe_input needs a value: pipe_input(value) or pipe_input(key, value)"),
    ('out.read_value()', "topic 'out' has no more records; check is_empty or queue_size first"),
    # Times and headers.
    ('topic.pipe_input("a", 5, timedelta(seconds=1))\nout.read_record().timestamp', [1000]),
    ('topic.pipe_input("a", 5, datetime(1970, 1, 1, 0, 0, 1))\nout.read_record().timestamp', [1000]),
    ('topic.pipe_input("a", 5, "1s")', "a timestamp is whole milliseconds since the epoch (int), a datetime, or a timedelta"),
    ('topic.pipe_input("a", 5, headers={"x": b"y"})\nout.read_record().headers', [(("x", b"y"),)]),
    ('topic.pipe_input("a", 5, headers={"x": "y"})\nout.read_record().headers', [(("x", b"y"),)]),
    (
        'topic = driver.create_input_topic("in", auto_advance=timedelta(seconds=1))\n'
        'topic.pipe_value_list([1, 2])\n[record.timestamp for record in out.read_records_to_list()]',
        [[0, 1000]],
    ),
    ('driver.advance_wall_clock_time(timedelta(seconds=1))\ndriver.now_ms', [1000]),
    # Stores.
    ('topic.pipe_input("a", 5)\ndriver.get_key_value_store("counts").get("a")', [1]),
    ('topic.pipe_input("a", 5)\ndriver.get_store("counts").get("a").value', [1]),
    ('topic.pipe_input("a", 5)\nlist(driver.get_window_store("windowed").all())', [[("a", 0, 1)]]),
    ('topic.pipe_input("a", 5)\nlen(list(driver.get_store("windowed").all()))', [1]),
    ('topic.pipe_input("a", 5)\n[n for _, n in driver.get_session_store("sessions").fetch("a")]', [[1]]),
    ('driver.get_versioned_key_value_store("prices").get("a")', [None]),
    ('driver.get_key_value_store("windowed")', "use get_timestamped_window_store('windowed')"),
    ('driver.get_key_value_store("count")', "the topology has no store 'count': … Did you mean 'counts'?"),
    ('topic.pipe_input("a", 5)\ndriver.metrics()["KSTREAM-SOURCE-in"].records_in', [1]),
    # Settings, records that cannot be read, and Java's names.
    ('TopologyTestDriver(builder.build(), settings={"processing": "skip"}).close()', [None]),
    ('TopologyTestDriver(builder.build(), {"processing": "skip"}).close()', [None]),
    ('TopologyTestDriver(builder.build(), procesing="skip")', "no setting 'procesing' … Did you mean 'processing'"),
    ('TopologyTestDriver(builder.build(), processing="skpi")', "is 'fail' (the step fails), 'skip' (… or 'dlq'"),
    ('TopologyTestDriver(builder)', "takes a Topology, not a StreamsBuilder: write TopologyTestDriver(builder.build(), ...)"),
    ('topic.pipe_bytes(b"a", b"{bad")', "JsonSerde cannot read 4 bytes … set the policy 'deserialization' to 'skip' or 'dlq'"),
    ('topic.pipeInput("a", 5)', "TestInputTopic has no 'pipeInput': use pipe_input(...)."),
    ('out.readValue()', "TestOutputTopic has no 'readValue': use read_value(...)."),
    ('driver.getKeyValueStore("counts")', "use get_key_value_store(...)."),
    ('driver.advanceWallClockTime(5)', "use advance_wall_clock_time(...)."),
]  # fmt: skip


@pytest.mark.parametrize(("code", "follows"), TESTS, ids=map(name_of, TESTS))
def test_a_test_works_or_says_what_to_write(code: str, follows: str | list[Any]) -> None:
    if isinstance(follows, list):
        assert [run_test(code)] == follows
        return
    says(follows, lambda: run_test(code))


# --- What a newcomer types, and what the command line answers; nothing here needs a cluster.

PROGRAM = """
from streams import StreamsBuilder

def build():
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count("counts").to_stream().to("out")
    return builder.build()
"""
NOWHERE = "-b 127.0.0.1:1"

COMMANDS: list[tuple[str, int, str]] = [
    # The topology: a file, a module, or a name in one.
    ("describe newcomer.py", 0, "topics: [in]"),
    ("describe newcomer", 0, "topics: [in]"),
    ("describe newcomer:build", 0, "topics: [in]"),
    ("describe newcomers.py", 1, "there is no file newcomers.py. Did you mean 'newcomer.py'?"),
    ("describe newcomer:biuld", 1, "has no 'biuld'. Did you mean 'build'?"),
    # Names of commands, options and settings.
    ("descirbe newcomer.py", 2, "Did you mean 'describe'?"),
    ("start newcomer.py", 2, "No such command 'start'. Did you mean 'state' or 'status'?"),
    ("topic crate", 2, "Did you mean 'create'?"),
    ("run newcomer.py --task 3", 2, "No such option: --task (Possible options: --tasks)"),
    ("run newcomer.py --set taks=3", 1, "there is no such setting. Did you mean 'tasks'?"),
    ("run newcomer.py --set spark.spark.sql.x=3", 1, "Spark has no such setting; write spark.sql.x"),
    # Values of settings, and where they come from.
    ("run newcomer.py --trigger-interval-ms 5s --explain", 0, "trigger_interval_ms = 5000 # command line"),
    ("run newcomer.py --trigger-interval-ms soon --explain", 1, "write 500ms, 5s, 10m, 1h30m or 7d"),
    ("run newcomer.py --bad-records ignore", 2, "'ignore' is not one of 'fail', 'skip', 'dlq'"),
    ("run newcomer.py --processing-policy dlq --explain", 1, "an error policy is 'dlq', but dead_letter_topic is not set"),
    ("run newcomer.py --explain --json", 0, '"value": '),
    ("config newcomer.py", 0, "# "),
    # The application's id stands in the same place everywhere.
    (f"reset -a orders --dry-run {NOWHERE}", 1, "Kafka at 127.0.0.1:1 did not answer"),
    (f"reset orders --dry-run {NOWHERE}", 1, "Kafka at 127.0.0.1:1 did not answer"),
    ("describe newcomer.py --json", 0, '"'),
    ("diff newcomer.py newcomer.py", 1, "streams describe --format json"),
    # What was missing.
    ("check newcomer.py", 0, "nothing was found"),
    ("topic send --help", 0, "--timestamp … --header … --key-serde"),
    ("topic read --help", 0, "--follow … --limit … --offset … --partition … --timestamps … --headers … --json … --value-serde"),
    ("topic create --help", 0, "--replication … --config"),
    ("topic delete --help", 0, "Delete"),
    ("status --help", 0, "how far an application is behind"),
    ("init --help", 0, "project"),
    ("run --help", 0, "--deserialization-policy … --processing-policy … --production-policy"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def program(streams: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A program in the working directory; nobody waits long for a cluster that does not answer."""
    (tmp_path / "newcomer.py").write_text(PROGRAM)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("streams.cluster.admin.CONNECT_S", 0.5)
    yield
    sys.modules.pop("newcomer", None)


@pytest.mark.parametrize(("line", "code", "says"), COMMANDS, ids=[line for line, *_ in COMMANDS])
def test_a_command_works_or_says_what_to_write(streams, line: str, code: int, says: str) -> None:
    result = streams(*line.split())
    output = re.sub(r"[\s│]+", " ", result.output)
    assert (result.exit_code, matches(says, output)) == (code, True), result.output


@pytest.mark.parametrize("command", ["run", "reset", "diff", "topic send", "describe"])
def test_no_option_looks_like_a_choice_of_braces(streams, command: str) -> None:
    assert not re.search(r"\{[A-Z]|<bool>", streams(*command.split(), "--help").output)
