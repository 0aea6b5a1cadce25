"""What a small step of a live task costs its process: calls of functions and CPU time, without a broker.

    python -m benchmarks.small_step [--steps 2000] [--only lambda]

A task reads its own partition and commits every 100 ms, so with many partitions a step has few records, and costs what it costs
without any. Here one live task with its stores on the local disk makes steps of a given size; its Kafka only counts what it is
sent. The number of calls is the same on any machine and at any load; CPU time is the process's own. `benchmarks/small-step.md` has
figures.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from state.changelog import changelog_topic, commits_topic
from state.columns import RecordColumns
from state.commit.decide import TaskIdentity
from state.commit.protocols import Send
from state.commit.step import CommitStep
from state.kafka.key_hash import partition_for_key
from state.kafka.partitioner import choose_partitions
from state.kafka.topics import TopicInfo, TopicPartition
from state.restore.task_stores import TaskStateManager, WorkerMemory
from streams import BytesSerde, Consumed, JoinWindows, Materialized, Produced, StreamsBuilder, TimeWindows, agg
from streams.engine.graph.settings import TaskSettings
from streams.engine.live.task import LiveTask
from streams.engine.source.offsets import SourceOffsets, TopicOffsets
from streams.engine.source.topics import SourceSpec
from streams.engine.spark.warm_up import warm_up
from streams.engine.step.job import QueryJob
from streams.engine.step.step import TaskAccess
from streams.topology.plan import build_plan
from streams.topology.topology import Topology

APP = "small-step"
TASKS = 64
KEYS = 1_000
SIZES = (1, 5, 50)
_OWN = [key for number in range(KEYS * TASKS) if partition_for_key(key := b"key-%06d" % number, TASKS) == 0]
"""The keys of task 0."""
_BYTES: Any = Consumed(BytesSerde(), BytesSerde())
_TO_BYTES: Any = Produced(BytesSerde(), BytesSerde())


def with_lambda() -> Topology:
    """The last value of each key, by a function of the user."""
    builder = StreamsBuilder()
    store = Materialized(name="last", key_serde=BytesSerde(), value_serde=BytesSerde())
    last = builder.stream("in", _BYTES).group_by_key().aggregate(lambda: b"", lambda key, value, old: value, store)
    last.to_stream().to("out", _TO_BYTES)
    return builder.build()


def with_windows() -> Topology:
    """Count, mean and largest number of the records of each key and second, of JSON."""
    builder = StreamsBuilder()
    seconds = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(timedelta(seconds=1)))
    seconds.aggregate(n=agg.count(), mean=agg.mean("v"), s=agg.max("s")).to_stream().to("out")
    return builder.build()


def with_table() -> Topology:
    """A stream that looks up a table."""
    builder = StreamsBuilder()
    table = builder.table("table", _BYTES, Materialized(name="table", key_serde=BytesSerde(), value_serde=BytesSerde()))
    joined = builder.stream("in", _BYTES).left_join(table, lambda left, right: left + (right or b""))
    joined.to("out", _TO_BYTES)
    return builder.build()


def with_join() -> Topology:
    """Two streams, joined within a second."""
    builder = StreamsBuilder()
    left, right = builder.stream("in", _BYTES), builder.stream("other", _BYTES)
    within = JoinWindows.of_time_difference_with_no_grace(timedelta(seconds=1))
    left.join(right, lambda one, other: one + other, within).to("out", _TO_BYTES)
    return builder.build()


def without_state() -> Topology:
    """A filter and a map by functions of the user."""
    builder = StreamsBuilder()
    kept = builder.stream("in", _BYTES).filter(lambda key, value: True)
    kept.map_values(lambda value: value + b"!").to("out", _TO_BYTES)
    return builder.build()


TOPOLOGIES: Mapping[str, Callable[[], Topology]] = {
    "lambda": with_lambda,
    "windows": with_windows,
    "table": with_table,
    "join": with_join,
    "stateless": without_state,
}


class Counting:
    """A Kafka, and its producer, that only count what they are sent."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._known = {name: TopicInfo(f"id-of-{name}", TASKS) for name in topics}
        self._ends: dict[TopicPartition, int] = {}
        self._touched: set[TopicPartition] = set()

    def producer(self, transactional_id: str, kept: bool = False) -> Counting:
        return self

    def init_transactions(self) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, key: bytes, value: bytes, timestamp_ms: int) -> None:
        self._add(topic, partition, 1)

    def send_columns(
        self, topic: str, partitions: Any, keys: Any, values: Any, timestamps: Any, headers: Any = None
    ) -> None:
        if isinstance(partitions, int):
            self._add(topic, partitions, len(keys))

    def _add(self, topic: str, partition: int, count: int) -> None:
        place = topic, partition
        self._ends[place] = self._ends.get(place, 0) + count
        self._touched.add(place)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group_id: str) -> None: ...

    def flush(self) -> None: ...

    def delivered(self, topic: str, partition: int) -> int:
        return self._ends[topic, partition] - 1

    def commit(self) -> None:
        # The control record of the transaction.
        for place in self._touched:
            self._ends[place] += 1
        self._touched.clear()

    def again(self) -> bool:
        return True

    def close(self) -> None: ...

    def log_ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return {place: (end, end) for place, end in self.end_offsets(partitions).items()}

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self._ends.get(place, 0) for place in partitions}

    def begin_offset(self, partition: TopicPartition) -> int:
        return 0

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        return {topic: self._known[topic].topic_id for topic in topics}

    def describe_topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        return {name: self._known[name] for name in names}

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        return iter(())

    def partitions_for(self, send: Send, turn: int) -> Any:
        return choose_partitions(send.keys, TASKS, send.partition_keys, send.partitions, turn)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None: ...

    def delete_retention_ms(self, topic: str) -> int:
        return 86_400_000


