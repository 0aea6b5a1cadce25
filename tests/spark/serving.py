"""Processes that serve an application's stores, and clients that read and write while something happens to them.

What every answer says of itself is checked against what was written and seen: everything below its position is in its row, it is
no older than it says, and each client's reads are monotonic.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from state.kafka.admin import KafkaAdmin
from state.kafka.key_hash import partition_for_key
from streams.broker.processes import free_ports
from streams.serve.client import StoreClient
from tests.spark.harness import Harness
from tests.spark.live import eventually
from tests.spark.processes import Application

TASKS = 2
KEYS = ("ann", "bob", "cid", "dan")
SESSION = "session.timeout.ms=6000"
"""After so long the group gives the tasks of a process that has said nothing to the others."""
READERS = 3
WAIT = "150s"
"""How long the result of a record is awaited: the first one comes when the application has started."""
TIMEOUT_S = 200


@dataclass
class Servers:
    """Processes that serve the application of a harness, by their URLs."""

    harness: Harness
    folder: Path
    processes: dict[str, Application] = field(default_factory=dict)

    def start(self, *options: str, port: int = 0) -> str:
        """Starts one more; or one again, at its port and with its copies."""
        port = port or free_ports(1)[0]
        own = self.folder_of(port)
        own.mkdir(exist_ok=True)
        url = f"http://127.0.0.1:{port}"
        command = self.command(str(port), own, *options)
        self.processes[url] = Application(command, own, self.harness.application_id)
        return url

    def folder_of(self, port: int) -> Path:
        """What a process has on disk."""
        return self.folder / f"serve-{port}"

    def command(self, http: str, own: Path, *options: str) -> list[str]:
        """The command line of a process."""
        command = [sys.executable, "-m", "streams", "serve", "tests.spark.apps:blocks", "--http", http]
        where = ["-a", self.harness.application_id, "-b", self.harness.servers, "-X", SESSION, "--max-wait", WAIT]
        place = ["--base-dir", str(self.harness.folder), "--dir", str(own / "copies")]
        return [*command, *where, *place, *options]

    def owners(self, key: str, among: list[str]) -> list[str]:
        """Those of these processes that have the task of a key: while it moves, two of a group."""

        def has(url: str) -> bool:
            (one,) = get(f"{url}/v1/metadata/counts", key=key).json()["tasks"]
            return bool(one["here"])

        return [url for url in among if has(url)]

    def log(self) -> str:
        return "\n".join(f"{url}: {one.log()}" for url, one in self.processes.items())

    def close(self) -> None:
        for one in self.processes.values():
            one.close()
        # pytest shows it where a test has failed.
        print(self.log())


TOKEN = "a-token-of-the-drills"
"""What clients show; processes that only this host reaches do not look at it."""
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def get(url: str, **params: str) -> httpx2.Response:
    return httpx2.get(url, params=params, headers=HEADERS, timeout=TIMEOUT_S)


def others(url: str) -> int:
    """How many other processes one has heard of."""
    return len(get(f"{url}/v1/metadata").json()["nodes"])


def has_all(url: str, tasks: int = TASKS) -> bool:
    """Whether a process can read all tasks by itself."""
    return [one["ready"] for one in get(f"{url}/v1/metadata").json()["copies"]] == [True] * tasks


def has_begun(harness: Harness) -> bool:
    """Whether the application has made its topics."""
    with KafkaAdmin({"bootstrap.servers": harness.servers}) as admin:
        return any(
            name.startswith(harness.application_id) and name.endswith("-commits") for name in admin.topic_names()
        )


def is_well(url: str) -> bool:
    try:
        return get(f"{url}/v1/health").status_code == 200
    except httpx2.TransportError:
        return False


class Written:
    """What was written, and what a client has been told of it.

    Args:
        topic: Where to.

    Attributes:
        killed: The process that need not answer any more.
        failed: What did not hold.
        reads: Answers that were checked.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.killed = ""
        self.failed: list[str] = []
        self.reads = 0
        self._lock = threading.Lock()
        self._offsets: dict[str, list[int]] = {key: [] for key in KEYS}
        """Key -> the offsets of its records."""
        self._seen: list[tuple[float, str, int]] = []
        """When somebody knew that a key had at least this count."""

    def wrote(self, key: str, record: dict[str, Any], count: int) -> None:
        """A record was written, and answered with the count of its key."""
        with self._lock:
            self._offsets[key].append(record["offset"])
            expected = len(self._offsets[key])
            self._seen.append((time.monotonic(), key, expected))
        if count != expected:
            self.failed.append(f"{key}: answered with {count} after {expected} records")

    def of(self, key: str) -> list[int]:
        """The offsets of a key's records."""
        with self._lock:
            return list(self._offsets[key])

    def read(self, key: str, asked_s: float, answer: httpx2.Response) -> None:
        """Checks an answer to a read of a key that has begun at this time."""
        if answer.status_code not in (200, 404):
            self.failed.append(f"{key}: {answer.status_code} {answer.text}")
            return
        count = answer.json().get("value", 0)
        position = dict(part.rsplit("=", 1) for part in answer.headers["streams-position"].split(",") if part)
        age_s = int(answer.headers["streams-age-ms"]) / 1000
        with self._lock:
            self.reads += 1
            reached = int(position.get(f"{self.topic}-{partition_for_key(key.encode(), TASKS)}", 0))
            least = sum(offset < reached for offset in self._offsets[key])
            known = max((one for at, of, one in self._seen if of == key and at <= asked_s - age_s), default=0)
        if count < least:
            self.failed.append(f"{key}: {count}, although {position} covers {least} records")
        if count < known:
            self.failed.append(f"{key}: {count}, although {known} was known {age_s} s before")


