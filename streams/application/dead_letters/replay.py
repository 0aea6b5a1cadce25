"""Replays dead letters, each once: in transactions that also remember which letters they have sent.

A letter goes through the retry topic of the operator that has failed, if it names one, and else to the topic that it came from,
with its own key, value, headers and timestamp. The order is that of `state.commit.step`: the producer fences an older replay of
the same letters and decides its transaction; only then is it read which letters are left. So a replay that was killed, repeated
or started twice sends nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from state.changelog.topics import INTERNAL_ENDINGS
from state.kafka.topics import TopicPartition
from streams.application.dead_letters.letters import Choice, Letter, Log, letters_of, places_of
from streams.application.dead_letters.replayed import Replayed, read_replayed, replay_id, replays_topic
from streams.errors import ConfigError
from streams.model.error_headers import ORIGIN
from streams.model.timestamps import RETRIED_TIME

TOGETHER = 500
"""The most letters in one transaction."""
_KEPT = (RETRIED_TIME, *ORIGIN)
"""What a retry topic's record says of itself besides its own headers."""


_NEVER = tuple(ending for ending in INTERNAL_ENDINGS if ending != "-repartition")
"""Names of topics to which no letter can lead. Records of repartition topics can fail, and so can go back there."""


class Kafka(Log, Protocol):
    """The requests to Kafka of a replay."""

    def producer(self, transactional_id: str) -> Any: ...


@dataclass
class ReplayPlan:
    """What a replay would do.

    Attributes:
        topic: The topic of dead letters.
        topic_id: Its id: the offsets of one that was deleted and created again are of other letters.
        offsets: Partition -> the offsets of all its letters.
        chosen: Partition -> the offsets of the letters to send.
        targets: Target -> the number of letters for it.
        done: The number of chosen letters that have been replayed already.
        left_out: Why chosen letters cannot be sent -> how many.
    """

    topic: str
    topic_id: str = ""
    offsets: dict[int, list[int]] = field(default_factory=dict)
    chosen: dict[int, list[int]] = field(default_factory=dict)
    targets: Counter[str] = field(default_factory=Counter)
    done: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def letters(self) -> int:
        return sum(map(len, self.chosen.values()))


def plan_replay(log: Log, topic: str, choice: Choice, to: str | None = None) -> ReplayPlan:
    """Reads all letters and decides which of them to send where.

    Raises:
        TopicNotFoundError: The topic does not exist.
        ConfigError: A target does not exist, or is the topic of dead letters itself.
    """
    places, replayed = places_of(log, topic), read_replayed(log, topic)
    plan = ReplayPlan(topic, replayed.topic_id)
    for place in places:
        offsets, chosen = plan.offsets.setdefault(place[1], []), plan.chosen.setdefault(place[1], [])
        for letter in letters_of(log, place):
            offsets.append(letter.offset)
            if not choice.has(letter):
                continue
            if replayed.has(place[1], letter.offset):
                plan.done += 1
            elif (target := to or letter.target) is None or letter.cut:
                plan.left_out[letter.left_out] += 1
            else:
                chosen.append(letter.offset)
                plan.targets[target] += 1
    _check_targets(log, plan)
    return plan


def _check_targets(log: Log, plan: ReplayPlan) -> None:
    gone = sorted(plan.targets.keys() - log.describe_topics(sorted(plan.targets)).keys())
    if gone:
        raise ConfigError(
            f"{plan.topic!r} has letters for {', '.join(map(repr, gone))}, which does not exist. Nothing was sent. Create it, name "
            f"another topic with --to, or choose other letters with --from-topic"
        )
    if forbidden := [name for name in plan.targets if name.startswith("__") or name.endswith(_NEVER)]:
        raise ConfigError(
            f"letters of {plan.topic!r} say that they came from {forbidden[0]!r}, an internal topic to which no record of a user "
            f"goes: somebody else wrote them. Nothing was sent. Name another topic with --to, or choose other letters"
        )
    if plan.topic in plan.targets:
        raise ConfigError(
            f"letters of {plan.topic!r} would be sent to that topic itself. Nothing was sent. Name another with --to"
        )


def replay(
    kafka: Kafka, plan: ReplayPlan, now_ms: Callable[[], int], to: str | None = None, together: int = TOGETHER
) -> int:
    """Sends the letters of a plan that have not been replayed meanwhile, and returns their number.

    Raises:
        ConfigError: The topic of the plan was deleted and created again.
    """
    sent = 0
    for partition, offsets in plan.chosen.items():
        left = iter(offsets)
        while some := list(islice(left, together)):
            sent += _Transaction(kafka, plan, (plan.topic, partition), now_ms(), to).send(some)
    return sent


@dataclass(frozen=True)
class _Transaction:
    """One transaction, with letters of one partition."""

    kafka: Kafka
    plan: ReplayPlan
    place: TopicPartition
    now_ms: int
    to: str | None

    def send(self, offsets: Sequence[int]) -> int:
        producer = self.kafka.producer(replay_id(self.plan.topic))
        try:
            producer.init_transactions()
            # Only now can no other replay commit anything more.
            replayed = read_replayed(self.kafka, self.plan.topic, fenced=True)
            self._check_same(replayed.topic_id)
            letters = list(self._left(offsets, replayed))
            if not letters:
                return 0
            now = self.kafka.describe_topics([self.plan.topic]).get(self.plan.topic)
            self._check_same(None if now is None else now.topic_id)
            producer.begin()
            for letter in letters:
                self._send(producer, letter)
            known = self.plan.offsets[self.place[1]]
            key, value = replayed.record(self.place[1], known, {letter.offset for letter in letters})
            producer.send(replays_topic(self.plan.topic), 0, key, value, self.now_ms)
            producer.flush()
            producer.commit()
        finally:
            producer.close()
        return len(letters)

    def _check_same(self, topic_id: str | None) -> None:
        if topic_id != self.plan.topic_id:
            raise ConfigError(
                f"{self.plan.topic!r} was deleted and created again after the replay was planned, so its letters are others. None "
                f"of these was sent. Run `streams dlq replay` again, and it shows which there are now"
            )

    def _left(self, offsets: Sequence[int], replayed: Replayed) -> Iterator[Letter]:
        wanted = {offset for offset in offsets if not replayed.has(self.place[1], offset)}
        for letter in letters_of(self.kafka, self.place, offsets[0], offsets[-1] + 1) if wanted else ():
            if letter.offset in wanted:
                yield letter

    def _send(self, producer: Any, letter: Letter) -> None:
        target, headers = self.to or letter.target, letter.own_headers
        if target == letter.retry_topic:
            headers = (*headers, *(one for one in letter.headers if one[0] in _KEPT))
            # Records there wait by the clock of the application. That of whoever replays may be ahead of it by a day.
            timestamp = max(0, min(self.now_ms, letter.timestamp))
        else:
            timestamp = max(0, letter.event_time)
        producer.send(target, None, letter.key, letter.value, timestamp, headers or None)


def summary(plan: ReplayPlan) -> Mapping[str, Any]:
    return {
        "topic": plan.topic,
        "letters": plan.letters,
        "targets": dict(plan.targets),
        "replayed_before": plan.done,
        "left_out": dict(plan.left_out),
    }