class Given:
    """A reader that has what it was given."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic, self._partition = topic, partition
        self._waiting: list[RecordColumns] = []
        self.position = self._end = 0

    def give(self, records: int, time_ms: int) -> None:
        """Lets the next records arrive."""
        numbers = np.arange(self._end, self._end + records)
        self._end += records
        keys = pa.array([_OWN[number * 7 % len(_OWN)] for number in numbers.tolist()], pa.binary())
        values = pa.array(
            [(b'{"s":%d,"v":%d.5,"pad":"' % (n, n % 100)).ljust(98, b"x") + b'"}' for n in numbers.tolist()],
            pa.binary(),
        )
        times = np.full(records, time_ms)
        self._waiting.append(RecordColumns(self._topic, self._partition, numbers, times, keys, values, None))

    @property
    def at_end(self) -> bool:
        return not self._waiting

    def poll(self, max_records: int) -> list[RecordColumns]:
        given: list[RecordColumns] = []
        while self._waiting and max_records:
            one = self._waiting.pop(0)
            given.append(one.part(0, max_records))
            if len(one) > max_records:
                self._waiting.insert(0, one.part(max_records, len(one)))
            max_records -= len(given[-1])
            self.position = int(given[-1].offsets[-1]) + 1
        return given

    def wake(self, file: int) -> bool:
        return True

    def reopen(self) -> None: ...

    def close(self) -> None: ...


class Bench:
    """A task of a topology, and the readers of its partitions."""

    def __init__(self, topology: Topology, folder: Path, opened: ExitStack) -> None:
        (sub,) = build_plan(topology, APP).sub_topologies
        logs = [commits_topic(APP, sub.name), *(changelog_topic(APP, store) for store in sub.stores)]
        kafka: Any = Counting([*sub.topics, *logs, "out"])
        settings = TaskSettings(application_id=APP, partition_counts={"out": TASKS})
        source = SourceSpec(dict.fromkeys(sub.topics, "earliest"))
        job = QueryJob(sub, TASKS, settings, source, {}, folder, 60_000, 64 * 1024 * 1024, bulk_io=True)
        identity = TaskIdentity(APP, sub.name, 0, TASKS, "query", sub.topology_hash)
        specs = [node.spec for node in sub.stores.values()]
        stores = TaskStateManager(kafka, identity, specs, folder, memory=WorkerMemory())
        access = TaskAccess(CommitStep(identity, kafka, stores, job.crash), kafka, stores)
        ids = kafka.topic_ids(sub.topics)
        start = SourceOffsets({name: TopicOffsets(ids[name], (0,) * TASKS) for name in sub.topics})
        self.readers: list[Given] = []
        self.now_ms = 1_700_000_000_000
        self._task = opened.enter_context(
            LiveTask(
                job, access, start, "run", open_reader=self._open, wakes=0, clock=lambda: self.now_ms / 1000,
                read_tables=lambda *_: {},
            )
        )  # fmt: skip

    def _open(self, topic: str, partition: int, at: int) -> Given:
        self.readers.append(Given(topic, partition))
        return self.readers[-1]

    def give(self, records: int) -> None:
        self.now_ms += 100
        share, rest = divmod(records, len(self.readers))
        for number, reader in enumerate(self.readers):
            if count := share + (number < rest):
                reader.give(count, self.now_ms)

    def step(self) -> None:
        """A step with all that has arrived."""
        assert self._task.begin(self.now_ms), "records have arrived"
        self._task.commit()
        self._task.apply()


def measure(topology: Topology, records: int, steps: int, report: Path | None) -> tuple[float, float]:
    """Calls and CPU time (ms) of a step, the least of ten parts of them, since others use the machine, too."""
    with tempfile.TemporaryDirectory(prefix="small-step-") as folder, ExitStack() as opened:
        bench = Bench(topology, Path(folder), opened)
        for _ in range(200):
            bench.give(records)
            bench.step()
        # As workers do (`streams.driver.worker_main`): what stays is not searched for circles.
        gc.collect()
        gc.freeze()
        times = []
        for _ in range(10):
            spent = 0.0
            for _ in range(steps // 10):
                bench.give(records)
                began = time.process_time()
                bench.step()
                spent += time.process_time() - began
            times.append(spent / (steps // 10) * 1000)
        profile = cProfile.Profile()
        for _ in range(100):
            bench.give(records)
            profile.enable()
            bench.step()
            profile.disable()
        gc.unfreeze()
        if report is not None:
            profile.dump_stats(report)
        return pstats.Stats(profile).total_calls / 100, min(times)  # type: ignore[attr-defined]


def main(
    steps: Annotated[int, typer.Option(help="Steps of each size whose CPU time is measured.")] = 2_000,
    only: Annotated[str, typer.Option(help="Name of the only topology to measure.")] = "",
    profile: Annotated[str, typer.Option(help="File for the profile of the last steps, for `pstats`.")] = "",
) -> None:
    """Measure small steps; prints calls and CPU time of each."""
    warm_up()
    typer.echo("topology   records   calls  CPU, ms")
    for name, made in TOPOLOGIES.items():
        for records in SIZES if only in ("", name) else ():
            calls, cpu = measure(made(), records, steps, Path(profile) if profile else None)
            typer.echo(f"{name:10} {records:7}  {calls:6.0f}  {cpu:7.3f}")


if __name__ == "__main__":
    typer.run(main)
