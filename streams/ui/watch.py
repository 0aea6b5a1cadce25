"""Follows an application that runs elsewhere, from Kafka alone, and gives the page what a driver would give it.

Commit markers have the records of each step, but neither the times of its parts nor figures of operators and restores. Totals count
from the start of the watch.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterator

from state.changelog import commits_topic
from state.commit.marker import CommitMarker
from state.errors import StreamsError
from state.kafka.topics import TopicPartition
from streams.application.instances import seen_as_running
from streams.application.markers import newest_marker
from streams.logs.events import PAUSED, RESUMED, Events
from streams.metrics.application import StepFigures
from streams.metrics.recorder import START, MetricsRecorder
from streams.ui.curves import TROUBLE_MS
from streams.ui.history import History, wall_clock_ms
from streams.ui.kafka import KafkaLook

log = logging.getLogger(__name__)

INTERVAL_S = 2.0
DRIVER = "driver"
"""The obstacle that no process runs the application."""


class KafkaWatch:
    """Looks at Kafka once at the start of a `with` block, and then every `INTERVAL_S`."""

    def __init__(self, look: KafkaLook, recorder: MetricsRecorder, history: History) -> None:
        self._look, self._recorder = look, recorder
        self._app = look.config.application_id
        self._events = Events(self._app, listener=history.happened)
        self._history = history
        self._read: dict[TopicPartition, int] = {}
        self._closed = threading.Event()

    def __enter__(self) -> KafkaWatch:
        self._turn()
        threading.Thread(target=self._run, name="kafka-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(INTERVAL_S):
            self._turn()

    def _turn(self) -> None:
        try:
            self._look_once()
            self._recorder.obstacle("broker", None)
        except StreamsError as error:
            log.debug("%s could not be checked: %s", self._app, error)
            self._recorder.obstacle("broker", f"Kafka cannot be asked: {error}")

    def _look_once(self) -> None:
        status = self._look.status()
        known = self._recorder.snapshot().sub_topologies
        topics = {sub.name: sub.topics for sub in self._look.subs()}
        for sub in status.subs:
            if sub.name not in known:
                self._recorder.starting(sub.name, sub.tasks, topics[sub.name])
            self._recorder.positions(sub.name, {place: (at, sub.ends[place]) for place, at in sub.read.items()})
            if sub.committed:
                self._steps(sub.name, sub.tasks)
        self._pauses({sub.name: sub.paused_since_ms for sub in status.subs})
        self._recorder.obstacle(START, None if status.has_committed else f"{self._app} has not committed anything yet")
        runs = seen_as_running(self._app, self._look.config.client) is not None
        self._recorder.obstacle(DRIVER, None if runs else f"no process runs {self._app}: start it with streams run")
        self._history.sample(self._recorder.snapshot())
        self._count_letters()

    def _count_letters(self) -> None:
        """Counts the newest dead letters: markers have no such figure."""
        try:
            topics = self._look.dead_letters()["topics"]
        except StreamsError as error:
            # Without the right to read them, everything else is shown.
            log.debug("the dead letters of %s cannot be read: %s", self._app, error)
            return
        since = wall_clock_ms() - TROUBLE_MS
        self._history.letters_found = sum(one["written"] >= since for topic in topics for one in topic["letters"])

    def _steps(self, sub: str, tasks: int) -> None:
        batches: dict[int, list[CommitMarker]] = defaultdict(list)
        for task in range(tasks):
            for marker in self._markers((commits_topic(self._app, sub), task)):
                batches[marker.batch_id].append(marker)
        for batch_id, markers in sorted(batches.items()):
            steps = tuple(map(_figures, markers))
            self._recorder.step(sub, batch_id, steps, max(marker.now_ms for marker in markers))

    def _markers(self, place: TopicPartition) -> Iterator[CommitMarker]:
        """The markers since the last look; at the first look the newest."""
        end = self._look.log.end_offsets([place]).get(place, 0)
        since = self._read.get(place)
        self._read[place] = end
        if since is None:
            first = newest_marker(self._look.log, place)
            yield from () if first is None else (first,)
            return
        for columns in self._look.log.read(*place, since, end):
            yield from (CommitMarker.from_bytes(value) for value in columns.values.to_pylist() if value is not None)

    def _pauses(self, since_ms: dict[str, int | None]) -> None:
        before = self._history.paused_since_ms()
        for name, since in since_ms.items():
            if since is not None and name not in before:
                self._events.emit(PAUSED, f"{name} is paused", name, since_ms=since)
            elif since is None and name in before:
                self._events.emit(RESUMED, f"{name} continues after a pause", name)


def _figures(marker: CommitMarker) -> StepFigures:
    """The figures of a step that its marker has."""
    return StepFigures(
        task=marker.task,
        version=marker.version,
        batch_id=marker.batch_id,
        decision="run",
        records_in=marker.counts.get("in", 0),
        records_out=marker.counts.get("out", 0),
        changelog_records=marker.counts.get("changelog", 0),
        event_time_ms=marker.stream_time if marker.stream_time >= 0 else None,
        counters={},
        seconds={},
        total_s=0.0,
        cpu_s=0.0,
    )
