"""`streams replica` keeps warm copies of an application's stores on this host; `streams serve` answers reads of them over HTTP."""

from __future__ import annotations

import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from state.errors import TopicNotFoundError
from state.kafka.consumers import GroupMember
from state.restore.place import CopiedTask
from state.tables.files import make_private
from streams.application.restore import SERVED_AT_A_TIME, Replica, ReplicaPosition
from streams.application.stored_tasks import StoredTask, stored_tasks
from streams.cli.command import OptionGroup, command, option
from streams.cli.options import ApplicationOptions, AsJson, Target, complete_stores, duration_ms, live
from streams.cli.output import print_json_line
from streams.cli.progress import RestoreProgress
from streams.config.settings import Address
from streams.driver.stopping import stopped_by_signals
from streams.errors import ConfigError
from streams.logs.output import set_up_command
from streams.wording import did_you_mean

if TYPE_CHECKING:
    from streams.config import StreamsConfig
    from streams.serve.http.security import Guard
    from streams.serve.http.servers import Process
    from streams.serve.requests import Limits
    from streams.serve.server import StoreServer
    from streams.topology.topology import Topology

_POLL_S = 0.2
_TURN_S = 0.0005
"""How long a thread runs Python before another one gets its turn, in a process that serves."""
_MOST_WAIT_MS = 3_600_000


Stores = Annotated[
    list[str] | None,
    option("Keep only this store; may be repeated.", metavar="NAME", autocompletion=complete_stores),
]


@command
def replica(
    target: Target,
    *,
    store: Stores = None,
    group: Annotated[
        str | None,
        option(
            "The consumer group that shares the tasks: one copy of each task per group. Default: ID-replicas.",
            metavar="NAME",
        ),
    ] = None,
    parallel: Annotated[int, option("How many copies to update at a time.", min=1)] = 2,
    interval: Annotated[str, option("Time between two reports.", metavar="DURATION")] = "10s",
    once: Annotated[bool, option("Exit once each copy has reached a commit.")] = False,
    metrics: Annotated[
        str | None, option("Serve metrics of the copies at this address, for Prometheus.", metavar="HOST:PORT")
    ] = None,
    as_json: AsJson = False,
    application: ApplicationOptions,
) -> None:
    """Keep warm copies of an application's stores on this host, by following their changelogs.

    Start it on every host that may have to take over tasks. The replicas of
    a group share the tasks. The application finds the copies in replica_dir.
    Kafka is only read. Stop it with Ctrl-C or SIGTERM; the copies are kept.
    """
    topology, config = application.of(target)
    tasks = replica_tasks(stored_tasks(topology, config), store or [])
    interval_s = duration_ms("--interval", interval) / 1000
    make_private(config.replica_dir)
    kafka, group_id = live(config), group or f"{config.application_id}-replicas"
    latest: list[ReplicaPosition] = []
    report = partial(_report, config.application_id if as_json else None)
    with (
        metrics_of(latest, config.application_id, _address(metrics, "--metrics")) if metrics else nullcontext(),
        RestoreProgress() as progress,
        closing(Replica(kafka, tasks, config.replica_dir, progress, parallel)) as copies,
        closing(GroupMember(config.client, group_id, copies.topics)) as member,
    ):
        asked = threading.Event()
        with stopped_by_signals(asked.set, again=signal.default_int_handler):
            _follow(copies, member, interval_s, once, report, asked.is_set, latest)
        if asked.is_set():
            typer.echo(f"Ended; the copies stay in {config.replica_dir}.", err=True)


def _report(application_id: str | None, positions: list[ReplicaPosition]) -> None:
    """Prints how far the copies are, as JSON or as lines."""
    if application_id is not None:
        print_json_line({"application_id": application_id, "tasks": list(map(_as_dict, positions))})
        return
    for one in positions:
        typer.echo(_line(one))


