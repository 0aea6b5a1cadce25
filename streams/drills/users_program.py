"""A user's program as the subject of drills: a copy of its input, and a run without faults to compare with.

The verifier knows nothing of the program. The engine promises that the same input gives the same results, so the last result of
each key and the rows of all stores must be the same as in the undisturbed run, whatever the faults. The results in between may
differ, because a store with a cache forwards one result per step.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from state.kafka.admin import KafkaAdmin
from streams.application.prepare import Application, plan_application
from streams.application.stored_tasks import stored_tasks
from streams.config import StreamsConfig
from streams.drills.drill import Conditions, DrillFailed
from streams.drills.subject import Flow, Site, store_rows, wrong_commits, wrong_reader, wrong_restore
from streams.drills.topics import OutsideReader, Read, read_committed, read_first
from streams.drills.world import START_S, World
from streams.errors import ConfigError
from streams.topology.plan import build_plan
from streams.topology.topology import Topology

PACE_S = 150.0
"""Seconds over which the input is written, so that there is input before, within and after a fault."""
STEPS = 60
"""The approximate number of micro-batches into which the input is divided, however fast it is read."""
_TICK_S = 0.1

Input = Mapping[str, Sequence[Read]]
LastPerKey = dict[tuple[str, bytes | None], bytes | None]
"""The last value, by topic and key."""
Rows = dict[str, set[tuple[object, ...]]]
"""The rows of each store."""


class RecordedLoad(Flow):
    """Writes copied records over some time, in the order in which the engine merges partitions.

    Args:
        servers: The scratch broker's address.
        given: The records, by topic.
        pace_s: The seconds that writing takes; 0: all at once.
    """

    def __init__(self, servers: str, given: Input, pace_s: float) -> None:
        super().__init__({"bootstrap.servers": servers, "enable.idempotence": True})
        self.now_ms = 0
        self._total = sum(map(len, given.values()))
        self._records = merged(given)
        self._pace_s = pace_s

    def run(self) -> None:
        """Writes records until there are no more, or `finish` is called."""
        per_tick = max(1, round(self._total * _TICK_S / max(self._pace_s, _TICK_S)))
        while self.sent < self._total and not self._finish.wait(_TICK_S):
            self._write(0 if self.paused else per_tick)

    def finish(self) -> None:
        """Writes the rest at once. Does nothing the second time."""
        self._end()
        self._write(self._total)
        self._flush()

    def _write(self, most: int) -> None:
        for topic, one in islice(self._records, most):
            self.sent += 1
            self.now_ms = one.timestamp
            while True:
                try:
                    self._producer.produce(
                        topic,
                        one.value,
                        one.key,
                        one.partition,
                        timestamp=one.timestamp,
                        headers=list(one.headers),
                        on_delivery=self._delivered,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.poll(0)


def merged(given: Input) -> Iterator[tuple[str, Read]]:
    """All records in the engine's order: by offset within a partition, and next from the partition with the oldest first record."""
    logs: dict[tuple[str, int], list[Read]] = {}
    for topic, records in given.items():
        for one in records:
            logs.setdefault((topic, one.partition), []).append(one)
    heads = [(records[0].timestamp, place, 0) for place, records in logs.items()]
    heapq.heapify(heads)
    while heads:
        _, place, number = heapq.heappop(heads)
        yield place[0], logs[place][number]
        if number + 1 < len(logs[place]):
            heapq.heappush(heads, (logs[place][number + 1].timestamp, place, number + 1))


