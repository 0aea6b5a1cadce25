"""Deletes everything that an application has created: internal topics, group offsets, local state and checkpoint.

Only topics that provably belong to the application (`owned_topics`) are deleted; inputs and outputs stay, and so does anything
in the checkpoint folder that is neither a query's checkpoint nor the engine's own file. The order: a note that a reset has
begun; changelogs and repartition topics; then the commits topics, which prove whose the others are; then local state and
checkpoint; the note last. An application never starts on half a reset; running the reset again finishes it.

A lake sink can be given up alone (`plan_drop`): its internal topic, then its folder of the checkpoint. All other state stays.
"""

from __future__ import annotations

import csv
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from state.changelog import commits_topic, pauses_topic
from state.commit.marker import MarkerLog
from state.errors import KafkaClientError
from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicPartition, partitions_of
from state.restore.directory import StateDirectory
from streams.application.instances import LOCK
from streams.application.markers import newest_markers
from streams.application.owned_topics import (
    COMMITS,
    FILE,
    REPARTITION,
    OwnedTopics,
    commits_topics_of,
    described_repartitions,
    local_folder,
    own_manifest,
    owned_topics,
)
from streams.checkpoint.files import LocalFiles, write_first_batch, write_query_id
from streams.config import StreamsConfig
from streams.engine.source.offsets import FirstBatch, SourceOffsets, TopicOffsets
from streams.errors import ConfigError, ResetUnfinishedError
from streams.lake.commit import TABLE_COMMIT
from streams.topology.graph import InternalTopic
from streams.wording import counted

NOTE = "reset.json"


def check_no_reset(application_id: str, checkpoint_dir: str) -> None:
    """Refuses a start after an unfinished reset."""
    if noted_topics(checkpoint_dir) is not None:
        raise ResetUnfinishedError(
            f"a reset of {application_id} was started but not finished, so part of its state is gone. Run `streams reset "
            f"{application_id}` again: it resumes where it stopped. Nothing was written."
        )


def noted_topics(checkpoint_dir: str) -> list[str] | None:
    """The topics that an unfinished reset will delete; None if there is no unfinished reset."""
    note = _note(checkpoint_dir)
    return None if note is None else [str(topic) for topic in note.get("topics", ())]


def noted_start(checkpoint_dir: str) -> dict[str, FirstBatch]:
    """Where sub-topologies begin to read after an unfinished reset, if the reset has noted that."""
    found = (_note(checkpoint_dir) or {}).get("start", {})
    return {name: FirstBatch.from_json(first) for name, first in found.items()}


def _note(checkpoint_dir: str) -> dict[str, Any] | None:
    folder = local_folder(checkpoint_dir)
    if folder is None or not (folder / NOTE).exists():
        return None
    try:
        note = orjson.loads((folder / NOTE).read_bytes())
    except orjson.JSONDecodeError:
        # The note is truncated, so nothing was deleted yet.
        return {}
    return note if isinstance(note, dict) else {}


def note_reset(
    checkpoint_dir: str, topics: Iterable[str], start: Mapping[str, FirstBatch] = MappingProxyType({})
) -> None:
    folder = local_folder(checkpoint_dir)
    if folder is not None:
        note = {"topics": sorted(topics), "start": {name: first.to_json() for name, first in sorted(start.items())}}
        LocalFiles(str(folder)).write(NOTE, orjson.dumps(note))


def query_folders(checkpoint_dir: str, sub_topologies: Collection[str]) -> list[Path]:
    """The checkpoints of queries in the folder: folders named after a sub-topology, with Spark's layout, or of a lake sink.

    Folders that `streams adopt` has moved aside are named after a sub-topology too, with a suffix that begins with `~`.
    """
    folder = local_folder(checkpoint_dir)
    if folder is None or not folder.is_dir():
        return []
    return [
        child
        for child in sorted(folder.iterdir())
        if child.is_dir()
        and not child.is_symlink()
        and (
            not {child.name, child.name.partition("~")[0]}.isdisjoint(sub_topologies)
            or ((child / "metadata").exists() and (child / "offsets").is_dir())
            or (child / TABLE_COMMIT).exists()
        )
    ]


