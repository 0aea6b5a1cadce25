"""The rule that assigns a sub-topology's keys to its tasks: from its commits, or at the first start from keys in its topics.

A producer puts a key into a partition by a function (`state.kafka.partitioner.Placement`), and neither Kafka nor the record has the
name of this function. So a few records of each topic are read, and the function that explains all of them is taken. From the first
commit on it is in each marker: the state of a key stays in the task that it was written in, whatever later producers do.
Invariants: all tasks of a sub-topology use one placement; the application writes its repartition and retry topics by the placement
of their readers; a sub-topology that reads nothing but these uses murmur2; before there is a key, nothing is decided, and each
start checks again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce

from state.changelog import commits_topic
from state.columns import RecordColumns
from state.commit.marker import CommitMarker, MarkerLog
from state.kafka.placement import Placement
from state.kafka.topics import TopicInfo, partitions_of
from streams.application.markers import placed_marker
from streams.application.prepare import Application, PreparedSub
from streams.cluster.key_functions import Admin, Shown, shown_by, shown_in
from streams.config import Execution
from streams.engine.graph.keys import canonical_keys
from streams.engine.source.pauses import LeftLive
from streams.errors import ConfigError
from streams.topology.plan import SubTopology


@dataclass(frozen=True)
class Placements:
    """Finds the placements of an application.

    Attributes:
        log: Reads records.
        known: Further records to look at: topic, partition and offset.
    """

    application: Application
    admin: Admin
    log: MarkerLog
    known: tuple[tuple[str, int, int], ...] = ()

    def found(self) -> Application:
        """The application with the placements of its sub-topologies, as far as they can be found.

        Raises:
            ConfigError: The settings ask for a placement that the state does not have, or that cannot work.
        """
        return replace(self.application, subs=tuple(map(self._placed, self.application.subs)))

    def disagreeing(self, also_old: bool = False) -> Mapping[str, str | None]:
        """Topic -> the function that its keys show, or None. Only set for new sub-topologies whose topics disagree.

        If the application may run live, its plan has repartition topics after these topics.

        Args:
            also_old: Whether to include sub-topologies that are not new.
        """
        found: dict[str, str | None] = {}
        if self.application.plan.topology.repartitioned is None or self.application.config.placement is not None:
            return found
        for one in self.application.subs:
            topics = [topic for topic in self.application.from_outside(one.sub) if topic in one.sub.placed_topics]
            if not topics or (not also_old and self._last_marker(one) is not None):
                continue
            counts = self.admin.describe_topics(topics)
            by_topic = self._shown(one.sub, {name: info for name, info in counts.items() if info.partitions > 1})
            both = reduce(Shown.__or__, by_topic.values(), Shown())
            if both.rewritten or not both.functions:
                found |= {topic: _function(shown) for topic, shown in by_topic.items()}
        return found

    def decided(self, finally_: bool) -> Application:
        """The application with the placements shown by records that have arrived since the start.

        Args:
            finally_: Whether to decide also if the records fit several functions.
        """
        subs = tuple(self._looked(one, finally_) if one.placement is None else one for one in self.application.subs)
        return replace(self.application, subs=subs)

    def _placed(self, prepared: PreparedSub) -> PreparedSub:
        asked, last = self._asked(prepared), self._last_marker(prepared)
        if last is not None:
            written = Placement(last.placement)
            if asked not in (None, written):
                raise ConfigError(
                    f"placement={asked.value}, but the state of {prepared.sub.name} was written with {written.value}. Nothing was "
                    f"written. Leave the setting out, or move the state: `streams rescale MODULE:TOPOLOGY -a "
                    f"{self.application.config.application_id} --placement {asked.value}`"
                )
            prepared = replace(prepared, placement=written)
            # A sub-topology that has run live needs no look.
            return self._kept(prepared) if self._may_run_live and not last.live else prepared
        if asked is not None:
            prepared = replace(prepared, placement=asked)
            return self._checked(prepared) if self._may_run_live else prepared
        if not self.application.from_outside(prepared.sub):
            return replace(prepared, placement=Placement.MURMUR2)
        return self._looked(prepared, finally_=False)

    @property
    def _may_run_live(self) -> bool:
        return self.application.config.execution is not Execution.MICRO_BATCH

    def _asked(self, prepared: PreparedSub) -> Placement | None:
        """The placement in the settings; None for a sub-topology that reads only topics that the application itself writes."""
        asked, sub = self.application.config.placement, prepared.sub
        external = self.application.from_outside(prepared.sub)
        if asked is None or not external:
            return None
        if asked is not Placement.PARTITION:
            return asked
        if set(sub.topics) - {*external, *sub.delays}:
            return None
        if sub.keyed_by:
            raise ConfigError(
                f"placement=partition, but {sub.name} makes keys in {sub.keyed_by[0]!r}, and the partition of a record does not "
                f"depend on its new key: call repartition() after it. Nothing was written"
            )
        counts = {topic: info.partitions for topic, info in self.admin.describe_topics(external).items()}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{topic} has {count}" for topic, count in sorted(counts.items()))
            raise ConfigError(
                f"placement=partition, but the topics of {sub.name} have different numbers of partitions ({listed}), so the same "
                f"key is in different ones. Nothing was written"
            )
        return asked

    def _last_marker(self, prepared: PreparedSub) -> CommitMarker | None:
        """A marker that has the sub-topology's placement, or None. The preflight compares it with the markers of all tasks."""
        topic = commits_topic(self.application.config.application_id, prepared.sub.name)
        found = self.admin.describe_topics([topic])
        return placed_marker(self.log, topic, range(found[topic].partitions)) if found else None

    def _looked(self, prepared: PreparedSub, finally_: bool) -> PreparedSub:
        """The sub-topology with the placement that its records show; unchanged if they do not show one yet."""
        counts = self.admin.describe_topics(prepared.sub.topics)
        if all(info.partitions == 1 for info in counts.values()):
            return replace(prepared, placement=Placement.MURMUR2)
        by_topic = self._shown(prepared.sub, counts)
        shown = reduce(Shown.__or__, by_topic.values(), Shown())
        if not shown.decides and not (finally_ and shown.records):
            return prepared
        own = all(info.partitions == prepared.tasks for info in counts.values())
        if own and not prepared.sub.stores and (shown.rewritten or not shown.functions):
            # Nothing is looked up by key, so each task can simply keep the records of its own partition.
            return replace(prepared, placement=Placement.PARTITION)
        function = shown.functions[0] if shown.functions else Placement.MURMUR2
        return _misplaced(replace(prepared, placement=function), by_topic)

    def chosen_again(self, prepared: PreparedSub) -> PreparedSub | None:
        """Chooses the placement again if the sub-topology's tasks have had no key yet, because keys in its topics may show it now.

        Returns:
            The sub-topology with another placement; None: it stays the same.

        Args:
            prepared: The sub-topology, whose placement was chosen too early.
        """
        if self.application.config.placement is not None or self._last_marker(prepared) is not None:
            return None
        found = self._looked(replace(prepared, placement=None), finally_=True)
        return None if found.placement in (None, prepared.placement) or found.misplaced is not None else found

    def fitting(self, prepared: PreparedSub, before: Placement | None) -> PreparedSub:
        """The sub-topology with the placement of its rows, or with another one if keys in its topics contradict it.

        Args:
            prepared: A sub-topology.
            before: The placement of its rows; None: it has no rows.
        """
        asked = self._asked(prepared)
        if asked is not None or before in (None, Placement.PARTITION):
            return replace(prepared, placement=before if asked is None or before is None else asked)
        topics = [topic for topic in self.application.from_outside(prepared.sub) if topic in prepared.sub.placed_topics]
        by_topic = self._shown(prepared.sub, self.admin.describe_topics(topics))
        functions = reduce(Shown.__or__, by_topic.values(), Shown()).functions
        function = functions[0] if functions and before not in functions else before
        return _misplaced(replace(prepared, placement=function), by_topic)

    def looked_at(self, prepared: PreparedSub) -> PreparedSub:
        """The sub-topology with its placement, and with the reason that would end its live execution at once, if any."""
        last = self._last_marker(prepared)
        if last is None:
            return self._looked(prepared, finally_=False)
        return self._kept(replace(prepared, placement=Placement(last.placement)))

    def _kept(self, prepared: PreparedSub) -> PreparedSub:
        """The sub-topology, which has state, with the reason that would end its live execution at once, if any."""
        found = self._checked(prepared)
        if found.misplaced is None:
            return found
        return replace(found, misplaced=f"{found.misplaced}; `streams rescale TARGET` moves its state, so that it can")

    def _checked(self, prepared: PreparedSub) -> PreparedSub:
        if prepared.placement is Placement.PARTITION:
            return prepared
        return _misplaced(prepared, self._shown(prepared.sub, self.admin.describe_topics(prepared.sub.topics)))

    def _shown(self, sub: SubTopology, topics: Mapping[str, TopicInfo]) -> dict[str, Shown]:
        found = shown_in(topics, self.admin, self.log, partial(_rewritten, sub))
        for topic, partition, offset in self.known:
            if topic in found:
                found[topic] |= self._shown_at(sub, topic, partition, offset)
        return found

    def _shown_at(self, sub: SubTopology, topic: str, partition: int, offset: int) -> Shown:
        """What one record shows about the placement of keys; nothing if the record was deleted."""
        place, info = (topic, partition), self.admin.describe_topics([topic])[topic]
        if partition >= info.partitions or not self.admin.begin_offsets([place])[place] <= offset:
            return Shown()
        return shown_by(self.log, place, offset, offset + 1, info.partitions, partial(_rewritten, sub))

    def left_live(self, prepared: PreparedSub, record: tuple[str, int, int], now_ms: int) -> LeftLive:
        """Why a sub-topology has left live execution, and how it comes back.

        Args:
            prepared: The sub-topology.
            record: Topic, partition and offset of the record that is not where its placement puts it.
            now_ms: The clock.
        """
        placement = prepared.placement
        assert placement is not None, "else no record is misplaced"
        topic, partition, offset = record
        own = self._shown_at(prepared.sub, *record)
        topics = [name for name in self.application.from_outside(prepared.sub) if name in prepared.sub.placed_topics]
        looks = replace(self, known=(*self.known, record))._shown(prepared.sub, self.admin.describe_topics(topics))
        all_of_them = reduce(Shown.__or__, looks.values(), Shown())
        if own.rewritten:
            says = "has its key in another notation than that of its serde"
        elif own.functions:
            says = f"is where {own.functions[0].value} puts its key ({own.functions[0].used_by}), not where {placement.value} does"
        else:
            says = f"is not where {placement.value} or another known function puts its key"
        moves = not all_of_them.rewritten and all_of_them.functions
        back = f"--placement {all_of_them.functions[0].value}" if moves else ""
        return LeftLive(now_ms, f"the record at {topic}-{partition} offset {offset} {says}", back, record)


