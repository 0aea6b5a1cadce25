"""Log lines as JSON: their fields, those of errors, and lines that others have written."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import orjson
import pytest

from state import secrets
from state.errors import ClientFailure, TopicNotFoundError
from streams.driver.queries import readable
from streams.driver.reports import log_steps
from streams.engine.graph.handlers import Origin, record_failed
from streams.errors import RecordFailedError
from streams.logs.events import RESTORED, Event
from streams.logs.json_lines import as_json, error_fields, line_of, record_fields, set_context
from streams.metrics.application import MicroBatchFigures, StepFigures
from tests.logs.a_process import CANARY


@pytest.fixture(autouse=True)
def own_secret_and_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.logs.json_lines._context", {})
    secrets.remember({"sasl.password": "canary-value"})


def formatted(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(line_of(record_fields(record)))
    return found


def made(message: str, *args: object, **extra: object) -> logging.LogRecord:
    record = logging.LogRecord("a.b", logging.WARNING, "file.py", 1, message, args, None)
    record.created = 1_795_373_400.25
    record.__dict__.update(extra)
    return record


def test_a_line_has_time_level_logger_and_message() -> None:
    assert formatted(made("%d things", 3)) == {
        "time": "2026-11-22T18:50:00.250Z",
        "level": "WARNING",
        "logger": "a.b",
        "message": "3 things",
    }


def test_a_line_of_an_event_has_its_name_its_place_and_its_own_fields() -> None:
    event = Event(RESTORED, 5, "app", "done", "sub", 0, {"rows": 3})
    found = formatted(made("done", event=event))
    assert list(found)[3:] == ["event", "application", "sub_topology", "task", "message", "rows"]
    assert (found["event"], found["application"], found["sub_topology"], found["task"]) == ("restored", "app", "sub", 0)


def test_a_line_of_a_worker_says_whose_it_is() -> None:
    set_context(application="app", sub_topology="sub", task=2)
    try:
        found = formatted(made("x"))
    finally:
        set_context(application=None, sub_topology=None, task=None)
    assert (found["application"], found["sub_topology"], found["task"]) == ("app", "sub", 2)
    assert "application" not in formatted(made("x"))


def test_a_line_has_no_secret_wherever_it_stands() -> None:
    found = made("https://u:canary-url@h %s", "canary-value", fields={"a": {"b": ["canary-value"]}})
    assert b"canary" not in line_of(record_fields(found))


def test_a_password_that_is_the_name_of_a_field_hides_no_field() -> None:
    secrets.remember({"sasl.password": "message"})
    assert formatted(made("the message"))["message"] == f"the {secrets.MASK}"


def test_an_exception_is_an_object_with_its_stack() -> None:
    record = made("failed")
    try:
        raise ValueError("canary-value")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    error_object = formatted(record)["error"]
    assert (error_object["type"], error_object["message"]) == ("ValueError", secrets.MASK)
    assert "test_lines.py" in error_object["stack"]
    assert "canary" not in error_object["stack"]


ORIGIN = Origin("orders", 2, 17, 0, b"key-" + b"x" * 100, b"v", ())


def test_an_error_about_a_record_says_which() -> None:
    error = record_failed("processing", "map-1", "sub-0", ORIGIN, ValueError("no"))
    fields = error_fields(error)
    assert isinstance(error, RecordFailedError)
    assert (fields["type"], fields["kind"]) == ("RecordFailedError", "data")
    assert (fields["stage"], fields["node"]) == ("processing", "map-1")
    assert (fields["topic"], fields["partition"], fields["offset"]) == ("orders", 2, 17)
    assert fields["key"].startswith("b'key-xxx")
    assert len(fields["key"]) == 60


def test_an_error_that_comes_through_spark_still_says_which_record() -> None:
    error = record_failed("processing", "map-1", "sub-0", ORIGIN, ValueError("no"))
    fields = error_fields(readable(RuntimeError(f"Traceback:\nstreams.errors.RecordFailedError: {error}")))
    assert (fields["type"], fields["cause"]) == ("ApplicationFailedError", "RecordFailedError")
    assert (fields["topic"], fields["partition"], fields["offset"]) == ("orders", 2, 17)
    assert (fields["node"], fields["task"]) == ("map-1", "sub-0")
    assert fields["key"].startswith("b'key-xxx")


def test_an_error_of_kafka_says_its_topic() -> None:
    fields = error_fields(TopicNotFoundError("orders", 1, ClientFailure(3, "UNKNOWN_TOPIC_OR_PART", "x")))
    assert (fields["topic"], fields["partition"]) == ("orders", 1)


def test_a_long_line_of_a_worker_is_cut_and_stays_json() -> None:
    fields = {"time": "t", "message": "m" * 9000, "error": {"type": "E", "message": "e" * 9000, "stack": "s" * 9000}}
    line = line_of(fields, 3900)
    assert len(line) <= 3900
    found = orjson.loads(line)
    assert found["message"].endswith("...")
    assert found["error"]["type"] == "E"


@pytest.mark.parametrize(
    ("line", "level", "logger", "message"),
    [
        (
            "%3|1795373400.123|FAIL|rdkafka#producer-1| [thrd:h:1/bootstrap]: h:1/bootstrap: Connect failed",
            "ERROR",
            "librdkafka",
            "[thrd:h:1/bootstrap]: h:1/bootstrap: Connect failed",
        ),
        ("26/11/22 09:22:04 WARN Utils: a port is taken", "WARNING", "java.Utils", "a port is taken"),
        (
            '{"ts":"2026-11-22T18:50:00.000Z","level":"FATAL","msg":"no memory","logger":"Executor"}',
            "CRITICAL",
            "java.Executor",
            "no memory",
        ),
        ("OpenJDK 64-Bit Server VM warning: large", "WARNING", "java", "OpenJDK 64-Bit Server VM warning: large"),
        ("what a function has printed", "WARNING", "stderr", "what a function has printed"),
        ('{"half":', "WARNING", "stderr", '{"half":'),
        ("canary-value \x1b[31m\xff", "WARNING", "stderr", f"{secrets.MASK} \x1b[31m\ufffd"),
    ],
)
def test_a_line_of_others_becomes_json(line: str, level: str, logger: str, message: str) -> None:
    written = as_json(line.encode("latin-1"), logging.INFO, {"application": "app"})
    assert written is not None
    assert written.endswith(b"\n")
    assert written.count(b"\n") == 1
    found = orjson.loads(written)
    assert (found["level"], found["logger"], found["message"]) == (level, logger, message)
    assert found["application"] == "app"
    assert found["time"].endswith("Z")


def test_a_line_of_a_worker_passes_as_it_is() -> None:
    line = line_of({"time": "t", "level": "INFO", "message": "x"}).rstrip()
    assert as_json(line, logging.ERROR, {"application": "app"}) == line + b"\n"


def test_lines_below_the_level_and_empty_ones_are_left_out_but_unknown_ones_never() -> None:
    assert as_json(b"26/11/22 09:22:04 WARN Utils: x", logging.ERROR, {}) is None
    assert as_json(b"  ", logging.DEBUG, {}) is None
    assert as_json(b"Fatal Python error: Segmentation fault", logging.ERROR, {}) is not None


def step(task: int, **changed: Any) -> StepFigures:
    given = {"decision": "run", "records_in": 5, "records_out": 4, "changelog_records": 3, **changed}
    return StepFigures(
        task=task,
        version=9,
        batch_id=7,
        event_time_ms=None,
        counters={},
        seconds={"commit": 0.5},
        total_s=1,
        cpu_s=1,
        **given,
    )


def test_each_step_is_a_line_with_all_its_figures(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="streams.steps")
    steps = (step(0), step(1, records_in=0), step(2, decision="skip"))
    log_steps(MicroBatchFigures("app", "sub", 7, 1, steps))
    lines = [formatted(record) for record in caplog.records]
    assert [(line["event"], line["task"], line["level"]) for line in lines] == [
        ("step", 0, "INFO"),
        ("step", 1, "DEBUG"),
        ("step", 2, "DEBUG"),
    ]
    assert (lines[0]["application"], lines[0]["sub_topology"], lines[0]["version"]) == ("app", "sub", 9)
    assert (lines[0]["records_in"], lines[0]["seconds"]) == (5, {"commit": 0.5})


# --- Standard error of a process: as JSON, whatever is written there is one object a line, and nothing has a secret.


def stderr_of(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.logs.a_process", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_every_line_is_one_json_object_whoever_has_written_it() -> None:
    lines = stderr_of("json", "crash")
    found = [orjson.loads(line) for line in lines]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in found)
    assert {line["application"] for line in found} == {"app"}
    by_message = {line["message"]: line for line in found}
    assert by_message["app is starting"]["event"] == "starting"
    assert by_message["a line of the program, ********"]["logger"] == "users"
    assert by_message["printed ********"]["logger"] == "stderr"
    assert by_message["written by something in C"]["logger"] == "stderr"
    assert by_message["written by a child"]["logger"] == "stderr"
    assert any(line["logger"] == "py.warnings" and "a warning of a library" in line["message"] for line in found)
    assert any(line["logger"] == "librdkafka" and "Connect" in line["message"] for line in found)
    (thread,) = [line for line in found if line["message"] == "ValueError: in a thread with ********"]
    assert "thread_that_fails" in thread["error"]["stack"]
    assert by_message["RuntimeError: the end, ********"]["error"]["type"] == "RuntimeError"
    assert "too little" not in by_message
    assert CANARY not in "".join(lines)


def test_as_text_a_line_is_for_people_and_what_was_said_is_not_logged_again() -> None:
    lines = stderr_of("text")
    assert "INFO users: a line of the program, ********" in lines
    assert "INFO streams.events: app is starting" in lines
    assert not any(line.endswith("paused") for line in lines)