def delete_checkpoint(
    checkpoint_dir: str, sub_topologies: Collection[str], start: Mapping[str, FirstBatch] = MappingProxyType({})
) -> list[str]:
    """Deletes the queries' checkpoints, makes new ones where reading begins elsewhere, then deletes the engine's files."""
    folder = local_folder(checkpoint_dir)
    if folder is None or not folder.is_dir():
        return []
    for query in query_folders(checkpoint_dir, sub_topologies):
        shutil.rmtree(query)
    files = LocalFiles(str(folder))
    for name, first in start.items():
        write_query_id(files, name, str(uuid.uuid4()))
        write_first_batch(files, name, first)
    for file in (*folder.glob(f"{Path(FILE).stem}.*.tmp"), folder / FILE, folder / LOCK, folder / NOTE):
        file.unlink(missing_ok=True)
    left = sorted(child.name for child in folder.iterdir() if child.name not in start)
    if not left and not start:
        folder.rmdir()
    return left


# --- Where an application begins to read after a reset: at a time, or at given offsets
#
# The positions become the first position of a new checkpoint, in the file that a start looks for (`first-batch.json`), so the
# start of the application needs no setting. A reset is refused if a partition has no offset, or an offset is not in the log.


@dataclass(frozen=True)
class Wanted:
    """The positions that a user asks for.

    Attributes:
        time_ms: Reading begins at the first records at or after this time, ms since 1970; None: at the offsets.
        offsets: Partition -> offset; partitions that are not named are an error.
    """

    time_ms: int | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


def parse_offsets(lines: Iterable[str]) -> dict[TopicPartition, int]:
    """The offsets in lines of `topic,partition,offset`, the form of `kafka-consumer-groups.sh --from-file`."""
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        if not row:
            continue
        if len(row) != 3 or not (row[1].strip().isdecimal() and row[2].strip().isdecimal()):
            raise ConfigError(f"--to-offsets: line {number} is {','.join(row)!r}, and topic,partition,offset is needed")
        found[row[0].strip(), int(row[1])] = int(row[2])
    return found


def start_positions(config: StreamsConfig, admin: KafkaAdmin, log: MarkerLog, wanted: Wanted) -> dict[str, FirstBatch]:
    """Sub-topology -> where it will begin. Sub-topologies that only read repartition topics are left out."""
    if local_folder(config.checkpoint_dir) is None:
        raise ConfigError(
            f"the checkpoint {config.checkpoint_dir} is on remote storage, where a reset cannot make a new one: reset without "
            "positions, and start with --set starting_offsets=timestamp:MS"
        )
    inputs = _inputs(config, admin, log)
    read = {topic for topics in inputs.values() for topic in topics}
    found = admin.describe_topics(read)
    if missing := sorted(read - found.keys()):
        raise ConfigError(f"{', '.join(missing)}: the application reads it, but it does not exist")
    at = _positions(admin, sorted(partitions_of(found)), wanted)
    by_topic = {
        name: TopicOffsets(info.topic_id, tuple(at[name, number] for number in range(info.partitions)))
        for name, info in found.items()
    }
    starts = {
        sub: SourceOffsets({name: by_topic[name] for name in sorted(topics)})
        for sub, topics in sorted(inputs.items())
        if topics
    }
    # A first position with an end is final; without one, a start decides again where a first micro-batch begins.
    return {sub: FirstBatch(start, start) for sub, start in starts.items()}


