"""Errors of the streams package, for people: what happened, where, and what to do.

::

    StreamsError                     (state.errors: the one base of everything the project raises)
    ├── TopologyError                the topology is wrong: change the program
    │   └── UnknownNameError         no such method, option or name: the error gives the name used here, or a similar one
    ├── TopologyMismatchError        a program with another structure wrote the state: run that one, or start over
    ├── ResetUnfinishedError         a reset has deleted only a part of the application's topics and files
    ├── AlreadyRunningError          another process runs the application: stop it first
    ├── RescaleError                 the number of tasks cannot be changed like this, or not now: nothing was replaced
    ├── RescaleUnfinishedError       a rescale was started and not finished
    ├── ConfigError                  a setting is wrong: change the configuration
    │   └── DeltaMissingError        the Spark session was started without Delta Lake, which the topology needs
    ├── EnrichError                  a function of enrich() cannot be used: no record is at fault, no policy applies
    ├── RegistryError                the schema registry does not answer, or refuses: no record is at fault, no policy applies
    ├── RangeTooLargeError           a micro-batch holds far more bytes than it was planned for
    ├── ValueNotPicklableError       a value cannot be sent to the tasks: the program is at fault, no policy applies
    ├── OperatorStateError           `ctx.state` of the operators does not fit into the commit marker
    ├── LakeError                    a lake sink cannot continue: its table, its internal topic or another writer is in the way
    │   ├── LakePositionError        the table and the sink's internal topic no longer fit together
    │   ├── LakeSchemaError          the table's columns differ from the sink's
    │   ├── LakeConflictError        another instance writes for the same sink, or other writers keep the table busy
    │   └── SinkUnavailableError     the store of a sink does not answer: it is opened again until it does
    ├── ServeError                   a read of a served store gave no rows: the base of the four below
    │   ├── QueryError               the request asks for something that the store cannot answer
    │   ├── StoreNotReadyError       no copy here can be read yet
    │   ├── NotUpToBoundError        the copy has not reached the position or commit that the request names
    │   └── CursorExpiredError       the commit that a cursor refers to is no longer kept
    ├── KeyOrderError                a range was requested of keys whose bytes do not sort like the keys
    ├── SuppressBufferFullError      a buffer that must not emit early has reached its limit
    ├── KeyPlacementError            live execution: a record is not in the partition that its key belongs to
    ├── NewPartitionsError           live execution: a topic has more partitions than there are tasks
    ├── ClusterUnreachableError      the cluster did not answer
    ├── DamagedCheckpointError       a file of Spark's checkpoint is missing or cut short
    ├── ApplicationFailedError       a streaming query ended with an error: its cause in one sentence
    ├── BrokerError                  the embedded broker
    │   ├── JavaError                no Java, or one that is too old
    │   ├── JarsMissingError         the broker's jars are not in the cache: fetch them
    │   ├── JarFetchError            the jars could not be fetched
    │   ├── DataFolderError          the data folder does not match what was requested
    │   └── BrokerStartError         the broker ended, or was not ready in time (with the end of its log)
    │       └── PortInUseError       another process uses its port
    └── RecordError                  one record is wrong: goes to the error policy (fail | skip | dlq)
        ├── SerdeError               its bytes or its value do not fit the serde
        ├── TimestampError           it has no usable timestamp
        ├── FutureTimestampError     its timestamp is too far ahead of the wall clock
        ├── CallFailedError          the function of enrich() failed for it
        ├── NoFieldsError            an aggregate or expression reads a field of a value that has none
        ├── OversizedRowError        its row of state is larger than the changelog takes
        ├── OversizedRecordError     its result is larger than the topic takes
        ├── RowError                 it does not fit the columns of a table in the lake
        ├── RefusedRecordError       its result has no key, or a time that the topic does not accept
        ├── ForbiddenTopicError      it names an internal topic, or no topic at all
        ├── UnknownTopicError        it names a topic that does not exist
        └── RecordFailedError        raised by the policy `fail`: which record, where and why

The branches below `state` (Kafka client, stores, commit) are drawn in `state.errors`.
"""

