"""Compares two versions of a program before the new one is started, and classifies each change by its effect on the state.

Kafka Streams finds such changes at run time, or never: a renamed store silently begins empty. Here the manifest of the old
program (`streams describe --format json`, or the one stored with the application's checkpoint) is compared with the new program.
Every change is *safe*, *needs migration* (the state stays, but it or the written records do not fit the program) or *loses
state*. Each change also says whether the engine refuses to start. A start makes the same comparison as `streams diff`.

Invariants: a change of a sub-topology's hash is refused, and so is one that moves a store or a source into a sub-topology that has
no commits of it. Functions cannot be compared, so a changed function is not a change here. Only a changed condition of a table's
filter is found, by a digest, because the new filter may leave old rows undeleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streams.errors import TopologyError
from streams.serdes.json import unreadable
from streams.topology.graph import Graph
from streams.topology.manifest import EXPRESSION, FORMAT, Manifest, as_written, plan_manifest
from streams.topology.plan import Plan, plan_alone

REFUSED = (
    "The engine refuses to start: let the old program continue with this state, and start this one under an application id of its "
    "own, or after a reset"
)


class StateEffect(str, Enum):
    """The consequence for the state, from the least to the worst."""

    SAFE = "safe"
    NEEDS_MIGRATION = "needs migration"
    LOSES_STATE = "loses state"


_ORDER = list(StateEffect)


@dataclass(frozen=True, slots=True)
class TopologyChange:
    """One difference.

    Attributes:
        severity: The consequence for the state.
        where: The sub-topology.
        what: The changed thing, such as `store 'counts'`.
        says: What is different, and what to do if the change is not safe.
        refused: Whether the engine refuses to start a program with this change.
        depends: Whether the refusal depends on the contents of Kafka at the start, as `says` explains.
    """

    severity: StateEffect
    where: str
    what: str
    says: str
    refused: bool = False
    depends: bool = False

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.where}: {self.what} {self.says}"


def safe(where: str, what: str, says: str) -> TopologyChange:
    """Makes a change after which the engine continues, and nothing is lost."""
    return TopologyChange(StateEffect.SAFE, where, what, says)


def refused(where: str, what: str, says: str) -> TopologyChange:
    """Makes a change with which the engine refuses to start."""
    return TopologyChange(StateEffect.NEEDS_MIGRATION, where, what, f"{says}. {REFUSED}", refused=True)


def worst_first(changes: Iterable[TopologyChange]) -> list[TopologyChange]:
    """Sorts the changes, worst first. Changes of the same severity stay in order."""
    return sorted(changes, key=lambda change: -_ORDER.index(change.severity))


def worst(changes: Iterable[TopologyChange]) -> StateEffect:
    """The worst severity of the changes; `safe` if there are none."""
    return max((change.severity for change in changes), key=_ORDER.index, default=StateEffect.SAFE)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The differences between two sets of settings, as text."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {old.get(name)} -> {new.get(name)}" for name in names)


# --- Stores

_JOIN_STORE = "-join-store"
_ALIKE = ("kind", "key_serde", "value_serde", "retain_duplicates")


def changed_store(where: str, name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[TopologyChange]:
    """The differences between two descriptions of one store."""
    what = f"store '{name}'"
    for part in _ALIKE:
        if old[part] != new[part]:
            hint = "If only the form of the values changed, keep the serde and wrap it in VersionedSerde. "
            said = f"holds bytes of another {part}: {old[part]} before, {new[part]} now. "
            said += (hint if part == "value_serde" else "") + REFUSED
            yield TopologyChange(StateEffect.NEEDS_MIGRATION, where, what, said, refused=True)
    if why := unreadable_fields(old.get("fields", {}), new.get("fields", {})):
        cure = "Give a new field a default, or convert old values with VersionedSerde"
        yield refused(where, what, f"holds rows that this program cannot read: {why}. {cure}")
    if old["retention_ms"] != new["retention_ms"]:
        yield _retention(where, what, old["retention_ms"], new["retention_ms"])
    if old["logged"] != new["logged"]:
        if new["logged"]:
            said = "gets a changelog, which does not hold the rows that it has: a restore would lack them"
            yield refused(where, what, said)
        else:
            yield TopologyChange(
                StateEffect.LOSES_STATE, where, what, "has no changelog any more: it cannot be restored"
            )
    if old["persistent"] != new["persistent"]:
        restorable = old["logged"] and new["logged"]
        said = f"moves {'to disk' if new['persistent'] else 'into memory'}, "
        said += "from its changelog" if restorable else "empty, for it has no changelog"
        yield TopologyChange(StateEffect.SAFE if restorable else StateEffect.LOSES_STATE, where, what, said)
    if old["changelog_config"] != new["changelog_config"]:
        said = f"asks for other settings of its changelog ({differences(old['changelog_config'], new['changelog_config'])}); "
        yield safe(where, what, said + "a topic that exists keeps its own")


def unreadable_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Why the new program cannot read typed keys and values. Empty if it can, or if the old description has no fields."""
    found = {part: unreadable(old[part], new[part]) for part in ("key", "value") if part in old and part in new}
    return "; ".join(f"of {part}s, {one}" for part, why in found.items() for one in why)


