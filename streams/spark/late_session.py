"""A Spark session that is not there until something is asked of it that Spark's context cannot answer.

Live execution needs no SQL, and a session takes one and a half seconds of Java's CPU: Spark registers the functions of its library
of machine learning in each one, by reflection.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any, cast

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession


class _LateSession:
    """Stands for a session: what it does not know itself, it makes one for."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        conf = SparkConf()
        for key, value in settings.items():
            conf.set(key, value)
        self._settings = settings
        self._lock = Lock()
        self._made: SparkSession | None = None
        self.sparkContext = SparkContext.getOrCreate(conf)

    @property
    def version(self) -> str:
        return str(self.sparkContext.version)

    @property
    def _jvm(self) -> Any:
        return self.sparkContext._jvm

    def session(self) -> SparkSession:
        """The session itself."""
        with self._lock:
            if self._made is None:
                self._made = session_with(self._settings)
            return self._made

    def stop(self) -> None:
        """Stops Spark."""
        (self._made or self.sparkContext).stop()

    def __getattr__(self, name: str) -> Any:
        # Not for names that are looked up while an object is copied or made.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.session(), name)


def session_with(settings: Mapping[str, str]) -> SparkSession:
    """A session with these settings: the running one, or a new one."""
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def late_session(settings: Mapping[str, str]) -> SparkSession:
    """What stands for a session in all that is asked of one by its methods and attributes."""
    return cast(SparkSession, _LateSession(settings))


def session_itself(session: SparkSession) -> SparkSession:
    """The session, for what looks at its type, such as other libraries."""
    return session.session() if isinstance(session, _LateSession) else session  # type: ignore[unreachable]
