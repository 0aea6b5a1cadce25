"""Small applications to simulate, each with a plain model of its expected output, independent of the engine."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from random import Random
from typing import Any, Literal, NamedTuple

from state.changelog import changelog_topic, cleanup_policy
from streams import (
    Consumed,
    EmitStrategy,
    JoinWindows,
    JsonSerde,
    Materialized,
    Processor,
    Produced,
    Record,
    Retry,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
)
from streams.config import StreamsConfig
from streams.engine.step.job import QueryJob
from streams.testing.simulation import SimulatedKafka
from streams.topology.topology import Topology

APPLICATION = "app"
PARTITIONS = 2
SECOND = 1000
WINDOW_S = 60
LARGE = 1_000


class Input(NamedTuple):
    """A record for the application."""

    topic: str
    partition: int
    key: str
    number: int
    timestamp: int
    offset: int = -1
    variant: int = 0
    row: int | None = None
    """The row of its key in the global table."""

    @property
    def groups(self) -> list[str]:
        """The key by which each variant of a program counts the record, if the head makes the key."""
        return [f"g{self.number % 3}", f"g{self.number // 2 % 3}"]


def number_in(value: bytes | None) -> int:
    """The number of a record, also of one that cannot be read."""
    return int(re.findall(rb"\d+", value or b"")[-1])


Outputs = dict[bytes, list[bytes]]
"""Key -> values, in the order of the log."""


def never(record: Input) -> str | None:
    """No record fails."""
    return None


def _json(record: Input) -> bytes:
    return json.dumps({"groups": record.groups, "number": record.number}).encode()


@dataclass(frozen=True)
class Program:
    """An application.

    Attributes:
        name: The name for the log.
        inputs: The source topics.
        build: Builds the topology; the number is the variant, another version of the program with the same structure.
        expected: The model: the expected output for given inputs.
        order: Which values of a key have only one correct order: all, those from the same source partition, or none.
        settings: Settings of the application, and their possible values. If time matters, a micro-batch takes all existing
            input, so that nothing is ever late.
        encode: Makes the value of a record.
        fails: Makes the dead letters that a record leads to, by the settings: their stages.
        repeatable: Whether records may be processed again, in any order.
        clock: Whether records have the time at which they are written.
        timeless: Whether results do not depend on which records come first.
        may_be_live: Whether a sub-topology can run live.
        late: The inputs that are created later, and may be out of sight for a while.
    """

    name: str
    inputs: tuple[str, ...]
    build: Callable[[StreamsBuilder, int], None]
    expected: Callable[[Sequence[Input]], Outputs]
    order: Literal["key", "partition", "none"] = "key"
    settings: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    encode: Callable[[Input], bytes] = _json
    fails: Callable[[Input], str | None] = never
    repeatable: bool = False
    clock: bool = False
    timeless: bool = False
    may_be_live: bool = False
    late: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    def draw_settings(self, random: Random) -> dict[str, Any]:
        """Settings for one history."""
        return {name: random.choice(values) for name, values in self.settings.items()}

    def draw(self, random: Random, number: int) -> Input:
        """The next record; time advances by 20 s with each, so that nothing is late and windows end soon."""
        topic, key = random.choice(self.inputs), random.choice("abc")
        return Input(topic, random.randrange(PARTITIONS), key, number, (number + 1) * 20 * SECOND)


def _count(builder: StreamsBuilder, variant: int) -> None:
    grouped = builder.stream("in").group_by(lambda key, value: value["groups"][variant])
    grouped.count(materialized=Materialized("counts", caching=False)).to_stream().to("out")


def _window(builder: StreamsBuilder, variant: int) -> None:
    windows = TimeWindows.of_size_and_grace(timedelta(seconds=WINDOW_S), timedelta(seconds=WINDOW_S))
    counted = builder.stream("in").group_by_key().windowed_by(windows)
    counted.count(materialized=Materialized("windows", caching=False)).to_stream().to("out")


def _join(builder: StreamsBuilder, variant: int) -> None:
    near = JoinWindows.of_time_difference_with_no_grace(timedelta(seconds=WINDOW_S))
    # The variant declares its sources in the opposite order.
    streams = {name: builder.stream(name) for name in (("left", "right") if variant == 0 else ("right", "left"))}
    left, right = streams["left"], streams["right"]
    joined = left.join(right, lambda a, b: [a["number"], b["number"]], near, StreamJoined(name="joined"))
    joined.to("out")


class _Sometimes(Processor):
    """Fails on some records when it sees them for the first time, and on others each time."""

    def process(self, record: Record[str, dict[str, int]]) -> None:
        number = record.value["number"]
        if number % 4 == 3 or (number % 2 == 0 and self.ctx.topic == "in"):
            raise ValueError(str(number))
        self.ctx.forward(record.with_value(number))


def _retry(builder: StreamsBuilder, variant: int) -> None:
    # Without a delay, a record is due in the next micro-batch.
    retry = Retry([0, 0], dead_letters="dead", keep_order=True)
    builder.stream("in").process_values(_Sometimes, named="sometimes", on_error=retry).to("out")


def _broken(record: Input) -> bytes:
    return b"{ %d" % record.number if record.number % 8 == 1 else _json(record)


def _fails(record: Input) -> str | None:
    """Where a record fails; the variant mends what the program itself does wrong."""
    stage = {1: "deserialization", 3: "processing", 5: "processing", 7: "production"}.get(record.number % 8)
    return None if stage == "processing" and record.variant == 1 else stage


class _Counter(Processor):
    """Counts records by key, and sends their numbers; some are too large to be sent."""

    def __init__(self, variant: int) -> None:
        self.variant = variant

    def process(self, record: Record[str, dict[str, int]]) -> None:
        number = record.value["number"]
        if number % 8 == 5 and self.variant == 0:
            raise ValueError(str(number))
        store = self.ctx.get_state_store("numbers")
        store.put(record.key, (store.get(record.key) or 0) + 1)
        self.ctx.forward(record.with_value(f"{'-' * 1000 * (number % 8 == 7)}{number}"))


def _errors(builder: StreamsBuilder, variant: int) -> None:
    """Records fail while they are read, in the head, in a task, and while their results are sent."""

    def check(value: dict[str, int]) -> dict[str, int]:
        if value["number"] % 8 == 3 and variant == 0:
            raise ValueError(str(value["number"]))
        return value

    builder.add_state_store(Stores.key_value_store("numbers", StringSerde(), JsonSerde()))
    counted = builder.stream("in").map_values(check).process(lambda: _Counter(variant), "numbers")
    counted.to("out", Produced(value_serde=StringSerde()))


def _stages(builder: StreamsBuilder, variant: int) -> None:
    """Three sub-topologies, between them two repartition topics."""
    stream = builder.stream("in").group_by(lambda key, value: value["groups"][variant])
    for store, new_key in (("counts", lambda _, n: f"p{n % 2}"), ("parities", lambda _, n: f"r{n % 3}")):
        counts = stream.count(materialized=Materialized(store, caching=False)).to_stream()
        stream = counts.select_key(new_key).group_by_key()
    stream.count(materialized=Materialized("rests", caching=False)).to_stream().to("out")


class _Held(Processor):
    """Holds records until the clock has moved."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(SECOND, "wall_clock", self.send_all)

    def process(self, record: Record[str, dict[str, int]]) -> None:
        self.ctx.get_state_store("numbers").put(f"{record.key}{record.value['number']}", record.key)

    def send_all(self, now_ms: int) -> None:
        store = self.ctx.get_state_store("numbers")
        for name, key in list(store.all()):
            self.ctx.forward(Record(key, name[1:], now_ms))
            store.delete(name)