from __future__ import annotations

from state import errors as errors_below
from state.errors import ErrorKind, StreamsError
from streams.users_code import calling_line

__all__ = [
    "AlreadyRunningError",
    "ApplicationFailedError",
    "CallFailedError",
    "ClusterUnreachableError",
    "ConfigError",
    "CursorExpiredError",
    "DamagedCheckpointError",
    "DeltaMissingError",
    "EnrichError",
    "ErrorKind",
    "ForbiddenTopicError",
    "FutureTimestampError",
    "KeyOrderError",
    "KeyPlacementError",
    "LakeConflictError",
    "LakeError",
    "LakePositionError",
    "LakeSchemaError",
    "NewPartitionsError",
    "NoFieldsError",
    "NotUpToBoundError",
    "OperatorStateError",
    "OversizedRecordError",
    "OversizedRowError",
    "QueryError",
    "RangeTooLargeError",
    "RecordError",
    "RecordFailedError",
    "RefusedRecordError",
    "RegistryError",
    "RescaleError",
    "RescaleUnfinishedError",
    "ResetUnfinishedError",
    "RowError",
    "SerdeError",
    "ServeError",
    "SinkUnavailableError",
    "StoreNotReadyError",
    "StreamsError",
    "SuppressBufferFullError",
    "TimestampError",
    "TopologyError",
    "TopologyMismatchError",
    "UnknownNameError",
    "UnknownTopicError",
    "ValueNotPicklableError",
]


class TopologyError(StreamsError):
    """The topology contradicts itself. Raised while it is built, or as soon as a processor uses something that it was not given.

    The text ends with the user's line of code that led to it: `(app.py, line 9)`.

    Attributes:
        line: That line, as `app.py, line 9`; None if no user's code was running.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.line = calling_line()

    def __str__(self) -> str:
        message = super().__str__()
        return message if self.line is None else f"{message} ({self.line})"


class UnknownNameError(TopologyError, AttributeError):
    """A method, an option or a name that does not exist, such as `mapValues`. The text says what exists.

    It is an `AttributeError` too, so that `hasattr` and `getattr` with a default work as always.
    """

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        # If a name error has none of its attributes set, Python's traceback adds a guess of its own.
        self.name = name


class TopologyMismatchError(StreamsError):
    """The application's state and topics were written by a program with another structure. Nothing was written."""


class ResetUnfinishedError(StreamsError):
    """A reset was started and not finished. Running it again finishes it."""


class AlreadyRunningError(StreamsError):
    """Another process runs the application. Only one may run, and state is changed only while none runs."""


class RescaleError(StreamsError):
    """The number of tasks cannot be changed: the state has no rule for it, or is not at rest. The text says what to do."""


class RescaleUnfinishedError(StreamsError):
    """A rescale was started and not finished. Running it again finishes it."""


class ConfigError(StreamsError):
    """A setting is missing, unknown or out of its range."""


class DeltaMissingError(ConfigError):
    """The Spark session was started without Delta's jars or settings, so it can neither read nor write Delta tables."""


class ApplicationFailedError(StreamsError):
    """A streaming query ended with an error. Nothing half-done is visible, and a restart continues where it stopped.

    Args:
        message: What happened.
        **where: What is known about the cause: `cause` (the error's class), and `topic`, `partition`, `offset`, `key`, `node` and
            `task` of the record that failed. They become attributes.
    """

    def __init__(self, message: str, **where: object) -> None:
        super().__init__(message)
        self.__dict__.update(where)


class EnrichError(StreamsError):
    """The function of an `enrich` cannot be made, or does not return one result for each value."""


class RegistryError(StreamsError):
    """The schema registry does not answer, or refuses. The step fails, whatever the error policies say."""

    kind = ErrorKind.TRANSIENT


class RangeTooLargeError(StreamsError):
    """The records of a micro-batch are far larger than the sample by which it was planned, so it would not fit into memory."""

    kind = ErrorKind.DATA


