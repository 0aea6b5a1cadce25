"""Faults of a single broker: killed, away, and transactions that others leave open or that expire."""

from __future__ import annotations

import os
import signal
import struct
import sys
import time

from confluent_kafka.admin import AdminClient

from state.changelog import changelog_topic
from state.kafka.producer import TransactionalProducer
from streams.drills.brokers import END_TXN, INIT_PRODUCER_ID, ProxyAction, Rule
from streams.drills.cases.drivers import REFUSED, aborted_steps, writer
from streams.drills.drill import Conditions, DrillFailed, drill
from streams.drills.processes import wait_until
from streams.drills.program import TOTALS
from streams.drills.world import APPLICATION_ID, World

AWAY_S = (5.0, 20.0)
RARELY_MS = 2_000
OPEN_S = 300.0
"""The timeout of a transaction that is never ended."""
IDLE_S = 12.0
EXPIRES = {
    "transactional.id.expiration.ms": "5000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}


@drill(
    "D10",
    "broker killed",
    injects="SIGKILL to the only broker, which is away for 5 s and for 20 s",
    holds="the application waits and continues by itself",
    minutes=1.5,
    any_program=True,
)
def broker_killed(world: World) -> None:
    # A broker that dies within a commit may never write its control records: a known bug, which would spoil each attempt.
    world.start(*(("--set", f"commit_interval_ms={RARELY_MS}") if world.live else ()))
    for away in AWAY_S:
        world.broker.kill()
        world.require(not world.broker.status().running, "the broker still runs")
        world.saw(f"the broker was killed and away for {away:g} s")
        time.sleep(away)
        world.broker.start()
        world.recovers(f"the broker was away for {away:g} s")


@drill(
    "D07",
    "hanging transaction",
    injects="a foreign transaction that stays open on a topic of results",
    holds="commits continue; readers see everything once it is aborted",
)
def hanging_transaction(world: World) -> None:
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
        world.wait_for(lambda: world.commits() > commits + 8, "commits next to the open transaction")
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


@drill(
    "D08",
    "expired transactional ids",
    injects="a broker that forgets the ids of an idle application",
    holds="the next step gets a new producer id",
    conditions=Conditions(broker=EXPIRES),
)
def expired_ids(world: World) -> None:
    asked = world.proxy.on(INIT_PRODUCER_ID, ProxyAction.WATCH, writer(world).encode(), sys.maxsize)
    world.start()
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
    """The producer ids in the answers to InitProducerId (version 2 or later). Refusals are left out, because clients then retry."""
    # Correlation id, tagged fields of the header, throttle time; next the error code and the id.
    answers = [struct.unpack_from(">hq", reply, 4 + 1 + 4) for reply in list(asked.replies)]
    return [int(number) for error, number in answers if error == 0]


# Faults of a cluster of three brokers: rolling restarts, dead coordinators and controllers, one cut off, lost records.

TRANSACTIONS = "__transaction_state"
ACTIVE = "Becoming the active controller"
ORDERLY = {"controlled.shutdown.enable": "true"}
ELECTION_S = 60.0
TWO_REPLICAS = {
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "transaction.state.log.min.isr": "1",
    "unclean.leader.election.interval.ms": "1000",
}
CUT_OFF_S = 12.0
"""Longer than a broker's session."""
TOTALS_LOG = changelog_topic(APPLICATION_ID, "totals")


def admin_client(world: World) -> AdminClient:
    """A client that asks about leaders and controllers."""
    return AdminClient({"bootstrap.servers": world.broker.bootstrap_servers, "log_level": "0"})


def leader(world: World, topic: str) -> int:
    """The leader of a topic's partition 0; -1: none."""
    metadata = admin_client(world).list_topics(topic, timeout=30)
    return int(metadata.topics[topic].partitions[0].leader)


def controller(world: World) -> int:
    """The node of the active controller, from the newest line in the brokers' logs. A client's request would not show it."""
    said = {
        line.split(" INFO ")[0]: int(log.parent.name.removeprefix("node-"))
        for log in (world.folder / "broker").glob("node-*/server.log")
        for line in log.read_text(errors="replace").splitlines()
        if ACTIVE in line
    }
    if not said:
        raise DrillFailed("no broker has said that its controller is the active one")
    return said[max(said)]


def next_controller(world: World, dead: int) -> int:
    """Waits until another broker is the active controller."""
    wait_until(lambda: controller(world) != dead, ELECTION_S, "another controller takes over")
    return controller(world)


def pid_of(world: World, node: int) -> int:
    found = next(one.pid for one in world.broker.status().nodes if one.node_id == node)
    if found is None:
        raise DrillFailed(f"broker {node} does not run")
    return found


@drill(
    "D11",
    "rolling restart",
    injects="each of three brokers restarted in turn, in an orderly way and by SIGKILL",
    holds="nothing but time is lost",
    minutes=3,
    conditions=Conditions(3, broker=ORDERLY),
    needs="1.5 GB of memory",
    any_program=True,
)
def rolling_restart(world: World) -> None:
    world.start()
    for how in ("stop", "kill"):
        for node in (1, 2, 3):
            pid = pid_of(world, node)
            if how == "stop":
                world.broker.stop(node_id=node)
            else:
                world.broker.kill(node)
            world.broker.start()
            world.require(pid_of(world, node) != pid, f"broker {node} was not started again")
            world.recovers(f"broker {node}: {how}")
        world.saw(f"all three brokers restarted in turn ({how})")


@drill(
    "D12",
    "coordinator and controller killed",
    injects="SIGKILL to the transaction coordinator, then to the active controller",
    holds="the others take over",
    minutes=2,
    conditions=Conditions(3),
    needs="1.5 GB of memory",
    any_program=True,
)
def coordinator_killed(world: World) -> None:
    world.start()
    for what in ("coordinator", "controller"):
        node = leader(world, TRANSACTIONS) if what == "coordinator" else controller(world)
        world.broker.kill(node)
        killed = time.monotonic()
        world.recovers(f"the {what} was killed", killed)
        if what == "coordinator":
            now = leader(world, TRANSACTIONS)
            world.require(now not in (node, -1), f"no other coordinator: {now}")
            world.saw(f"broker {node}, the transaction coordinator, was killed; broker {now} took over")
        else:
            now = next_controller(world, node)
            world.saw(f"broker {node}, the active controller, was killed; broker {now} took over")
        world.broker.start()


@drill(
    "D14",
    "unclean election",
    injects="a broker that lacks the last records becomes the leader of a commits topic",
    holds="a `CheckpointMismatchError`; the task that has lost commits writes nothing",
    minutes=2,
    conditions=Conditions(3, broker=TWO_REPLICAS),
    needs="1.5 GB of memory",
    settles=False,
)
def unclean_election(world: World) -> None:
    topic = f"{APPLICATION_ID}-orders-commits"
    world.start()
    partition = admin_client(world).list_topics(topic, timeout=30).topics[topic].partitions[0]
    ahead = int(partition.leader)
    (behind,) = (int(node) for node in partition.replicas if node != ahead)
    # At rest; otherwise the log of the one that stays behind may end within a transaction that nobody can end.
    world.at_rest()
    world.broker.kill(behind)
    world.load.paused = False
    world.recovers(f"broker {behind} was killed")
    world.stop_at_rest()
    end = world.topics.end(topic)
    world.broker.kill(ahead)
    world.broker.start(node_id=behind)
    world.topics.alter(topic, {"unclean.leader.election.enable": "true"})
    wait_until(lambda: leader(world, topic) == behind, ELECTION_S, f"broker {behind} becomes the leader of {topic}-0")
    world.broker.start()
    now = world.topics.end(topic)
    world.require(now < end, f"nothing was lost: {topic}-0 ends at {now}")
    world.saw(f"broker {behind} became the leader of {topic}-0 without its last {end - now} offsets")
    if world.live:
        # Live, the other tasks have lost nothing, and may continue until the application ends.
        said = world.ends_with("CheckpointMismatchError")
        world.require(world.topics.end(topic) == now, f"{topic}-0 was {now} long, and is {world.topics.end(topic)}")
    else:
        said = world.refused("CheckpointMismatchError")
    world.saw(f"refused: {said[:160]}")


@drill(
    "D13",
    "broker cut off",
    injects="the leader of a changelog freezes until it is replaced, and then continues",
    holds="its late answers change nothing",
    minutes=1.5,
    conditions=Conditions(3),
    needs="1.5 GB of memory",
)
def cut_off(world: World) -> None:
    world.start()
    node = leader(world, TOTALS_LOG)
    pid = pid_of(world, node)
    os.kill(pid, signal.SIGSTOP)
    try:
        stopped = time.monotonic()
        world.recovers(f"broker {node} stood still", stopped)
        time.sleep(max(0.0, CUT_OFF_S - (time.monotonic() - stopped)))
        now = leader(world, TOTALS_LOG)
        world.require(now not in (node, -1), f"broker {now} leads {TOTALS_LOG}-0")
    finally:
        os.kill(pid, signal.SIGCONT)
    world.saw(
        f"broker {node} stood still for {time.monotonic() - stopped:.0f} s; broker {now} led {TOTALS_LOG}-0 in that time"
    )
    world.recovers(f"broker {node} went on")


# Faults of the network between application and broker: requests that are late, lost, or not answered.

HIT_S = 60.0
NETWORK_AWAY_S = 8.0


def on_commit(world: World, action: ProxyAction, but_not: bytes = b"") -> Rule:
    """Adds a rule for the next commit of task 0."""
    return world.proxy.on(END_TXN, action, writer(world).encode(), but_not=but_not)


@drill(
    "D01",
    "late commit",
    injects="a commit request that arrives within the next transaction",
    holds="the broker refuses it: each step has a producer of its own",
)
def late_commit(world: World) -> None:
    world.start()
    late = on_commit(world, ProxyAction.HANG_UP)
    world.require(late.hit.wait(HIT_S), "no commit came to be held")
    again = on_commit(world, ProxyAction.WATCH)
    world.require(again.hit.wait(HIT_S), "the sender did not ask again")
    # The sender may ask a third time: only a request of another producer belongs to another transaction.
    following = on_commit(world, ProxyAction.HOLD, but_not=late.producer())
    world.require(following.hit.wait(HIT_S), "no further transaction")
    late.release()
    code = late.error_code()
    world.require(code in REFUSED, f"the late request was accepted (error code {code})")
    world.saw(f"the late commit arrived within the next transaction and was refused (error code {code})")
    following.release()
    world.recovers("the late commit")


@drill(
    "D09",
    "unknown commit",
    injects="workers that die before the answer to their commit, which arrived or did not",
    holds="the marker decides: skipped, or done again",
    quick=True,
)
def unknown_commit(world: World) -> None:
    world.start()
    before = aborted_steps(world)
    lost = on_commit(world, ProxyAction.HOLD)
    world.require(lost.hit.wait(HIT_S), "no commit came to be lost")
    lost.sender().kill()
    world.recovers("a commit that never arrived")
    lost.release()
    code = lost.error_code()
    world.require(code in REFUSED, f"the commit of a dead worker was accepted (error code {code})")
    redone = aborted_steps(world) - before
    world.require(bool(redone), "the step of the lost commit was not done again")
    world.saw(f"a commit was lost with its sender: step {', '.join(sorted(redone))} was aborted and done again")
    before = aborted_steps(world)
    unanswered = on_commit(world, ProxyAction.LOSE_REPLY)
    world.require(unanswered.hit.wait(HIT_S), "no commit came to be left without an answer")
    code = unanswered.error_code()
    unanswered.sender().kill()
    unanswered.release()
    world.recovers("a commit without an answer")
    world.require(code == 0 and aborted_steps(world) == before, f"error code {code}, aborted {aborted_steps(world)}")
    world.saw("a commit succeeded, and its sender died before the answer: the step was not done again")


@drill(
    "D28",
    "slow network and broker",
    injects="every request late by 0.3 s; no connections for 8 s; a broker that freezes for 2 s of every 3 s",
    holds="nothing but time is lost",
    any_program=True,
)
def slow_broker(world: World) -> None:
    world.start()
    before = world.proxy.seen.total()
    world.proxy.delay_s = 0.3
    time.sleep(8)
    world.proxy.delay_s = 0.0
    world.saw(f"{world.proxy.seen.total() - before} requests were late by 0.3 s")
    world.recovers("every request was late")
    world.proxy.refusing = True
    cut = world.proxy.cut()
    time.sleep(NETWORK_AWAY_S)
    world.proxy.refusing = False
    world.saw(f"{cut} connections were cut, and for {NETWORK_AWAY_S:g} s none could be made")
    world.recovers("the network was away")
    (node,) = world.broker.status().nodes
    assert node.pid is not None
    for _ in range(4):
        os.kill(node.pid, signal.SIGSTOP)
        time.sleep(2)
        os.kill(node.pid, signal.SIGCONT)
        time.sleep(1)
    world.saw("the broker stood still for 2 s of every 3 s, four times")
    world.recovers("the broker stood still again and again")
