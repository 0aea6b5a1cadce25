"""The plan of a rescale for one sub-topology: the state and markers with which the new tasks begin, and its notes in Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import gcd
from typing import Any, Literal, Protocol, runtime_checkable

import orjson

from state.changelog import rescale_topic
from state.commit.guards import fenced_producer
from state.commit.marker import UNPLACED, CommitMarker, format_of
from state.commit.protocols import KafkaAccess
from state.errors import MarkerFormatError
from state.kafka.admin import KafkaAdmin
from state.kafka.placement import Placement
from state.kafka.topics import TopicInfo, TopicSpec
from streams.application.markers import still_running
from streams.application.rescale.rows import records_of
from streams.checkpoint.compare import NEVER, Markers, SubIdentity, position
from streams.checkpoint.files import Checkpoint
from streams.engine.graph.looked_up import STATE as LOOKED_UP_STATE
from streams.engine.graph.looked_up import merged as looked_up
from streams.engine.source.offsets import FirstBatch, TopicOffsets
from streams.errors import RescaleError, RescaleUnfinishedError
from streams.model.record import NO_TIME
from streams.operators.stream_time import IDLE_FROM, STREAM_TIME, idle_from
from streams.topology.graph import ProcessorNode
from streams.topology.plan import SubTopology

# --- The operators' state of a new task
#
# Stores are divided by key, but what operators keep in `ctx.state` belongs to a task as a whole. A new task takes over keys of one
# or several old tasks, and each kind of state has its rule. Of times, the smallest counts, so that no additional record becomes
# late. If a task has no time, the time stays open, and idle time begins at the smallest of the others (`IDLE_FROM`). Numbers that
# must not be used twice, and upper bounds, are the largest. The rest is counted or noted again.

State = Mapping[str, Any]
Handling = Literal["copy", "drop"]

_LEAST = frozenset({"earliest", "min", "next_emit", "newest"})
"""The state that is a time, or a lower bound of times. If one task does not have it yet, it is unknown for the new task, too."""
_COUNTED_AGAIN = frozenset({"records", "bytes", "advancing"})
"""State that is left out: `suppress` counts its buffer again if the counts are missing; `advancing` is only used within a step."""
_OLDEST_STARTS = "oldest_start"
_OF_NODES = ("nodes", "shared")
_TASK_STATES = frozenset({"time", "idle", "needed", "partition_times", "punctuations", "failing", LOOKED_UP_STATE})


@runtime_checkable
class SharesState(Protocol):
    """The specification of a node that shares state with other nodes, under a name."""

    @property
    def state_name(self) -> str: ...


@dataclass(frozen=True)
class UsersChoices:
    """Choices that only the user can make.

    Attributes:
        by_key: Stores of processors that keep rows under the keys of their records.
        states: Node -> what to do with the `ctx.state` of its processor.
        dropped: Stores without a changelog whose rows may be lost.
    """

    by_key: frozenset[str] = frozenset()
    states: Mapping[str, Handling] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()


def sources_of(task: int, old: int, new: int, same_placement: bool = True) -> range:
    """The old tasks from which a new task takes over keys: with the same function, those whose keys can have the same remainder."""
    step = gcd(old, new) if same_placement else 1
    return range(task % step, old, step)


def merged_state(
    states: Sequence[State], task: int, tasks: int, users: frozenset[str], choices: UsersChoices
) -> dict[str, Any]:
    """The operator state of a new task.

    Raises:
        RescaleError: A processor keeps state, and the user has not chosen what happens to it.
    """
    merged: dict[str, Any] = {}
    for kind in _OF_NODES:
        names = sorted({name for state in states for name in state.get(kind, {})})
        for name in names:
            parts = [state.get(kind, {}).get(name, {}) for state in states]
            made = _users_state(name, parts, choices) if kind == "nodes" and name in users else _own_state(name, parts)
            if made:
                merged.setdefault(kind, {})[name] = made
    of_task = _task_state([state.get("task", {}) for state in states], task, tasks)
    return merged | ({"task": of_task} if of_task else {})


def least(values: Iterable[int | None]) -> int:
    """The smallest of the times; `NO_TIME` if one of them is unknown."""
    return min((NO_TIME if value is None else value for value in values), default=NO_TIME)


def _own_state(name: str, parts: Sequence[State]) -> dict[str, Any]:
    merged = _times(parts)
    for key in sorted({key for part in parts for key in part} - {STREAM_TIME, IDLE_FROM}):
        values = [part.get(key) for part in parts]
        known = [value for value in values if value is not None]
        if key in _COUNTED_AGAIN:
            continue
        if key == _OLDEST_STARTS:
            merged[key] = _least_of_each(known)
        elif key in ("earliest", "earliest_sooner", "min"):
            # A task without a bound has no rows.
            merged[key] = min(known)
        elif key in _LEAST:
            if len(known) == len(values):
                merged[key] = min(known)
        elif all(isinstance(value, int) for value in known):
            # The number of the last waiting record; and under a store's name, the time of its newest row, or a later time.
            merged[key] = max(known)
        else:
            raise RescaleError(
                f"the operator {name!r} keeps {key!r} in its state, for which this version has no rule: report this"
            )
    return merged


def _times(parts: Sequence[State]) -> dict[str, Any]:
    """The stream time of an operator or a task, if all parts have one; else the beginning of idle time, if any part has one."""
    seen = [part.get(STREAM_TIME, NO_TIME) for part in parts]
    known = [time for part, own in zip(parts, seen, strict=True) if (time := idle_from(part, own)) != NO_TIME]
    return {IDLE_FROM if NO_TIME in seen else STREAM_TIME: min(known)} if known else {}


def _users_state(name: str, parts: Sequence[State], choices: UsersChoices) -> dict[str, Any]:
    filled = [dict(part) for part in parts if part]
    handling = choices.states.get(name)
    if not filled or handling == "drop":
        return {}
    if handling is None:
        raise RescaleError(
            f"the processor {name!r} keeps something in ctx.state, which belongs to a task and not to a key: only you know "
            f"what should happen to "
            f"it. Use --state {name}=copy (each new task begins with that of the task whose keys it takes over) or "
            f"--state {name}=drop (each new task begins without it)"
        )
    if any(one != filled[0] for one in filled):
        raise RescaleError(
            f"--state {name}=copy: a new task takes over the keys of several tasks, in which {name!r} keeps different values in "
            f"ctx.state. Choose a multiple of the current number of tasks, or --state {name}=drop"
        )
    return filled[0]


def _task_state(parts: Sequence[State], task: int, tasks: int) -> dict[str, Any]:
    unknown = {name for part in parts for name in part} - _TASK_STATES
    if unknown:
        raise RescaleError(f"tasks keep {', '.join(sorted(unknown))}, for which this version has no rule: report this")
    merged: dict[str, Any] = {}
    if time := _times([part.get("time", {}) for part in parts]):
        merged["time"] = time
    punctuations = _punctuations([part.get("punctuations", {}) for part in parts])
    if punctuations:
        merged["punctuations"] = punctuations
    # Noted by the task that owns the partition.
    times = _partition_times(parts, lambda partition: partition % tasks == task)
    if times:
        merged["partition_times"] = times
    # One of the new tasks has the sums.
    if task == 0 and (found := looked_up([part.get(LOOKED_UP_STATE, {}) for part in parts])):
        merged[LOOKED_UP_STATE] = found
    return merged


def _punctuations(parts: Sequence[State]) -> dict[str, Any]:
    """The merged schedules: the next call is the earliest of all tasks; a schedule ends only if all tasks have cancelled it."""
    merged: dict[str, Any] = {}
    for name in sorted({name for part in parts for name in part}):
        states = [part[name] for part in parts if name in part]
        merged[name] = {"next": min(state["next"] for state in states)}
        if all(state.get("cancelled") for state in states):
            merged[name]["cancelled"] = True
    return merged


def _partition_times(parts: Sequence[State], owned: Callable[[int], bool]) -> dict[str, Any]:
    merged: dict[str, dict[str, Any]] = {}
    for part in parts:
        for topic, of_topic in part.get("partition_times", {}).items():
            for partition, times in of_topic.items():
                if owned(int(partition)):
                    merged.setdefault(topic, {})[partition] = times
    return merged


def of_part(state: State, sub: SubTopology) -> State:
    """The operator state of a part. If another sub-topology is divided, this is the state of the nodes that went to this one."""
    specs = (node.spec for node in sub.nodes.values() if isinstance(node, ProcessorNode))
    names = {*sub.nodes, *(spec.state_name for spec in specs if isinstance(spec, SharesState))}
    of_task = dict(state.get("task", {}))
    owned: dict[str, Callable[[str], bool]] = {
        "punctuations": lambda name: name.rpartition("/")[0] in names,
        LOOKED_UP_STATE: names.__contains__,
        "partition_times": sub.topics.__contains__,
    }
    for kind, owns in owned.items():
        if kind in of_task:
            of_task[kind] = {name: value for name, value in of_task[kind].items() if owns(name)}
    kept = {kind: {name: own for name, own in state.get(kind, {}).items() if name in names} for kind in _OF_NODES}
    return kept | ({"task": of_task} if of_task else {})


def _least_of_each(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {
        key: min(part[key] for part in parts if key in part) for key in sorted({key for part in parts for key in part})
    }


# --- The plan, and the markers that the new tasks begin with


class Phase(Enum):
    COPYING = "copying"
    """The plan is made; the staging topics may be incomplete."""
    CLOSING = "closing"
    """The staging topics are complete, and so are the new markers."""
    REPLACING = "replacing"
    """No old task can commit any more, and the changelogs may be deleted: from here, a rescale can only be finished."""
    DONE = "done"
    """Only the staging topics are left."""


Sources = Mapping[str, str] | None
"""Source after which a plan has added a repartition topic -> the reason; None: the plan adds no topics, not even after new keys."""


@dataclass(frozen=True)
class Part:
    """A sub-topology that takes over the state of another one, for the stores that it has itself.

    Attributes:
        tasks: The number of its tasks.
        placement: The rule that assigns keys to them.
        writes: Repartition topic between the parts that it writes to -> the number of its partitions.
    """

    sub: SubTopology
    tasks: int
    placement: Placement
    writes: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.sub.name


@dataclass(frozen=True)
class RescalePlan:
    """The plan for a sub-topology.

    Attributes:
        parts: The sub-topologies that take over, each with its number of tasks and placement; empty: it stays as one, with `new`
            and `then`.
        sources: The plan with which it ran, and the plan with which the parts run; None: the plan stays.
        first: Where the new checkpoint begins; None: no checkpoint exists, and the next start makes one.
        versions: Task -> the version of its last marker when its rows were copied; tasks that have never committed are left out.
        before: The placement of the old tasks.
        then: The placement of the new tasks.
    """

    query_id: str
    old: int
    new: int
    first: FirstBatch | None
    before: Placement = Placement.MURMUR2
    then: Placement = Placement.MURMUR2
    phase: Phase = Phase.COPYING
    versions: Mapping[int, int] = field(default_factory=dict)
    parts: Mapping[str, tuple[int, Placement]] = field(default_factory=dict)
    sources: tuple[Sources, Sources] | None = None

    def to_json(self) -> dict[str, Any]:
        first = None if self.first is None else self.first.to_json()
        divided = {
            "parts": {name: [tasks, placement.value] for name, (tasks, placement) in sorted(self.parts.items())},
            "sources": self.sources,
        }
        return {
            **({} if self.sources is None else divided),
            "query_id": self.query_id,
            "old": self.old,
            "new": self.new,
            "first": first,
            "placements": [self.before.value, self.then.value],
            "phase": self.phase.value,
            "versions": {str(task): version for task, version in sorted(self.versions.items())},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RescalePlan:
        first = None if data["first"] is None else FirstBatch.from_json(data["first"])
        versions = {int(task): int(version) for task, version in data["versions"].items()}
        before, then = map(Placement, data.get("placements", [Placement.MURMUR2] * 2))
        parts = {name: (int(tasks), Placement(given)) for name, (tasks, given) in data.get("parts", {}).items()}
        sources = data.get("sources")
        return cls(
            str(data["query_id"]), int(data["old"]), int(data["new"]), first, before, then, Phase(data["phase"]), versions, parts,
            None if sources is None else (sources[0], sources[1]),
        )  # fmt: skip


def first_batch(sub: SubIdentity, checkpoint: Checkpoint, markers: Markers) -> FirstBatch | None:
    """Where the new checkpoint begins: at the end of the old one."""
    if checkpoint.query_id is None:
        # It has never begun: with markers, a missing checkpoint would be a mismatch.
        return None
    if checkpoint.logged == checkpoint.committed and not checkpoint.repeats:
        at = position(checkpoint, markers)
    elif any(marker is not None and marker.batch_id >= max(checkpoint.logged, 0) for marker in markers.values()):
        raise RescaleError(
            f"{sub}: micro-batch {max(checkpoint.logged, 0)} was begun and is not finished: some of its {sub.tasks} tasks have "
            f"committed it, others perhaps not. Start the application with tasks={sub.tasks} until it has finished this "
            f"micro-batch (with --available-now it ends by itself), then rescale. Nothing was written"
        )
    else:
        # Spark may plan a micro-batch just before it stops, and begin no task of it. It is planned again, for the new tasks.
        at = checkpoint.start(max(checkpoint.logged, 0))
    if at is None:
        if any(markers.values()):
            raise RescaleError(
                f"{sub}: the checkpoint does not show where reading continues. Start the application once, then rescale. "
                f"Nothing was written"
            )
        return None
    # Positions of a reset (`end`) and of an earlier rescale (`fixed`) hold before any task has committed, too.
    chosen = checkpoint.first is not None and (checkpoint.first.fixed or checkpoint.first.end is not None)
    return FirstBatch(replace(at, now_ms=None), fixed=chosen or any(markers.values()))


def first_of_part(first: FirstBatch, part: Part, added: Mapping[str, TopicInfo]) -> FirstBatch:
    """Where a sub-topology begins to read after it has taken over a part of another one.

    Args:
        first: The position at which the other one ends.
        part: The sub-topology.
        added: The repartition topics between the parts, which are empty.
    """
    read = {topic: of for topic, of in first.start.topics.items() if topic in part.sub.topics}
    new = {
        name: TopicOffsets(of.topic_id, (0,) * of.partitions) for name, of in added.items() if name in part.sub.topics
    }
    return replace(first, start=replace(first.start, topics={**read, **new}))


def new_markers(
    plan: RescalePlan, part: Part, markers: Markers, users: frozenset[str], choices: UsersChoices
) -> dict[int, CommitMarker]:
    """The marker of each new task of a part; none if no task has ever committed.

    Raises:
        RescaleError: There is no rule for the state of a processor.
    """
    found = [marker for _, marker in sorted(markers.items()) if marker is not None]
    if not found:
        return {}
    common, divided, stores = _common_marker(plan, part, found), plan.sources is not None, part.sub.stores.keys()
    made = {}
    for task in range(part.tasks):
        old = sources_of(task, plan.old, part.tasks, plan.before is part.placement)
        sources = [markers.get(source) for source in old]
        known = [source for source in sources if source is not None]
        states: list[State] = [{} if source is None else source.operator_state for source in sources]
        if divided:
            states = [of_part(state, part.sub) for state in states]
        expired = _expired_before([marker.expired_before for marker in known], len(sources))
        made[task] = replace(
            common,
            task=task,
            stream_time=least(None if source is None else source.stream_time for source in sources),
            operator_state=merged_state(states, task, part.tasks, users & part.sub.nodes.keys(), choices),
            expired_before={store: time for store, time in expired.items() if not divided or store in stores},
        )
    return made


def _common_marker(plan: RescalePlan, part: Part, found: Sequence[CommitMarker]) -> CommitMarker:
    """The contents that the markers of all new tasks of a part share.

    Args:
        plan: The move.
        part: The part.
        found: The markers of the old tasks, at least one.
    """
    newest, divided = max(found, key=lambda marker: marker.version), plan.sources is not None
    placed = any(marker.placement != UNPLACED for marker in found)
    placement = part.placement.value if placed else UNPLACED
    known = (item for marker in found for item in marker.topic_ids.items())
    return CommitMarker(
        query_id=plan.query_id,
        task=0,
        tasks=part.tasks,
        topology_hash=part.sub.topology_hash if divided else newest.topology_hash,
        version=newest.version,
        batch_id=NEVER,
        batch="",
        ranges={},
        topic_ids={topic: id_ for topic, id_ in known if not divided or topic in part.sub.topics},
        stream_time=0,
        operator_state={},
        changelog_ends={},
        expired_before={},
        counts={},
        changelog_hash="",
        now_ms=max(marker.now_ms for marker in found),
        adopted=newest.version,
        application_id=newest.application_id,
        placement=placement,
        format=format_of(placement),
    )


def check_same(sub: SubIdentity, versions: Mapping[int, int], now: Markers) -> None:
    """Checks that no task has committed since its rows were copied.

    Raises:
        CheckpointMismatchError: The application runs.
    """
    for task, marker in sorted(now.items()):
        if (0 if marker is None else marker.version) != versions.get(task, 0):
            raise still_running(sub, task, "rescale")


def _expired_before(parts: list[Mapping[str, int]], sources: int) -> dict[str, int]:
    """Store -> the time below which its rows are expired in all tasks whose keys are taken over."""
    stores = {store for part in parts for store in part}
    known = {store: [part[store] for part in parts if store in part] for store in sorted(stores)}
    return {store: min(times) for store, times in known.items() if len(times) == sources}


# --- The notes, in a topic that exists until the rescale is finished

STAGING = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Settings with which nothing is compacted or expires while a rescale is unfinished, however long that takes."""
_PLAN, _MARKER, _FILLED = "plan", "marker-", "filled-"


