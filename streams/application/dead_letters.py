"""Dead letters after they were written: their contents, the record of replays, and how they are replayed and deleted."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from state.changelog import INTERNAL_ENDINGS
from state.errors import OffsetsLostError, TopicNotFoundError
from state.headers import decode_headers
from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicInfo, TopicPartition
from streams.engine.graph.handlers import OUTSIDE
from streams.errors import ConfigError
from streams.model.record import COUNTED_BY, CUT, ERROR_HEADERS, ORIGIN, Headers, plain_headers
from streams.model.timestamps import RETRIED_TIME
from streams.operators.attempts import ATTEMPT, TOPIC
from streams.topology.graph import Failed, Graph
from streams.topology.plan import Plan

if TYPE_CHECKING:
    from state.columns import RecordColumns


class LetterLog(Protocol):
    """The requests to Kafka that read and replay dead letters."""

    def log_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """Last stable offset and end of each log, once no transaction is open."""

    def begin_offset(self, partition: TopicPartition) -> int: ...
    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...
    def describe_topics(self, names: Sequence[str]) -> Mapping[str, TopicInfo]: ...
    def partition_count(self, topic: str) -> int: ...
    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]: ...
    def producer(self, transactional_id: str) -> Any: ...


@dataclass(frozen=True)
class Letter:
    """One dead letter.

    Attributes:
        timestamp: When it was written, ms.
    """

    place: TopicPartition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @cached_property
    def _text(self) -> Mapping[str, str]:
        return {name: (value or b"").decode(errors="backslashreplace") for name, value in self.headers}

    def error(self, name: str) -> str:
        """A part of the error: `exception`, `message`, `stacktrace`, `stage`, `topic`, `partition`, ..."""
        return self._text.get(ERROR_HEADERS + name, "")

    @property
    def origin(self) -> str:
        """The position of the record that failed: `orders-0@17`; empty if there was no single one."""
        topic = self.error("topic")
        where = f"{topic}-{self.error('partition')}@{self.error('offset')}" if topic else ""
        return "a row from outside Kafka" if self._is_row else where

    @property
    def _is_row(self) -> bool:
        """Whether the letter is a row that an ingest could not turn into a record; its key and value are then the row's text."""
        return self.error("partition") == str(OUTSIDE)

    @property
    def attempts(self) -> int:
        return int(self._text.get(ATTEMPT) or 1)

    @property
    def event_time(self) -> int:
        """The record's own timestamp, ms."""
        return int(self._text.get(RETRIED_TIME) or self.error("timestamp") or self.timestamp)

    @property
    def retry_topic(self) -> str | None:
        """The retry topic of the failed operator, through which the record returns to that operator alone; None: it has none."""
        return self._text.get(TOPIC)

    @property
    def target(self) -> str | None:
        """The topic that a replay sends the record to: the operator's retry topic, or else the record's own; None: none."""
        return self.retry_topic or self.error("topic") or None

    @property
    def cut(self) -> str:
        """The parts of the record that were left out because the letter would have been too large; empty: none."""
        parts = (part for part in self._text.get(CUT, "").split(", ") if part)
        return ", ".join(part for part in parts if part.split()[0] in ("key", "value", "headers"))

    @property
    def window(self) -> tuple[int, int] | None:
        """Start and end, in ms, of the window whose result failed; None: the letter is not such a result."""
        start, end = self.error("window.start"), self.error("window.end")
        return (int(start), int(end)) if start and end else None

    @property
    def counted_by(self) -> tuple[str, ...]:
        """The operators that would count the record twice if it were sent to its topic again."""
        return tuple(name for name in self._text.get(COUNTED_BY, "").split(", ") if name)

    def left_out(self, to: str | None = None, again: bool = False) -> str:
        """Why a replay to a topic (None: to `target`) leaves the record out; empty: it sends the record.

        With `again`, it also sends a record that some operators would count twice.
        """
        if self.cut:
            return "parts of the record were cut off"
        if self.target is None and self.value is None:
            return "it did not come from a single record: it is a result, and its records are in the state already"
        if to is None and self._is_row:
            return "a row from outside Kafka that never became a record: correct it at its source, or send it elsewhere with --to"
        if to is None and self.target is None:
            return "it did not come from a single record"
        if self.counted_by and not again and to in (None, self.error("topic")):
            return (
                f"sent again, it would be counted twice by {' and by '.join(self.counted_by)}: send it to another topic with --to, "
                f"or send it anyway with --again"
            )
        return ""

    @property
    def own_headers(self) -> Headers:
        return plain_headers(self.headers)


