"""An application in a simulated cluster, and the patient operator who starts it again whenever it has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from state.changelog import pauses_topic
from state.errors import (
    KafkaClientError,
    OffsetsLostError,
    OpenTransactionError,
    StateLockedError,
    StreamsError,
    TopicRecreatedError,
    UnexpectedOffsetError,
)
from state.kafka.key_hash import partition_for_key
from state.kafka.placement import Placement
from state.kafka.topics import TopicPartition
from streams.application import prepare
from streams.application.dead_letters import ReplayPlan
from streams.config import StreamsConfig
from streams.engine.source.pauses import WHOLE, pauses_in
from streams.engine.step.job import QueryJob
from streams.errors import KeyPlacementError
from streams.testing.simulation import Crash
from streams.testing.simulation.kafka import Topic
from streams.topology.topology import Topology
from tests.simulation.chaos import Quiet
from tests.simulation.cluster import Chaos, Cluster
from tests.simulation.leases import CutShort, Leases, LiveQuery
from tests.simulation.programs import APPLICATION, PARTITIONS, TABLE, Input, Program, config_of, number_in, topology_of
from tests.simulation.spark import Files, Query, QueryFailed
from tests.simulation.start import start_queries
from tests.simulation.verify import Red, check_end, check_invariants, check_letters, check_outputs

PATIENCE = 20
"""The number of restarts after which an application counts as stuck."""
MISPLACED = 0.03
"""The probability that a record is not in its key's partition, where that makes no record late."""
PASSING = KafkaClientError | StateLockedError | OpenTransactionError | UnexpectedOffsetError
"""Errors that a restart may resolve,"""
LASTING = TopicRecreatedError | OffsetsLostError
"""except these."""


class Failed(AssertionError):
    """The failure of a history; `args` are the description and the application."""

    def __str__(self) -> str:
        return str(self.args[0])


class Refused(Red):
    """The application refuses to continue, for the reason in `__cause__`: correct only after an operator's mistake."""


@dataclass(frozen=True)
class Setup:
    """How a program runs.

    Attributes:
        program: The program.
        tasks: The number of tasks of each sub-topology.
        settings: Settings of the application; default: the last of each of the program's.
        hosts: The number of machines.
        variant: The version of the program.
        executions: The executions of which each start takes one.
        producers: The function with which records are written, where the application may run live.
    """

    program: Program
    tasks: int = 2
    settings: Mapping[str, Any] = field(default_factory=dict)
    hosts: int = 2
    variant: int = 0
    executions: Sequence[str] = ("micro-batch",)
    producers: Placement = Placement.MURMUR2

    @property
    def live(self) -> bool:
        """Whether it runs live at times."""
        return "auto" in self.executions

    @property
    def config(self) -> StreamsConfig:
        """The settings of the application."""
        usual = {name: values[-1] for name, values in self.program.settings.items()}
        return config_of(self.tasks, tuple(sorted({**usual, **self.settings}.items())))

    @property
    def topology(self) -> Topology:
        """The program."""
        return topology_of(self.program.name, self.variant)


