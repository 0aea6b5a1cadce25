"""Sources outside Kafka while they are paused: batches wait, and what cannot wait is left to a later start. (Spark is a fake.)"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from streams.source.pauses import NOTHING, WHOLE, Pauses
from streams.spark.ingest import query as query_module
from streams.spark.ingest.query import IngestRun, PauseHold
from streams.topology.ingest import Ingest

PAUSED = Pauses({WHOLE: 1})


class Frame:
    """A DataFrame, or the writer of its stream, which gives away the function of its batches."""

    def __init__(self, streaming: bool) -> None:
        self.isStreaming = streaming
        self.writeStream = self
        self.runId = "run"
        self.batch: Callable[[Any, int], None] | None = None

    def queryName(self, *_: object) -> Frame:
        return self

    option = queryName

    def trigger(self, **_: object) -> Frame:
        return self

    def foreachBatch(self, batch: Callable[[Any, int], None]) -> Frame:
        self.batch = batch
        return self

    def start(self) -> Frame:
        return self


@dataclass
class Told:
    """What is shown to the user, and which sources were said to start."""

    said: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.said.append(text)

    def started(self, name: str, *_: object) -> None:
        self.sources.append(name)


@dataclass(frozen=True)
class Run(IngestRun):
    """Sources whose rows are not written but noted."""

    frames: dict[str, Frame] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)

    def _frame(self, ingest: Ingest) -> Any:
        return self.frames[ingest.name]

    def _write(self, ingest: Ingest, *_: object) -> None:
        self.written.append(ingest.name)


@pytest.fixture(autouse=True)
def _no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was ever written, and Spark's checkpoint has an id."""
    for name, found in {"LiveKafka": None, "last_markers": {}, "checkpoint_files": None, "query_id_of": "id"}.items():
        monkeypatch.setattr(query_module, name, lambda *_, found=found, **__: found)
    monkeypatch.setattr(query_module, "logged_batch", lambda *_: None)


def run(hold: PauseHold, told: Told, available_now: bool = False) -> Run:
    """A run of a streaming source and a static one."""
    frames = {"events": Frame(True), "airlines": Frame(False)}
    ingests = {name: SimpleNamespace(name=name, partitions=1, lasting_name=name) for name in frames}
    config = SimpleNamespace(
        application_id="app",
        client={},
        transaction_timeout_ms=1,
        bulk_io=False,
        available_now=available_now,
        checkpoint_dir="c",
    )
    plan = SimpleNamespace(topology=SimpleNamespace(ingests=ingests))
    application: Any = SimpleNamespace(config=config, plan=plan)
    fake: Any = told
    session: Any = None
    return Run(session, application, {}, {}, fake, hold, frames)


def test_a_batch_of_a_paused_source_is_written_after_the_resume() -> None:
    pauses, written_while_paused = [PAUSED], []

    def sleep(seconds: float) -> None:
        written_while_paused.extend(made.written)
        pauses.append(NOTHING)

    made = run(PauseHold(lambda: pauses[-1], sleep), Told())
    (start,) = made.starts()
    start()
    batch = made.frames["events"].batch
    assert batch is not None
    batch(None, 0)
    assert written_while_paused == []
    assert made.written == ["events"]


@pytest.mark.parametrize(("available_now", "left_out"), [(False, ["airlines"]), (True, ["events", "airlines"])])
def test_what_cannot_wait_for_the_resume_is_left_to_a_later_start(available_now: bool, left_out: list[str]) -> None:
    told = Told()
    made = run(PauseHold(lambda: PAUSED), told, available_now)
    assert len(made.starts()) == 2 - len(left_out)
    assert made.written == []
    assert told.said == [
        f"the source '{name}' is paused: it is read at the first start after a resume" for name in left_out
    ]
    # What is said to start is waited for until the application is ready.
    assert told.sources == [name for name in ("events", "airlines") if name not in left_out]


def test_a_static_source_that_was_read_before_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_module, "last_markers", lambda *_: {0: None})
    told = Told()
    made = run(PauseHold(lambda: NOTHING), told)
    assert len(made.starts()) == 1
    assert (made.written, told.sources) == ([], ["events"])