def _rewritten(sub: SubTopology, columns: RecordColumns) -> bool:
    """Whether the key serde of a source would write the keys as different bytes."""
    serdes = [source.key_serde for source in sub.sources if columns.topic in map(str, source.topics)]
    return any(canonical_keys(serde, columns) is not columns.keys for serde in serdes)


def _function(shown: Shown) -> str | None:
    return None if shown.rewritten or not shown.functions else shown.functions[0].value


LOOK_S = 1.0
"""How often the driver looks for first records, in seconds. Live tasks do not read them until their placement is decided."""
PATIENCE_S = 3.0
"""How long the driver waits for further keys while the first ones fit several functions."""


@dataclass
class Undecided:
    """Watches the topics of live sub-topologies without a placement.

    Attributes:
        found: The application with the placements that were found; None: no records have come.
    """

    application: Application
    log: MarkerLog
    say: Callable[[str], None]
    found: Application | None = None
    _next_s: float = 0.0
    _first_s: float | None = None

    def due(self, now_s: float) -> bool:
        """Whether it is time for the next look."""
        return now_s >= self._next_s

    def look(self, admin: Admin, now_s: float) -> bool:
        """Looks at the topics; returns whether records have decided anything."""
        self._next_s = now_s + LOOK_S
        places = Placements(self.application, admin, self.log)
        waiting = [one for one in self.application.subs if one.placement is None]
        topics = admin.describe_topics(topic for one in waiting for topic in one.sub.topics)
        if not any(admin.end_offsets(partitions_of(topics)).values()):
            return False
        self._first_s = now_s if self._first_s is None else self._first_s
        found = places.decided(finally_=now_s - self._first_s >= PATIENCE_S)
        decided = [one for one in found.subs if one.sub.name in {two.sub.name for two in waiting} and one.placement]
        for one in decided:
            assert one.placement is not None, "see above"
            self.say(f"{one.sub.name}: its keys are where {one.placement.value} puts them ({one.placement.used_by})")
        self.found = found if decided else None
        return bool(decided)


def _misplaced(prepared: PreparedSub, by_topic: Mapping[str, Shown]) -> PreparedSub:
    """The sub-topology, with a message about the first topic whose keys are not where its placement puts them."""
    placement = prepared.placement
    assert placement is not None, "it was decided"
    for topic, shown in sorted(by_topic.items()):
        if shown.rewritten:
            return replace(
                prepared, misplaced=f"the keys of {topic} are written in another notation than that of their serde"
            )
        if placement not in shown.functions:
            known = (
                f"are where {shown.functions[0].value} puts them, not where {placement.value} does"
                if shown.functions
                else ""
            )
            why = known or f"are not where {placement.value} or another known function puts them"
            return replace(prepared, misplaced=f"the keys of {topic} {why}")
    return prepared
