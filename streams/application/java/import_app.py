"""Takes over the state of a Kafka Streams application in Java: `streams import-app`.

The changelogs stay as they are. The other data of an application here is derived: where reading continues (from the offsets that
the Java application has committed), partition times and closed windows (from the metadata of these offsets), stream times, open
windows and sessions (from the changelogs). Rows of stores that Kafka Streams does not have are written to separate changelogs. The
rest becomes the first commit marker of each task, in a separate transaction, and `streams.application.adopt` makes the checkpoints
from the markers, as for any application. Everything is checked before anything is written, and after an interruption the same
command begins again: a marker of an import is replaced as long as no step has followed it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from state.changelog import changelog_config, changelog_topic, ensure_changelogs, repartition_config
from state.columns import RecordColumns, numbers_at
from state.commit.digest import StepDigest
from state.commit.guards import fenced_producer
from state.commit.marker import EXPORTED, CommitMarker, format_of
from state.commit.protocols import KafkaAccess
from state.kafka.admin import KafkaAdmin
from state.kafka.partitioner import functions_of
from state.kafka.placement import FUNCTIONS, Placement
from state.kafka.topics import TopicPartition, partitions_of
from state.stores.changelog_records import ChangelogBatch
from state.stores.codec import SESSION_SUFFIX, WINDOW_SUFFIX, split_session_key
from state.stores.row_formats import check_format, check_keys
from state.stores.spec import RowFormat, StoreKind, StoreSpec
from streams.application.adopt import Adopter, GivenPositions, reading_positions
from streams.application.instances import check_group_is_free
from streams.application.java.derived import DerivedRows, derivations
from streams.application.java.limits import OffsetNote, one_sided, topics_with_unread
from streams.application.markers import last_rows
from streams.application.prepare import Application, PreparedSub, ensure_internal_topics
from streams.application.start import Preflight
from streams.checkpoint.compare import NEVER
from streams.checkpoint.files import Checkpoint
from streams.engine.source.partition_times import with_partition_times
from streams.errors import ConfigError
from streams.model.record import NO_TIME
from streams.model.windows import SessionWindows
from streams.operators.aggregate.session_aggregate import SessionRetention
from streams.operators.stores import time_ordered_buffer as buffered
from streams.operators.stores.unmatched_buffer import EARLIEST, EARLIEST_SOONER
from streams.operators.stream_time import STREAM_TIME
from streams.serdes.wrappers import SessionWindowedSerde, TimeWindowedSerde
from streams.topology.graph import StoreNode
from streams.topology.specs.aggregations import AggregationSpec
from streams.topology.specs.joins import GraceTableJoinSpec, StreamJoinSpec

IMPORTED = "kafka-streams"
"""The query id in the markers of an import, until `adopt` has made the checkpoint."""
_INTERNAL = ("-repartition", "-subscription-registration-topic", "-subscription-response-topic")
"""Name endings of the topics through which tasks of a Kafka Streams application send records to each other."""
_LOW_HALF = 2**32 - 1
_STORES = {
    StoreKind.TIMESTAMPED_KEY_VALUE: "timestamped_key_value_store",
    StoreKind.TIMESTAMPED_WINDOW: "timestamped_window_store",
    StoreKind.SESSION: "session_store",
}
"""The kinds of stores that Kafka Streams also has with headers, and the methods of `Stores` that create them."""
_SUFFIXES = {
    StoreKind.WINDOW: WINDOW_SUFFIX,
    StoreKind.TIMESTAMPED_WINDOW: WINDOW_SUFFIX,
    StoreKind.SESSION: SESSION_SUFFIX,
}


@dataclass
class JavaLog:
    """The contents of one partition of a changelog.

    Attributes:
        end: The offset after its last committed record.
        records: The number of its records.
        newest: The largest timestamp, ms; `NO_TIME`: it has none.
        functions: The partitioners that put all of its keys into this partition.
        last: The offset of the last record.
        earliest: The smallest timestamp of records that wait for others, ms; None: it has none.
        number: The largest number of a record in a buffer.
        sessions: The state of a session aggregation, computed from its rows.
    """

    end: int
    records: int = 0
    newest: int = NO_TIME
    functions: Sequence[Placement] = FUNCTIONS
    last: int = NO_TIME
    earliest: int | None = None
    number: int = 0
    sessions: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def transactional(self) -> bool:
        """Whether it ends with the control record of a transaction, which shows that Java ran with exactly-once."""
        return not self.records or self.last < self.end - 1


@dataclass(frozen=True)
class SubImport:
    """The import of a sub-topology.

    Attributes:
        logs: Store -> its changelog in Kafka Streams, by task.
        derived: Store that exists only in this engine -> its rows, by task.
        positions: The positions at which reading continues.
        placement: The rule that assigns keys to the tasks.
        markers: The markers that are replaced.
    """

    prepared: PreparedSub
    logs: Mapping[str, Sequence[JavaLog]]
    derived: Mapping[str, Sequence[DerivedRows]]
    positions: Mapping[TopicPartition, int]
    placement: Placement
    markers: Mapping[int, CommitMarker | None]

    def lines(self) -> Iterator[str]:
        """The lines that describe the import to users."""
        for store, logs in self.logs.items():
            yield f"  store {store}: {sum(log.records for log in logs):,} records in {len(logs)} partitions"
        for store, parts in self.derived.items():
            yield f"  store {store}, which only exists here: {sum(len(one.rows) for one in parts):,} rows are derived"
        at = ", ".join(f"{topic}-{number}: {offset}" for (topic, number), offset in sorted(self.positions.items()))
        yield f"  reading then continues at: {at}"


@dataclass(frozen=True)
class Importer:
    """The import of one application.

    Attributes:
        stores: Store in this engine -> store in Kafka Streams, if their names differ.
        given: Positions of partitions without a committed offset.
        at_least_once: Whether the user confirms that an application without transactions was stopped cleanly.
        members: Returns the members of a group; default: asks the brokers.
    """

    preflight: Preflight
    kafka: KafkaAccess
    stores: Mapping[str, str] = field(default_factory=dict)
    given: GivenPositions = field(default_factory=GivenPositions)
    at_least_once: bool = False
    members: Callable[[str], Sequence[str]] | None = None

    @property
    def _application(self) -> Application:
        return self.preflight.application

    @property
    def _id(self) -> str:
        return self._application.config.application_id

    @property
    def _admin(self) -> KafkaAdmin:
        return self.preflight.admin

    def survey(self) -> list[SubImport]:
        """The imports that a run would make; writes nothing.

        Raises:
            AlreadyRunningError: The group has members.
            ConfigError: Something does not fit, or cannot be taken over.
        """
        check_group_is_free(self._application.config, self.members)
        if wrong := one_sided(self._application):
            raise ConfigError(
                f"{self._id} cannot be taken over from Kafka Streams: {'; '.join(wrong)}. Nothing was written. Leave that out, or "
                "let this application build its state again, under another application id"
            )
        self._check_names()
        self._check_lag()
        return [self._survey(prepared) for prepared in self._application.subs]

    def run(self, found: Sequence[SubImport]) -> None:
        """Makes the imports that a survey has found.

        Raises:
            AlreadyRunningError: The Java application was started in between.
            ConfigError: The Java application has made progress since the survey.
        """
        check_group_is_free(self._application.config, self.members)
        self._check_unchanged(found)
        self._settle_topics()
        for one in found:
            self._copy(one)
        ensure_internal_topics(self._application, self._admin, self.preflight.say)
        notes = self._notes()
        for one in found:
            self._write_derived(one)
            self._write(one, notes)
        adopter = Adopter(self.preflight, self.given)
        for prepared, findings in adopter.misfits():
            adopter.adopt(prepared, findings)

    # --- Checks of the survey.

    def _check_names(self) -> None:
        ours = {name for prepared in self._application.subs for name in prepared.sub.stores}
        if unknown := sorted(self.stores.keys() - ours):
            raise ConfigError(
                f"--store {unknown[0]}=...: the topology has no such store, only {', '.join(sorted(ours))}"
            )

    def _check_lag(self) -> None:
        """Refuses records between tasks: if the plans differ, they would have other keys, or nothing would write them again."""
        prefix = f"{self._id}-"
        topics = [name for name in self._admin.topic_names() if name.startswith(prefix) and name.endswith(_INTERNAL)]
        places = partitions_of(self._admin.describe_topics(topics))
        self.preflight.until_decided(self._admin, places, self._application.decide_s)
        if waiting := sorted(topics_with_unread(self._admin, self.kafka, self._id, topics)):
            raise ConfigError(
                f"{', '.join(waiting)}: the Java application has not read all that it wrote there, and this would be lost. Nothing "
                "was written. Let it run until the lag of these topics is 0 (stop its producers, or wait), then stop it"
            )

    def _survey(self, prepared: PreparedSub) -> SubImport:
        derivations_of = {one.store: one for one in derivations(prepared.sub)}
        specs = [node for name, node in prepared.sub.stores.items() if node.spec.logged and name not in derivations_of]
        topics = {node.spec.name: self._theirs(node.spec.name) for node in specs}
        infos = self._admin.describe_topics(topics.values())
        if missing := sorted(name for name, topic in topics.items() if topic not in infos):
            raise ConfigError(self._no_changelog(missing[0], topics[missing[0]]))
        for name, topic in topics.items():
            if infos[topic].partitions != prepared.tasks:
                raise ConfigError(
                    f"store '{name}': {topic} has {infos[topic].partitions} partitions, {prepared.sub.name} has {prepared.tasks} "
                    f"tasks. Nothing was written. Set tasks={infos[topic].partitions}"
                )
        places = [(topic, task) for topic in topics.values() for task in range(prepared.tasks)]
        self.preflight.until_decided(self._admin, places, self._application.decide_s)
        ends = self._admin.end_offsets(places)
        notes, tasks = self._notes(), range(prepared.tasks)
        derived = {
            one.store: [one.make(_closed(prepared, one.source, task, notes)) for task in tasks]
            for one in derivations_of.values()
        }
        made_of = {one.source: derived[one.store] for one in derivations_of.values()}
        logs = {}
        for node in specs:
            name = node.spec.name
            parts = made_of.get(name, [None] * prepared.tasks)
            logs[name] = [
                self._read(prepared, node, topics[name], task, ends[topics[name], task], parts[task]) for task in tasks
            ]
        self._check_transactional(topics, logs)
        return SubImport(
            prepared, logs, derived, self._positions(prepared), self._placement(prepared, logs), self._markers(prepared)
        )

    def _theirs(self, store: str) -> str:
        return changelog_topic(self._id, self.stores.get(store, store))

    def _no_changelog(self, store: str, topic: str) -> str:
        prefix, suffix = f"{self._id}-", "-changelog"
        used = {self._theirs(name) for prepared in self._application.subs for name in prepared.sub.stores}
        names = [name for name in self._admin.topic_names() if name.startswith(prefix) and name.endswith(suffix)]
        free = ", ".join(name.removeprefix(prefix).removesuffix(suffix) for name in names if name not in used)
        return (
            f"store '{store}' has no changelog {topic}. Nothing was written. If it has another name in Java, say which: --store "
            f"{store}=NAME (not taken yet: {free or 'none'}). A table that Java restores from its source topic "
            "(topology.optimization) cannot be taken over"
        )

    def _read(
        self, prepared: PreparedSub, node: StoreNode, topic: str, task: int, end: int, derived: DerivedRows | None
    ) -> JavaLog:
        """Reads one partition of a changelog.

        Raises:
            ConfigError: A row has headers, and the store here keeps none.
            ForeignRowError: A row is not in the format of the store.
        """
        log, spec = JavaLog(end), node.spec
        retention = _retention(prepared, spec.name, log.sessions)
        for columns in self.kafka.read(topic, task, self.kafka.begin_offset((topic, task)), end):
            log.records += len(columns)
            log.last = columns.last_offset
            records = ChangelogBatch(columns.keys, columns.values, columns.timestamps, columns.headers)
            check_keys(spec, records, columns.offsets, topic, task)
            check_format(spec, records, columns.offsets, topic, task)
            _check_headers(spec, columns, topic, task)
            log.newest = max(log.newest, int(_times(spec, columns).max(initial=NO_TIME)))
            if derived is not None:
                derived.add(columns)
            if spec.rows in (RowFormat.UNMATCHED, RowFormat.BUFFERED):
                first = int(_waiting_since(spec, columns).min())
                log.earliest = first if log.earliest is None else min(log.earliest, first)
            if spec.rows is RowFormat.BUFFERED:
                log.number = max(log.number, int((numbers_at(columns.keys, -8) & _LOW_HALF).max()))
            if _says_placement(node):
                keys = _record_keys(columns.keys, _SUFFIXES.get(spec.kind, 0))
                log.functions = functions_of(keys, task, prepared.tasks, log.functions)
            if retention is not None:
                rows = [
                    split_session_key(key) for key, value in columns.cells() if key is not None and value is not None
                ]
                if rows:
                    retention.add(np.array([start for _, _, start in rows]), np.array([end for _, end, _ in rows]))
        return log

    def _check_transactional(self, topics: Mapping[str, str], logs: Mapping[str, Sequence[JavaLog]]) -> None:
        if self.at_least_once:
            return
        for name, topic in topics.items():
            for task, log in enumerate(logs[name]):
                if not log.transactional:
                    raise ConfigError(
                        f"{topic}-{task} ends with a record outside of any transaction: the Java application does not run with "
                        "processing.guarantee=exactly_once_v2, so its state may be ahead of its offsets, and records would count "
                        "twice. Nothing was written. Run it with exactly_once_v2 once, and stop it; or, if it was stopped cleanly "
                        "(KafkaStreams.close returned), repeat this with --at-least-once"
                    )

    def _positions(self, prepared: PreparedSub) -> dict[TopicPartition, int]:
        places = sorted(partitions_of(self._admin.describe_topics(prepared.sub.topics)))
        return reading_positions(self._admin, self._id, places, {}, Checkpoint(), self.given)

    def _placement(self, prepared: PreparedSub, logs: Mapping[str, Sequence[JavaLog]]) -> Placement:
        for placement in FUNCTIONS:
            fits = all(placement in log.functions for of in logs.values() for log in of)
            if fits and prepared.placement in (None, placement):
                return placement
        wrong = next(
            (name for name, of in logs.items() if any(Placement.MURMUR2 not in log.functions for log in of)), ""
        )
        raise ConfigError(
            f"store '{wrong or prepared.sub.name}': its keys are not in the partitions in which "
            f"{prepared.placement or 'murmur2, crc32 or fnv1a'} puts them: its records come from a custom partitioner, so no "
            f"task here would find them. Nothing was written"
        )

    def _markers(self, prepared: PreparedSub) -> dict[int, CommitMarker | None]:
        access = self.preflight.markers(prepared)
        if not self._admin.describe_topics([access.topic]):
            return dict.fromkeys(range(prepared.tasks))
        markers = access.read()
        for task, marker in markers.items():
            if marker is not None and marker.query_id != IMPORTED and not marker.query_id.endswith(EXPORTED):
                raise ConfigError(
                    f"{self._id}/{prepared.sub.name}: task {task} has committed here already (version {marker.version}), so "
                    "there is nothing to import. Nothing was written. If an import was interrupted after its markers, `streams "
                    "adopt` finishes it; if Java has continued, hand over with `streams export-app` first next time"
                )
        return markers

    def _check_unchanged(self, found: Sequence[SubImport]) -> None:
        before = {
            (self._theirs(name), task): log.end
            for one in found
            for name, logs in one.logs.items()
            for task, log in enumerate(logs)
        }
        moved = [place for place, end in self._admin.end_offsets(before).items() if end != before[place]]
        if moved or any(one.positions != self._positions(one.prepared) for one in found):
            raise ConfigError(
                "the Java application has continued since this began. Nothing was written. Stop it and try again"
            )

    # --- The changes.

    def _settle_topics(self) -> None:
        """Gives Java's topics the settings that this engine's state depends on."""
        replication = self._application.config.replication_factor
        for prepared in self._application.subs:
            made_here = {one.store for one in derivations(prepared.sub)}
            for node in prepared.sub.stores.values():
                if node.spec.logged and node.spec.name not in {*self.stores, *made_here}:
                    topic = changelog_topic(self._id, node.spec.name)
                    self._admin.alter_topic(topic, changelog_config(node.spec, replication))
        for topic in self._admin.describe_topics(self._application.plan.repartition_topics):
            self._admin.alter_topic(topic, repartition_config(replication))

    def _copy(self, one: SubImport) -> None:
        """Copies changelogs of stores that have another name in this engine.

        Raises:
            ConfigError: The copy already exists.
        """
        config, prepared = self._application.config, one.prepared
        specs = [prepared.sub.stores[name].spec for name in one.logs if self.stores.get(name, name) != name]
        for spec in specs:
            topic = changelog_topic(self._id, spec.name)
            if self._admin.describe_topics([topic]):
                raise ConfigError(
                    f"{topic} already exists: an import was interrupted while it copied, or Java has a store of this name, too. "
                    f"Delete it (`streams topic delete {topic}`) if it is a copy, and try again"
                )
            ensure_changelogs(self._admin, [spec], self._id, prepared.tasks, config.replication_factor)
            source = self._theirs(spec.name)
            for task, log in enumerate(one.logs[spec.name]):
                rows = self.kafka.read(source, task, self.kafka.begin_offset((source, task)), log.end)
                self._send(prepared, topic, task, rows)
            self.preflight.say(f"copied {source} to {topic}")

    def _notes(self) -> dict[TopicPartition, tuple[int, OffsetNote]]:
        """The committed offsets that have metadata of Kafka Streams, with this metadata."""
        topics = {topic for prepared in self._application.subs for topic in prepared.sub.topics}
        places = partitions_of(self._admin.describe_topics(sorted(topics)))
        found = {}
        for place, (offset, text) in self._admin.group_notes(self._id, places).items():
            note = OffsetNote.decode(text)
            if note is not None:
                found[place] = offset, note
        return found

    def _write_derived(self, one: SubImport) -> None:
        """Writes the rows of stores that exist only in this engine, and deletes the rows of an earlier import."""
        for store, parts in one.derived.items():
            topic = changelog_topic(self._id, store)
            for task, part in enumerate(parts):
                before = last_rows(self.kafka, (topic, task))
                gone = [key for key, value in before.items() if value is not None and key not in part.rows]
                changed: list[tuple[bytes, bytes | None, int]] = [(key, None, NO_TIME) for key in gone]
                changed += [(key, value, at) for key, (value, at) in part.rows.items() if before.get(key) != value]
                if changed:
                    keys, values, times = zip(*changed, strict=True)
                    stamps = np.maximum(np.array(times, np.int64), 0)
                    rows = ChangelogBatch(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), stamps)
                    self._send(one.prepared, topic, task, [rows])

    def _send(
        self, prepared: PreparedSub, topic: str, task: int, batches: Iterable[RecordColumns | ChangelogBatch]
    ) -> None:
        """Writes each batch in a transaction."""
        identity = self.preflight.identity(prepared).task(task, "")
        with closing(fenced_producer(self.kafka, identity.transactional_id)) as producer:
            for one in batches:
                producer.begin()
                producer.send_columns(topic, task, one.keys, one.values, one.timestamps, one.headers)
                producer.flush()
                producer.commit()
        self.preflight.until_decided(self._admin, [(topic, task)], self._application.decide_s)

    def _write(self, one: SubImport, notes: Mapping[TopicPartition, tuple[int, OffsetNote]]) -> None:
        access = self.preflight.markers(one.prepared)
        names = [*one.logs, *one.derived]
        ends = self._admin.end_offsets(
            [(changelog_topic(self._id, name), task) for name in names for task in range(one.prepared.tasks)]
        )
        for task, old in one.markers.items():
            of = {name: ends[changelog_topic(self._id, name), task] for name in names}
            if not access.replace(task, old, self._marker(one, task, of, notes)):
                raise ConfigError(
                    f"{self._id}/{one.prepared.sub.name}: task {task} has committed in between. Stop the application"
                )

    def _marker(
        self,
        one: SubImport,
        task: int,
        ends: Mapping[str, int],
        notes: Mapping[TopicPartition, tuple[int, OffsetNote]],
    ) -> CommitMarker:
        """The first marker of a task."""
        prepared, old = one.prepared, one.markers[task]
        mine = {place: note for place, note in notes.items() if place[0] in prepared.sub.topics and place[1] == task}
        seen = max((note.time for _, note in mine.values()), default=NO_TIME)
        times = {place: (offset, note.time) for place, (offset, note) in mine.items()}
        state = derived_state(prepared, {name: logs[task] for name, logs in one.logs.items()}, seen)
        return CommitMarker(
            query_id=IMPORTED,
            task=task,
            tasks=prepared.tasks,
            topology_hash=prepared.sub.topology_hash,
            version=1 if old is None else old.version,
            batch_id=NEVER,
            batch="",
            ranges={},
            topic_ids={},
            stream_time=seen,
            operator_state=with_partition_times(state, times),
            changelog_ends=dict(ends),
            expired_before={},
            counts={"in": 0, "out": 0, "changelog": 0},
            changelog_hash=StepDigest().hexdigest(),
            now_ms=int(time.time() * 1000),
            changelog_begins=dict(ends),
            application_id=self._id,
            placement=one.placement.value,
            format=format_of(one.placement.value),
        )


def derived_state(
    prepared: PreparedSub, logs: Mapping[str, JavaLog], seen: int
) -> dict[str, dict[str, dict[str, object]]]:
    """The state that operators keep outside their stores, from the rows of one task.

    An operator's stream time is the newest time in its changelogs: the record that moved it was not late, and so was stored. For
    joins, the newest row of each store counts, too, and the first record that waits; for a buffer, its last number; for sessions,
    the oldest start of the open ones.

    Args:
        prepared: The sub-topology.
        logs: Store -> its changelog.
        seen: The largest timestamp that the task has read, ms.
    """
    nodes: dict[str, dict[str, object]] = {}
    shared: dict[str, dict[str, object]] = {}
    for node in prepared.sub.processors:
        of = {name: logs[name].newest for name in node.stores if name in logs and logs[name].newest != NO_TIME}
        if not of:
            continue
        if isinstance(node.spec, GraceTableJoinSpec):
            # Its stream time is that of the stream, not of the table.
            if (buffer := logs[node.stores[-1]]).earliest is not None:
                nodes[node.name] = {
                    STREAM_TIME: buffer.newest,
                    buffered.EARLIEST: buffer.earliest,
                    buffered.NUMBER: buffer.number,
                }
            continue
        if isinstance(node.spec, StreamJoinSpec):
            earliest = [first for name in of if (first := logs[name].earliest) is not None]
            bounds = dict.fromkeys((EARLIEST, EARLIEST_SOONER), earliest[0]) if earliest else {}
            shared.setdefault(node.spec.state_name, {}).update({**of, **bounds, STREAM_TIME: max(of.values())})
            continue
        nodes[node.name] = {STREAM_TIME: max(of.values())}
        for name in of:
            nodes[node.name].update(logs[name].sessions)
    return {"nodes": nodes, "shared": shared, "task": {"time": {STREAM_TIME: seen}}}


def _closed(
    prepared: PreparedSub, store: str, task: int, notes: Mapping[TopicPartition, tuple[int, OffsetNote]]
) -> int:
    """The time up to which Java has closed a store's windows in a task, ms; `NO_TIME`: it has closed none."""
    own = (note for place, (_, note) in notes.items() if place[0] in prepared.sub.topics and place[1] == task)
    return max((note.closes[store] for note in own if store in note.closes), default=NO_TIME)


