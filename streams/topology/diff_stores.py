"""The consequences of changed, moved and missing stores for their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streams.serdes.json_fields import unreadable
from streams.topology.change import REFUSED, Severity, TopologyChange, differences, refused, safe

_ALIKE = ("kind", "key_serde", "value_serde", "retain_duplicates")


def changed_store(where: str, name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[TopologyChange]:
    """The differences between two descriptions of one store."""
    what = f"store '{name}'"
    for part in _ALIKE:
        if old[part] != new[part]:
            hint = "If only the form of the values changed, keep the serde and wrap it in VersionedSerde. "
            said = f"holds bytes of another {part}: {old[part]} before, {new[part]} now. "
            said += (hint if part == "value_serde" else "") + REFUSED
            yield TopologyChange(Severity.NEEDS_MIGRATION, where, what, said, refused=True)
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
            yield TopologyChange(Severity.LOSES_STATE, where, what, "has no changelog any more: it cannot be restored")
    if old["persistent"] != new["persistent"]:
        restorable = old["logged"] and new["logged"]
        said = f"moves {'to disk' if new['persistent'] else 'into memory'}, "
        said += "from its changelog" if restorable else "empty, for it has no changelog"
        yield TopologyChange(Severity.SAFE if restorable else Severity.LOSES_STATE, where, what, said)
    if old["changelog_config"] != new["changelog_config"]:
        said = f"asks for other settings of its changelog ({differences(old['changelog_config'], new['changelog_config'])}); "
        yield safe(where, what, said + "a topic that exists keeps its own")


def unreadable_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What of typed keys and values the new program cannot read; empty if it can, or if the old description has no fields."""
    found = {part: unreadable(old[part], new[part]) for part in ("key", "value") if part in old and part in new}
    return "; ".join(f"of {part}s, {one}" for part, why in found.items() for one in why)


def _retention(where: str, what: str, old: int | None, new: int | None) -> TopologyChange:
    said = f"keeps rows for {new} ms instead of {old} ms"
    if (new or 0) < (old or 0):
        return TopologyChange(Severity.LOSES_STATE, where, what, f"{said}; older ones are dropped")
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
    if renamed:
        said += f". If it is now called '{renamed[0]}': give it its old name, with Materialized(name='{name}')"
    if stays:
        said += f". {REFUSED}"
    return TopologyChange(Severity.LOSES_STATE, where, what, said, refused=stays)
