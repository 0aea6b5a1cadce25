"""Which sub-topologies run live, and the switch between live execution and micro-batches.

Both executions write the same markers, changelogs and group offsets, so a switch moves no state. It is an adoption
(`streams.checkpoint.compare`): the tasks are fenced, their markers get the id of a new checkpoint, and this checkpoint begins where
the last steps ended. An interrupted switch is finished by the next start.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from state.commit.marker import UNPLACED
from streams.application.adopt import ADOPTING, take_over, unfinished_plan
from streams.application.prepare import Application, PreparedSub
from streams.application.start import Preflight
from streams.checkpoint.compare import Adoption, Markers, check_checkpoint, position, runs_live, versions_of
from streams.checkpoint.files import LIVE, write_first_batch, write_query_id
from streams.config import Execution, StreamsConfig
from streams.engine.source.offsets import FirstBatch, SourceOffsets
from streams.engine.source.topics import check_same
from streams.errors import ConfigError
from streams.topology.ways import why_not_live


@dataclass(frozen=True)
class Executions:
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
    application: Application,
    partitions: Mapping[str, int],
    processes: int,
    others: bool,
    refused: Mapping[str, str],
    running: bool = False,
) -> Executions:
    """How the sub-topologies of an application run.

    Args:
        application: The application.
        partitions: Source topic -> its number of partitions.
        processes: How many tasks of this application Spark can run at once.
        others: Whether Spark has other queries to run: for lake sinks, for sources outside Kafka, or the user's own.
        refused: Sub-topology -> why it cannot run live, as found out during a run.
        running: Whether the application has run already. Then there is no error: a sub-topology that cannot run live any more
            (because several topics have got more partitions, say) runs in micro-batches.

    Raises:
        ConfigError: With execution=live, a sub-topology that is about to start cannot run live.
    """
    subs, execution = application.subs, application.config.execution
    if not may_run_live(application.config):
        return Executions(micro_batch=subs)
    obstacles = {one.sub.name: why for one in subs if (why := obstacle(one, partitions)) is not None} | dict(refused)
    if processes < 2 and (others or (0 < len(obstacles) < len(subs))):
        # A slot has a process to itself, and a query without a process would wait forever.
        no_core = "Spark has one core for it here, which other queries need, too"
        obstacles = {one.sub.name: obstacles.get(one.sub.name, no_core) for one in subs}
    if execution is Execution.LIVE and obstacles and not (running or refused):
        reasons = "; ".join(f"{name}: {why}" for name, why in sorted(obstacles.items()))
        raise ConfigError(
            f"execution=live, but {application.config.application_id} cannot run live: {reasons}. Nothing was written. With "
            f"execution=auto these sub-topologies run in micro-batches, and the others live"
        )
    if application.config.available_now and obstacles:
        # Micro-batches run one sub-topology after the other, each to its end; live, all run at once and end together.
        together = f"in a run over the existing input, all do, and {min(obstacles)} needs them"
        obstacles = {one.sub.name: obstacles.get(one.sub.name, together) for one in subs}
    return Executions(
        tuple(one for one in subs if one.sub.name not in obstacles),
        tuple(one for one in subs if one.sub.name in obstacles),
        obstacles,
    )


def obstacle(prepared: PreparedSub, partitions: Mapping[str, int]) -> str | None:
    """Why a sub-topology cannot run live; None: it can."""
    sub, tasks = prepared.sub, prepared.tasks
    for topic in sorted(sub.topics):
        count = partitions.get(topic, tasks)
        if count > tasks or (count < tasks and topic in sub.placed_topics):
            return f"{topic} has {count} partitions and the sub-topology {tasks} tasks"
    if prepared.misplaced is not None and sub.leads_to_state:
        return prepared.misplaced
    return why_not_live(sub)


@dataclass(frozen=True)
class LiveStart:
    """Where a sub-topology begins to run live: the id of its checkpoint, and positions for tasks without a live step."""

    query_id: str
    start: SourceOffsets


@dataclass(frozen=True)
class Switch:
    """Switches sub-topologies from one execution to the other, before any of their tasks runs."""

    preflight: Preflight
    say: Callable[[str], None]

    def finish(self, subs: Sequence[PreparedSub]) -> None:
        """Finishes switches that an earlier start has begun."""
        files = self.preflight.files
        for prepared in subs:
            if not files.names(prepared.sub.name + ADOPTING):
                continue
            access, sub = self.preflight.markers(prepared), self.preflight.identity(prepared)
            plan = unfinished_plan(files, sub, access.fenced())
            if plan is not None and plan.switch:
                take_over(files, sub, access, partial(_renewed, plan), _quiet)

    def to_live(self, prepared: PreparedSub, first: FirstBatch | None) -> LiveStart | None:
        """Where a sub-topology continues live, after its last micro-batch or live step.

        None: only some tasks have committed the last micro-batch, which has to be completed first.

        Args:
            prepared: The sub-topology.
            first: The position at which it begins if it is new (`Preflight.run`).
        """
        found, sub, files = self.preflight.check(prepared), self.preflight.identity(prepared), self.preflight.files
        checkpoint, name = found.checkpoint, prepared.sub.name
        if checkpoint.logged > checkpoint.committed or checkpoint.repeats:
            return None
        first = checkpoint.first or first
        known = position(checkpoint, found.markers) or (first.start if first else None)
        if known is None:
            return None
        sources = self.preflight.sources(prepared)
        sources.report_hidden(known)
        at = sources.completed(known)
        if checkpoint.logged < 0:
            if at is not known and first is not None:
                write_first_batch(files, name, replace(first, start=at, end=None if first.end is None else at))
            query_id = checkpoint.query_id or str(uuid.uuid4())
            if checkpoint.query_id is None:
                write_query_id(files, name, query_id)
        else:

            def behind(markers: Markers) -> SourceOffsets:
                check_checkpoint(sub, checkpoint, markers)
                return at

            query_id = self._take_over(prepared, behind).query_id
            self.say(f"{name}: continues live, after micro-batch {checkpoint.logged}")
        if files.read(f"{name}/{LIVE}") is None:
            files.write(f"{name}/{LIVE}", b"{}")
        return LiveStart(query_id, at)

    def unfinished(self, prepared: PreparedSub) -> SourceOffsets | None:
        """The end of a micro-batch that only some tasks have committed; None: there is no such micro-batch."""
        checkpoint = self.preflight.check(prepared).checkpoint
        if checkpoint.repeats and checkpoint.first is not None:
            return checkpoint.first.end
        return checkpoint.offsets.get(checkpoint.logged) if checkpoint.logged > checkpoint.committed else None

    def to_micro_batches(self, prepared: PreparedSub, known: FirstBatch | None) -> FirstBatch | None:
        """Where a sub-topology's first micro-batch begins: after its live steps; None: it has none."""
        files, name, sub = self.preflight.files, prepared.sub.name, self.preflight.identity(prepared)
        if files.names(f"{name}/offsets"):
            # Live steps are only made under a checkpoint that has logged no micro-batch.
            return known
        found = self.preflight.inspect(prepared)
        if found.wrong is not None or not (runs_live(found.markers) or files.read(f"{name}/{LIVE}") is not None):
            return known

        def behind(markers: Markers) -> SourceOffsets:
            check_checkpoint(sub, found.checkpoint, markers)
            at = position(found.checkpoint, markers)
            assert at is not None, "written before the first live step"
            # The first micro-batch would notice it, but only after the switch.
            check_same(at.topic_ids, self.preflight.admin.describe_topics(at.topics))
            return at

        first = self._take_over(prepared, behind).first
        self.say(f"{name}: continues in micro-batches, after its last live steps")
        return first

    def unplace(self, prepared: PreparedSub) -> bool:
        """Makes sure that no task of a live sub-topology commits by its placement any more; False: one already has.

        A process that ran it may be slow to end; its commits until it is fenced count.
        """
        found, sub = self.preflight.check(prepared), self.preflight.identity(prepared)

        def at(markers: Markers) -> SourceOffsets:
            if _is_placed(markers):
                raise _PlacedError
            check_checkpoint(sub, found.checkpoint, markers)
            known, first = position(found.checkpoint, markers), found.checkpoint.first
            if known is not None:
                return known
            assert first is not None, "written before the first live step"
            return first.start

        try:
            self._take_over(prepared, at)
        except _PlacedError:
            return False
        # Between two fences, a task may have committed once more: that counts.
        return not _is_placed(self.preflight.markers(prepared).read())

    def _take_over(self, prepared: PreparedSub, at: Callable[[Markers], SourceOffsets]) -> Adoption:
        """Gives a sub-topology a new checkpoint, with positions from the markers after the last fence.

        A process that ran it may be slow to end; its commits until it is fenced count, and it cannot commit after that.
        """
        files, sub, access = self.preflight.files, self.preflight.identity(prepared), self.preflight.markers(prepared)

        def plan(markers: Markers) -> Adoption:
            start = at(markers)
            return Adoption(str(uuid.uuid4()), FirstBatch(start, start), versions_of(markers), frozenset(), switch=True)

        return take_over(files, sub, access, plan, _quiet)


def _is_placed(markers: Markers) -> bool:
    return any(marker is not None and marker.placement != UNPLACED for marker in markers.values())


class _PlacedError(Exception):
    """A task has committed by a placement."""


def _renewed(plan: Adoption, markers: Markers) -> Adoption:
    renewed = plan.renewed(markers)
    assert renewed is not None, "no task has a marker of the plan"
    return renewed


def _quiet(_: str) -> None:
    """Reports nothing, because the switch has its own message."""