def letter_as_dict(letter: Letter, replayed: bool, text: Callable[[bytes], str]) -> dict[str, Any]:
    """A dead letter as JSON data. Its key, value and headers become texts."""

    def shown(data: bytes | None) -> str | None:
        return None if data is None else text(data)

    return {
        "position": f"{letter.place[0]}-{letter.place[1]}@{letter.offset}",
        "written": letter.timestamp,
        "error": letter.error("exception"),
        "message": letter.error("message"),
        "stage": letter.error("stage"),
        "attempts": letter.attempts,
        "origin": letter.origin,
        "node": letter.error("node"),
        "window": None if letter.window is None else list(letter.window),
        "counted_by": list(letter.counted_by),
        "event_time": letter.event_time,
        "key": shown(letter.key),
        "value": shown(letter.value),
        "missing": letter.cut,
        "replayed": replayed,
        "replay_goes_to": letter.target,
        "left_out": letter.left_out(),
        "headers": [[name, shown(value)] for name, value in letter.own_headers],
        "stacktrace": letter.error("stacktrace"),
    }


def dead_letter_topics(topology: Graph, of_policies: str | None) -> tuple[str, ...]:
    """The topics of a program's dead letters: the topic of the error policies, and the topics of operators with a `Retry`."""
    named = [str(sink.topic) for sink in topology.sinks() if sink.failed == Failed()]
    return tuple(dict.fromkeys(([] if of_policies is None else [of_policies]) + named))


@dataclass(frozen=True)
class Choice:
    """The dead letters that a command is about. A criterion that is None does not restrict them.

    Attributes:
        error: The name of the exception, or a part of its message.
        since_ms: The earliest time of the letter, ms.
        until_ms: The first time that is not included, ms.
        positions: (partition, offset) of the letters.
    """

    error: str | None = None
    key: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    origin: str | None = None
    positions: frozenset[tuple[int, int]] | None = None

    def has(self, letter: Letter) -> bool:
        """Whether the choice includes a letter."""
        wanted: list[tuple[Any, bool]] = [
            (self.error, self.error == letter.error("exception") or str(self.error) in letter.error("message")),
            (self.key, letter.key is not None and letter.key.decode(errors="backslashreplace") == self.key),
            (self.since_ms, letter.timestamp >= (self.since_ms or 0)),
            (self.until_ms, letter.timestamp < (self.until_ms or 0)),
            (self.origin, letter.error("topic") == self.origin),
            (self.positions, (letter.place[1], letter.offset) in (self.positions or ())),
        ]
        return all(true for given, true in wanted if given is not None)


def letters_of(log: LetterLog, place: TopicPartition, start: int = 0, end: int | None = None) -> Iterator[Letter]:
    first = max(start, log.begin_offset(place))
    last = log.log_ends([place])[place][0] if end is None else end
    while first < last:
        try:
            for columns in log.read(*place, first, last):
                yield from _letters(place, columns)
                first = int(columns.offsets[-1]) + 1
            return
        except OffsetsLostError as lost:
            if lost.earliest <= first:
                raise
            # A purge is under way.
            first = lost.earliest


def _letters(place: TopicPartition, columns: RecordColumns) -> Iterator[Letter]:
    headers = [None] * len(columns) if columns.headers is None else columns.headers.to_pylist()
    rows = (
        columns.offsets.tolist(),
        columns.timestamps.tolist(),
        columns.keys.to_pylist(),
        columns.values.to_pylist(),
    )
    for offset, timestamp, key, value, cell in zip(*rows, headers, strict=True):
        yield Letter(place, offset, timestamp, key, value, tuple(decode_headers(cell)))


def places_of(log: LetterLog, topic: str) -> list[TopicPartition]:
    """The partitions of a topic.

    Raises:
        TopicNotFoundError: There is no such topic.
    """
    return [(topic, partition) for partition in range(log.partition_count(topic))]


# --- Which dead letters were replayed: ranges of offsets, in a compacted topic
#
# A replay writes them in the transaction in which it sends the records, so either both happened or neither. The offset of a
# consumer group would not do: a replay of some letters skips others, and committed offsets expire a week after the last replay.

ENDING = "-replays"
Ranges = tuple[tuple[int, int], ...]


def replays_topic(topic: str) -> str:
    return topic + ENDING


