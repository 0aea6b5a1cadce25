"""`Retry`: what becomes of the records that an operator fails on, if they are to be tried again later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from streams.errors import TopologyError
from streams.model.windows import Duration, to_ms


@dataclass(frozen=True)
class Retry:
    """Tries a record again after each of some delays, and sends it to a topic of dead letters after the last one.

    A record that fails is written to a retry topic of the application, in the transaction of the step in which it failed, and
    read again once the topic's delay has passed; meanwhile the other records go on. There is one retry topic for each delay.

    Example:
        >>> retry = Retry([1_000, 10_000, timedelta(minutes=1)], dead_letters="orders.dlq", keep_order=True)
        >>> orders.process_values(Ship, named="ship", on_error=retry)

    Args:
        delays: How long a record waits before each further attempt: each a `timedelta` or milliseconds.
        dead_letters: The topic for records that have failed in all attempts. It must exist.
        keep_order: Whether later records of a key wait behind those that failed. Records without a key never wait.

    Raises:
        TopologyError: There is no delay, a delay is negative, or there is no topic.
    """

    delays: Sequence[Duration]
    dead_letters: str
    keep_order: bool = False
    delays_ms: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.delays, str | bytes) or not isinstance(self.delays, Sequence) or not self.delays:
            raise TopologyError(
                f"Retry takes a list with the delay before each further attempt, such as Retry([1_000, 60_000], ...), not "
                f"{self.delays!r}."
            )
        if not isinstance(self.dead_letters, str) or not self.dead_letters:
            raise TopologyError(
                f"Retry(dead_letters=...) is the name of the topic for records that have failed in all attempts, not "
                f"{self.dead_letters!r}."
            )
        delays = tuple(to_ms(delay, "A delay of Retry") for delay in self.delays)
        if min(delays) < 0:
            raise TopologyError(f"A delay of Retry must not be negative, as in {list(self.delays)!r}.")
        object.__setattr__(self, "delays_ms", delays)
