"""Random faults ("blows") of the soak drill. Each returns a description; the drill then waits for results to flow again."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from state.errors import StreamsError
from state.kafka.config import QUIET
from streams.application.pausing import Pausing
from streams.config import Execution
from streams.drills.brokers import END_TXN, ProxyAction
from streams.drills.drill import DrillFailed, drill
from streams.drills.processes import STOP_S
from streams.drills.world import APPLICATION_ID, STUCK_S, World

SECOND_DRIVER_S = 45.0

Blow = Callable[[World], str]


def kill_worker(on: World) -> str:
    """SIGKILL to a Python worker of Spark."""
    workers = on.application.workers()
    if not workers:
        return "no worker to kill"
    worker = on.drawn.choice(workers)
    with suppress(psutil.NoSuchProcess):
        worker.kill()
    return f"killed worker {worker.pid} of {len(workers)}"


def freeze_worker(on: World) -> str:
    """SIGSTOP to a worker, and SIGCONT some seconds later, when it is a zombie."""
    workers = on.application.workers()
    if not workers:
        return "no worker to freeze"
    worker = on.drawn.choice(workers)
    with suppress(psutil.NoSuchProcess):
        worker.suspend()
        seconds = on.pause(8)
        worker.resume()
        return f"froze worker {worker.pid} for {seconds} s"
    return f"worker {worker.pid} was gone before it could be frozen"


def kill_driver_and_workers(on: World) -> str:
    """SIGKILL to everything at once, and a new start."""
    on.application.kill_all()
    on.application.start()
    return "killed driver, JVM and workers, started again"


def kill_python_driver(on: World) -> str:
    """SIGKILL to the Python driver only: its JVM and its workers must notice by themselves."""
    current = on.application.current
    current.watch()
    current.process.send_signal(signal.SIGKILL)
    current.process.wait()
    # Restarted at once, so that old workers may still run next to the new ones.
    on.application.start()
    on.application.may_end = True
    return f"killed the Python driver {current.process.pid} alone, started again at once"


def kill_jvm(on: World) -> str:
    """SIGKILL to the JVM only: the Python driver must notice and end."""
    current = on.application.current
    if not current.java():
        return "it has no JVM yet, or no more"
    current.kill_java()
    code = current.ended(STOP_S)
    on.application.start()
    return f"killed the JVM alone, the driver ended with exit code {code} ({current.last_words()[:100]}), started again"


def lose_state(on: World) -> str:
    """SIGKILL to everything, and deletion of the local stores before the new start."""
    on.application.kill_all()
    on.application.delete_state()
    on.application.start()
    return "killed everything, deleted the local state, started again"


def stop_and_start(on: World) -> str:
    """SIGTERM and a new start, as by an operator."""
    code = _stop(on)
    on.application.start()
    return f"stopped by SIGTERM (exit code {code}), started again"


def _stop(on: World) -> int:
    """Stops by SIGTERM; any exit code other than 0 is a failure."""
    code = on.application.stop()
    if code != 0:
        on.application.died.append(f"exit code {code} after SIGTERM: {on.application.current.last_words()}")
    return code


def switch_execution(on: World) -> str:
    """A stop or SIGKILL, and a new start in the other execution. Some starts are killed, perhaps during the switch."""
    if on.drawn.random() < 0.5:
        said = f"stopped by SIGTERM (exit code {_stop(on)})"
    else:
        on.application.kill_all()
        said = "killed everything"
    # The settings decide again.
    said += _ask_for(on, None)
    other = _other(on)
    for execution in (other, *on.drawn.choice([(), (other,), (on.application.execution, other)])):
        if on.application.current.running:
            said += f", killed {on.pause(12)} s later"
            on.application.kill_all()
        on.application.execution = execution
        on.application.start()
        said += f", started with execution={execution}"
    return said


def switch_while_it_runs(on: World) -> str:
    """Switches the execution while the application runs. Sometimes it is switched back at once, or killed during the switch."""
    said = ""
    for _ in range(on.drawn.choice((1, 1, 2))):
        on.application.execution = _other(on)
        said += _ask_for(on, Execution(on.application.execution))
        on.pause(4)
    if on.drawn.random() < 0.3:
        on.application.kill_all()
        on.application.start()
        said += ", killed everything, started again"
    return said.removeprefix(", ")


def _other(on: World) -> str:
    return "auto" if on.application.execution == "micro-batch" else "micro-batch"


def _ask_for(on: World, execution: Execution | None) -> str:
    try:
        Pausing(APPLICATION_ID, {**QUIET, "bootstrap.servers": on.broker.bootstrap_servers}).execute(execution)
    except StreamsError as error:
        return f", could not ask for an execution ({error})"
    return f", asked for execution={execution.value}" if execution else ""


def kill_broker(on: World) -> str:
    """SIGKILL to the broker, which comes back some seconds later."""
    on.broker.kill()
    seconds = on.pause(on.longest_away_s)
    on.broker.start()
    return f"killed the broker, started it again {seconds} s later"


def cut_connections(on: World) -> str:
    """All connections break, again and again for a while."""
    cut = sum(on.proxy.cut() for _ in range(on.drawn.randint(1, 4)) if on.pause(1))
    return f"cut {cut} connections"


def network_away(on: World) -> str:
    """No connection can be made for some seconds."""
    on.proxy.refusing = True
    on.proxy.cut()
    seconds = on.pause(on.longest_away_s)
    on.proxy.refusing = False
    return f"no network for {seconds} s"


def slow_network(on: World) -> str:
    """Every request is late for some seconds."""
    on.proxy.delay_s = round(on.drawn.uniform(0.05, 0.5), 2)
    late, seconds = on.proxy.delay_s, on.pause(6)
    on.proxy.delay_s = 0
    return f"every request {late} s late, for {seconds} s"


def strange_commit(on: World) -> str:
    """One commit request arrives late or never, or its response is lost; the sender retries or dies."""
    action = on.drawn.choice([ProxyAction.HOLD, ProxyAction.HANG_UP, ProxyAction.DROP, ProxyAction.LOSE_REPLY])
    rule = on.proxy.on(END_TXN, action)
    if not rule.hit.wait(30):
        rule.times = 0
        return f"no commit came to {action.value}"
    said = f"{action.value}: one commit"
    if action in (ProxyAction.HOLD, ProxyAction.LOSE_REPLY) and on.drawn.random() < 0.5:
        with suppress(psutil.NoSuchProcess, LookupError):
            rule.sender().kill()
            said += ", its sender killed"
    seconds = on.pause(5)
    rule.release()
    return f"{said}, released after {seconds} s"


def second_driver(on: World) -> str:
    """Another driver on the same checkpoint and state: at most one continues, and the other fails with a known error."""
    return _beside(on, "on the same checkpoint")


def copied_checkpoint(on: World) -> str:
    """Another driver on a copy of the checkpoint."""
    copy = on.folder / f"copied-{time.monotonic_ns()}"
    # Files change while they are copied, so a copy of a checkpoint in use is never quite consistent.
    with suppress(shutil.Error, OSError):
        shutil.copytree(on.application.checkpoint, copy)
    return _beside(on, "on a copy of the checkpoint", "--set", f"checkpoint_dir={copy}")


def _beside(on: World, where: str, *options: str) -> str:
    ended = on.race(SECOND_DRIVER_S, *options)
    on.application.may_end = True
    words = f" ({next(iter(ended.values()))[:160]})" if ended else ""
    return f"a second driver {where}: ended {' and '.join(ended) or 'neither'}{words}"


WEIGHTS: dict[Blow, int] = {
    kill_worker: 5,
    freeze_worker: 4,
    kill_driver_and_workers: 2,
    kill_python_driver: 2,
    kill_jvm: 1,
    lose_state: 2,
    stop_and_start: 1,
    switch_execution: 2,
    switch_while_it_runs: 3,
    kill_broker: 3,
    cut_connections: 2,
    network_away: 2,
    slow_network: 2,
    strange_commit: 5,
    second_driver: 1,
    copied_checkpoint: 1,
}
"""The relative frequency of each blow."""


# The soak: random blows for a while, a wait for results after most of them, and a verification at the end.

AT_ONCE = 0.25
"""The probability that the next blow comes before the application has recovered from the last."""
_POLL_S = 0.1


@drill(
    "D30",
    "random faults",
    injects="workers, drivers, JVM, broker, connections, commits, local state and switches of the execution, by a seed",
    holds="results flow again after each fault",
    minutes=3,
    any_program=True,
)
def random_faults(world: World) -> None:
    world.start()
    end, number = time.monotonic() + world.conditions.soak_s, 0
    while time.monotonic() < end:
        number += 1
        (blow,) = world.drawn.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))
        world.say(f"{number}. {blow.__name__} …")
        what = blow(world)
        world.saw(f"{number}. {what}")
        world.logs.check()
        if world.drawn.random() >= AT_ONCE:
            _await(world, world.grows(), blow.__name__, what)
        world.pause(2)
    _await(world, world.grows(), "the last blow", "the last blow")


def _await(world: World, there: Callable[[], bool], name: str, after: str) -> None:
    """Waits for new results; an application that has ended by itself is a failure, unless its start found no broker."""
    began = time.monotonic()
    while not there():
        world.logs.check()
        if world.application.revive():
            raise DrillFailed(f"after {after}: the application ended by itself: {world.application.died[-1]}")
        if time.monotonic() - began > STUCK_S:
            raise DrillFailed(f"after {after}: no results within {STUCK_S:g} s")
        time.sleep(_POLL_S)
    if world.application.died:
        raise DrillFailed(f"after {after}: {world.application.died[-1]}")
    world.application.may_end = False
    world.recovered(name, time.monotonic() - began)