def replay_id(topic: str) -> str:
    """The transactional id of the replays of a topic of dead letters: a later replay fences an earlier one."""
    return f"streams-replay-of-{topic}"


@dataclass(frozen=True)
class Replayed:
    """The letters of one topic that have been replayed.

    Attributes:
        topic_id: Kafka's id of the topic, because one that was deleted and created again has other letters.
        ranges: Partition -> ranges [first, last) of offsets, in order.
    """

    topic_id: str
    ranges: Mapping[int, Ranges] = field(default_factory=dict)

    def has(self, partition: int, offset: int) -> bool:
        """Whether a letter has been replayed."""
        return any(first <= offset < last for first, last in self.ranges.get(partition, ()))

    def record(self, partition: int, offsets: Sequence[int], also: Collection[int]) -> tuple[bytes, bytes]:
        """The key and value of the record that remembers a partition's replayed letters."""
        ranges = list(_joined((*self.ranges.get(partition, ()), *((one, one + 1) for one in also)), offsets))
        return str(partition).encode(), orjson.dumps({"topic_id": self.topic_id, "ranges": ranges})


def _joined(ranges: Iterable[tuple[int, int]], offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Joins ranges as far as possible: two ranges become one if no dead letter is known to be between them."""
    first = last = None
    for begin, end in sorted(ranges):
        if first is None or last is None:
            first, last = begin, end
            continue
        following = bisect_left(offsets, last)
        if begin <= last or (following < len(offsets) and begin <= offsets[following]):
            last = max(last, end)
        else:
            yield first, last
            first, last = begin, end
    if first is not None and last is not None:
        yield first, last


def read_replayed(log: LetterLog, topic: str, fenced: bool = False) -> Replayed:
    """The letters of a topic that have been replayed so far."""
    there = log.describe_topics([topic, replays_topic(topic)])
    if topic not in there:
        raise TopicNotFoundError(topic)
    found = Replayed(there[topic].topic_id)
    if replays_topic(topic) not in there:
        return found
    place: TopicPartition = (replays_topic(topic), 0)
    ranges: dict[int, Ranges] = {}
    first = log.begin_offset(place)
    last = log.log_ends([place])[place][0] if fenced else log.end_offsets([place])[place]
    for columns in log.read(*place, first, last) if first < last else ():
        for key, value in zip(columns.keys.to_pylist(), columns.values.to_pylist(), strict=True):
            note = orjson.loads(value)
            if note["topic_id"] == found.topic_id:
                ranges[int(key)] = tuple((first, last) for first, last in note["ranges"])
    return Replayed(found.topic_id, ranges)


# --- Replays
#
# A letter goes through the retry topic of the operator that failed, if it names one, and otherwise to the topic that it came from,
# with its own key, value, headers and timestamp. The order is the same as in `state.commit.step`: the producer fences an older
# replay of the same letters and decides its transaction. Only then does it read which letters are left. So a replay that was
# killed, repeated or started twice sends nothing twice.

TOGETHER = 500
"""The most letters in one transaction."""
_KEPT = (RETRIED_TIME, *ORIGIN)
"""Headers of a retry topic's record that the engine adds."""
_NEVER = tuple(ending for ending in INTERNAL_ENDINGS if ending != "-repartition")
"""Endings of topics to which dead letters are never replayed. Records of repartition topics can fail, and are replayed there."""


@dataclass
class ReplayPlan:
    """What a replay would do.

    Attributes:
        topic_id: Kafka's id of the topic. If the topic is deleted and created again, its offsets belong to other dead letters.
        offsets: Partition -> the offsets of all its letters.
        chosen: Partition -> the offsets of the letters to send.
        targets: Target -> the number of letters for it.
        done: The number of chosen letters that have been replayed already.
        left_out: Why chosen letters cannot be sent -> the number of them.
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


def plan_replay(log: LetterLog, topic: str, choice: Choice, to: str | None = None, again: bool = False) -> ReplayPlan:
    """Reads all letters and decides which of them to send where.

    Letters whose records would be counted twice are left out, unless `again` is set.

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
            elif why := letter.left_out(to, again):
                plan.left_out[why] += 1
            else:
                chosen.append(letter.offset)
                plan.targets[to or str(letter.target)] += 1
    _check_targets(log, plan)
    return plan


def _check_targets(log: LetterLog, plan: ReplayPlan) -> None:
    gone = sorted(plan.targets.keys() - log.describe_topics(sorted(plan.targets)).keys())
    if gone:
        raise ConfigError(
            f"{plan.topic!r} has letters for {', '.join(map(repr, gone))}, which does not exist. Nothing was sent. Create it, name "
            f"another topic with --to, or choose other dead letters with --from-topic"
        )
    if forbidden := [name for name in plan.targets if name.startswith("__") or name.endswith(_NEVER)]:
        raise ConfigError(
            f"dead letters of {plan.topic!r} name {forbidden[0]!r} as their origin, an internal topic that has no users' records: "
            f"they were not written by this engine. Nothing was sent. Name another topic with --to, or choose other dead letters"
        )
    if plan.topic in plan.targets:
        raise ConfigError(
            f"dead letters of {plan.topic!r} would be sent to that topic itself. Nothing was sent. Name another with --to"
        )


def replay(
    kafka: LetterLog, plan: ReplayPlan, now_ms: Callable[[], int], to: str | None = None, together: int = TOGETHER
) -> int:
    """Sends the letters of a plan that were not replayed in the meantime, and returns their number.

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
    kafka: LetterLog
    plan: ReplayPlan
    place: TopicPartition
    now_ms: int
    to: str | None

    def send(self, offsets: Sequence[int]) -> int:
        producer = self.kafka.producer(replay_id(self.plan.topic))
        try:
            producer.init_transactions()
            # From now on, no other replay can commit.
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
                f"{self.plan.topic!r} was deleted and created again after the replay was planned, so its dead letters are "
                f"different. None of them was sent. Run `streams dlq replay` again to see which there are now"
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
            # Records there wait by the application's clock. The clock of a replay may be a day ahead.
            timestamp = max(0, min(self.now_ms, letter.timestamp))
        else:
            timestamp = max(0, letter.event_time)
        producer.send(target, self._partition(letter, target), letter.key, letter.value, timestamp, headers or None)

    def _partition(self, letter: Letter, target: str | None) -> int | None:
        """The record's original partition, because its producer put the key there. None: another topic has its own partitions."""
        known = letter.error("partition")
        if self.to is not None or target is None or not known.isdecimal():
            return None
        return int(known) if int(known) < self.kafka.partition_count(target) else None


def summary(plan: ReplayPlan) -> Mapping[str, Any]:
    return {
        "topic": plan.topic,
        "letters": plan.letters,
        "targets": dict(plan.targets),
        "replayed_before": plan.done,
        "left_out": dict(plan.left_out),
    }


# --- Deletion


@dataclass
class PurgePlan:
    """What a purge would delete.

    Attributes:
        before: Partition of the topic -> the first offset that stays; only partitions in which something is deleted.
        first_ms: When the oldest deleted letter was written, ms; None: there is none.
        last_ms: When the newest deleted letter was written, ms.
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
    """How far to delete. In each partition, the first dead letter that must stay keeps all later ones.

    Attributes:
        time_ms: Letters from this time on stay; None: the time does not matter.
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


def plan_purge(log: LetterLog, topic: str, until: Until) -> PurgePlan:
    """Decides what to delete.

    Raises:
        TopicNotFoundError: The topic does not exist.
        ConfigError: It is an internal topic of an application.
    """
    if topic.endswith(INTERNAL_ENDINGS):
        raise ConfigError(
            f"{topic!r} is an internal topic of an application: it holds records that the application still needs, not dead "
            f"letters. Nothing was deleted. Name the topic of dead letters"
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


def check_dead_letter_topic(topic: str, plan: Plan, admin: KafkaAdmin) -> None:
    """Refuses a topic that is internal, that the application itself reads, or that would not retain dead letters."""
    if topic in plan.internal_topics or topic.startswith("__") or topic.endswith(INTERNAL_ENDINGS):
        raise ConfigError(
            f"the topic of dead letters {topic!r} has the name of an internal topic: choose another topic"
        )
    tables = (table.source.topics for table in plan.topology.global_tables.values())
    if any(topic in topics for topics in (*(sub.topics for sub in plan.sub_topologies), *tables)):
        raise ConfigError(
            f"the topic of dead letters {topic!r} is read by this application, which would read its bad records again and again: "
            f"choose another topic, which no pattern of the application matches"
        )
    if "compact" in admin.topic_config(topic).get("cleanup.policy", ""):
        raise ConfigError(
            f"the topic of dead letters {topic!r} is compacted, so of several dead letters with one key only the last would be "
            f"kept, and one without a key is refused: kafka-configs.sh --alter --entity-type topics --entity-name {topic} "
            f"--add-config cleanup.policy=delete, or choose another topic"
        )