@contextmanager
def clients(urls: list[str], written: Written, writes: bool = True) -> Iterator[Callable[[], None]]:
    """Clients that read all keys of all processes, and perhaps one that writes, until the end; what is given asks for progress."""
    ended, threads = threading.Event(), list[threading.Thread]()
    rounds = [0] * (READERS + writes)

    def loop(number: int, once: Callable[[], None]) -> None:
        try:
            while not ended.is_set():
                once()
                rounds[number] += 1
        except Exception as error:
            written.failed.append(f"client {number}: {error!r}")

    def reader() -> Callable[[], None]:
        # A host that is lost refuses no connection, and answers nothing on one that is there.
        http = httpx2.Client(timeout=httpx2.Timeout(20, connect=2), headers=HEADERS)

        def once() -> None:
            for key in KEYS:
                for url in urls:
                    asked_s = time.monotonic()
                    try:
                        answer = http.get(f"{url}/v1/stores/counts/keys/{key}")
                    except httpx2.TransportError as error:
                        if url != written.killed:
                            written.failed.append(f"{url}: {error!r}")
                        continue
                    # A process that has just been started again says so until it has its copies, as its health does.
                    if url != written.killed or answer.status_code != 503:
                        written.read(key, asked_s, answer)

        return once

    def typed() -> Callable[[], None]:
        store = StoreClient(urls, "counts", value=int, token=TOKEN, wait="30s")
        last = dict.fromkeys(KEYS, 0)

        def once() -> None:
            for key in KEYS:
                count = store.get(key) or 0
                if count < last[key]:
                    written.failed.append(f"{key}: a client went back from {last[key]} to {count}")
                last[key] = count
            rows = store.get_all(KEYS)
            if any(rows.get(key, 0) < last[key] for key in KEYS):
                written.failed.append(f"a batch went back from {last} to {rows}")

        return once

    def writer() -> Callable[[], None]:
        http = httpx2.Client(timeout=TIMEOUT_S, headers=HEADERS)

        def once() -> None:
            for key in KEYS:
                # The last process is the one that stays.
                write(http, urls[-1], written, key)

        return once

    made = [reader(), reader(), typed(), *([writer()] if writes else [])]
    for number, once in enumerate(made):
        threads.append(threading.Thread(target=loop, args=(number, once)))
        threads[-1].start()

    def progress() -> None:
        before = list(rounds)
        eventually(
            lambda: bool(written.failed) or all(now >= then + 2 for now, then in zip(rounds, before, strict=True)),
            "every client goes on",
        )
        assert not written.failed, written.failed[:5]

    try:
        yield progress
    finally:
        ended.set()
        for thread in threads:
            thread.join(TIMEOUT_S)


def write(http: httpx2.Client, url: str, written: Written, key: str) -> None:
    """Writes a record of a key, and waits for its count."""
    asked = f"{url}/v1/topics/{written.topic}?await=counts&wait={WAIT}"
    answer = http.post(asked, json={"key": key, "value": 1})
    body = answer.json()
    if answer.status_code != 200 or not body["processed"]:
        written.failed.append(f"{key}: {answer.status_code} {answer.text}")
        return
    written.wrote(key, body["record"], body["row"]["value"])


def copies(url: str) -> list[object]:
    """The copies that a process has."""
    found: list[object] = get(f"{url}/v1/metadata").json()["copies"]
    return found


def ready(servers: Servers, shared: list[str], whole: str) -> str:
    """Waits until all of them serve and know each other; gives the one of those that share the tasks that has the first key."""
    everybody = [*shared, whole]
    for url in everybody:
        servers.processes[url].wait_until(lambda url=url: is_well(url), "it serves", 200)
    others_are = len(everybody) - 1
    eventually(lambda: has_all(whole) and all(others(url) == others_are for url in everybody), "all hear of each other")
    # The first to come has all tasks until the group has shared them out.
    eventually(
        lambda: all(copies(url) for url in shared) and all(len(servers.owners(key, shared)) == 1 for key in KEYS),
        "the tasks are shared",
    )
    return servers.owners(KEYS[0], shared)[0]


def lose(servers: Servers, shared: list[str], whole: str, topic: str, kill: Callable[[str], None]) -> None:
    """Clients read and write while the process that has a key is lost: no read fails, and the other one gets the task."""
    owner = ready(servers, shared, whole)
    (left,) = set(shared) - {owner}
    written = Written(topic)
    # The first commands of an application that has never committed anything.
    with clients([owner, left, whole], written) as progress:
        progress()
        written.killed = owner
        kill(owner)
        progress()
        # The other one of the group gets the task, and answers by itself.
        eventually(lambda: servers.owners(KEYS[0], [left]) == [left], "the task has moved")
        progress()
    assert not written.failed, written.failed[:5]
    assert written.reads > 100
