"""The fixed cost of a step: small steps of windowed aggregation on the embedded broker, in one process and without Spark.

    python -m benchmarks.small_steps [--steps 240] [--records 1500] [--on-close]

At a low rate a micro-batch costs what its steps cost without records: fencing, the commit marker, the local store, the requests
of a transaction. `benchmarks/small-steps.md` has figures, and what has changed them. Wall time needs a quiet machine; CPU
seconds of the process compare well on any.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer

from benchmarks.harness.cluster import own_cluster
from state.changelog import changelog_topic, commits_topic
from state.columns import RecordColumns
from state.commit import step as commit_step
from state.commit.live import LiveKafka
from state.commit.marker import MarkerCopy
from state.commit.step import CommitStep
from state.kafka.admin import KafkaAdmin
from state.restore.task_stores import TaskStateManager, worker_memory
from state.stores.task_store import open_task_store
from state.tables.open_tables import open_tables
from state.tables.rocks_common import rocks_settings
from streams import EmitStrategy, StreamsBuilder, TimeWindows, Topology, agg
from streams.engine.graph.settings import TaskSettings
from streams.engine.source.offsets import OffsetRange
from streams.engine.source.topics import SourceSpec
from streams.engine.spark.warm_up import warm_up
from streams.engine.step.job import QueryJob
from streams.engine.step.read import PlannedRange, TaskRow, read_range
from streams.engine.step.step import BatchContext, run_step
from streams.topology.plan import build_plan
from topologies.records import create_topics

TASKS = 4
KEYS = 1_000
APPLICATION = "small-steps"
INPUT, RESULTS = "small-steps-input", "small-steps-results"
_SPILL_BYTES = 64 * 1024 * 1024


class CpuWatch(commit_step.StopWatch):
    """Notes the CPU seconds of each part of all steps, beside its duration."""

    cpu: dict[str, list[float]] = defaultdict(list)
    last = 0.0

    def lap(self, name: str) -> None:
        """See `StopWatch`."""
        now = time.process_time()
        CpuWatch.cpu[name].append(now - CpuWatch.last)
        CpuWatch.last = now
        super().lap(name)


def windows(on_close: bool) -> Topology:
    """Count, mean and largest number of the records of each key and second; perhaps once, when the second is over."""
    builder = StreamsBuilder()
    by_second = (
        builder.stream(INPUT).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(timedelta(seconds=1)))
    )
    if on_close:
        by_second = by_second.emit_strategy(EmitStrategy.on_window_close())
    by_second.aggregate(n=agg.count(), mean=agg.mean("v"), s=agg.max("s")).to_stream().to(RESULTS)
    return builder.build()


@contextmanager
def prepared(on_close: bool) -> Iterator[tuple[QueryJob, str]]:
    """The job of the topology on an empty cluster, and the id of its input topic."""
    sub = build_plan(windows(on_close), APPLICATION).sub_topologies[0]
    with tempfile.TemporaryDirectory(prefix="small-steps-") as folder, own_cluster(Path(folder) / "kafka") as cluster:
        client = cluster.client
        internal = [commits_topic(APPLICATION, sub.name), *(changelog_topic(APPLICATION, name) for name in sub.stores)]
        create_topics(client, [INPUT, RESULTS, *internal], TASKS)
        with KafkaAdmin(client) as admin:
            topic_id = admin.describe_topics([INPUT])[INPUT].topic_id
        settings, source = TaskSettings(application_id=APPLICATION), SourceSpec({INPUT: "earliest"})
        yield QueryJob(sub, TASKS, settings, source, client, Path(folder), 60_000, _SPILL_BYTES, bulk_io=True), topic_id


def rows_of(job: QueryJob, topic_id: str, batch: int, records: int, now_ms: int) -> list[TaskRow]:
    """The rows of a micro-batch, as its readers make them."""
    keys = pa.array([b"key-%06d" % key for key in range(KEYS)], pa.binary())
    offsets = np.arange(batch * records, (batch + 1) * records)
    values = pa.array([(b'{"s":%d,"v":%d.5,"pad":"' % (n, n % 100)).ljust(158, b"x") + b'"}' for n in offsets.tolist()])
    rows: list[TaskRow] = []
    for partition in range(TASKS):
        own = keys.take(pa.array((offsets * TASKS + partition) % KEYS))
        columns = RecordColumns(INPUT, partition, offsets, np.full(records, now_ms), own, values, None)
        span = OffsetRange(INPUT, partition, batch * records, (batch + 1) * records)
        rows += read_range(job, PlannedRange(f"b{batch}", topic_id, span, now_ms=now_ms), [columns])
    return rows


def step_of(job: QueryJob, task: int) -> CommitStep:
    """A step as `streams.engine.spark.worker` makes it."""
    kafka, identity = (
        LiveKafka(job.client, job.transaction_timeout_ms, outputs=job.outputs),
        job.identity(task, "query"),
    )
    specs = [node.spec for node in job.sub.stores.values()]
    settings, opened = rocks_settings(job.memory.cache_bytes), partial(open_task_store, kept=open_tables())
    stores = TaskStateManager(
        kafka, identity, specs, job.state_dir, job.spill_bytes, open_store=opened, settings=settings
    )
    return CommitStep(identity, kafka, stores, job.crash, worker_memory().compared)


def measure(steps: int, records: int, on_close: bool) -> dict[str, list[tuple[float, float]]]:
    """Part of a step -> its duration and CPU time (ms) in the second half of all steps."""
    warm_up()
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    copies: dict[int, MarkerCopy] = {}
    with prepared(on_close) as (job, topic_id):
        for number in range(steps):
            batch, task = divmod(number, TASKS)
            now_ms = int(time.time() * 1000)
            if task == 0:
                rows = rows_of(job, topic_id, batch, records, now_ms)
            CpuWatch.last = cpu = time.process_time()
            begun, step = time.perf_counter(), step_of(job, task)
            step.start_fencing(copies.get(task))
            own, context = [row for row in rows if row.task == task], BatchContext(batch, now_ms, "run")
            result, _ = run_step(job, step, context, own, copies.get(task), lambda ends: {})
            copies[task] = result.copy
            if number >= steps // 2:
                for part, seconds in result.seconds.items():
                    found[part].append((seconds * 1000, CpuWatch.cpu[part][-1] * 1000))
                found["step"].append(((time.perf_counter() - begun) * 1000, (time.process_time() - cpu) * 1000))
    return found


def main(
    steps: Annotated[int, typer.Option(help="Steps; the first half is not measured.")] = 240,
    records: Annotated[int, typer.Option(help="Records of each partition and micro-batch.")] = 1_500,
    on_close: Annotated[bool, typer.Option("--on-close", help="Emit each window once, when it closes.")] = False,
) -> None:
    """Measure the parts of small steps; prints the medians, ms."""
    commit_step.StopWatch = CpuWatch  # type: ignore[misc]
    typer.echo("part          wall      CPU")
    for part, times in measure(steps, records, on_close).items():
        wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
        typer.echo(f"{part:10} {wall:7.1f}  {cpu:7.1f}")


if __name__ == "__main__":
    typer.run(main)
