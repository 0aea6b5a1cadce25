"""Faults outside Kafka: a driver is killed within a sink's commit, a call of `foreach_batch`, or a batch of an ingest."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from state.changelog import commits_topic
from state.kafka.topics import TopicSpec
from streams.drills.cases.chaos import kill_worker
from streams.drills.cases.drivers import adopt, put_back
from streams.drills.drill import Conditions, drill
from streams.drills.program import ORDERS, PARTITIONS
from streams.drills.stores import POSTGRES, each_order, latest_order, postgres
from streams.drills.topics import delta_rows, read_committed
from streams.drills.variants import (
    ARCHIVE,
    EACH,
    FOLDER,
    HELD,
    HOLD,
    LATEST,
    OUT,
    ROWS,
    add_rows,
    calls_of,
    wrong_calls,
    wrong_rows,
)
from streams.drills.world import APPLICATION_ID, START_S, World
from streams.errors import StreamsError
from streams.topology.naming import INGEST
from streams.wording import counted

CRASH = "STREAMS_LAKE_CRASH"
"""The variable that `streams/driver/lake/query.py` reads."""
KILLS = ("resumed:2", "offsets_logged:3", "table_committed:3", "purged:3", "table_committed:1")
"""A crash point, and on which pass through it to crash. With two sinks, the third pass is in the middle of the run."""
STORE_KILLS = ("resumed:3", "rows_written:1", "rows_written:4", "table_committed:3", "purged:2")
ADOPTED_AFTER = "table_committed:4"
CALL_KILLS = ("offsets_logged:2", "function_returned:2", "function_returned:1")
WORKER_KILLS = 3
FOUR_AT_ONCE = ("--set", "spark.master=local[4,4]")
"""Two tasks of an ingest, one waiting, together with two live slots."""
TABLES_S = 120.0


@drill(
    "D35",
    "driver killed around a Delta commit",
    injects="SIGKILL to the driver before, within and after commits of two Delta tables, five times",
    holds="each order is in the tables once, according to a reader of their files that uses neither Spark nor Delta",
    minutes=4,
    conditions=Conditions(options=("--set", "spark.driver.memory=1g")),
)
def killed_around_a_delta_commit(world: World) -> None:
    lake = world.folder / "lake"
    variables = _variables(world, "variants:tables", lake)
    for kill in KILLS:
        _start_to_be_killed(world, kill, variables)
        world.saw(f"driver killed at {kill}; {counted(len(delta_rows(lake / EACH)), 'row')} so far")
    world.restarts("the last kill", environment=variables)
    _tables_become_right(world, lake)


@drill(
    "D46",
    "adoption after a Delta commit",
    injects="SIGKILL to the driver after a commit of a Delta table; all checkpoints are deleted; `streams adopt`",
    holds="each order is in the tables once",
    minutes=2.5,
    conditions=Conditions(options=("--set", "spark.driver.memory=1g")),
)
def adopted_after_a_delta_commit(world: World) -> None:
    lake = world.folder / "lake"
    variables = _variables(world, "variants:tables", lake)
    _start_to_be_killed(world, ADOPTED_AFTER, variables)
    rows = len(delta_rows(lake / EACH))
    world.require(rows > 0, "nothing was in the table yet")
    put_back(world, None)
    world.saw(f"driver killed at {ADOPTED_AFTER} and all checkpoints deleted; {counted(rows, 'row')} so far")
    adopt(world, variables)
    world.restarts("a new checkpoint was adopted", environment=variables)
    _tables_become_right(world, lake)


@drill(
    "D50",
    "driver killed around commits of stores",
    injects="SIGKILL to the driver before and after commits of Parquet files, an Iceberg table, SQLite and PostgreSQL, and between "
    "write and commit, five times",
    holds="each order is in the files and the table once, and the last order of each key in the databases",
    minutes=4,
)
def killed_around_commits_of_stores(world: World) -> None:
    folder = world.folder / "stores"
    folder.mkdir()
    address = world.keep(postgres(world.folder / "postgres"))
    variables = {**_variables(world, "stores:stores", folder), POSTGRES: address}
    for kill in STORE_KILLS:
        _start_to_be_killed(world, kill, variables)
        world.saw(f"driver killed at {kill}")
    world.restarts("the last kill", environment=variables)
    _become_right(world, lambda: _wrong_in_stores(world, folder, address))
    rows = {**each_order(folder), **latest_order(folder, address)}
    world.say(", ".join(f"{store}: {counted(len(found), 'row')}" for store, found in rows.items()))


def _wrong_in_stores(world: World, folder: Path, address: str) -> list[str]:
    """The current differences between the stores and the input."""
    orders = [*read_committed(world.broker.bootstrap_servers, ORDERS)]
    latest = latest_order(folder, address).items()
    return [
        f"{one} and {other}: {said}"
        for one, each in each_order(folder).items()
        for other, last in latest
        for said in wrong_rows(orders, each, last)
    ]


def _variables(world: World, target: str, folder: Path) -> dict[str, str]:
    """Sets the drill's program to `target`, a function in a module of `streams.drills`. Returns its environment variables."""
    world.partly_live()
    world.application.target = f"streams.drills.{target}"
    return {FOLDER: str(folder)}


def _start_to_be_killed(world: World, point: str, variables: dict[str, str]) -> None:
    """Starts a driver that kills itself at a crash point, and waits until it has."""
    world.application.start(environment={**variables, CRASH: point})
    code = world.application.current.ended(START_S)
    world.require(code == -signal.SIGKILL, f"{point}: exit code {code}: {world.application.current.last_words()}")


