"""One history: continuous input, faults, restarts and commands by a patient operator, and the verification at the end."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from uuid import UUID

import pytest

from state.changelog import commits_topic
from state.errors import CheckpointMismatchError, TopicRecreatedError
from state.kafka.placement import FUNCTIONS
from streams.application import adopt, execution, reset, start
from streams.application.rescale import rescale
from streams.checkpoint import files as checkpoint_files
from streams.checkpoint.files import read_checkpoint
from streams.engine.step import global_tables
from tests.simulation import snapshots
from tests.simulation.application import Application, Failed, Setup
from tests.simulation.chaos import Odds, Seeded
from tests.simulation.commands import command, finish, replicate, to_plan
from tests.simulation.programs import APPLICATION, PARTITIONS, PROGRAMS, RETRY, STAGES, Program, clean_table, compact
from tests.simulation.spark import Checkpoint, Files, Query, SimulatedReader
from tests.simulation.verify import Red, markers, read_marker

SPILL_BYTES = (0, 0, 1, 300)
"""The bound of the write buffers: the engine's own, one that each write exceeds, and one that takes some writes."""


def play_all(seeds: Iterable[int]) -> Iterator[Application | Failed]:
    """Plays many histories; gives how each has ended."""
    # Each history leaves many reference cycles behind; collecting them all the time would take a fifth of the time.
    gc.collect()
    gc.freeze()
    gc.disable()
    # What the engine logs about each fault says nothing here.
    logging.disable()
    try:
        for number, seed in enumerate(seeds, 1):
            try:
                yield play(seed)
            except Failed as failed:
                yield failed
            if number % 200 == 0:
                gc.collect()
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()
        gc.unfreeze()


def play(
    seed: int,
    odds: Odds | None = None,
    programs: Sequence[Program] = tuple(PROGRAMS.values()),
    with_snapshots: float = 0.1,
    with_live: float = 0.3,
) -> Application:
    """Plays the history of a seed.

    Args:
        seed: The seed, which determines the history.
        odds: The probabilities of faults.
        programs: The programs, of which one runs.
        with_snapshots: The probability of snapshots and replicas.
        with_live: The probability that an application which can run live does so at times.

    Raises:
        Failed: The history has failed.
    """
    chaos = Seeded(seed, odds=odds)
    random = chaos.random
    # These two take twice the time of the others.
    program = random.choices(programs, [1 if one in (STAGES, RETRY) else 2 for one in programs])[0]
    settings = program.draw_settings(random) | {"spill_bytes": random.choice(SPILL_BYTES)}
    kept = random.random() < with_snapshots
    if kept:
        settings |= snapshots.SETTINGS
    setup = Setup(program, random.choice((2, 2, 3)), settings, random.choice((1, 2)))
    how = Random(f"live {seed}")
    if program.may_be_live and how.random() < with_live:
        setup = replace(setup, tasks=PARTITIONS, executions=("auto", "micro-batch"), producers=how.choice(FUNCTIONS))
    application = Application(chaos, setup)
    chaos.faults = random.randrange(1, 6)
    copies: list[dict[str, bytes]] = []
    # Histories with chosen faults are about these alone.
    topics = Random(f"topics {seed}") if odds is None else None
    with simulated_surroundings(application, seed), snapshots.kept(application.cluster) if kept else nullcontext():
        try:
            # A topic goes out of sight once it was read, and comes back.
            for _ in range(random.choice((4, 5)) if program.late else random.choice((1, 2, 2, 3))):
                application.feed(random, random.randrange(1, 6))
                copies.append(dict(application.files.data))
                if random.random() < 0.8:
                    application.work()
                else:
                    application.run_once()
                _between(application, random)
                if random.random() < 0.1:
                    with _without_faults(chaos):
                        _mistake(application, random.choice(copies))
                if topics is not None and topics.random() < 0.1 and not application.paused():
                    with _without_faults(chaos):
                        _make_topic_again(application, topics)
                # Behind a repartition topic there is no idle time.
                may_move = setup.live and "idle_timeout_ms" not in program.settings
                if topics is not None and may_move and topics.random() < 0.15:
                    to_plan(application, topics)
            finish(application, random)
            application.verify()
        except Exception as error:
            if isinstance(error.__cause__, CheckpointMismatchError) and committed_under_lost(application):
                return application
            raise Failed(f"seed {seed} ({program}): {error}\n`make sim SEED={seed}` replays it", application) from error
    return application


def committed_under_lost(application: Application) -> bool:
    """Whether a task's only commit is that of an attempt which stood still before it fenced others, until after an adoption.

    An adoption fences each task, but an attempt that begins later fences in turn, and without a marker nothing tells it that its
    query is over. The application must refuse to go on, so this is the one refusal that ends a history well.
    """
    kafka = application.cluster.kafka
    topics = [commits_topic(APPLICATION, name) for name in application.names]
    found = [markers(kafka, topic, task) for topic in topics for task in range(kafka.partition_count(topic))]
    return any(len(of) == 1 and read_marker(of[0]).query_id in application.lost for of in found)


