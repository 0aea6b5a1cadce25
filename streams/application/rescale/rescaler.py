"""The rescale of an application: all of its sub-topologies, so that no start finds some of them with another number of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streams.application.rescale.sub_rescale import SubRescale


@dataclass(frozen=True)
class Rescaler:
    """Takes an application to another number of tasks, or goes on with what an interrupted run has begun.

    Attributes:
        subs: The sub-topologies.
    """

    subs: Sequence[SubRescale]

    @property
    def waiting(self) -> list[SubRescale]:
        """The sub-topologies with something to do."""
        return [sub for sub in self.subs if sub.needed]

    def check(self) -> None:
        """Checks all that can be checked without reading the state; writes nothing.

        Raises:
            StreamsError: The rescale is refused.
        """
        for sub in self.waiting:
            sub.check()

    def run(self) -> None:
        """Does it. Nothing is replaced before the copies of all sub-topologies are complete.

        Raises:
            StreamsError: The rescale is refused, or a request to Kafka has failed; the next run goes on.
        """
        for sub in self.subs:
            sub.settle()
        waiting = self.waiting
        self.check()
        # The notes of all come first: they keep the application from being started, until the last of them is deleted.
        for sub in waiting:
            sub.begin()
        for sub in waiting:
            sub.stage()
        for sub in waiting:
            sub.close()
        for sub in waiting:
            sub.replace()
        for sub in waiting:
            sub.clean_up()

    def abort(self) -> None:
        """Takes back a rescale that has replaced nothing yet.

        Raises:
            RescaleError: Something was replaced already.
        """
        for sub in self.subs:
            sub.settle()
            sub.check_abort()
        for sub in self.subs:
            sub.abort()
