"""The move to the plan that a first start would make today: with repartition topics where records change their task.

An old sub-topology is divided at the topics that are added: each of its nodes, and so each of its stores, is in one of its parts.
Together, the parts read the outside topics that it read, and they begin where it has ended; the topics between them are new and
empty. So nothing has to be processed again, and only rows move: to the tasks of the part that has their store. Invariants: the old
and the new plan are in the notes, so an interrupted rescale finishes what it began, whatever keys have arrived since then; all
notes exist until the description of the new plan is written, which decides what the next start does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from state.changelog import commits_topic, rescale_topic
from state.commit.protocols import KafkaAccess
from state.kafka.admin import KafkaAdmin
from state.kafka.placement import Placement
from streams.application.execution import obstacle
from streams.application.markers import placed_marker
from streams.application.owned_topics import write_manifest
from streams.application.placements import Placements
from streams.application.prepare import (
    Application,
    PreparedSub,
    names_of_any_plan,
    needed_sources,
    plan_application,
    plan_with,
)
from streams.application.rescale.plan import Part, Phase, RescaleNotes, RescalePlan, Sources
from streams.application.rescale.rescale import RescaleContext, Rescaler, SubRescale
from streams.config import StreamsConfig
from streams.errors import RescaleError
from streams.topology.planning.repartitions import added_topics
from streams.topology.topology import Topology

State = tuple[int | None, Placement | None]
"""The number of tasks of a sub-topology, and its placement, as in Kafka; None: nothing was committed, or no key has come."""


def states_of(application: Application, admin: KafkaAdmin, kafka: KafkaAccess) -> dict[str, State]:
    """Sub-topology -> the number of its tasks and its placement, from the commits topics."""
    topics = {commits_topic(application.config.application_id, one.sub.name): one.sub.name for one in application.subs}
    found: dict[str, State] = dict.fromkeys(topics.values(), (None, None))
    for topic, info in admin.describe_topics(sorted(topics)).items():
        last = placed_marker(kafka, topic, range(info.partitions))
        found[topics[topic]] = info.partitions, None if last is None else Placement(last.placement)
    return found


def unfinished_replan(
    topology: Topology, application_id: str, admin: KafkaAdmin, kafka: KafkaAccess
) -> dict[str, RescalePlan]:
    """Sub-topology of the old plan -> its notes of an unfinished move to another plan."""
    names = {rescale_topic(application_id, name): name for name in names_of_any_plan(topology)}
    found = {}
    for topic in sorted(admin.describe_topics(sorted(names))):
        notes = RescaleNotes(kafka, admin, topic, f"{application_id}-{names[topic]}-rescale").read()
        if notes is not None and notes.plan.sources is not None:
            found[names[topic]] = notes.plan
    return found


@dataclass(frozen=True)
class Replan:
    """The move of an application from one plan to another.

    Attributes:
        before: The application with the old plan.
        after: The application with the new plan.
        begun: Whether the move was begun by an earlier command.
    """

    before: Application
    after: Application
    begun: bool

    @property
    def added(self) -> dict[str, str]:
        """Topic that only the new plan has -> the reason."""
        app, known = self.after.config.application_id, self.before.plan.repartition_topics
        why = added_topics(self.after.plan.topology)
        return {name: text for topic, text in why.items() if (name := f"{app}-{topic}") not in known}

    @property
    def sources(self) -> tuple[Sources, Sources]:
        return self.before.plan.topology.repartitioned, self.after.plan.topology.repartitioned

    def parts(self, of: PreparedSub) -> Iterator[PreparedSub]:
        """The sub-topologies of the new plan that have nodes of a sub-topology of the old plan."""
        return (one for one in self.after.subs if not of.sub.nodes.keys().isdisjoint(one.sub.nodes))

    def obstacles(self, partitions: Mapping[str, int]) -> dict[str, str]:
        """Sub-topology of the new plan -> why it still cannot run live.

        Args:
            partitions: Topic -> its number of partitions.
        """
        known = {**partitions, **self.after.partitions}
        return {one.sub.name: why for one in self.after.subs if (why := obstacle(one, known)) is not None}

    @property
    def without_idle_time(self) -> list[str]:
        """The sub-topologies of the new plan in which idle time loses its effect because of an added topic."""
        if self.after.config.idle_timeout_ms is None:
            return []
        had = [one for one in self.before.subs if not one.sub.reads_internal]
        return [part.sub.name for one in had for part in self.parts(one) if part.sub.reads_internal]

    def rescaler(self, states: Mapping[str, State], context: RescaleContext) -> Rescaler:
        """The rescale of all sub-topologies.

        Args:
            states: The result of `states_of` for the old plan.
            context: The context of the rescale.
        """
        subs = [self._of(prepared, *states[prepared.sub.name], context) for prepared in self.before.subs]
        if any(sub.phase not in (None, Phase.COPYING) for sub in subs):
            # All sub-topologies began before any reached this phase. So one without notes is already done.
            subs = [sub for sub in subs if sub.notes is not None]
        return Rescaler(subs)

    def _of(
        self, prepared: PreparedSub, count: int | None, before: Placement | None, context: RescaleContext
    ) -> SubRescale:
        parts = tuple(
            Part(one.sub, one.tasks, one.placement or before or Placement.MURMUR2, self._written_by(one))
            for one in self.parts(prepared)
        )
        old = prepared.tasks if count is None else count
        app = self.before.config.application_id
        return SubRescale(app, prepared.sub, old, parts[0].tasks, context, before, None, parts, self.sources)

    def _written_by(self, one: PreparedSub) -> dict[str, int]:
        """Added topic that a sub-topology writes to -> the number of its partitions, which is its reader's number of tasks."""
        topics = {str(sink.topic) for sink in one.sub.sinks} & self.added.keys()
        return {
            topic: next(two.tasks for two in self.after.subs if topic in two.sub.topics) for topic in sorted(topics)
        }

    def accept(self, checkpoint_dir: str) -> None:
        """Writes the description of the new plan, which the next start follows."""
        write_manifest(self.after.plan, checkpoint_dir, self.after.placements)


