"""What a newcomer writes, and what follows: a result, or a sentence that says what to write instead.

The newcomer knows Kafka Streams, Spark, Faust or Quix, and guesses before looking anything up. Each row is such a guess. A text
beside it is what the error says (… stands for any text); a list is what the program writes to topic `out`. Programs run on one
record for each topic, with the key `a` and an order as value (`newcomer.py`). Guesses in tests and on the command line are in
`test_mistakes_in_tests.py` and `test_mistakes_on_the_command_line.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.front_door.newcomer import ORDER, forwarding, name_of, processor, run_program, says

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
    ('stream.group_by(lambda v: v["customer"], Grouped("by-customer")).count().to_stream().to("out")', [("ann", 1)]),
    ('builder.stream("in", Consumed("read")).to("out")', UNCHANGED),
    ('stream.to("out", Produced("written"))', UNCHANGED),
    ('stream.repartition(Repartitioned("again")).to("out")', UNCHANGED),
    ('stream.join(table, lambda left, right: right["n"], Joined("priced")).to("out")', [("a", 5)]),
    (
        'stream.join(builder.stream("o"), lambda left, right: 1, JoinWindows.of_time_difference_with_no_grace(5),'
        ' StreamJoined("both")).to("out")',
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
        'builder.table("in", Materialized(Stores.versioned_store("p", StringSerde(), JsonSerde(), timedelta(days=1))))',
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
        "has no windows: suppress it with Suppressed.until_time_limit(...)",
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
    ('stream.mapValues(len)', "KStream has no 'mapValues': here it is map_values(...)."),
    ('stream.group_by_key().count().to("out")', "a table is written by to_stream().to('topic')"),
    ('stream.count()', "group first, with group_by_key() or group_by(...), as in group_by_key().count()"),
    ('stream.through("x")', "here it is repartition(), or to('topic') followed by builder.stream('topic')"),
    ('stream.transform(len)', "here it is process(...), with a Processor"),
    ('stream.branch(len)', "here it is split().branch(predicate, Branched('name'))"),
    ('stream.fliter(len)', "did you mean filter or filter_not?"),
    ('assert Consumed.with_(StringSerde(), JsonSerde()) == Consumed(StringSerde(), JsonSerde())\nstream.to("out")', UNCHANGED),
    ('assert Materialized.as_("x") == Materialized(name="x")\nstream.to("out")', UNCHANGED),
    ('Joined(StringSerde(), JsonSerde(), JsonSerde())', "is too many. The other side of the join has its own serde."),
    ('builder.stream(None)', "stream() takes a topic's name, several names or a pattern, not None."),
    ('Stores.key_value_store("s", StringSerde(), JsonSerde()).build()', "it is the store already"),
    ('TimeWindows.of(5)', "here it is TimeWindows.of_size_with_no_grace(size), or of_size_and_grace(size, grace)"),
    ('SessionWindows.with_(5)', "here it is SessionWindows.of_inactivity_gap_with_no_grace(gap)"),
    ('SessionWindows.with_gap(5)', "here it is SessionWindows.of_inactivity_gap_with_no_grace(gap)"),
    ('assert streams.Serdes.Long() == Int64Serde() == streams.Serdes.long()\nstream.to("out")', UNCHANGED),
    ('TopologyBuilder().addSource("s", "in")', "here it is add_source(...)"),
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
        "record at in-0 offset 0 made … which has no fields: make a dict or an object of it",
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
WINDOWS = "window_store('s', timedelta(hours=1), timedelta(minutes=1), StringSerde(), JsonSerde())"

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
    (processor("self.ctx.getStateStore('s')"), "has no attribute 'getStateStore', here it is get_state_store(...)"),
    (processor("self.ctx.commit()"), "the engine commits after every step, by itself"),
    (processor("self.ctx.offset()"), "here it is record_metadata.offset"),
    (processor("self.store.putAll([])", store=PLAIN), "has no attribute 'putAll', here it is put_all(...)"),
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
        "lacks key_serde, value_serde: give key_serde=..., value_serde=...",
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
