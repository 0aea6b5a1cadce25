"""Deletes dead letters, from the oldest up to an offset of each partition, as Kafka deletes records (DeleteRecords)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from state.changelog.topics import INTERNAL_ENDINGS
from state.kafka.topics import TopicPartition
from streams.application.dead_letters.letters import Letter, Log, letters_of, places_of
from streams.application.dead_letters.replayed import read_replayed
from streams.errors import ConfigError


@dataclass
class PurgePlan:
    """What a purge would delete.

    Attributes:
        before: Partition of the topic -> the first offset that stays; without those where nothing is deleted.
        letters: The number of letters that go.
        not_replayed: How many of them have never been replayed.
        first_ms: When the oldest of them was written, ms; None: there is none.
        last_ms: When the newest of them was written, ms.
    """

    before: dict[TopicPartition, int] = field(default_factory=dict)
    letters: int = 0
    not_replayed: int = 0
    first_ms: int | None = None
    last_ms: int | None = None

    def add(self, letter: Letter, replayed: bool) -> None:
        self.before[letter.place] = letter.offset + 1
        self.letters += 1
        self.not_replayed += not replayed
        self.first_ms = letter.timestamp if self.first_ms is None else min(self.first_ms, letter.timestamp)
        self.last_ms = letter.timestamp if self.last_ms is None else max(self.last_ms, letter.timestamp)


@dataclass(frozen=True)
class Until:
    """How far to delete. In each partition, the first letter that must stay keeps all after it.

    Attributes:
        time_ms: Letters from this time on stay; None: whatever their time.
        offsets: Partition -> the first offset that stays; None: no such limit. Other partitions stay whole.
        replayed: Letters that have not been replayed stay.
    """

    time_ms: int | None = None
    offsets: Mapping[int, int] | None = None
    replayed: bool = False

    def keeps(self, letter: Letter, replayed: bool) -> bool:
        late = self.time_ms is not None and letter.timestamp >= self.time_ms
        beyond = self.offsets is not None and letter.offset >= self.offsets.get(letter.place[1], 0)
        return late or beyond or (self.replayed and not replayed)


def plan_purge(log: Log, topic: str, until: Until) -> PurgePlan:
    """Decides what to delete.

    Raises:
        TopicNotFoundError: The topic does not exist.
        ConfigError: It is an internal topic of an application.
    """
    if topic.endswith(INTERNAL_ENDINGS):
        raise ConfigError(
            f"{topic!r} is an internal topic of an application, and holds no dead letters but records that it still needs. Nothing "
            f"was deleted. Name the topic of dead letters"
        )
    plan, places = PurgePlan(), places_of(log, topic)
    known = read_replayed(log, topic)
    for place in places:
        for letter in letters_of(log, place):
            replayed = known.has(place[1], letter.offset)
            if until.keeps(letter, replayed):
                break
            plan.add(letter, replayed)
    return plan


def purge(plan: PurgePlan, delete_records: Callable[[Mapping[TopicPartition, int]], object]) -> None:
    if plan.before:
        delete_records(plan.before)
