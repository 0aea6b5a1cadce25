"""A process that writes to standard error in every way, for `test_output.py`: `python -m tests.logs.a_process FORMAT [crash]`."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import warnings

from confluent_kafka import Producer

from state.secrets import remember
from streams.logs.events import PAUSED, STARTING, Events
from streams.logs.output import LogFormat, LogLevel, LogSettings, set_up_command

CANARY = "canary-of-a-process"


def thread_that_fails() -> None:
    raise ValueError(f"in a thread with {CANARY}")


def main(form: str, *how: str) -> None:
    """Writes."""
    remember({"sasl.password": CANARY})
    set_up_command(LogSettings(LogFormat(form), LogLevel.INFO), "app")
    logging.getLogger("users").info("a line of the program, %s", CANARY)
    logging.getLogger("users").debug("too little")
    Events("app", lambda said: print(said, file=sys.stderr)).emit(
        STARTING, "app is starting", version="1", mode="strict"
    )
    Events("app", None).emit(PAUSED, "paused", since_ms=1)
    print("printed", CANARY, file=sys.stderr)
    os.write(2, b"written by something in C\n")
    os.system("echo written by a child >&2")
    warnings.warn("a warning of a library", stacklevel=1)
    failing = threading.Thread(target=thread_that_fails)
    failing.start()
    failing.join()
    refused = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 3})
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not refused.poll(0.2):
        pass
    if how:
        raise RuntimeError(f"the end, {CANARY}")


if __name__ == "__main__":
    main(*sys.argv[1:])
