"""Faults of a single broker: killed, away, and transactions that others leave open or that expire."""

from __future__ import annotations

import struct
import sys
import time

from state.kafka.producer import TransactionalProducer
from streams.drills.cases.drivers import SUB
from streams.drills.program.topology import TOTALS
from streams.drills.proxy import INIT_PRODUCER_ID, Action, Rule
from streams.drills.world import APPLICATION_ID, World

AWAY_S = (5.0, 20.0)
OPEN_S = 300.0
"""The timeout of a transaction that nobody ends."""
IDLE_S = 12.0
EXPIRES = {
    "transactional.id.expiration.ms": "5000",
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
    client = {"bootstrap.servers": world.servers, "log_level": "0"}
    with TransactionalProducer(client, "a-stranger", OPEN_S) as stranger:
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
        world.require(now == seen, f"a reader went past the open transaction: {now - seen} records")
        world.saw(
            f"{end - stable} offsets of {TOTALS}-0 waited behind a foreign transaction, and none of them was read"
        )
    with TransactionalProducer(client, "a-stranger") as successor:
        successor.init_transactions()
    world.recovers("the foreign transaction was aborted")


def expired_ids(world: World) -> None:
    """D08: the broker forgets the transactional ids of an application that is idle, and gives new producer ids."""
    asked = world.proxy.on(INIT_PRODUCER_ID, Action.WATCH, f"{APPLICATION_ID}-{SUB}-0".encode(), sys.maxsize)
    world.start()
    world.load.paused = True
    world.at_rest()
    known = producer_ids(asked)
    time.sleep(IDLE_S)
    world.load.paused = False
    world.wait_for(lambda: len(producer_ids(asked)) > len(known), "a step after the pause")
    before, after = known[-1], producer_ids(asked)[len(known)]
    world.require(after != before, f"the broker still knew the id: producer {before}")
    world.saw(f"the broker had forgotten the transactional id: producer {before} became {after}")
    world.recovers("the transactional ids had expired")


def producer_ids(asked: Rule) -> list[int]:
    """The producer ids in the answers to InitProducerId (version 2 or more), without refusals, after which clients ask again."""
    # Correlation id, tagged fields of the header, throttle time; next the error code and the id.
    answers = [struct.unpack_from(">hq", reply, 4 + 1 + 4) for reply in list(asked.replies)]
    return [int(number) for error, number in answers if error == 0]
