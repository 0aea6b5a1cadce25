"""The world of a drill: a separate broker, input, readers, and the application as a process, all in one scratch folder.

A drill injects its fault through `broker`, `proxy`, `application` and `load`. `saw` records the proof that the fault has
happened, `recovers` waits for results that only a working application writes and records how long that took, and `refused`
is for faults that must lead to a named error before anything is written.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TypeVar

from state.kafka.admin import KafkaAdmin, wait_until_decided
from state.kafka.config import QUIET
from state.kafka.topics import TopicSpec
from state.restore.task_stores import DAMAGED
from streams.broker import EmbeddedBroker
from streams.broker.processes import HOST, Watchdog
from streams.drills.brokers import BrokerLogs, Proxy, scratch_broker
from streams.drills.drill import Conditions, DrillFailed
from streams.drills.hosts import ClusterApplication, SparkCluster, spark_cluster
from streams.drills.processes import Supervised
from streams.drills.subject import Site, Subject
from streams.drills.topics import DECIDED_S, OutsideReader, ScratchTopics

STUCK_S = 180.0
"""Seconds without results after the end of a fault that count as a failure."""
START_S = 240.0
DRAIN_S = 300.0
APPLICATION_ID = "drill"
END, READ = "end", "read"
"""The two things about a topic that an application changes: where it ends, and how far the application's group has read it."""
LONGEST_AWAY_S = 30.0
REST_S = 3.0
"""After this many seconds without a commit, an application without input has finished its work."""
_Kept = TypeVar("_Kept")
_POLL_S = 0.1


