"""Faults of a cluster of three brokers: rolling restarts, dead coordinators and controllers, one cut off, lost records."""

from __future__ import annotations

import os
import signal
import time

from confluent_kafka.admin import AdminClient

from state.changelog import changelog_topic
from streams.drills.failure import DrillFailed
from streams.drills.processes import wait_until
from streams.drills.world import APPLICATION_ID, World

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


def leader(world: World, topic: str, partition: int = 0) -> int:
    """The leader of a partition; -1: none."""
    metadata = admin_client(world).list_topics(topic, timeout=30)
    return int(metadata.topics[topic].partitions[partition].leader)


def controller(world: World) -> int:
    """The active controller: the broker that was the last one to say so, for clients are told any broker."""
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


def rolling_restart(world: World) -> None:
    """D11: each broker in turn is stopped and started, once in an orderly way and once by SIGKILL."""
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


def coordinator_killed(world: World) -> None:
    """D12: the transaction coordinator is killed, and then the active controller."""
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


def unclean_election(world: World) -> None:
    """D14: the last records of a commits topic are lost, for a replica without them becomes its leader."""
    topic = f"{APPLICATION_ID}-orders-commits"
    world.start()
    partition = admin_client(world).list_topics(topic, timeout=30).topics[topic].partitions[0]
    ahead = int(partition.leader)
    (behind,) = (int(node) for node in partition.replicas if node != ahead)
    # At rest, or the log of the one that stays behind may end within a transaction, which nobody could end any more.
    world.load.paused = True
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
    world.saw(f"refused: {world.refused('CheckpointMismatchError')[:160]}")


def cut_off(world: World) -> None:
    """D13: the leader of a changelog stands still until the others replace it, and then goes on as if nothing had been."""
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
        f"broker {node} stood still for {time.monotonic() - stopped:.0f} s; broker {now} led {TOTALS_LOG}-0 meanwhile"
    )
    world.recovers(f"broker {node} went on")