def _retention(where: str, what: str, old: int | None, new: int | None) -> TopologyChange:
    said = f"keeps rows for {new} ms instead of {old} ms"
    if (new or 0) < (old or 0):
        return TopologyChange(StateEffect.LOSES_STATE, where, what, f"{said}; older ones are dropped")
    return safe(where, what, f"{said}; it is rebuilt from its changelog, what has expired stays gone")


def missing_store(
    where: str, name: str, old: Mapping[str, Any], added: Mapping[str, Any], owner: Mapping[str, str], stays: bool
) -> TopologyChange:
    """The change for a store that its sub-topology no longer has."""
    what = f"store '{name}'"
    if name in owner:
        said = f"belongs to the sub-topology '{owner[name]}' now, which knows no commit of it"
        return refused(where, what, said)
    renamed = [other for other, new in added.items() if all(new[part] == old[part] for part in _ALIKE)]
    said = "is gone, and its rows with it"
    if renamed and name.endswith(_JOIN_STORE):
        said += (
            f". Before 1.0, '{renamed[0]}' was called so. Let the application's windows close with the release that it ran with, "
            f"and start with another application id, or take `streams reset`"
        )
    elif renamed:
        said += f". If it is now called '{renamed[0]}': give it its old name, with Materialized(name='{name}')"
    if stays:
        said += f". {REFUSED}"
    return TopologyChange(StateEffect.LOSES_STATE, where, what, said, refused=stays)


def compare(old: Mapping[str, Any], new: Graph) -> list[TopologyChange]:
    """Compares a manifest with a topology that is not planned yet, as `compare_plan` does with a plan.

    Raises:
        TopologyError: `old` is not a manifest, or the new topology cannot be planned.
    """
    return compare_plan(old, plan_alone(as_written(new, old)))


def compare_plan(old: Mapping[str, Any], new: Plan) -> list[TopologyChange]:
    """Compares a manifest with a plan and returns all differences, worst first."""
    if old.get("format") != FORMAT or not isinstance(old.get("sub_topologies"), Mapping):
        raise TopologyError(
            f"This is not a description of a topology in format {FORMAT}: make one of the old program with "
            f"`streams describe --format json MODULE:TOPOLOGY`."
        )
    now = plan_manifest(new, sorted(old["sub_topologies"]))
    topics = (*_repartition_topics(old, now), *_global_tables(old, now), *_lake_sinks(old, now))
    return worst_first([*_sub_topologies(old, now), *topics])


def _sub_topologies(old: Mapping[str, Any], now: Manifest) -> Iterator[TopologyChange]:
    before, after = old["sub_topologies"], now["sub_topologies"]
    owner = {store: name for name, sub in after.items() for store in sub["stores"]}
    for name, sub in before.items():
        if name in after:
            found = list(_sub_topology(name, sub, after[name], owner))
            if after[name]["hash"] != sub["hash"] and not any(change.refused for change in found):
                found.append(refused(name, "its structure", "is another one"))
            yield from found
        else:
            yield from _gone(name, sub, after, owner)
    for name in after:
        if name not in before:
            yield safe(name, "the sub-topology", "is new; it begins at the starting offsets")


