"""Any history of drivers that die within a batch, and of lost checkpoints, ends with each row once: a model of Spark's query."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from state.changelog.topics import commits_topic
from state.commit.decide import TaskIdentity
from state.commit.ingest import IngestBatch, Rows, write_batch
from state.kafka.columns import binary_column
from streams.application.ingests import last_markers, remake_checkpoint
from streams.checkpoint.files import LocalFiles
from streams.checkpoint.log import query_id_of, write_query_id
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import StringSerde
from streams.testing.simulation.kafka import SimulatedKafka
from streams.topology.ingest import Ingest

TASKS, TOPIC, FOLDER = 3, "app-rows-repartition", "rows-ingest"
INGEST = Ingest("rows", TASKS, lambda spark: None, ("k",), StringSerde(), JsonSerde())
ENDS_AT = TASKS + 2
"""Where a driver may die: before any task, behind each of them, behind Spark's own note; or not at all."""


class Query:
    """What Spark does with a query: it logs a batch, runs its tasks, and notes that the batch is done."""

    def __init__(self, root: Path) -> None:
        self.kafka = SimulatedKafka({TOPIC: 2, commits_topic("app", FOLDER): TASKS})
        self.files, self.root, self.starts = LocalFiles(str(root)), root, 0

    def numbers(self, folder: str) -> int:
        return max(map(int, self.files.names(f"{FOLDER}/{folder}")), default=-1)

    def start(self, batches: int, dies_at: int) -> None:
        """Runs batches, the last one up to the point at which the driver dies."""
        self.starts += 1
        if query_id_of(self.files, FOLDER) is None:
            remake_checkpoint(self.files, INGEST, last_markers(self.kafka, INGEST, "app"))
        if query_id_of(self.files, FOLDER) is None:
            write_query_id(self.files, FOLDER, f"query-{self.starts}")
        for number in range(batches):
            self.batch(dies_at if number == batches - 1 else ENDS_AT)

    def batch(self, dies_at: int) -> None:
        logged, done = self.numbers("offsets"), self.numbers("commits")
        batch = logged if logged > done else logged + 1
        # As Spark, which reads where the batch before has ended.
        assert batch == 0 or self.files.read(f"{FOLDER}/offsets/{batch - 1}") is not None
        self.files.write(f"{FOLDER}/offsets/{batch}", f"up to {batch}".encode())
        assert self.files.read(f"{FOLDER}/offsets/{batch}") == f"up to {batch}".encode()
        for task in range(min(dies_at, TASKS)):
            identity = TaskIdentity("app", FOLDER, task, TASKS, query_id_of(self.files, FOLDER) or "", "")
            data = binary_column([f"{batch}-{task}".encode()])
            rows = Rows(data, data, np.zeros(1, np.int64))
            write_batch(self.kafka, identity, TOPIC, 2, IngestBatch(batch, f"up to {batch}", 7), [rows])
        if dies_at > TASKS:
            self.files.write(f"{FOLDER}/commits/{batch}", b"done")

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.root / FOLDER, ignore_errors=True)

    def written(self) -> list[str]:
        found = [self.kafka.columns(TOPIC, partition) for partition in range(2)]
        return [value.decode() for columns in found if columns is not None for value in columns.values.to_pylist()]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, ENDS_AT), st.booleans()), max_size=8))
def test_any_history_ends_with_each_row_once(history: list[tuple[int, int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        query = Query(Path(folder))
        for batches, dies_at, loses in history:
            query.start(batches, dies_at)
            if loses:
                query.lose_checkpoint()
        query.start(2, ENDS_AT)
        last = query.numbers("commits")
        assert sorted(query.written()) == sorted(
            f"{batch}-{task}" for batch in range(last + 1) for task in range(TASKS)
        )
