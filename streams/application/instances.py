"""Finds out which process runs an application, and allows only one. Also has the application's life cycle.

Two things show that an application runs, and both end with its process, however it ends:

* a lock on a file in the checkpoint's folder, for processes that share the folder;
* a member of the consumer group `<application id>-running`, for all other processes. It joins the group, but reads and commits
  nothing. If the broker hears nothing from a member for `SESSION_MS`, it considers the member dead. This is not the group of the
  committed offsets. That group has no members: if it had, brokers would refuse offsets that a process outside the group commits.

Neither of them protects the state: the commit protocol does that. They only help to give the right advice.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum

from state.errors import KafkaClientError
from state.kafka.admin import KafkaAdmin
from state.kafka.consumers import GroupMember
from state.kafka.topics import partitions_of
from streams.application.owned_topics import local_folder
from streams.broker.processes import file_lock
from streams.cluster.admin import Survey
from streams.config import StreamsConfig
from streams.errors import AlreadyRunningError

log = logging.getLogger(__name__)

LOCK = "running.lock"
_GROUP = "-running"
"""The ending of the group's name."""
_GROUP_TRIES = 20
"""How often the coordinator is asked for the group of the offsets while it is away."""
SESSION_MS = 6_000
"""The shortest time that brokers allow by default (`group.min.session.timeout.ms`)."""
_GONE_WITHIN_S = SESSION_MS / 1000 + 4
_LOCK_WITHIN_S = 2.0
"""A process that ends releases its lock at once; one that was just asked to end may take a moment."""
_POLL_S = 0.5
_OURS = "streams-driver"


@dataclass(frozen=True)
class Instance:
    """A process that runs an application."""

    host: str
    pid: int
    since: str

    @classmethod
    def this(cls) -> Instance:
        return cls(socket.gethostname(), os.getpid(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))

    @classmethod
    def of(cls, text: str) -> Instance | None:
        """Parses the instance that a client id or a lock file names; None: it names none."""
        found = re.match(rf"{_OURS}/([^/]*)/(\d+)/([^ /]*)", text)
        return None if found is None else cls(found[1], int(found[2]), found[3])

    @property
    def client_id(self) -> str:
        """The client id with which the instance joins the group."""
        return f"{_OURS}/{self.host}/{self.pid}/{self.since}"

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


@contextmanager
def only_instance(config: StreamsConfig) -> Iterator[None]:
    """Keeps other processes from running the application on the same local checkpoint, within the block."""
    folder = local_folder(config.checkpoint_dir)
    with ExitStack() as stack:
        if folder is not None:
            try:
                stack.enter_context(file_lock(folder / LOCK, _LOCK_WITHIN_S))
            except TimeoutError as error:
                other = Instance.of((folder / LOCK).read_text())
                raise AlreadyRunningError(
                    f"another instance of {config.application_id} is running on the same checkpoint, {folder}"
                    + (f": {other}" if other else "")
                    + ". Nothing was written. Stop it first, or let it run"
                ) from error
            (folder / LOCK).write_text(Instance.this().client_id)
        yield