@contextmanager
def simulated_surroundings(application: Application, seed: int = 0) -> Iterator[None]:
    """Clock, ids and global tables come from the simulation, so that a seed always gives the same history."""
    ids = Random(seed)
    clock = SimpleNamespace(
        time=lambda: application.cluster.now_ms / 1000,
        gmtime=lambda: time.gmtime(application.cluster.now_ms / 1000),
        strftime=time.strftime,
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in (adopt, execution, reset, rescale):
            patch.setattr(module, "uuid", SimpleNamespace(uuid4=lambda: UUID(int=ids.getrandbits(128))))
        for module in (start, checkpoint_files):
            patch.setattr(module, "time", clock)
        patch.setattr(global_tables, "shared_reader", SimulatedReader)
        patch.setattr(global_tables, "wall_clock_ms", lambda: application.cluster.now_ms)
        yield


def _between(application: Application, random: Random) -> None:
    """Events between two runs: stops, changes and mistakes."""
    cluster = application.cluster
    days = random.choice((0, 0, 0, 0, 4, 8))
    application.write_rows(random, 3)
    cluster.advance(days * 24 * 3600 * 1000 or random.choice((0, 1000)))
    if days == 8:
        clean_table(cluster.kafka)
    if random.random() < 0.3:
        application.stop()
    if application.program.late and random.random() < 0.8:
        application.change_topics()
    if "on_lost_offsets" in application.program.settings and application.whole and random.random() < 0.5:
        application.lose_records(random)
    if application.whole and random.random() < 0.2:
        application.change(1 - application.setup.variant)
    if random.random() < 0.2:
        cluster.kafka.deliver()
    if cluster.snapshots is not None:
        if random.random() < 0.5:
            replicate(application, random)
        if random.random() < 0.2:
            cluster.snapshots.location.damage(random)
    if random.random() < (0.15 if cluster.snapshots is None else 0.6):
        cluster.lose_disk(random.choice(cluster.hosts))
    if random.random() < 0.2:
        cluster.say("changelogs are compacted")
        for query in application.queries:
            compact(cluster.kafka, query.job, tombstones=days == 8)
    # Right after a driver has died, the operator has more to do.
    while random.random() < (0.35 if application.whole else 0.7):
        command(application, random)


def _mistake(application: Application, copy: dict[str, bytes]) -> None:
    """Loses the checkpoint or replaces it by an older copy; after the refusal, puts the right one back."""
    application.rest()
    application.work()
    application.stop()
    files, right = application.files, application.files.data
    files.data = dict(copy)
    application.cluster.say(f"a checkpoint of {len(copy)} files is put in the place of the right one")
    behind = any(_is_behind(application, copy, query) for query in application.queries)
    if behind and not application.refuses(CheckpointMismatchError):
        raise Red("it has gone on with a checkpoint that is not the right one")
    files.data = right


def _make_topic_again(application: Application, random: Random) -> None:
    """Deletes a source topic and creates it again, with other records or none; after the refusal, restores the right one."""
    application.rest()
    application.work()
    application.stop()
    kafka = application.cluster.kafka
    topic = random.choice(sorted({topic for topic, _ in application.places}))
    right = kafka._topics.pop(topic)
    kafka.create_topic(topic, PARTITIONS)
    for number in range(random.choice((0, 1, 20))):
        kafka.append(topic, b"a", b"1", application.cluster.now_ms, partition=number % PARTITIONS)
    application.cluster.say(f"{topic} is deleted and created again")
    if not application.refuses(TopicRecreatedError):
        raise Red(f"it has gone on with another {topic}, whose records it takes for read, or whose offsets for its own")
    kafka._topics[topic] = right


@contextmanager
def _without_faults(chaos: Seeded) -> Iterator[None]:
    """An operator's mistake is not tried together with faults: then both would be refused."""
    faults, chaos.faults = chaos.faults, 0
    yield
    chaos.faults = faults


def _is_behind(application: Application, copy: Mapping[str, bytes], query: Query) -> bool:
    """Whether tasks have committed under another query than that of a checkpoint, or a micro-batch that it does not know."""
    found = [markers(application.cluster.kafka, query.topic, task) for task in range(query.job.tasks)]
    last = [read_marker(of[-1]) for of in found if of]
    checkpoint = Checkpoint(Files(application.cluster, dict(copy)), query.checkpoint.name)
    adopted = read_checkpoint(checkpoint.files, checkpoint.name).repeats
    known = max(checkpoint.last("offsets"), 0 if adopted else -1)
    return any(one.query_id != checkpoint.query_id or one.batch_id > known for one in last)