def _times(spec: StoreSpec, columns: RecordColumns) -> npt.NDArray[np.int64]:
    """The times of the records that wrote these rows.

    In a buffer, they come from the rows, because Java gives its changelog the clock's time.
    """
    if spec.rows is RowFormat.BUFFERED:
        return _waiting_since(spec, columns)
    return numbers_at(columns.values.drop_null(), 0) if spec.rows is RowFormat.SUPPRESSED else columns.timestamps


def _check_headers(spec: StoreSpec, columns: RecordColumns, topic: str, task: int) -> None:
    """Refuses a Java store with headers (KIP-1271) if the store here has none, because rows would lose their headers.

    Kafka Streams 4.3.1 logs headers of such rows only: its own tables, windows and sessions have none, `dsl.store.format` or not.
    Nothing reads the headers of a deleted row or those in the stores of stream joins.
    """
    if spec.rows is RowFormat.WITH_HEADERS or spec.kind not in _STORES or columns.headers is None:
        return
    kept = pc.and_(columns.values.is_valid(), pc.fill_null(pc.greater(pc.binary_length(columns.headers), 0), False))
    at = np.flatnonzero(kept.to_numpy(zero_copy_only=False))
    if len(at):
        raise ConfigError(
            f"store '{spec.name}': the row at offset {int(columns.offsets[at[0]])} of {topic}-{task} has headers, so Java has "
            "a store with headers under this name (KIP-1271), and here it has none. Nothing was written. Make it with "
            f"Stores.{_STORES[spec.kind]}_with_headers"
        )