def _tables_become_right(world: World, lake: Path) -> None:
    _become_right(world, lambda: differences(world, lake))
    world.say(f"{counted(len(delta_rows(lake / EACH)), 'order')} in the tables, each once")


def differences(world: World, lake: Path) -> list[str]:
    """The current differences between the tables and the input."""
    try:
        each, latest = delta_rows(lake / EACH), delta_rows(lake / LATEST)
    except (OSError, StreamsError) as error:  # a file that a commit has just replaced
        return [str(error)]
    return wrong_rows(read_committed(world.broker.bootstrap_servers, ORDERS), each, latest)


@drill(
    "D41",
    "killed around foreach_batch",
    injects="SIGKILL to the driver before and after calls of a function of `foreach_batch`, and to workers; a lost checkpoint",
    holds="a repeated batch has the same number and rows, and all rows come; a `LakePositionError` before anything is written",
    minutes=3,
)
def killed_around_a_call(world: World) -> None:
    folder, checkpoint = world.folder / "calls", world.application.checkpoint / ARCHIVE
    variables = _variables(world, "variants:archive", folder)
    for kill in CALL_KILLS:
        _start_to_be_killed(world, kill, variables)
        world.saw(f"driver killed at {kill}; batches so far: {len(calls_of(folder))}")
    world.restarts("the last kill", environment=variables)
    for _ in range(WORKER_KILLS):
        world.saw(kill_worker(world))
        world.recovers("a killed worker")
    world.stop_at_rest()
    again = [batch for batch, of in calls_of(folder).items() if len(of) > 1]
    world.require(bool(again), "no batch was handed over again")
    world.saw(f"handed over again: {', '.join(f'batch {batch}' for batch in again)}")
    lost = checkpoint.rename(world.folder / "lost")
    world.saw(world.refused("LakePositionError", environment=variables)[:140])
    lost.rename(checkpoint)
    world.restarts("the checkpoint was put back", environment=variables)
    _become_right(world, lambda: wrong_calls(read_committed(world.broker.bootstrap_servers, ORDERS), calls_of(folder)))
    world.say(f"{len(calls_of(folder))} batches, each with one number and the same rows")


@drill(
    "D44",
    "killed within an ingest",
    injects="SIGKILL to all after one task of a source outside Kafka has written its batch; then a checkpoint one batch behind",
    holds="a `CheckpointMismatchError`; with the right checkpoint put back, each row is written once",
    minutes=2,
    conditions=Conditions(options=FOUR_AT_ONCE),
)
def killed_within_an_ingest(world: World) -> None:
    folder = world.folder / "ingest"
    add_rows(folder, *range(20))
    with world.admin() as admin:
        admin.create_topics([TopicSpec(OUT, PARTITIONS, {"retention.ms": "-1"}, 1)])
    variables = _variables(world, "variants:ingest", folder)
    world.start(environment=variables)
    world.wait_for(lambda: _ingested(world) == [*range(20)], "the first rows")
    world.stop_at_rest()
    checkpoint, older = world.application.checkpoint / f"{ROWS}{INGEST}", world.folder / "older"
    shutil.copytree(checkpoint, older)

    (folder / HOLD).touch()
    add_rows(folder, HELD, *range(20, 40))
    before = _markers(world)
    world.application.start(environment=variables)
    world.wait_for(lambda: _markers(world) != before, "a task has written its part of the batch")
    world.application.kill_all()
    grown = [task for task, end in _markers(world).items() if end > before[task]]
    world.require(len(grown) == 1, f"the tasks {grown} have written the batch, not one of them")
    world.saw(f"driver and workers killed: task {grown[0]} of {PARTITIONS} has written its part of a batch")
    right = world.folder / "right"
    checkpoint.rename(right)
    older.rename(checkpoint)
    add_rows(folder, *range(40, 60))
    (folder / HOLD).unlink()
    world.saw(f"one batch behind: {world.ends_with('CheckpointMismatchError', environment=variables)[:160]}")
    world.require(_ingested(world) != [HELD, *range(60)], "the rows were written though the checkpoint was behind")
    shutil.rmtree(checkpoint)
    right.rename(checkpoint)
    world.restarts("the checkpoint was put back", environment=variables)
    world.wait_for(lambda: len(_ingested(world)) >= 61, "all rows")
    world.require(_ingested(world) == [HELD, *range(60)], f"not each row once: {_ingested(world)}")
    world.say("61 rows were written, each once")


def _ingested(world: World) -> list[int]:
    """The numbers of the rows that arrived in Kafka."""
    return sorted(orjson.loads(one.value or b"{}")["n"] for one in read_committed(world.broker.bootstrap_servers, OUT))


def _markers(world: World) -> dict[int, int]:
    """The committed ends of the partitions that have the tasks' markers."""
    topic = commits_topic(APPLICATION_ID, f"{ROWS}{INGEST}")
    with world.admin() as admin:
        return {task: end for (_, task), end in admin.end_offsets([(topic, n) for n in range(PARTITIONS)]).items()}


def _become_right(world: World, wrong: Callable[[], list[str]]) -> None:
    """Waits until all input is read and there is no difference.

    It waits as long as the tables change, because a sink writes
    after the steps.
    """
    world.at_rest()
    before, since = [""], 0.0
    while found := wrong():
        if found != before:
            before, since = found, time.monotonic()
        elif time.monotonic() - since > TABLES_S:
            break
        time.sleep(1)
    world.require(not found, "; ".join(found))
