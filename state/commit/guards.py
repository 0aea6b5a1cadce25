"""What a step checks before it believes what it assumes, each in a function of its own.

Why functions: each of these stands between a fault and silent loss, and none of them does anything while all is well. So
each can be switched off by itself, and a simulation must then find what it guards against. Others of the kind lie where
they belong: `decide.decide` (marker and checkpoint), `restore.plan` (changelogs and local state), `restore.proof` (digest of a
step), `restore.task_stores.may_trim`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from state.commit.decide import RESET, TaskIdentity, expected_version, mismatch
from state.commit.marker import NO_KEYS, ROUTING_FORMAT, CommitMarker, Routing
from state.commit.protocols import KafkaAccess, Producer, TopicPartition
from state.errors import OpenTransactionError, RoutingMismatchError, UnexpectedOffsetError


def fenced_producer(kafka: KafkaAccess, transactional_id: str) -> Producer:
    """A new producer that has fenced every other attempt: nothing older can be committed from now on.

    Raises:
        ProduceError: It could not; the producer is closed.
    """
    producer = kafka.producer(transactional_id)
    try:
        producer.init_transactions()
    except BaseException:
        producer.close()
        raise
    return producer


def check_decided(identity: TaskIdentity, ends: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """After fencing, no transaction is open where only this task writes: else a commit of its own could be hidden.

    Args:
        identity: The task.
        ends: Partition -> (last stable offset, end of the log).

    Raises:
        OpenTransactionError: One is.
    """
    for (topic, partition), (stable, end) in ends.items():
        if stable < end:
            raise OpenTransactionError(str(identity), topic, partition, stable, end)


def check_nothing_written(
    identity: TaskIdentity,
    kafka: KafkaAccess,
    changelogs: Mapping[str, TopicPartition],
    ends: Mapping[TopicPartition, int],
) -> None:
    """A task without any commit has no committed record in any changelog either: a task never starts empty by mistake.

    Args:
        identity: The task.
        kafka: Reads the changelogs.
        changelogs: Store -> its partition.
        ends: Partition -> last stable offset.

    Raises:
        CheckpointMismatchError: There is state, and nothing that says of when it is.
    """
    for store, place in changelogs.items():
        begin = kafka.begin_offset(place)
        if begin > 0:
            found = f"starts at offset {begin}, so records were written and trimmed"
        elif any(len(columns) for columns in kafka.read(*place, begin, ends[place])):
            found = f"has records in offsets [{begin}, {ends[place]})"
        else:
            continue
        raise mismatch(
            identity,
            f"neither Spark's checkpoint nor the commits topic knows a step of this task, but the changelog {place[0]}-{place[1]} "
            f"of store {store!r} {found}: the commits topic was deleted together with the checkpoint, or the sub-topology has "
            f"another name than when the state was written (a source or store was moved between sub-topologies), or something "
            f"else has written to the changelog",
            "Run the program as it was when it wrote the state, or restore the commits topic from a backup and run "
            "`streams adopt`. If the state is to be given up, " + RESET,
        )


def check_routing(identity: TaskIdentity, found: CommitMarker, routing: Routing, keyed_by: Sequence[str]) -> None:
    """A step that is committed already must have been given the same rows by keys that functions made.

    A range that has fewer records now (compaction has cleaned some of a compacted source) tells nothing of the functions.

    Args:
        identity: The task.
        found: The committed step.
        routing: As in the marker, of the keys as they were made now.
        keyed_by: Names of the nodes that make them.

    Raises:
        RoutingMismatchError: Rows have moved between tasks.
    """
    if found.format < ROUTING_FORMAT:
        return
    for topic in found.routing.keys() | routing.keys():
        then, now = found.routing.get(topic, {}), routing.get(topic, {})
        for partition in then.keys() | now.keys():
            records, digest = then.get(partition, (None, NO_KEYS))
            records_now, digest_now = now.get(partition, (None, NO_KEYS))
            cleaned = None not in (records, records_now) and records != records_now
            if digest != digest_now and not cleaned:
                raise RoutingMismatchError(str(identity), found.batch_id, found.version, keyed_by)


def check_not_passed_over(
    identity: TaskIdentity, found: CommitMarker, copy: CommitMarker | None, keyed_by: Sequence[str]
) -> None:
    """A task that was not called again, although it had committed records by keys that functions made, has lost them to others.

    Args:
        identity: The task.
        found: Its last marker.
        copy: Spark's copy; an older one: Spark has completed the micro-batch of `found` without this task.
        keyed_by: Names of the nodes that make keys.

    Raises:
        RoutingMismatchError: Other tasks may have processed these records, too.
    """
    keyed = any(digest != NO_KEYS for of in found.routing.values() for _, digest in of.values())
    if keyed and found.version > expected_version(copy, found):
        raise RoutingMismatchError(str(identity), found.batch_id, found.version, keyed_by)


def check_delivered(identity: TaskIdentity, producer: Producer, expected: Mapping[TopicPartition, int]) -> None:
    """The step's records are where the decision assumed the logs to end; asked before the commit, after a flush.

    Args:
        identity: The task.
        producer: Knows the brokers' answers.
        expected: Partition -> offset of the step's last record.

    Raises:
        UnexpectedOffsetError: There are records that the decision did not see.
    """
    for (topic, partition), offset in expected.items():
        found = producer.delivered(topic, partition)
        if found != offset:
            raise UnexpectedOffsetError(str(identity), topic, partition, offset, found)
