"""What a drill is held with: a program, its input, and how its results are verified."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from streams.drills.reader import Follower, Read


@dataclass(frozen=True)
class Place:
    """Where an application under test runs.

    Attributes:
        servers: The broker's address.
        application_id: The id of the application.
        base_dir: The folder of its state and checkpoint.
        folder: A folder for what a verification makes.
    """

    servers: str
    application_id: str
    base_dir: Path
    folder: Path


class Flow(Protocol):
    """The input: it flows from `start` to `finish`.

    Attributes:
        paused: No records are written while this is true.
        failures: Records that could not be written.
        sent: The number of records so far.
    """

    paused: bool
    failures: list[str]
    sent: int

    @property
    def now_ms(self) -> int:
        """The event time that the flow has reached."""

    def start(self) -> None: ...

    def finish(self) -> None:
        """Writes the last records; may be called again."""

    def abandon(self) -> None:
        """Ends the flow without further records."""


class Subject(Protocol):
    """A program in a drill."""

    @property
    def target(self) -> str:
        """The program, as `streams run` takes it."""

    @property
    def inputs(self) -> Mapping[str, int]:
        """Source topics, with their partitions."""

    @property
    def outputs(self) -> Mapping[str, int]:
        """Topics of results, with their partitions."""

    @property
    def options(self) -> Sequence[str]:
        """Options of `streams run` that it needs."""

    def load(self, servers: str, seed: int, begin_ms: int | None = None) -> Flow:
        """The input."""

    def complete(self, place: Place, readers: Mapping[str, Follower]) -> Callable[[], bool]:
        """A function that tells whether the readers have seen all results; called once the flow has finished."""

    def wrong(self, place: Place, seen: Mapping[str, Sequence[Read]]) -> list[str]:
        """Compares results, commits and stores with what they must be; empty: all is right."""
