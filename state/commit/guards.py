"""The assumptions of a step, each checked by a separate function.

Each guard prevents silent loss after one particular fault, and otherwise has no effect. Because they are separate, they can be
switched off one at a time, and a simulation must then detect the fault that the guard prevents. Other checks of this kind are in:
`decide.decide` (marker and checkpoint), `restore.plan` (changelogs and local state), `restore.proof` (digest of a step),
`restore.task_stores.may_trim`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from state.commit.decide import RESET, TaskIdentity, expected_version, mismatch
from state.commit.marker import NO_KEYS, ROUTING_FORMAT, CommitMarker, Routing
from state.commit.protocols import KafkaAccess, Producer, TopicPartition
from state.errors import OpenTransactionError, RoutingMismatchError, TopicNotFoundError, UnexpectedOffsetError


def fenced_producer(kafka: KafkaAccess, transactional_id: str, kept: bool = False) -> Producer:
    """A new producer that has fenced all other attempts, so that no older transaction can be committed from now on.

    Raises:
        ProduceError: Fencing failed; the producer is closed.
    """
    producer = kafka.producer(transactional_id, kept)
    try:
        producer.init_transactions()
    except BaseException:
        producer.close()
        raise
    return producer


def check_decided(task: TaskIdentity | str, ends: Mapping[TopicPartition, tuple[int, int]]) -> None:
    """Checks that, after fencing, no transaction is open where only this task writes: it could hide a commit of the task."""
    for (topic, partition), (stable, end) in ends.items():
        if stable < end:
            raise OpenTransactionError(str(task), topic, partition, stable, end)


def id_of(kafka: KafkaAccess, topic: str) -> str:
    """Kafka's current id of a topic. A topic that was created again (`streams rescale`, `reset`) may end where the old one did."""
    found = kafka.describe_topics([topic])
    if topic not in found:
        raise TopicNotFoundError(topic)
    return found[topic].topic_id


def check_nothing_written(
    identity: TaskIdentity,
    kafka: KafkaAccess,
    changelogs: Mapping[str, TopicPartition],
    ends: Mapping[TopicPartition, int],
) -> None:
    """Checks that a task without a commit has no committed changelog records either: no task starts empty by mistake.

    Raises:
        CheckpointMismatchError: There is state, but no marker that says which step it belongs to.
    """
    for store, place in changelogs.items():
        found = traces_of(kafka, place, ends[place])
        if found is None:
            continue
        raise mismatch(
            identity,
            f"neither Spark's checkpoint nor the commits topic knows a step of this task, but the changelog {place[0]}-{place[1]} "
            f"of store {store!r} {found}: the commits topic was deleted together with the checkpoint, or the sub-topology has "
            f"another name than when the state was written (a source or store was moved between sub-topologies), or something "
            f"else has written to the changelog",
            "Run the program as it was when it wrote the state, or restore the commits topic from a backup and run "
            "`streams adopt`. To give up the state, " + RESET,
        )


def check_is_last(
    identity: TaskIdentity,
    kafka: KafkaAccess,
    changelogs: Mapping[str, TopicPartition],
    marker: CommitMarker,
    ends: Mapping[TopicPartition, int],
) -> None:
    """Checks that no changelog has records of a later step than the last marker's: then markers are lost.

    A step's records and its marker are committed together. Micro-batches also know the last step from Spark's checkpoint; live
    steps are logged nowhere else. After the records of the marker's step, there may be its control record, and aborted attempts. A
    further record would not be alone, because it has its own control record.

    Raises:
        CheckpointMismatchError: There are such records. The lost steps would be repeated, and their results written twice.
    """
    if not marker.version:
        return check_nothing_written(identity, kafka, changelogs, ends)
    for store, place in changelogs.items():
        begin, end = marker.changelog_ends.get(store), ends[place]
        if begin is None or end - begin < 2 or not _has_records(kafka, place, begin, end):
            continue
        raise mismatch(
            identity,
            f"the last commit in the commits topic is version {marker.version}, but the changelog {place[0]}-{place[1]} of store "
            f"{store!r} has committed records of a later step in offsets [{begin}, {end}): the commits topic has lost its last "
            "records, as when a broker that lacked them became the leader (unclean.leader.election.enable)",
            "Restore the commits topic from a backup; without one, " + RESET,
        )


def traces_of(kafka: KafkaAccess, place: TopicPartition, end: int) -> str | None:
    """Describes the signs that something was once committed to a partition; None: there are none."""
    begin = kafka.begin_offset(place)
    if begin > 0:
        return f"starts at offset {begin}, so records were written and trimmed"
    return f"has records in offsets [{begin}, {end})" if _has_records(kafka, place, begin, end) else None


def _has_records(kafka: KafkaAccess, place: TopicPartition, begin: int, end: int) -> bool:
    return any(len(columns) for columns in kafka.read(*place, begin, end))


def check_routing(identity: TaskIdentity, found: CommitMarker, routing: Routing, keyed_by: Sequence[str]) -> None:
    """Checks that function-made keys have brought a repeated step the same rows as the attempt that committed.

    A range that has fewer records than then (compaction has removed some) proves nothing about the functions and is ignored.
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
    """Checks, if a task has committed records by function-made keys, that the repeated micro-batch has not left the task out."""
    keyed = any(digest != NO_KEYS for of in found.routing.values() for _, digest in of.values())
    if keyed and found.version > expected_version(copy, found):
        raise RoutingMismatchError(str(identity), found.batch_id, found.version, keyed_by)


def check_delivered(identity: TaskIdentity, producer: Producer, expected: Mapping[TopicPartition, int]) -> None:
    """Checks, after a flush and before the commit, that the step's records landed at the log ends that the decision assumed."""
    for (topic, partition), offset in expected.items():
        found = producer.delivered(topic, partition)
        if found != offset:
            raise UnexpectedOffsetError(str(identity), topic, partition, offset, found)
