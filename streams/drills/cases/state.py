"""Faults of local state: lost, damaged, old, or restored from logs with odd ends."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable

import orjson

from state.changelog import changelog_topic
from state.commit.crash_points import SNAPSHOT_POINTS
from state.stores.dump import dump, read_task_store
from streams.drills.cases.chaos import kill_worker
from streams.drills.cases.drivers import MANY_ATTEMPTS, RESTORING, frozen_worker
from streams.drills.cases.hosts import files_of
from streams.drills.drill import Conditions, drill
from streams.drills.processes import wait_until
from streams.drills.program import KEYS, ORDERS, PARTITIONS, TOTALS, OwnProgram
from streams.drills.topics import Read, read_aborted, read_committed
from streams.drills.variants import JOINED, ROWS, with_rows, wrong_joins
from streams.drills.world import APPLICATION_ID, World
from streams.engine.graph.global_tables import global_store_specs
from streams.topology.plan import build_plan

TOTALS_LOG = changelog_topic(APPLICATION_ID, "totals")
MISSED = 200
"""How many changelog offsets an old copy of local state must be behind."""
LOOK_S = 2.0
OLD_MS = 1_600_000_000_000
SHORT_RETENTION = {"log.retention.ms": "60000"}
COMPACT_NOW = {
    "segment.ms": "1000",
    "segment.bytes": str(1024 * 1024),
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}

WORKER_KILLS = 3
COMPACTED_S = 120.0
EVERY_KEY = [f"key-{number}" for number in range(KEYS)]


@drill(
    "D19",
    "lost local state",
    injects="local stores deleted while stopped, again within the restore, and under load",
    holds="they are restored",
    quick=True,
    any_program=True,
    conditions=Conditions(options=MANY_ATTEMPTS),
)
def lost_state(world: World) -> None:
    world.start()
    world.application.kill_all()
    world.application.delete_state()
    world.restarts(
        "local state was deleted, and its restore cut short", faults=",".join(f"kill {point}" for point in RESTORING)
    )
    happened = [fault for _, fault in world.application.happened()]
    world.require(len(happened) == len(RESTORING), f"the restore was not cut short everywhere: {happened}")
    world.saw(f"local state deleted, workers killed at {', '.join(happened)}")
    databases = world.application.databases()
    world.damages_state = True
    world.application.delete_state()
    world.saw(f"{len(databases)} databases deleted under load")
    world.recovers("local state was deleted under load")


@drill(
    "D26",
    "damaged local state",
    injects="files of local databases overwritten, cut short or missing",
    holds="the stores are restored",
)
def damaged_state(world: World) -> None:
    world.start()
    world.stop()
    damaged = []
    world.damages_state = True
    for database, name in zip(world.application.databases(), ("*.sst", "MANIFEST-*", "CURRENT", "*.log"), strict=False):
        files = sorted(database.glob(name)) or sorted(database.glob("MANIFEST-*"))
        file = files[-1]
        size = file.stat().st_size
        if name == "CURRENT":
            file.unlink()
        else:
            file.write_bytes(b"\xff" * max(size // 2, 64))
        damaged.append(f"{database.parent.parent.name}/{database.parent.name}/{file.name}")
    world.saw(f"damaged: {', '.join(damaged)}")
    world.start()
    world.recovers("files of local state were damaged")


@drill(
    "D20",
    "old local state",
    injects="an old copy of local state, put back after its changelog was compacted",
    holds="it is brought up to date, or restored",
    minutes=1.5,
)
def stale_state(world: World) -> None:
    world.start()
    world.stop()
    copy = world.folder / "stale"
    shutil.copytree(world.application.state, copy)
    missed = world.topics.end(TOTALS_LOG)
    world.topics.alter(TOTALS_LOG, COMPACT_NOW)
    world.start()

    def compacted() -> bool:
        # Each check reads the whole log, through the application's proxy.
        time.sleep(LOOK_S)
        written = world.topics.end(TOTALS_LOG) - missed
        return written >= MISSED and left_since(world, missed) < written // 2

    world.wait_for(compacted, "the changelog is compacted")
    world.stop()
    written, left = world.topics.end(TOTALS_LOG) - missed, left_since(world, missed)
    world.require(left < written, "nothing was compacted")
    world.saw(f"the old copy lacks {written} offsets of {TOTALS_LOG}-0, and compaction has left {left} records")
    shutil.rmtree(world.application.state)
    shutil.move(copy, world.application.state)
    world.saw("local state of an earlier run was put back")
    world.start()
    world.recovers("old local state was put back")


def left_since(world: World, offset: int) -> int:
    """The number of records that compaction has left in partition 0 of the changelog of totals, from an offset on."""
    return sum(one.partition == 0 and one.offset >= offset for one in read_committed(world.servers, TOTALS_LOG))


@drill(
    "D18",
    "odd ends of a changelog",
    injects="a restore from logs that end in control records and an open transaction",
    holds="the restore ends at the last commit",
)
def odd_ends(world: World) -> None:
    world.start(faults="freeze marker_sent@0:4")
    frozen_worker(world)
    world.application.kill_all()
    world.application.delete_state()
    world.restarts("a restore from a log that ended in an open transaction")
    aborted = {log: len(read_aborted(world.servers, log)) for log in world.internal_topics("-changelog")}
    world.require(any(aborted.values()), "nothing was aborted in the changelogs")
    world.saw(
        f"aborted records at the ends of changelogs: {', '.join(f'{log}: {n}' for log, n in aborted.items() if n)}"
    )


@drill(
    "D34",
    "killed within snapshots",
    injects="SIGKILL to Python workers while snapshots are taken and stored; then local state is lost",
    holds="no step is lost, and state is restored from a complete snapshot",
    conditions=Conditions(options=MANY_ATTEMPTS),
    any_program=True,
)
def within_snapshots(world: World) -> None:
    place = world.folder / "snapshots"
    often = ("--set", f"snapshot_dir={place}", "--set", "snapshot_steps=2")
    world.start(*often, faults=",".join(f"kill {point}" for point in SNAPSHOT_POINTS))
    world.wait_for(
        lambda: len(world.application.happened()) == len(SNAPSHOT_POINTS),
        "a worker killed at every point of a snapshot",
    )
    world.saw(f"workers killed at {', '.join(fault for _, fault in world.application.happened())}")
    world.recovers("the last kill within a snapshot")
    tasks = len(world.application.databases())
    world.wait_for(lambda: len({one.parents[1] for one in place.rglob("manifests/*.json")}) == tasks, "all snapshots")
    world.application.kill_all()
    world.application.delete_state()
    stored = files_of(place)
    killed = time.monotonic()
    world.application.start(*often)
    world.wait_for(lambda: bool(files_of(world.application.state, "*.sst") & stored), "a snapshot is restored")
    world.saw("table files of the new local state were those of snapshots, by hard links")
    world.recovers("state was restored from snapshots", killed)


@drill(
    "D22",
    "lost changelog",
    injects="a changelog topic that is deleted while the application is stopped",
    holds="a `RestoreError`; nothing is written",
    settles=False,
)
def lost_changelog(world: World) -> None:
    world.start()
    world.stop_at_rest()
    world.topics.delete(TOTALS_LOG)
    world.application.delete_state()
    results = world.topics.end(TOTALS), world.topics.end(TOTALS, 1)
    # The second sub-topology, which has state of its own, may finish what it has; the first one must not write anything.
    said = world.ends_with("RestoreError", "--available-now")
    world.saw(f"the changelog was deleted: {said[:200]}")
    world.require(read_committed(world.servers, TOTALS_LOG) == [], "something was written to the changelog")
    world.require(results == (world.topics.end(TOTALS), world.topics.end(TOTALS, 1)), "results were written")


@drill(
    "D21",
    "old event times",
    injects="input from years ago on a broker that deletes records older than a minute",
    holds="neither state nor changelogs lose anything",
    conditions=Conditions(broker=SHORT_RETENTION, begin_ms=OLD_MS),
)
def old_times(world: World) -> None:
    world.start()
    clock = "clock-of-the-broker"
    world.topics.create(clock)
    world.topics.write(clock, (b"key", b"value", OLD_MS))
    # A segment is deleted once it is not the active one any more.
    world.topics.alter(clock, {"segment.ms": "1000"})
    world.wait_for(lambda: world.topics.begin(clock) > 0, "the broker deletes old records of another topic")
    world.saw(f"the broker deleted a record as old as the input from a topic with default settings ({clock})")
    world.require(world.topics.begin(ORDERS) == 0, "the broker has deleted input")
    world.application.kill_all()
    world.application.delete_state()
    world.restarts("state of old records was restored")


def _forgotten_rows(world: World, rows: RowsOfATable) -> list[str]:
    """Deletes every other row while copies have it, waits until the log has no trace of these rows, and returns their keys."""
    deleted = sorted(rows.present())[::2]
    rows.write(dict.fromkeys(deleted))
    stale = rows.in_copies()
    world.require(bool(deleted) and stale >= {*deleted}, f"of the deleted {deleted}, the copies have only {stale}")
    world.topics.alter(ROWS, {**COMPACT_NOW, "delete.retention.ms": "1000"})
    rows.roll_until_forgotten(deleted)
    begin = world.topics.begin(ROWS)
    world.require(begin == 0, f"the log begins at {begin}, so a copy knows without its age that it lacks records")
    world.saw(
        f"{len(deleted)} rows deleted while copies had them; no trace of them is left in the log, which begins at 0"
    )
    return deleted


@drill(
    "D45",
    "away from a global table",
    injects="rows of a global table change under kills; then compaction deletes tombstones while the application is down",
    holds="a copy that may have missed deletions is read again: no result has a deleted row",
    minutes=2.5,
)
def away_from_a_global_table(world: World) -> None:
    rows = RowsOfATable(world)
    world.topics.create(JOINED, PARTITIONS, {"retention.ms": "-1"})
    world.subject = OwnProgram("streams.drills.variants:with_rows", build=with_rows)
    world.application.target = world.subject.target
    world.start()
    for _ in range(WORKER_KILLS):
        rows.change()
        world.saw(kill_worker(world))
        world.recovers("a killed worker")
    rows.change()
    world.application.kill_all()
    world.restarts("driver and workers were killed")
    # At rest, so that no running step sees the old table.
    world.at_rest()
    world.application.kill_all()

    deleted = _forgotten_rows(world, rows)
    seen = _joined(world)
    before = {(one.partition, one.offset) for one in seen}
    wrong = wrong_joins(rows.history, seen)

    rows.forget()
    world.load.paused = False
    world.restarts("tombstones were missed")
    world.saw(kill_worker(world))
    world.recovers("a killed worker")
    world.at_rest()
    after = [one for one in _joined(world) if (one.partition, one.offset) not in before]
    of_deleted = [one for one in after if (one.key or b"").decode() in deleted]
    wrong += wrong_joins(rows.history, after)
    sent = sorted(_id(one) for one in read_committed(world.broker.bootstrap_servers, ORDERS))
    if sorted(_id(one) for one in [*seen, *after]) != sent:
        wrong.append(f"{len(seen) + len(after)} results for {len(sent)} orders")
    world.require(bool(of_deleted), "no order of a deleted row came after the restart")
    world.require(not wrong, "; ".join(wrong[:5]))
    world.saw(
        f"copies were read again: {len(of_deleted)} orders of deleted rows came after the restart, none with a row"
    )


class RowsOfATable:
    """The rows of the global table of D45, now and in the past."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._number = 0
        self.history: dict[str, list[int | None]] = {key: [None] for key in EVERY_KEY}
        world.topics.create(ROWS, 1, {"cleanup.policy": "compact"})
        self.write({key: self._next() for key in EVERY_KEY})

    def _next(self) -> int:
        self._number += 1
        return self._number

    def write(self, rows: dict[str, int | None]) -> None:
        now = int(time.time() * 1000)
        values = {key: None if row is None else orjson.dumps({"n": row}) for key, row in rows.items()}
        for key, row in rows.items():
            self.history[key].append(row)
        self._world.topics.write(ROWS, *[(key.encode(), value, now) for key, value in values.items()])

    def change(self) -> None:
        """Deletes a third of the rows, and changes or restores the others."""
        gone = self._world.drawn.sample(EVERY_KEY, KEYS // 3)
        self.write({key: None if key in gone else self._next() for key in EVERY_KEY})

    def present(self) -> set[str]:
        return {key for key, of in self.history.items() if of[-1] is not None}

    def forget(self) -> None:
        """Reduces the history to the current rows: after this, an older row must not be seen any more."""
        self.history = {key: of[-1:] for key, of in self.history.items()}

    def in_copies(self) -> set[str]:
        """The keys with rows in a copy on this disk; the application must be stopped."""
        sub = build_plan(with_rows(), APPLICATION_ID).sub_topologies[0]
        specs = global_store_specs(list(sub.global_tables.values()))
        folder = self._world.application.state / APPLICATION_ID / sub.name / "global"
        found = set()
        for database in folder.glob("*/*/db"):
            with read_task_store(database.parent, specs) as store:
                found |= {row.key.decode() for row in dump(store, specs[-1].name)}
        return found

    def roll_until_forgotten(self, keys: Iterable[str]) -> None:
        """Writes the same rows again and again until compaction has removed all rows and tombstones of these keys."""
        kept = {key: self.history[key][-1] for key in self.present()}
        gone = {key.encode() for key in keys}

        def forgotten() -> bool:
            time.sleep(LOOK_S)
            self.write(kept)
            return not any(one.key in gone for one in read_committed(self._world.broker.bootstrap_servers, ROWS))

        wait_until(forgotten, COMPACTED_S, "the tombstones are gone")


def _joined(world: World) -> list[Read]:
    return read_committed(world.broker.bootstrap_servers, JOINED)


def _id(one: Read) -> str:
    return str(orjson.loads(one.value or b"{}")["id"])
