"""Batches from outside Kafka, each task's part in one transaction: written once, whatever ends where. On the simulated Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from state.changelog.topics import commits_topic
from state.commit.decide import TaskIdentity
from state.commit.ingest import IngestBatch, Rows, write_batch
from state.errors import CheckpointMismatchError
from state.kafka.columns import binary_column
from streams.application.ingests import last_markers, remake_checkpoint
from streams.checkpoint.files import LocalFiles
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import StringSerde
from streams.testing.simulation.kafka import SimulatedKafka
from streams.topology.ingest import Ingest

TOPIC = "app-rows-repartition"
INGEST = Ingest("rows", 2, lambda spark: None, ("k",), StringSerde(), JsonSerde())


class DyingError(Exception):
    """Ends an attempt within a batch."""


@pytest.fixture
def kafka() -> SimulatedKafka:
    return SimulatedKafka({TOPIC: 2, commits_topic("app", "rows-ingest"): 2})


def rows(*values: str) -> Rows:
    data = binary_column([value.encode() for value in values])
    return Rows(data, data, np.arange(len(values), dtype=np.int64))


def write(
    kafka: SimulatedKafka, batch: int, *values: str, task: int = 0, query: str = "q", dies: bool = False
) -> int | None:
    def parts() -> Iterator[Rows]:
        yield rows(*values)
        if dies:
            raise DyingError

    identity = TaskIdentity("app", "rows-ingest", task, 2, query, "")
    return write_batch(kafka, identity, TOPIC, 2, IngestBatch(batch, f"v1\n{{}}\n{batch}", 7), parts())


def written(kafka: SimulatedKafka) -> list[str]:
    found = [kafka.columns(TOPIC, partition) for partition in range(2)]
    return sorted(value.decode() for columns in found if columns is not None for value in columns.values.to_pylist())


def test_a_batch_that_runs_again_writes_nothing(kafka: SimulatedKafka) -> None:
    assert write(kafka, 0, "a", "b") == 2
    assert write(kafka, 0, "a", "b") is None
    assert write(kafka, 1, "c") == 1
    assert write(kafka, 1, "c") is None
    assert written(kafka) == ["a", "b", "c"]


def test_an_attempt_that_ends_within_a_batch_leaves_nothing(kafka: SimulatedKafka) -> None:
    with pytest.raises(DyingError):
        write(kafka, 0, "a", "b", dies=True)
    assert write(kafka, 0, "a", "b") == 2
    assert written(kafka) == ["a", "b"]


def test_each_task_finds_its_own_part_of_a_batch_that_only_some_have_written(kafka: SimulatedKafka) -> None:
    assert write(kafka, 0, "a", task=0) == 1
    assert write(kafka, 0, "a", task=0) is None
    assert write(kafka, 0, "b", task=1) == 1
    assert written(kafka) == ["a", "b"]


@pytest.mark.parametrize(
    ("batch", "query", "told"),
    [
        (0, "another", "batch 0 of query another, but has last written batch 1 of query q"),
        (3, "q", "batch 3 of query q, but has last written batch 1"),
        (0, "q", "batch 0 of query q, but has last written batch 1"),
    ],
    ids=["another checkpoint", "a batch left out", "a checkpoint rolled back"],
)
def test_a_checkpoint_that_does_not_fit_is_refused(kafka: SimulatedKafka, batch: int, query: str, told: str) -> None:
    write(kafka, 0, "a")
    write(kafka, 1, "b")
    with pytest.raises(CheckpointMismatchError, match=f"task 0 of 2 of app/rows-ingest is to write {told}"):
        write(kafka, batch, "c", query=query)
    assert written(kafka) == ["a", "b"]


def test_lost_commits_are_refused(kafka: SimulatedKafka) -> None:
    with pytest.raises(CheckpointMismatchError, match="has last written no batch"):
        write(kafka, 4, "a")


def test_a_lost_checkpoint_is_made_again_behind_the_last_batch(kafka: SimulatedKafka, tmp_path) -> None:
    for batch in (0, 1):
        for task in (0, 1):
            write(kafka, batch, f"{batch}{task}", task=task)
    files = LocalFiles(str(tmp_path))
    assert remake_checkpoint(files, INGEST, last_markers(kafka, INGEST, "app")) == 1
    assert files.read("rows-ingest/metadata") == b'{"id":"q"}'
    assert files.names("rows-ingest/offsets") == ["0", "1"]
    assert files.names("rows-ingest/commits") == ["1"]
    assert files.read("rows-ingest/offsets/1") == b"v1\n{}\n1"
    # It is there now.
    assert remake_checkpoint(files, INGEST, last_markers(kafka, INGEST, "app")) is None


def test_a_batch_that_only_some_tasks_have_written_runs_again_from_a_checkpoint_made_again(
    kafka: SimulatedKafka, tmp_path
) -> None:
    for task in (0, 1):
        write(kafka, 0, f"0{task}", task=task)
    write(kafka, 1, "10", task=0)
    files = LocalFiles(str(tmp_path))
    assert remake_checkpoint(files, INGEST, last_markers(kafka, INGEST, "app")) == 1
    assert files.names("rows-ingest/offsets") == ["0", "1"]
    assert files.names("rows-ingest/commits") == ["0"]


def test_the_first_batch_runs_again_where_only_some_tasks_have_written_it(kafka: SimulatedKafka, tmp_path) -> None:
    write(kafka, 0, "00", task=0)
    files = LocalFiles(str(tmp_path))
    assert remake_checkpoint(files, INGEST, last_markers(kafka, INGEST, "app")) == 0
    assert files.names("rows-ingest/offsets") == ["0"]
    assert files.names("rows-ingest/commits") == []


def test_no_checkpoint_is_made_of_nothing_or_of_offsets_that_do_not_lead_back(kafka: SimulatedKafka, tmp_path) -> None:
    files = LocalFiles(str(tmp_path))
    assert remake_checkpoint(files, INGEST, last_markers(kafka, INGEST, "app")) is None
    for task in (0, 1):
        identity = TaskIdentity("app", "rows-ingest", task, 2, "q", "")
        write_batch(kafka, identity, TOPIC, 2, IngestBatch(0, "", 7), [rows("a")])
    assert remake_checkpoint(files, INGEST, last_markers(kafka, INGEST, "app")) is None
    assert files.names("rows-ingest") == []