class Application:
    """An application in a cluster, and the operator who starts it again when it has ended.

    Args:
        chaos: The source of faults.
        setup: How the program runs.

    Attributes:
        queries: The queries of the last start, one for each sub-topology.
        leases: The live sub-topologies among them, if there are some.
        execution: The execution of the last start.
        files: The checkpoint folder.
        inputs: The records to be processed so far, each as often as it is to be processed.
        whole: Whether everything in the source topics is processed.
        changed: Whether the program has changed since everything was processed.
        rows: The rows of the global table.
        replays: Replays of dead letters that are planned and not carried out.
        lost: The ids of the queries whose checkpoints are lost.
    """

    def __init__(self, chaos: Chaos, setup: Setup) -> None:
        self.cluster = Cluster(chaos, setup.hosts)
        self.setup = setup
        self.program = setup.program
        self.files = Files(self.cluster)
        self.inputs: list[Input] = []
        self.queries: list[Query | LiveQuery] = []
        self.leases: Leases | None = None
        self.execution = setup.executions[0]
        self._obstacles: dict[str, str] = {}
        self._starts = 0
        self._runs = False
        self._refused = False
        self.whole = self.changed = False
        self.rows: dict[str, int | None] = {}
        self.replays: list[ReplayPlan] = []
        self.lost: set[str | None] = set()
        self._hidden: dict[str, Topic] = {}
        for topic in (*self.program.inputs, "out", "dead", "table"):
            if topic not in self.program.late:
                self.cluster.kafka.create_topic(topic, PARTITIONS)

    @property
    def job(self) -> QueryJob:
        """The job of the first sub-topology."""
        return self.queries[0].job

    @property
    def places(self) -> list[TopicPartition]:
        """The partitions of the inputs that are there."""
        topics = [topic for topic in self.program.inputs if topic in self.cluster.kafka.topics]
        return [(topic, partition) for topic in topics for partition in range(PARTITIONS)]

    @property
    def hides(self) -> bool:
        """Whether a topic is out of sight that was there before."""
        return bool(self._hidden)

    @property
    def names(self) -> list[str]:
        """The names of the sub-topologies."""
        kafka: Any = self.cluster.kafka
        # Who asks is no process that could crash.
        chaos, self.cluster.chaos = self.cluster.chaos, Quiet()
        try:
            topology = prepare.as_started(self.setup.topology, self.settings, kafka)
        finally:
            self.cluster.chaos = chaos
        return [sub.name for sub in prepare.build_plan(topology, APPLICATION).sub_topologies]

    @property
    def settings(self) -> StreamsConfig:
        """The settings of the last start."""
        return replace(self.setup, settings={**self.setup.settings, "execution": self.execution}).config

    def paused(self) -> set[str]:
        """What is paused, by the name under which it is."""
        kafka, topic = self.cluster.kafka, pauses_topic(APPLICATION)
        columns = kafka.columns(topic, 0) if topic in kafka.topics else None
        return set(pauses_in([] if columns is None else [columns]).since_ms)

    def feed(self, random: Random, count: int) -> None:
        """Writes some records into the source topics, and rows into the global table."""
        self.write_rows(random, 1)
        for _ in range(count):
            misplaced = self.setup.live and self.program.timeless and random.random() < MISPLACED
            self.write(self.program.draw(random, len(self.inputs)), misplaced)
        self.cluster.say(f"{count} records come in")

    def show(self) -> None:
        """Topics that were out of sight are back."""
        self.cluster.kafka._topics |= self._hidden
        self._hidden = {}

    def change_topics(self) -> None:
        """A topic is created, goes out of sight once all of it is read, or comes back. The next start notices."""
        topics = self.cluster.kafka._topics
        for topic in self.program.late:
            self.stop()
            if topic in topics and self.whole:
                self._hidden[topic] = topics.pop(topic)
                self.cluster.say(f"{topic} cannot be seen")
            elif self.hides:
                self.show()
                self.cluster.say(f"{topic} is back")
            elif topic not in topics:
                self.cluster.kafka.create_topic(topic, PARTITIONS)
                self.cluster.say(f"{topic} is created")

    def lose_records(self, random: Random) -> None:
        """Records come in, and retention deletes some that were not read."""
        ends = {place: self.cluster.kafka.log(*place).end for place in self.places}
        self.feed(random, 4)
        place = random.choice(self.places)
        log = self.cluster.kafka.log(*place)
        log.cut(random.randint(ends[place], log.end))
        self.cluster.say(f"{place} begins at {log.begin}")
        self.inputs = [
            one
            for one in self.inputs
            if (one.topic, one.partition) != place or not ends[place] <= one.offset < log.begin
        ]

    def write_rows(self, random: Random, count: int) -> None:
        """Writes or deletes rows of the global table, if no record waits for the rows as they were."""
        if self.program is not TABLE or (self.inputs and not self.whole):
            return
        for _ in range(count):
            self.write_row(random.choice("abc"), random.choice((None, len(self.inputs))))

    def write_row(self, key: str, row: int | None) -> None:
        """Writes or deletes a row of the global table."""
        self.rows[key] = row
        self.cluster.kafka.append("table", key.encode(), None if row is None else b"%d" % row, self.cluster.now_ms)

    def write(self, record: Input, misplaced: bool = False) -> None:
        """Writes one record; where the application may run live, into its key's partition, unless it is misplaced."""
        self.whole = False
        kafka = self.cluster.kafka
        if self.program.clock:
            record = record._replace(timestamp=self.cluster.now_ms)
        if self.setup.live:
            own = partition_for_key(record.key.encode(), PARTITIONS, self.setup.producers)
            record = record._replace(partition=1 - own if misplaced else own)
        if record.topic not in kafka.topics:
            record = record._replace(topic=self.places[0][0])
        record = record._replace(row=self.rows.get(record.key))
        value = self.program.encode(record)
        offset = kafka.append(record.topic, record.key.encode(), value, record.timestamp, partition=record.partition)
        self.inputs.append(record._replace(variant=self.setup.variant, offset=offset))

    def reads_again(self, read: Mapping[TopicPartition, int], to: Mapping[TopicPartition, int]) -> None:
        """Notes that reading goes on somewhere else: what has been read behind it will be processed again."""
        self.whole = False
        logged = {(one.topic, one.partition, one.offset): one for one in self.inputs}
        for (topic, partition, offset), one in sorted(logged.items()):
            if to.get((topic, partition), offset + 1) <= offset < read.get((topic, partition), 0):
                self.inputs.append(one._replace(variant=self.setup.variant))

    def take_replayed(self) -> None:
        """Notes the records that replays of dead letters have written into the source topics."""
        self.cluster.kafka.deliver()
        known = {(one.topic, one.partition, one.offset) for one in self.inputs}
        for topic, partition in self.places:
            for entry in self.cluster.kafka.log(topic, partition).readable():
                if (topic, partition, entry.offset) not in known:
                    self.whole = False
                    key, number = (entry.key or b"").decode(), number_in(entry.value)
                    self.inputs.append(
                        Input(topic, partition, key, number, entry.timestamp, entry.offset, self.setup.variant)
                    )

    def stop(self) -> None:
        """Stops the driver cleanly."""
        self._leave_slots()
        self._runs = False

    def change(self, variant: int) -> None:
        """Continues with another version of the program."""
        self.stop()
        self.cluster.say(f"variant {variant} of the program")
        self.setup = replace(self.setup, variant=variant)
        self.changed = True

    def work(self) -> None:
        """Runs until all input is processed, with as many starts as it takes.

        Raises:
            Refused: The application cannot continue.
            Red: The application has violated a guarantee.
        """
        for _ in range(PATIENCE):
            if self.run_once():
                return
        raise Red(f"still not done after {PATIENCE} starts")

    def run_once(self) -> bool:
        """One start; False if it did not come to its end."""
        end = self.run()
        if end is not None:
            self._ended(end)
        return end is None

    def run(self) -> BaseException | None:
        """Runs until all input is processed, or the driver ends; returns the reason of that end."""
        try:
            self._start()
            while not self._go():
                self._begin_queries()
            self.whole = self._is_whole()
            self.changed = self.changed and not self.whole
        except (Crash, QueryFailed) as end:
            self.cluster.say(f"the driver ends: {end}")
            self._leave_slots()
            self._runs = False
            return end
        return None

    def _go(self) -> bool:
        """Runs until nothing is left to do.

        False: a sub-topology cannot run live after all, or an operator asks for the other execution, so all queries begin again.
        """
        paused = self.paused()
        held = {query: query.begun for query in self.queries if paused & {WHOLE, query.job.sub.name}}
        if self.leases is not None:
            self.leases.paused = frozenset(query.job.sub.name for query in held)
        runs = [one for one in (*self.queries, self.leases) if isinstance(one, Query | Leases)]
        waiting = list(runs)
        while waiting:
            if self.setup.live and self.cluster.chaos.choose(2, "switched while it runs: no, or yes") == 1:
                self._ask_otherwise()
                return False
            one = waiting[self.cluster.chaos.choose(len(waiting), "which query goes on")]
            try:
                again = one.trigger()
            except CutShort:
                self._ask_otherwise()
                return False
            except QueryFailed as end:
                if not isinstance(end.__cause__, KeyPlacementError):
                    raise
                self.cluster.say(f"back to micro-batches: {end.__cause__}")
                live = (query.job.sub.name for query in self.queries if query.live)
                self._obstacles[next(name for name in live if f"/{name}: " in str(end.__cause__))] = "a misplaced key"
                return False
            if again:
                for query in one.queries if isinstance(one, Leases) else [one]:
                    check_invariants(self.cluster, query)
                waiting = list(runs)
            else:
                waiting.remove(one)
        for query, last in held.items():
            if query.begun > max(last, 0 if query.repeats else -1):
                raise Red(f"{query.job.sub.name} is paused, and has begun a step")
        return True

    def _ask_otherwise(self) -> None:
        executions = self.setup.executions
        self.execution = executions[1 - executions.index(self.execution)]
        self.cluster.say(f"an operator asks for execution={self.execution}")

    def _is_whole(self) -> bool:
        kafka, ends = self.cluster.kafka, {}
        for query in self.queries:
            if query.ends is None:
                return False
            ends |= query.ends
        return all(ends.get(place) == kafka.log(*place).end for place in self.places)

    def _start(self) -> None:
        if self._runs:
            return
        self._starts += 1
        executions = self.setup.executions
        self.execution = executions[self.cluster.chaos.choose(len(executions), "execution")]
        self.cluster.say(f"the driver starts ({self._starts}, execution={self.execution})")
        self._obstacles = {}
        self._begin_queries()
        self._runs = True

    def _begin_queries(self) -> None:
        self._leave_slots()
        setup, run, self.queries, self.leases = self.setup, f"run {self._starts}", [], None
        settings = replace(setup, settings={**setup.settings, "execution": self.execution}).config
        try:
            batches, self.leases = start_queries(
                self.cluster, setup.topology, settings, self.files, run, self._obstacles
            )
        except StreamsError as error:
            raise QueryFailed(str(error)) from error
        self.queries = [*batches, *(self.leases.queries if self.leases else ())]

    def _leave_slots(self) -> None:
        """Closes the connections of the slots, which hear of it when they listen."""
        if self.leases is not None:
            self.leases.closed = True

    def _ended(self, end: BaseException) -> None:
        cause = end.__cause__
        lasting = isinstance(end, QueryFailed) and (isinstance(cause, LASTING) or not isinstance(cause, PASSING | None))
        if lasting and self._refused:
            raise Refused(f"does not mend: {cause!r}") from cause
        # After a mismatch an operator checks, and starts once more: a broker may have answered with stale data.
        self._refused = lasting
        if not lasting:
            for query in self.queries:
                check_invariants(self.cluster, query)
        # With the driver its executors end, at once or when they notice.
        if self.cluster.chaos.choose(2, "executors die, or notice later") == 0 or self._starts > PATIENCE // 2:
            self.cluster.end_zombies(kill=self.cluster.chaos.choose(2, "killed, or work to their ends") == 0)

    def refuses(self, kind: type[StreamsError]) -> bool:
        """Whether the application refuses to run, with the given error and without writing anything.

        Raises:
            Red: The error is another one, or something was written.
        """
        before = self.written()
        try:
            self.work()
        except Refused as refused:
            if not isinstance(refused.__cause__, kind):
                raise
            if self.written() != before:
                raise Red("it refuses, but something was written") from refused
            return True
        return False

    def rest(self) -> None:
        """Runs all remaining attempts to their end, and delivers everything that is late."""
        self.cluster.end_zombies(kill=False)
        self.cluster.kafka.deliver()

    def verify(self) -> None:
        """Verifies all guarantees, once everything has come to rest.

        Raises:
            Red: A guarantee is violated.
        """
        self.rest()
        if self.hides:
            self.show()
            self.stop()
        self.cluster.chaos = Quiet()
        # What was late may be the input of another sub-topology, and what waits for the clock comes in some ticks.
        for _ in range(3 if "wall_clock_interval_ms" in self.program.settings else 1):
            self.work()
            # A task that a rescale has merged has the smallest time of the old ones: at most the whole history behind.
            self.cluster.advance(10 * 60_000 + (self.cluster.now_ms if self.program.clock else 0))
        self.rest()
        check_outputs(self.cluster.kafka, self.program, self.inputs)
        check_letters(self.cluster.kafka, self.program, self.setup.config, self.inputs)
        for query in self.queries:
            check_end(self.cluster, query)

    def written(self) -> int:
        """The number of records and control records in all topics except the inputs."""
        kafka = self.cluster.kafka
        names = kafka.topics - set(self.program.inputs)
        return sum(
            len(entries)
            for name in names
            for number in range(kafka.partition_count(name))
            for entries in [kafka.log(name, number).readable()]
        )