def _gone(
    where: str, old: Mapping[str, Any], after: Mapping[str, Mapping[str, Any]], owner: Mapping[str, str]
) -> Iterator[TopologyChange]:
    """The changes for a sub-topology whose name no longer exists. Its stores and sources may be in another one now."""
    moved = [
        refused(
            where,
            f"source '{source}'",
            f"reads {topic} in the sub-topology '{name}' now, which knows no position in it: all of it would be read again",
        )
        for source, topics in old["sources"].items()
        for topic in topics
        for name, sub in after.items()
        if any(_overlap(topic, other) for others in sub["sources"].values() for other in others)
    ]
    yield from moved
    for store, settings in old["stores"].items():
        yield missing_store(where, store, settings, {}, owner, stays=False)
    if not moved and not old["stores"]:
        yield safe(where, "the sub-topology", "is gone; it had no state but its positions")


def _overlap(one: str, other: str) -> bool:
    """Whether two subscriptions (topics, or patterns between slashes) are the same, or one matches the other."""
    return one == other or _matches(one, other) or _matches(other, one)


def _matches(pattern: str, topic: str) -> bool:
    text = re.fullmatch(r"/(.*)/(\d*)", pattern, re.DOTALL)
    return text is not None and re.fullmatch(text[1], topic, int(text[2] or 0)) is not None


def _sub_topology(
    where: str, old: Mapping[str, Any], new: Mapping[str, Any], owner: Mapping[str, str]
) -> Iterator[TopologyChange]:
    yield from _sources(where, old["sources"], new["sources"])
    yield from _operators(where, old, new)
    added = {name: settings for name, settings in new["stores"].items() if name not in old["stores"]}
    for name, settings in old["stores"].items():
        if name in new["stores"]:
            yield from changed_store(where, name, settings, new["stores"][name])
        else:
            yield missing_store(where, name, settings, added, owner, stays=True)
    filters = list(_filters(where, old, new))
    yield from filters
    named = {change.what for change in filters}
    for part, kind in (("stateless", "operator"), ("sinks", "sink")):
        yield from (one for one in _harmless(where, kind, old[part], new[part]) if one.what not in named)