def check_no_rescale(application_id: str, sub_topologies: Iterable[str], admin: KafkaAdmin) -> None:
    """Refuses a start during a rescale."""
    topics = [rescale_topic(application_id, name) for name in sub_topologies]
    found = sorted(admin.describe_topics(topics))
    if found:
        raise RescaleUnfinishedError(
            f"a rescale of {application_id} was started but not finished (topic {found[0]}). Run the same `streams rescale` "
            f"again: it resumes where it stopped; or, as long as nothing was replaced, undo it with --abort. Nothing was written."
        )


@dataclass(frozen=True)
class RescaleNotes:
    """The notes on one sub-topology, in a topic of one partition."""

    kafka: KafkaAccess
    admin: KafkaAdmin
    topic: str
    transactional_id: str

    def create(self, plan: RescalePlan, replication: int = -1) -> None:
        self.admin.create_topics([TopicSpec(self.topic, 1, {**STAGING, "max.message.bytes": str(2**24)}, replication)])
        self.write({_PLAN: orjson.dumps(plan.to_json())})

    def write(self, notes: Mapping[str, bytes]) -> None:
        """Writes notes in one transaction."""
        producer = fenced_producer(self.kafka, self.transactional_id)
        try:
            producer.begin()
            for name, data in notes.items():
                producer.send(self.topic, 0, name.encode(), data, 0)
            producer.commit()
        finally:
            producer.close()

    def note_phase(
        self, plan: RescalePlan, phase: Phase, markers: Mapping[str, Mapping[int, CommitMarker]] | None = None
    ) -> RescalePlan:
        """Notes how far the rescale has come, and the new markers once they are known; returns the plan in that phase."""
        plan = replace(plan, phase=phase)
        made = {
            f"{_MARKER}{name and name + '/'}{task}": marker.to_bytes()
            for name, of in (markers or {}).items()
            for task, marker in of.items()
        }
        self.write({**made, _PLAN: orjson.dumps(plan.to_json())})
        return plan

    def note_filled(self, topic: str, topic_id: str) -> None:
        self.write({f"{_FILLED}{topic}": topic_id.encode()})

    def read(self) -> Notes | None:
        if self.topic not in self.admin.describe_topics([self.topic]):
            return None
        found: dict[str, bytes] = {}
        for columns in records_of(self.kafka, self.topic, 0):
            found |= zip((key.decode() for key in columns.keys.to_pylist()), columns.values.to_pylist(), strict=True)
        if _PLAN not in found:
            return None
        try:
            return Notes.of(found)
        except (orjson.JSONDecodeError, KeyError, ValueError, MarkerFormatError) as error:
            raise RescaleError(f"the topic {self.topic} does not hold the notes of a rescale") from error

    def fence(self) -> None:
        """Ends transactions that an earlier run may have left open: they are decided before any topic is deleted."""
        fenced_producer(self.kafka, self.transactional_id).close()


@dataclass(frozen=True)
class Notes:
    """The contents of the notes.

    Attributes:
        markers: By part and task, the new markers; empty before they are known. For a sub-topology that is not divided, the part
            has no name.
        filled: New topic -> its id, if it has all its records.
    """

    plan: RescalePlan
    markers: Mapping[str, Mapping[int, CommitMarker]]
    filled: Mapping[str, str]

    @classmethod
    def of(cls, found: Mapping[str, bytes]) -> Notes:
        plan = RescalePlan.from_json(orjson.loads(found[_PLAN]))
        markers: dict[str, dict[int, CommitMarker]] = {}
        for name, data in found.items():
            if name.startswith(_MARKER):
                part, _, task = name.removeprefix(_MARKER).rpartition("/")
                markers.setdefault(part, {})[int(task)] = CommitMarker.from_bytes(data)
        filled = {name.removeprefix(_FILLED): id_.decode() for name, id_ in found.items() if name.startswith(_FILLED)}
        return cls(plan, markers, filled)
