"""The network of a drill with hosts: a bridge in a network namespace of its own, so that nothing outside is touched or in the way.

The thread that runs the drill enters the namespace, and everything that it starts is in it: the broker, the driver, Spark's
master, and the readers. Each host is a further namespace, joined to the bridge. Namespaces end with their last process or thread,
so nothing is left behind even after SIGKILL. Only root may do that (in a container, with CAP_SYS_ADMIN and CAP_NET_ADMIN). Other
users become root in a separate world with `unshare --user --map-root-user --net --mount streams drill run ...`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from state.restore.directory import StateDirectory, TaskDirectory
from state.stores.position import read_meta
from state.tables.open_tables import open_linked
from streams.broker.processes import HOST, Watchdog, free_ports
from streams.drills.drill import DrillFailed, NotPossibleHere
from streams.drills.processes import CommandProcess, Supervised, own_environment, python_workers, runs, wait_until
from streams.driver.launch.settings import archive_options, pyspark_folder

BRIDGE = "hosts"
PREFIX = "10.77.0."
CENTRE = f"{PREFIX}1"
"""The address of the bridge, which the driver and the master use."""
BROKER = f"{PREFIX}9"
"""Another address of the bridge, only for the broker, so that a host can be cut off from the broker alone."""
SPACES = ("--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Options of `unshare` for a host: it ends with the process that was started, and has its own network, files and processes."""
_CLONE_NEWNET = 0x40000000
_TOOLS = ("unshare", "nsenter", "ip", "mount")


