"""Where errors are raised is compared with what docs/errors.md says about them.

No test can judge whether a cause is true. This one notices when a file begins or ceases to raise an error: read the entry then,
make its cause cover what the file means by it, and change the list. Errors of a general cause ("a setting is wrong") are left out.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERAL = {"ConfigError", "KafkaClientError", "QueryError", "StoreNotReadyError", "TopicNotFoundError", "TopologyError"}
BASES = {"CommitError", "LakeError", "ServeError"}
"""Nothing raises these themselves."""
ENTRIES = {
    line.removeprefix("### ")
    for line in (ROOT / "docs" / "errors.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("### ")
}
RAISED_IN = {
    "AlreadyRunningError": ("streams/application/instances",),
    "ApplicationFailedError": (
        "streams/driver/java",
        "streams/driver/queries",
    ),
    "AuthenticationError": (
        "state/kafka/connection",
        "state/kafka/error_mapping",
    ),
    "AuthorizationError": (
        "state/kafka/connection",
        "state/kafka/error_mapping",
        "streams/application/rights",
    ),
    "BrokerError": ("streams/broker/secure",),
    "BrokerStartError": (
        "streams/broker/embedded",
        "streams/broker/node",
        "streams/broker/secure",
    ),
    "CallFailedError": ("streams/operators/enrich",),
    "ChangelogMismatchError": (
        "state/changelog",
        "streams/application/start",
    ),
    "CheckpointMismatchError": (
        "state/commit/decide",
        "state/commit/ingest",
        "streams/application/markers",
        "streams/application/owned_topics",
        "streams/checkpoint/compare",
    ),
    "ClusterUnreachableError": ("streams/cluster/admin",),
    "CursorExpiredError": (
        "streams/serve/client",
        "streams/serve/copies",
        "streams/serve/feed",
        "streams/serve/reading",
    ),
    "DamagedCheckpointError": ("streams/checkpoint/files",),
    "DataFolderError": (
        "streams/broker/cluster",
        "streams/broker/embedded",
        "streams/broker/secure",
    ),
    "DeltaMissingError": ("streams/driver/delta",),
    "EnrichError": ("streams/operators/calls",),
    "FencedError": ("state/kafka/error_mapping",),
    "ForbiddenTopicError": ("streams/engine/graph/outputs",),
    "ForeignFolderError": ("state/tables/files",),
    "ForeignRowError": ("state/stores/row_formats",),
    "FutureTimestampError": ("streams/engine/graph/event_time",),
    "HangingTransactionError": ("state/kafka/admin",),
    "JarFetchError": ("streams/broker/jars",),
    "JarsMissingError": ("streams/broker/jars",),
    "JavaError": ("streams/broker/jars",),
    "KeyOrderError": ("streams/serdes/order",),
    "KeyPlacementError": ("streams/engine/live/arrived",),
    "LakeConflictError": ("streams/lake/writer", "streams/sinks/iceberg", "streams/sinks/sink"),
    "LakePositionError": (
        "streams/lake/commit",
        "streams/lake/sink",
        "streams/sinks/iceberg",
        "streams/sinks/sql",
        "streams/driver/lake/delta_table",
    ),
    "LakeSchemaError": (
        "streams/sinks/files",
        "streams/sinks/iceberg",
        "streams/sinks/sql",
        "streams/driver/lake/delta_table",
    ),
    "MarkerFormatError": ("state/commit/marker",),
    "NewPartitionsError": ("streams/engine/live/task",),
    "NoFieldsError": (
        "streams/model/expressions",
        "streams/model/record",
        "streams/operators/expressions",
    ),
    "NotUpToBoundError": ("streams/serve/app", "streams/serve/served"),
    "OffsetsLostError": (
        "state/kafka/range_reader",
        "streams/application/doctor/program",
        "streams/engine/source/topics",
    ),
    "OpenTransactionError": ("state/commit/guards",),
    "OperatorStateError": ("streams/engine/graph/step_context",),
    "OversizedRecordError": ("streams/engine/graph/outputs",),
    "OversizedRowError": ("streams/operators/stores/codec",),
    "PortInUseError": ("streams/broker/embedded",),
    "ProduceError": (
        "state/kafka/error_mapping",
        "state/kafka/producer",
        "state/kafka/transport",
    ),
    "ProducerStateError": ("state/commit/transaction", "state/kafka/producer"),
    "RangeTooLargeError": ("streams/engine/step/read",),
    "ReadTimeoutError": (
        "state/kafka/consumers",
        "state/kafka/range_reader",
    ),
    "RecordError": (
        "streams/operators/aggregate/top",
        "streams/model/aggregates",
        "streams/model/operations",
        "streams/model/scores",
        "streams/model/sketches",
        "streams/operators/aggregate/functions",
        "streams/operators/join/foreign_key",
        "streams/operators/join/joins",
        "streams/operators/join/stream_table_join",
        "streams/operators/table/table_aggregate",
        "streams/engine/reader/task_inputs",
        "streams/engine/graph/values",
    ),
    "RecordFailedError": ("streams/engine/graph/handlers",),
    "RecordTooLargeError": ("state/kafka/error_mapping",),
    "RefusedRecordError": ("streams/engine/graph/outputs",),
    "RegistryError": ("streams/serdes/registry",),
    "RescaleError": (
        "streams/application/rescale/cluster",
        "streams/application/rescale/plan",
        "streams/application/rescale/replan",
        "streams/application/rescale/rescale",
        "streams/application/rescale/rows",
    ),
    "RescaleUnfinishedError": ("streams/application/rescale/plan",),
    "ResetUnfinishedError": ("streams/application/reset",),
    "RestoreError": (
        "state/changelog",
        "state/restore/plan",
        "state/restore/restorer",
        "state/restore/verify",
        "state/stores/changelog_records",
        "streams/application/restore",
        "streams/model/sketch_forms",
    ),
    "RoutingMismatchError": ("state/commit/guards",),
    "RowError": ("streams/model/table_columns",),
    "SerdeError": (
        "streams/operators/process/user_processor",
        "streams/serdes/base",
        "streams/serdes/by_type",
        "streams/serdes/json_shown",
        "streams/serdes/registry",
        "streams/serve/client",
    ),
    "SnapshotError": (
        "state/restore/copies",
        "state/restore/snapshot_location",
        "state/restore/snapshots",
    ),
    "SinkUnavailableError": ("streams/sinks/iceberg", "streams/sinks/sql"),
    "StateCorruptedError": (
        "state/tables/open_tables",
        "state/tables/rocks_common",
    ),
    "StateError": (
        "state/restore/task_stores",
        "state/stores/dump",
        "state/stores/task_store",
        "state/tables/buffer",
        "state/tables/native_library",
        "state/tables/rocks_common",
        "state/tables/table",
    ),
    "StateFormatError": ("state/stores/position",),
    "StateLockedError": ("state/tables/rocks_common",),
    "StepTooLargeError": ("streams/engine/reader/task_inputs",),
    "SuppressBufferFullError": ("streams/operators/table/suppress",),
    "TimestampError": (
        "streams/model/timestamps",
        "streams/engine/graph/event_time",
    ),
    "TlsError": ("state/kafka/connection",),
    "TopicMismatchError": ("state/kafka/admin",),
    "TopicRecreatedError": ("streams/engine/source/topics",),
    "TopologyMismatchError": (
        "streams/application/start",
        "streams/topology/planning/sub_topologies",
    ),
    "UnexpectedOffsetError": ("state/commit/guards",),
    "UnknownNameError": ("streams/migration_hints",),
    "UnknownTopicError": ("streams/engine/graph/outputs",),
    "ValueNotPicklableError": (
        "streams/engine/reader/task_inputs",
        "streams/engine/graph/values",
    ),
}
"""Error -> the files that make one, without those of the simulation and the test driver."""


def sources() -> Iterator[Path]:
    for package in ("state", "streams"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name != "errors.py" and "testing" not in path.parts:
                yield path


@pytest.fixture(scope="module")
def found() -> dict[str, set[str]]:
    made: dict[str, set[str]] = defaultdict(set)
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", None))
                if name in ENTRIES:
                    made[name].add(path.relative_to(ROOT).with_suffix("").as_posix())
    return made


def test_every_error_is_listed() -> None:
    assert set(RAISED_IN) | GENERAL | BASES == ENTRIES


@pytest.mark.slow
@pytest.mark.parametrize("error", RAISED_IN)
def test_an_error_is_raised_where_its_cause_was_compared(error: str, found: dict[str, set[str]]) -> None:
    assert found[error] == set(RAISED_IN[error]), f"read the cause of {error} in docs/errors.md, then change this list"