class ValueNotPicklableError(StreamsError):
    """A value cannot be pickled, so the step fails: skipping would lose all records for which an operator makes such values."""


class OperatorStateError(StreamsError):
    """The contents of `ctx.state` cannot be written into the commit marker. No record is at fault, so no policy applies."""


class KeyOrderError(StreamsError):
    """A range was requested of keys whose bytes do not sort like the keys, so rows would be missing."""


class LakeError(StreamsError):
    """A lake sink cannot continue; its records wait in its internal topic."""


class LakePositionError(LakeError):
    """A table and its sink's internal topic no longer fit together; nothing was written."""


class LakeSchemaError(LakeError):
    """A table has other columns than its sink, or does not take a row; nothing was written."""


class LakeConflictError(LakeError):
    """Another instance of the application writes for the same sink, or other writers keep the table busy."""


class SinkUnavailableError(LakeError):
    """The store of a sink does not answer. Its query starts again, at growing intervals, until it does."""

    kind = ErrorKind.TRANSIENT


class SuppressBufferFullError(StreamsError):
    """A buffer that must not emit early has reached its limit."""


class KeyPlacementError(StreamsError):
    """A record is not in the partition that its key belongs to, so live execution cannot give it to the key's task.

    The sub-topology continues in micro-batches, whose shuffle brings each record to the task of its key.

    Args:
        application_id: The application.
        sub_topology: The sub-topology.
        topic: The topic of the record.
        partition: Its partition.
        offset: Its offset.
        key: Its key, as its producer has written it.
        task: The task that the record's key belongs to.
        placement: The placement that the sub-topology uses.
        why: The reason, as far as the key shows it.
    """

    def __init__(
        self,
        application_id: str,
        sub_topology: str,
        topic: str,
        partition: int,
        *,
        offset: int,
        key: bytes,
        task: int,
        placement: str,
        why: str,
    ) -> None:
        super().__init__(
            f"{application_id}/{sub_topology}: the record at {topic}-{partition} offset {offset}, key {key!r}, has a key of task "
            f"{task}, by {placement}: {why}. Nothing of this step was written. Live execution needs each key in its own partition, "
            f"so {sub_topology} runs in micro-batches instead; with execution=micro-batch, it does so from the start"
        )


class NewPartitionsError(StreamsError):
    """A topic has new partitions, which no live task reads.

    The sub-topology continues in micro-batches, which read all partitions.

    Args:
        application_id: The application.
        sub_topology: The sub-topology.
        topic: The topic.
        partitions: How many it has now.
        tasks: How many tasks the sub-topology has.
    """

    def __init__(self, application_id: str, sub_topology: str, topic: str, *, partitions: int, tasks: int) -> None:
        super().__init__(
            f"{application_id}/{sub_topology}: {topic} has {partitions} partitions now, and the sub-topology {tasks} tasks. "
            f"Nothing of this step was written. A live task reads the partition of its number, so {sub_topology} runs in "
            f"micro-batches instead; after `streams rescale` to {partitions} tasks it can run live again"
        )


class ClusterUnreachableError(StreamsError):
    """The cluster did not answer: the address is wrong, it is not running, or its security settings do not fit."""

    kind = ErrorKind.TRANSIENT


class DamagedCheckpointError(StreamsError):
    """A file of Spark's checkpoint is missing or cannot be read. The message says which."""

    kind = ErrorKind.DATA


class RecordError(StreamsError):
    """One record cannot be handled. The policy for its stage decides whether that stops the task."""

    kind = ErrorKind.DATA


class SerdeError(RecordError):
    """A value cannot be turned into bytes, or bytes cannot be turned into a value (Kafka's `SerializationException`)."""


class TimestampError(RecordError):
    """A record has no valid timestamp, and its extractor fails in that case."""


class FutureTimestampError(RecordError):
    """A record's timestamp lies further ahead of the wall clock than `max_future_ms` allows."""


