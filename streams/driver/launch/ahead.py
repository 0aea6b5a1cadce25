"""Starts a Spark session: at once, or in the background while pyspark, which also takes time, is still to be imported.

Nothing here imports pyspark before a session is needed, except in the thread that waits for Java.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streams.driver.launch.java_process import java_ahead
from streams.driver.launch.settings import is_submitted, prepare_environment, session_settings
from streams.engine.spark.daemon_ahead import daemon_ahead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Ahead:
    """A session that starts in the background, for the `start_session` call that asks for the same session."""

    def __init__(self, asked: tuple[str, Mapping[str, str], str, bool], settings: Mapping[str, str]) -> None:
        self.asked = asked
        self._taken = False
        self._session: Future[SparkSession] = Future()
        self._thread = threading.Thread(target=self._run, args=(settings,), name="start-spark", daemon=True)
        self._thread.start()

    def _run(self, settings: Mapping[str, str]) -> None:
        try:
            from streams.driver.session import start_with

            self._session.set_result(start_with(settings, self.asked[-1], late=not self.asked[-1]))
        except BaseException as error:
            self._session.set_exception(error)

    def take(self) -> SparkSession:
        """Waits until the session has started, and returns it; raises the error if it has not started."""
        self._taken = True
        return self._session.result()

    def end_unless_taken(self) -> None:
        """Ends the session and its Java, at once or as soon as it has started, unless it was taken."""
        if not self._taken:
            _ending.append(self)
            self._session.add_done_callback(_end)

    def wait_for_end(self) -> None:
        """Waits until an unused session has started and ended."""
        self._thread.join()


def _end(started: Future[SparkSession]) -> None:
    if started.exception() is None:
        from streams.driver.java import end_java

        session = started.result()
        session.stop()
        end_java()


_ahead: list[Ahead] = []
_ending: list[Ahead] = []
"""The sessions that nothing has used yet. They may still be starting, and this process can start only one at a time."""


def starts_ahead() -> bool:
    """Whether `session_ahead` starts, or has started, the session of this process."""
    return bool(_ahead)


def _started_ahead(asked: tuple[str, Mapping[str, str], str, bool]) -> Ahead | None:
    """The object that starts a session with exactly these settings; None if there is none."""
    return next((ahead for ahead in _ahead if ahead.asked == asked), None)


def _wait_for_others() -> None:
    """Waits for the end of unused sessions that were started ahead: pyspark starts only one Java process at a time."""
    while _ending:
        _ending.pop().wait_for_end()


def _runs_java() -> bool:
    """Whether this process has started Java before."""
    _wait_for_others()
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._gateway is not None


@contextmanager
def session_ahead(
    application_id: str, user: Mapping[str, str], checkpoint_dir: str, *, delta: bool = False
) -> Iterator[None]:
    """Starts Spark, and the daemon of its Python workers, in the background, for a `start_session` call within the context.

    Both take longer than Python does to import the program and to look up its topics.

    Raises:
        ConfigError: A setting cannot work.
        JarFetchError: With `delta`: its jars are missing and could not be fetched.
    """
    settings = session_settings(application_id, user, checkpoint_dir, delta=delta)
    if is_submitted() or "spark.log.level" in settings or _runs_java() or sys.platform == "win32":
        yield
        return
    prepare_environment()
    with daemon_ahead(settings), java_ahead(settings):
        ahead = Ahead((application_id, user, checkpoint_dir, delta), settings)
        _ahead.append(ahead)
        try:
            yield
        finally:
            _ahead.remove(ahead)
            ahead.end_unless_taken()


def start_session(
    application_id: str, user: Mapping[str, str], checkpoint_dir: str, *, delta: bool = False, late: bool = False
) -> SparkSession:
    """The Spark session with the engine's settings: the running one, or a new one.

    Args:
        application_id: The name of the session.
        user: The user's settings.
        checkpoint_dir: The folder of checkpoints.
        delta: Whether it reads and writes Delta tables.
        late: Whether a substitute for a session is enough (`session.late_session`).

    Raises:
        ConfigError: A setting cannot work, or the session was started without the engine's daemon.
        DeltaMissingError: With `delta`: the running session has no Delta Lake.
        JarFetchError: With `delta`: its jars are missing and could not be fetched.
    """
    ahead = _started_ahead((application_id, user, checkpoint_dir, delta))
    if ahead is not None:
        session = ahead.take()
        if late:
            return session
        from streams.driver.session import session_itself

        return session_itself(session)
    _wait_for_others()
    from streams.driver.session import start_with

    return start_with(session_settings(application_id, user, checkpoint_dir, delta=delta), delta, late)
