"""`Nodes`: the processes that serve an application. They announce themselves to each other through a compacted topic.

Every process writes a record about itself every two seconds, and at once when its copies change: where it can be reached, and which
tasks it has. Invariants: no two clocks are compared; a process that has not been heard of for ten seconds is not asked any more;
while Kafka does not answer, no process is given up, because none can be heard of.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from state.errors import StreamsError
from streams.serve.position import Step, newest, parse_step

log = logging.getLogger(__name__)

BEAT_S = 2.0
"""How often a process announces that it is alive."""
_LOOK_S = 0.25
_GONE_S = 10.0


@dataclass(frozen=True, slots=True)
class Node:
    """A process that serves stores.

    Attributes:
        id: Its name, which no other process has.
        url: Where the others reach it.
        group: The consumer group in which it shares the tasks.
        copies: The copies that it has, as `Served.metadata` describes them.
    """

    id: str
    url: str
    group: str
    copies: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def from_bytes(cls, id_: bytes, value: bytes) -> Node | None:
        """The process that a record describes; None: another version has written the record."""
        try:
            data = orjson.loads(value)
            return cls(id_.decode(), str(data["url"]), str(data["group"]), tuple(data["copies"]))
        except (ValueError, KeyError, TypeError):
            return None

    def to_bytes(self) -> bytes:
        """The value of the record."""
        return orjson.dumps({"url": self.url, "group": self.group, "copies": list(self.copies)})

    def commit(self, sub: str, task: int, of: int) -> int | None:
        """The commit at which a task, one of `of` tasks, can be read in this process; None: it cannot be read there.

        The number of tasks matters: before a rescale, the task with the same number had other keys.
        """
        for copy in self.copies:
            if (copy["sub_topology"], copy["task"], copy.get("tasks", of)) == (sub, task, of):
                return int(copy["commit"]) if copy["ready"] else None
        return None


class NodeLog(Protocol):
    """The log in which the processes announce themselves."""

    def write(self, id_: bytes, value: bytes | None) -> None: ...
    def read(self) -> Iterable[tuple[bytes, bytes | None]]:
        """The records that were written since the last call."""


class Nodes:
    """The other processes that serve an application, and the announcements of this one.

    Args:
        id_: The name of this process.
        log: The log in which the processes announce themselves.
        me: Returns the current description of this process.
        clock_s: A monotonic clock.

    Attributes:
        trouble: Why this process cannot hear of the others now; empty: it can.
    """

    def __init__(
        self, id_: str, log: NodeLog, me: Callable[[], Node], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.id = id_
        self._log = log
        self._me = me
        self._clock_s = clock_s
        self._heard_s = 0.0
        """A clock that stops while Kafka does not answer."""
        self._looked_s = clock_s()
        self._others: dict[str, tuple[Node, float]] = {}
        self._silent: set[str] = set()
        self._told: tuple[object, float] | None = None
        self.trouble = ""

    def others(self) -> list[Node]:
        """The other processes that are alive."""
        return [node for node, seen_s in list(self._others.values()) if self._heard_s - seen_s <= _GONE_S]

    def with_task(self, sub: str, task: int, of: int) -> list[Node]:
        """The other processes that have a task, one of `of` tasks; the processes with the latest commits come first."""
        found = []
        for node in self.others():
            commit = node.commit(sub, task, of)
            if node.id not in self._silent and commit is not None:
                found.append((commit, node))
        return [node for _, node in sorted(found, key=lambda one: (-one[0], one[1].id))]

    def newest_step(self, sub: str) -> Step:
        """The last micro-batch of a sub-topology for which another process has a commit."""
        told = (copy.get("step") for node in self.others() for copy in node.copies if copy["sub_topology"] == sub)
        return newest(parse_step(text) for text in told if text)

    def failed(self, node: Node, why: str) -> None:
        """Notes that a process does not answer. It is asked again only after it has announced itself again."""
        log.warning("%s at %s does not answer: %s", node.id, node.url, why)
        self._silent.add(node.id)

    def run(self, ended: threading.Event) -> None:
        """Announces this process and reads the announcements of the others, until the event is set."""
        while not ended.is_set():
            self.look()
            ended.wait(_LOOK_S)
        if not self.trouble:
            self._leave()

    def look(self) -> None:
        """Announces this process if it is time, and reads what the others have written."""
        try:
            me = self._me()
            self._tell(me)
            self._hear(me.url)
            self.trouble = ""
        except Exception as error:
            # After any error, the known processes still count, and the next look tries again.
            if not self.trouble:
                log.warning("the serving processes cannot find each other now: %s", error)
            self.trouble = str(error) or repr(error)
        self._looked_s = self._clock_s()

    def _tell(self, me: Node) -> None:
        now_s = self._clock_s()
        has = sorted((copy["sub_topology"], copy["task"], copy["ready"]) for copy in me.copies)
        if self._told is None or self._told[0] != has or now_s - self._told[1] >= BEAT_S:
            self._log.write(self.id.encode(), me.to_bytes())
            self._told = has, now_s

    def _hear(self, url: str) -> None:
        found = list(self._log.read())
        self._heard_s += min(self._clock_s() - self._looked_s, 4 * _LOOK_S)
        for key, value in found:
            id_ = key.decode(errors="replace")
            node = None if value is None else Node.from_bytes(key, value)
            self._silent.discard(id_)
            # Another process with this process's address is forgotten, too: it had the address before, and is gone.
            if node is None or (node.url == url and id_ != self.id):
                self._others.pop(id_, None)
            elif id_ != self.id:
                self._others[id_] = node, self._heard_s

    def _leave(self) -> None:
        try:
            self._log.write(self.id.encode(), None)
        except StreamsError as error:
            log.info("this process could not say that it ends: %s", error)
