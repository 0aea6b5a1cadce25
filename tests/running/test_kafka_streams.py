"""`KafkaStreams` without Spark: what it does around the application that it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError

from streams import ConfigError, KafkaStreams, StreamsBuilder, StreamsError, Topology, TopologyError
from streams.config import StreamsConfig
from streams.driver.progress import NotebookProgress
from streams.metrics.application import MicroBatchFigures
from tests.metrics.made import step

State = KafkaStreams.State
WAIT_S = 30.0


class FakeApplication:
    """Runs until it is stopped, or fails at once.

    Attributes:
        session: What it was run with.
        reached: Set once it runs.
    """

    def __init__(self, on_running: Callable[[], None], error: BaseException | None = None, once: bool = False) -> None:
        self.progress: NotebookProgress | None = NotebookProgress("app")
        self.session: object = None
        self.reached = threading.Event()
        self._on_running = on_running
        self._error = error
        self._stopped = threading.Event()
        if once:
            self._stopped.set()

    def run(self, session: object = None) -> None:
        self.session = session
        self._on_running()
        self.reached.set()
        if self._error is not None:
            raise self._error
        assert self._stopped.wait(WAIT_S)

    def stop(self) -> None:
        self._stopped.set()


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder.build()


class Made:
    """An application in the background, the fake below it, and the changes of its state."""

    def __init__(self, error: BaseException | None = None, once: bool = False) -> None:
        self.fakes: list[FakeApplication] = []
        self.changes: list[tuple[str, str]] = []

        def make(topology: Topology, config: StreamsConfig, on_running: Callable[[], None]) -> FakeApplication:
            self.fakes.append(FakeApplication(on_running, error, once))
            return self.fakes[-1]

        self.streams = KafkaStreams(topology(), application_id="app", make_application=make)
        self.streams.set_state_listener(lambda new, old: self.changes.append((old, new)))

    def started(self) -> KafkaStreams:
        self.streams.start()
        assert self.fakes[0].reached.wait(WAIT_S)
        return self.streams


def test_a_life_goes_from_created_to_stopped_and_the_listener_sees_each_step() -> None:
    made = Made()
    assert made.streams.state is State.CREATED
    streams = made.started()
    assert streams.state is State.RUNNING
    assert streams.stop()
    assert streams.state is State.STOPPED
    assert made.changes == [
        ("CREATED", "STARTING"),
        ("STARTING", "RUNNING"),
        ("RUNNING", "STOPPING"),
        ("STOPPING", "STOPPED"),
    ]


def test_an_application_that_has_processed_all_stops_by_itself() -> None:
    made = Made(once=True)
    made.streams.run()
    assert made.changes[-1] == ("RUNNING", "STOPPED")


def test_waiting_until_it_runs_says_whether_it_does() -> None:
    made = Made()
    with pytest.raises(RuntimeError, match="call start"):
        made.streams.wait_until_running()
    made.streams.start()
    assert made.streams.wait_until_running(WAIT_S)
    assert made.streams.state is State.RUNNING
    made.streams.stop()
    assert made.streams.wait_until_running(0), "it was"


def test_waiting_until_it_runs_raises_the_error_of_a_start() -> None:
    made = Made(error=StreamsError("the broker is gone"))
    made.streams.start()
    assert made.fakes[0].reached.wait(WAIT_S)
    made.streams._ended.wait(WAIT_S)
    with pytest.raises(StreamsError, match="the broker is gone"):
        made.streams.wait_until_running(WAIT_S)


def test_a_store_is_not_read_before_there_is_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_active(kind: type) -> None:
        raise PySparkRuntimeError(errorClass="NO_ACTIVE_OR_DEFAULT_SESSION", messageParameters={})

    monkeypatch.setattr("pyspark.sql.SparkSession.active", classmethod(none_active))
    with pytest.raises(ConfigError, match=r"wait_until_running\(\)"):
        Made().streams.store_dataframe("counts")


def test_waiting_with_a_timeout_says_whether_the_application_has_ended() -> None:
    streams = Made().started()
    assert not streams.await_termination(timeout=0)
    streams.stop()
    assert streams.await_termination(timeout=0)


def test_the_error_of_the_application_is_raised_where_one_waits_for_its_end() -> None:
    made = Made(error=StreamsError("the broker is gone"))
    made.streams.start()
    with pytest.raises(StreamsError, match="the broker is gone"):
        made.streams.await_termination()
    assert made.streams.state is State.ERROR


def test_an_error_is_raised_at_the_end_of_the_block_without_a_wait() -> None:
    made = Made(error=StreamsError("the broker is gone"))
    with pytest.raises(StreamsError, match="the broker is gone"), made.streams:
        assert made.fakes[0].reached.wait(WAIT_S)


def test_an_error_that_was_raised_is_not_raised_again_at_the_end_of_the_block() -> None:
    made = Made(error=StreamsError("the broker is gone"))
    with made.streams, pytest.raises(StreamsError, match="the broker is gone"):
        made.streams.await_termination()


def test_the_programs_own_error_goes_before_that_of_the_application() -> None:
    made = Made(error=StreamsError("the broker is gone"))
    with pytest.raises(ZeroDivisionError), made.streams:
        raise ZeroDivisionError


def test_a_block_starts_the_application_and_stops_it() -> None:
    made = Made()
    with made.streams as streams:
        assert made.fakes[0].reached.wait(WAIT_S)
        assert streams.state is State.RUNNING
    assert streams.state is State.STOPPED


def test_the_session_that_is_given_is_used() -> None:
    made = Made(once=True)
    session = object()
    made.streams.run(session)  # type: ignore[arg-type]
    assert made.fakes[0].session is session


def test_a_second_start_is_refused() -> None:
    made = Made()
    made.started()
    with pytest.raises(RuntimeError, match="make a new KafkaStreams"):
        made.streams.start()
    made.streams.stop()


def test_what_was_stopped_before_its_start_does_not_start() -> None:
    made = Made()
    assert made.streams.stop()
    with pytest.raises(RuntimeError, match="was started or stopped before"):
        made.streams.start()


def test_waiting_for_what_was_not_started_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"call start\(\) first"):
        Made().streams.await_termination()


def test_it_is_stopped_from_several_threads_at_once() -> None:
    made = Made()
    streams = made.started()
    ended: list[bool] = []
    threads = [threading.Thread(target=lambda: ended.append(streams.stop())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert ended == [True] * 8
    assert made.changes.count(("RUNNING", "STOPPING")) == 1


def test_a_listener_may_stop_the_application() -> None:
    made = Made()
    made.streams.set_state_listener(lambda new, old: made.streams.stop() if new is State.RUNNING else None)
    made.streams.start()
    assert made.streams.await_termination(WAIT_S)


def test_a_listener_may_wait_for_the_end_in_the_thread_that_stops() -> None:
    made = Made()
    streams = made.started()
    seen: list[str] = []

    def listener(new: str, old: str) -> None:
        seen.append(new)
        if new is State.STOPPING:
            assert streams.await_termination(WAIT_S)

    streams.set_state_listener(listener)
    assert streams.stop()
    assert seen == ["STOPPING", "STOPPED"]


def test_a_listener_that_fails_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    made = Made(once=True)

    def listener(new: str, old: str) -> None:
        raise ZeroDivisionError

    made.streams.set_state_listener(listener)
    made.streams.run()
    assert made.streams.state is State.STOPPED
    assert "the state listener of app has failed" in caplog.text


def test_ctrl_c_stops_the_application_that_is_waited_for() -> None:
    made = Made()
    made.streams.set_state_listener(
        lambda new, old: os.kill(os.getpid(), signal.SIGINT) if new is State.RUNNING else None
    )
    before = signal.getsignal(signal.SIGINT)
    made.streams.run()
    assert made.streams.state is State.STOPPED
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_that_does_not_interrupt_the_wait_stops_the_application_too() -> None:
    """The kernel may hand a signal to any thread; Python runs its handler in the main thread, once that one runs again."""
    made = Made()
    made.started()
    killer = threading.Thread(
        target=lambda: time.sleep(0.1) or signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # type: ignore[func-returns-value]
    )
    killer.start()
    assert made.streams.await_termination(WAIT_S / 2)
    killer.join()
    assert made.streams.state is State.STOPPED


def test_ctrl_c_during_the_start_stops_the_application() -> None:
    made = Made()
    made.streams.set_state_listener(
        lambda new, old: os.kill(os.getpid(), signal.SIGINT) if new is State.STARTING else None
    )
    made.streams.run()
    assert made.streams.state is State.STOPPED


def test_a_bad_setting_is_named() -> None:
    with pytest.raises(ConfigError, match="tasks"):
        KafkaStreams(topology(), application_id="app", tasks=0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (topology, r"not the function topology: call it, as in KafkaStreams\(topology\(\), ...\)"),
        (StreamsBuilder(), r"not a StreamsBuilder: write KafkaStreams\(builder.build\(\), ...\)"),
        ("app:build", r"KafkaStreams takes a Topology, not 'app:build'\."),
    ],
)
def test_what_is_no_topology_is_refused_at_once(given: object, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        KafkaStreams(given, application_id="app")  # type: ignore[arg-type]


def test_settings_come_from_a_dictionary_and_keywords_win() -> None:
    streams = KafkaStreams(topology(), {"application_id": "app", "tasks": 2}, tasks=3)
    assert (streams.config.application_id, streams.config.tasks) == ("app", 3)


def test_settings_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text('application_id = "app"\ntasks = 2\n')
    assert KafkaStreams(topology(), tmp_path / "app.toml").config.tasks == 2


def test_keywords_win_over_a_config_and_leave_the_rest() -> None:
    streams = KafkaStreams(topology(), StreamsConfig(application_id="app", tasks=2, available_now=True), tasks=3)
    assert (streams.config.tasks, streams.config.available_now) == (3, True)


def test_its_repr_says_which_application_it_is_and_how_it_is() -> None:
    made = Made(once=True)
    made.streams.run()
    assert repr(made.streams) == "KafkaStreams('app', STOPPED)"


def test_a_notebook_shows_the_state_and_the_numbers() -> None:
    made = Made(once=True)
    made.streams.run()
    made.fakes[0].progress.started("in", 2, ("in",))  # type: ignore[union-attr]
    shown = made.streams._repr_html_()
    assert "STOPPED" in shown
    assert "sub-topology" in shown


def test_progress_in_a_notebook_is_no_stream_of_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    progress = NotebookProgress("app")
    with progress:
        progress.started("in", 2, ("in",))
        progress.say("starting Spark …")
        progress._show()
    assert capsys.readouterr().err.splitlines()[0] == "starting Spark …"


LEFT_RUNNING = """
import threading
from streams import KafkaStreams, StreamsBuilder
from streams.driver.progress import NotebookProgress

