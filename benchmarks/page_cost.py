"""What the page costs: the CPU time of a process that serves it, while a browser looks at one view after the other.

    python -m benchmarks.page_cost

The application is made of figures: the five sub-topologies of `topologies.flight_delays` with 16 tasks each, which end a
micro-batch twice a second. So all that takes CPU time in this process are the figures, which are measured alone first, and the
page. In the place of the browser, another process asks over one connection.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from typing import Annotated

import typer

from streams.config import load_config
from streams.metrics.application import StepFigures
from streams.metrics.recorder import START, MetricsRecorder
from streams.topology.plan import SubTopology, build_plan
from streams.ui.history import History, wall_clock_ms
from streams.ui.running import page_of_running
from topologies import flight_delays

TASKS = 16
EVERY_S = 0.5
"""The time between two micro-batches of a sub-topology."""
VIEWS: Mapping[str, Mapping[str, int]] = {
    "nobody looks": {},
    "graph": {"overview": 2, "operators": 2},
    "tasks": {"overview": 2, "tasks": 2},
    "steps": {"overview": 2, "steps": 6},
    "state": {"overview": 2, "restores": 2},
    "events": {"overview": 2, "events": 2},
}
"""What a view asks for, and after how many seconds again. The other views ask Kafka, every six seconds or less."""


def figures(sub: SubTopology, task: int, batch: int) -> StepFigures:
    """A step as a worker reports it: the counters of all operators come with the first task."""
    names = sub.nodes if task == 0 else ()
    report = {
        "task": task,
        "version": batch + 1,
        "batch_id": batch,
        "decision": "run",
        "counts": {"in": 1_000, "out": 900, "changelog": 500},
        "counters": {f"{what}:{name}": 1_000 for name in names for what in ("in", "out")},
        "stream_time": wall_clock_ms(),
        "seconds": {"fence": 0.004, "decide": 0.001, "process": 0.03, "commit": 0.02, "apply": 0.004},
        "total_s": 0.06,
        "cpu_s": 0.03,
        "event_times": [[topic, task, wall_clock_ms()] for topic in sub.topics],
        "state": {"disk_bytes": 1_000_000, "stores": {store: [10_000, 900_000] for store in sub.stores}},
    }
    return StepFigures.of(report)


@contextmanager
def fed(recorder: MetricsRecorder, subs: tuple[SubTopology, ...]) -> Iterator[None]:
    """Ends micro-batches within the block."""
    ended = threading.Event()

    def feed() -> None:
        batch = 0
        while not ended.wait(EVERY_S):
            for sub in subs:
                recorder.begun(sub.name)
                recorder.step(sub.name, batch, tuple(figures(sub, task, batch) for task in range(TASKS)))
                places = {
                    (topic, task): (batch * 1_000, batch * 1_000) for topic in sub.topics for task in range(TASKS)
                }
                recorder.positions(sub.name, places)
            batch += 1

    for sub in subs:
        recorder.starting(sub.name, TASKS, sub.topics)
    recorder.obstacle(START, None)
    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def cpu_share(seconds: float, each_second: Callable[[int], object]) -> float:
    """The CPU time of this process in a second."""
    began, cpu, number = time.monotonic(), time.process_time(), 0
    while time.monotonic() - began < seconds:
        each_second(number)
        number += 1
        time.sleep(1.0)
    return (time.process_time() - cpu) / (time.monotonic() - began)


@cache
def connection(address: str) -> http.client.HTTPConnection:
    """The one connection of the process that asks."""
    return http.client.HTTPConnection(address)


def ask(address: str, names: list[str]) -> None:
    """Asks for figures, as a browser does."""
    for name in names:
        connection(address).request("GET", f"/api/v1/{name}")
        answer = connection(address).getresponse()
        assert answer.status == 200, answer.status
        answer.read()


def main(seconds: Annotated[float, typer.Option(help="How long each view is looked at.")] = 20.0) -> None:
    """Print the share of a core that each view takes, without what the figures themselves take."""
    topology = flight_delays.build()
    subs = build_plan(topology, "app").sub_topologies
    config = load_config(None, {"application_id": "app", "bootstrap_servers": "127.0.0.1:1", "ui": "0"})
    alone = MetricsRecorder("app")
    with fed(alone, subs):
        without = cpu_share(seconds, lambda number: None)
    typer.echo(f"figures alone   {without:7.2%} of a core")
    recorder, said = MetricsRecorder("app"), list[str]()
    browser = ProcessPoolExecutor(1, get_context("spawn"))
    with browser, page_of_running(config, topology, recorder, History(), said.append), fed(recorder, subs):
        address = said[0].removeprefix("dashboard: http://").rstrip("/")
        # A full history is what the page has after two minutes.
        time.sleep(2 * seconds)
        for view, names in VIEWS.items():

            def look(number: int, names: Mapping[str, int] = names) -> None:
                browser.submit(ask, address, [name for name, every in names.items() if number % every == 0]).result()

            typer.echo(f"{view:15} {cpu_share(seconds, look) - without:7.2%} of a core")


if __name__ == "__main__":
    typer.run(main)
