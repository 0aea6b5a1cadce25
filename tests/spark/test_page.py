"""The page of a real application: its figures while it runs, from Kafka alone, and what a replay does."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from streams import JsonSerde, Materialized, StreamsBuilder, Topology
from streams.config.settings import Address
from streams.driver.runner import StreamsApplication
from streams.logs.events import Event
from streams.ui.running import page_from_kafka
from tests.spark.harness import Harness, RecordedProgress, Sent

pytestmark = pytest.mark.micro_batches("a run waits for a look at the end of each; live, it may be over before")

TOKEN = "a-token-for-the-page"
Ask = Callable[..., Any]


def asking(url: str) -> Ask:
    def ask(name: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{url}api/v1/{name}", data, {"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())

    return ask


def sums(source: str, target: str) -> Topology:
    builder = StreamsBuilder(default_value_serde=JsonSerde())

    def positive(value: int) -> int:
        if value < 0:
            raise ValueError("negative")
        return value

    stream = builder.stream(source).map_values(positive, named="positive")
    stream.group_by_key().reduce(lambda one, other: one + other, Materialized("sums")).to_stream().to(target)
    return builder.build()


class PageProgress(RecordedProgress):
    """Looks at the page after each micro-batch from when its address is said, and so after the page knows of the micro-batch."""

    def __init__(self, application_id: str, look: Callable[[Ask], None]) -> None:
        super().__init__(application_id)
        self._look = look

    def say(self, text: str) -> None:
        if text.startswith("dashboard: "):
            ask = asking(text.removeprefix("dashboard: "))
            self.metrics.listen(lambda _: self._look(ask))


def run(harness: Harness, topology: Topology, look: Callable[[Ask], None], **settings: Any) -> list[Event]:
    """A run whose page is read after each micro-batch, while it lasts; its events."""
    events: list[Event] = []
    config = harness.config(ui="0", ui_token=TOKEN, **settings)
    progress = PageProgress(harness.application_id, look)
    StreamsApplication(topology, config, progress, on_event=events.append).run(harness.spark)
    return events


def test_the_figures_of_a_run_whose_worker_is_killed(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, letters = (harness.topic(name, 1) for name in ("in", "out", "letters"))
    monkeypatch.setenv("STREAMS_FAULT", "marker_sent@0:1")
    monkeypatch.setenv("STREAMS_FAULT_ONCE", str(tmp_path / "killed"))
    harness.send(source, [Sent(b"k%d" % (n % 3), orjson.dumps(n), 1_000 + n) for n in range(20)])
    harness.send(source, [Sent(b"k0", b"-1", 2_000)])
    found: dict[str, Any] = {}

    def look(ask: Ask) -> None:
        figures = ("overview", "operators", "tasks", "steps", "restores", "events", "followed")
        names = (*figures, "commits", "dead-letters", "doctor")
        found.update({name: ask(name) for name in names})

    policies = {"processing": "dlq", "dead_letter_topic": letters}
    events = run(harness, sums(source, target), look, tasks=1, ui_follow="k0", **policies)
    assert (tmp_path / "killed").exists()
    (sub,) = found["overview"]["sub_topologies"]
    assert (sub["records_in"], sub["micro_batch"], sub["dead_letters"]) == (20, 0, {"processing": 1})
    assert sub["event_time_lag_ms"] > 1_000_000_000_000
    operators = {one["operator"]: one for one in found["operators"]["operators"]}
    positive = operators["positive"]
    assert (positive["records_in"], positive["dropped"], positive["dead_letters"]) == (21, {}, 1)
    spent = {name: one["cpu_s"] for name, one in operators.items() if one["cpu_s"]}
    assert f"KSTREAM-SOURCE-{source}" in spent
    assert len(spent) > 1
    samples = [*found["followed"]["received"], *found["followed"]["dropped"]]
    seen = [(one["operator"], one["source"][2], one["dropped"]) for one in samples if one["source"]]
    assert ("positive", 20, "ValueError: negative") in seen
    assert {offset for operator, offset, dropped in seen if operator == "positive"} == {0, 3, 6, 9, 12, 15, 18, 20}
    assert {offset for operator, offset, dropped in seen if operator.startswith("KSTREAM-REDUCE")} == {
        0,
        3,
        6,
        9,
        12,
        15,
        18,
    }
    (task,) = found["tasks"]["sub_topologies"][0]["tasks"]
    assert (task["failed_attempts"], task["history"]["failed_attempts"]) == (1, [1])
    (steps,) = found["steps"]["sub_topologies"]
    assert steps["steps"] == steps["micro_batches"] == 1
    assert steps["micro_batch"]["p50_ms"] >= steps["total"]["p50_ms"] > 0
    assert {"starting", "topics_created"} <= set(found["events"]["counts"])
    assert [event.task for event in events if event.name == "retried"] == [0]
    (commit,) = found["commits"]["tasks"]  # three sums and a dead letter
    assert (commit["step"], commit["records_out"]) == (1, 4)
    ((letter,),) = (topic["letters"] for topic in found["dead-letters"]["topics"])
    assert (letter["error"], letter["value"], letter["replayed"]) == ("ValueError", "-1", False)
    checks = {one["check"] for one in found["doctor"]["findings"]}
    assert {"brokers", "checkpoint", "changelogs"} <= checks


def test_a_dead_letter_is_replayed_once(harness: Harness) -> None:
    source, target, letters = (harness.topic(name, 1) for name in ("in", "out", "letters"))
    harness.send(source, [Sent(b"k", b"-1", 1_000)])
    config = {"tasks": 1, "processing": "dlq", "dead_letter_topic": letters}
    answers: list[Any] = []

    def look(ask: Ask) -> None:
        if not answers:
            answers.extend(ask("dead-letters/replay", {"topic": letters, "positions": [[0, 0]]}) for _ in range(2))
            answers.append(ask("dead-letters"))

    run(harness, sums(source, target), look, **config)
    assert [one["sent"] for one in answers[:2]] == [1, 0]
    assert answers[2]["topics"][0]["letters"][0]["replayed"] is True
    assert [record.value for record in harness.read(source)] == [b"-1", b"-1"]


def test_an_application_is_seen_from_kafka_alone(harness: Harness) -> None:
    source, target = harness.topic("in", 2), harness.topic("out", 2)
    harness.send(source, [Sent(b"k%d" % n, b"%d" % n, 1_000 + n) for n in range(20)])
    topology = sums(source, target)
    harness.run(topology)
    harness.send(source, [Sent(b"k%d" % n, b"1", 2_000) for n in range(5)])
    seen_from_kafka(harness, source, topology)
    seen_from_kafka(harness, source, None)


def seen_from_kafka(harness: Harness, source: str, program: Topology | None) -> None:
    config = harness.config(ui_token=TOKEN, available_now=False)
    with page_from_kafka(config, Address("127.0.0.1", 0), program, "app.py") as page:
        ask = asking(f"http://{page.address}/")
        names = ("overview", "commits", "tasks", "topology", "doctor")
        overview, commits, tasks, drawn, doctor = map(ask, names)
    (sub,) = overview["sub_topologies"]
    assert (sub["lag_records"], sub["topics"], sub["tasks"]) == (5, [source], 2)
    # Nothing runs it, which is what the page says first.
    assert (overview["state"], overview["level"]) == ("WAITING", "bad")
    assert f"no process runs {harness.application_id}" in overview["sentence"]
    assert [one["step"] for one in commits["tasks"]] == [1, 1]
    assert [one["step"] for one in tasks["sub_topologies"][0]["tasks"]] == [1, 1]
    assert [len(one["history"]["records"]) for one in tasks["sub_topologies"][0]["tasks"]] == [1, 1]
    assert bool(drawn["boxes"]) is (program is not None)
    assert (doctor["verdict"] is not None) is (program is not None)
