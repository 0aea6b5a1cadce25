"""The workloads as a user of Quix Streams writes them: StreamingDataFrame, its windows, its joins."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import quixstreams.dataframe.windows.aggregations as agg
from quixstreams import Application, State
from quixstreams.dataframe import StreamingDataFrame

NOT_SUPPORTED = 64
FOREVER_MS = 100 * 365 * 24 * 3600 * 1000
"""How long a table keeps its rows: a time-to-live is all that Quix has there."""

Value = dict[str, Any]


class Workloads:
    """The application of one run; each method adds a workload's dataframes to it."""

    def __init__(self, config: Value) -> None:
        self._config = config
        self._parameters: dict[str, int] = config["parameters"]
        settings = config["settings"]
        self.app = Application(
            broker_address=config["bootstrap_servers"],
            consumer_group=config["application_id"],
            auto_offset_reset="earliest",
            processing_guarantee=config["guarantee"],
            state_dir=config["state_dir"],
            commit_interval=float(settings.get("commit_interval", 1.0)),
            loglevel="WARNING",
        )

    # Stateless.

    def passthrough(self) -> None:
        """B1."""
        kept = self._source("events").filter(lambda reading: reading["s"] % 2 == 0)
        self._sink(kept.apply(lambda reading: {"s": reading["s"], "f": reading["v"][0] * 1.8 + 32}))

    def shuffle(self) -> None:
        """B3: one counter for each consumer."""
        consumers = self._parameters["consumers"]
        topic = self.app.topic(self._config["topics"]["events"], key_deserializer="bytes", value_deserializer="bytes")
        numbers = self.app.dataframe(topic).apply(lambda value: int.from_bytes(value[:8], "big"))
        kept = numbers.filter(lambda h: h % 1_000_000 < 200_000).apply(lambda h: h // 1_000_000 % consumers)
        grouped = kept.group_by(
            lambda number: f"c-{number:07d}", name="consumer", key_serializer="str", key_deserializer="str"
        )
        self._sink(grouped.apply(_count, stateful=True))

    # Windows.

    def windows(self) -> None:
        """Count and mean by the built-in aggregators."""
        window = self._tumbling(self._sensors())
        self._write_windows(window.agg(count=agg.Count(), mean=agg.Mean()).current())

    def windows_python(self) -> None:
        """The same by functions of the user."""
        reduce = agg.Reduce(_add, _begin)
        results = self._tumbling(self._sensors()).agg(window=reduce).current()
        self._write_windows(results.apply(_mean_of_reduced))

    def counts(self) -> None:
        """Count and mean without windows."""
        self._sink(self._values().apply(_total, stateful=True))

    def latency(self) -> None:
        """The same with the largest `t`."""
        readings = self._source("events").apply(lambda reading: {"v": reading["v"][0], "t": reading["t"]})
        window = self._tumbling(readings)
        self._write_windows(window.agg(count=agg.Count(), mean=agg.Mean("v"), t=agg.Max("t")).current())

    def devices(self) -> None:
        """B2: two windows and a detector of missing sequence numbers."""
        readings = self._source("events")  # an application has one dataframe for each topic
        sensors = readings.apply(lambda reading: reading["v"][0])
        for role, size_ms in (("stats_1s", 1_000), ("stats_10s", 10_000)):
            found = sensors.tumbling_window(size_ms, 2_000).agg(
                readings=agg.Count(), mean=agg.Mean(), min=agg.Min(), max=agg.Max(), last=agg.Last()
            )
            self._write_windows(found.current(), role)
        numbers = readings.apply(lambda reading: reading["s"])
        self._sink(numbers.apply(_missing, stateful=True).filter(lambda missing: missing >= 0), "gaps")

    def sessions(self) -> None:
        """Count and mean in sessions. Quix does not delete the result of a session that has grown."""
        gap, grace = self._parameters["gap_ms"], self._parameters["grace_ms"]
        found = self._values().session_window(gap, grace).agg(count=agg.Count(), mean=agg.Mean()).current()
        self._write_sessions(found)

    def sliding(self) -> None:
        """Count and mean in the sliding windows that end at a record."""
        difference, grace = self._parameters["difference_ms"], self._parameters["grace_ms"]
        window = self._values().sliding_window(difference, grace)
        self._write_windows(window.agg(count=agg.Count(), mean=agg.Mean()).current())

    def highest_bid(self) -> None:
        """Nexmark 7."""
        prices = self._source("events").apply(lambda bid: bid["price"])
        everything = prices.group_by(lambda _: "all", name="all", key_serializer="str", key_deserializer="str")
        found = self._tumbling(everything).agg(price=agg.Max()).current()
        self._sink(found.apply(lambda window: {"k": str(window["start"]), "price": window["price"]}), key="k")

    def user_sessions(self) -> None:
        """Nexmark 11."""
        gap, grace = self._parameters["gap_ms"], self._parameters["grace_ms"]
        self._write_sessions(self._source("events").session_window(gap, grace).agg(count=agg.Count()).current())

    # Joins.

    def join_inner(self) -> None:
        """An interval join."""
        self._join("inner")

    def join_left(self) -> None:
        """An interval join; Quix emits an unmatched left record at once, and the match later, too."""
        self._join("left")

    def table_join(self) -> None:
        """An as-of join: the newest row up to the event's time."""
        joined = self._source("events").join_asof(
            self._source("table"), how="left", on_merge=_with_version, grace_ms=FOREVER_MS
        )
        self._sink(joined)

    def table_fill(self) -> None:
        """An as-of join of probes with the rows."""
        joined = self._source("probes").join_asof(
            self._source("rows"), how="inner", on_merge=_answer, grace_ms=FOREVER_MS
        )
        self._sink(joined)

    def enrich(self) -> None:
        """B5."""
        joined = self._source("events").join_asof(
            self._source("table"), how="inner", on_merge=_with_group, grace_ms=FOREVER_MS
        )
        grouped = joined.group_by("group", key_serializer="str", key_deserializer="str")
        window = self._tumbling(grouped.apply(lambda value: value["value"]))
        self._write_windows(window.agg(count=agg.Count(), mean=agg.Mean()).current())

    # What they share.

    def _source(self, role: str) -> StreamingDataFrame:
        name = self._config["topics"][role]
        return self.app.dataframe(self.app.topic(name, key_deserializer="str", value_deserializer="json"))

    def _sensors(self) -> StreamingDataFrame:
        return self._source("events").apply(lambda reading: reading["v"][0])

    def _values(self) -> StreamingDataFrame:
        return self._source("events").apply(lambda event: event["v"])

    def _tumbling(self, values: StreamingDataFrame) -> Any:
        return values.tumbling_window(self._parameters["window_ms"], self._parameters["grace_ms"])

    def _join(self, how: Any) -> None:
        joined = self._source("left").join_interval(
            self._source("right"),
            how=how,
            on_merge=_pair,
            grace_ms=max(self._parameters["grace_ms"], self._parameters["before_ms"], self._parameters["after_ms"]),
            backward_ms=self._parameters["before_ms"],
            forward_ms=self._parameters["after_ms"],
        )
        self._sink(joined)

    def _write_windows(self, windows: StreamingDataFrame, role: str = "out") -> None:
        self._sink(windows.apply(_with_start, metadata=True), role, "k")

    def _write_sessions(self, sessions: StreamingDataFrame) -> None:
        self._sink(sessions.apply(_with_session, metadata=True), key="k")

    def _sink(self, results: StreamingDataFrame, role: str = "out", key: str | None = None) -> None:
        topic = self.app.topic(self._config["topics"][role], key_serializer="str", value_serializer="json")
        results.to_topic(topic, key=None if key is None else lambda value: value[key])


def _count(_: Any, state: State) -> Value:
    count: int = state.get("count", 0) + 1
    state.set("count", count)
    return {"count": count}


def _total(value: float, state: State) -> Value:
    count, total = state.get("total", [0, 0.0])
    count, total = count + 1, total + value
    state.set("total", [count, total])
    return {"count": count, "mean": total / count}


def _missing(number: int, state: State) -> int:
    """The number of missing readings if it has changed, otherwise -1."""
    seen, first, last, before = state.get("seen", [0, number, number, 0])
    seen, first, last = seen + 1, min(first, number), max(last, number)
    missing: int = last - first + 1 - seen
    state.set("seen", [seen, first, last, missing])
    return missing if missing != before else -1


def _begin(value: float) -> list[float]:
    return [1, value]


def _add(window: list[float], value: float) -> list[float]:
    return [window[0] + 1, window[1] + value]


def _mean_of_reduced(result: Value) -> Value:
    count, total = result["window"]
    return {"start": result["start"], "count": count, "mean": total / count}


def _with_start(result: Value, key: str, *_: Any) -> Value:
    return {**result, "k": f"{key}|{result['start']}", "window_start": result["start"]}


def _with_session(result: Value, key: str, *_: Any) -> Value:
    return {**result, "k": f"{key}|{result['start']}|{result['end'] - 1}"}  # Quix's end is one past the last record


def _pair(left: Value | None, right: Value | None) -> Value:
    return {"l": None if left is None else left["n"], "r": None if right is None else right["n"]}


def _with_version(event: Value, row: Value | None) -> Value:
    return {"n": event["n"], "version": None if row is None else row["version"]}


def _with_group(reading: Value, row: Value) -> Value:
    return {"group": row["group"], "value": reading["v"][0]}


def _answer(probe: Value, row: Value) -> Value:
    return {"p": probe["p"], "n": row["n"]}


METHODS = {
    "passthrough": Workloads.passthrough,
    "shuffle": Workloads.shuffle,
    "windows": Workloads.windows,
    "windows-python": Workloads.windows_python,
    "counts": Workloads.counts,
    "latency": Workloads.latency,
    "recovery": Workloads.latency,
    "devices": Workloads.devices,
    "sessions": Workloads.sessions,
    "sliding": Workloads.sliding,
    "nexmark-q7": Workloads.highest_bid,
    "nexmark-q11": Workloads.user_sessions,
    "join-inner": Workloads.join_inner,
    "join-python": Workloads.join_inner,
    "join-3d": Workloads.join_inner,
    "join-left": Workloads.join_left,
    "table-join": Workloads.table_join,
    "table-fill": Workloads.table_fill,
    "restore": Workloads.table_fill,
    "enrich": Workloads.enrich,
}


def main(path: str) -> int:
    """Runs the workload of a configuration file until SIGTERM."""
    config = json.loads(Path(path).read_text(encoding="utf-8"))
    method = METHODS.get(config["workload"])
    if method is None:
        print(f"Quix Streams has no program for {config['workload']}", file=sys.stderr)
        return NOT_SUPPORTED
    workloads = Workloads(config)
    method(workloads)
    workloads.app.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
