"""The executors of a Spark application, and how many tasks they run at once. They come after the start, and may be lost."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

WAIT_S = 30.0
"""How long a start waits for the requested executors, s; Spark itself waits as long (`maxRegisteredResourcesWaitingTime`)."""
_POLL_S = 0.25
_DRIVER = "driver"
"""The id of Spark's one executor in local mode."""
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")
_INSTANCES = (
    "spark.executor.instances",
    "spark.dynamicAllocation.initialExecutors",
    "spark.dynamicAllocation.minExecutors",
)
_USUAL_INSTANCES = 2
"""The default of `spark.executor.instances` on YARN and Kubernetes."""


def is_local(master: str) -> bool:
    """Whether Spark runs tasks in the driver's own Java process."""
    return master == "local" or master.startswith("local[")


def local_cluster(master: str) -> tuple[int, int] | None:
    """The executors of a `local-cluster` and the cores of each; None: it is another master."""
    found = _LOCAL_CLUSTER.fullmatch(master)
    return None if found is None else (int(found.group(1)), int(found.group(2)))


def runs_on_manager(master: str) -> bool:
    """Whether the executors come from YARN or Kubernetes, where an executor has a single core by default."""
    return master.startswith(("yarn", "k8s:"))


def conf_of(context: SparkContext) -> SparkConf:
    """The settings of a context, for reading only. pyspark itself returns a copy, which takes 300 calls of Java."""
    return context._conf


def task_cpus(conf: SparkConf) -> int:
    return int(conf.get("spark.task.cpus") or 1)


def _tasks_of_executors(session: SparkSession) -> list[int]:
    """How many tasks each of the current executors runs at once."""
    context = session.sparkContext
    found = context._jsc.sc().statusStore().executorList(True)
    all_of_them = [found.apply(at) for at in range(found.size())]
    local = is_local(context.master)
    return [int(one.maxTasks()) for one in all_of_them if (one.id() == _DRIVER) is local]


def tasks_at_once(session: SparkSession) -> int:
    """How many tasks Spark runs at once, on the executors that exist now."""
    return sum(_tasks_of_executors(session))


def executors_asked_for(master: str, conf: SparkConf) -> int:
    """The number of executors that the settings ask for; 1 if the cluster decides."""
    if (cluster := local_cluster(master)) is not None:
        return cluster[0]
    found = [int(count) for name in _INSTANCES if (count := conf.get(name))]
    return max(found, default=_USUAL_INSTANCES if runs_on_manager(master) else 1)


def await_executors(session: SparkSession, is_over: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    """Waits for the requested executors, but only for a limited time: they may come later, or never."""
    context = session.sparkContext
    if is_local(context.master):
        return
    wanted, until = executors_asked_for(context.master, conf_of(context)), time.monotonic() + wait_s
    while len(_tasks_of_executors(session)) < wanted and time.monotonic() < until and not is_over():
        time.sleep(_POLL_S)
