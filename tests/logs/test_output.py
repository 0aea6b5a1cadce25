"""Standard error of a process: as JSON, whatever is written there is one object a line, and nothing has a secret."""

from __future__ import annotations

import subprocess
import sys

import orjson

from tests.logs.a_process import CANARY


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
