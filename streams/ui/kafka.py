"""The parts of the page that come from Kafka: commits, open transactions, replicas, dead letters, and the doctor's findings.

Each answer is kept for a few seconds, so several open pages cost as much as one. Only the replay of dead letters changes anything.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from state.changelog import commits_topic, ensure_replays, pauses_topic
from state.kafka.admin import LateAdmin
from state.kafka.connection import RightsProbe
from state.kafka.topics import TopicPartition, partitions_of
from state.restore.snapshot_location import open_location
from state.restore.snapshots import TaskSnapshots
from streams.application.dead_letters import (
    Choice,
    Letter,
    dead_letter_topics,
    letter_as_dict,
    letters_of,
    plan_replay,
    read_replayed,
    replay,
    replays_topic,
    summary,
)
from streams.application.doctor.examine import examine, findings
from streams.application.doctor.inspection import Inspection
from streams.application.pausing import Pausing
from streams.application.prepare import Application, kafka_of, plan_application
from streams.application.rights import check_replay_rights
from streams.application.status import Status, SubInKafka, status_in_kafka, subs_in_kafka, subs_of
from streams.application.transactions import undecided
from streams.checkpoint.files import LocalFiles, is_local
from streams.cluster.admin import Survey
from streams.config import StreamsConfig
from streams.engine.source.log import LiveLog
from streams.engine.source.pauses import read_pauses
from streams.errors import ConfigError
from streams.model.record import Headers
from streams.serdes.base import Serde
from streams.serdes.json_shown import shown, shown_json
from streams.topology.graph import SinkNode, SourceNode
from streams.topology.topology import Topology
from streams.ui.history import wall_clock_ms
from streams.ui.pulse import LATE_S

_REQUEST_S = 10.0
_KEPT_S = 4.0
_DOCTOR_S = 30.0
_LETTERS = 100
"""The most dead letters of a partition that are shown, the newest."""
_PEEKED = 20
"""The last records of a topic that are shown."""
_PEEKED_PARTITIONS = 64

_Answer = TypeVar("_Answer")


class _Kept:
    """Answers that are kept, each with the time when it was made."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[float, Any]] = {}
        self._locks: dict[str, threading.Lock] = {}

    def of(self, name: str, for_s: float, ask: Callable[[], _Answer]) -> _Answer:
        """A kept answer that is younger than `for_s`, or else a new one; others who ask at the same time wait for it."""
        with self._locks.setdefault(name, threading.Lock()):
            known = self._answers.get(name)
            if known is None or time.monotonic() - known[0] > for_s:
                known = self._answers[name] = (time.monotonic(), ask())
            found: _Answer = known[1]
            return found

    def forget(self, name: str) -> None:
        self._answers.pop(name, None)