def _positions(admin: KafkaAdmin, places: list[TopicPartition], wanted: Wanted) -> Mapping[TopicPartition, int]:
    begins, ends = admin.begin_offsets(places), admin.end_offsets(places)
    if wanted.time_ms is not None:
        found = admin.offsets_for_times(dict.fromkeys(places, wanted.time_ms))
        return {place: min(max(found[place], begins[place]), ends[place]) for place in places}
    strange = sorted(wanted.offsets.keys() - set(places))
    if strange:
        raise ConfigError(
            f"--to-offsets: {strange[0][0]}-{strange[0][1]} is not a partition that the application reads"
        )
    for place in places:
        name = f"{place[0]}-{place[1]}"
        if place not in wanted.offsets:
            raise ConfigError(f"--to-offsets: {name} is missing; its log has [{begins[place]}, {ends[place]})")
        if not begins[place] <= wanted.offsets[place] <= ends[place]:
            raise ConfigError(
                f"--to-offsets: offset {wanted.offsets[place]} of {name} is not in the log, which has [{begins[place]}, "
                f"{ends[place]})"
            )
    return wanted.offsets


def _inputs(config: StreamsConfig, admin: KafkaAdmin, log: MarkerLog) -> dict[str, set[str]]:
    """Sub-topology -> the topics that it reads and does not own, from topology.json and the markers."""
    app, kept = config.application_id, own_manifest(config)
    found: dict[str, set[str]] = {}
    own = {*owned_topics(app, kept, admin, log).own, *(described_repartitions(kept, app) if kept else ())}
    for name, sub in kept["sub_topologies"].items() if kept else ():
        found[name] = _plain_sources(sub, kept or {}, set(admin.topic_names()))
    for topic, name in sorted(commits_topics_of(app, own).items()):
        info = admin.describe_topics([topic]).get(topic)
        for marker in newest_markers(log, topic, range(info.partitions)) if info else ():
            # Without topology.json only the names show what a reset deletes: no other program reads such a topic.
            internal = {
                topic for topic in marker.topic_ids if topic.startswith(f"{app}-") and topic.endswith(REPARTITION)
            }
            found.setdefault(name, set()).update(set(marker.topic_ids) - own - internal)
    if not any(found.values()):
        raise ConfigError(
            f"cannot tell which topics {app} reads: there is neither a topology.json in {config.checkpoint_dir} nor any commit "
            "marker. Check the application id and --base-dir"
        )
    return found


def _plain_sources(sub: Mapping[str, Any], kept: Mapping[str, Any], known: set[str]) -> set[str]:
    """The topics that a described sub-topology reads by name. Topics that match a pattern are known from the markers."""
    named = {str(topic) for topics in sub["sources"].values() for topic in topics}
    # A pattern is written between slashes, which no topic's name contains.
    return {topic for topic in named - set(kept["repartition_topics"]) if topic in known or "/" not in topic}


# --- The plan, and carrying it out

RECENT_MS = 60_000


@dataclass(frozen=True)
class ResetPlan:
    """The plan of a reset: what it deletes, and what it leaves.

    Attributes:
        topics: Topic -> the proof that it is the application's.
        records: Topic -> the largest number of records that it can have.
        described: Whether the checkpoint folder has a topology.json.
        start: Sub-topology -> where it begins to read afterwards; the others begin as at a first start.
        lake_sinks: Sinks outside Kafka -> what they write to, which a reset does not touch.
    """

    config: StreamsConfig
    topics: Mapping[str, str]
    records: Mapping[str, int]
    described: bool
    others: OwnedTopics
    tasks: int
    queries: tuple[str, ...]
    warnings: tuple[str, ...]
    start: Mapping[str, FirstBatch] = field(default_factory=dict)
    lake_sinks: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> Iterable[str]:
        app = self.config.application_id
        folder = local_folder(self.config.checkpoint_dir)
        if folder is not None and not self.described:
            yield f"{folder} has no topology.json: only commit markers show which topics {app} has made. Is the id right?"
        yield f"topics: {'none' if not self.topics else len(self.topics)}"
        for name, proof in self.topics.items():
            yield f"  {name}: up to {counted(self.records.get(name, 0), 'record')} (known from {proof})"
        for name, owner in self.others.foreign.items():
            yield f"  not {name}: it belongs to the application {owner}"
        unproven = [name for name in self.others.unproven if name not in self.topics]
        if unproven:
            yield f"  not {', '.join(unproven)}: nothing proves that they belong to {app}. --topics NAME,NAME adds them"
        if pauses_topic(app) in self.topics:
            yield f"pauses: all are removed; the paused parts of {app} resume with the next start"
        yield f"consumer group: {app}"
        yield f"local state: {self.config.state_dir / app}, {counted(self.tasks, 'task')} (on this host)"
        yield f"checkpoint: {self.config.checkpoint_dir}, {counted(len(self.queries), 'query')}"
        for name, first in self.start.items():
            yield f"{name} then begins to read at {first.start}, with empty stores: older records are not in them"
        for name, target in self.lake_sinks.items():
            yield (
                f"not {target}: it stays as it is, with all rows of the sink {name}. Delete it before the next start, which "
                f"writes all results again and refuses a table that has them; or give the sink a new name to add to it"
            )
        yield from (f"warning: {warning}" for warning in self.warnings)


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
    found = owned_topics(app, kept, admin, log)
    begun = set(noted_topics(config.checkpoint_dir) or ()) & set(found.unproven)
    topics = {**found.own, **dict.fromkeys(begun, "a reset that was begun"), **_named(app, named, found)}
    commits = commits_topics_of(app, topics)
    subs = {*(kept["sub_topologies"] if kept else ()), *commits.values()}
    places = partitions_of(admin.describe_topics(topics))
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


