"""The guarantees, verified after every run of a driver and at the end of a history."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from state.changelog import commits_topic
from state.commit.marker import CommitMarker
from state.restore.restorer import Restorer
from state.restore.task_stores import target_of
from state.stores.dump import state_digest
from state.stores.position import read_meta
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams.application.dead_letters import letters_of, read_replayed
from streams.config import StreamsConfig
from streams.engine.step.job import QueryJob
from streams.testing.simulation import SimulatedKafka
from tests.simulation.cluster import Cluster
from tests.simulation.programs import APPLICATION, PARTITIONS, Input, Outputs, Program, number_in

read_marker = lru_cache(100)(CommitMarker.from_bytes)
"""All markers are checked after each micro-batch."""


class Red(AssertionError):
    """The violation of a guarantee by the engine."""


def markers(kafka: SimulatedKafka, topic: str, task: int) -> list[bytes]:
    """All committed markers of a task, including those whose control record is not written yet."""
    entries = kafka.log(topic, task).entries
    return [
        entry.value or b"" for entry in entries if not entry.control and entry.span is not None and entry.span.decided
    ]


def outputs(kafka: SimulatedKafka) -> Outputs:
    """The records that a consumer of the output topic receives."""
    found: Outputs = defaultdict(list)
    for partition in range(PARTITIONS):
        columns = kafka.columns("out", partition)
        if columns is not None:
            for key, value in zip(columns.keys.to_pylist(), columns.values.to_pylist(), strict=True):
                found[key].append(value)
    return found


def check_invariants(cluster: Cluster, query: Any) -> None:
    """Versions without gaps; Spark <= Kafka <= Spark + 1; no local store ahead of Kafka."""
    job, state = query.job, {} if query.live else query.checkpoint.state
    for task in range(job.tasks):
        found = [read_marker(marker) for marker in markers(cluster.kafka, query.topic, task)]
        for before, marker in pairwise(found):
            # A marker that another query has taken over has the version of the last one.
            if marker.version != before.version + (marker.query_id == before.query_id):
                raise Red(f"task {task}: version {marker.version} after {before.version}")
        last = found[-1] if found else None
        version, known = (last.version, last.adopted) if last else (0, 0)
        if found and found[0].version != found[0].adopted + (found[0].batch_id >= 0 or found[0].live):
            raise Red(f"task {task}: the first version is {found[0].version}")
        if task in state:
            known = state[task].marker.version
        if not query.live and not known <= version <= known + 1:
            raise Red(f"task {task}: Spark at version {known}, Kafka at {version}")
        for host in cluster.hosts:
            table = host.disks.get((job.sub.name, task))
            step = read_meta(table).step if table is not None else None
            if step is not None and last is not None and step[0] == last.state_of and step[1] > version:
                raise Red(f"{table.location} holds version {step[1]}, Kafka {version}")


def check_outputs(kafka: SimulatedKafka, program: Program, inputs: Sequence[Input]) -> None:
    """Every input is in the outputs exactly once and in order, and the offsets are committed."""
    found, expected = outputs(kafka), program.expected(inputs)
    if _comparable(found, program, inputs) != _comparable(expected, program, inputs):
        raise Red(f"outputs {dict(found)}\nexpected {dict(expected)}")
    read = kafka.groups.get(APPLICATION, {})
    topics = [topic for topic in program.inputs if topic in kafka.topics]
    ends = kafka.end_offsets([(topic, p) for topic in topics for p in range(PARTITIONS)])
    # Where all that is left was lost, no task has a step that would tell the group.
    if any(max(read.get(place, 0), kafka.log(*place).begin) != end for place, end in ends.items()):
        raise Red(f"offsets of the group {read}, ends {ends}")


def _comparable(of: Outputs, program: Program, inputs: Sequence[Input]) -> dict[bytes, list[bytes]]:
    """The outputs, with values that may stand in any order sorted."""
    match program.order:
        case "none":
            return {key: sorted(values) for key, values in of.items()}
        case "partition":
            # A sort is stable: the values of a partition keep their order.
            partition = {one.number: one.partition for one in inputs}
            return {key: sorted(values, key=lambda one: partition[number_in(one)]) for key, values in of.items()}
    return dict(of)


def check_letters(kafka: SimulatedKafka, program: Program, config: StreamsConfig, inputs: Sequence[Input]) -> None:
    """Every record that has failed for good is one dead letter, and every replayed letter was sent once."""
    letters = [letter for partition in range(PARTITIONS) for letter in letters_of(kafka, ("dead", partition))]
    replayed = read_replayed(kafka, "dead")
    sent = [letter for letter in letters if replayed.has(letter.place[1], letter.offset)]
    failed = [one for one in inputs if getattr(config, program.fails(one) or "", "skip") == "dlq"]
    retried = [one.number for one in inputs if program.fails(one) == "retry"]
    # What comes back to an operator that retries fails there again.
    expected = Counter(map(_place, failed)) + Counter(retried)
    expected += Counter(number_in(letter.value) for letter in sent if letter.retry_topic)
    found = Counter(number_in(letter.value) if letter.retry_topic else letter.origin for letter in letters)
    if found != expected:
        raise Red(f"dead letters {found}\nexpected {expected}")
    topics = [topic for topic in program.inputs if topic in kafka.topics]
    entries = (kafka.log(topic, n).readable() for topic in topics for n in range(PARTITIONS))
    came_back = Counter(entry.value for of in entries for entry in of if entry.span is not None)
    if came_back != Counter(letter.value for letter in sent if not letter.retry_topic):
        raise Red(f"replayed {came_back}, of {[letter.value for letter in sent]}")


def _place(record: Input) -> str:
    return f"{record.topic}-{record.partition}@{record.offset}"


def check_end(cluster: Cluster, query: Any) -> None:
    """Once all is at rest, the state on each disk equals a fresh restore."""
    check_invariants(cluster, query)
    for task in range(query.job.tasks):
        _check_state(cluster, query.job, task)


def _check_state(cluster: Cluster, job: QueryJob, task: int) -> None:
    committed = markers(cluster.kafka, commits_topic(APPLICATION, job.sub.name), task)
    if not committed:
        return
    marker = read_marker(committed[-1])
    fresh = restored(cluster.kafka, job, task, MemoryTable(), marker)
    for host in cluster.hosts:
        table = host.disks.get((job.sub.name, task))
        if table is None or read_meta(table).step is None:
            continue
        live = restored(cluster.kafka, job, task, table, marker)
        for name in live.logged_stores:
            if state_digest(live, name) != state_digest(fresh, name):
                raise Red(f"store {name!r} of task {task} on {host.name} is not what its changelog gives")


def restored(kafka: SimulatedKafka, job: QueryJob, task: int, table: MemoryTable, marker: CommitMarker) -> TaskStore:
    """A task's stores, brought to a marker."""
    store = TaskStore(table, [node.spec for node in job.sub.stores.values()])
    Restorer(kafka, APPLICATION, task).restore_to(store, target_of(marker), kafka.now_ms)
    return store