def _ticks(builder: StreamsBuilder, variant: int) -> None:
    builder.add_state_store(Stores.key_value_store("numbers", StringSerde(), StringSerde()))
    builder.stream("in").process(_Held, "numbers").to("out", Produced(value_serde=StringSerde()))


def _idle(builder: StreamsBuilder, variant: int) -> None:
    windows = TimeWindows.of_size_with_no_grace(timedelta(seconds=WINDOW_S))
    counted = builder.stream("in").group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.on_window_close())
    counted.count(materialized=Materialized("windows")).to_stream().to("out")


def _table(builder: StreamsBuilder, variant: int) -> None:
    table = builder.global_table("table", Consumed(StringSerde(), JsonSerde()), Materialized("rows"))
    pair = lambda value, row: [value["number"], row]  # noqa: E731
    builder.stream("in").left_join(table, lambda key, value: key, pair).to("out")


def _answers(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Another answer in each attempt, on which nothing may depend."""
    _asked.append(len(values))
    return [{**value, "answer": len(_asked)} for value in values]


_asked: list[int] = []


def _enrich(builder: StreamsBuilder, variant: int) -> None:
    counted = builder.stream("in").enrich(_answers, batch_size=2, named="ask").group_by_key()
    counted.count(materialized=Materialized("counts", caching=False)).to_stream().to("out")


def _by_key(source: str | re.Pattern[str]) -> Callable[[StreamsBuilder, int], None]:
    """Counts the records of some topics by their keys."""

    def build(builder: StreamsBuilder, variant: int) -> None:
        counted = builder.stream(source).group_by_key().count(materialized=Materialized("counts", caching=False))
        counted.to_stream().to("out")

    return build


class _Stamped(Processor):
    """Sends the event time of each record."""

    def process(self, record: Record[str, dict[str, int]]) -> None:
        self.ctx.forward(record.with_value(f"{record.timestamp}@{record.value['number']}"))


def _times(builder: StreamsBuilder, variant: int) -> None:
    def at(record: Any, partition_time: int) -> int:
        found: int = record.value.get("at", partition_time)
        return found

    stream = builder.stream("in", Consumed(timestamp_extractor=at)).process(_Stamped)
    stream.to("out", Produced(value_serde=StringSerde()))


def _some_have_a_time(record: Input) -> bytes:
    value = {"number": record.number}
    return json.dumps(value if record.number % 3 == 0 else {**value, "at": record.timestamp // 2}).encode()


def _expected_times(inputs: Sequence[Input]) -> Outputs:
    found: Outputs = defaultdict(list)
    newest: dict[int, int] = {}
    for each in sorted(inputs, key=lambda one: one.offset):
        if each.number % 3:
            newest[each.partition] = max(newest.get(each.partition, -1), each.timestamp // 2)
            time = each.timestamp // 2
        else:
            time = newest.get(each.partition, -1)
        if time >= 0:
            found[each.key.encode()].append(b"%d@%d" % (time, each.number))
    return found


def _large(record: Input) -> bytes:
    """Some values are larger than a micro-batch may be."""
    return _json(record).replace(b"}", b', "more": "%b"}' % (b"-" * (record.number % 4 * LARGE)))


def _counted(keys: Iterable[bytes]) -> Outputs:
    found: Outputs = defaultdict(list)
    for key in keys:
        found[key].append((len(found[key]) + 1).to_bytes(8, "big"))
    return found


def _expected_by_key(inputs: Sequence[Input]) -> Outputs:
    return _counted(each.key.encode() for each in inputs)


def _expected_counts(inputs: Sequence[Input]) -> Outputs:
    return _counted(each.groups[each.variant].encode() for each in inputs)


def _expected_windows(inputs: Sequence[Input]) -> Outputs:
    width = WINDOW_S * SECOND
    return _counted(each.key.encode() + (each.timestamp // width * width).to_bytes(8, "big") for each in inputs)


def _expected_pairs(inputs: Sequence[Input]) -> Outputs:
    found: Outputs = defaultdict(list)
    for left in inputs:
        for right in inputs:
            near = abs(left.timestamp - right.timestamp) <= WINDOW_S * SECOND
            if near and (left.topic, right.topic) == ("left", "right") and left.key == right.key:
                found[left.key.encode()].append(b"[%d,%d]" % (left.number, right.number))
    return found


def _expected_in_order(inputs: Sequence[Input]) -> Outputs:
    found: Outputs = defaultdict(list)
    for each in inputs:
        if each.number % 4 != 3:
            found[each.key.encode()].append(b"%d" % each.number)
    return found


def _expected_stages(inputs: Sequence[Input]) -> Outputs:
    """The order in which results of several tasks meet in a repartition topic decides nothing: only how many there are."""
    found = _expected_counts(inputs)
    for letter, rest in ((b"p", 2), (b"r", 3)):
        numbers = [int.from_bytes(n, "big") for of in found.values() for n in of]
        found = _counted(b"%b%d" % (letter, n % rest) for n in numbers)
    return found


def _expected_numbers(inputs: Sequence[Input]) -> Outputs:
    found: Outputs = defaultdict(list)
    for each in inputs:
        if _fails(each) is None:
            found[each.key.encode()].append(b"%d" % each.number)
    return found


def _expected_held(inputs: Sequence[Input]) -> Outputs:
    found: Outputs = defaultdict(list)
    for each in inputs:
        found[each.key.encode()].append(b"%d" % each.number)
    return found


def _expected_closed(inputs: Sequence[Input]) -> Outputs:
    return {key: counts[-1:] for key, counts in _expected_windows(inputs).items()}


def _expected_rows(inputs: Sequence[Input]) -> Outputs:
    found: Outputs = defaultdict(list)
    for each in inputs:
        found[each.key.encode()].append(b"[%d,%b]" % (each.number, b"null" if each.row is None else b"%d" % each.row))
    return found


SMALL = {"max_records_per_trigger": (3, 1000)}
COUNT = Program("count", ("in",), _count, _expected_counts, settings=SMALL, repeatable=True, may_be_live=True)
WINDOW = Program("window", ("in",), _window, _expected_windows, may_be_live=True)
JOIN = Program("join", ("left", "right"), _join, _expected_pairs, order="none", may_be_live=True)
RETRY = Program(
    "retry",
    ("in",),
    _retry,
    _expected_in_order,
    order="partition",
    fails=lambda one: "retry" if one.number % 4 == 3 else None,
    may_be_live=True,
)
ERRORS = Program(
    "errors",
    ("in",),
    _errors,
    _expected_numbers,
    order="none",
    settings={
        **SMALL,
        **dict.fromkeys(("deserialization", "processing", "production"), ("skip", "dlq")),
        "dead_letter_topic": ("dead",),
        "max_record_bytes": (1000,),
    },
    encode=_broken,
    fails=_fails,
    repeatable=True,
    timeless=True,
    may_be_live=True,
)
STAGES = Program("stages", ("in",), _stages, _expected_stages, settings=SMALL, repeatable=True, may_be_live=True)
TICKS = Program(
    "ticks",
    ("in",),
    _ticks,
    _expected_held,
    order="none",
    settings={"wall_clock_interval_ms": (SECOND,)},
    timeless=True,
    may_be_live=True,
)
IDLE = Program(
    "idle",
    ("in",),
    _idle,
    _expected_closed,
    settings={"wall_clock_interval_ms": (SECOND,), "idle_timeout_ms": (SECOND,)},
    clock=True,
    may_be_live=True,
)
TABLE = Program("table", ("in",), _table, _expected_rows, order="none", settings=SMALL, may_be_live=True)
ENRICH = Program(
    "enrich",
    ("in",),
    _enrich,
    _expected_by_key,
    settings=SMALL,
    timeless=True,
    may_be_live=True,
)
PATTERN = Program(
    "pattern", ("in-a", "in-b"), _by_key(re.compile("in-.*")), _expected_by_key, may_be_live=True, late=("in-b",)
)
LOST = Program(
    "lost", ("in",), _by_key("in"), _expected_by_key, settings={"on_lost_offsets": ("earliest",)}, may_be_live=True
)
TIMES = Program(
    "times",
    ("in",),
    _times,
    _expected_times,
    order="none",
    settings=SMALL,
    encode=_some_have_a_time,
    may_be_live=True,
)
LARGE_RECORDS = Program(
    "large",
    ("in",),
    _by_key("in"),
    _expected_by_key,
    settings={"max_bytes_per_trigger": (LARGE, 100 * LARGE)},
    encode=_large,
    may_be_live=True,
)
PROGRAMS = {
    program.name: program
    for program in (
        *(COUNT, WINDOW, JOIN, RETRY, STAGES, ERRORS, TICKS, IDLE, TABLE, ENRICH),
        *(PATTERN, LOST, TIMES, LARGE_RECORDS),
    )
}


@cache
def topology_of(program: str, variant: int) -> Topology:
    """The topology of a program."""
    builder = StreamsBuilder()
    PROGRAMS[program].build(builder, variant)
    return builder.build()


@cache
def config_of(tasks: int, settings: tuple[tuple[str, Any], ...]) -> StreamsConfig:
    """The settings of an application; event times have nothing to do with the clock."""
    given = {"max_future_ms": None, "base_dir": "/simulated", **dict(settings)}
    return StreamsConfig(application_id=APPLICATION, bootstrap_servers="simulated:1", tasks=tasks, **given)


def compact(kafka: SimulatedKafka, job: QueryJob, tombstones: bool = False) -> None:
    """Compacts the compacted changelogs, as the broker's cleaner would; after long enough even tombstones are gone."""
    for node in job.sub.stores.values():
        if "compact" in cleanup_policy(node.spec):
            for task in range(job.tasks):
                kafka.log(changelog_topic(APPLICATION, node.spec.name), task).compact(tombstones)


def clean_table(kafka: SimulatedKafka) -> None:
    """Compacts the global table after so long that even tombstones are gone."""
    for partition in range(PARTITIONS):
        kafka.log("table", partition).compact(tombstones=True)
