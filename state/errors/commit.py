"""Errors between Spark's checkpoint and Kafka's commits topic."""

from __future__ import annotations

from collections.abc import Sequence

from state.errors.base import ErrorKind, StreamsError


class CommitError(StreamsError):
    """Spark's checkpoint and Kafka's commits topic do not fit together."""


class CheckpointMismatchError(CommitError):
    """The last commit marker cannot be the one that Spark's checkpoint knows; nothing was written."""


class OpenTransactionError(CommitError):
    """A transaction is open on a partition that only this task writes, although all of the task's own are decided.

    Args:
        task: The task that found it.
        topic: The topic.
        partition: Its partition.
        stable: Last stable offset; records from here on cannot be read.
        end: End of the log.
    """

    def __init__(self, task: str, topic: str, partition: int, stable: int, end: int) -> None:
        super().__init__(
            f"{task}: a transaction is open on {topic}-{partition} from offset {stable} on (the log ends at {end}), although "
            f"this task is the only one to write there and all its transactions are decided: what this task has committed "
            f"may be hidden. Nothing was written. Either something else writes to this topic (see its rights), or brokers have "
            f"left a transaction hanging. `streams transactions --topic {topic}` shows it, with --abort-hanging it is ended; then "
            f"start again"
        )
        self.topic = topic
        self.partition = partition
        self.stable = stable
        self.end = end


class UnexpectedOffsetError(CommitError):
    """A record of a step landed elsewhere than at the end of the log that the step had seen. The step was not committed.

    Args:
        task: The task that found it.
        topic: The topic.
        partition: Its partition.
        expected: Offset of the step's last record there, by the end of the log before the step.
        found: The offset that the broker acknowledged, None = unknown.
    """

    kind = ErrorKind.TRANSIENT

    def __init__(self, task: str, topic: str, partition: int, expected: int, found: int | None) -> None:
        place = "the broker did not say where it is" if found is None else f"it is at {found}"
        super().__init__(
            f"{task}: the step's last record on {topic}-{partition} should be at offset {expected}, but {place}: there are records "
            f"that this task did not see when it decided what to do. The step was not committed; the next attempt looks "
            f"again. If this comes again, something else writes to this topic (see its rights), or the leader of the "
            f"partition is not the one that all brokers name (`kafka-topics.sh --describe --topic {topic}`)"
        )
        self.topic = topic
        self.partition = partition
        self.expected = expected
        self.found = found


class RoutingMismatchError(CommitError):
    """A repeated micro-batch gave a task other rows than the attempt that was committed.

    Rows are routed to tasks by key. If a function in front of the shuffle makes another key at each call, a row that one task has
    committed goes to another task in the next attempt, and is counted twice or not at all.

    Args:
        task: The task that found it.
        batch_id: Spark's number of the micro-batch.
        version: The committed step.
        keyed_by: Names of the nodes that change keys in front of the shuffle.
    """

    def __init__(self, task: str, batch_id: int, version: int, keyed_by: Sequence[str]) -> None:
        names = ", ".join(repr(name) for name in keyed_by) or "in front of the shuffle"
        super().__init__(
            f"{task}: batch {batch_id} was committed as step {version}, but now the functions of {names} gave its records "
            f"other keys, so other rows came to this task: records would be lost or counted twice. This task has written nothing. "
            f"These functions must give the same key for the same record each time (no clock, random number or lookup "
            f"that changes, and no other program while a batch is half committed): run the program that began this batch, or "
            f"correct them, or put `repartition()` behind them, which keeps the keys that were given first"
        )
        self.task = task
        self.batch_id = batch_id
        self.version = version
        self.keyed_by = list(keyed_by)


class MarkerFormatError(CommitError):
    """A record of the commits topic is not a marker that this version can read."""

    kind = ErrorKind.DATA