builder = StreamsBuilder()
builder.stream("in").to("out")
stopped = threading.Event()

class Application:
    progress = NotebookProgress("app")
    def run(self, session=None):
        stopped.wait(30)
        print("ended cleanly", flush=True)
    def stop(self):
        stopped.set()

KafkaStreams(builder.build(), application_id="app", make_application=lambda *_: Application()).start()
"""


def test_what_still_runs_when_the_program_ends_is_stopped_cleanly() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT_RUNNING], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "ended cleanly\n"


def test_importing_streams_loads_neither_spark_nor_the_settings() -> None:
    names = "{'pyspark', 'pydantic_settings'} & set(sys.modules)"
    code = f"import sys, streams; print({names}); streams.KafkaStreams; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\nFalse\n"


def test_a_metrics_listener_is_called_after_each_micro_batch_and_metrics_has_the_totals() -> None:
    made = Made(once=True)
    seen: list[MicroBatchFigures] = []
    made.streams.set_metrics_listener(seen.append)
    assert made.streams.metrics().sub_topologies == {}
    made.streams.run()
    progress = made.fakes[0].progress
    assert progress is not None
    progress.started("in", 2, ("in",))
    progress.step("in", 0, [step()])
    assert [(batch.sub_topology, batch.records_in) for batch in seen] == [("in", 5)]
    assert made.streams.metrics().sub_topologies["in"].records_in == 5
    made.streams.set_metrics_listener(None)
    progress.step("in", 1, [step(version=2)])
    assert len(seen) == 1
    assert made.streams.metrics().sub_topologies["in"].records_in == 10
