"""The loop of a running application that ends queries and begins them in the other execution; without Spark and a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams import StreamsBuilder
from streams.application.prepare import ensure_internal_topics, plan_application
from streams.checkpoint.files import LocalFiles
from streams.config import StreamsConfig
from streams.driver import runner
from streams.driver.runner import StreamsApplication
from streams.engine.source.offsets import SourceOffsets, TopicOffsets
from streams.errors import ApplicationFailedError, ConfigError, NewPartitionsError
from streams.logs.events import NOT_LIVE, Event
from streams.testing.simulation import SimulatedKafka


def program() -> Any:
    builder = StreamsBuilder()
    for topic in ("a", "b"):
        builder.stream(topic).group_by_key().count().to_stream().to("out")
    return builder.build()


class Running(StreamsApplication):
    """An application on a simulated cluster, whose queries do what a test says.

    Attributes:
        rounds: What each round of queries is in place of.
        started: The sub-topologies of each round, by execution.
    """

    def __init__(
        self, kafka: Any, folder: Path, rounds: Sequence[Callable[[Running], object]], **settings: Any
    ) -> None:
        given: Any = {"application_id": "app", "bootstrap_servers": "simulated:1", "base_dir": folder, **settings}
        config = StreamsConfig(**{"execution": "live", **given})
        self.heard: list[Event] = []
        super().__init__(program(), config, on_event=self.heard.append)
        self._application = plan_application(program(), config, kafka)
        self._counts = ensure_internal_topics(self._application, kafka, lambda _: None)
        self._spark: Any = None
        self._first = self._firsts(kafka)
        self._watch = SimpleNamespace(away=False)  # type: ignore[assignment]
        self.rounds = iter(rounds)
        self.started: list[tuple[list[str], list[str]]] = []

    def _await(self, starts: Any, is_over: Any = None) -> None:
        batches, live = [], []
        for start in starts:
            if start.func == self._start_live:
                live += [one.sub.name for one in start.args[0]]
            else:
                batches.append(start.args[0].sub.name)
        self.started.append((sorted(live), sorted(batches)))
        next(self.rounds)(self)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    simulated: Any = SimulatedKafka({"a": 2, "b": 2, "out": 2})

    @contextmanager
    def admin(*_: object, **__: object) -> Any:
        yield simulated

    nothing = lambda *_: None  # noqa: E731
    monkeypatch.setattr(runner, "KafkaAdmin", admin)
    monkeypatch.setattr(runner.StreamsApplication, "_processes", lambda _: 4)
    monkeypatch.setattr(runner, "processes_of", lambda _: 4)
    monkeypatch.setattr(runner, "driver_address", lambda _: ("127.0.0.1", "127.0.0.1"))
    monkeypatch.setattr(runner, "checkpoint_files", lambda *_: LocalFiles(str(tmp_path / "checkpoint")))
    given = {"kafka": simulated, "until_decided": nothing, "sample": simulated.sample}
    monkeypatch.setattr(runner, "Preflight", partial(runner.Preflight, **given))
    return simulated


def test_topics_that_get_more_partitions_end_no_running_application(kafka: Any, tmp_path: Path) -> None:
    """One `kafka-topics --alter` after the other: a slot has looked at the first topic, and not yet at the second."""

    def grow(_: Running) -> None:
        for topic in ("a", "b"):
            kafka.create_topic(topic, 4)
        error = NewPartitionsError("app", "a", "a", partitions=4, tasks=2)
        raise ApplicationFailedError(f"NewPartitionsError: {error}", cause="NewPartitionsError")

    running = Running(kafka, tmp_path, [grow, StreamsApplication.stop])
    running._run_on([])
    assert running.started == [(["a", "b"], []), ([], ["a", "b"])]


def test_an_operator_s_switch_back_to_live_ends_no_running_application(kafka: Any, tmp_path: Path) -> None:
    def to_micro_batches(running: Running) -> None:
        running._pauses.execution = "micro-batch"

    def as_set(running: Running) -> None:
        kafka.create_topic("b", 4)
        running._pauses.execution = None

    running = Running(kafka, tmp_path, [to_micro_batches, as_set, StreamsApplication.stop])
    running._run_on([])
    assert running.started == [(["a", "b"], []), ([], ["a", "b"]), (["a"], ["b"])]


def test_a_start_that_cannot_be_live_is_refused(kafka: Any, tmp_path: Path) -> None:
    running = Running(kafka, tmp_path, [])
    kafka.create_topic("b", 4)
    with pytest.raises(ConfigError, match="b has 4 partitions and the sub-topology 2 tasks"):
        running._run_on([])
    assert running.started == []


def test_what_does_not_run_live_is_said_with_the_reason(kafka: Any, tmp_path: Path) -> None:
    running = Running(kafka, tmp_path, [StreamsApplication.stop], execution="auto")
    kafka.create_topic("b", 4)
    running._run_on([])
    assert running.started == [(["a"], ["b"])]
    (event,) = [one for one in running.heard if one.kind is NOT_LIVE]
    reason = "b has 4 partitions and the sub-topology 2 tasks"
    assert event.message == f"b: in micro-batches, not live: {reason}"
    assert event.fields == {"sub_topologies": ["b"], "reason": reason}


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("own", [True, False])
def test_a_session_of_the_user_s_keeps_a_core_for_his_queries(
    kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, own: bool
) -> None:
    monkeypatch.setattr(runner.StreamsApplication, "_processes", lambda _: cores)
    running = Running(kafka, tmp_path, [StreamsApplication.stop], execution="auto")
    running._session_of_user = own
    running._run_on([])
    both = ["a", "b"]
    assert running.started == [([], both) if own and cores == 1 else (both, [])]
    said = [one.fields for one in running.heard if one.kind is NOT_LIVE]
    reason = "Spark has one core for it here, which other queries need, too"
    assert said == ([{"sub_topologies": both, "reason": reason}] if own and cores == 1 else [])


def test_before_a_switch_to_live_only_the_unfinished_micro_batch_runs(
    kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backlog behind it can be read live, and the other sub-topologies wait."""
    jobs: list[Any] = []

    def started(_: Any, job: Any, folder: Any, trigger: Any, *rest: Any) -> Any:
        jobs.append((job, trigger))
        return SimpleNamespace(runId=1)

    monkeypatch.setattr(runner, "start_query", started)
    monkeypatch.setattr(runner, "readers_of", lambda _: 1)
    for number in range(9):
        kafka.append("a", b"k", b"v", number, partition=0)
    running = Running(kafka, tmp_path, [])
    running._planning = SimpleNamespace(begins=lambda _: None)  # type: ignore[assignment]
    monkeypatch.setattr(running, "_await", lambda starts: [start() for start in starts])
    end = SourceOffsets({"a": TopicOffsets("id", (4, 0))})
    running._finish_batch(running._application.subs[0], end)
    ((job, trigger),) = jobs
    assert (trigger, job.source.until) == ({"availableNow": True}, {("a", 0): 4, ("a", 1): 0})
