"""The end of Spark's Python processes that have inspected a data source and are not needed any more.

For a query, Spark starts three Python daemons with a worker each: to list data sources, to create one, and to plan how it is
read. They stay for the whole session, with about 170 MB. Spark starts a daemon again if it finds that one has ended.
"""

from __future__ import annotations

import re
import threading
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

INSPECTOR = re.compile(
    r"pyspark\.daemon pyspark\.sql\.worker\.(lookup_data_sources|create_data_source|plan_data_source_read)"
)


class Inspectors:
    """Ends the inspecting processes once no query needs them: from its start to its first micro-batch, a query may.

    Args:
        session: The session whose Java process has started them.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._starting: set[str] = set()
        self._lock = threading.Lock()

    def started(self, query: str) -> None:
        """Notes that a query starts."""
        with self._lock:
            self._starting.add(query)

    def running(self, query: str) -> None:
        """Notes a finished micro-batch of a query."""
        with self._lock:
            if query not in self._starting:
                return
            self._starting.discard(query)
            if not self._starting:
                self._end()

    def _end(self) -> None:
        with suppress(Py4JError):
            children = self._session.sparkContext._jvm.java.lang.ProcessHandle.current().children().toArray()
            for process in children:
                if INSPECTOR.search(str(process.info().commandLine().orElse(""))):
                    process.destroy()
