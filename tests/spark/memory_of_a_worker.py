"""What a Spark worker does under a backlog, without Spark: reads ranges, and processes one task's rows, several times.

    python -m tests.spark.memory_of_a_worker SERVERS TOPIC PARTITIONS RECORDS

Prints by how many MiB the process's memory has grown at its peak, after everything is imported.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa

from state.stores.task_store import open_task_store
from state.tables.rocks_common import rocks_settings
from streams import StreamsBuilder, TimeWindows, agg
from streams.engine.graph.settings import TaskSettings
from streams.engine.source.offsets import OffsetRange
from streams.engine.source.topics import SourceSpec
from streams.engine.spark.shuffle import shuffle_keys
from streams.engine.spark.warm_up import warm_up
from streams.engine.spark.worker import dump_job, read_partition
from streams.engine.step.job import ProcessMemory, QueryJob
from streams.engine.step.read import PlannedRange, StepRows
from streams.engine.task.task import StreamTask
from streams.topology.plan import build_plan

MIB = 2**20
STEPS = 3
ROUNDS = 3
"""How often a step reads each partition: as if it had so many times the records."""
TASKS = 4


def main(servers: str, topic: str, partitions: int, records: int) -> None:
    """Warms up, measures, works, and measures again."""
    warm_up()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    job = _job(servers, topic)
    payload = dump_job(job)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(STEPS):
            _step(job, payload, Path(folder), topic, partitions, records)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)


def _job(servers: str, topic: str) -> QueryJob:
    builder = StreamsBuilder()
    windowed = builder.stream(topic).group_by_key().windowed_by(TimeWindows.of_size_and_grace(1_000, 0))
    windowed.aggregate(n=agg.count(), mean=agg.mean("v")).to_stream().to("out")
    (sub,) = build_plan(builder.build(), "memory").sub_topologies
    client = {"bootstrap.servers": servers}
    settings = TaskSettings(application_id="memory")
    memory = ProcessMemory.of(256 * MIB, 2)
    source = SourceSpec({topic: "earliest"})
    return QueryJob(sub, TASKS, settings, source, client, Path(), 60_000, 32 * MIB, bulk_io=True, memory=memory)


def _step(job: QueryJob, payload: bytes, folder: Path, topic: str, partitions: int, records: int) -> None:
    own = shuffle_keys(TASKS)[0]
    rows: list[SimpleNamespace] = []
    for partition in [*range(partitions)] * ROUNDS:
        planned = PlannedRange("batch", "id", OffsetRange(topic, partition, 0, records))
        rows += [
            _row(batch) for batch in read_partition(payload, planned) if batch.column("task_key")[0].as_py() == own
        ]
    given = StepRows.of(rows)
    specs = [node.spec for node in job.sub.stores.values()]
    store = open_task_store(folder, specs, job.spill_bytes, rocks_settings(job.memory.cache_bytes))
    StreamTask(job.sub, 0, store, {}, job.settings).process(given.batches, now_ms=0)
    store.close()


def _row(batch: pa.RecordBatch) -> SimpleNamespace:
    return SimpleNamespace(**batch.to_pylist()[0])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
