"""Whether a start of the program would be accepted, before it creates anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from state.changelog import pauses_topic, rescale_topic
from state.columns import RecordColumns
from state.commit.marker import CommitMarker
from state.errors import (
    ChangelogMismatchError,
    CheckpointMismatchError,
    KafkaClientError,
    OffsetsLostError,
    StreamsError,
    TopicNotFoundError,
)
from state.kafka.topics import TopicPartition
from streams.application.doctor.inspection import Finding, Inspection, Place, Severity, SubLook
from streams.application.execution import obstacle
from streams.application.instances import group_is_shared
from streams.application.owned_topics import FILE
from streams.application.placements import Placements
from streams.application.prepare import names_of_any_plan
from streams.application.rescale.plan import RescaleNotes, check_no_rescale
from streams.application.reset import check_no_reset
from streams.application.start import check_start
from streams.checkpoint.compare import position, runs_live
from streams.config import Execution
from streams.config.settings import age_in_words
from streams.engine.graph.looked_up import looked_up_by
from streams.engine.source.offsets import SourceOffsets
from streams.engine.source.pauses import NOTHING, WHOLE, Pauses, pauses_in
from streams.engine.source.topics import recreated
from streams.errors import RescaleUnfinishedError, ResetUnfinishedError, TopologyMismatchError
from streams.model.expressions import OF_RECORD, ValueFields
from streams.model.paths import dotted_name, names_of
from streams.serdes.json import JsonSerde
from streams.topology.graph import ProcessorNode, SourceNode
from streams.topology.plan import SubTopology
from streams.topology.planning.sub_topologies import possible_names
from streams.topology.specs.aggregations import AggregationSpec
from streams.topology.specs.base import Keeps, Keys, NodeSpec, Unwraps
from streams.topology.specs.joins import (
    ForeignKeySubscriptionsSpec,
    ForeignKeyUpdateSpec,
    StreamJoinSpec,
    StreamTableJoinSpec,
    TableJoinSpec,
)
from streams.topology.specs.streams import FilterSpec, MapValuesSpec, SelectKeySpec
from streams.topology.specs.tables import TableSourceSpec
from streams.wording import counted, did_you_mean


def plan(inspection: Inspection) -> Iterator[Finding]:
    """Checks that the program can be planned on this cluster: its topics exist and its structure is sound."""
    try:
        _ = inspection.application
    except StreamsError as error:
        if isinstance(error, KafkaClientError) and not isinstance(error, TopicNotFoundError):
            raise
        yield refused(inspection, error)


def start(inspection: Inspection) -> Iterator[Finding]:
    try:
        check_start(inspection.application, inspection.admin, inspection.kafka)
    except StreamsError as error:
        if isinstance(error, KafkaClientError):
            raise
        yield refused(inspection, error)


def under_way(inspection: Inspection) -> bool:
    names = possible_names(inspection.application.plan.topology.sources())
    try:
        check_no_rescale(inspection.app, names, inspection.admin)
        check_no_reset(inspection.app, inspection.config.checkpoint_dir)
    except (RescaleUnfinishedError, ResetUnfinishedError):
        return True
    return False


def pauses(inspection: Inspection) -> Iterator[Finding]:
    """Looks for pauses, which last until somebody ends them. Records that wait during a pause are not lost."""
    for name, since_ms in sorted(_asked(inspection).since_ms.items()):
        what = inspection.app if name == WHOLE else "this sub-topology"
        yield Finding.note(
            f"{what} has been paused for {age_in_words(inspection.now_ms() - since_ms)}: it reads nothing, also after a "
            f"restart, until it is resumed",
            f"streams resume {inspection.app}" + ("" if name == WHOLE else f" --sub-topology {name}"),
            Place(sub_topology=name or None),
        )


def execution(inspection: Inspection) -> Iterator[Finding]:
    """Looks for a requested execution, which lasts like a pause, and for sub-topologies that run in another execution."""
    said = _asked(inspection)
    for look in inspection.subs:
        left, last = said.left_live.get(look.name), look.last
        if left is None or (last is not None and last.live):
            continue
        topic, partition, offset = left.record or (None, None, None)
        yield Finding.note(
            f"this sub-topology has left live execution {age_in_words(inspection.now_ms() - left.since_ms)} ago and runs in "
            f"micro-batches: {left.why}. Stop the application, run the command, and start it: then it runs live again",
            left.command(inspection.target, inspection.app),
            Place(look.name, topic=topic, partition=partition, offset=offset),
        )
    asked = said.execution
    if asked is None:
        return
    yield Finding.note(
        f"{inspection.app} was asked to run with execution={asked}, which overrides its setting "
        f"(execution={inspection.config.execution.value}), also after a restart",
        f"streams execution {inspection.app} as-set",
    )
    topics = sorted({topic for one in inspection.application.subs for topic in one.sub.topics})
    partitions = {name: info.partitions for name, info in inspection.admin.describe_topics(topics).items()}
    placements = Placements(inspection.application, inspection.admin, inspection.kafka)
    for look in inspection.subs:
        last = look.last
        if last is None or last.live is (asked == Execution.AUTO):
            continue
        why = None if last.live else obstacle(placements.looked_at(look.prepared), partitions)
        last_commit = f"its last commit, {age_in_words(inspection.now_ms() - last.now_ms)} ago, was "
        last_commit += "live" if last.live else "a micro-batch's"
        because = (
            "; it has not run since then, or is about to switch" if why is None else f": it cannot run live ({why})"
        )
        yield Finding.note(last_commit + because, place=Place(sub_topology=look.name))


def _asked(inspection: Inspection) -> Pauses:
    """The pauses and the execution that operators have asked for."""
    place = (pauses_topic(inspection.app), 0)
    if place[0] not in inspection.admin.describe_topics([place[0]]):
        return NOTHING
    begin, end = inspection.kafka.begin_offset(place), inspection.kafka.end_offsets([place])[place]
    return pauses_in(inspection.kafka.read(*place, begin, end))


def refused(inspection: Inspection, error: StreamsError) -> Finding:
    place, command = Place(), None
    if isinstance(error, TopicNotFoundError):
        place, command = Place(topic=error.topic), f"streams topic create {error.topic} --partitions N"
    elif isinstance(error, ResetUnfinishedError):
        command = f"streams reset {inspection.app}"
    elif isinstance(error, RescaleUnfinishedError):
        command = inspection.command("rescale", _rescaled_to(inspection))
    elif isinstance(error, TopologyMismatchError):
        command = f"streams diff {inspection.config.checkpoint_dir}/{FILE} {inspection.target}"
    elif isinstance(error, ChangelogMismatchError):
        place = Place(topic=error.topic)
    elif isinstance(error, CheckpointMismatchError):
        command = inspection.command("run", "--set checkpoint_dir=FOLDER")
    return Finding.error(str(error), command, place)


def _rescaled_to(inspection: Inspection) -> str:
    """The options to repeat an unfinished rescale: `--tasks` with its number, or with `N` if there are no notes; or no options."""
    for name in names_of_any_plan(inspection.application.plan.topology):
        topic = rescale_topic(inspection.app, name)
        notes = RescaleNotes(inspection.kafka, inspection.admin, topic, topic).read()
        if notes is not None:
            return f"--tasks {notes.plan.new}" if notes.plan.sources is None else ""
    return "--tasks N"


# --- Fields that the program reads by name and that no record has: perhaps misspelt, and null without an error.
#
# Where the type of values is known, building the topology refuses such a name
# (`dsl.nodes.result_types.check_fields`). JSON without a type may have any fields, so the newest records of each topic are checked.

SAMPLE = 500
"""How many of the newest records of a topic are checked, over all partitions."""
FEWEST = 20
"""The fewest objects for a report: with fewer of them, a field may just be rare."""


def fields(inspection: Inspection) -> Iterator[Finding]:
    for prepared in inspection.application.subs:
        for node in prepared.sub.nodes.values():
            if (
                isinstance(node, SourceNode)
                and isinstance(node.value_serde, JsonSerde)
                and node.value_serde.kind is None
            ):
                read = dict(_reads(prepared.sub, node.name))
                for topic in sorted(map(str, node.topics)) if read else ():
                    yield from _unseen(inspection, prepared.sub.name, topic, node.value_serde, read)


def _reads(sub: SubTopology, parent: str) -> Iterator[tuple[str, str]]:
    """Each path that is read in the values of a node, with the node that reads it."""
    for name in sub.children(parent):
        node = sub.nodes[name]
        if isinstance(node, ProcessorNode):
            yield from ((path, name) for path in _paths(node.spec))
            if isinstance(node.spec, FilterSpec | SelectKeySpec):
                yield from _reads(sub, name)  # values pass unchanged


def _paths(spec: NodeSpec) -> Sequence[str]:
    if isinstance(spec, AggregationSpec):
        return () if isinstance(spec.fields, str) else spec.fields
    function = spec.on_columns
    if isinstance(function, Keeps):
        return function.where.paths
    if isinstance(function, Keys):
        return function.key.paths
    if isinstance(function, Unwraps):
        return function.field.paths
    if isinstance(function, ValueFields):
        return [path for _, expression in function.computed for path in expression.paths]
    return ()


def _unseen(
    inspection: Inspection, sub: str, topic: str, serde: JsonSerde[Any], read: Mapping[str, str]
) -> Iterator[Finding]:
    objects = _newest(inspection, topic, serde)
    if len(objects) < FEWEST:
        return
    for path, node in read.items():
        if path not in OF_RECORD and not any(_has(value, path) for value in objects):
            names = dict.fromkeys(str(name) for value in objects for name in value)
            yield Finding.note(
                f"'{node}' reads the field {path!r}, which none of the last {len(objects)} objects has, so it is null there."
                f"{dotted_name(names_of(path), names) or did_you_mean(path, names)}",
                place=Place(sub, topic=topic),
            )


def _newest(inspection: Inspection, topic: str, serde: JsonSerde[Any]) -> list[dict[str, Any]]:
    """The objects among the newest records of a topic."""
    found = []
    for columns in _newest_records(inspection, topic):
        for cell in columns.values.to_pylist():
            try:
                value = serde.deserialize(topic, cell, ())
            except StreamsError:
                continue
            if isinstance(value, dict):
                found.append(value)
    return found


def _newest_records(inspection: Inspection, topic: str) -> Iterator[RecordColumns]:
    places = inspection.partitions([topic])
    begins, ends = inspection.admin.begin_offsets(places), inspection.admin.end_offsets(places)
    for place in places:
        yield from inspection.kafka.read(*place, max(begins[place], ends[place] - SAMPLE // len(places)), ends[place])


def _has(value: Any, path: str) -> bool:
    for name in names_of(path):
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    return True


# --- Inner joins whose sides have keys of different formats, so that no record can match.


def joins(inspection: Inspection) -> Iterator[Finding]:
    """Compares the keys of the newest records of both sides of each inner join."""
    for prepared in inspection.application.subs:
        sub = prepared.sub
        for node in sub.nodes.values():
            if isinstance(node, ProcessorNode) and not node.spec.takes_null_keys:
                other = _joined_with(sub, node)
                if other is not None:
                    yield from _unlike(inspection, sub, node, other)


def _joined_with(sub: SubTopology, node: ProcessorNode) -> ProcessorNode | None:
    """The other side of a join of streams, given its left side; or the table that a stream looks up; else None."""
    if isinstance(node.spec, StreamJoinSpec) and node.spec.is_left:
        wanted: type[NodeSpec] = StreamJoinSpec
    elif isinstance(node.spec, StreamTableJoinSpec) and node.stores:
        wanted = TableSourceSpec
    else:
        return None
    others = (one for one in sub.processors if isinstance(one.spec, wanted) and one is not node)
    return next((one for one in others if one.stores and set(one.stores) <= set(node.stores)), None)


def _unlike(inspection: Inspection, sub: SubTopology, node: ProcessorNode, other: ProcessorNode) -> Iterator[Finding]:
    topics = [_topic_above(sub, one) for one in (node, other)]
    if None in topics:
        return
    left, right = (_newest_keys(inspection, str(topic)) for topic in topics)
    formats = [{key_format(key) for key in keys} for keys in (left, right)]
    if min(len(left), len(right)) >= FEWEST and not formats[0] & formats[1]:
        yield Finding.note(
            f"'{node.name}' joins '{topics[0]}' and '{topics[1]}', whose newest keys have different formats, so it finds no "
            f"matches: {left[-1]!r:.60} and {right[-1]!r:.60}. Write both with the same key serde, or change one with select_key",
            place=Place(sub.name, topic=topics[0]),
        )


def _topic_above(sub: SubTopology, node: ProcessorNode) -> str | None:
    """The topic whose records reach a node with unchanged keys; None: there are several topics, or keys change."""
    above = sub.nodes[node.parents[0]] if len(node.parents) == 1 else None
    if isinstance(above, ProcessorNode) and isinstance(above.spec, FilterSpec | MapValuesSpec):
        return _topic_above(sub, above)
    return str(next(iter(above.topics))) if isinstance(above, SourceNode) and len(above.topics) == 1 else None


def _newest_keys(inspection: Inspection, topic: str) -> list[bytes]:
    cells = (columns.keys for columns in _newest_records(inspection, topic))
    return [key for column in cells for key in column.to_pylist() if key is not None]


def key_format(key: bytes) -> str:
    """The common form of keys that one serde wrote: the length of binary keys, the kinds of words and the signs of text."""
    if not key.isascii() or not key.decode().isprintable():
        return f"{len(key)} bytes"
    return re.sub(r"[A-Za-z0-9]+", _kind_of_word, key.decode())


def _kind_of_word(found: re.Match[str]) -> str:
    word = found[0]
    return "0" if word.isdigit() else "a" if word == word.lower() else "A"


# --- Joins that find hardly any matches, as counted by the tasks.


def matches(inspection: Inspection) -> Iterator[Finding]:
    """Reports how many records of each join found no match on the other side; it is a warning if nearly all did."""
    for look in inspection.subs:
        sub = look.prepared.sub
        found = {one.node: one for one in looked_up_by(marker.operator_state for marker in look.found.values())}
        for node, one in found.items():
            join = sub.nodes.get(node)
            if not one.found_nothing or not isinstance(join, ProcessorNode):
                continue
            says, place = one.says(join.looked_up_table), Place(sub.name)
            others = [found[other] for other in _other_sides(sub, node) if other in found]
            if one.finds_hardly_any and all(other.finds_hardly_any for other in others):
                yield Finding.warning(
                    f"{says}. Usual causes: the sides write keys with different serdes, or as different types (1 and '1'); the "
                    f"table is filled later than the stream is read, or is empty; the join looks up another field than the key",
                    place=place,
                )
            else:
                yield Finding.note(says, place=place)


_TWO_SIDED = TableJoinSpec | ForeignKeySubscriptionsSpec | ForeignKeyUpdateSpec


def _other_sides(sub: SubTopology, node: str) -> list[str]:
    """The other side of a join of two tables. If one table was filled first, only the later side finds rows."""
    below = set(sub.children(node))
    return [
        one.name
        for one in sub.processors
        if isinstance(one.spec, _TWO_SIDED) and one.name != node and below & set(sub.children(one.name))
    ]


# --- Where the application continues reading: positions in the logs, the consumer group, and records that are about to be
# deleted.

NEARLY = 0.8
"""The share of a retention time after which unread records are in danger."""
_CLOSE = 0.05
"""A position is close to the start of its log if this share of the log, or less, is before it."""


def positions(inspection: Inspection) -> Iterator[Finding]:
    for look in inspection.subs:
        found = inspection.admin.describe_topics(sorted(look.prepared.sub.topics))
        done = _done(look)
        for error in recreated(done.topic_ids, found):
            yield Finding.error(
                str(error),
                f"streams reset {inspection.app} --dry-run",
                Place(look.name, topic=error.topic),
            )
        at = done.by_partition()
        places = [place for place in inspection.partitions(look.prepared.sub.topics) if place in at]
        begins, ends = inspection.admin.begin_offsets(places), inspection.admin.end_offsets(places)
        for place in places:
            if not begins[place] <= at[place] <= ends[place]:
                yield _lost(inspection, look, place, at[place], begins[place], ends[place])


def _lost(inspection: Inspection, look: SubLook, place: TopicPartition, at: int, begin: int, end: int) -> Finding:
    policy = inspection.config.on_lost_offsets
    error = OffsetsLostError(*place, at, earliest=begin, latest=end, setting=policy)
    return Finding(
        Severity.ERROR if policy == "fail" else Severity.WARNING,
        f"{error}. With on_lost_offsets={policy}, "
        + ("a start fails" if policy == "fail" else f"reading continues at the {policy} offset"),
        inspection.command("run", "--set on_lost_offsets=earliest"),
        Place(look.name, None, *place, at),
    )


def _done(look: SubLook) -> SourceOffsets:
    """Where reading continues: after the last live steps, or the last micro-batch that is confirmed, or else logged."""
    checkpoint = look.checkpoint
    if runs_live(look.markers) and (live := position(checkpoint, look.markers)) is not None:
        return live
    done = checkpoint.offsets.get(checkpoint.committed) or checkpoint.offsets.get(checkpoint.logged)
    return done or (checkpoint.first.start if checkpoint.first else SourceOffsets({}))


def retention(inspection: Inspection) -> Iterator[Finding]:
    for look in inspection.subs:
        read = _done(look).by_partition()
        places = inspection.partitions(inspection.source_topics & set(look.prepared.sub.topics))
        group = inspection.admin.group_offsets(inspection.app, places)
        begins, ends = inspection.admin.begin_offsets(places), inspection.admin.end_offsets(places)
        settings = {topic: inspection.admin.topic_config(topic) for topic in {place[0] for place in places}}
        for place in places:
            at = max(read.get(place, group.get(place, begins[place])), begins[place])
            deletes = "delete" in settings[place[0]].get("cleanup.policy", "delete")
            keep_ms = int(settings[place[0]].get("retention.ms", -1))
            if not deletes or at >= ends[place]:
                continue
            unread = counted(ends[place] - at, "offset")
            if keep_ms > 0:
                now_ms = inspection.now_ms()
                young = inspection.admin.offsets_for_times({place: int(now_ms - NEARLY * keep_ms)})[place]
                if at < young:
                    yield _endangered(
                        inspection,
                        look,
                        place,
                        at,
                        f"{unread} not read yet, and the next one is older than {NEARLY:.0%} of the topic's retention "
                        f"({age_in_words(keep_ms)}): it is deleted soon",
                    )
                    continue
            if begins[place] > 0 and at - begins[place] < _CLOSE * (ends[place] - begins[place]):
                yield _endangered(
                    inspection,
                    look,
                    place,
                    at,
                    f"{unread} not read yet, and the log begins {counted(at - begins[place], 'offset')} before them: records are "
                    "being deleted there, and unread ones are next",
                )


def _endangered(inspection: Inspection, look: SubLook, place: TopicPartition, at: int, says: str) -> Finding:
    return Finding.warning(
        f"{says}. Let the application catch up, or keep records for longer",
        f"kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name {place[0]} --add-config "
        "retention.ms=MORE",
        Place(look.name, None, *place, at),
    )


def group(inspection: Inspection) -> Iterator[Finding]:
    """Compares the consumer group's offsets with the markers, which were committed together with them."""
    members = inspection.survey.group_members(inspection.app)
    if members:
        yield Finding.warning(
            f"{group_is_shared(inspection.app, members)}. Give them another group.id",
        )
    for look in inspection.subs:
        promised = _promised(look)
        committed = inspection.admin.group_offsets(inspection.app, sorted(promised))
        for place, (task, end) in sorted(promised.items()):
            where = Place(look.name, task, *place, committed.get(place))
            if place not in committed:
                yield Finding.note(
                    f"the consumer group has no offset, though the task has read up to {end}: Kafka has forgotten it "
                    "(offsets.retention.minutes), or it was deleted. The application continues from its checkpoint; if the "
                    "checkpoint is lost, an adoption asks for the position",
                    inspection.command("adopt", f"--position {place[0]}:{place[1]}={end} --dry-run"),
                    where,
                )
            elif _differs(look.found[task], committed[place], end) and not (
                committed[place] > end and inspection.has_moved(look, task)
            ):
                yield Finding.warning(
                    f"the consumer group's offset is {committed[place]}, and the task has committed {end} together with its "
                    "marker: something else has changed the group. The application continues from its checkpoint, but lag and "
                    "adoptions use the group's offset. Reset it",
                    f"kafka-consumer-groups.sh --bootstrap-server HOST:PORT --group {inspection.app} --topic {place[0]}:{place[1]} "
                    f"--reset-offsets --to-offset {end} --execute",
                    where,
                )


def _differs(marker: CommitMarker, committed: int, end: int) -> bool:
    """Whether the group's offset contradicts a task's marker. A live task commits it once a second, so it may be behind."""
    return committed > end if marker.live else committed != end


def _promised(look: SubLook) -> dict[TopicPartition, tuple[int, int]]:
    """Partition -> the task that commits its offsets, and the end of the last range that this task has committed."""
    found: dict[TopicPartition, tuple[int, int]] = {}
    for task, marker in look.found.items():
        for topic, of in marker.ranges.items():
            for partition, (_, end) in of.items():
                if int(partition) % look.prepared.tasks == task:
                    found[topic, int(partition)] = (task, end)
    return found
