"""Which sub-topologies run live, and the switch between live execution and micro-batches.

Both executions write the same markers, changelogs and group offsets, so a switch moves no state. It is an adoption
(`streams.checkpoint.compare`): the tasks are fenced, their markers get the id of a new checkpoint, and that begins where the last
steps have ended. An interrupted switch is finished by the next start.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streams.application.adopt import ADOPTING, take_over, unfinished_plan
from streams.application.prepare import Application, PreparedSub
from streams.application.start import Preflight
from streams.checkpoint.compare import Adoption, Markers, position, runs_live
from streams.checkpoint.files import query_id_of, write_first_batch, write_query_id
from streams.config import Execution, StreamsConfig
from streams.errors import ConfigError
from streams.source.offsets import FirstBatch, SourceOffsets
from streams.topology.ways import why_not_live


@dataclass(frozen=True)
class Ways:
    """How each sub-topology runs.

    Attributes:
        obstacles: Sub-topology -> why it cannot run live.
    """

    live: tuple[PreparedSub, ...] = ()
    micro_batch: tuple[PreparedSub, ...] = ()
    obstacles: Mapping[str, str] = field(default_factory=dict)


def may_run_live(config: StreamsConfig) -> bool:
    """Whether the settings let any sub-topology run live."""
    return config.execution is not Execution.MICRO_BATCH


def ways_of(
    application: Application, partitions: Mapping[str, int], processes: int, others: bool, refused: Mapping[str, str]
) -> Ways:
    """How the sub-topologies of an application run.

    Args:
        application: The application.
        partitions: Source topic -> its number of partitions.
        processes: How many tasks Spark runs at once.
        others: Whether the application has other queries: of lake sinks, or of sources outside Kafka.
        refused: Sub-topology -> what has turned out to prevent live execution.
    """
    subs, execution = application.subs, application.config.execution
    if not may_run_live(application.config):
        return Ways(micro_batch=subs)
    obstacles = {one.sub.name: why for one in subs if (why := obstacle(one, partitions)) is not None} | dict(refused)
    if processes < 2 and (others or (0 < len(obstacles) < len(subs))):
        # A slot has its process for itself, and a query without one would wait for ever.
        no_core = "Spark has one core here, which the application's other queries need"
        obstacles = {one.sub.name: obstacles.get(one.sub.name, no_core) for one in subs}
    planned = {name: why for name, why in obstacles.items() if name not in refused}
    if execution is Execution.LIVE and planned:
        reasons = "; ".join(f"{name}: {why}" for name, why in sorted(planned.items()))
        raise ConfigError(
            f"execution=live, but {application.config.application_id} cannot run live: {reasons}. Nothing was written. With "
            f"execution=auto these sub-topologies run in micro-batches, and the others live"
        )
    if application.config.available_now and obstacles:
        # Micro-batches run one sub-topology after the other, each to its end; live, all run at once and end together.
        together = f"in a run over what is there, all do, and {min(obstacles)} needs them"
        obstacles = {one.sub.name: obstacles.get(one.sub.name, together) for one in subs}
    return Ways(
        tuple(one for one in subs if one.sub.name not in obstacles),
        tuple(one for one in subs if one.sub.name in obstacles),
        obstacles,
    )


def obstacle(prepared: PreparedSub, partitions: Mapping[str, int]) -> str | None:
    """Why a sub-topology cannot run live; None: it can."""
    sub = prepared.sub
    uneven = sorted(topic for topic in sub.topics if partitions.get(topic, prepared.tasks) != prepared.tasks)
    if uneven:
        return f"{uneven[0]} has {partitions[uneven[0]]} partitions and the sub-topology {prepared.tasks} tasks"
    return why_not_live(sub)


@dataclass(frozen=True)
class LiveStart:
    """Where a sub-topology begins to run live: the id of its checkpoint, and positions for tasks without a live step."""

    query_id: str
    start: SourceOffsets


@dataclass(frozen=True)
class Switch:
    """Switches sub-topologies from one execution to the other; only before any of their tasks runs."""

    preflight: Preflight
    say: Callable[[str], None]

    def finish(self, subs: Sequence[PreparedSub]) -> None:
        """Finishes switches that a start before this one has begun."""
        files = self.preflight.files
        for prepared in subs:
            if not files.names(prepared.sub.name + ADOPTING):
                continue
            access, sub = self.preflight.markers(prepared), self.preflight.identity(prepared)
            plan = unfinished_plan(files, sub, access.read())
            if plan is not None and plan.switch:
                take_over(files, sub, access, lambda markers, plan=plan: plan, _quiet)  # type: ignore[misc]

    def to_live(self, prepared: PreparedSub, first: FirstBatch | None) -> LiveStart | None:
        """Where a sub-topology continues live, after its last micro-batch or live step.

        None: only some tasks have committed the last micro-batch, so that has to run to its end first.

        Args:
            prepared: The sub-topology.
            first: Where it begins if it is new (`Preflight.run`).
        """
        found = self.preflight.check(prepared)
        checkpoint, name, files = found.checkpoint, prepared.sub.name, self.preflight.files
        if checkpoint.logged > checkpoint.committed or checkpoint.repeats:
            return None
        first = checkpoint.first or first
        known = position(checkpoint, found.markers) or (first.start if first else None)
        if known is None:
            return None
        sources = self.preflight.sources(prepared)
        sources.report_hidden(known)
        at = sources.completed(known)
        if checkpoint.logged >= 0:
            query_id = self._take_over(prepared, at)
            self.say(f"{name}: continues live, behind micro-batch {checkpoint.logged}")
            return LiveStart(query_id, at)
        if at is not known and first is not None:
            write_first_batch(files, name, replace(first, start=at, end=None if first.end is None else at))
        query_id = checkpoint.query_id or str(uuid.uuid4())
        if checkpoint.query_id is None:
            write_query_id(files, name, query_id)
        return LiveStart(query_id, at)

    def to_micro_batches(self, prepared: PreparedSub, known: FirstBatch | None) -> FirstBatch | None:
        """Where a sub-topology's first micro-batch begins: where its live steps have ended, if it has any."""
        if self.preflight.files.names(f"{prepared.sub.name}/offsets"):
            # Live steps are only made under a checkpoint that has logged no micro-batch.
            return known
        if query_id_of(self.preflight.files, prepared.sub.name) is not None:
            # It may have run live. What a session commits that has committed nothing yet would be nobody's; one that begins after
            # this fence finds that its driver is gone, and commits nothing.
            self.preflight.markers(prepared).fenced()
        found = self.preflight.inspect(prepared)
        if found.wrong is not None or not runs_live(found.markers):
            return known
        at = position(found.checkpoint, found.markers)
        assert at is not None, "written before the first live step"
        self._take_over(prepared, at)
        self.say(f"{prepared.sub.name}: continues in micro-batches, behind its last live steps")
        return FirstBatch(at, at)

    def _take_over(self, prepared: PreparedSub, at: SourceOffsets) -> str:
        query_id = str(uuid.uuid4())

        def plan(markers: Markers) -> Adoption:
            versions = {task: marker.version for task, marker in markers.items() if marker is not None}
            return Adoption(query_id, FirstBatch(at, at), versions, frozenset(), switch=True)

        files, sub, access = self.preflight.files, self.preflight.identity(prepared), self.preflight.markers(prepared)
        take_over(files, sub, access, plan, _quiet)
        return query_id


def _quiet(_: str) -> None:
    """The switch says in its own words what has happened."""
