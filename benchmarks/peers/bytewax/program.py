"""The workloads as a user of Bytewax writes them: a dataflow with Kafka's operators, and windows by event time."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import orjson
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow, Stream
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

NOT_SUPPORTED = 64
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
Value = dict[str, Any]
Timed = tuple[int, Any]
"""Milliseconds and a value."""


class Workloads:
    """The dataflow of one run; each method adds a workload's steps to it."""

    def __init__(self, config: Value) -> None:
        self._config = config
        self._parameters: dict[str, int] = config["parameters"]
        self.flow = Dataflow(config["workload"].replace("-", "_"))

    def passthrough(self) -> None:
        """B1."""
        kept = op.filter("even", self._source("events"), lambda item: item[1][1]["s"] % 2 == 0)
        self._sink(op.map("convert", kept, _fahrenheit))

    def windows(self) -> None:
        """Count and mean in tumbling windows, once each has closed."""
        windower = win.TumblingWindower(self._duration("window_ms"), EPOCH)
        self._fold(windower, lambda reading: reading["v"][0], lambda key, meta: f"{key}|{_ms(meta.open_time)}")

    def counts(self) -> None:
        """Count and mean without windows."""
        self._sink(op.stateful_map("total", self._source("events"), _total))

    def windows_by_hand(self) -> None:
        """The same by a user's function that keeps the windows of a key, and emits one at each update."""
        size_ms, grace_ms = self._parameters["window_ms"], self._parameters["grace_ms"]
        updates = op.stateful_flat_map("windows", self._source("events"), _windower(size_ms, grace_ms))
        self._sink(op.map("rekey", updates, lambda item: item[1]))

    def sessions(self) -> None:
        """Count and mean in sessions, once each has closed."""
        windower = win.SessionWindower(self._duration("gap_ms"))
        self._fold(windower, lambda event: event["v"], _session_key)

    def shuffle(self) -> None:
        """B3: one counter for each consumer."""
        consumers = self._parameters["consumers"]
        found = kop.input("events", self.flow, brokers=self._brokers, topics=[self._config["topics"]["events"]])
        numbers = op.map("number", found.oks, lambda message: int.from_bytes(message.value[:8], "big"))
        kept = op.filter("fifth", numbers, lambda h: h % 1_000_000 < 200_000)
        keyed = op.map("consumer", kept, lambda h: (f"c-{h // 1_000_000 % consumers:07d}", None))
        counts = op.stateful_map("count", keyed, lambda count, _: ((count or 0) + 1,) * 2)
        self._sink(op.map("result", counts, lambda item: (item[0], {"count": item[1]})))

    def join_inner(self) -> None:
        """Two streams by hand: Bytewax joins windows with windows, not records with records near them."""
        parameters = self._parameters
        merged = op.merge("both", self._source("left"), self._source("right"))
        roles = {self._config["topics"][role]: role for role in ("left", "right")}
        joined = op.stateful_flat_map("join", merged, _joiner(roles, parameters["before_ms"], parameters["after_ms"]))
        self._sink(joined)

    def table_join(self) -> None:
        """A left join with the newest row of a table, by hand."""
        merged = op.merge("both", self._source("table"), self._source("events"))
        rows = self._config["topics"]["table"]

        def step(version: int | None, item: tuple[int, Value, str]) -> tuple[int | None, list[Value]]:
            _, value, topic = item
            if topic == rows:
                return value["version"], []
            return version, [{"n": value["n"], "version": version}]

        self._sink(op.stateful_flat_map("join", merged, step))

    @property
    def _brokers(self) -> list[str]:
        return [self._config["bootstrap_servers"]]

    def _duration(self, parameter: str) -> timedelta:
        return timedelta(milliseconds=self._parameters[parameter])

    def _source(self, role: str) -> op.KeyedStream:
        """Key, and milliseconds with the parsed value and the topic."""
        found = kop.input(role, self.flow, brokers=self._brokers, topics=[self._config["topics"][role]])
        return op.map(f"parse_{role}", found.oks, _parsed)

    def _fold(self, windower: Any, value_of: Callable[[Value], float], key_of: Callable[[str, Any], str]) -> None:
        clock = win.EventClock(lambda item: EPOCH + timedelta(milliseconds=item[0]), self._duration("grace_ms"))
        found = win.fold_window(
            "fold",
            self._source("events"),
            clock,
            windower,
            lambda: (0, 0.0),
            lambda window, item: (window[0] + 1, window[1] + value_of(item[1])),
            lambda one, other: (one[0] + other[0], one[1] + other[1]),
        )
        # The window's times come in a stream of their own.
        joined = op.join(
            "times",
            op.map("results", found.down, lambda item: (f"{item[0]}|{item[1][0]}", item[1][1])),
            op.map("metadata", found.meta, lambda item: (f"{item[0]}|{item[1][0]}", item[1][1])),
        )
        self._sink(op.map("window", joined, lambda item: _window(item, key_of)))

    def _sink(self, results: Stream) -> None:
        messages = op.map("message", results, _message)
        kop.output("out", messages, brokers=self._brokers, topic=self._config["topics"]["out"])


