"""The workloads as a user of Faust writes them: agents over topics, tables with changelogs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faust
from faust.worker import Worker

NOT_SUPPORTED = 64
Value = dict[str, Any]


class Workloads:
    """The application of one run; each method adds a workload's agents and tables to it."""

    def __init__(self, config: Value, worker: str) -> None:
        self._config = config
        self._parameters: dict[str, int] = config["parameters"]
        self.app = faust.App(
            config["application_id"],
            broker=f"kafka://{config['bootstrap_servers']}",
            store="memory://" if config["settings"].get("store") == "memory" else "rocksdb://?driver=rocksdict",
            datadir=f"{config['state_dir']}/{worker}",
            processing_guarantee=config["guarantee"].replace("-", "_"),
            topic_partitions=config["partitions"],
            topic_replication_factor=1,
            topic_disable_leader=True,
            consumer_auto_offset_reset="earliest",
            web_enabled=False,
        )

    def passthrough(self) -> None:
        """B1."""
        out = self._topic("out")

        @self.app.agent(self._topic("events"))
        async def keep(readings: Any) -> None:
            async for key, reading in readings.items():
                if reading["s"] % 2 == 0:
                    await out.send(key=key, value={"s": reading["s"], "f": reading["v"][0] * 1.8 + 32})

    def windows(self) -> None:
        """Count and mean in a table of tumbling windows."""
        self._tumbling(lambda old, reading: [old[0] + 1, old[1] + reading["v"][0]], [0, 0.0], _mean)

    def counts(self) -> None:
        """Count and mean without windows."""
        out, totals = self._topic("out"), self._table("totals", lambda: [0, 0.0])

        @self.app.agent(self._topic("events"))
        async def count(events: Any) -> None:
            async for key, event in events.items():
                old = totals[key]
                totals[key] = new = [old[0] + 1, old[1] + event["v"]]
                await out.send(key=key, value=_mean(new))

    def latency(self) -> None:
        """The same with the largest `t`."""
        self._tumbling(
            lambda old, reading: [old[0] + 1, old[1] + reading["v"][0], max(old[2], reading["t"])],
            [0, 0.0, 0],
            lambda new: {**_mean(new), "t": new[2]},
        )

    def _tumbling(self, add: Callable[..., Any], first: list[Any], result: Callable[[Any], Value]) -> None:
        out, size_ms = self._topic("out"), self._parameters["window_ms"]
        keep_s = (size_ms + self._parameters["grace_ms"]) / 1000
        table = self._table("windows", lambda: first).tumbling(size_ms / 1000, expires=keep_s).relative_to_stream()

        @self.app.agent(self._topic("events"))
        async def count(readings: Any) -> None:
            async for event in readings.events():
                key, reading = event.key, event.value
                table[key] = new = add(table[key].current(event), reading)
                start = round(event.message.timestamp * 1000) // size_ms * size_ms
                await out.send(key=f"{key}|{start}", value=result(new))

    def table_join(self) -> None:
        """A table that one agent fills and another reads; nothing keeps the two in step."""
        out, versions = self._topic("out"), self._table("versions")

        @self.app.agent(self._topic("table"))
        async def fill(rows: Any) -> None:
            async for key, row in rows.items():
                versions[key] = row["version"]

        @self.app.agent(self._topic("events"))
        async def join(events: Any) -> None:
            async for key, event in events.items():
                await out.send(key=key, value={"n": event["n"], "version": versions.get(key)})

    def table_fill(self) -> None:
        """A table and probes of it."""
        out, numbers = self._topic("out"), self._table("rows")

        @self.app.agent(self._topic("rows"))
        async def fill(rows: Any) -> None:
            async for key, row in rows.items():
                numbers[key] = row["n"]

        @self.app.agent(self._topic("probes"))
        async def answer(probes: Any) -> None:
            async for key, probe in probes.items():
                if key in numbers:
                    await out.send(key=key, value={"p": probe["p"], "n": numbers[key]})

    def _topic(self, role: str) -> Any:
        return self.app.topic(self._config["topics"][role], key_type=str, value_serializer="json")

    def _table(self, name: str, default: Callable[[], Any] | None = None) -> Any:
        return self.app.Table(name, default=default, key_type=str, partitions=self._config["partitions"])


def _mean(new: list[Any]) -> Value:
    return {"count": new[0], "mean": new[1] / new[0]}


METHODS = {
    "passthrough": Workloads.passthrough,
    "windows": Workloads.windows,
    "windows-python": Workloads.windows,
    "counts": Workloads.counts,
    "latency": Workloads.latency,
    "recovery": Workloads.latency,
    "table-join": Workloads.table_join,
    "table-fill": Workloads.table_fill,
    "restore": Workloads.table_fill,
}


def main(path: str, worker: str) -> int:
    """Runs the workload of a configuration file until SIGTERM."""
    config = json.loads(Path(path).read_text(encoding="utf-8"))
    method = METHODS.get(config["workload"])
    if method is None:
        print(f"Faust has no program for {config['workload']}", file=sys.stderr)
        return NOT_SUPPORTED
    workloads = Workloads(config, worker)
    method(workloads)
    Worker(workloads.app, loglevel="WARN").execute_from_commandline()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], os.environ.get("WORKER", "0")))