@contextmanager
def metrics_of(latest: list[ReplicaPosition], application_id: str, address: Address) -> Iterator[None]:
    """Within the block, serves Prometheus metrics of the copies in the list."""
    from streams.metrics.export import collector_served
    from streams.metrics.serving import CopyFigures, replica_metrics

    def figures() -> Iterator[CopyFigures]:
        for one in tuple(latest):
            place = one.task.place
            yield CopyFigures(place.sub_topology, place.task, (one.behind, one.version, float(bool(one.fault))))

    with collector_served(replica_metrics(application_id, figures), address):
        yield


@dataclass(frozen=True)
class CopyOptions(OptionGroup):
    """The copies of a server, and the processes that share them."""

    group: Annotated[
        str | None,
        option("The consumer group whose members share the tasks. Default: ID-serve.", metavar="NAME"),
    ] = None
    directory: Annotated[
        Path | None,
        option(
            "Folder of the copies; each process needs its own. Default: serve, in --base-dir.", "--dir", metavar="DIR"
        ),
    ] = None
    parallel: Annotated[int, option("How many copies to update or restore at a time.", min=1, max=1000)] = (
        SERVED_AT_A_TIME
    )
    processes: Annotated[
        int,
        option(
            "How many processes listen at this address, to use more cores. Each has a copy of all tasks.", min=1, max=64
        ),
    ] = 1
    advertise: Annotated[
        str | None,
        option(
            "The URL at which other serving processes reach this one. Default: the address of --http.", metavar="URL"
        ),
    ] = None


@dataclass(frozen=True)
class CallerOptions(OptionGroup, panel="Who may ask"):
    """Options for the callers of a server, and for the limits of their requests."""

    token_file: Annotated[
        Path | None,
        option("Bearer tokens. Each line has a token, its role (read, write or admin) and a name.", metavar="FILE"),
    ] = None
    jwt_key: Annotated[
        Path | None,
        option(
            "Key that verifies JWTs with the claim scope: a public key or certificate as PEM, a JWKS, or a secret.",
            metavar="FILE",
        ),
    ] = None
    jwt_audience: Annotated[str | None, option("The audience that a JWT must name.", metavar="NAME")] = None
    jwt_issuer: Annotated[str | None, option("The issuer that a JWT must name.", metavar="NAME")] = None
    jwt_leeway: Annotated[str, option("How far the clock of the signer may be off.", metavar="DURATION")] = "30s"
    tls_cert: Annotated[Path | None, option("Certificate of this server.", metavar="FILE")] = None
    tls_key: Annotated[Path | None, option("Its key.", metavar="FILE")] = None
    tls_ca: Annotated[
        Path | None,
        option("CA certificate. Clients need a certificate of this CA to connect, and may then read.", metavar="FILE"),
    ] = None
    rate: Annotated[float | None, option("Maximum number of requests per caller and second.", metavar="N")] = None
    max_rows: Annotated[
        int, option("Maximum number of rows in a page, and of keys in a batch.", min=1, max=1_000_000)
    ] = 10_000
    max_wait: Annotated[str, option("How long a request waits for a position at most.", metavar="DURATION")] = "30s"

    def front(self, address: Address) -> _Front:
        """The checks, TLS settings and limits between callers and an address.

        Raises:
            ConfigError: Programs on other hosts could ask without authentication, or an option is wrong.
        """
        from streams.serve.http.security import Guard, Security, check_protected
        from streams.serve.requests import Limits
        from streams.serve.server import tls_options, trusted

        leeway_s = duration_ms("--jwt-leeway", self.jwt_leeway) / 1000
        security = Security(self.token_file, self.jwt_key, self.jwt_audience, self.tls_ca, self.jwt_issuer, leeway_s)
        check_protected(address.host, security)
        return _Front(
            Guard(security, self.rate),
            tls_options(self.tls_cert, self.tls_key, security),
            trusted(self.tls_cert, self.tls_key, security),
            Limits(most_rows=self.max_rows, wait_ms=_wait_ms(self.max_wait)),
        )


@dataclass(frozen=True)
class _Front:
    guard: Guard
    tls: Mapping[str, Any]
    tls_of_others: ssl.SSLContext | None
    limits: Limits