class World:
    """A scratch world; a context manager that starts all but the application, and ends everything.

    Args:
        folder: A new folder for broker, state, checkpoint and logs.
        subject: The program with its input and its verification.
        conditions: What the drill needs.
        seed: The seed of the input and of random faults.
        say: Receives a line about each event.
        live: Whether the application runs live.

    Attributes:
        evidence: The proofs that the fault has happened.
        recoveries: The faults that the application recovered from, with the seconds until new results.
        drawn: Random numbers from the seed.
        logs: The logs of the brokers.
        damages_state: Whether the drill damages local databases, so that the application has to restore them.
    """

    def __init__(
        self,
        folder: Path,
        subject: Subject,
        conditions: Conditions,
        seed: int = 1,
        say: Callable[[str], None] = lambda text: None,
        live: bool = True,
    ) -> None:
        self.folder, self.subject, self.conditions, self.seed, self.say = folder, subject, conditions, seed, say
        self.live = live
        self.evidence: list[str] = []
        self.recoveries: list[tuple[str, float]] = []
        self.drawn = random.Random(seed)
        self.longest_away_s = LONGEST_AWAY_S
        self.damages_state = False
        self.broker = EmbeddedBroker(folder / "broker")
        self.logs = BrokerLogs(folder / "broker")
        self._proxy: Proxy | None = None
        self._cluster: SparkCluster | None = None
        self._stack = ExitStack()

    @property
    def proxy(self) -> Proxy:
        """The proxy in front of the broker; only a world of one broker has one."""
        assert self._proxy is not None, "a cluster of three has no proxy"
        return self._proxy

    @property
    def cluster(self) -> SparkCluster:
        """The Spark cluster; only a world with hosts has one."""
        assert self._cluster is not None, "the application runs on this host"
        return self._cluster

    @property
    def servers(self) -> str:
        return self._proxy.bootstrap_servers if self._proxy is not None else self.broker.bootstrap_servers

    def __enter__(self) -> World:
        with ExitStack() as stack:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.conditions.hosts:
                self._cluster = stack.enter_context(spark_cluster(self.folder))
            host = HOST if self._cluster is None else self._cluster.broker
            made = scratch_broker(self.folder / "broker", self.conditions.nodes, self.conditions.broker, host)
            self.broker, self._proxy = stack.enter_context(made)
            replicas = self.conditions.nodes
            topics = {**self.subject.inputs, **self.subject.outputs}
            with self.admin() as admin:
                kept = {"retention.ms": "-1"}
                admin.create_topics(TopicSpec(name, count, kept, replicas) for name, count in topics.items())
            self.application = self._application(stack.enter_context(Watchdog()))
            self.application.execution = "live" if self.live else "micro-batch"
            stack.callback(self.application.close)
            self.readers = {topic: OutsideReader(self.servers, topic, n) for topic, n in self.subject.outputs.items()}
            for reader in self.readers.values():
                reader.start()
                stack.callback(reader.finish)
            self.load = self.subject.load(self.servers, self.seed, self.conditions.begin_ms)
            stack.callback(self.load.abandon)
            self.load.start()
            self._stack = stack.pop_all()
        return self

    def _application(self, guard: Watchdog) -> Supervised:
        options = (*self.subject.options, *self.conditions.options)
        common = self.servers, self.folder, self.subject.target, APPLICATION_ID
        if self._cluster is None:
            return Supervised(*common, options, guard)
        application = ClusterApplication(*common, (*options, *self._cluster.options), guard)
        application.cluster = self._cluster
        return application

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def keep(self, what: AbstractContextManager[_Kept]) -> _Kept:
        """Enters a context manager that the application needs until its end, such as a database."""
        return self._stack.enter_context(what)

    def partly_live(self) -> None:
        """Sets `execution = "auto"`, for an application that can run live only in part or only part of the time."""
        if self.live:
            self.application.execution = "auto"

    @property
    def topics(self) -> ScratchTopics:
        """The topics of the broker. The connection bypasses the proxy, so it works whatever happens to the network."""
        return ScratchTopics(self.broker.bootstrap_servers)

    def admin(self) -> KafkaAdmin:
        """An admin client, to be closed by the caller. Its connection bypasses the proxy, so it works whatever the network does."""
        return KafkaAdmin({**QUIET, "bootstrap.servers": self.broker.bootstrap_servers})

    @property
    def place(self) -> Site:
        return Site(self.servers, APPLICATION_ID, self.application.base, self.folder)

    # What drills say and ask

    def saw(self, proof: str) -> None:
        """Records a proof that the fault has happened."""
        self.evidence.append(proof)
        self.say(f"seen: {proof}")

    def require(self, condition: bool, what: str) -> None:
        """Raises `DrillFailed` with this text if a condition does not hold."""
        if not condition:
            raise DrillFailed(what)

    def wait_for(self, condition: Callable[[], bool], what: str, timeout_s: float = STUCK_S) -> None:
        """Waits until a condition is true while the application runs.

        Raises:
            DrillFailed: The application has ended, or the timeout is over.
            SpoiledByBroker: A known bug of the broker keeps the application waiting.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.logs.check()
            if not self.application.current.running:
                raise DrillFailed(f"{what}: the application has ended by itself: {self.application.current.end()}")
            if time.monotonic() > deadline:
                raise DrillFailed(f"{what}: not within {timeout_s:g} s")
            time.sleep(_POLL_S)

    def start(self, *options: str, faults: str = "", environment: Mapping[str, str] | None = None) -> None:
        """Starts the application and waits for its results."""
        grown = self.grows()
        self.application.start(*options, faults=faults, environment=environment)
        self.wait_for(grown, "results after the start", START_S)

    def restarts(self, after: str, *options: str, **more: Any) -> None:
        """Starts the application again after an end, and waits for new results of every task."""
        began = time.monotonic()
        self.application.start(*options, **more)
        self.recovers(after, began, START_S)

    def recovers(self, after: str, since: float | None = None, timeout_s: float = STUCK_S) -> float:
        """Waits for new results of every task, and records the seconds that it took."""
        began = time.monotonic() if since is None else since
        self.wait_for(self.grows(), f"results after {after}", timeout_s)
        seconds = time.monotonic() - began
        self.recovered(after, seconds)
        return seconds

    def race(self, timeout_s: float, *options: str) -> dict[str, str]:
        """Runs a second driver next to the running one until one of them has ended; then the second one is ended.

        Returns:
            The last words of the drivers that ended by themselves. If `first` did, it was started again.
        """
        first, second = self.application.current, self.application.another(*options)
        deadline = time.monotonic() + timeout_s
        while first.running and second.running and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        ended = {name: one.last_words() for name, one in (("first", first), ("second", second)) if not one.running}
        second.close()
        second.all_gone()
        if not first.running:
            self.application.start()
        return ended

    def recovered(self, after: str, seconds: float) -> None:
        """Records that there are results again."""
        self.recoveries.append((after, seconds))
        self.say(f"results {seconds:.1f} s after {after}")

    def pause(self, most_s: float) -> float:
        """Waits for a random time of at least half a second, and returns it."""
        seconds = round(self.drawn.uniform(0.5, most_s), 1)
        time.sleep(seconds)
        return seconds

    def results(self) -> int:
        """The number of results that the readers have seen."""
        return sum(len(reader.records) for reader in self.readers.values())

    def grows(self) -> Callable[[], bool]:
        """A function that returns whether each task has written results since this call.

        It looks at the topic with the most results: each of its partitions that has records must get more.
        """

        def count(topic: str) -> dict[int, int]:
            found: dict[int, int] = {}
            for one in list(self.readers[topic].records):
                found[one.partition] = found.get(one.partition, 0) + 1
            return found

        busiest = max(self.readers, key=lambda topic: len(self.readers[topic].records))
        if not self.readers[busiest].records:
            return lambda: self.results() > 0
        before = count(busiest)
        return lambda: all(count(busiest)[partition] > number for partition, number in before.items())

    def refused(
        self,
        error: str,
        *options: str,
        target: str = "",
        environment: Mapping[str, str] | None = None,
        apart_from: Collection[tuple[str, str]] = (),
    ) -> str:
        """Starts a driver that must end with a named error before anything is written; returns the error's text.

        `apart_from` may change: topics with `END` or `READ`. Live tasks of another sub-topology note their positions at that time.

        Raises:
            DrillFailed: The driver ended otherwise, or wrote something.
        """
        before = self._written()
        said = self.ends_with(error, *options, target=target, environment=environment)
        found = self._written().items()
        changed = [at for at, end in found if before.get(at) != end and (at[0], at[2]) not in apart_from]
        self.require(not changed, f"{error} was raised, but something was written before: {changed}")
        return said

    def ends_with(
        self, error: str, *options: str, target: str = "", environment: Mapping[str, str] | None = None
    ) -> str:
        """Starts a driver that must end with a named error; returns the error's text.

        Raises:
            DrillFailed: The driver ended otherwise.
        """
        driver = self.application.another(*options, target=target, environment=environment)
        code = driver.ended(START_S)
        lines = [line for line in driver.log().splitlines() if error in line]
        self.require(code == 1 and bool(lines), f"expected {error}, found exit code {code}: {driver.log()[-600:]}")
        self.say(f"ended: {lines[-1][:160]}")
        return lines[-1]

    def internal_topics(self, ending: str = "") -> list[str]:
        """The internal topics of the application with an ending, such as `-commits`."""
        with self.admin() as admin:
            names = admin.topic_names()
        return [name for name in names if name.startswith(f"{APPLICATION_ID}-") and name.endswith(ending)]

    def all_have_state(self) -> bool:
        """Whether each partition of each changelog has rows, readable or not."""
        return all(end > 0 for end in self._ends(self.internal_topics("-changelog")).values())

    def commits(self) -> int:
        """The number of offsets that markers take up in all commits topics, readable or not."""
        return sum(self._ends(self.internal_topics("-commits")).values())

    def at_rest(self) -> None:
        """Pauses the input, and waits until all of it is read, and nothing has been committed for some seconds."""
        self.load.paused = True
        self.wait_for(self._all_read, "all input is read")
        last = -1
        while (now := self.commits()) != last:
            last = now
            time.sleep(REST_S)

    def _all_read(self) -> bool:
        ends = self._ends([*self.subject.inputs])
        with self.admin() as admin:
            read = admin.group_offsets(APPLICATION_ID)
        return all(read.get(place, 0) >= end for place, end in ends.items())

    def _ends(self, topics: list[str]) -> dict[tuple[str, int], int]:
        with self.admin() as admin:
            found = admin.describe_topics(topics)
            places = [(topic, number) for topic, info in found.items() for number in range(info.partitions)]
            return admin.end_offsets(places, committed=False)

    def _written(self) -> dict[tuple[str, int, str], int]:
        """The ends of all logs that the application writes (`END`), and the offsets of its group (`READ`)."""
        topics = [*self.subject.outputs, *self.internal_topics()]
        places = self._ends(topics)
        with self.admin() as admin:
            # For a driver that was killed: the broker aborts the transactions that it has left open.
            wait_until_decided(admin, places, DECIDED_S)
            offsets = admin.group_offsets(APPLICATION_ID)
        kinds = {END: self._ends(topics), READ: offsets}
        return {(*place, kind): end for kind, found in kinds.items() for place, end in found.items()}

    # The end

    def stop(self) -> None:
        """Stops the application by SIGTERM.

        Raises:
            DrillFailed: Its exit code is not 0.
        """
        code = self.application.stop()
        self.require(code == 0, f"exit code {code} after SIGTERM: {self.application.current.last_words()}")

    def stop_at_rest(self) -> None:
        """Stops the application when it has nothing to do, so that its next start finds only newer input."""
        self.at_rest()
        self.stop()
        self.load.paused = False

    def settle(self) -> list[str]:
        """Ends the input, waits until all is processed, stops the application and verifies; returns what is wrong."""
        self.load.paused = False
        self.load.finish()
        began = time.monotonic()
        self.say(f"{self.load.sent} records were sent; waiting for all results")
        self.wait_for(self.subject.complete(self.place, self.readers), "all results", DRAIN_S)
        self.say(f"all results after {time.monotonic() - began:.1f} s; comparing")
        self.stop()
        seen = {topic: reader.finish() for topic, reader in self.readers.items()}
        return [*self.load.failures, *self._restored_without_a_fault(), *self.subject.wrong(self.place, seen)]

    def _restored_without_a_fault(self) -> list[str]:
        """Log lines about databases that were considered damaged. Neither kills nor new workers may damage one."""
        return [] if self.damages_state else self.application.logged(DAMAGED)