def _parsed(message: Any) -> tuple[str, tuple[int, Value, str]]:
    return message.key.decode(), (message.timestamp[1], orjson.loads(message.value), message.topic)


def _message(item: tuple[str, Value]) -> KafkaSinkMessage:
    return KafkaSinkMessage(item[0].encode(), orjson.dumps(item[1]))


def _fahrenheit(item: tuple[str, tuple[int, Value, str]]) -> tuple[str, Value]:
    key, (_, reading, _) = item
    return key, {"s": reading["s"], "f": reading["v"][0] * 1.8 + 32}


def _ms(time: datetime) -> int:
    return round((time - EPOCH).total_seconds() * 1000)


def _session_key(key: str, meta: Any) -> str:
    return f"{key}|{_ms(meta.open_time)}|{_ms(meta.close_time)}"


def _window(item: tuple[str, tuple[Any, Any]], key_of: Callable[[str, Any], str]) -> tuple[str, Value]:
    window, meta = item[1]
    key = item[0].rpartition("|")[0]
    return key_of(key, meta), {"count": window[0], "mean": window[1] / window[0]}


def _total(state: tuple[int, float] | None, item: tuple[int, Value, str]) -> tuple[tuple[int, float], Value]:
    count, total = state or (0, 0.0)
    count, total = count + 1, total + item[1]["v"]
    return (count, total), {"count": count, "mean": total / count}


def _windower(size_ms: int, grace_ms: int) -> Callable[..., Any]:
    def step(state: Any, item: tuple[int, Value, str]) -> tuple[Any, list[tuple[str, Value]]]:
        ms, reading, _ = item
        windows, latest = state or ({}, 0)
        start = ms // size_ms * size_ms
        if start + size_ms + grace_ms <= latest:
            return (windows, latest), []
        count, total, t = windows.get(start, (0, 0.0, 0))
        windows[start] = new = (count + 1, total + reading["v"][0], max(t, reading["t"]))
        latest = max(latest, ms)
        windows = {at: window for at, window in windows.items() if at + size_ms + grace_ms > latest}
        key = f"{reading['d']}|{start}"
        return (windows, latest), [(key, {"count": new[0], "mean": new[1] / new[0], "t": new[2]})]

    return step


def _joiner(roles: dict[str, str], before_ms: int, after_ms: int) -> Callable[..., Any]:
    """Keeps all rows of a key: Bytewax keeps no order between partitions, so nothing says when a row is of no more use."""

    def step(state: Any, item: tuple[int, Value, str]) -> tuple[Any, list[Value]]:
        left, right = state or ([], [])
        ms, event, topic = item
        if roles[topic] == "left":
            left.append((ms, event["n"]))
            found = [(event["n"], n) for at, n in right if ms - before_ms <= at <= ms + after_ms]
        else:
            right.append((ms, event["n"]))
            found = [(n, event["n"]) for at, n in left if at - before_ms <= ms <= at + after_ms]
        return (left, right), [{"l": one, "r": other} for one, other in found]

    return step


METHODS = {
    "passthrough": Workloads.passthrough,
    "windows": Workloads.windows,
    "windows-python": Workloads.windows_by_hand,
    "counts": Workloads.counts,
    "latency": Workloads.windows_by_hand,
    "sessions": Workloads.sessions,
    "shuffle": Workloads.shuffle,
    "join-inner": Workloads.join_inner,
    "join-python": Workloads.join_inner,
    "table-join": Workloads.table_join,
}


def main(path: str) -> int:
    """Runs the workload of a configuration file until SIGTERM."""
    config = json.loads(Path(path).read_text(encoding="utf-8"))
    method = METHODS.get(config["workload"])
    if method is None:
        print(f"Bytewax has no program for {config['workload']}", file=sys.stderr)
        return NOT_SUPPORTED
    # Bytewax ends its workers by SIGINT only.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    workloads = Workloads(config)
    method(workloads)
    database = Path(config["state_dir"]) / "recovery"
    if not database.exists():
        database.mkdir(parents=True)
        init_db_dir(database, config["partitions"])
    cli_main(
        workloads.flow,
        workers_per_process=config["threads"],
        epoch_interval=timedelta(seconds=10),
        recovery_config=RecoveryConfig(database),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