@dataclass
class KafkaLook:
    """Looks up in Kafka what is known of an application.

    Attributes:
        topology: The program; None: it is not available.
        target: The program as named on the command line, for the commands that the doctor suggests.
    """

    config: StreamsConfig
    topology: Topology | None
    target: str = "TARGET"
    _kept: _Kept = field(default_factory=_Kept)
    _open_since: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._admin = LateAdmin(self.config.client, _REQUEST_S)
        self._quick = LateAdmin(self.config.client, LATE_S)
        self.log = kafka_of(self.config)

    def close(self) -> None:
        self._admin.close()
        self._quick.close()

    def ask(self) -> None:
        """Checks whether the brokers answer, by a small request with a short timeout.

        Raises:
            KafkaClientError: They do not answer.
        """
        self._quick().describe_topics([pauses_topic(self._app)])

    # --- Commits

    def subs(self) -> tuple[SubInKafka, ...]:
        """The sub-topologies of the program; without a program, the sub-topologies that have committed."""
        if self.topology is None:
            return self._kept.of("subs", 30.0, lambda: subs_in_kafka(self._app, self._admin(), self.log))
        return subs_of(self._application(self.topology))

    def status(self) -> Status:
        pauses = read_pauses(LiveLog(self.config.client, self._admin()), self._app)
        return status_in_kafka(self._app, self.subs(), self._admin(), self.log, wall_clock_ms(), pauses)

    def commits(self) -> dict[str, Any]:
        """The last commit of each task, the open transactions that hold readers up, and how far the replicas are."""
        return self._kept.of("commits", _KEPT_S, self._commits)

    def _commits(self) -> dict[str, Any]:
        status = self.status()
        return {
            "at": status.at_ms,
            "tasks": [{"sub_topology": sub.name, **one.as_json} for sub in status.subs for one in sub.committed],
            "paused": {sub.name: sub.paused_since_ms for sub in status.subs if sub.paused_since_ms is not None},
            "open_transactions": list(self._open(status.at_ms)),
            "replicas": list(self._replicas()),
            "snapshots": self._kept.of("snapshots", _DOCTOR_S, lambda: list(self._snapshots())),
        }

    def _open(self, now_ms: int) -> Iterator[dict[str, Any]]:
        topics = {topic for sub in self.subs() for topic in (commits_topic(self._app, sub.name), *sub.topics)}
        if self.topology is not None:
            topics |= {str(sink.topic) for sink in self.topology.sinks() if isinstance(sink.topic, str)}
        places = partitions_of(self._admin().describe_topics(sorted(topics)))
        found = undecided(self._admin(), places)
        self._open_since = {
            place: known
            if (known := self._open_since.get(place)) is not None and known[0] == stable
            else (stable, now_ms)
            for place, (stable, _) in found.items()
        }
        for (topic, partition), (stable, end) in found.items():
            yield {
                "topic": topic,
                "partition": partition,
                "last_stable_offset": stable,
                "end_offset": end,
                "seen_for_ms": now_ms - self._open_since[topic, partition][1],
            }

    def _replicas(self) -> Iterator[dict[str, Any]]:
        """The number of commits that the copies of each task are behind, by the offsets of their consumer group."""
        group = f"{self._app}-replicas"
        subs = {commits_topic(self._app, sub.name): sub.name for sub in self.subs()}
        places = partitions_of(self._admin().describe_topics(sorted(subs)))
        at = self._admin().group_offsets(group, places)
        ends = self._admin().end_offsets(list(at)) if at else {}
        for (topic, task), offset in sorted(at.items()):
            yield {"sub_topology": subs[topic], "task": task, "behind": max(0, ends[topic, task] - offset)}

    def _snapshots(self) -> Iterator[dict[str, Any]]:
        """The newest snapshot of each task."""
        if not self.config.snapshot_dir:
            return
        location = open_location(self.config.snapshot_dir)
        for sub in self.subs():
            for task in range(sub.tasks):
                stored = TaskSnapshots(location, self._app, sub.name, task)
                if names := stored.names():
                    one = max((stored.read(name) for name in names), key=lambda one: one.version)
                    yield {
                        "sub_topology": sub.name,
                        "task": task,
                        "step": one.version,
                        "taken": one.taken_ms,
                        "bytes": one.size_bytes,
                        "snapshots": len(names),
                    }

    # --- Dead letters

    def dead_letters(self) -> dict[str, Any]:
        """The newest dead letters of each partition, newest first, and the number of all dead letters."""
        return self._kept.of("dead letters", _KEPT_S, self._dead_letters)

    def _dead_letters(self) -> dict[str, Any]:
        there = self._admin().describe_topics(self._letter_topics())
        topics = []
        for topic, info in sorted(there.items()):
            places = [(topic, partition) for partition in range(info.partitions)]
            begins, ends = self._admin().begin_offsets(places), self._admin().end_offsets(places)
            replayed = read_replayed(self.log, topic)
            letters = [letter for place in places for letter in self._newest(place, begins[place], ends[place])]
            letters.sort(key=lambda letter: letter.timestamp, reverse=True)
            rows = [letter_as_dict(one, replayed.has(one.place[1], one.offset), _text) for one in letters[:_LETTERS]]
            # Offsets also count the records that end transactions, but people count only the letters read.
            all_read = all(ends[place] - begins[place] <= _LETTERS for place in places)
            topics.append(
                {
                    "topic": topic,
                    "offsets": sum(ends[place] - begins[place] for place in places),
                    "all_read": all_read,
                    "groups": groups_of(letters),
                    "letters": rows,
                }
            )
        return {"at": wall_clock_ms(), "topics": topics}

    def _newest(self, place: TopicPartition, begin: int, end: int) -> Iterator[Letter]:
        start = max(begin, end - _LETTERS)
        return letters_of(self.log, place, start, end) if start < end else iter(())

    def _letter_topics(self) -> tuple[str, ...]:
        of_policies = self.config.dead_letter_topic
        if self.topology is None:
            return () if of_policies is None else (of_policies,)
        return dead_letter_topics(self.topology, of_policies)

    def replay(self, topic: str, error: str | None, positions: frozenset[tuple[int, int]] | None) -> Mapping[str, Any]:
        """Sends the records of dead letters once more, as `streams dlq replay` does."""
        if topic not in self._letter_topics():
            known = ", ".join(self._letter_topics()) or "none"
            raise ConfigError(f"{topic!r} is not a topic of dead letters of {self._app}. Known: {known}")
        plan = plan_replay(self.log, topic, Choice(error=error, positions=positions))
        sent = 0
        if plan.letters:
            check_replay_rights(plan.topic, plan.targets, RightsProbe(self.config.client), self.config.client)
            ensure_replays(self._admin(), replays_topic(topic), self.config.replication_factor)
            sent = replay(self.log, plan, wall_clock_ms)
        self._kept.forget("dead letters")
        return {**summary(plan), "sent": sent}

    # --- The records of topics

    def last_records(self, topic: str) -> dict[str, Any]:
        """The last records of a topic of the application, newest first.

        Raises:
            ConfigError: The application neither reads nor writes such a topic.
        """
        if topic not in self._topics():
            raise ConfigError(f"{self._app} neither reads nor writes a topic {topic!r}")
        return self._kept.of(f"records of {topic}", _KEPT_S, lambda: self._last_records(topic))

    def _last_records(self, topic: str) -> dict[str, Any]:
        places = partitions_of(self._admin().describe_topics([topic]))
        begins, ends = self._admin().begin_offsets(places), self._admin().end_offsets(places)
        last = [
            (place, max(begins[place], ends[place] - _PEEKED), ends[place]) for place in places[:_PEEKED_PARTITIONS]
        ]
        found = [one for place, start, end in last if start < end for one in letters_of(self.log, place, start, end)]
        found.sort(key=lambda one: one.timestamp, reverse=True)
        key, value = self._serdes(topic)
        return {
            "topic": topic,
            "partitions": len(places),
            "records": [
                {
                    "position": f"{topic}-{one.place[1]}@{one.offset}",
                    "timestamp": one.timestamp,
                    "key": _shown(topic, key, one.key, one.headers),
                    "value": _shown(topic, value, one.value, one.headers),
                    "headers": [[name, None if data is None else _text(data)] for name, data in one.headers],
                }
                for one in found[:_PEEKED]
            ],
        }

    def _topics(self) -> set[str]:
        own = {topic for sub in self.subs() for topic in (*sub.topics, commits_topic(self._app, sub.name))}
        return own.union(self._letter_topics(), (str(sink.topic) for sink in self._sinks()))

    def _sinks(self) -> list[SinkNode]:
        return [] if self.topology is None else [one for one in self.topology.sinks() if one.topic is not None]

    def _serdes(self, topic: str) -> tuple[Serde[Any] | None, Serde[Any] | None]:
        """The serdes with which the program reads or writes a topic."""
        if self.topology is None:
            return None, None
        nodes = [one for sub in self._application(self.topology).plan.sub_topologies for one in sub.nodes.values()]
        named: list[SourceNode | SinkNode] = [
            one for one in nodes if isinstance(one, SourceNode) and topic in map(str, one.topics)
        ]
        named += [one for one in self._sinks() if str(one.topic) == topic]
        node = next(iter(named), None)
        return (None, None) if node is None else (node.key_serde, node.value_serde)

    # --- Pauses

    def pause(self, sub_topology: str | None, resume: bool) -> Mapping[str, Any]:
        """Pauses or resumes the application, or one sub-topology, as `streams pause` and `streams resume` do."""
        pausing = Pausing(self._app, self.config.client, self.config.replication_factor)
        pauses = pausing.resume(sub_topology) if resume else pausing.pause(sub_topology)
        return {"paused": dict(pauses.since_ms)}

    # --- The doctor

    def doctor(self) -> dict[str, Any]:
        """The findings of `streams doctor`, without hanging transactions, which only Java can ask for."""
        return self._kept.of("doctor", _DOCTOR_S, self._doctor)

    def _doctor(self) -> dict[str, Any]:
        if self.topology is None or not is_local(self.config.checkpoint_dir):
            why = (
                f"streams ui TARGET -a {self._app} examines the program as well"
                if self.topology is None
                else "the checkpoint is not on this host's disk: ask on a host with Spark"
            )
            return {"application_id": self._app, "verdict": None, "findings": [], "why": why}
        files = LocalFiles(self.config.checkpoint_dir)
        survey = Survey(self.config.client)
        inspection = Inspection(self.topology, self.config, self.target, files, self._admin(), survey, self.log)
        return {"at": wall_clock_ms(), **findings(self._app, list(examine(inspection)))}

    @property
    def _app(self) -> str:
        return self.config.application_id

    def _application(self, topology: Topology) -> Application:
        return self._kept.of("plan", 60.0, lambda: plan_application(topology, self.config, self._admin()))


