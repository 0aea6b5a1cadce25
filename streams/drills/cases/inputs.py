"""Faults of the input: lost to retention, a topic created again, partitions that grow under load."""

from __future__ import annotations

import time
from functools import partial

import orjson

from state.changelog import commits_topic
from state.kafka.key_hash import partition_for_key
from streams.drills.drill import drill
from streams.drills.program import KEYS, ORDERS, PARTITIONS, PAYMENTS, TOTALS
from streams.drills.topics import read_committed
from streams.drills.world import APPLICATION_ID, END, READ, World
from streams.engine.source.log import STEP

GROWN = 2 * PARTITIONS
_SECOND = "by-region-repartition"
_OF_THE_SECOND = {(commits_topic(APPLICATION_ID, _SECOND), END), (f"{APPLICATION_ID}-{_SECOND}", READ)}
"""The logs to which tasks of the second sub-topology write their positions even if they have no records."""


@drill(
    "D15",
    "lost and recreated input",
    injects="records lost to retention before they were read; a topic deleted and created again",
    holds="an `OffsetsLostError`, a `TopicRecreatedError`; nothing is written",
    settles=False,
)
def lost_offsets(world: World) -> None:
    world.start()
    world.stop_at_rest()
    ends = [world.topics.end(ORDERS, number) for number in range(PARTITIONS)]
    time.sleep(3)
    world.load.paused = True
    for number, end in enumerate(ends):
        world.topics.lose_before(ORDERS, number, end + 10)
    world.saw(f"records of {ORDERS} were deleted up to offsets {[end + 10 for end in ends]}, read up to {ends}")
    said = world.refused("OffsetsLostError", apart_from=_OF_THE_SECOND)
    world.saw(f"refused: {said[:160]}")
    world.topics.delete(ORDERS)
    world.topics.create(ORDERS, PARTITIONS, {"retention.ms": "-1"})
    for number, end in enumerate(ends):
        # Grown beyond the old offsets, so that only the topic's id shows that it is another topic.
        world.topics.write(ORDERS, *[(b"k", b'{"id":"x"}', 1_000)] * (end + 20), partition=number)
    said = world.refused("TopicRecreatedError", apart_from=_OF_THE_SECOND)
    world.saw(f"refused: {said[:160]}")


@drill(
    "D16",
    "more input partitions",
    injects="a source topic that gets more partitions under load",
    holds="the state of a key stays in one task",
    not_live="records of new partitions wait until micro-batches take over, too long for windows by this fast event time",
)
def more_partitions(world: World) -> None:
    world.start()
    moved = [n for n in range(KEYS) if partition_for_key(b"key-%d" % n, GROWN) >= PARTITIONS]
    world.topics.grow(ORDERS, GROWN)
    world.wait_for(
        lambda: all(world.topics.end(ORDERS, number) > 20 for number in range(PARTITIONS, GROWN)),
        "input in the new partitions",
    )
    world.saw(
        f"{ORDERS} has {GROWN} partitions instead of {PARTITIONS}; {len(moved)} of {KEYS} keys are in the new ones"
    )
    world.recovers("partitions were added")


# Faults of records: poison, timestamps far ahead, results that are too large, and clocks that step.

DEAD = "dead-letters"
DEAD_LETTERS = ("--bad-records", "dlq", "--dead-letter-topic", DEAD)
COMMITS = commits_topic(APPLICATION_ID, ORDERS)
HOURS_MS = 2 * 3_600_000
YEARS_MS = 10 * 365 * 86_400_000
LARGE = 600_000
"""The number of characters of an id: a pair of two such records is larger than a client can send."""


