"""The limits of output topics without Kafka, by the settings of the test."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from state.kafka.topics import TopicLimits, limits_of


class MemoryTopics:
    """`OutputTopics` of the test driver.

    Args:
        partitions: The number of partitions of a topic.
        configs: Settings by topic; None: every topic exists and accepts every record.
        named: The topics that the program names, which always exist.
        now_ms: The driver's clock.
    """

    def __init__(
        self,
        partitions: Callable[[str], int],
        configs: Mapping[str, Mapping[str, str]] | None,
        named: Callable[[], Collection[str]],
        now_ms: Callable[[], int],
    ) -> None:
        self._partitions = partitions
        self._configs = configs
        self._named = named
        self.now_ms = now_ms

    def limits(self, topic: str) -> TopicLimits | None:
        """See `OutputTopics`."""
        if self._configs is not None and topic not in self._configs and topic not in self._named():
            return None
        return limits_of(self._partitions(topic), (self._configs or {}).get(topic, {}))
