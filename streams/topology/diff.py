"""What a changed topology means for the state of a running application, told before it is started.

Kafka Streams finds out at run time, or never: a renamed store begins empty without a word. Here the description of the old
program (``streams describe --format json``, or the one that the application keeps beside its checkpoint) is compared with the
new program, and every change is *safe*, *needs migration* (the state stays, but this engine does not start on it as it is) or
*loses state*.

Invariants: whatever changes a sub-topology's hash, so that the engine would refuse it, is never called safe; functions cannot be
compared, so a changed function is no change here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streams.errors import TopologyError
from streams.topology.description import FORMAT, Description, description
from streams.topology.graph import Topology


class Severity(str, Enum):
    """What becomes of the state, from the least to the worst."""

    SAFE = "safe"
    NEEDS_MIGRATION = "needs migration"
    LOSES_STATE = "loses state"


_ORDER = list(Severity)


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Attributes:
        severity: what it does to the state.
        where: the sub-topology.
        what: the thing, such as ``store 'counts'``.
        says: what is different, and what to do where it is not safe.
    """

    severity: Severity
    where: str
    what: str
    says: str

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.where}: {self.what} {self.says}"


def compare(old: Mapping[str, Any], new: Topology) -> list[Change]:
    """All differences, the worst first; none for an equal topology.

    Args:
        old: what ``description(topology)`` gave for the program that wrote the state.
        new: the program to be started.

    Raises:
        TopologyError: ``old`` is no description, or the new topology cannot be planned.
    """
    if old.get("format") != FORMAT or not isinstance(old.get("sub_topologies"), Mapping):
        raise TopologyError(
            f"This is no description of a topology in format {FORMAT}: make one of the old program with "
            f"`streams describe --format json MODULE:TOPOLOGY`."
        )
    now = description(new)
    changes = [*_sub_topologies(old, now), *_repartition_topics(old, now), *_global_tables(old, now)]
    return sorted(changes, key=lambda change: -_ORDER.index(change.severity))


def worst(changes: list[Change]) -> Severity:
    """The worst of the changes; safe if there is none."""
    return max((change.severity for change in changes), key=_ORDER.index, default=Severity.SAFE)