def replan(
    topology: Topology,
    config: StreamsConfig,
    admin: KafkaAdmin,
    kafka: KafkaAccess,
    begun: Mapping[str, RescalePlan] = MappingProxyType({}),
    known: tuple[tuple[str, int, int], ...] = (),
) -> Replan:
    """The move of an application to the plan of a first start with its current program, settings and topics.

    Args:
        topology: The program.
        config: The settings.
        admin: The cluster.
        kafka: Reads markers and keys.
        begun: The result of `unfinished_replan`. A move that was begun is finished as it was planned.
        known: Records that are not where their keys belong: topic, partition and offset.

    Raises:
        RescaleError: The plans have nothing in common, or the notes belong to another program.
        StreamsError: The program cannot be planned.
    """
    as_before = config.model_copy(update={"tasks": None})
    if begun:
        sources = next(iter(begun.values())).sources
        assert sources is not None, "else it is a move within the plan"
        noted = {name: part for plan in begun.values() for name, part in plan.parts.items()}
        before = plan_with(topology, as_before, admin, kafka, sources[0], names=list(begun))
        after = plan_with(topology, config, admin, kafka, sources[1], first_start=True, names=list(noted))
        return Replan(before, _as_noted(after, noted), begun=True)
    before = plan_application(topology, as_before, admin, kafka)
    added = before.plan.topology.repartitioned or {}

    def planned(functions: Mapping[str, str | None]) -> Application:
        sources = needed_sources(topology, config, admin, kafka, functions, added)
        return plan_with(topology, config, admin, kafka, sources, first_start=True)

    after = planned({})
    # Which topics lead to stateful operators is known only once topics are added after new keys.
    if functions := Placements(after, admin, kafka, known).disagreeing(also_old=True):
        after = planned(functions)
    _check_keeps_topics(before, after)
    made = Replan(before, after, begun=False)
    subs = _placed(made, states_of(before, admin, kafka), Placements(after, admin, kafka, known))
    return replace(made, after=replace(after, subs=tuple(subs)))


def _check_keeps_topics(before: Application, after: Application) -> None:
    missing = before.plan.repartition_topics.keys() - after.plan.repartition_topics.keys()
    if missing:
        raise RescaleError(
            f"{before.config.application_id}: the topic {min(missing)} of its plan does not exist in the new plan, and this "
            f"version cannot remove it: report this"
        )


def _placed(made: Replan, states: Mapping[str, State], places: Placements) -> Iterator[PreparedSub]:
    """The sub-topologies of the new plan, with the placement of their rows, or another one if keys in topics contradict it."""
    of = {one.sub.name: states[old.sub.name][1] for old in made.before.subs for one in made.parts(old)}
    return (places.fitting(one, of[one.sub.name]) for one in made.after.subs)


def _as_noted(after: Application, noted: Mapping[str, tuple[int, Placement]]) -> Application:
    """The application with the numbers of tasks and the placements in the notes."""
    if others := noted.keys() - {one.sub.name for one in after.subs}:
        app = after.config.application_id
        raise RescaleError(
            f"{app}: the rescale that was begun is of another program, with a sub-topology {min(others)}"
        )
    subs = []
    for one in after.subs:
        tasks, placement = noted.get(one.sub.name, (one.tasks, one.placement))
        subs.append(replace(one, tasks=tasks, placement=placement))
    return replace(after, subs=tuple(subs))