def why_not() -> str:
    """Why hosts cannot be namespaces on this machine; empty if they can."""
    if sys.platform != "linux":
        return "only Linux has namespaces"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} cannot be found (packages util-linux and iproute2)"
    if os.geteuid() != 0:
        return "only root may make namespaces"
    script = f"ip link add name {BRIDGE} type bridge && mount -t tmpfs none /mnt"
    tried = subprocess.run(["unshare", *SPACES, "sh", "-c", script], check=False, capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"namespaces cannot be made: {tried.stderr.strip()}"


@contextmanager
def own_network() -> Iterator[None]:
    """Moves this thread, and all that it starts, to a network of its own with a bridge for hosts; moves it back at the end."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(_CLONE_NEWNET) != 0:
            raise DrillFailed(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            ip("link", "set", "lo", "up")
            ip("link", "add", "name", BRIDGE, "type", "bridge")
            for address in (CENTRE, BROKER):
                ip("address", "add", f"{address}/24", "dev", BRIDGE)
            ip("link", "set", BRIDGE, "up")
            yield
        finally:
            libc.setns(before, _CLONE_NEWNET)
    finally:
        os.close(before)


def join(pid: int, name: str, address: str) -> None:
    """Joins the network namespace of a process to the bridge."""
    ip("link", "add", "name", name, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    ip("link", "set", name, "master", BRIDGE, "up")
    ip("link", "set", "lo", "up", inside=pid)
    ip("address", "add", f"{address}/24", "dev", "eth0", inside=pid)
    ip("link", "set", "eth0", "up", inside=pid)


def ip(*arguments: str, inside: int | None = None) -> None:
    """Runs `ip`."""
    there = [] if inside is None else ["nsenter", "--target", str(inside), "--net"]
    done = subprocess.run([*there, "ip", *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise DrillFailed(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


# A host: an address, a disk of its own, and one command with all that it starts.
#
# `NamespaceHost` has a network, a name, a file system and processes of its own: it sees only its own disk, at the same path as
# every other host; ending it ends everything on it. `LoopbackHost` is for machines without namespaces: another loopback address,
# and a folder of its own.

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
DISKS, DISK = "hosts", "disk"
"""Folders of a world: the one with the hosts' disks, and the one where each host finds its own disk."""
_READY_S = 30.0
_START = """\
hostname "$1" && mkdir -p "$3" && mount --bind "$2" "$3" && mount -t tmpfs hidden "$4" && mount --bind "$5" /etc/hosts || exit 1
echo ready
until [ -e "$3/joined" ]; do sleep 0.05; done
shift 5
"$@" &
wait $!
"""
"""Runs as the first process of a host: hides the other disks, waits for the network, and starts the command."""


class LoopbackHost:
    """A host that is only a loopback address and a folder.

    Args:
        world: The folder of the drill.
        guard: Ends the remaining processes if this one dies.

    Attributes:
        disk: The path of its disk, seen from outside.
    """

    def __init__(self, name: str, address: str, world: Path, guard: Watchdog) -> None:
        self.name, self.address = name, address
        self.disk = world / DISKS / name
        self._world, self._guard = world, guard
        self._started: CommandProcess | None = None
        self._others: list[CommandProcess] = []

    @property
    def command(self) -> CommandProcess:
        """The command of the running host."""
        assert self._started is not None, "the host was not started, or has ended"
        return self._started

    @property
    def inside(self) -> Path:
        """Where processes on the host find its disk."""
        return self.disk

    @property
    def _variables(self) -> Mapping[str, str]:
        """The variables by which Spark knows which host this is."""
        return {"SPARK_LOCAL_IP": self.address, "SPARK_LOCAL_HOSTNAME": self.address}

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts the host with its command."""
        self.disk.mkdir(parents=True, exist_ok=True)
        variables = {**own_environment(), **self._variables, **environment}
        self._started = CommandProcess(self._line(command), self._world, variables)
        self._guard.watch(self._started.process.pid)
        self._join()

    def also_run(self, command: Sequence[str]) -> CommandProcess:
        """Starts another command on the host; it ends with the host."""
        started = CommandProcess(self._there(command), self._world)
        self._guard.watch(started.process.pid)
        self._others.append(started)
        return started

    def _line(self, command: Sequence[str]) -> list[str]:
        return list(command)

    def _there(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a command on the running host."""
        return list(command)

    def _join(self) -> None:
        """Connects the host to the network."""

    def tasks(self, application_id: str) -> list[TaskDirectory]:
        """The folders with tasks' state on this host, whether they can be trusted or not."""
        return list(StateDirectory(self.disk / "state").tasks(application_id))

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers on this host."""
        return python_workers(self.command.process.pid)

    def executors(self) -> list[psutil.Process]:
        """Spark's executors on this host."""
        try:
            below = psutil.Process(self.command.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [process for process in below if runs(process, EXECUTOR)]

    def end(self) -> None:
        """Ends everything on the host at once; its disk remains."""
        started = [] if self._started is None else [self._started, *self._others]
        self._started, self._others = None, []
        for one in started:
            one.close()
            one.all_gone()
            self._guard.forget(one.process.pid)

    @property
    def running(self) -> bool:
        """Whether the host has been started, and has neither ended nor been lost since."""
        return self._started is not None and self._started.running

    def lose(self) -> None:
        """Ends the host together with its disk."""
        self.end()
        shutil.rmtree(self.disk)

    def cut_off(self, address: str) -> None:
        """Drops everything that the host sends to an address."""
        raise NotPossibleHere(f"a host without a network of its own cannot be cut off: {why_not()}")

    def connect_again(self, address: str) -> None: ...


class NamespaceHost(LoopbackHost):
    """A host with namespaces of its own."""

    @property
    def _variables(self) -> Mapping[str, str]:
        return {"SPARK_LOCAL_IP": self.address}

    @property
    def inside(self) -> Path:
        """Where processes on the host find its disk: at the same path on each host."""
        return self._world / DISK

    def _line(self, command: Sequence[str]) -> list[str]:
        (self.disk / "joined").unlink(missing_ok=True)
        names = self._world / f"etc-hosts-{self.name}"
        names.write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        places = [str(place) for place in (self.disk, self.inside, self.disk.parent, names)]
        return ["unshare", *SPACES, "sh", "-c", _START, "host", self.name, *places, *command]

    def _there(self, command: Sequence[str]) -> list[str]:
        return ["nsenter", "--target", str(self.command.process.pid), "--net", "--mount", "--uts", *command]

    def _join(self) -> None:
        self.command.wait_until(lambda: "ready" in self.command.log(), f"{self.name} starts", _READY_S)
        join(self.command.process.pid, self.name, self.address)
        (self.disk / "joined").touch()

    def end(self) -> None:
        """Ends everything on the host as a power cut does: others get no answer from it any more, not even a refusal."""
        if self.running:
            ip("link", "delete", self.name)
        super().end()

    def cut_off(self, address: str) -> None:
        """Drops everything that the host sends to an address."""
        ip("route", "add", "blackhole", f"{address}/32", inside=self.command.process.pid)

    def connect_again(self, address: str) -> None:
        ip("route", "delete", "blackhole", f"{address}/32", inside=self.command.process.pid)


def python_path() -> str:
    """The PYTHONPATH with which processes in other folders find this project, and all that this process can import."""
    root = str(Path(__file__).parents[2])
    return os.pathsep.join(dict.fromkeys(filter(None, [root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])))


# Spark standalone on hosts: a master, and on each host a worker, which starts executors for applications.

NAMES = ("host-a", "host-b")
CORES = 2
_START_S = 90.0
_GONE_S = 60.0
_DEPLOY = "org.apache.spark.deploy"
SOON_MISSED = ("spark.network.timeout=20s", "spark.network.timeoutInterval=5s", "spark.executor.heartbeatInterval=4s")
"""An executor that is silent for this long is given up; Spark's default is two minutes."""
_WORKER_MISSED_S = 15


def _java() -> str:
    """Options with which Java starts quickly: five of its processes start in each drill."""
    return f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1{archive_options()}"


class SparkCluster:
    """A master and a worker on each host.

    Args:
        folder: The folder of the drill.
        guard: Ends the remaining processes if this one dies.
        isolated: Whether the hosts are namespaces, and this thread is in `own_network`.

    Attributes:
        centre: The address of the driver and the master.
        broker: The address for the broker.
    """

    def __init__(self, folder: Path, guard: Watchdog, isolated: bool) -> None:
        self.isolated = isolated
        self._folder, self._guard = folder, guard
        kind, prefix = (NamespaceHost, f"{PREFIX}1") if isolated else (LoopbackHost, "127.0.0.1")
        self.hosts = [kind(name, f"{prefix}{number}", folder, guard) for number, name in enumerate(NAMES, 1)]
        self.centre, self.broker = (CENTRE, BROKER) if isolated else (HOST, HOST)
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
            *(f"spark.{part}.extraJavaOptions={_java()}" for part in ("driver", "executor")),
            *SOON_MISSED,
            # Tasks stay where they have begun: an executor that comes late would get none.
            f"spark.cores.max={CORES * len(self.hosts)}",
            "spark.scheduler.minRegisteredResourcesRatio=1.0",
            f"state_dir={self._on_each_host('state')}",
            f"replica_dir={self._on_each_host('replicas')}",
        ]
        return tuple(part for setting in settings for part in ("--set", setting))

    def _on_each_host(self, folder: str) -> str:
        """A single setting for all hosts that is a different folder on each host."""
        if self.isolated:
            return str(self.hosts[0].inside / folder)
        # Without namespaces, hosts only differ in the folder in which an executor works: <disk>/work/<application>/<executor>.
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
        """Task -> the folder with its latest step, on any host."""
        found: dict[tuple[str, int], tuple[int, Path]] = {}
        for host in self.hosts:
            for task in host.tasks(application_id):
                version, key = step_of(task.path), (task.sub_topology, task.task)
                if version > found.get(key, (0, task.path))[0]:
                    found[key] = version, task.path
        return {key: path for key, (_, path) in found.items()}

    @property
    def _spark_class(self) -> str:
        return str(pyspark_folder() / "bin" / "spark-class")

    @staticmethod
    def _environment(options: str) -> dict[str, str]:
        java = {"SPARK_DAEMON_JAVA_OPTS": f"{_java()} {options}".strip(), "SPARK_DAEMON_MEMORY": "192m"}
        # Executors find Python's modules by the environment of their worker.
        return {"SPARK_HOME": str(pyspark_folder()), "SPARK_NO_DAEMONIZE": "1", "PYTHONPATH": python_path(), **java}

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
    """The number of the step in a task's folder; 0: none."""
    if not (folder / "db" / "CURRENT").exists():
        return 0
    with tempfile.TemporaryDirectory(prefix="streams-drill-step-") as scratch:
        table = open_linked(folder / "db", Path(scratch) / "db")
        try:
            step = read_meta(table).step
        finally:
            table.close()
    return 0 if step is None else step[1]


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """Spark standalone on two hosts, until the block ends. If namespaces cannot be made, the hosts are loopback addresses."""
    with ExitStack() as stack:
        isolated = not why_not()
        if isolated:
            stack.enter_context(own_network())
        cluster = SparkCluster(folder, stack.enter_context(Watchdog()), isolated)
        stack.callback(cluster.end)
        cluster.start()
        yield cluster


# The application under test on a cluster: the driver is a process here, the workers are on hosts.

_COPY_S = 120.0


class ClusterApplication(Supervised):
    """An application on the hosts of a cluster. After a stop, `state` has the latest state of each task."""

    cluster: SparkCluster

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
        """The application's log lines, since its last start, about tasks that moved to another host."""
        return [line for line in self.current.log().splitlines() if " moved from " in line]