def _waiting_since(spec: StoreSpec, columns: RecordColumns) -> npt.NDArray[np.int64]:
    """The timestamps of records that wait for others, from their keys."""
    return numbers_at(columns.keys, 0 if spec.rows is RowFormat.UNMATCHED else 1)


def _retention(prepared: PreparedSub, store: str, state: dict[str, dict[str, int]]) -> SessionRetention | None:
    """An object that notes the sessions of a store; None: the store has no sessions."""
    for node in prepared.sub.processors:
        windows = node.spec.windows if isinstance(node.spec, AggregationSpec) else None
        if store in node.stores and isinstance(windows, SessionWindows):
            return SessionRetention(state, windows)
    return None


def _says_placement(node: StoreNode) -> bool:
    """Whether a row's partition follows from the store's key. It does not if other keys come before the key or are within it."""
    return node.spec.rows in (None, RowFormat.WITH_HEADERS) and not isinstance(
        node.key_serde, TimeWindowedSerde | SessionWindowedSerde
    )


def _record_keys(keys: pa.BinaryArray, suffix: int) -> pa.BinaryArray:
    """The keys of the records, taken out of the keys of a store."""
    if not suffix:
        return keys
    return pa.array([None if key is None else key[:-suffix] for key in keys.to_pylist()], pa.binary())