def groups_of(letters: Sequence[Letter]) -> list[dict[str, Any]]:
    """Groups dead letters by error and operator: the number, the first time and the newest letter of each; largest groups first."""
    groups: dict[tuple[str, str, str], list[Letter]] = {}
    for letter in letters:
        groups.setdefault((letter.error("exception"), letter.error("node"), letter.error("stage")), []).append(letter)
    rows = [
        {
            "error": error,
            "node": node,
            "stage": stage,
            "count": len(found),
            "first": min(one.timestamp for one in found),
            "last": max(one.timestamp for one in found),
            "message": max(found, key=lambda one: one.timestamp).error("message"),
        }
        for (error, node, stage), found in groups.items()
    ]
    return sorted(rows, key=lambda row: (-int(str(row["count"])), str(row["error"])))


def _shown(topic: str, serde: Serde[Any] | None, data: bytes | None, headers: Headers) -> str | None:
    """A key or value as text: decoded by its serde, or else its bytes."""
    if data is None or serde is None:
        return None if data is None else _text(data)
    try:
        found = shown(serde.deserialize(topic, data, headers))
        return found if isinstance(found, str) else shown_json(found).decode()
    except Exception:
        # It may be a user's serde, and a record that it cannot read is exactly the one to look at.
        return _text(data)


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")
