"""Global tables whose rows the program gives (`global_table_from`): the driver brings the changelog to these rows at each start.

The topic itself says what was written: the driver reads the last row of each key, and writes in one transaction only what differs,
deletions included. So a start with the same rows writes nothing, and an interrupted start has changed nothing. The
transactional id fences an older start of the same application before the topic is read. Rows are written before any record is
processed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from state.changelog import changelog_topic, ensure_changelogs
from state.commit.guards import check_decided, fenced_producer
from state.commit.protocols import KafkaAccess, Producer
from state.kafka.topics import TopicAdmin
from streams.application.markers import last_rows
from streams.errors import ConfigError
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import StringSerde
from streams.topology.graph import GivenRows, Graph

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 50_000
"""How many rows are sent as one column."""
_INDEX = "__index_level_"
"""The prefix of the columns that pandas creates for an index without a name."""


def given_rows(topology: Graph) -> list[GivenRows]:
    """The rows of all global tables that the program gives."""
    return [table.given for table in topology.global_tables.values() if table.given is not None]


def ensure_given_tables(topology: Graph, application_id: str, admin: TopicAdmin, replication: int) -> list[str]:
    """Creates the missing topics of global tables whose rows are given, checks the others, and returns the names of those created.

    Raises:
        ChangelogMismatchError: An existing topic has other settings.
    """
    tables = [table for table in topology.global_tables.values() if table.given is not None]
    specs = [replace(table.store.spec, logged=True) for table in tables]
    return ensure_changelogs(admin, specs, application_id, 1, replication)


def records_of(given: GivenRows, spark: Callable[[], Any] = lambda: None) -> dict[bytes, bytes]:
    """Key bytes -> row bytes, for all rows.

    Args:
        given: The rows.
        spark: The session, asked for only if a function makes the rows.

    Raises:
        ConfigError: The rows cannot be made, lack a column of the key, or do not fit the serdes; or a key is null or occurs twice.
    """
    table = _table_of(given, spark)
    if missing := [name for name in given.key if name not in table.column_names]:
        raise _refused(
            given, f"there is no column {', '.join(map(repr, missing))}, only {', '.join(table.column_names)}"
        )
    found: dict[bytes, bytes] = {}
    for number, row in enumerate(table.to_pylist()):
        key, value = _record(given, number, row)
        if key in found:
            raise _refused(given, f"the row {number} has the key of another row: {_shown(given, row)}")
        found[key] = value
    return found


def write_rows(
    kafka: KafkaAccess, application_id: str, given: GivenRows, rows: Mapping[bytes, bytes], now_ms: int
) -> tuple[int, int]:
    """Brings the topic to these rows; returns how many were written and how many deleted.

    Raises:
        OpenTransactionError: A transaction of another start stays open.
        ProduceError: Kafka does not take the rows, or a newer start has fenced this one.
    """
    place = (changelog_topic(application_id, given.name), 0)
    owner = f"{application_id}-{given.name}-rows"
    producer = fenced_producer(kafka, owner)
    try:
        check_decided(owner, kafka.log_ends([place]))
        before = last_rows(kafka, place)
        written = {key: value for key, value in rows.items() if before.get(key) != value}
        deleted = [key for key, value in before.items() if value is not None and key not in rows]
        if written or deleted:
            _send(producer, place[0], {**written, **dict.fromkeys(deleted)}, now_ms)
        return len(written), len(deleted)
    finally:
        producer.close()


def _send(producer: Producer, topic: str, rows: Mapping[bytes, bytes | None], now_ms: int) -> None:
    import numpy as np

    from state.columns import cells_of

    keys, values = list(rows), list(rows.values())
    producer.begin()
    for start in range(0, len(keys), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        count = len(keys[part])
        times = np.full(count, now_ms, np.int64)
        producer.send_columns(topic, np.zeros(count, np.int32), cells_of(keys[part]), cells_of(values[part]), times)
    producer.flush()
    producer.commit()


def _table_of(given: GivenRows, spark: Callable[[], Any]) -> pa.Table:
    import pyarrow as pa

    frame = given.frame
    try:
        frame = frame(spark()) if callable(frame) else frame
        if not hasattr(frame, "__arrow_c_stream__"):
            raise _refused(given, f"{frame!r:.200} has no Arrow columns, as DataFrames and Arrow tables have")
        if getattr(frame, "isStreaming", False):
            raise _refused(given, "the DataFrame is a stream, but a table needs all its rows: use from_dataframe")
        # Spark's own way needs no Python workers, which its Arrow stream does.
        table = frame.toArrow() if hasattr(frame, "toArrow") else pa.RecordBatchReader.from_stream(frame).read_all()
    except ConfigError:
        raise
    except Exception as error:
        raise _refused(given, f"the rows cannot be made: {error}") from error
    if len(set(table.column_names)) < table.num_columns:
        raise _refused(given, f"two columns have the same name: {', '.join(table.column_names)}")
    names = [name for name in table.column_names if not name.startswith(_INDEX)]
    return pa.table([_in_utc(given, name, table[name]) for name in names], names)


def _in_utc(given: GivenRows, name: str, column: Any) -> Any:
    """Times in microseconds, which Python has, and those with a zone in UTC, so that the session's zone changes no row."""
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        return column
    try:
        return column.cast(pa.timestamp("us", None if column.type.tz is None else "UTC"))
    except pa.ArrowInvalid as error:
        raise _refused(given, f"times of the column {name!r} have parts of a microsecond") from error


def _record(given: GivenRows, number: int, row: dict[str, Any]) -> tuple[bytes, bytes]:
    """Key and value of a row as bytes."""
    parts: dict[str, Any] = {name: row[name] for name in given.key}
    if None in parts.values():
        raise _refused(given, f"the row {number} has a null in its key: {_shown(given, row)}")
    key: Any = parts if len(parts) > 1 else parts[given.key[0]]
    topic = str(given.topic)
    try:
        if isinstance(given.key_serde, StringSerde) and len(parts) == 1:
            key = _text(key)
        key_bytes, value_bytes = given.key_serde.serialize(topic, key), _value(given, topic, row)
    except Exception as error:
        raise _refused(given, f"the row {number} ({_shown(given, row)}) cannot be written: {error}") from error
    if key_bytes is None or value_bytes is None:
        raise _refused(given, f"the row {number} ({_shown(given, row)}) would be written as null, which deletes")
    return key_bytes, value_bytes


def _value(given: GivenRows, topic: str, row: dict[str, Any]) -> bytes | None:
    serde = given.value_serde
    if type(serde) is not JsonSerde or serde.is_plain:
        return serde.serialize(topic, row)
    # A type reads the plain JSON of the row.
    data = JsonSerde().serialize(topic, row)
    serde.deserialize(topic, data)
    return data


def _text(key: object) -> str:
    """The text of a key, as `from_dataframe` has it."""
    if isinstance(key, bool):
        return str(key).lower()
    if isinstance(key, str | int):
        return str(key)
    raise TypeError(f"a key of {type(key).__name__} has no unique text form: convert it to text, or give key_serde=...")


def _shown(given: GivenRows, row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {row[name]!r}" for name in given.key)


def _refused(given: GivenRows, why: str) -> ConfigError:
    return ConfigError(f"the rows of the table '{given.name}': {why}. Nothing was written.")
