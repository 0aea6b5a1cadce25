"""`Conditions`: what a drill needs of its world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Conditions:
    """What a drill needs of its world.

    Attributes:
        nodes: Brokers: 1, behind a proxy that knows requests, or 3 without one.
        broker: Settings of the brokers.
        options: Options of `streams run`.
        begin_ms: The event time of the first record; None: yesterday.
        soak_s: How long random faults fall in a soak, in seconds.
        hosts: Whether the application runs on a Spark cluster of two hosts.
    """

    nodes: int = 1
    broker: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    begin_ms: int | None = None
    soak_s: float = 60.0
    hosts: bool = False