@command
def serve(
    target: Target,
    *,
    http: Annotated[
        str,
        option("Where to listen: HOST:PORT, or a port for programs on this host. 0: a free one.", metavar="ADDRESS"),
    ] = "8080",
    copies: CopyOptions,
    callers: CallerOptions,
    ui: Annotated[
        str | None,
        option("Also serve the dashboard, at this address, with these stores to browse.", metavar="HOST:PORT"),
    ] = None,
    application: ApplicationOptions,
) -> None:
    r"""Serve reads of an application's stores over HTTP, from copies that follow its commits.

    The application itself is not touched, and may run here or elsewhere.
    Callers on other hosts need a token, a JWT or a certificate.
    Needs: pip install 'streams-on-spark\[serve]'. Stop it with Ctrl-C or SIGTERM.
    """
    from streams.serve.http.servers import Process, check_installed, run_processes, this_process

    check_installed("serving stores over HTTP")
    address = _address(http, "--http")
    front = callers.front(address)
    topology, config = application.of(target, {"ui": ui})
    process = this_process()
    if copies.processes > 1 and process is None:
        asked = threading.Event()
        with stopped_by_signals(asked.set):
            raise typer.Exit(run_processes(copies.processes, address, asked))
    set_up_command(config.logs, config.application_id)
    _answer(topology, config, target, process or Process(0, address.port), address.host, copies, front, ui is not None)


def _answer(
    topology: Topology,
    config: StreamsConfig,
    target: str,
    process: Process,
    host: str,
    copies: CopyOptions,
    front: _Front,
    page: bool,
) -> None:
    """Serves in this process, until it is stopped or cannot follow its copies any more."""
    from streams.serve.app import Api
    from streams.serve.http.servers import http_server, watch_parent
    from streams.serve.routing import Router
    from streams.serve.server import StoreServer

    # Otherwise a read waits for 5 ms whenever a thread that follows commits is working.
    sys.setswitchinterval(_TURN_S)
    folder = process.folder(copies.directory or config.base_dir / "serve")
    group = process.group(copies.group or f"{config.application_id}-serve")
    with ExitStack() as open_here:
        listeners, url = _listeners(open_here, Address(host, process.port), copies, tls=bool(front.tls))
        server = open_here.enter_context(StoreServer(topology, config, folder, url, group, copies.parallel))
        if page and process.number == 0:
            open_here.enter_context(page_of_stores(topology, config, target, server, front))
        typer.echo(f"{config.application_id}: {', '.join(server.served.stores)} at {url}/v1/metadata")
        router = Router(server.nodes, front.tls_of_others)
        api = Api(server.served, front.guard, front.limits, lambda: server.trouble, server.reader, server.write, router)
        uvicorn = http_server(api.application(), {**front.tls, **api.options})
        # If a copy can never follow again, the command ends with its error.
        server.on_error = partial(setattr, uvicorn, "should_exit", True)
        if copies.processes > 1:
            watch_parent(server.on_error)
        uvicorn.run(sockets=listeners)


def _listeners(sockets: ExitStack, shared: Address, copies: CopyOptions, tls: bool) -> tuple[list[socket.socket], str]:
    """The sockets to listen at, and the URL by which other processes reach this one."""
    from streams.serve.http.servers import listening
    from streams.serve.server import own_url

    several = copies.processes > 1
    found = [sockets.enter_context(listening(shared, "stores", "--http", several))]
    if several:
        # The address of this process alone; at the shared port, any of the processes may answer.
        found.append(sockets.enter_context(listening(Address(shared.host, 0), "stores", "--http")))
    port = found[-1].getsockname()[1]
    return found, _reached(copies.advertise, port, copies.processes) or own_url(Address(shared.host, port), tls=tls)


def _reached(advertise: str | None, port: int, processes: int) -> str | None:
    """The URL at which other processes reach this one. If it is one of several, the URL has its own port."""
    if advertise is None or processes == 1:
        return advertise
    parts = urlsplit(advertise)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return parts._replace(netloc=f"{host}:{port}").geturl()