def same_structure(old: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether the engine starts the program of one description on the state of the other's."""
    before, after = old["sub_topologies"], now["sub_topologies"]
    return all(after[name]["hash"] == sub["hash"] for name, sub in before.items() if name in after)


def _sub_topologies(old: Mapping[str, Any], now: Description) -> Iterator[Change]:
    before, after = old["sub_topologies"], now["sub_topologies"]
    home = {store: name for name, sub in after.items() for store in sub["stores"]}
    for name, sub in before.items():
        if name in after:
            found = list(_sub_topology(name, sub, after[name], home))
            if after[name]["hash"] != sub["hash"] and worst(found) is Severity.SAFE:
                found.append(Change(Severity.NEEDS_MIGRATION, name, "its structure", f"is another one. {_MIGRATE}"))
            yield from found
        else:
            what = "the sub-topology"
            if not sub["operators"]:
                yield Change(Severity.SAFE, name, what, "is gone; it kept nothing but its positions")
            for store, settings in sub["stores"].items():
                yield _store_gone(name, store, settings, {}, home)
    for name in after:
        if name not in before:
            yield Change(Severity.SAFE, name, "the sub-topology", "is new; it begins at the starting offsets")


_MIGRATE = "The engine refuses to start on this state: take a new application id, or reset and process the inputs again"


def _sub_topology(
    where: str, old: Mapping[str, Any], new: Mapping[str, Any], home: Mapping[str, str]
) -> Iterator[Change]:
    yield from _sources(where, old["sources"], new["sources"])
    yield from _operators(where, old, new)
    added = {name: settings for name, settings in new["stores"].items() if name not in old["stores"]}
    for name, settings in old["stores"].items():
        if name in new["stores"]:
            yield from _store(where, name, settings, new["stores"][name])
        else:
            yield _store_gone(where, name, settings, added, home)
    for part, kind in (("stateless", "operator"), ("sinks", "sink")):
        yield from _harmless(where, kind, old[part], new[part])


def _sources(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for name in [*old, *(name for name in new if name not in old)]:
        was, now = old.get(name), new.get(name)
        if was != now:
            said = "is new" if was is None else "is gone" if now is None else f"read {was} and reads {now} now"
            yield Change(Severity.NEEDS_MIGRATION, where, f"source '{name}'", f"{said}. {_MIGRATE}")


def _operators(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    before, after = old["operators"], new["operators"]
    for name, was in before.items():
        now = after.get(name)
        if now is None:
            # What its stores come to is told of each store.
            yield Change(Severity.NEEDS_MIGRATION, where, f"operator '{name}'", f"is gone. {_MIGRATE}")
            continue
        for part in ("kind", "stores", "reads"):
            if was[part] != now[part]:
                said = f"has other {part}: {was[part]} before, {now[part]} now. {_MIGRATE}"
                yield Change(Severity.NEEDS_MIGRATION, where, f"operator '{name}'", said)
        if was["parameters"] != now["parameters"]:
            said = (
                f"works otherwise: {_differences(was['parameters'], now['parameters'])}. Its rows mean something else. "
            )
            yield Change(Severity.NEEDS_MIGRATION, where, f"operator '{name}'", said + _MIGRATE)
    for name in after:
        if name not in before:
            said = f"is new, and would begin empty in the midst of its input. {_MIGRATE}"
            yield Change(Severity.NEEDS_MIGRATION, where, f"operator '{name}'", said)


def _store(where: str, name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    what = f"store '{name}'"
    for part in ("kind", "key_serde", "value_serde", "retain_duplicates"):
        if old[part] != new[part]:
            hint = " If only the form of the values changed, keep the serde and wrap it in VersionedSerde."
            said = f"holds bytes of another {part}: {old[part]} before, {new[part]} now. {_MIGRATE}."
            yield Change(
                Severity.NEEDS_MIGRATION, where, what, (said + hint if part == "value_serde" else said).rstrip(".")
            )
    if old["retention_ms"] != new["retention_ms"]:
        shorter = (new["retention_ms"] or 0) < (old["retention_ms"] or 0)
        said = f"keeps rows for {new['retention_ms']} ms instead of {old['retention_ms']} ms"
        more = (
            "; older ones are dropped" if shorter else "; it is rebuilt from its changelog, what has expired stays gone"
        )
        yield Change(Severity.LOSES_STATE if shorter else Severity.SAFE, where, what, said + more)
    if old["logged"] != new["logged"]:
        if new["logged"]:
            said = "gets a changelog, which does not hold the rows that it has: a restore would lack them"
            yield Change(Severity.NEEDS_MIGRATION, where, what, said)
        else:
            yield Change(Severity.LOSES_STATE, where, what, "has no changelog any more: it cannot be restored")
    if old["persistent"] != new["persistent"]:
        kept = old["logged"] and new["logged"]
        said = f"moves {'to disk' if new['persistent'] else 'into memory'}, "
        said += "from its changelog" if kept else "empty, for it has no changelog"
        yield Change(Severity.SAFE if kept else Severity.LOSES_STATE, where, what, said)
    if old["changelog_config"] != new["changelog_config"]:
        said = f"asks for other settings of its changelog ({_differences(old['changelog_config'], new['changelog_config'])}); "
        yield Change(Severity.SAFE, where, what, said + "a topic that exists keeps its own")


def _store_gone(
    where: str, name: str, old: Mapping[str, Any], added: Mapping[str, Any], home: Mapping[str, str]
) -> Change:
    what = f"store '{name}'"
    if name in home:
        said = f"belongs to the sub-topology '{home[name]}' now, which knows no commit of it. {_MIGRATE}"
        return Change(Severity.NEEDS_MIGRATION, where, what, said)
    alike = ("kind", "key_serde", "value_serde", "retain_duplicates")
    renamed = [other for other, new in added.items() if all(new[part] == old[part] for part in alike)]
    said = "is gone, and its rows with it"
    if renamed:
        said += f". If it is now called '{renamed[0]}': give it its old name, with Materialized(name='{name}')"
    return Change(Severity.LOSES_STATE, where, what, said)


def _harmless(where: str, kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new:
            yield Change(Severity.SAFE, where, f"{kind} '{name}'", "is gone")
        elif name not in old:
            yield Change(Severity.SAFE, where, f"{kind} '{name}'", "is new, for records from now on")
        elif old[name] != new[name]:
            said = f"is {new[name]} instead of {old[name]}, for records from now on"
            yield Change(Severity.SAFE, where, f"{kind} '{name}'", said)


def _repartition_topics(old: Mapping[str, Any], now: Description) -> Iterator[Change]:
    before, after = old["repartition_topics"], now["repartition_topics"]
    for name, partitions in before.items():
        if name not in after:
            said = "is gone: what was not read from it yet is lost. Let the old program run until its lag is 0, then stop it"
            yield Change(Severity.NEEDS_MIGRATION, "topics", f"repartition topic '{name}'", said)
        elif after[name] != partitions:
            said = f"asks for {after[name] or 'as many as tasks'} partitions instead of {partitions or 'as many as tasks'}, "
            said += "but the topic exists: its keys would move. Name it anew, or reset"
            yield Change(Severity.NEEDS_MIGRATION, "topics", f"repartition topic '{name}'", said)


def _global_tables(old: Mapping[str, Any], now: Description) -> Iterator[Change]:
    said = _harmless("global tables", "table", old["global_tables"], now["global_tables"])
    return (Change(one.severity, one.where, one.what, f"{one.says}; it is read from its topic") for one in said)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {old.get(name)} -> {new.get(name)}" for name in names)
