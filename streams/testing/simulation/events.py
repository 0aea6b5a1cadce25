"""The events of a simulation, which a test can observe, reject, delay, or crash at.

Every request to the simulated Kafka and every write to a simulated disk is an event; the hook is called before and after it. A
crash before an event is a process that ended without sending its request; a crash after an event, one that never read the
reply. An error after an event is a lost reply.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol


class Event(NamedTuple):
    """One request or one write.

    Attributes:
        kind: `init`, `send`, `offsets`, `commit`, `control` (a control record that ends a transaction on one partition), `read`,
            `ends`, `begins`, `delete` (DeleteRecords), `write` or `flush` (of a disk).
        where: The transactional id, topic-partition or disk.
        detail: A description for people.
    """

    kind: str
    where: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.where} {self.detail}".rstrip()


class Fate(Enum):
    """The outcome of an event."""

    NOW = "now"
    LATE = "late"
    """`commit`: the caller gets a timeout, the request arrives when `SimulatedKafka.deliver` is called. `control`: written then.
    `ends`: the answer is of a leader that is none any more, so of a while ago."""
    TWICE = "twice"
    """`commit`: answered so late that the client has sent it twice; the second request arrives like a late one."""


class Hook(Protocol):
    """Decides which events fail."""

    def before(self, event: Event) -> Fate:
        """Called before an event; an error raised here prevents the event and is raised to the caller."""

    def after(self, event: Event) -> None:
        """Called after an event; an error raised here is raised to the caller, although the event has happened."""


class NothingHappens:
    """A hook that lets every event succeed."""

    def before(self, event: Event) -> Fate:
        return Fate.NOW

    def after(self, event: Event) -> None:
        """See `Hook`."""


class Crash(BaseException):
    """Ends the process at this point. Not an `Exception`, so that no handler of the simulated process catches it."""