@drill(
    "D23",
    "poison records",
    injects="bad JSON, no JSON, deep nesting, a large value, a key that is not text",
    holds="each is one dead letter, and the others are not touched",
)
def poison(world: World) -> None:
    world.topics.create(DEAD, 1, {"retention.ms": "-1"})
    world.start(*DEAD_LETTERS)
    now = world.load.now_ms
    records: dict[str, tuple[bytes | None, bytes | None]] = {
        "bad JSON": (b"key-1", b'{"id": '),
        "no JSON": (b"key-2", b"\xff\xfe\x00"),
        "deep nesting": (b"key-3", b'{"id":' * 3000 + b"1" + b"}" * 3000 + b"!"),
        "a large value": (b"key-4", b"x" * 900_000),
        "a key that is not text": (b"\xff\xff", b'{"id":"poison"}'),
    }
    world.topics.write(ORDERS, *[(key, value, now) for key, value in records.values()])
    world.wait_for(lambda: len(read_committed(world.servers, DEAD)) >= len(records), "all dead letters")
    world.saw(f"{len(records)} records are dead letters: {', '.join(records)}")
    world.recovers("poison")
    found = len(read_committed(world.servers, DEAD))
    world.require(found == len(records), f"{found} dead letters of {len(records)} bad records")
    world.application.kill_all()
    world.restarts("a new start after dead letters", *DEAD_LETTERS)
    world.require(len(read_committed(world.servers, DEAD)) == found, "dead letters were sent twice")


@drill(
    "D24",
    "wrong timestamps and clocks",
    injects="orders dated ten years ahead; a clock that steps by two hours, both ways",
    holds="dead letters that move no time; the same results",
)
def wrong_times(world: World) -> None:
    world.topics.create(DEAD, 1, {"retention.ms": "-1"})
    step = world.folder / "clock-step"
    world.start(*DEAD_LETTERS, environment={STEP: str(step)})
    ahead = int(time.time() * 1000) + YEARS_MS
    world.topics.write(ORDERS, *[(b"key-%d" % n, b'{"id":"ahead"}', ahead) for n in range(4)])
    world.wait_for(lambda: len(read_committed(world.servers, DEAD)) == 4, "four dead letters")
    world.saw("4 orders dated ten years ahead are dead letters")
    world.recovers("timestamps far ahead")
    for by_ms in (HOURS_MS, -HOURS_MS):
        step.write_text(str(by_ms))
        world.wait_for(partial(is_wrong_by, world, by_ms), "a step by a clock that has stepped")
        world.saw(f"the clock of steps moved to {by_ms / 3_600_000:+g} h")
        world.recovers(f"a clock that is wrong by {by_ms / 3_600_000:+g} h")
    found = len(read_committed(world.servers, DEAD))
    world.require(found == 4, f"{found} dead letters of 4 bad records")


def is_wrong_by(world: World, by_ms: int) -> bool:
    """Whether the newest step's clock is off by about `by_ms`."""
    newest = committed_ms(world) if world.live else planned_ms(world)
    return abs(newest - time.time() * 1000 - by_ms) < HOURS_MS / 2


def committed_ms(world: World) -> int:
    """The time of the newest marker in a commits log. For a live step, the marker's record has the time of the step."""
    topic = world.internal_topics("-commits")[0]
    return read_committed(world.servers, topic)[-1].timestamp


def planned_ms(world: World) -> int:
    """The time at which the newest micro-batch was planned, from Spark's log, ms. It is Java's time, which no drill changes."""
    logs = [file for file in world.application.checkpoint.glob(f"{ORDERS}/offsets/*") if file.name.isdigit()]
    newest = max(logs, key=lambda file: int(file.name))
    try:
        return int(orjson.loads(newest.read_text().splitlines()[-1])["now_ms"])
    except (orjson.JSONDecodeError, KeyError, IndexError):
        return 0


@drill(
    "D25",
    "oversized result",
    injects="a result that is larger than the client sends",
    holds="a named error and no commit; with the policy `dlq` one dead letter",
    minutes=1.5,
)
def oversize(world: World) -> None:
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
    world.restarts("the policy for results became `dlq`", *DEAD_LETTERS)
    # The pair goes to its topic, and to the second sub-topology: one dead letter for each.
    letters = len(read_committed(world.servers, DEAD))
    world.require(letters == 2, f"{letters} dead letters instead of 2")
