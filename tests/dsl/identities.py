"""The identities of the conformance cases' topologies: one digest each, of all names and hashes by which state is found again.

`python -m tests.dsl.identities` writes those of cases that have none yet; one that is recorded never changes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson

from streams.topology.manifest import manifest
from tests.conformance.build import build
from tests.conformance.case import Case, read_cases

CASES = sorted((Path(__file__).parent.parent / "conformance" / "cases").glob("*.jsonl"))
GOLDEN = Path(__file__).parent / "golden" / "identities.json"


def cases(file: Path) -> list[Case]:
    """The cases of a file."""
    return list(read_cases([file]))


def identity(case: Case) -> str:
    """16 hex digits of the manifest, without the filters of tables: no state is found by their conditions."""
    described = manifest(build(case.topology))
    for sub in described["sub_topologies"].values():
        sub.pop("filters", None)
    written = orjson.dumps(described, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(written).hexdigest()[:16]


def recorded() -> dict[str, str]:
    """The identities by the names of the cases."""
    found: dict[str, str] = orjson.loads(GOLDEN.read_bytes()) if GOLDEN.exists() else {}
    return found


if __name__ == "__main__":
    found = {case.name: identity(case) for file in CASES for case in cases(file)}
    GOLDEN.write_bytes(orjson.dumps({**found, **recorded()}, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
