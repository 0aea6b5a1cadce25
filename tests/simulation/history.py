"""One history: continuous input, faults, restarts by a patient operator, and the verification at the end."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

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
from streams.microbatch.job import QueryJob
from streams.testing.simulation import Crash
from tests.simulation.chaos import Odds, Quiet, Seeded
from tests.simulation.cluster import Chaos, Cluster
from tests.simulation.programs import (
    PROGRAMS,
    Input,
    Program,
    append,
    compact,
    create_topics,
    job_of,
    sub_topology,
)
from tests.simulation.spark import Checkpoint, DriverRun, QueryFailed
from tests.simulation.verify import Red, check_end, check_invariants

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


class Application:
    """An application in a cluster, and the operator who starts it again when it has ended.

    Args:
        chaos: The source of faults.
        program: The program to run.
        job: The job of its query.
        hosts: The number of machines.
    """

    def __init__(self, chaos: Chaos, program: Program, job: QueryJob, hosts: int = 2) -> None:
        self.cluster = Cluster(chaos, hosts)
        self.program = program
        self.job = job
        self.variant = 0
        self.checkpoint = Checkpoint()
        self.inputs: list[Input] = []
        self._starts = 0
        self._refused = False
        self._driver: DriverRun | None = None
        create_topics(self.cluster.kafka, program, self.job)

    def feed(self, random: Random, count: int) -> None:
        """Writes some records into the source topics."""
        for _ in range(count):
            self.write(self.program.draw(random, len(self.inputs)))
        self.cluster.say(f"{count} records come in")

    def write(self, record: Input) -> None:
        """Writes one record."""
        self.inputs.append(record._replace(variant=self.variant))
        append(self.cluster.kafka, record)

    def stop(self) -> None:
        """Stops the driver cleanly."""
        self._driver = None

    def change(self, variant: int) -> None:
        """Continues with another version of the program."""
        self.stop()
        self.cluster.say(f"variant {variant} of the program")
        self.variant = variant
        self.job = replace(self.job, sub=sub_topology(self.program.name, variant))

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
        driver = self._driver or self._start()
        try:
            while driver.trigger():
                check_invariants(self.cluster, self.job, self.checkpoint)
        except (Crash, QueryFailed) as end:
            self.cluster.say(f"the driver ends: {end}")
            self._driver = None
            return end
        return None

    def _start(self) -> DriverRun:
        self._starts += 1
        self.cluster.say(f"the driver starts ({self._starts})")
        self._driver = DriverRun(self.cluster, self.job, self.checkpoint, f"run {self._starts}")
        return self._driver

    def _ended(self, end: BaseException) -> None:
        cause = end.__cause__
        lasting = isinstance(end, QueryFailed) and (isinstance(cause, LASTING) or not isinstance(cause, PASSING | None))
        if lasting and self._refused:
            raise Refused(f"does not mend: {cause!r}") from cause
        # After a mismatch an operator checks, and starts once more: a broker may have answered with stale data.
        self._refused = lasting
        if not lasting:
            check_invariants(self.cluster, self.job, self.checkpoint)
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
        check_end(self.cluster, self.program, self.job, self.checkpoint, self.inputs)

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
    job = job_of(program, random.choice((2, 2, 3)), random.choice(program.limits), trimmed=random.random() < 0.3)
    application = Application(chaos, program, job, hosts=random.choice((1, 2)))
    chaos.faults = random.randrange(1, 6)
    copies: list[Checkpoint] = []
    try:
        for _ in range(random.choice((1, 2, 2, 3))):
            application.feed(random, random.randrange(1, 6))
            copies.append(application.checkpoint.copy())
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
        application.change(1 - application.variant)
    if random.random() < 0.2:
        cluster.kafka.deliver()
    if random.random() < 0.15:
        host = random.choice(cluster.hosts)
        cluster.say(f"{host.name} loses its disk")
        if all(table.owner is None for table in host.disks.values()):
            host.disks.clear()
    if random.random() < 0.2:
        cluster.say("changelogs are compacted")
        compact(cluster.kafka, application.job)


def _mistake(application: Application, copy: Checkpoint) -> None:
    """Loses the checkpoint or replaces it by an older copy; after the refusal, puts the right one back."""
    application.rest()
    application.stop()
    right, application.checkpoint = application.checkpoint, copy
    application.cluster.say(f"a checkpoint of {copy.committed} micro-batches is put in the place of the right one")
    if not application.refuses(CheckpointMismatchError):
        raise Red("it has gone on with a checkpoint that is not the right one")
    application.checkpoint = right
