"""Batches from outside Kafka, each task's part in one transaction: written once, whatever ends where. On the simulated Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from state.changelog import commits_topic
from state.columns import binary_column
from state.commit.decide import TaskIdentity
from state.commit.ingest import Rows, check_batch, check_rows, write_batch
from state.commit.ingest_batch import IngestBatch, digest_of
from state.errors import CheckpointMismatchError
from streams.application.ingests import keys_digest, last_markers, logged_batch, remake_checkpoint
from streams.checkpoint.files import LocalFiles
from streams.driver.ingest.writer import RowRecords
from streams.engine.graph.outputs import Outputs, SendBatch, UnlimitedTopics
from streams.engine.graph.settings import Policy, TaskSettings
from streams.errors import RecordFailedError, RegistryError
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import StringSerde
from streams.testing.simulation.kafka import SimulatedKafka
from streams.topology.graph.nodes import Ingest

TOPIC = "app-rows-repartition"
INGEST = Ingest("rows", 2, lambda spark: None, ("k",), StringSerde(), JsonSerde())


class DyingError(Exception):
    """Ends an attempt within a batch."""


@pytest.fixture
def kafka() -> SimulatedKafka:
    return SimulatedKafka({TOPIC: 2, commits_topic("app", "rows-ingest"): 2})


def rows(*values: str) -> Rows:
    data = binary_column([value.encode() for value in values])
    return Rows(data, data, np.arange(len(values), dtype=np.int64), len(values))


def write(
    kafka: SimulatedKafka, batch: int | IngestBatch, *values: str, task: int = 0, query: str = "q", dies: bool = False
) -> int | None:
    def parts() -> Iterator[Rows]:
        yield rows(*values)
        if dies:
            raise DyingError

    made = batch if isinstance(batch, IngestBatch) else IngestBatch(batch, logged(batch), 7)
    return write_batch(kafka, identity(task, query), TOPIC, 2, made, parts())


def identity(task: int, query: str = "q") -> TaskIdentity:
    return TaskIdentity("app", "rows-ingest", task, 2, query, "")


def logged(end: object) -> str:
    return f"v1\n{{}}\n{end}"


def ends(batch: int, end: object, before: object = None, keys: str = "by k") -> IngestBatch:
    """A batch with digests, as this version makes it."""
    return IngestBatch(batch, logged(end), 7, digest_of(logged(end)), digest_of(logged(before)) if batch else "", keys)


def check(kafka: SimulatedKafka, batch: IngestBatch, query: str = "q") -> list[int]:
    """The tasks that have written their part of the first batch of a run."""
    return sorted(check_batch(kafka, [identity(0, query), identity(1, query)], TOPIC, 2, batch))


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
    with pytest.raises(CheckpointMismatchError, match=f"task 0 of 2 of app/rows-ingest should write {told}"):
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
        write(kafka, IngestBatch(0, "", 7), "a", task=task)
    assert remake_checkpoint(files, INGEST, last_markers(kafka, INGEST, "app")) is None
    assert files.names("rows-ingest") == []


def test_a_batch_that_was_planned_again_with_another_end_is_refused_before_any_task_writes(
    kafka: SimulatedKafka,
) -> None:
    write(kafka, ends(0, 2), "a", task=0)
    write(kafka, ends(0, 2), "b", task=1)
    write(kafka, ends(1, 4, before=2), "c", task=0)
    assert check(kafka, ends(1, 4, before=2)) == [0]
    other_end, other_begin = ends(1, 9, before=2), ends(1, 4, before=1)
    with pytest.raises(
        CheckpointMismatchError, match=r"task 0 of 2 .* has last written batch 1 .* which ended elsewhere"
    ):
        check(kafka, other_end)
    with pytest.raises(
        CheckpointMismatchError, match=r"task 1 of 2 .* has last written batch 0 .* which ended elsewhere"
    ):
        check(kafka, other_begin)
    # A task itself finds it out, too: of a batch that is not the first one of a run.
    with pytest.raises(CheckpointMismatchError, match="which ended elsewhere"):
        write(kafka, other_end, "c", "d", task=0)
    assert written(kafka) == ["a", "b", "c"]


@pytest.mark.parametrize("noted", [logged(2), ""], ids=["with offsets", "without offsets"])
def test_markers_of_an_older_version_are_read(kafka: SimulatedKafka, noted: str) -> None:
    for task in (0, 1):
        write(kafka, IngestBatch(0, noted, 7), "a", task=task)
    assert check(kafka, ends(0, 2)) == [0, 1]
    assert check(kafka, ends(1, 4, before=2)) == []
    if noted:
        with pytest.raises(CheckpointMismatchError):
            check(kafka, ends(0, 3))


def test_a_half_written_batch_is_finished_only_by_the_same_keys_and_rows(kafka: SimulatedKafka) -> None:
    write(kafka, ends(0, 2), "a", task=0)
    with pytest.raises(CheckpointMismatchError, match="another key, key_serde, columns or partitions"):
        check(kafka, ends(0, 2, keys="by another"))
    found = check_batch(kafka, [identity(0), identity(1)], TOPIC, 2, ends(0, 2))[0]
    check_rows(identity(0), ends(0, 2), found, 1, 1 + 2**64)
    for records, hashes in ((2, 1), (1, 5)):
        with pytest.raises(CheckpointMismatchError, match="it has written 1 rows"):
            check_rows(identity(0), ends(0, 2), found, records, hashes)
    # Once all have written it, nothing depends on the keys any more.
    write(kafka, ends(0, 2), "b", task=1)
    assert check(kafka, ends(0, 2, keys="by another")) == [0, 1]


def test_what_decides_the_task_of_a_row_is_in_its_digest() -> None:
    columns = [("k", "int"), ("v", "string")]
    keyless = replace(INGEST, key=())
    changed = [
        replace(INGEST, key=("v",)),
        replace(INGEST, key_serde=JsonSerde()),
        replace(INGEST, partitions=3),
        keyless,
    ]
    assert len({keys_digest(one, columns) for one in (INGEST, *changed)}) == 5
    more = [*columns, ("w", "int")]
    assert keys_digest(INGEST, columns) == keys_digest(INGEST, more) != keys_digest(INGEST, [("k", "bigint")])
    assert keys_digest(keyless, columns) != keys_digest(keyless, more)


def test_rows_without_any_marker_are_refused(kafka: SimulatedKafka) -> None:
    batch = IngestBatch(0, "", 7)
    assert check(kafka, batch, "static") == []
    write(kafka, batch, "a", query="static")
    commits = commits_topic("app", "rows-ingest")
    kafka.delete_topic(commits)
    kafka.create_topic(commits, 2, "compact")
    with pytest.raises(
        CheckpointMismatchError, match=f"{TOPIC}-. has records in offsets .* {commits} was deleted or replaced"
    ):
        check(kafka, batch, "static")
    assert written(kafka) == ["a"]


def test_the_files_of_a_batch_count_not_only_the_number_that_is_logged_for_them(tmp_path) -> None:
    files = LocalFiles(str(tmp_path))
    digests = []
    for name, entry in (("0", b"a.json"), ("0", b"b.json"), ("0.compact", b"b.json")):
        files.write("q/offsets/0", b'v1\n{"batchTimestampMs":5}\n{"logOffset":0}')
        (tmp_path / "q/sources/0/0").unlink(missing_ok=True)
        files.write(f"q/sources/0/{name}", entry)
        digests.append(logged_batch(files, "q", 0).digest)
    assert digests[0] != digests[1] == digests[2]
    assert logged_batch(files, "q", 0) == IngestBatch(0, "", 5, digests[2])


def test_dead_letters_are_in_the_transaction_of_the_rows(kafka: SimulatedKafka) -> None:
    kafka.create_topic("dead", 1, "delete")
    letter = binary_column([b"bad"])
    part = replace(rows("a"), count=2, letters=SendBatch("dead", letter, letter, np.zeros(1, np.int64)))
    assert write_batch(kafka, identity(0), TOPIC, 2, ends(0, 2), [part]) == 2
    letters = kafka.columns("dead", 0)
    assert letters is not None
    assert letters.values.to_pylist() == [b"bad"]
    assert written(kafka) == ["a"]
    marker = check_batch(kafka, [identity(0), identity(1)], TOPIC, 2, ends(0, 2))[0]
    assert marker.counts == {"in": 2, "out": 1, "changelog": 0}


def test_a_row_that_cannot_be_written_meets_the_policy_and_old_times_become_1970(caplog) -> None:
    rows = [("k", "{}", -1), ("k", "x" * 2_000, 5), (None, "[1]", 7)]
    keys, values, times = zip(*rows, strict=True)
    arrays = [pa.array(keys), pa.array(values), pa.array(times), pa.array([1, 2, 3])]
    part = pa.RecordBatch.from_arrays(arrays, ["key", "value", "timestamp", "hash"])

    def made(policy: Policy) -> RowRecords:
        settings = TaskSettings("app", production=policy, dead_letter_topic="dead", max_record_bytes=1_000)
        return RowRecords(INGEST, Outputs(UnlimitedTopics(), settings), TOPIC, 0, 7)

    with pytest.raises(
        RecordFailedError, match=r"(?s)a row of a source outside Kafka, key b'k', .*'rows'.* has 2.* bytes"
    ):
        made("fail").of(part)
    for policy in ("skip", "dlq"):
        records = made(policy)
        found = records.of(part)
        assert (found.values.to_pylist(), found.timestamps.tolist(), found.hash, found.count) == (
            [b"{}", b"[1]"],
            [0, 7],
            6,
            3,
        )
        counted = {"skip": "skipped", "dlq": "dead_letters"}[policy]
        assert records.counters == {"early:rows": 1, "dropped:rows:production": 1, f"{counted}:production": 1}
        letters = [] if found.letters is None else found.letters.values.to_pylist()
        assert letters == ([b"x" * 2_000] if policy == "dlq" else [])
    assert "have times before 1970" in caplog.text


def test_an_error_that_is_not_of_the_row_stops_the_task_whatever_the_policy() -> None:
    class Away:
        def serialize(self, topic: str, value: object, headers: object = None) -> bytes:
            raise RegistryError("away")

        def deserialize(self, topic: str, data: bytes | None, headers: object = None) -> object:
            return data

    settings = TaskSettings("app", production="skip")
    records = RowRecords(replace(INGEST, value_serde=Away()), Outputs(UnlimitedTopics(), settings), TOPIC, 0, 7)
    arrays = [pa.array(["k"]), pa.array(["{}"]), pa.array([5]), pa.array([1])]
    with pytest.raises(RegistryError):
        records.of(pa.RecordBatch.from_arrays(arrays, ["key", "value", "timestamp", "hash"]))
