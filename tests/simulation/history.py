"""One history: continuous input, faults, restarts by a patient operator, and the verification at the end."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from state.errors import (
    CheckpointMismatchError,
    KafkaClientError,
    OffsetsLostError,
    OpenTransactionError,
    StateLockedError,
    StreamsError,
    TopicRecreatedError,
    UnexpectedOffsetError,
)
from streams.config import StreamsConfig
from streams.microbatch.job import QueryJob
from streams.testing.simulation import Crash
from streams.topology.topology import Topology
from tests.simulation.chaos import Odds, Quiet, Seeded
from tests.simulation.cluster import Chaos, Cluster
from tests.simulation.programs import PARTITIONS, PROGRAMS, Input, Program, append, compact, config_of, topology_of
from tests.simulation.spark import Files, Query, QueryFailed, start_queries
from tests.simulation.verify import Red, check_end, check_invariants, check_outputs

PATIENCE = 20
"""The number of restarts after which an application counts as stuck."""
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
        settings: Settings of the application, besides those of the program.
        hosts: The number of machines.
        variant: The version of the program.
    """

    program: Program
    tasks: int = 2
    settings: Mapping[str, Any] = field(default_factory=dict)
    hosts: int = 2
    variant: int = 0

    @property
    def config(self) -> StreamsConfig:
        """The settings of the application."""
        return config_of(self.tasks, tuple(sorted({**self.program.settings, **self.settings}.items())))

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
        queries: The queries of the last start.
        files: The checkpoint folder.
        inputs: The records that were written so far.
    """

    def __init__(self, chaos: Chaos, setup: Setup) -> None:
        self.cluster = Cluster(chaos, setup.hosts)
        self.setup = setup
        self.program = setup.program
        self.files = Files(self.cluster)
        self.inputs: list[Input] = []
        self.queries: list[Query] = []
        self._starts = 0
        self._runs = False
        self._refused = False
        for topic in (*self.program.inputs, "out", "dead"):
            self.cluster.kafka.create_topic(topic, PARTITIONS)

    @property
    def job(self) -> QueryJob:
        """The job of the first sub-topology."""
        return self.queries[0].job

    def feed(self, random: Random, count: int) -> None:
        """Writes some records into the source topics."""
        for _ in range(count):
            self.write(self.program.draw(random, len(self.inputs)))
        self.cluster.say(f"{count} records come in")

    def write(self, record: Input) -> None:
        """Writes one record."""
        self.inputs.append(record._replace(variant=self.setup.variant))
        append(self.cluster.kafka, record)

    def stop(self) -> None:
        """Stops the driver cleanly."""
        self._runs = False

    def change(self, variant: int) -> None:
        """Continues with another version of the program."""
        self.stop()
        self.cluster.say(f"variant {variant} of the program")
        self.setup = replace(self.setup, variant=variant)

    def work(self) -> None:
        """Runs until all input is processed, with as many starts as it takes.

        Raises:
            Refused: The application cannot continue.
            Red: The application has violated a guarantee.
        """
        for _ in range(PATIENCE):
            end = self.run()
            if end is None:
                return
            self._ended(end)
        raise Red(f"still not done after {PATIENCE} starts")

    def run(self) -> BaseException | None:
        """Runs until all input is processed, or the driver ends; returns the reason of that end."""
        try:
            self._start()
            waiting = list(self.queries)
            while waiting:
                one = waiting[self.cluster.chaos.choose(len(waiting), "which query goes on")]
                if one.trigger():
                    check_invariants(self.cluster, one)
                    waiting = list(self.queries)
                else:
                    waiting.remove(one)
        except (Crash, QueryFailed) as end:
            self.cluster.say(f"the driver ends: {end}")
            self._runs = False
            return end
        return None

    def _start(self) -> None:
        if self._runs:
            return
        self._starts += 1
        self.cluster.say(f"the driver starts ({self._starts})")
        setup, run = self.setup, f"run {self._starts}"
        try:
            self.queries = start_queries(self.cluster, setup.topology, setup.config, self.files, run)
        except StreamsError as error:
            raise QueryFailed(str(error)) from error
        self._runs = True

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
        self.cluster.chaos = Quiet()
        # What was late may be the input of another sub-topology.
        self.work()
        self.rest()
        check_outputs(self.cluster.kafka, self.program, self.inputs)
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


def play_all(seeds: Iterable[int]) -> None:
    """Plays many histories.

    Raises:
        Failed: A history has failed; the first one is reported.
    """
    # Each history leaves many reference cycles behind; collecting them all the time would take a fifth of the time.
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for number, seed in enumerate(seeds):
            play(seed)
            if number % 200 == 199:
                gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()


def play(seed: int, odds: Odds | None = None, programs: Sequence[Program] = tuple(PROGRAMS.values())) -> Application:
    """Plays the history of a seed.

    Args:
        seed: The seed, which determines the history.
        odds: The probabilities of faults.
        programs: The programs, of which one runs.

    Raises:
        Failed: The history has failed.
    """
    chaos = Seeded(seed, odds=odds)
    random = chaos.random
    program = random.choice(programs)
    limit = {"max_records_per_trigger": random.choice(program.limits)}
    application = Application(chaos, Setup(program, random.choice((2, 2, 3)), limit, hosts=random.choice((1, 2))))
    chaos.faults = random.randrange(1, 6)
    copies: list[dict[str, bytes]] = []
    try:
        for _ in range(random.choice((1, 2, 2, 3))):
            application.feed(random, random.randrange(1, 6))
            copies.append(dict(application.files.data))
            application.work()
            _between(application, random)
            if random.random() < 0.1:
                faults, chaos.faults = chaos.faults, 0
                _mistake(application, random.choice(copies))
                chaos.faults = faults
        application.verify()
    except Exception as error:
        raise Failed(f"seed {seed} ({program}): {error}\n`make sim SEED={seed}` replays it", application) from error
    return application


def _between(application: Application, random: Random) -> None:
    """Events between two runs: stops, changes and mistakes."""
    cluster = application.cluster
    cluster.advance(random.choice((0, 1000, 1000, 4 * 24 * 3600 * 1000)))
    if random.random() < 0.3:
        application.stop()
    if random.random() < 0.2:
        application.change(1 - application.setup.variant)
    if random.random() < 0.2:
        cluster.kafka.deliver()
    if random.random() < 0.15:
        host = random.choice(cluster.hosts)
        cluster.say(f"{host.name} loses its disk")
        if all(table.owner is None for table in host.disks.values()):
            host.disks.clear()
    if random.random() < 0.2:
        cluster.say("changelogs are compacted")
        for query in application.queries:
            compact(cluster.kafka, query.job)


def _mistake(application: Application, copy: dict[str, bytes]) -> None:
    """Loses the checkpoint or replaces it by an older copy; after the refusal, puts the right one back."""
    application.rest()
    application.work()
    application.stop()
    files, right = application.files, application.files.data
    files.data = dict(copy)
    application.cluster.say(f"a checkpoint of {len(copy)} files is put in the place of the right one")
    if copy != right and not application.refuses(CheckpointMismatchError):
        raise Red("it has gone on with a checkpoint that is not the right one")
    files.data = right
