"""Deletes everything that an application has created: internal topics, group offsets, local state and checkpoint.

Only topics that provably belong to the application (`belongings`) are deleted; inputs and outputs stay. The order: changelogs
and repartition topics; then the commits topics, which prove whose the others are; then the files. An interrupted reset is
finished by running it again, and until then the application does not start.

A lake sink can be given up alone (`plan_drop`): its internal topic, then its folder of the checkpoint. All other state stays.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from state.changelog.topics import commits_topic, pauses_topic
from state.commit.last_marker import MarkerLog
from state.errors import KafkaClientError
from state.kafka.admin import KafkaAdmin, TopicPartition
from state.restore.directory import StateDirectory
from streams.application.belongings import COMMITS, Belongings, belongings, commits_topics_of
from streams.application.reset_checkpoint import (
    check_no_reset,
    delete_checkpoint,
    note_reset,
    noted_start,
    noted_topics,
    query_folders,
)
from streams.application.topology_manifest import local_folder, own_manifest
from streams.config import StreamsConfig
from streams.errors import ConfigError, ResetUnfinishedError
from streams.source.offsets import FirstBatch, SourceOffsets
from streams.topology.graph import InternalTopic
from streams.wording import counted

RECENT_MS = 60_000


@dataclass(frozen=True)
class ResetPlan:
    """The plan of a reset: what it will delete, and what it leaves.

    Attributes:
        config: The application's settings.
        topics: Topic -> the proof that it is the application's.
        records: Topic -> the number of its records, at most.
        described: Whether the checkpoint folder has a topology.json.
        others: Topics with similar names, which stay.
        tasks: Number of tasks with local state on this host.
        queries: Names of the checkpoints of queries.
        warnings: Signs that the application is still running.
        start: Sub-topology -> where it then begins to read; the others begin as at a first start.
        lake_sinks: Sinks outside Kafka -> what they write to, which a reset does not touch.
    """

    config: StreamsConfig
    topics: Mapping[str, str]
    records: Mapping[str, int]
    described: bool
    others: Belongings
    tasks: int
    queries: tuple[str, ...]
    warnings: tuple[str, ...]
    start: Mapping[str, FirstBatch] = field(default_factory=dict)
    lake_sinks: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> Iterable[str]:
        app = self.config.application_id
        folder = local_folder(self.config.checkpoint_dir)
        if folder is not None and not self.described:
            yield f"{folder} has no topology.json: only commit markers say which topics {app} has made. Is the id right?"
        yield f"topics: {'none' if not self.topics else len(self.topics)}"
        for name, proof in self.topics.items():
            yield f"  {name}: up to {counted(self.records.get(name, 0), 'record')} (known from {proof})"
        for name, owner in self.others.foreign.items():
            yield f"  not {name}: it belongs to the application {owner}"
        unproven = [name for name in self.others.unproven if name not in self.topics]
        if unproven:
            yield f"  not {', '.join(unproven)}: nothing proves that they belong to {app}. --topics NAME,NAME adds them"
        if pauses_topic(app) in self.topics:
            yield f"pauses: none after this; what is paused of {app} now resumes with the next start"
        yield f"consumer group: {app}"
        yield f"local state: {self.config.state_dir / app}, {counted(self.tasks, 'task')} (on this host)"
        yield f"checkpoint: {self.config.checkpoint_dir}, {counted(len(self.queries), 'query')}"
        for name, first in self.start.items():
            places = (
                f"{topic}-{n}: {at}" for topic, of in first.start.topics.items() for n, at in enumerate(of.offsets)
            )
            yield f"{name} then begins to read at {', '.join(places)}, with empty stores: older records are not in them"
        for name, target in self.lake_sinks.items():
            yield (
                f"not {target}: it stays as it is, with all rows of the sink {name}. Delete it before the next start, which "
                f"writes all results again and refuses a table that has them; or name the sink anew to add to it"
            )
        yield from (f"warning: {warning}" for warning in self.warnings)


def positions_text(at: SourceOffsets) -> str:
    return ", ".join(f"{topic}-{n}: {offset}" for topic, of in at.topics.items() for n, offset in enumerate(of.offsets))


def plan_reset(
    config: StreamsConfig,
    admin: KafkaAdmin,
    log: MarkerLog,
    named: Collection[str] = (),
    start: Mapping[str, FirstBatch] = MappingProxyType({}),
) -> ResetPlan:
    """The plan of a reset; deletes nothing.

    Raises:
        ConfigError: Such a topic cannot be an internal topic of this application, or belongs to another one.
    """
    app = config.application_id
    kept = own_manifest(config)
    found = belongings(app, kept, admin, log)
    begun = set(noted_topics(config.checkpoint_dir) or ()) & set(found.unproven)
    topics = {**found.own, **dict.fromkeys(begun, "a reset that was begun"), **_named(app, named, found)}
    commits = commits_topics_of(app, topics)
    subs = {*(kept["sub_topologies"] if kept else ()), *commits.values()}
    places = [(name, p) for name, info in admin.describe_topics(topics).items() for p in range(info.partitions)]
    first, last = admin.begin_offsets(places), admin.end_offsets(places, committed=False)
    records = {name: sum(last[at] - first[at] for at in places if at[0] == name) for name in topics}
    return ResetPlan(
        config,
        dict(sorted(topics.items())),
        records,
        kept is not None,
        found,
        sum(1 for _ in StateDirectory(config.state_dir).tasks(app)),
        tuple(folder.name for folder in query_folders(config.checkpoint_dir, subs)),
        tuple(running_signs(admin, [place for place in places if place[0] in commits])),
        dict(start) or noted_start(config.checkpoint_dir),
        {name: sink["target"] for name, sink in (kept or {}).get("lake_sinks", {}).items()},
    )


def _named(application_id: str, named: Collection[str], found: Belongings) -> dict[str, str]:
    for name in named:
        if name in found.foreign:
            raise ConfigError(f"--topics: {name!r} belongs to the application {found.foreign[name]}, and stays")
        if name not in found.own and name not in found.unproven:
            raise ConfigError(
                f"--topics: {name!r} cannot be an internal topic of {application_id}: there is none of this name that begins with "
                f"'{application_id}-' and ends with -changelog, -commits or -repartition"
            )
    return {name: "--topics" for name in named if name not in found.own}


def running_signs(admin: KafkaAdmin, commits: list[TopicPartition]) -> Iterable[str]:
    """Signs in the partitions of its commits topics that an application may still be running."""
    if not commits:
        return
    stable, ends = admin.end_offsets(commits), admin.end_offsets(commits, committed=False)
    if any(stable[place] < ends[place] for place in commits):
        yield "a transaction is open: the application still runs, or was killed a moment ago. Stop it first"
    age_ms = int(time.time() * 1000) - max(admin.max_timestamps(commits).values(), default=-1)
    if age_ms < RECENT_MS:
        yield f"the last commit is {max(0, age_ms) // 1000} s old. If the application still runs, stop it first"


def reset(plan: ResetPlan, admin: KafkaAdmin, report: Callable[[str], None]) -> None:
    """Carries out the plan, so that the next start is a first one.

    Raises:
        ResetUnfinishedError: Something in Kafka cannot be deleted; everything after it still exists.
    """
    config = plan.config
    app = config.application_id
    note_reset(config.checkpoint_dir, plan.topics, plan.start)
    for commits in (False, True):
        topics = [name for name in plan.topics if name.endswith(COMMITS) is commits]
        _attempt(plan, admin, lambda topics=topics: admin.delete_topics(topics))  # type: ignore[misc]
        for topic in topics:
            report(f"deleted topic {topic}")
    if _attempt(plan, admin, lambda: admin.delete_group(app)):
        report(f"deleted consumer group {app}")
    report(f"deleted local state of {counted(StateDirectory(config.state_dir).wipe(app), 'task')}")
    if local_folder(config.checkpoint_dir) is None:
        report(
            f"delete the checkpoint {config.checkpoint_dir} with your storage's own tools: until then, no start is allowed"
        )
        return
    left = delete_checkpoint(config.checkpoint_dir, plan.queries, plan.start)
    report(f"deleted checkpoint {config.checkpoint_dir}" + (f", but for {', '.join(left)}" if left else ""))
    for name in plan.start:
        report(f"made a new checkpoint of {name}, which begins at the chosen offsets")


def _attempt(plan: ResetPlan, admin: KafkaAdmin, delete: Callable[[], bool | None]) -> bool | None:
    try:
        return delete()
    except KafkaClientError as error:
        app = plan.config.application_id
        left = ", ".join(sorted(admin.describe_topics(plan.topics))) or "none"
        raise ResetUnfinishedError(
            f"the reset of {app} has stopped: {error}. Topics that are still there: {left}; local state and checkpoint are too. "
            f"Let these credentials delete them (ACL Delete), or have somebody delete them who may, then run `streams reset "
            f"{app}` again: it goes on where it stopped. Until then the application does not start."
        ) from error


@dataclass(frozen=True)
class SinkDrop:
    """What is given up.

    Attributes:
        config: The application's settings.
        sink: The sink's name.
        target: What it writes to.
        topic: Its internal topic.
        waiting: How many offsets wait there, at most.
        warnings: Signs that the application is still running.
    """

    config: StreamsConfig
    sink: str
    target: str
    topic: str
    waiting: int
    warnings: tuple[str, ...]

    def lines(self) -> Iterable[str]:
        yield f"topic {self.topic}: up to {counted(self.waiting, 'offset')} that {self.target} does not get any more"
        yield f"checkpoint of the sink {self.sink} in {self.config.checkpoint_dir}"
        yield f"not {self.target}: it stays as it is. All other state of {self.config.application_id} stays, too"
        yield from (f"warning: {warning}" for warning in self.warnings)


def plan_drop(config: StreamsConfig, sink: str, admin: KafkaAdmin) -> SinkDrop:
    """What giving up a sink's rows would delete; deletes nothing.

    Raises:
        ConfigError: The application has no such sink.
        ResetUnfinishedError: An unfinished reset has deleted a part of the state.
    """
    app = config.application_id
    check_no_reset(app, config.checkpoint_dir)
    kept = own_manifest(config) or {}
    sinks, topic = kept.get("lake_sinks", {}), InternalTopic(sink).topic_name(app)
    if sink not in sinks:
        raise ConfigError(
            f"--drop-sink {sink}: topology.json in {config.checkpoint_dir} names no such sink, but "
            f"{', '.join(sorted(sinks)) or 'none'}. Where the checkpoint is on remote storage, delete the topic {topic} and the "
            f"checkpoint's folder {sink} with your own tools. Nothing was deleted."
        )
    found = admin.describe_topics([topic, *(commits_topic(app, name) for name in kept["sub_topologies"])])
    places = {(name, n) for name, info in found.items() for n in range(info.partitions)}
    own = {place for place in places if place[0] == topic}
    read, begins, ends = admin.group_offsets(app, own), admin.begin_offsets(own), admin.end_offsets(own)
    waiting = sum(ends[place] - max(begins[place], read.get(place, 0)) for place in own)
    return SinkDrop(
        config, sink, sinks[sink]["target"], topic, waiting, tuple(running_signs(admin, list(places - own)))
    )


def drop_sink(plan: SinkDrop, admin: KafkaAdmin, report: Callable[[str], None]) -> None:
    admin.delete_topics([plan.topic])
    report(f"deleted topic {plan.topic}")
    folder = local_folder(plan.config.checkpoint_dir)
    if folder is not None and (folder / plan.sink).exists():
        shutil.rmtree(folder / plan.sink)
    report(f"deleted the checkpoint of the sink {plan.sink}")