def _filters(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[TopologyChange]:
    """Finds filters of tables that may hold back deletions of rows that were written without them.

    A row that passed before and is held back now is never deleted after the filter, because its deletion is held back, too.
    """
    before: Mapping[str, Any] = old.get("filters", {})
    for name, now in new.get("filters", {}).items():
        was, into = before.get(name), _has_rows(old, new, now)
        if not into or (was is None and name in old["stateless"]):
            continue
        if was is None:
            said = "is a new filter of a table"
            rows = "that it holds back"
        elif _differ(was["condition"], now["condition"]):
            said = "filters a table by another condition"
            rows = "that it holds back now and did not before"
        else:
            continue
        said += (
            f": rows {rows} stay in {', '.join(into)} forever, because nothing deletes them. Write a tombstone for each, or give "
            f"what is behind the filter a new name, so that it is filled again"
        )
        yield TopologyChange(StateEffect.NEEDS_MIGRATION, where, f"operator '{name}'", said)


def _has_rows(old: Mapping[str, Any], new: Mapping[str, Any], filtered: Mapping[str, Any]) -> list[str]:
    """Lists the places after a filter that may have rows of the old program: topics that it wrote to, and stateful operators."""
    topics = dict.fromkeys(new["sinks"][name] for name in filtered["sinks"])
    written = [one for one in topics if one in old["sinks"].values()]
    return [
        *("topics that records name" if one is None else f"the topic '{one}'" for one in written),
        *(f"the operator '{name}'" for name in filtered["operators"] if name in old["operators"]),
    ]


def _differ(was: str | None, now: str | None) -> bool:
    """Whether two descriptions show that a condition changed. Digests of functions made by different Pythons show nothing."""
    if was is None or now is None:
        return False
    forms = {one.removeprefix("not ").split(":")[0] for one in (was, now)}
    return was != now and (len(forms) == 1 or EXPRESSION in forms)


def _sources(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[TopologyChange]:
    for name in [*old, *(name for name in new if name not in old)]:
        was, now = old.get(name), new.get(name)
        if was != now:
            said = "is new" if was is None else "is gone" if now is None else f"read {was} and reads {now} now"
            yield refused(where, f"source '{name}'", said)


def _operators(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[TopologyChange]:
    before, after = old["operators"], new["operators"]
    for name, was in before.items():
        now, what = after.get(name), f"operator '{name}'"
        if now is None:
            # Each of its stores has a change of its own.
            yield refused(where, what, "is gone")
            continue
        for part in ("kind", "stores", "reads"):
            if was[part] != now[part]:
                yield refused(where, what, f"has other {part}: {was[part]} before, {now[part]} now")
        if was["parameters"] != now["parameters"]:
            said = differences(was["parameters"], now["parameters"])
            yield refused(where, what, f"works differently: {said}. Its rows mean something else")
    for name in after:
        if name not in before:
            yield refused(where, f"operator '{name}'", "is new, and would begin empty in the midst of its input")


def _harmless(where: str, kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[TopologyChange]:
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new:
            yield safe(where, f"{kind} '{name}'", "is gone")
        elif name not in old:
            yield safe(where, f"{kind} '{name}'", "is new, for records from now on")
        elif old[name] != new[name]:
            said = f"is {new[name]} instead of {old[name]}, for records from now on"
            yield safe(where, f"{kind} '{name}'", said)


def _repartition_topics(old: Mapping[str, Any], now: Manifest) -> Iterator[TopologyChange]:
    before, after = old["repartition_topics"], now["repartition_topics"]
    for name, partitions in before.items():
        what = f"repartition topic '{name}'"
        if name not in after:
            said = (
                "is gone: what was not read from it yet would be lost, and as long as there is any, the engine refuses to "
                "start. Let the old program run until its lag is 0, then stop it"
            )
            yield TopologyChange(StateEffect.NEEDS_MIGRATION, "topics", what, said, refused=True, depends=True)
        elif after[name] != partitions:
            said = f"asks for {after[name] or 'as many as tasks'} partitions instead of {partitions or 'as many as tasks'}, "
            said += "and the engine refuses to start if the topic that exists has another number: its keys would move. Rename it"
            yield TopologyChange(StateEffect.NEEDS_MIGRATION, "topics", what, said, refused=True, depends=True)
    for name, why in unreadable_topics(old, now).items():
        said = f"holds records that this program cannot read ({why}), and as long as any of them is unread, the engine refuses to "
        said += "start. Give a new field a default, or let the old program run until its lag is 0, then stop it"
        yield TopologyChange(
            StateEffect.NEEDS_MIGRATION, "topics", f"repartition topic '{name}'", said, refused=True, depends=True
        )


def unreadable_topics(old: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Repartition topics of both programs -> why the new one cannot read typed records of the old one."""
    before, after = old.get("topic_fields", {}), now.get("topic_fields", {})
    found = {name: unreadable_fields(before[name], after[name]) for name in before if name in after}
    return {name: why for name, why in found.items() if why}


def _global_tables(old: Mapping[str, Any], now: Manifest) -> Iterator[TopologyChange]:
    said = _harmless("global tables", "table", old["global_tables"], now["global_tables"])
    return (safe(one.where, one.what, f"{one.says}; it is read from its topic") for one in said)


def _lake_sinks(old: Mapping[str, Any], now: Manifest) -> Iterator[TopologyChange]:
    """Changes of sinks outside Kafka. Rows name their columns, but neither their types nor the columns of their keys."""
    before, after = old.get("lake_sinks", {}), now.get("lake_sinks", {})
    yield from _harmless(
        "lake sinks",
        "sink",
        {name: one["target"] for name, one in before.items()},
        {name: one["target"] for name, one in after.items()},
    )
    for name in before.keys() & after.keys():
        then, new = before[name], after[name]
        turned = [column for column, kind in then["columns"].items() if new["columns"].get(column, kind) != kind]
        if turned or then["keys"] != new["keys"]:
            what = f"other types of {', '.join(turned)}" if turned else "other keys"
            said = f"has {what}, by which rows in its internal topic would be read wrongly: give the sink a new name (named=...)"
            yield TopologyChange(StateEffect.NEEDS_MIGRATION, "lake sinks", f"sink '{name}'", said, refused=True)
