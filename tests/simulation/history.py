"""One history: input that keeps coming, faults, restarts by a patient operator, and the verdict at the end."""

from __future__ import annotations

from random import Random

from state.errors import KafkaClientError, StateLockedError
from streams.testing.simulation import Crash
from tests.simulation.chaos import Quiet, Seeded
from tests.simulation.cluster import Chaos, Cluster
from tests.simulation.programs import PROGRAMS, Input, Program, append, create_topics, job_of
from tests.simulation.spark import Checkpoint, DriverRun, QueryFailed
from tests.simulation.verify import Red, check_end, check_invariants

PATIENCE = 20
"""How often an application is started again until it counts as stuck."""


class Failed(AssertionError):
    """A history has ended badly; `args` are what happened, and the application."""

    def __str__(self) -> str:
        return str(self.args[0])


class Application:
    """An application in a cluster, and the operator who starts it again when it has ended.

    Args:
        chaos: decides what goes wrong.
        program: what runs.
        tasks: number of tasks.
        hosts: number of machines.
        max_records: admission limit of a micro-batch.
    """

    def __init__(self, chaos: Chaos, program: Program, tasks: int = 2, hosts: int = 2, max_records: int = 1000) -> None:
        self.cluster = Cluster(chaos, hosts)
        self.program = program
        self.job = job_of(program, tasks, max_records)
        self.checkpoint = Checkpoint("query")
        self.inputs: list[Input] = []
        self._starts = 0
        self._driver: DriverRun | None = None
        create_topics(self.cluster.kafka, program, self.job)

    def feed(self, random: Random, count: int) -> None:
        """Writes some records into the source topics."""
        for _ in range(count):
            record = self.program.draw(random, len(self.inputs))
            self.inputs.append(record)
            append(self.cluster.kafka, record)
        self.cluster.say(f"{count} records come in")

    def stop(self) -> None:
        """Stops the driver, in good order."""
        self._driver = None

    def work(self) -> None:
        """Runs until all input is processed, with as many starts as it takes.

        Raises:
            Red: it cannot go on, or has broken a promise.
        """
        for _ in range(PATIENCE):
            try:
                driver = self._driver or self._start()
                while driver.trigger():
                    check_invariants(self.cluster, self.job, self.checkpoint)
                return
            except (Crash, QueryFailed) as end:
                self._ended(end)
        raise Red(f"still not done after {PATIENCE} starts")

    def _start(self) -> DriverRun:
        self._starts += 1
        self.cluster.say(f"the driver starts ({self._starts})")
        self._driver = DriverRun(self.cluster, self.job, self.checkpoint, f"run {self._starts}")
        return self._driver

    def _ended(self, end: BaseException) -> None:
        self.cluster.say(f"the driver ends: {end}")
        self._driver = None
        check_invariants(self.cluster, self.job, self.checkpoint)
        cause = end.__cause__
        if isinstance(end, QueryFailed) and not isinstance(cause, KafkaClientError | StateLockedError | None):
            raise Red(f"does not mend: {cause!r}") from end
        # With the driver its executors go, at once or when they notice.
        if self.cluster.chaos.choose(2, "executors die, or notice later") == 0 or self._starts > PATIENCE // 2:
            self.cluster.end_zombies(kill=self.cluster.chaos.choose(2, "killed, or work to their ends") == 0)

    def verify(self) -> None:
        """The verdict, when all has come to rest.

        Raises:
            Red: a promise is broken.
        """
        cluster = self.cluster
        cluster.end_zombies(kill=False)
        cluster.kafka.deliver()
        cluster.chaos = Quiet()
        check_end(cluster, self.program, self.job, self.checkpoint, self.inputs)


def play(seed: int) -> Application:
    """The history of a seed.

    Raises:
        Red: with the log of events as a note.
    """
    chaos = Seeded(seed, faults=0)
    random = chaos.random
    program = random.choice(list(PROGRAMS.values()))
    application = Application(
        chaos,
        program,
        tasks=random.choice((2, 2, 3)),
        hosts=random.choice((1, 2)),
        max_records=random.choice((3, 1000)),
    )
    chaos.faults = random.randrange(1, 6)
    try:
        for _ in range(random.randrange(2, 5)):
            application.feed(random, random.randrange(1, 6))
            application.work()
            _between(application, random)
        application.verify()
    except Exception as error:
        raise Failed(
            f"seed {seed} ({program.name}): {error}\n`make sim SEED={seed}` replays it", application
        ) from error
    return application


def _between(application: Application, random: Random) -> None:
    """What happens in quiet times."""
    cluster = application.cluster
    cluster.advance(random.choice((0, 1000, 1000, 4 * 24 * 3600 * 1000)))
    if random.random() < 0.3:
        application.stop()
    if random.random() < 0.2:
        cluster.kafka.deliver()
    if random.random() < 0.15:
        host = random.choice(cluster.hosts)
        cluster.say(f"{host.name} loses its disk")
        if all(table.owner is None for table in host.disks.values()):
            host.disks.clear()
