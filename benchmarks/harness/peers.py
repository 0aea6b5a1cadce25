"""The peers: what each folder of `benchmarks/peers` says about itself in its `peer.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "benchmarks" / "peers"
OURS = "streams"
"""The engine itself."""


class PeerError(Exception):
    """There is no such peer, or its `peer.json` is wrong."""


@dataclass(frozen=True)
class Peer:
    """A peer; `benchmarks/README.md` explains the fields."""

    name: str
    title: str
    command: tuple[str, ...]
    guarantee: str = "exactly-once"
    progress: str = "offsets"
    workloads: tuple[str, ...] = ()
    not_supported: Mapping[str, str] = field(default_factory=dict)
    retracts: bool = True
    sliding: str = "both"
    closes: tuple[str, ...] = ()
    stores: str = "."
    version: str = ""

    def command_line(self, config: Path) -> list[str]:
        """The command that the harness starts."""
        places = {"root": str(ROOT), "peer": str(PEERS / self.name), "config": str(config), "python": sys.executable}
        return [word.format(**places) for word in self.command]

    def reason_against(self, workload: str) -> str | None:
        """Why it cannot run a workload; None if it can."""
        if workload in self.workloads or self.workloads == ("*",):
            return None
        return self.not_supported.get(workload, "this peer has no program for it")


def find(name: str) -> Peer:
    """The peer of that name.

    Raises:
        PeerError: There is none, or its `peer.json` is wrong.
    """
    path = PEERS / name / "peer.json"
    if not path.exists():
        raise PeerError(f"there is no peer '{name}'; there are: {', '.join(names())}")
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    try:
        for sequence in ("command", "workloads", "closes"):
            values[sequence] = tuple(values.get(sequence, ()))
        return Peer(name, **values)
    except (KeyError, TypeError) as error:
        raise PeerError(f"{path}: {error}") from error


def names() -> list[str]:
    """All peers, the engine first."""
    found = sorted(path.parent.name for path in PEERS.glob("*/peer.json"))
    return sorted(found, key=lambda name: name != OURS)
