"""What happens in a simulation, as events that a test can see coming, forbid, delay, or die at.

Every request to the simulated Kafka and every write to a simulated disk is an event: the hook is asked before it and told
after it. A crash before an event is a process that died with its request dirty; a crash after it, one that never read
the reply. An error after it is a reply that was lost.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol


class Event(NamedTuple):
    """One request or one write.

    Attributes:
        kind: `init`, `send`, `offsets`, `commit`, `control` (a control record that ends a transaction on one partition), `read`,
            `ends`, `begins`, `delete` (DeleteRecords), `write` or `flush` (of a disk).
        where: Transactional id, topic-partition or disk.
        detail: For people.
    """

    kind: str
    where: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.where} {self.detail}".rstrip()


class Fate(Enum):
    """What is to become of an event."""

    NOW = "now"
    LATE = "late"
    """`commit`: the caller gets a timeout, the request arrives when `SimulatedKafka.deliver` is called. `control`: written then.
    `ends`: the answer is of a leader that is none any more, so of a while ago."""


class Hook(Protocol):
    """Decides what goes wrong."""

    def before(self, event: Event) -> Fate:
        """Called before an event; an error that it raises is the event's, and the event does not happen."""

    def after(self, event: Event) -> None:
        """Called after it; an error that it raises is the caller's, but the event has happened."""


class NothingHappens:
    """All goes well."""

    def before(self, event: Event) -> Fate:
        """See `Hook`."""
        return Fate.NOW

    def after(self, event: Event) -> None:
        """See `Hook`."""


class Crash(BaseException):
    """The process dies here. Not an error: no handler of the code that dies may take it for one."""
