"""What an operator does between two starts, by the engine's own commands: each is repeated until it is done or refused.

A command that is refused has changed nothing that matters, so the history goes on as if it had not been given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from state.changelog import commits_topic, ensure_pauses, ensure_replays, pauses_topic
from state.errors import KafkaClientError, StreamsError
from state.kafka.topics import TopicPartition
from state.restore.task_stores import WorkerMemory
from streams.application.adopt import Adopter, GivenPositions, carry_out, plan_moves
from streams.application.dead_letters import Choice, ReplayPlan, plan_replay, replay, replays_topic
from streams.application.prepare import Application as Planned
from streams.application.prepare import plan_application
from streams.application.rescale.cluster import LiveRescale, Rescaler
from streams.application.rescale.plan import UsersChoices
from streams.application.reset import Wanted, start_positions
from streams.checkpoint.files import query_id_of
from streams.engine.source.pauses import WHOLE, LeftLive, pause_record
from streams.testing.simulation import Crash
from tests.simulation.application import Application
from tests.simulation.programs import APPLICATION, never
from tests.simulation.start import preflight
from tests.simulation.verify import Red, markers, read_marker

PATIENCE = 12
CHOSEN = (None, None, *"abc")
"""The keys of the dead letters that a replay is about; None: all."""


def give(application: Application, name: str, command: Callable[[], object]) -> bool:
    """Gives a command, again after each crash and each request that has failed.

    Returns:
        Whether it was done; else it was refused.
    """
    cluster = application.cluster
    application.stop()
    for _ in range(PATIENCE):
        cluster.say(f"command: {name}")
        try:
            command()
        except (Crash, KafkaClientError) as end:
            cluster.say(f"the command ends: {end!r}")
        except StreamsError as refusal:
            cluster.say(f"refused: {refusal}")
            return False
        else:
            return True
    raise Red(f"{name}: still not done after {PATIENCE} tries")


def _planned(application: Application) -> Planned:
    kafka: Any = application.cluster.kafka
    return plan_application(application.setup.topology, application.settings, kafka, kafka)


def lose_checkpoint(application: Application, random: Random) -> None:
    """Loses the checkpoints of some sub-topologies, and adopts: from the markers alone, or refused."""
    kafka = application.cluster.kafka
    commits = [commits_topic(APPLICATION, name) for name in application.names]
    if application.hides or (application.changed and not all(_is_finished(kafka, topic) for topic in commits)):
        # An adoption repeats the last micro-batch, so it belongs to the program that began this. It asks for topics that are there.
        return
    application.whole = False
    names = application.names
    lost = random.sample(names, random.randrange(1, len(names) + 1))
    files, kept = application.files, application.files.data
    application.lost |= {query_id_of(files, name) for name in lost}
    files.data = {path: data for path, data in kept.items() if path.split("/")[0] not in lost}
    application.cluster.say(f"the checkpoints of {', '.join(lost)} are lost")
    if not give(application, "adopt", partial(_adopt, application)):
        files.data = kept


def _is_finished(kafka: Any, topic: str) -> bool:
    """Whether all tasks have committed the last micro-batch."""
    tasks = range(kafka.partition_count(topic)) if topic in kafka.topics else []
    found = [markers(kafka, topic, task) for task in tasks]
    return all(found) and len({read_marker(of[-1]).batch_id for of in found}) == 1


def _adopt(application: Application) -> None:
    planned = _planned(application)
    # A partition that has no committed offset was never read: no time passes here in which Kafka could forget it.
    topics = {topic for prepared in planned.subs for topic in prepared.sub.topics}
    given = GivenPositions(topics=dict.fromkeys(topics, "earliest"))
    adopter = Adopter(preflight(application.cluster, planned, application.files), given)
    for prepared, findings in adopter.misfits():
        adopter.adopt(prepared, findings)


@dataclass(frozen=True)
class SimulatedRescale(LiveRescale):
    """A rescale on the simulated Kafka."""

    @property
    def _kafka(self) -> Any:
        self.admin.deliver()  # type: ignore[attr-defined]
        return self.admin

    def _left_live(self) -> Mapping[str, LeftLive]:
        return {}


def rescale(application: Application, random: Random) -> None:
    """Another number of tasks; a rescale that was interrupted is finished or taken back."""
    tasks = random.choice((1, 2, 3, 4))
    if _is_moved(application, random, f"rescale to {tasks}", lambda: _rescaler(application, tasks)):
        application.setup = replace(application.setup, tasks=tasks)


def to_plan(application: Application, random: Random) -> None:
    """`streams rescale` to the plan that a first start would choose now."""
    application.stop()
    _is_moved(application, random, "rescale to the plan that can run live", lambda: _to_plan(application))


def _is_moved(application: Application, random: Random, name: str, made: Callable[[], Rescaler]) -> bool:
    """Whether the state was moved, and not taken back."""
    cluster = application.cluster
    for tries in range(PATIENCE):
        if give(application, name, lambda: made().run()):
            for host in cluster.hosts:
                # The tasks' processes have ended with the application.
                host.memory = WorkerMemory()
        elif any(topic.endswith("-rescale") for topic in cluster.kafka.topics):
            # A task has committed in the midst of it.
            cluster.end_zombies(kill=True)
            # Rows that are not stored under their records' keys make each try fail.
            if (random.random() < 0.5 or tries > 2) and give(application, "abort", lambda: made().abort()):
                return False
            continue
        else:
            return False
        return True
    raise Red("a rescale does not come to its end")


def _rescaler(application: Application, tasks: int) -> Rescaler:
    setup, kafka = application.setup, application.cluster.kafka
    made: Any = SimulatedRescale
    found: Rescaler = made(application.settings, kafka, application.files, None).rescaler(
        setup.topology, tasks, UsersChoices(frozenset(setup.topology.stores) & {"numbers"})
    )
    return found


def _to_plan(application: Application) -> Rescaler:
    setup, kafka = application.setup, application.cluster.kafka
    made: Any = SimulatedRescale
    given = UsersChoices(frozenset(setup.topology.stores) & {"numbers"})
    found: Rescaler = made(application.settings, kafka, application.files, None).to_plan(setup.topology, given)[0]
    # There is no description of the plan here: the topics that exist tell it.
    return Rescaler(found.subs)


def move(application: Application, random: Random) -> None:
    """`streams reset --keep-state`: to where reading goes on in any case, or where that has a model, to anywhere."""
    kafka, program = application.cluster.kafka, application.program
    places = application.places
    read = kafka.group_offsets(APPLICATION, places)
    if application.setup.live:
        # A live task tells the consumer group once a second only; and here nobody may go on behind the position that is given.
        application.rest()
        read |= {place: at for place, at in _live_positions(application).items() if place in places}
    to = {place: read.get(place, 0) for place in places}
    if application.whole and program.repeatable and random.random() < 0.7:
        to = {place: random.randrange(kafka.log(*place).end + 1) for place in places}
    if give(application, f"move positions to {to}", partial(_move, application, to)):
        application.reads_again(read, to)


def _live_positions(application: Application) -> dict[TopicPartition, int]:
    kafka = application.cluster.kafka
    topics = [commits_topic(APPLICATION, name) for name in application.names]
    tasks = [(topic, task) for topic in topics if topic in kafka.topics for task in range(kafka.partition_count(topic))]
    last = [read_marker(one) for topic, task in tasks for one in markers(kafka, topic, task)[-1:]]
    inputs = application.program.inputs
    return {place: end for one in last for place, end in one.live_positions.items() if place[0] in inputs}


def _move(application: Application, to: dict[TopicPartition, int]) -> None:
    kafka: Any = application.cluster.kafka
    start = start_positions(application.settings, kafka, kafka, Wanted(offsets=to))
    tasks = {name: kafka.partition_count(commits_topic(APPLICATION, name)) for name in start}
    for one in plan_moves(APPLICATION, kafka, application.files, tasks, start):
        carry_out(one, application.files, application.cluster.say)


def pause(application: Application, random: Random) -> None:
    """Pauses the application or one of its sub-topologies; or resumes all."""
    kafka: Any = application.cluster.kafka
    if not give(application, "make the topic of pauses", lambda: ensure_pauses(kafka, APPLICATION)):
        raise Red("the topic of pauses is refused")
    paused = list(application.paused())
    names = [WHOLE, *application.names]
    _write_pauses(application, paused or [random.choice(names)], None if paused else application.cluster.now_ms)


def _write_pauses(application: Application, names: Iterable[str], since_ms: int | None) -> None:
    cluster = application.cluster
    for name in names:
        cluster.say(f"{name or 'all'}: {'resumed' if since_ms is None else 'paused'}")
        cluster.kafka.append(pauses_topic(APPLICATION), *pause_record(name, since_ms), partition=0)
    # The planner looks once a second.
    cluster.advance(1_000)


def replay_letters(application: Application, random: Random) -> None:
    """`streams dlq replay` of all letters or those of a key, at once or after others have done the same."""
    kafka: Any = application.cluster.kafka
    choice = Choice(key=random.choice(CHOSEN))

    def plan() -> None:
        ensure_replays(kafka, replays_topic("dead"))
        application.replays.append(plan_replay(kafka, "dead", choice))

    if give(application, "plan a replay", plan) and random.random() < 0.6:
        carry_out_replay(application, application.replays.pop(random.randrange(len(application.replays))))


def carry_out_replay(application: Application, found: ReplayPlan) -> None:
    """Sends what is left of a plan."""
    kafka: Any = application.cluster.kafka
    now_ms = application.cluster.now_ms
    give(application, f"replay {found.letters} letters", lambda: replay(kafka, found, lambda: now_ms, together=2))
    application.take_replayed()


def replicate(application: Application, random: Random) -> None:
    """`streams replica` on one of the hosts."""
    cluster = application.cluster
    host = random.choice(cluster.hosts)
    for job in [query.job for query in application.queries]:
        for task in range(job.tasks):
            give(application, f"replica on {host.name}", partial(cluster.snapshots.replicate, host, job, task))


def finish(application: Application, random: Random) -> None:
    """Resumes whatever is paused, carries out what is planned, behind replays of newer letters, and replays what is left."""
    _write_pauses(application, list(application.paused()), None)
    if not application.replays:
        return
    application.feed(random, 3)
    application.work()
    for _ in range(2):
        replay_letters(application, random)
        while application.replays:
            carry_out_replay(application, application.replays.pop())
        application.work()


Command = Callable[[Application, Random], None]
COMMANDS: tuple[Command, ...] = (lose_checkpoint, rescale, move, pause)


def command(application: Application, random: Random) -> None:
    """Gives some command."""
    letters = application.program.fails is not never
    random.choice((*COMMANDS, *([replay_letters] * 3 if letters else ())))(application, random)
