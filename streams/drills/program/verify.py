"""The verification: results exactly once, also for a continuous reader; commits without gaps; state = model = restore."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from streams.application.restore import stored_tasks
from streams.config import StreamsConfig
from streams.drills.program.model import Event, Results, differences, expected, out_of_order, result
from streams.drills.program.topology import INPUTS, OUTPUTS, REGIONS, TOTALS
from streams.drills.reader import Read, read_committed
from streams.drills.verify import store_rows, wrong_restore
from streams.topology.topology import Topology

_DAY_MS = 86_400_000


def inputs(servers: str) -> list[list[Event]]:
    """The good records of the input, by topic."""
    return [
        [event for one in read_committed(servers, topic) if (event := as_event(one)) is not None] for topic in INPUTS
    ]


def as_event(record: Read) -> Event | None:
    """A record as an order or a payment; None: poison, or from the future, so that it has no results."""
    try:
        event = Event((record.key or b"").decode(), orjson.loads(record.value or b"")["id"], record.timestamp)
    except (ValueError, TypeError, KeyError):
        return None
    return None if record.timestamp > time.time() * 1000 + _DAY_MS else event


def wanted_results(servers: str) -> Results:
    """The expected contents of the output topics."""
    return expected(*inputs(servers))


def wrong_outputs(servers: str, wanted: Results, seen: Mapping[str, Sequence[Read]]) -> list[str]:
    """Errors in the output topics, and in the records that a reader saw during the run."""
    said: list[str] = []
    found: dict[str, Counter[tuple[object, ...]]] = {}
    for topic in OUTPUTS:
        records = read_committed(servers, topic)
        results = [result(topic, one.key or b"", one.value or b"") for one in records]
        found[topic] = Counter(results)
        if topic in (TOTALS, REGIONS):
            said += out_of_order(topic, results)
        if sorted(seen[topic], key=lambda one: (one.partition, one.offset)) != records:
            said.append(f"{topic}: the reader saw {len(seen[topic])} records meanwhile, now there are {len(records)}")
    return [*differences(wanted, found), *said]


def wrong_state(program: Topology, config: StreamsConfig, into: Path, wanted: Results) -> list[str]:
    """Differences between the local stores, the stores restored from the changelogs, and the model."""
    tasks = stored_tasks(program, config)
    said = wrong_restore(tasks, config, into)
    for store, topic in (("totals", TOTALS), ("regions", REGIONS)):
        counts = Counter(key for key, _ in wanted[topic])
        rows = {row.key: row.value for row in store_rows(tasks, config.application_id, config.state_dir, store)}
        live = {key.decode(): int.from_bytes(value or b"", "big") for key, value in rows.items()}
        if live != counts:
            said.append(f"store {store} is {live}, the model has {counts}")
    return said