@dataclass
class UsersProgram:
    """A program with a copy of its input.

    Attributes:
        target: The program, as `streams run` takes it.
        given: Its input, by topic.
        inputs, outputs: Topics with their partitions.
        settings: Options of `streams run` that the user gave.
    """

    target: str
    topology: Topology
    given: Input
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    settings: Sequence[str] = ()
    _last: LastPerKey | None = None
    _rows: Rows = field(default_factory=dict)

    @classmethod
    def copied(
        cls, target: str, topology: Topology, config: StreamsConfig, most: int, settings: Sequence[str] = ()
    ) -> UsersProgram:
        """Copies the first records of the topics that a program reads."""
        plan = build_plan(topology, config.application_id)
        internal = set(plan.repartition_topics)
        if any(source.pattern is not None for source in topology.sources()):
            raise ConfigError("a drill copies topics by their names, but the program reads a pattern")
        subs = plan.sub_topologies
        names = {name for sub in subs for name in sub.topics} - internal
        names |= {table.lasting_topic for table in topology.global_tables.values() if table.given is None}
        sinks = {str(sink.topic) for sub in subs for sink in sub.sinks if sink.topic is not None} - internal
        if any(sink.topic is None for sub in subs for sink in sub.sinks) or not sinks:
            raise ConfigError("a drill follows topics of results by their names, but the program names none")
        with KafkaAdmin(config.client) as admin:
            found = {name: info.partitions for name, info in admin.describe_topics(names | sinks).items()}
        if missing := (names | sinks) - found.keys():
            raise ConfigError(f"the program's topics do not exist on this cluster: {', '.join(sorted(missing))}")
        given = {name: read_first(config.client, name, most) for name in sorted(names)}
        if not any(given.values()):
            raise ConfigError(f"the topics {', '.join(sorted(names))} have no records: a drill needs input")
        return cls(
            target,
            topology,
            given,
            {name: found[name] for name in names},
            {name: found[name] for name in sinks},
            settings,
        )

    @property
    def total(self) -> int:
        """The number of records of the input."""
        return sum(map(len, self.given.values()))

    @property
    def options(self) -> Sequence[str]:
        """Options for small micro-batches, so that there are many steps that faults can hit."""
        return (*self.settings, "--max-records-per-trigger", str(max(20, self.total // STEPS)))

    def load(self, servers: str, seed: int, begin_ms: int | None = None) -> RecordedLoad:
        """The copied input: all at once for the undisturbed run, and over some time for drills."""
        return RecordedLoad(servers, self.given, PACE_S if self._last is not None else 0)

    def run_undisturbed(self, folder: Path) -> None:
        """Runs the program without faults, and keeps its results and stores to compare with."""
        with World(folder, self, Conditions()) as world:
            world.load.finish()
            driver = world.application.another("--available-now")
            try:
                code = driver.ended(10 * START_S)
            except DrillFailed as error:
                raise ConfigError(f"the program does not end without faults: {error}") from error
            if code != 0:
                raise ConfigError(f"the program fails without any fault: {driver.last_words()}")
            config = self._config(world.place)
            with KafkaAdmin(config.client) as admin:
                check_nothing_waits(plan_application(self.topology, config, admin), admin)
            self._last = last_per_key({name: read_committed(world.servers, name) for name in self.outputs})
            self._rows = self._store_rows(world.place)

    def complete(self, place: Site, readers: Mapping[str, OutsideReader]) -> Callable[[], bool]:
        """Compares the last results: once they are the same as in the undisturbed run, all input is processed."""

        def there() -> bool:
            with KafkaAdmin({"bootstrap.servers": place.servers}) as admin:
                read = admin.group_offsets(place.application_id)
                ends = admin.end_offsets([(name, n) for name, count in self.inputs.items() for n in range(count)])
            behind = [at for at, end in ends.items() if at in read and read[at] < end]
            time.sleep(0.5)
            return not behind and last_per_key({name: one.records for name, one in readers.items()}) == self._last

        return there

    def wrong(self, place: Site, seen: Mapping[str, Sequence[Read]]) -> list[str]:
        """Compares results and stores with the undisturbed run, and the stores with their changelogs."""
        said = []
        for name in self.outputs:
            said += wrong_reader(name, seen[name], read_committed(place.servers, name))
        if last_per_key(seen) != self._last:
            said.append("the last results of the keys are not those of the run without faults")
        rows = self._store_rows(place)
        said += [
            f"store {name} has other rows than in the run without faults"
            for name in rows
            if rows[name] != self._rows[name]
        ]
        config = self._config(place)
        stored = stored_tasks(self.topology, config) if self.topology.stores else []
        said += wrong_commits(place.servers, place.application_id)
        return [*said, *wrong_restore(stored, config, place.folder / "restored")]

    def _config(self, place: Site) -> StreamsConfig:
        return StreamsConfig(
            application_id=place.application_id, bootstrap_servers=place.servers, base_dir=place.base_dir
        )

    def _store_rows(self, place: Site) -> Rows:
        if not self.topology.stores:
            return {}
        config = self._config(place)
        tasks = stored_tasks(self.topology, config)
        return {
            name: {
                (row.key, row.window_start, row.window_end, row.value)
                for row in store_rows(tasks, place.application_id, config.state_dir, name)
            }
            for name in {name for task in tasks for name in task.stores}
        }


def check_nothing_waits(application: Application, admin: KafkaAdmin) -> None:
    """Checks that no record waits in a retry topic at the end of a run. Its results would be missing here, but not in the drill."""
    retries = {topic for prepared in application.subs for topic in prepared.sub.delays}
    if waiting := application.unread(admin, retries):
        raise ConfigError(
            f"the program fails on records of this input without any fault, and retries them later: they wait in "
            f"{', '.join(sorted(waiting))}, so there are no final results to compare with. Take input that it can process, or "
            f"run the drill with a program that does not retry"
        )


def last_per_key(records: Mapping[str, Sequence[Read]]) -> LastPerKey:
    """The last value of each key, by the offsets of its partition."""
    return {
        (topic, one.key): one.value
        for topic, found in records.items()
        for one in sorted(found, key=lambda one: (one.partition, one.offset))
    }
