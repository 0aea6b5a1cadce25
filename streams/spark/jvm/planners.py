"""Ends the processes in which Spark has planned the source, once the queries run.

Spark plans a Python data source in processes of its own, two for each of three kinds (a server, and the worker that it has
forked): 150 MB in all. It keeps the workers for a minute and the servers for ever, and a running query needs none of them. A
query that starts later gets new ones.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

PLANNERS = tuple(
    f"pyspark.sql.worker.{name}" for name in ("lookup_data_sources", "create_data_source", "plan_data_source_read")
)
"""The modules that a query needs only when it starts."""


_lock = threading.Lock()
_planned: set[str] = set()
"""The queries of this process that may be being planned: a process has one Java, whatever its sessions and applications."""


class Planning:
    """Which queries of an application are being planned, so that the processes are ended when no application plans any.

    Args:
        application_id: The application.
        names: The queries that will be started and that `begins` and `done` are called for.
        others: Whether there may be queries besides, by the user or for lakes; then nothing is ended until `close`.
    """

    def __init__(self, application_id: str, names: Iterable[str], others: bool) -> None:
        self._prefix = f"{application_id}/"
        with _lock:
            _planned.update(self._prefix + name for name in names)
            if others:
                _planned.add(self._prefix)

    def begins(self, name: str) -> None:
        """Notes that a query is about to be planned, again or for the first time."""
        with _lock:
            _planned.add(self._prefix + name)

    def done(self, name: str, session: SparkSession) -> None:
        """Notes that a query has run a micro-batch; the processes are ended if it was the last one that had not."""
        with _lock:
            if self._prefix + name in _planned:
                _planned.discard(self._prefix + name)
                if not _planned:
                    end_planners(session)

    def close(self) -> None:
        """Forgets the application, which has ended."""
        with _lock:
            _planned.difference_update([one for one in _planned if one.startswith(self._prefix)])


def end_planners(session: SparkSession) -> int:
    """Ends these processes, as Spark itself does at its end (`PythonWorkerFactory.stop`).

    By Spark's own method, though a private field leads to it: Spark would stumble over a server that a signal has ended. Whoever
    plans a Python data source in the same session at this moment fails.
    """
    jvm = session.sparkContext._jvm
    assert jvm is not None
    environment = jvm.org.apache.spark.SparkEnv.get()
    try:
        field = environment.getClass().getDeclaredField("pythonWorkers")
        field.setAccessible(True)
        factories = field.get(environment).iterator()
        ended = 0
        while factories.hasNext():
            key, factory = (entry := factories.next())._1(), entry._2()
            if key.workerModule() in PLANNERS:
                factory.stop()
                ended += 1
    except Py4JError:
        return 0
    return ended
