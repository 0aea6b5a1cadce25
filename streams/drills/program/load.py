"""A continuous flow of orders and payments, at a modest rate, with event times of their own."""

from __future__ import annotations

import random
import time

import orjson

from streams.drills.load import LoadThread
from streams.drills.program.topology import GRACE_MS, INPUTS, KEYS, ORDERS
from streams.drills.reader import SOON_ELSEWHERE

RATE = 120
"""Records a second."""
EVENT_MS = 80
"""Event time between two records, ms: about ten times as fast as the clock, so that windows close."""
JITTER_MS = 900
UNSENT = 100
"""Most records that may wait for an unreachable broker. A partition has about a fifth of all records, so the others get 40 s of
event time ahead of it. The windows' grace leaves 80 s for readers that find its new leader late, which is 8 s of the clock."""
_TICK_S = 0.05
_DAY_MS = 86_400_000


class Load(LoadThread):
    """A thread that writes records until `finish`; the verification reads them back from Kafka.

    Args:
        servers: The broker's address.
        seed: The seed of keys, topics and times.
        begin_ms: The first event time; default: yesterday, so that nothing is ever ahead of the clock.

    Attributes:
        sent: The number of records so far.
        failures: The client's errors.
        paused: No records are written while this is true.
    """

    def __init__(self, servers: str, seed: int, begin_ms: int | None = None) -> None:
        # Idempotent and with a long timeout: each record is written once and in order, however long the broker is away.
        client = {"enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 600_000}
        # New partitions and new leaders are to be found soon.
        super().__init__({"bootstrap.servers": servers, "partitioner": "murmur2_random", **client, **SOON_ELSEWHERE})
        self._drawn = random.Random(seed)
        self._now_ms = int(time.time() * 1000) - _DAY_MS if begin_ms is None else begin_ms

    def run(self) -> None:
        while not self._finish.wait(_TICK_S):
            for _ in range(0 if self.paused else int(RATE * _TICK_S)):
                if len(self._producer) < UNSENT:
                    self._send(
                        self._drawn.choice(INPUTS), self._drawn.randrange(KEYS), self._drawn.randrange(JITTER_MS)
                    )
                    self._now_ms += EVENT_MS
            self._producer.poll(0)

    @property
    def now_ms(self) -> int:
        """The event time that the flow has reached."""
        return self._now_ms

    def finish(self) -> None:
        """Ends the flow with an order for each key that closes all windows before it. Does nothing the second time."""
        if self._finish.is_set():
            return
        self._end()
        self._now_ms += 2 * GRACE_MS
        for key in range(KEYS):
            self._send(ORDERS, key, 0)
        self._flush()

    def _send(self, topic: str, key: int, earlier_ms: int) -> None:
        self.sent += 1
        value = orjson.dumps({"id": f"{topic}-{self.sent}"})
        self._producer.produce(
            topic, value, b"key-%d" % key, timestamp=self._now_ms - earlier_ms, on_delivery=self._delivered
        )
