"""Ends the processes in which Spark has planned the source, once the queries run.

Spark plans a Python data source in processes of its own, two for each of three kinds (a server, and the worker that it has
forked): 150 MB in all. It keeps the workers for a minute and the servers for ever, and a running query needs none of them. A
query that starts later gets new ones: Spark takes a server that has died as a reason to start another one.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

PLANNERS = ("lookup_data_sources", "create_data_source", "plan_data_source_read")
"""The modules of `pyspark.sql.worker` that a query needs only when it starts."""


def end_planners(session: SparkSession) -> int:
    """Ends these processes as Spark itself does, by SIGTERM to the server, whose workers end with it.

    Whoever plans a Python data source in the same session at this moment fails, so this is for sessions that the engine has
    started.

    Returns:
        How many servers were ended.
    """
    jvm = session.sparkContext._jvm
    if jvm is None:
        return 0
    servers = [child for child in jvm.java.lang.ProcessHandle.current().children().toArray() if _plans(child)]
    return sum(bool(server.destroy()) for server in servers)


def _plans(process: object) -> bool:
    line = str(process.info().commandLine().orElse(""))  # type: ignore[attr-defined]
    return line.endswith(tuple(f" pyspark.sql.worker.{name}" for name in PLANNERS))
