"""Pauses and resumes an application, or a part of it, and switches its execution, wherever it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from dataclasses import dataclass

from state.changelog import commits_topic, ensure_pauses, pauses_topic
from state.kafka.admin import KafkaAdmin
from streams.cluster.records import Outgoing, write_records
from streams.config import Execution
from streams.engine.source.log import CommandLog
from streams.engine.source.pauses import (
    WHOLE,
    LeftLive,
    Pauses,
    execution_record,
    left_live_record,
    pause_record,
    read_pauses,
)
from streams.errors import ConfigError
from streams.topology.naming import INGEST
from streams.wording import did_you_mean


@dataclass(frozen=True, slots=True)
class Pausing:
    """The pauses of one application.

    Attributes:
        replication: The replication factor of the topic of pauses; -1: the broker's default.
    """

    application_id: str
    client: Mapping[str, str]
    replication: int = -1

    def pauses(self) -> Pauses:
        with KafkaAdmin(self.client) as admin:
            return read_pauses(CommandLog(self.client, admin), self.application_id)

    def pause(self, sub_topology: str | None = None) -> Pauses:
        """Pauses a part of the application, or all of it. The time of an earlier pause stays.

        Raises:
            ConfigError: The cluster has no such application, or the application has no such part.
        """
        name = WHOLE if sub_topology is None else sub_topology
        with KafkaAdmin(self.client) as admin:
            self._check(admin, sub_topology)
            ensure_pauses(admin, self.application_id, self.replication)
        if name not in self.pauses().since_ms:
            self._write({name: _now_ms()})
        return self.pauses()

    def resume(self, sub_topology: str | None = None) -> Pauses:
        """Resumes a part of the application, or the whole application with all its parts."""
        paused = self.pauses().since_ms
        if sub_topology is not None:
            with KafkaAdmin(self.client) as admin:
                self._check(admin, sub_topology)
            if WHOLE in paused:
                raise ConfigError(
                    f"the whole application {self.application_id!r} is paused, and {sub_topology!r} with it: resume it without "
                    f"--sub-topology, and then pause the others"
                )
        wanted = [name for name in paused if sub_topology in (None, name)]
        if wanted:
            self._write(dict.fromkeys(wanted))
        return self.pauses()

    def execute(self, execution: Execution | None) -> Pauses:
        """Switches the application to another execution; None: to the one in its settings."""
        if execution is Execution.LIVE:
            raise ConfigError(
                "execution=live ends an application if a part of it cannot run live; with auto, all parts that can run live do so"
            )
        with KafkaAdmin(self.client) as admin:
            self._check(admin, None)
            ensure_pauses(admin, self.application_id, self.replication)
        self._send(execution_record(execution and execution.value, _now_ms()))
        return self.pauses()

    def left_live(self, subs: Mapping[str, LeftLive | None]) -> None:
        """Notes why sub-topologies have left live execution; None deletes the note."""
        if any(subs.values()):
            with KafkaAdmin(self.client) as admin:
                ensure_pauses(admin, self.application_id, self.replication)
        self._send(*(left_live_record(name, left) for name, left in subs.items()))

    def _write(self, since_ms: Mapping[str, int | None]) -> None:
        self._send(*(pause_record(name, since) for name, since in since_ms.items()))

    def _send(self, *records: tuple[bytes, bytes | None]) -> None:
        outgoing = [Outgoing(*record, partition=0) for record in records]
        write_records(self.client, pauses_topic(self.application_id), outgoing)

    def _check(self, admin: KafkaAdmin, sub_topology: str | None) -> None:
        known = parts(admin, self.application_id)
        if not known:
            raise ConfigError(
                f"no application {self.application_id!r} has run on this cluster: there is no topic "
                f"{commits_topic(self.application_id, '...')}. Check the application id and the cluster's address"
            )
        if sub_topology is not None and sub_topology not in known:
            raise ConfigError(
                f"{self.application_id!r} has no sub-topology or source outside Kafka named {sub_topology!r}; "
                f"it has: {', '.join(known)}."
                f"{did_you_mean(sub_topology, known)}"
            )


def _now_ms() -> int:
    return int(time.time() * 1000)


def parts(admin: KafkaAdmin, application_id: str) -> list[str]:
    """The names of an application's sub-topologies and sources outside Kafka, by its commits topics.

    The result includes names of another application whose id begins with `<application_id>-`. The name of a source's commits ends
    in `-ingest`, and a source also has an internal topic.
    """
    topics = set(admin.topic_names())
    first, last = commits_topic(application_id, "\0").split("\0")
    own = pauses_topic(application_id)
    found = (name for name in topics if name.startswith(first) and name.endswith(last) and name != own)
    names = (name[len(first) : -len(last)] for name in found if len(name) > len(first) + len(last))
    return sorted(_source(name, application_id, topics) or name for name in names)


def _source(commits: str, application_id: str, topics: Set[str]) -> str | None:
    """The source outside Kafka that commits under a name; None: the name belongs to a sub-topology."""
    source = commits.removesuffix(INGEST)
    if source == commits:
        return None
    # The parts of a topology take longer to import than everything else here.
    from streams.topology.graph import InternalTopic

    return source if InternalTopic(source).topic_name(application_id) in topics else None
