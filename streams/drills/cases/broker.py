"""Faults of a single broker: killed, away, and transactions that others leave open or that expire."""

from __future__ import annotations

import struct
import time

from state.kafka.producer import TransactionalProducer
from streams.drills.cases.drivers import SUB
from streams.drills.program.topology import TOTALS
from streams.drills.proxy import INIT_PRODUCER_ID, Action
from streams.drills.world import APPLICATION_ID, World

AWAY_S = (5.0, 20.0)
EXPIRES = {
    "transactional.id.expiration.ms": "2000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}


def broker_killed(world: World) -> None:
    """D10: the broker is killed and comes back on the same data, soon and later."""
    world.start()
    for away in AWAY_S:
        world.broker.kill()
        world.require(not world.broker.status().running, "the broker still runs")
        world.saw(f"the broker was killed and away for {away:g} s")
        time.sleep(away)
        world.broker.start()
        world.recovers(f"the broker was away for {away:g} s")


def hanging_transaction(world: World) -> None:
    """D07: another producer leaves a transaction open on a topic of results; it is aborted later."""
    world.start()
    client = {"bootstrap.servers": world.servers, "transaction.timeout.ms": "600000", "log_level": "0"}
    with TransactionalProducer(client, "a-stranger") as stranger:
        stranger.init_transactions()
        stranger.begin()
        stranger.send(TOTALS, 0, b"stranger", b"{}", 1)
        stranger.flush()
        time.sleep(1)
        seen = sum(one.partition == 0 for one in list(world.readers[TOTALS].records))
        commits = world.commits()
        world.wait_for(lambda: world.commits() > commits + 8, "commits beside the open transaction")
        stable, end = (world.topics.end(TOTALS, committed=which) for which in (True, False))
        now = sum(one.partition == 0 for one in list(world.readers[TOTALS].records))
        world.require(end > stable, f"nothing waits behind the open transaction: {stable}, {end}")
        world.saw(f"{end - stable} records of {TOTALS}-0 waited behind a foreign transaction ({now - seen} were read)")
    with TransactionalProducer(client, "a-stranger") as successor:
        successor.init_transactions()
    world.recovers("the foreign transaction was aborted")


def expired_ids(world: World) -> None:
    """D08: the broker forgets the transactional ids of an application that is idle, and gives new producer ids."""
    watched = world.proxy.on(INIT_PRODUCER_ID, Action.WATCH, f"{APPLICATION_ID}-{SUB}-0".encode())
    world.start()
    before = producer_id(watched.replies[0])
    world.load.paused = True
    time.sleep(8)
    again = world.proxy.on(INIT_PRODUCER_ID, Action.WATCH, f"{APPLICATION_ID}-{SUB}-0".encode())
    world.load.paused = False
    world.require(again.hit.wait(60), "no step after the pause")
    after = producer_id(again.replies[0])
    world.require(after != before, f"the broker still knew the id: producer {before}")
    world.saw(f"the broker had forgotten the transactional id: producer {before} became {after}")
    world.recovers("the transactional ids had expired")


def producer_id(reply: bytes) -> int:
    """The producer id in the answer to an InitProducerId of version 2 or more."""
    # Correlation id, tagged fields of the header, throttle time, error code.
    return int(struct.unpack_from(">q", reply, 4 + 1 + 4 + 2)[0])