def _named(application_id: str, named: Collection[str], found: OwnedTopics) -> dict[str, str]:
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
    """Yields the signs that an application may still be running, from its commits partitions."""
    if not commits:
        return
    stable, ends = admin.end_offsets(commits), admin.end_offsets(commits, committed=False)
    if any(stable[place] < ends[place] for place in commits):
        yield "a transaction is open: the application still runs, or was killed a moment ago. Stop it first"
    age_ms = int(time.time() * 1000) - max(admin.max_timestamps(commits).values(), default=-1)
    if age_ms < -RECENT_MS:
        yield f"by the clock of this machine, the last commit comes in {-age_ms // 1000} s. If that clock is wrong, set it first"
    elif age_ms < RECENT_MS:
        yield f"the last commit is {max(0, age_ms) // 1000} s old. If the application still runs, stop it first"


def reset(plan: ResetPlan, admin: KafkaAdmin, report: Callable[[str], None]) -> None:
    """Carries out the plan, so that the next start is a first start.

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
            f"the reset of {app} stopped: {error}. These topics still exist: {left}; so do local state and checkpoint. Allow these "
            f"credentials to delete them (ACL Delete), or have them deleted, then run `streams reset {app}` again: it resumes "
            f"where it stopped. Until then the application does not start."
        ) from error


@dataclass(frozen=True)
class SinkDrop:
    """The plan to give up a sink's rows; `waiting` is how many offsets wait in its topic, at most."""

    config: StreamsConfig
    sink: str
    target: str
    topic: str
    waiting: int
    warnings: tuple[str, ...]

    def lines(self) -> Iterable[str]:
        yield f"topic {self.topic}: up to {counted(self.waiting, 'offset')} that {self.target} will not receive"
        yield f"checkpoint of the sink {self.sink} in {self.config.checkpoint_dir}"
        yield f"not {self.target}: it stays as it is, and so does all other state of {self.config.application_id}"
        yield from (f"warning: {warning}" for warning in self.warnings)


def plan_drop(config: StreamsConfig, sink: str, admin: KafkaAdmin) -> SinkDrop:
    """What dropping a sink's rows would delete. Deletes nothing itself.

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
            f"--drop-sink {sink}: topology.json in {config.checkpoint_dir} has no such sink; it has "
            f"{', '.join(sorted(sinks)) or 'none'}. Where the checkpoint is on remote storage, delete the topic {topic} and the "
            f"checkpoint's folder {sink} with your own tools. Nothing was deleted."
        )
    found = admin.describe_topics([topic, *(commits_topic(app, name) for name in kept["sub_topologies"])])
    places = set(partitions_of(found))
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
