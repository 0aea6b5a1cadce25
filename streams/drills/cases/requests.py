"""Faults of the network between application and broker: requests that are late, lost, or not answered."""

from __future__ import annotations

import os
import signal
import time

from streams.drills.cases.drivers import REFUSED, SUB
from streams.drills.cases.tasks import aborted_steps
from streams.drills.proxy import END_TXN, Action, Rule
from streams.drills.world import APPLICATION_ID, World

HIT_S = 60.0
AWAY_S = 8.0


def on_commit(world: World, action: Action, but_not: bytes = b"") -> Rule:
    """What happens to the next commit of task 0."""
    return world.proxy.on(END_TXN, action, f"{APPLICATION_ID}-{SUB}-0".encode(), but_not=but_not)


def late_commit(world: World) -> None:
    """D01: a commit request is late, its sender asks again, and the late one arrives within the next transaction."""
    world.start()
    late = on_commit(world, Action.HANG_UP)
    world.require(late.hit.wait(HIT_S), "no commit came to be held")
    again = on_commit(world, Action.WATCH)
    world.require(again.hit.wait(HIT_S), "the sender did not ask again")
    # The sender may ask a third time: only a request of another producer is of another transaction.
    following = on_commit(world, Action.HOLD, but_not=late.producer())
    world.require(following.hit.wait(HIT_S), "no further transaction")
    late.release()
    code = late.error_code()
    world.require(code in REFUSED, f"the late request was accepted (error code {code})")
    world.saw(f"the late commit arrived within the next transaction and was refused (error code {code})")
    following.release()
    world.recovers("the late commit")


def unknown_commit(world: World) -> None:
    """D09: the sender of a commit dies without an answer: once the broker never got the request, once it did."""
    world.start()
    before = aborted_steps(world)
    lost = on_commit(world, Action.HOLD)
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
    unanswered = on_commit(world, Action.LOSE_REPLY)
    world.require(unanswered.hit.wait(HIT_S), "no commit came to be left without an answer")
    code = unanswered.error_code()
    unanswered.sender().kill()
    unanswered.release()
    world.recovers("a commit without an answer")
    world.require(code == 0 and aborted_steps(world) == before, f"error code {code}, aborted {aborted_steps(world)}")
    world.saw("a commit succeeded, and its sender died before the answer: the step was not done again")


def slow_broker(world: World) -> None:
    """D28: every request is late for a while; the network is away; then the broker stands still two seconds of every three."""
    world.start()
    before = world.proxy.seen.total()
    world.proxy.delay_s = 0.3
    time.sleep(8)
    world.proxy.delay_s = 0.0
    world.saw(f"{world.proxy.seen.total() - before} requests were late by 0.3 s")
    world.recovers("every request was late")
    world.proxy.refusing = True
    cut = world.proxy.cut()
    time.sleep(AWAY_S)
    world.proxy.refusing = False
    world.saw(f"{cut} connections were cut, and for {AWAY_S:g} s none could be made")
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
