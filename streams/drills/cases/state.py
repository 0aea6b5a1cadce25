"""Faults of local state: lost, damaged, old, or restored from logs with odd ends."""

from __future__ import annotations

import shutil
import time

from state.changelog.topics import changelog_topic
from state.commit.crash_points import SNAPSHOT_POINTS
from streams.drills.cases.failover import files_of
from streams.drills.cases.tasks import RESTORING, frozen_worker
from streams.drills.program.topology import ORDERS, TOTALS
from streams.drills.reader import read_aborted, read_committed
from streams.drills.world import APPLICATION_ID, World

TOTALS_LOG = changelog_topic(APPLICATION_ID, "totals")
MISSED = 200
"""Offsets of the changelog that an old copy of local state is to lack."""
LOOK_S = 2.0
OLD_MS = 1_600_000_000_000
SHORT_RETENTION = {"log.retention.ms": "60000"}
COMPACT_NOW = {
    "segment.ms": "1000",
    "segment.bytes": str(1024 * 1024),
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}


def lost_state(world: World) -> None:
    """D19: local stores are deleted while the application is stopped, again and again within the restore, and under load."""
    world.start()
    world.application.kill_all()
    world.application.delete_state()
    killed = time.monotonic()
    world.application.start(faults=",".join(f"kill {point}" for point in RESTORING))
    world.recovers("local state was deleted, and its restore cut short", killed)
    happened = [fault for _, fault in world.application.happened()]
    world.require(len(happened) == len(RESTORING), f"the restore was not cut short everywhere: {happened}")
    world.saw(f"local state deleted, workers killed at {', '.join(happened)}")
    databases = world.application.databases()
    world.damages_state = True
    world.application.delete_state()
    world.saw(f"{len(databases)} databases deleted under load")
    world.recovers("local state was deleted under load")


def damaged_state(world: World) -> None:
    """D26: files of local databases are overwritten, cut short or missing at a start."""
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


def stale_state(world: World) -> None:
    """D20: an old copy of local state is put back, while the changelog has been compacted since."""
    world.start()
    world.stop()
    copy = world.folder / "stale"
    shutil.copytree(world.application.state, copy)
    missed = world.topics.end(TOTALS_LOG)
    world.topics.alter(TOTALS_LOG, COMPACT_NOW)
    world.start()

    def compacted() -> bool:
        # Each look reads the whole log, through the proxy of the application.
        time.sleep(LOOK_S)
        written = world.topics.end(TOTALS_LOG) - missed
        return written >= MISSED and left_since(world, missed) < written // 2

    world.wait_for(compacted, "the changelog is compacted")
    world.stop()
    written, left = world.topics.end(TOTALS_LOG) - missed, left_since(world, missed)
    world.require(left < written, "nothing was compacted")
    world.saw(f"of {written} offsets of {TOTALS_LOG}-0 that the old copy lacks, compaction has left {left} records")
    shutil.rmtree(world.application.state)
    shutil.move(copy, world.application.state)
    world.saw("local state of an earlier run was put back")
    world.start()
    world.recovers("old local state was put back")


def left_since(world: World, offset: int) -> int:
    """Records of the changelog of totals, from an offset on, that compaction has left in partition 0."""
    return sum(one.partition == 0 and one.offset >= offset for one in read_committed(world.servers, TOTALS_LOG))


def odd_ends(world: World) -> None:
    """D18: stores are restored from changelogs that end in control records and in an aborted transaction."""
    world.start(faults="freeze marker_sent@0:4")
    frozen_worker(world)
    world.application.kill_all()
    world.application.delete_state()
    killed = time.monotonic()
    world.application.start()
    world.recovers("a restore from a log that ended in an open transaction", killed)
    aborted = {log: len(read_aborted(world.servers, log)) for log in world.internal_topics("-changelog")}
    world.require(any(aborted.values()), "nothing was aborted in the changelogs")
    world.saw(
        f"aborted records at the ends of changelogs: {', '.join(f'{log}: {n}' for log, n in aborted.items() if n)}"
    )


def within_snapshots(world: World) -> None:
    """D34: workers die within snapshots; then local state is lost, and restored from the snapshots that are whole."""
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


def lost_changelog(world: World) -> None:
    """D22: a changelog topic is deleted while the application is stopped."""
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


def old_times(world: World) -> None:
    """D21: records of years ago, on a broker that deletes what is older than a minute; then state is restored."""
    world.start()
    clock = "clock-of-the-broker"
    world.topics.create(clock)
    world.topics.write(clock, (b"key", b"value", OLD_MS))
    # A segment is deleted once it is not the active one any more.
    world.topics.alter(clock, {"segment.ms": "1000"})
    world.wait_for(lambda: world.topics.begin(clock) > 0, "the broker deletes old records of another topic")
    world.saw(f"the broker deleted a record as old as the input from a topic of its defaults ({clock})")
    world.require(world.topics.begin(ORDERS) == 0, "the broker has deleted input")
    world.application.kill_all()
    world.application.delete_state()
    killed = time.monotonic()
    world.application.start()
    world.recovers("state of old records was restored", killed)
