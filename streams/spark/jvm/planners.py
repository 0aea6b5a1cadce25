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


class Planning:
    """Which queries of a session are being planned, so that the processes are ended when none is.

    Only for sessions of the engine's own: in another one, somebody else may be planning. Thread safe.

    Args:
        names: The queries that will be started.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = set(names)
        self._lock = threading.Lock()

    def begins(self, name: str) -> None:
        """Notes that a query is about to be planned, again or for the first time."""
        with self._lock:
            self._names.add(name)

    def done(self, name: str, session: SparkSession) -> None:
        """Notes that a query has run a micro-batch; the processes are ended if it was the last one that had not."""
        with self._lock:
            if name in self._names:
                self._names.discard(name)
                if not self._names:
                    end_planners(session)


def end_planners(session: SparkSession) -> int:
    """Ends these processes, as Spark itself does at its end (`PythonWorkerFactory.stop`).

    By Spark's own method, though a private field leads to it: Spark would stumble over a server that a signal has ended. Whoever
    plans a Python data source in the same session at this moment fails.

    Returns:
        How many servers were ended; 0 with a Spark that has no such field.
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
