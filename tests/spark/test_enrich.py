"""`enrich` on real Spark: another attempt may get other answers, yet what is committed is of one attempt, once each."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import orjson
import pytest

from streams import Materialized, StreamsBuilder
from tests.spark.harness import Harness, Sent, last_per_key

KEYS = [b"key-%d" % n for n in range(7)]
RECORDS = 60


class Answers:
    """A client of a system that never gives the same answer twice."""

    def __init__(self) -> None:
        self.client = uuid.uuid4().hex

    async def __call__(self, value: int) -> dict[str, Any]:
        await asyncio.sleep(0.001 * (value % 3))
        return {"n": value, "answer": uuid.uuid4().hex, "client": self.client}


def numbered(start: int) -> list[Sent]:
    return [Sent(KEYS[n % len(KEYS)], b"%d" % n, 1000 + n) for n in range(start, start + RECORDS)]


@pytest.mark.slow
@pytest.mark.parametrize("point", ["outputs_sent", "after_commit"])
def test_a_worker_killed_meanwhile_changes_nothing(
    harness: Harness, point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, last = harness.topic("in", 2), harness.topic("out", 2), harness.topic("last", 2)
    builder = StreamsBuilder()
    enriched = builder.stream(source).enrich(Answers, concurrency=4)
    enriched.to(target)
    newest = enriched.group_by_key().reduce(lambda _, new: new, materialized=Materialized(name="newest"))
    newest.to_stream().to(last)
    topology = builder.build()

    harness.send(source, numbered(0))
    harness.run(topology)
    harness.send(source, numbered(RECORDS))
    happened = tmp_path / "killed"
    monkeypatch.setenv("STREAMS_FAULT", f"{point}@1:2")
    monkeypatch.setenv("STREAMS_FAULT_ONCE", str(happened))
    progress = harness.run(topology)
    assert happened.exists(), "the drill's fault did not happen"

    written = harness.read(target)
    by_key: dict[bytes | None, list[int]] = {}
    for record in written:
        by_key.setdefault(record.key, []).append(orjson.loads(record.value or b"")["n"])
    assert by_key == {key: list(range(n, 2 * RECORDS, len(KEYS))) for n, key in enumerate(KEYS)}
    # State and output are of the same attempt: had they been mixed, their answers would differ.
    assert last_per_key(harness.read(last)) == last_per_key(written)
    (sub,) = progress.subs.values()
    assert any(name.startswith("calls:") and count > 0 for name, count in sub.counters.items())
