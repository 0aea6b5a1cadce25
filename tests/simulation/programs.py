"""Small applications to simulate, each with a plain model of its expected output, independent of the engine."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from random import Random
from typing import Any, NamedTuple

from state.changelog.topics import changelog_topic, cleanup_policy
from streams import JoinWindows, Materialized, Processor, Record, Retry, StreamJoined, StreamsBuilder, TimeWindows
from streams.config import StreamsConfig
from streams.microbatch.job import QueryJob
from streams.testing.simulation import SimulatedKafka
from streams.topology.topology import Topology

APPLICATION = "app"
PARTITIONS = 2
SECOND = 1000
WINDOW_S = 60


class Input(NamedTuple):
    """A record for the application."""

    topic: str
    partition: int
    key: str
    number: int
    timestamp: int
    variant: int = 0

    @property
    def groups(self) -> list[str]:
        """The key by which each variant of a program counts the record, if the head makes the key."""
        return [f"g{self.number % 3}", f"g{self.number // 2 % 3}"]


Outputs = dict[bytes, list[bytes]]
"""Key -> values, in the order of the log."""


@dataclass(frozen=True)
class Program:
    """An application.

    Attributes:
        name: The name for the log.
        inputs: The source topics.
        build: Builds the topology; the number is the variant, another version of the program with the same structure.
        expected: The model: the expected output for given inputs.
        ordered: Whether the values of a key have only one correct order.
        limits: Sizes of micro-batches. If time matters, one takes all existing input, so that nothing is ever late.
        settings: The settings of the application.
    """

    name: str
    inputs: tuple[str, ...]
    build: Callable[[StreamsBuilder, int], None]
    expected: Callable[[Sequence[Input]], Outputs]
    ordered: bool = True
    limits: tuple[int, ...] = (1000,)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

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


def _stages(builder: StreamsBuilder, variant: int) -> None:
    """Three sub-topologies, between them two repartition topics."""
    stream = builder.stream("in").group_by(lambda key, value: value["groups"][variant])
    for store, new_key in (("counts", lambda _, n: f"p{n % 2}"), ("parities", lambda _, n: f"r{n % 3}")):
        counts = stream.count(materialized=Materialized(store, caching=False)).to_stream()
        stream = counts.select_key(new_key).group_by_key()
    stream.count(materialized=Materialized("rests", caching=False)).to_stream().to("out")


def _counted(keys: Iterable[bytes]) -> Outputs:
    found: Outputs = defaultdict(list)
    for key in keys:
        found[key].append((len(found[key]) + 1).to_bytes(8, "big"))
    return found


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


COUNT = Program("count", ("in",), _count, _expected_counts, limits=(3, 1000))
WINDOW = Program("window", ("in",), _window, _expected_windows)
JOIN = Program("join", ("left", "right"), _join, _expected_pairs, ordered=False)
RETRY = Program("retry", ("in",), _retry, _expected_in_order)
STAGES = Program("stages", ("in",), _stages, _expected_stages, limits=(3, 1000))
PROGRAMS = {program.name: program for program in (COUNT, WINDOW, JOIN, RETRY, STAGES)}


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


def compact(kafka: SimulatedKafka, job: QueryJob) -> None:
    """Compacts the compacted changelogs, as the broker's cleaner would."""
    for node in job.sub.stores.values():
        if "compact" in cleanup_policy(node.spec):
            for task in range(job.tasks):
                kafka.log(changelog_topic(APPLICATION, node.spec.name), task).compact()


def append(kafka: SimulatedKafka, record: Input) -> None:
    """Writes an input record."""
    value = json.dumps({"groups": record.groups, "number": record.number}).encode()
    kafka.append(record.topic, record.key.encode(), value, record.timestamp, partition=record.partition)
