"""What a process writes to standard error, as text or as JSON: its log records, and all other output there."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import TracebackType

from state.secrets import mask
from streams.logs.events import FAILED, Event
from streams.logs.json_lines import LONGEST, JsonHandler, LineWriter, as_json, context, set_context

log = logging.getLogger(__name__)


class LogFormat(str, Enum):
    """The form of lines on standard error: text for people, or one JSON object per line for programs."""

    TEXT = "text"
    JSON = "json"


class LogLevel(str, Enum):
    """The least important lines that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Form and level of log lines; they travel to the workers with their job.

    Attributes:
        level: The level that the user has set; None: the default of the form.
    """

    form: LogFormat = LogFormat.TEXT
    level: LogLevel | None = None

    @property
    def json(self) -> bool:
        return self.form is LogFormat.JSON

    @property
    def number(self) -> int:
        """The level as a number of `logging`. As text it is higher by default: INFO lines would come between the progress lines."""
        chosen = self.level or (LogLevel.INFO if self.json else LogLevel.WARNING)
        return int(getattr(logging, chosen.name))


_STDERR = 2
_BLOCK = 64 * 1024
_LAST_LINES_S = 2.0
"""How long the end of a capture waits for lines, seconds: another process may still have the pipe open."""


class Capture:
    """Captures standard error from `start` to `stop`, line by line, no matter which code writes there, in which language.

    The file descriptor itself is replaced by a pipe, because librdkafka and Java know nothing of Python's `sys.stderr`.

    Args:
        take: Called in a separate thread with each line, without its line break.

    Attributes:
        real: The original standard error, as a file descriptor.
    """

    def __init__(self, take: Callable[[bytes], object]) -> None:
        self._take = take
        self.real = os.dup(_STDERR)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        _flush()
        reading, writing = os.pipe()
        os.dup2(writing, _STDERR)
        os.close(writing)
        self._thread = threading.Thread(target=self._read, args=(reading,), name="stderr-lines", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Restores standard error, once the lines written so far have been taken."""
        _flush()
        os.dup2(self.real, _STDERR)
        if self._thread is not None:
            self._thread.join(_LAST_LINES_S)
            self._thread = None

    def _read(self, reading: int) -> None:
        rest = b""
        with os.fdopen(reading, "rb", buffering=0) as written:
            while block := written.read(_BLOCK):
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    self._take(line)
        if rest:
            self._take(rest)


def _flush() -> None:
    with suppress(Exception):
        sys.stderr.flush()


TALKATIVE = ("py4j", "numba", "urllib3", "botocore", "s3fs", "asyncio", "fsspec")
"""Libraries whose lines below WARNING are about their own workings only."""
_TEXT = "%(levelname)s %(name)s: %(message)s"


class JsonOutput:
    """Standard error as lines of JSON, from `start` to `stop`.

    Args:
        longest: The most bytes of a line of this process; None: no limit.
    """

    def __init__(self, settings: LogSettings, longest: int | None = None) -> None:
        self._level = settings.number
        self._capture = Capture(self._foreign)
        self._writer = LineWriter(self._capture.real, longest)
        self._handler = JsonHandler(self._writer)

    def start(self) -> None:
        """Begins to write JSON: `logging`, warnings, uncaught exceptions, and all other output."""
        root = logging.getLogger()
        root.handlers = [handler for handler in root.handlers if not _writes_to_stderr(handler)] + [self._handler]
        root.setLevel(self._level)
        _quiet_libraries(self._level)
        logging.captureWarnings(True)
        sys.excepthook = _uncaught
        threading.excepthook = _uncaught_in_thread
        self._capture.start()

    def stop(self) -> None:
        """Ends the capture, once everything written so far has appeared; this process logs nothing after that."""
        self._capture.stop()

    def _foreign(self, line: bytes) -> None:
        written = as_json(line, self._level, context())
        if written is not None:
            self._writer.raw(written)
            for take in foreign_lines:
                take(written)


foreign_lines: list[Callable[[bytes], object]] = []
"""Functions that also get other programs' lines, as JSON: those written to standard error here, and those sent by live workers."""
_active: list[JsonOutput] = []
"""The output of this process, if it is JSON."""


def is_json() -> bool:
    """Whether standard error of this process is JSON now."""
    return bool(_active)


def set_up_command(settings: LogSettings, application: str | None = None) -> None:
    """Sets up standard error of a command, until the process ends."""
    if settings.json:
        _set_up_json(settings, None, application=application)
    else:
        _set_up_text(settings)


def set_up_program(settings: LogSettings, application: str) -> None:
    """Sets up standard error of a user's program until the process ends: its last line may be an uncaught exception."""
    if settings.json:
        _set_up_json(settings, None, application=application)
    elif settings.level is not None:
        _set_up_text(settings)


def set_up_worker(settings: LogSettings, application: str | None, sub_topology: str | None) -> None:
    """Sets up standard error of one of Spark's Python processes, for as long as the process lives."""
    if settings.json:
        _set_up_json(settings, LONGEST, application=application, sub_topology=sub_topology)
    elif settings.level is not None:
        _set_up_text(settings)


def _set_up_json(settings: LogSettings, longest: int | None, **about: str | None) -> None:
    if not _active:
        _active.append(JsonOutput(settings, longest))
        _active[0].start()
        atexit.register(_active[0].stop)
    set_context(**about)


class _Text(logging.Formatter):
    """Lines for people, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return mask(super().format(record))


def _not_said(record: logging.LogRecord) -> bool:
    """Whether a log record is new to the user: the progress display shows some events itself, and a command shows its error."""
    event = getattr(record, "event", None)
    return not (isinstance(event, Event) and (event.kind.said or event.kind is FAILED))


def _set_up_text(settings: LogSettings) -> None:
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_Text(_TEXT))
        handler.addFilter(_not_said)
        root.addHandler(handler)
    root.setLevel(settings.number)
    _quiet_libraries(settings.number)


def _quiet_libraries(level: int) -> None:
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _writes_to_stderr(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stderr, sys.__stderr__)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.critical("%s: %s", kind.__name__, error, exc_info=(kind, error, trace))


def _uncaught_in_thread(arguments: threading.ExceptHookArgs) -> None:
    if arguments.exc_value is not None:
        _uncaught(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
