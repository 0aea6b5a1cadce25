"""The application under test on a cluster: the driver is a process here, the workers are on hosts."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from state.restore.directory import StateDirectory
from streams.broker.processes import Guard
from streams.drills.application import Supervised
from streams.drills.failure import DrillFailed
from streams.drills.hosts.host import LoopbackHost
from streams.drills.hosts.spark_cluster import SparkCluster

_COPY_S = 120.0


class ClusterApplication(Supervised):
    """An application on the hosts of a cluster. After a stop, `state` has the latest state of each task.

    Args:
        servers: The broker's address.
        folder: The folder for checkpoint and logs.
        target: The topology.
        application_id: The id of the application.
        options: Options of `streams run` for every start.
        guard: Ends what is left if this process dies.
        cluster: Where it runs.
    """

    def __init__(
        self,
        servers: str,
        folder: Path,
        target: str,
        application_id: str,
        options: Sequence[str],
        guard: Guard,
        cluster: SparkCluster,
    ) -> None:
        super().__init__(servers, folder, target, application_id, (*options, *cluster.options), guard)
        self.cluster = cluster

    def workers(self) -> list[psutil.Process]:
        """The application's Python workers on all hosts, oldest first."""
        return sorted((one for host in self.cluster.hosts for one in host.workers()), key=lambda one: one.pid)

    def stop(self) -> int:
        """Stops the application by SIGTERM, waits for its executors, and collects the state of all hosts."""
        code = super().stop()
        self.cluster.executors_gone()
        self.delete_state()
        for (sub, task), folder in self.cluster.newest_states(self.id).items():
            shutil.copytree(folder, StateDirectory(self.state).task(self.id, sub, task).path)
        return code

    def copy_all(self, host: LoopbackHost) -> None:
        """Runs `streams replica` on a host until it has a copy of each task."""
        command = [sys.executable, "-m", "streams", "replica", self.target, "--once", "--group", f"copies-{host.name}"]
        where = ["-a", self.id, "-b", self.servers, "--base-dir", str(self.base)]
        replica = host.also_run([*command, *where, "--set", f"replica_dir={host.inside / 'replicas'}"])
        if code := replica.ended(_COPY_S):
            raise DrillFailed(f"streams replica ended with exit code {code}: {replica.log()[-1000:]}")

    def moves(self) -> list[str]:
        """What the application has said about tasks that moved to another host, since its last start."""
        return [line for line in self.current.log().splitlines() if " moved from " in line]
