"""`Served`: all stores of an application that can be read here, and how a request waits until they are new enough for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from state.changelog import commits_topic
from state.kafka.placement import Placement
from state.kafka.topics import TopicPartition
from state.restore.follower import Ends
from state.restore.place import CopiedTask, TaskPlace
from streams.application.store_rows import StoreReader, view_of, window_ends
from streams.errors import NotUpToBoundError, QueryError, StoreNotReadyError
from streams.serdes.base import serde_identity
from streams.serdes.json_shown import schema_of
from streams.serve.copies import Copy, GlobalCopy, TaskCopy, View
from streams.serve.position import Commit, Commits, Kept, Position, Step, commits_text, common, newest, step_text
from streams.serve.reading import Answer, ReadStore
from streams.topology.plan import SubTopology
from streams.topology.topology import Topology
from streams.wording import did_you_mean


class Consistency(str, Enum):
    """How new an answer has to be."""

    ANY = "any"
    """The copy as it is."""
    BOUND = "bound"
    """At least the position, commits and age that the request names."""
    LATEST = "latest"
    """Everything that was committed when the request came."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """How new an answer has to be.

    Attributes:
        consistency: Whether the other attributes count.
        position: The offsets up to which the sources must have been read.
        commits: The commits that the copies must have reached.
        max_age_ms: How old the answer may be; None: any age.
    """

    consistency: Consistency = Consistency.BOUND
    position: Position = field(default_factory=Position)
    commits: Commits = field(default_factory=dict)
    max_age_ms: int | None = None

    @property
    def asks(self) -> bool:
        """Whether Kafka may have to be asked to answer the request."""
        return self.consistency is Consistency.LATEST or self.max_age_ms is not None


Wanting = tuple[Copy, Callable[[View], bool]]
"""A copy that is not new enough for a request, and a function that returns whether one of its views is new enough."""


class Served:
    """All stores of an application that can be read in this process.

    Args:
        topology: The application.
        subs: Its sub-topologies.
        tasks: Sub-topology -> the number of its tasks.
        copies: Returns the copies that are here, by their partitions of the commits topics.
        kafka: Returns where the commits topics end.
        global_copy: Returns the copy of the global tables.
        placement_of: Returns the rule that assigns keys to the tasks of a sub-topology; None: it is not decided yet.
    """

    def __init__(
        self,
        topology: Topology,
        application_id: str,
        subs: Iterable[SubTopology],
        tasks: Mapping[str, int],
        copies: Callable[[], Mapping[TopicPartition, TaskCopy]],
        kafka: Ends,
        global_copy: Callable[[], GlobalCopy | None] = lambda: None,
        placement_of: Callable[[str], Placement | None] = lambda sub: Placement.MURMUR2,
    ) -> None:
        self.application_id = application_id
        self.topology = topology
        self.subs = {sub.name: sub for sub in subs if sub.name in tasks}
        self.copies = copies
        self._kafka = kafka
        self._global_copy = global_copy
        self._placement_of = placement_of
        self._placements: dict[str, Placement] = {}
        self.stores: dict[str, ReadStore] = {}
        for sub in self.subs.values():
            self._add(sub, tasks[sub.name])
        for name, table in topology.global_tables.items():
            reader = StoreReader(table.store, application_id, None, topic=str(table.source.topics[0]))
            self.stores[name] = ReadStore(name, table.store.spec.kind, reader, "", 1, lambda task: global_copy())

    def _add(self, sub: SubTopology, tasks: int) -> None:
        topic = commits_topic(self.application_id, sub.name)

        def copy_of(task: int) -> Copy | None:
            return self.copies().get((topic, task))

        placement = partial(self.placement, sub.name)
        for name, node in sub.stores.items():
            if node.spec.logged:
                reader = StoreReader(node, self.application_id, window_ends(sub, name), view_of(sub, name))
                self.stores[name] = ReadStore(name, node.spec.kind, reader, sub.name, tasks, copy_of, placement)

    def placement(self, sub: str) -> Placement:
        """The rule that assigns a sub-topology's keys to tasks; a default until it is decided, since no task has rows by then."""
        known = self._placements.get(sub)
        if known is None:
            found = self._placement_of(sub)
            if found is None:
                return Placement.MURMUR2
            known = self._placements[sub] = found
        return known

    def placement_of_topic(self, topic: str) -> Placement:
        """The rule that assigns the keys of a topic to tasks."""
        return next((self.placement(name) for name, sub in self.subs.items() if topic in sub.topics), Placement.MURMUR2)

    def store(self, name: str) -> ReadStore:
        """The store of this name.

        Raises:
            QueryError: There is no such store, or it has no changelog.
        """
        found = self.stores.get(name)
        if found is None:
            known = ", ".join(sorted(self.stores)) or "none"
            raise QueryError(f"there is no store {name!r}; served are: {known}.{did_you_mean(name, self.stores)}")
        return found

    def wanting(self, store: ReadStore, tasks: Collection[int], bound: Freshness) -> list[Wanting]:
        """The copies that are not new enough for a request. Asks Kafka only if the request wants the latest commits.

        Raises:
            QueryError: The position names topics that the store's sub-topology does not read.
            StoreNotReadyError: A copy is not here.
            KafkaClientError: Kafka had to be asked, and does not answer.
        """
        if bound.consistency is Consistency.ANY:
            return []
        self.check_topics(store, [topic for topic, _ in bound.position.offsets])
        old = [task for task in tasks if self._is_too_old(store.copy(task), bound)]
        ends = self._ends(store, old)
        found = []
        for task in tasks:
            copy, commit = store.copy(task), bound.commits.get((store.sub, task), Commit(0))
            fits = _fits(copy, bound.position, commit, ends.get(task, 0))
            if not copy.wait(fits, 0):
                found.append((copy, fits))
        return found

    def wait(self, store: ReadStore, tasks: Collection[int], bound: Freshness, timeout_s: float) -> None:
        """Waits until the copies are new enough for a request.

        Raises:
            NotUpToBoundError: They are not new enough in time.
            QueryError, StoreNotReadyError, KafkaClientError: For the reasons of `wanting`.
        """
        for copy, fits in self.wanting(store, tasks, bound):
            if not copy.wait(fits, timeout_s):
                raise self.not_up_to(store, tasks, bound)

    def not_up_to(self, store: ReadStore, tasks: Collection[int], bound: Freshness) -> NotUpToBoundError:
        """The error for copies that are not new enough, with the commits and the position that they have reached."""
        points = tuple(point for task in tasks if store.copy(task).ready for point in store.points([task]))
        commits = Answer((), points).commits
        position = common(point.position for point in points)
        asked = " and ".join(filter(None, (str(bound.position), commits_text(bound.commits)))) or "the last commits"
        return NotUpToBoundError(
            f"{store.name!r} has not reached {asked} in the time that the request may wait; it is at {commits_text(commits)} "
            f"(sources: {position}). Ask again, or allow more time (wait=)",
            position=str(position),
            commits=commits_text(commits),
        )

    def newest_step(self, store: ReadStore) -> Step:
        """The last micro-batch that a copy in this process has."""
        return newest(kept.step for copy in store.here() for kept in copy.kept())

    def kept(self, store: ReadStore, tasks: Iterable[int]) -> dict[int, list[Kept]]:
        """Task -> the commits that can be read as of a micro-batch.

        Raises:
            QueryError: The tasks do not run in micro-batches.
        """
        found = {task: copy.kept() for task in tasks if (copy := store.copy(task)).ready}
        if not all(found.values()):
            raise QueryError(
                f"snapshot=step reads {store.name!r} as of one micro-batch, and it has none: its tasks run live, and each commits "
                f"for itself; or it is a global table. Leave the parameter out"
            )
        return found

    def metadata(self) -> dict[str, Any]:
        """The stores, and the copies in this process, as JSON."""
        stores = [
            {
                "name": store.name,
                "kind": store.kind.value,
                "sub_topology": store.sub,
                "tasks": store.tasks,
                "topics": sorted(self.topics_of(store)),
                "key": serde_identity(store.reader.key_serde),
                "value": serde_identity(store.reader.value_serde),
                "key_schema": schema_of(store.reader.key_serde),
                "value_schema": store.value_schema,
            }
            for store in self.stores.values()
        ]
        return {"application_id": self.application_id, "stores": stores, "copies": self.copies_here()}

    def copies_here(self) -> list[dict[str, Any]]:
        """The copies in this process, as JSON."""
        by_sub = {store.sub: store for store in self.stores.values()}
        copies = [self._copy(store, task) for store in by_sub.values() for task in range(store.tasks)]
        return [one for one in copies if one]

    def _copy(self, store: ReadStore, task: int) -> dict[str, Any] | None:
        copy = store.find(task)
        if copy is None:
            return None
        found = {"sub_topology": store.sub, "task": task, "tasks": store.tasks, "ready": False, "fault": copy.fault}
        # It may be hidden at any time, so one object shows both that it is ready and the commit.
        with suppress(StoreNotReadyError):
            (point,) = store.points([task])
            found |= {"ready": True, "commit": point.version, "position": str(point.position), "age_ms": point.age_ms}
            found |= {"lag": copy.lag, "step": step_text(newest(kept.step for kept in copy.kept()))}
        return found

    def _is_too_old(self, copy: Copy, bound: Freshness) -> bool:
        if bound.consistency is Consistency.LATEST:
            return True
        return bound.max_age_ms is not None and copy.age_ms > bound.max_age_ms

    def _ends(self, store: ReadStore, tasks: Collection[int]) -> Mapping[int, int]:
        """Task -> where its commits topic ends now. Empty for global tables: their copy is brought forward as a whole instead."""
        if not tasks:
            return {}
        if not store.sub:
            if (copy := self._global_copy()) is not None:
                copy.bring_forward()
            return {}
        topic = commits_topic(self.application_id, store.sub)
        return {task: end for (_, task), end in self._kafka.end_offsets([(topic, task) for task in tasks]).items()}

    def check_topics(self, store: ReadStore, asked: Iterable[str]) -> None:
        """Refuses positions in topics that a store does not depend on.

        Raises:
            QueryError: The store's sub-topology does not read one of these topics.
        """
        topics = self.topics_of(store)
        foreign = sorted(set(asked) - topics)
        if foreign:
            raise QueryError(
                f"positions of {store.name!r} are of {', '.join(sorted(topics))}, which its operators read; {foreign[0]!r} is none "
                f"of these. To read what you have just written to another topic, wait for a store that reads that topic"
            )

    def topics_of(self, store: ReadStore) -> set[str]:
        """The topics that a position of a store can name."""
        if store.sub:
            return set(self.subs[store.sub].topics)
        return {str(topic) for topic in self.topology.global_tables[store.name].source.topics}


def _fits(copy: Copy, position: Position, commit: Commit, end: int) -> Callable[[View], bool]:
    asked_s = copy.clock_s()

    def fits(view: View) -> bool:
        # The commit's application was reset since, or this copy has not seen it yet: then the copy's current contents decide.
        is_other = commit.life not in ("", view.life)
        reached = view.known_s >= asked_s if is_other else view.version >= commit.version
        return reached and copy.read_to >= end and view.position.covers(position)

    return fits


def replica_task(application_id: str, sub: SubTopology, task: int, tasks: int) -> CopiedTask:
    """A task, with all of its stores that can be copied."""
    place = TaskPlace(application_id, sub.name, task, tasks, sub.topology_hash)
    return CopiedTask(place, tuple(node.spec for node in sub.stores.values() if node.spec.logged))