class CallFailedError(RecordError):
    """The function has failed for a record in all of the calls that its rules allow."""


class OversizedRowError(RecordError):
    """A row of state is larger than its changelog accepts. Raised while its record is known, long before Kafka would refuse it."""


class OversizedRecordError(RecordError):
    """A result is too large to be sent. The broker or the client would refuse it, and with it the whole step."""


class RowError(RecordError):
    """A record does not fit the columns of a table in the lake."""


class RefusedRecordError(RecordError):
    """A result that its topic does not accept, because of its time or because it has no key."""


class ForbiddenTopicError(RecordError):
    """A record names a topic that no record may choose: an internal one, or an invalid name."""


class UnknownTopicError(RecordError):
    """A record names a topic that does not exist, or that these credentials may not see."""


class NoFieldsError(RecordError):
    """A value has no fields at all (a text, a number), so nothing computed from one of its fields can be right."""

    def __init__(self, field: str) -> None:
        super().__init__(
            f"the program reads the field {field!r}, but the record's value is a text, a number or the like, which has no fields: "
            f"first turn it into a dict or an object with map_values(), or drop it with filter()"
        )
        self.field = field

    def __reduce__(self) -> tuple[type[NoFieldsError], tuple[str]]:
        return NoFieldsError, (self.field,)


class RecordFailedError(RecordError):
    """A record stopped the step, because the policy of its stage is `fail`.

    Args:
        message: Which record failed, where and why, and what to do.
        stage: `deserialization`, `processing`, `production` or `future`.
        node: The node in which it happened.
        topic: The source topic; None if no single record is behind the failure.
        partition: The source partition.
        offset: The source offset.
        key: The source record's key bytes.
        task: The task, by sub-topology and number.
    """

    def __init__(
        self,
        message: str,
        *,
        stage: str,
        node: str,
        topic: str | None,
        partition: int,
        offset: int,
        key: bytes | None,
        task: str | None = None,
    ) -> None:
        super().__init__(message)
        self.stage, self.node, self.task = stage, node, task
        self.topic, self.partition, self.offset, self.key = topic, partition, offset, key


class ServeError(StreamsError):
    """A read of a served store gave no rows."""

    kind = ErrorKind.TRANSIENT


class QueryError(ServeError):
    """The request asks for something that the store cannot answer: correct the request."""

    kind = ErrorKind.CONFIGURATION


class StoreNotReadyError(ServeError):
    """No copy here can be read yet: wait, or ask another replica."""


class NotUpToBoundError(ServeError):
    """The copy has not reached the position or commit that the request names, within the time that it may wait.

    Args:
        message: What was requested.
        position: The position that the copies have.
        commits: The commits that they have.
    """

    def __init__(self, message: str, position: str = "", commits: str = "") -> None:
        super().__init__(message)
        self.position, self.commits = position, commits


class CursorExpiredError(ServeError):
    """The commit that a cursor refers to is no longer kept. Begin again without a cursor."""


class BrokerError(StreamsError):
    """The base class of all errors about the embedded broker."""


class JavaError(BrokerError):
    """Java is missing or older than the broker needs: install it, or set JAVA_HOME."""


class JarsMissingError(BrokerError):
    """The broker's jars are not in the cache folder: run `streams broker fetch`."""


class JarFetchError(BrokerError):
    """Fetching the broker's jars failed, usually for lack of a network, or because Java does not know the proxy."""


class DataFolderError(BrokerError):
    """The data folder belongs to another kind of cluster, is in use, or has no cluster."""


class BrokerStartError(BrokerError):
    """The broker ended while starting, or was not ready in time."""


class PortInUseError(BrokerStartError):
    """Another process uses the broker's port. End it, or use another port."""


def more_about(error: BaseException) -> str:
    """The command that prints the entry in docs/errors.md of an error, or of its cause if the cause is an error of the engine."""
    cause = str(getattr(error, "cause", None))
    known = globals().get(cause) or getattr(errors_below, cause, None)
    return f"streams errors {cause if known else type(error).__name__}"
