"""Faults of the input: lost to retention, a topic created again, partitions that grow under load."""

from __future__ import annotations

import time

from state.kafka.partitioner import partition_for_key
from streams.drills.program.topology import KEYS, ORDERS, PARTITIONS
from streams.drills.world import World

GROWN = 2 * PARTITIONS


def lost_offsets(world: World) -> None:
    """D15: records are lost to retention before they were read, and a source topic is deleted and created again."""
    world.start()
    world.stop_at_rest()
    ends = [world.topics.end(ORDERS, number) for number in range(PARTITIONS)]
    time.sleep(3)
    world.load.paused = True
    for number, end in enumerate(ends):
        world.topics.lose_before(ORDERS, number, end + 10)
    world.saw(f"records of {ORDERS} were deleted up to offsets {[end + 10 for end in ends]}, read up to {ends}")
    said = world.refused("OffsetsLostError")
    world.saw(f"refused: {said[:160]}")
    world.topics.delete(ORDERS)
    world.topics.create(ORDERS, PARTITIONS, {"retention.ms": "-1"})
    for number, end in enumerate(ends):
        # Grown beyond the old offsets, so that only the topic's id tells that it is another one.
        world.topics.write(ORDERS, *[(b"k", b'{"id":"x"}', 1_000)] * (end + 20), partition=number)
    said = world.refused("TopicRecreatedError")
    world.saw(f"refused: {said[:160]}")


def more_partitions(world: World) -> None:
    """D16: a source topic gets more partitions under load; the state of a key stays in one task."""
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
