"""Any history of drivers that die within a batch, and of checkpoints that are lost, rolled back or put back, ends with each row
once, on the simulated Kafka: a model of Spark's query over a table that grows.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from state.changelog import commits_topic
from state.columns import binary_column
from state.commit.decide import TaskIdentity
from state.commit.ingest import Rows, check_batch, write_batch
from state.errors import CheckpointMismatchError
from streams.application.ingests import last_markers, logged_batch, remake_checkpoint
from streams.checkpoint.files import LocalFiles, query_id_of, write_query_id
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import StringSerde
from streams.testing.simulation.kafka import SimulatedKafka
from streams.topology.graph.nodes import Ingest
from tests.budget import up_to

TASKS, TOPIC, FOLDER = 3, "app-rows-repartition", "rows-ingest"
INGEST = Ingest("rows", TASKS, lambda spark: None, ("k",), StringSerde(), JsonSerde())
ENDS_AT = TASKS + 2
"""Where a driver may die: before any task, behind each of them, behind Spark's own note; or not at all."""


class Query:
    """What Spark does with a query: it logs a batch, runs its tasks, and notes that the batch is done.

    A batch ends where the table ends when the batch is planned, so a batch that is planned twice may have other rows. The rows are
    the numbers from 0; a row's task is its remainder.
    """

    def __init__(self, root: Path) -> None:
        self.kafka = SimulatedKafka({TOPIC: 2, commits_topic("app", FOLDER): TASKS})
        self.files, self.root, self.starts, self.table = LocalFiles(str(root)), root, 0, 0

    def last(self, folder: str) -> int:
        return max(map(int, self.files.names(f"{FOLDER}/{folder}")), default=-1)

    def end(self, batch: int) -> int:
        return int((self.files.read(f"{FOLDER}/offsets/{batch}") or b"").split(b"\n")[2]) if batch >= 0 else 0

    def start(self, batches: int, dies_at: int, grows: int) -> None:
        """Runs batches, the last one up to the point at which the driver dies. Whoever is refused deletes the checkpoint."""
        self.starts += 1
        if query_id_of(self.files, FOLDER) is None:
            remake_checkpoint(self.files, INGEST, last_markers(self.kafka, INGEST, "app"))
        if query_id_of(self.files, FOLDER) is None:
            write_query_id(self.files, FOLDER, f"query-{self.starts}")
        for number in range(batches):
            self.table += grows
            try:
                self.batch(number == 0, dies_at if number == batches - 1 else ENDS_AT)
            except CheckpointMismatchError:
                event("refused")
                self.lose_checkpoint()
                return

    def batch(self, first: bool, dies_at: int) -> None:
        number = self.last("commits") + 1
        if self.last("offsets") < number:
            self.files.write(f"{FOLDER}/offsets/{number}", b'v1\n{"batchTimestampMs": 7}\n%d' % self.table)
        batch = logged_batch(self.files, FOLDER, number)
        rows = range(self.end(number - 1), self.end(number))
        query = query_id_of(self.files, FOLDER) or ""
        identities = [TaskIdentity("app", FOLDER, task, TASKS, query, "") for task in range(TASKS)]
        if first:
            check_batch(self.kafka, identities, TOPIC, 2, batch)
        for identity in identities[:dies_at]:
            own = [row for row in rows if row % TASKS == identity.task]
            data = binary_column([b"%d" % row for row in own])
            write_batch(self.kafka, identity, TOPIC, 2, batch, [Rows(data, data, np.zeros(len(own), np.int64))])
        if dies_at > TASKS:
            self.files.write(f"{FOLDER}/commits/{number}", b"done")

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.root / FOLDER, ignore_errors=True)

    def roll_back(self) -> None:
        """Loses what was logged of the last batch, as with the power, if it is not the last one to be known."""
        last = self.last("offsets")
        for folder in ("offsets", "commits") if last >= 0 else ():
            (self.root / FOLDER / folder / str(last)).unlink(missing_ok=True)

    def put_back(self) -> None:
        """Puts back the copy of the checkpoint that the last call has made, and makes one of what is there now."""
        copy, now = self.root / "copy", self.root / FOLDER
        if now.exists():
            now.rename(self.root / "now")
        if copy.exists():
            copy.rename(now)
        if (self.root / "now").exists():
            (self.root / "now").rename(copy)

    def written(self) -> list[int]:
        found = [self.kafka.columns(TOPIC, partition) for partition in range(2)]
        return sorted(int(value) for columns in found if columns is not None for value in columns.values.to_pylist())


FAULTS = {"none": lambda query: None, "lost": Query.lose_checkpoint, "rolled": Query.roll_back, "put": Query.put_back}
START = st.tuples(st.integers(1, 3), st.integers(0, ENDS_AT), st.integers(0, 4), st.sampled_from(sorted(FAULTS)))


@pytest.mark.slow
@up_to(60)
@given(st.lists(START, max_size=8))
def test_any_history_ends_with_each_row_once(history: list[tuple[int, int, int, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        query = Query(Path(folder))
        for batches, dies_at, grows, fault in history:
            query.start(batches, dies_at, grows)
            FAULTS[fault](query)
        # The first start may be refused, the second finds the checkpoint that was made again.
        for _ in range(2):
            query.start(2, ENDS_AT, 1)
        assert query.written() == list(range(query.table))