def _wait_ms(text: str) -> int:
    """Parses the option `--max-wait`.

    Raises:
        ConfigError: It is not a duration, or it is longer than connections stay open.
    """
    found = duration_ms("--max-wait", text)
    if not 0 <= found <= _MOST_WAIT_MS:
        raise ConfigError(f"--max-wait is at most {_MOST_WAIT_MS // 60_000} minutes, not {text}")
    return found


@contextmanager
def page_of_stores(
    topology: Topology,
    config: StreamsConfig,
    target: str,
    server: StoreServer,
    front: _Front,
) -> Iterator[None]:
    """Within the block, serves the page. Every viewer of the page may browse the stores, here and in the other processes."""
    from streams.serve.app import Api
    from streams.serve.http.security import Guard, Security
    from streams.serve.routing import Router
    from streams.ui.running import page_address, page_from_kafka
    from streams.ui.server import PageStores

    assert config.ui_address is not None, "the option --ui is the setting ui"
    # The page's thread has connections of its own.
    api = Api(server.served, Guard(Security()), front.limits, router=Router(server.nodes, front.tls_of_others))
    stores = PageStores.within(api.application(), config.ui_stores_token)
    with page_from_kafka(config, config.ui_address, topology, target, stores) as page:
        typer.echo(f"dashboard: {page_address(page.address)}")
        yield


def _address(text: str, option: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from error


def replica_tasks(tasks: list[StoredTask], stores: list[str]) -> list[CopiedTask]:
    """The tasks with one of the named stores; if none is named, the tasks with a store that has a changelog and is on disk."""
    fit = {node.name: node.spec for task in tasks for node in task.stores.values()}
    for name in stores:
        if name not in fit:
            raise ConfigError(f"there is no store {name!r}.{did_you_mean(name, fit)}")
        if not (fit[name].logged and fit[name].persistent):
            raise ConfigError(f"store {name!r} is only in memory, or has no changelog: there is nothing to follow")
    found = []
    for task in tasks:
        specs = [node.spec for node in task.stores.values() if not stores or node.name in stores]
        if followed := tuple(spec for spec in specs if spec.logged and spec.persistent):
            found.append(CopiedTask(task.place, followed))
    if not found:
        raise ConfigError("no store of this application is on disk and has a changelog: there is nothing to follow")
    return found


def _follow(
    copies: Replica,
    member: GroupMember,
    interval_s: float,
    once: bool,
    report: Callable[[list[ReplicaPosition]], None],
    ended: Callable[[], bool],
    latest: list[ReplicaPosition],
) -> None:
    reported, trouble = 0.0, ""
    while not ended():
        assigned = member.poll(_POLL_S)
        try:
            positions = copies.follow(assigned)
            wrong = copies.trouble and f"the brokers do not answer, still trying: {copies.trouble}"
        except TopicNotFoundError as error:
            # This happens while a rescale recreates the changelogs, or a reset deletes them. The copies follow them once they
            # exist.
            positions, wrong = [], f"a topic of the application is missing, still trying: {error}"
        if wrong and not trouble:
            typer.echo(wrong, err=True)
        trouble = wrong
        if wrong:
            continue
        latest[:] = positions
        member.commit(copies.offsets())
        done = once and bool(positions) and all(one.warm for one in positions)
        if positions and (done or time.monotonic() - reported >= interval_s):
            reported = time.monotonic()
            report(positions)
        if done:
            return


def _as_dict(one: ReplicaPosition) -> dict[str, object]:
    place = one.task.place
    return {
        "sub_topology": place.sub_topology,
        "task": place.task,
        "stores": [spec.name for spec in one.task.specs],
        "step": one.version,
        "behind": one.behind,
        "warm": one.warm,
        "fault": one.fault,
    }


def _line(one: ReplicaPosition) -> str:
    place = one.task.place
    where = f"{place.sub_topology} task {place.task}"
    if one.fault:
        return f"{where}: step {one.version}, cannot follow, trying again: {one.fault}"
    if one.behind is None:
        return f"{where}: restoring"
    return f"{where}: step {one.version:,}, {f'{one.behind:,} behind' if one.behind else 'up to date'}"
