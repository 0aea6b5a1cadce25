"""Faults of records: poison, timestamps far ahead, results that are too large, and clocks that step."""

from __future__ import annotations

import time
from functools import partial

import orjson

from state.changelog import commits_topic
from streams.drills.program.topology import ORDERS, PAYMENTS, TOTALS
from streams.drills.reader import read_committed
from streams.drills.world import APPLICATION_ID, World
from streams.source.log import STEP

DEAD = "dead-letters"
DEAD_LETTERS = ("--bad-records", "dlq", "--dead-letter-topic", DEAD)
COMMITS = commits_topic(APPLICATION_ID, ORDERS)
HOURS_MS = 2 * 3_600_000
YEARS_MS = 10 * 365 * 86_400_000
LARGE = 600_000
"""Characters of an id; the pair of two such records is larger than a client sends."""


def poison(world: World) -> None:
    """D23: records that no serde can read, records without a key, deep nesting and a large value among good ones."""
    world.topics.create(DEAD, 1, {"retention.ms": "-1"})
    world.start(*DEAD_LETTERS)
    now = world.load.now_ms
    records: dict[str, tuple[bytes | None, bytes | None]] = {
        "bad JSON": (b"key-1", b'{"id": '),
        "no JSON": (b"key-2", b"\xff\xfe\x00"),
        "deep nesting": (b"key-3", b'{"id":' * 3000 + b"1" + b"}" * 3000 + b"!"),
        "a large value": (b"key-4", b"x" * 900_000),
        "a key that is no text": (b"\xff\xff", b'{"id":"poison"}'),
    }
    world.topics.write(ORDERS, *[(key, value, now) for key, value in records.values()])
    world.wait_for(lambda: len(read_committed(world.servers, DEAD)) >= len(records), "all dead letters")
    world.saw(f"{len(records)} records are dead letters: {', '.join(records)}")
    world.recovers("poison")
    found = len(read_committed(world.servers, DEAD))
    world.require(found == len(records), f"{found} dead letters of {len(records)} bad records")
    world.application.kill_all()
    world.application.start(*DEAD_LETTERS)
    world.recovers("a new start after dead letters")
    world.require(len(read_committed(world.servers, DEAD)) == found, "dead letters were sent twice")


def wrong_times(world: World) -> None:
    """D24: timestamps ten years ahead become dead letters and move no time; the clock steps by two hours, both ways."""
    world.topics.create(DEAD, 1, {"retention.ms": "-1"})
    step = world.folder / "clock-step"
    world.start(*DEAD_LETTERS, environment={STEP: str(step)})
    ahead = int(time.time() * 1000) + YEARS_MS
    world.topics.write(ORDERS, *[(b"key-%d" % n, b'{"id":"ahead"}', ahead) for n in range(4)])
    world.wait_for(lambda: len(read_committed(world.servers, DEAD)) == 4, "four dead letters")
    world.saw("4 orders of ten years ahead are dead letters")
    world.recovers("timestamps far ahead")
    for by_ms in (HOURS_MS, -HOURS_MS):
        step.write_text(str(by_ms))
        world.wait_for(partial(is_wrong_by, world, by_ms), "a micro-batch by a clock that has stepped")
        world.saw(f"the clock of the micro-batches stepped to {by_ms / 3_600_000:+g} h")
        world.recovers(f"a clock that is wrong by {by_ms / 3_600_000:+g} h")
    found = len(read_committed(world.servers, DEAD))
    world.require(found == 4, f"{found} dead letters of 4 bad records")


def is_wrong_by(world: World, by_ms: int) -> bool:
    """Whether the clock of the newest micro-batch is wrong by about so much."""
    return abs(planned_ms(world) - time.time() * 1000 - by_ms) < HOURS_MS / 2


def planned_ms(world: World) -> int:
    """The clock when the newest micro-batch was planned, as Spark has logged it."""
    logs = [file for file in world.application.checkpoint.glob(f"{ORDERS}/offsets/*") if file.name.isdigit()]
    newest = max(logs, key=lambda file: int(file.name))
    try:
        return int(orjson.loads(newest.read_text().splitlines()[-1])["now_ms"])
    except (orjson.JSONDecodeError, KeyError, IndexError):
        return 0


def oversize(world: World) -> None:
    """D25: a result that is larger than the client sends ends the application; as a dead letter it does not."""
    world.topics.create(DEAD, 1, {"retention.ms": "-1"})
    world.start()
    now = world.load.now_ms
    for topic in (ORDERS, PAYMENTS):
        value = orjson.dumps({"id": f"large-{topic}-" + "x" * LARGE})
        world.topics.write(topic, (b"key-1", value, now))
    driver = world.application.current
    driver.watch()
    code = driver.ended(180)
    said = [line for line in driver.log().splitlines() if "OversizedRecordError" in line or "RecordFailedError" in line]
    world.require(code == 1 and bool(said), f"exit code {code}: {driver.log()[-600:]}")
    world.saw(f"a result of more than a megabyte ended the application: {said[-1][:160]}")
    before = world.topics.end(TOTALS), world.topics.end(COMMITS)
    world.ends_with("RecordFailedError")
    world.require((world.topics.end(TOTALS), world.topics.end(COMMITS)) == before, "something was written")
    began = time.monotonic()
    world.application.start(*DEAD_LETTERS)
    world.recovers("the policy for results became `dlq`", began)
    # The pair goes to its topic, and to the second sub-topology: one dead letter for each.
    letters = len(read_committed(world.servers, DEAD))
    world.require(letters == 2, f"{letters} dead letters instead of 2")
