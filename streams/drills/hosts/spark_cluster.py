"""Spark standalone on hosts: a master, and on each host a worker, which starts executors for applications."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from state.stores.position import read_meta
from state.tables.open_tables import open_linked
from streams.broker.processes import HOST, Guard, free_ports
from streams.drills.failure import DrillFailed
from streams.drills.hosts import network
from streams.drills.hosts.host import LoopbackHost, NamespaceHost, python_path
from streams.drills.processes import CommandProcess, own_environment, wait_until

NAMES = ("host-a", "host-b")
CORES = 2
_START_S = 90.0
_GONE_S = 60.0
_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_DEPLOY = "org.apache.spark.deploy"
SOON_MISSED = (
    "spark.network.timeout=20s",
    "spark.network.timeoutInterval=5s",
    "spark.executor.heartbeatInterval=4s",
)
"""An executor that says nothing for so long is given up; Spark's default is two minutes."""
_WORKER_MISSED_S = 15


class SparkCluster:
    """A master and a worker on each host.

    Args:
        folder: The folder of the drill.
        guard: Ends what is left if this process dies.
        isolated: Whether the hosts are namespaces, and this thread is in `own_network`.

    Attributes:
        hosts: The hosts.
        centre: The address of driver and master.
        broker: The address for the broker.
    """

    def __init__(self, folder: Path, guard: Guard, isolated: bool) -> None:
        self.isolated = isolated
        self._folder, self._guard = folder, guard
        kind, prefix = (NamespaceHost, f"{network.PREFIX}1") if isolated else (LoopbackHost, "127.0.0.1")
        self.hosts = [kind(name, f"{prefix}{number}", folder, guard) for number, name in enumerate(NAMES, 1)]
        self.centre, self.broker = (network.CENTRE, network.BROKER) if isolated else (HOST, HOST)
        (self._port,) = free_ports(1)
        self._master: CommandProcess | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """Options of `streams run` for an application on the cluster."""
        settings = [
            f"spark.master=spark://{self.centre}:{self._port}",
            f"spark.driver.host={self.centre}",
            f"spark.driver.bindAddress={self.centre}",
            "spark.executor.memory=512m",
            f"spark.executor.extraJavaOptions={_JAVA}",
            *SOON_MISSED,
            # Tasks stay where they have begun: an executor that comes late would get none.
            f"spark.cores.max={CORES * len(self.hosts)}",
            "spark.scheduler.minRegisteredResourcesRatio=1.0",
            f"state_dir={self._on_each_host('state')}",
            f"replica_dir={self._on_each_host('replicas')}",
        ]
        return tuple(part for setting in settings for part in ("--set", setting))

    def _on_each_host(self, folder: str) -> str:
        """One setting for all hosts that names another folder on each."""
        if self.isolated:
            return str(self.hosts[0].inside / folder)
        # An executor works in <disk>/work/<application>/<executor>, which is the only thing that differs without namespaces.
        return f"/proc/self/cwd/../../../{folder}"

    def start(self) -> None:
        """Starts the master and all workers."""
        timeout = f"-Dspark.worker.timeout={_WORKER_MISSED_S}"
        address = ["--host", self.centre, "--port", str(self._port), "--webui-port", "0"]
        variables = {**own_environment(), **self._environment(timeout), "SPARK_LOCAL_IP": self.centre}
        command = [self._spark_class, f"{_DEPLOY}.master.Master", *address]
        self._master = CommandProcess(command, self._folder, variables)
        self._guard.watch(self._master.process.pid)
        self._master.wait_until(lambda: "New state: ALIVE" in self._said(), "Spark's master starts", _START_S)
        for host in self.hosts:
            self.run_worker(host, wait=False)
        self._registered(len(self.hosts), self.hosts)

    def run_worker(self, host: LoopbackHost, wait: bool = True) -> None:
        """Starts a host with its worker; it may have been lost before."""
        known = self._workers_known()
        place = ["--host", host.address, "--webui-port", "0", "--work-dir", str(host.inside / "work")]
        size = ["--cores", str(CORES), "--memory", "1g"]
        master = f"spark://{self.centre}:{self._port}"
        command = [self._spark_class, f"{_DEPLOY}.worker.Worker", *place, *size, master]
        host.run(command, {**self._environment(""), "SPARK_LOCAL_DIRS": str(host.inside / "spark")})
        if wait:
            self._registered(known + 1, [host])

    def end(self) -> None:
        for host in self.hosts:
            host.end()
        if self._master is not None:
            self._master.watch()
            self._master.close()
            self._master.all_gone()
            self._guard.forget(self._master.process.pid)

    def executors_gone(self) -> None:
        """Waits until no executor runs any more, after the end of an application."""
        running = [host for host in self.hosts if host.running]
        wait_until(
            lambda: not any(host.executors() or host.workers() for host in running), _GONE_S, "all executors end"
        )

    def newest_states(self, application_id: str) -> dict[tuple[str, int], Path]:
        """The folder with the latest step of each task, whichever host has it."""
        found: dict[tuple[str, int], tuple[int, Path]] = {}
        for host in self.hosts:
            for task in host.tasks(application_id):
                version, key = step_of(task.path), (task.sub_topology, task.task)
                if version > found.get(key, (0, task.path))[0]:
                    found[key] = version, task.path
        return {key: path for key, (_, path) in found.items()}

    @property
    def _spark_class(self) -> str:
        return str(spark_home() / "bin" / "spark-class")

    @staticmethod
    def _environment(options: str) -> dict[str, str]:
        java = {"SPARK_DAEMON_JAVA_OPTS": f"{_JAVA} {options}".strip(), "SPARK_DAEMON_MEMORY": "192m"}
        # Executors find Python's modules by the environment of their worker.
        return {"SPARK_HOME": str(spark_home()), "SPARK_NO_DAEMONIZE": "1", "PYTHONPATH": python_path(), **java}

    def _said(self) -> str:
        return "" if self._master is None else self._master.log()

    def _workers_known(self) -> int:
        return self._said().count("Registering worker")

    def _registered(self, count: int, started: Sequence[LoopbackHost]) -> None:
        def done() -> bool:
            for host in started:
                if not host.running:
                    raise DrillFailed(f"the worker of {host.name} has ended: {host.command.log()[-2000:]}")
            return self._workers_known() >= count

        wait_until(done, _START_S, "Spark's workers register", self._said)


def step_of(folder: Path) -> int:
    """The number of the step that a task's folder holds; 0: none."""
    if not (folder / "db" / "CURRENT").exists():
        return 0
    with tempfile.TemporaryDirectory(prefix="streams-drill-step-") as scratch:
        table = open_linked(folder / "db", Path(scratch) / "db")
        try:
            step = read_meta(table).step
        finally:
            table.close()
    return 0 if step is None else step[1]


def spark_home() -> Path:
    """The folder of Spark: the installed pyspark."""
    found = find_spec("pyspark")
    assert found is not None, "pyspark is a dependency"
    assert found.origin is not None, "pyspark is a package"
    return Path(found.origin).parent


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Spark standalone on two hosts; it ends with the block. Where namespaces are not to be had, hosts are loopback addresses."""
    with ExitStack() as stack:
        isolated = not network.why_not()
        if isolated:
            stack.enter_context(network.own_network())
        cluster = SparkCluster(folder, stack.enter_context(Guard()), isolated)
        stack.callback(cluster.end)
        cluster.start()
        yield cluster