@contextmanager
def shown_as_running(config: StreamsConfig, topics: Sequence[str]) -> Iterator[None]:
    """Shows others, within the block, that this process runs the application."""
    ended = threading.Event()
    thread = threading.Thread(target=_take_part, args=(config, topics, ended), name="streams-instance", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _take_part(config: StreamsConfig, topics: Sequence[str], ended: threading.Event) -> None:
    client = {**config.client, "client.id": Instance.this().client_id, "session.timeout.ms": str(SESSION_MS)}
    client["heartbeat.interval.ms"] = str(SESSION_MS // 3)
    try:
        with closing(GroupMember(client, config.application_id + _GROUP, topics)) as member:
            while not ended.is_set():
                member.poll(_POLL_S)
    except KafkaClientError as error:
        log.info("other processes cannot see that %s runs: %s", config.application_id, error)


def seen_as_running(application_id: str, client: Mapping[str, str]) -> Instance | None:
    """The instance that is a member of the group; None if there is none, or the brokers do not answer."""
    with suppress(KafkaClientError):
        for member in Survey(client).group_members(application_id + _GROUP):
            if found := Instance.of(member):
                return found
    return None


def group_is_shared(application_id: str, members: Sequence[str]) -> str:
    """The message for consumers that are members of the group in which an application commits its offsets."""
    return (
        f"consumers have joined the group {application_id} ({', '.join(members)}), which belongs to the application: they "
        f"overwrite the offsets of its tasks with their own"
    )


def check_group_is_free(
    config: StreamsConfig,
    members: Callable[[str], Sequence[str]] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Refuses to run next to another program with the same application id, such as the Kafka Streams application that it replaces.

    No process of this engine is a member of the group of the offsets, so every member is another program. A broker takes the tasks'
    offsets although the group has members: both programs would write the offsets and the changelogs.

    Args:
        config: The settings of the application.
        members: The members of a group; default: asks the brokers.
        sleep: Waits, seconds.

    Raises:
        AlreadyRunningError: The group has members.
        KafkaClientError: The brokers do not answer.
    """
    members = Survey(config.client).group_members if members is None else members
    for left in reversed(range(_GROUP_TRIES)):
        try:
            found = members(config.application_id)
            break
        except KafkaClientError as error:
            # The group's coordinator is unavailable for a moment after its broker, or the whole cluster, has started.
            if left == 0 or error.failure is None or not error.failure.transient:
                raise
            sleep(_POLL_S)
    if found:
        raise AlreadyRunningError(
            f"{group_is_shared(config.application_id, found)}. If it is a Kafka Streams application, stop it first, or "
            "start this one under another application_id. Give other consumers another group.id. Nothing was written"
        )


def check_not_running(
    config: StreamsConfig,
    admin: KafkaAdmin,
    topics: Iterable[str],
    advice: str = "Stop it first (Ctrl-C or SIGTERM)",
    sleep: Callable[[float], None] = time.sleep,
    seen: Callable[[str, Mapping[str, str]], Instance | None] = seen_as_running,
) -> None:
    """Refuses to change the state of an application that runs elsewhere.

    A process that was killed counts as running for some seconds, so this waits for that time.
    """
    app, waited = config.application_id, 0.0
    while (other := seen(app, config.client)) is not None and waited < _GONE_WITHIN_S:
        sleep(1)
        waited += 1
    if other is None:
        return
    places = partitions_of(admin.describe_topics(topics))
    newest = max(admin.max_timestamps(places).values(), default=-1)
    age = (
        f"its last commit is {max(0, int(time.time()) - newest // 1000)} s old"
        if newest >= 0
        else "it has not committed"
    )
    raise AlreadyRunningError(f"another instance of {app} is running: {other}; {age}. Nothing was written. {advice}")


@contextmanager
def while_stopped(config: StreamsConfig, admin: KafkaAdmin, topics: Iterable[str]) -> Iterator[None]:
    """A block for commands that change an application's state, during which it neither runs nor starts on this checkpoint.

    Raises:
        AlreadyRunningError: A process runs it.
    """
    with only_instance(config):
        check_not_running(config, admin, topics)
        yield


# --- The life cycle of an application that runs in the background (Kafka Streams: `KafkaStreams.State`).


class ApplicationState(str, Enum):
    """The states of an application's life cycle.

    Attributes:
        CREATED: Created, and not started yet.
        STARTING: Topics are being prepared; Spark and the queries are starting.
        RUNNING: Every query that can run has been started.
        STOPPING: A stop was requested; running micro-batches are finishing.
        STOPPED: Ended, by a stop or because everything was processed (`available_now`). A new start is not possible.
        ERROR: Ended with an error, which `await_termination` raises.
    """

    CREATED = "CREATED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    ERROR = "ERROR"

    def __str__(self) -> str:
        return self.value


MAY_FOLLOW: Mapping[ApplicationState, tuple[ApplicationState, ...]] = {
    ApplicationState.STARTING: (ApplicationState.CREATED,),
    ApplicationState.RUNNING: (ApplicationState.STARTING,),
    ApplicationState.STOPPING: (ApplicationState.STARTING, ApplicationState.RUNNING),
    ApplicationState.STOPPED: (
        ApplicationState.CREATED,
        ApplicationState.STARTING,
        ApplicationState.RUNNING,
        ApplicationState.STOPPING,
    ),
    ApplicationState.ERROR: (ApplicationState.STARTING, ApplicationState.RUNNING, ApplicationState.STOPPING),
}
"""The states that each state may follow; a change that comes too late is ignored."""
