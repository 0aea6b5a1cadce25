"""The hash of a sub-topology, part of every commit marker, which tells whether the state on disk belongs to this program.

The hash covers everything that determines the meaning of state: source topics, stateful operators with their windows and built-in
aggregates, their connections, and stores with their serdes. The hash leaves out everything that may change without affecting state:
functions (their text is no reliable identity), stateless operators, sinks, retry topics, and settings that do not change bytes.
"""

from __future__ import annotations

import hashlib
import json

from streams.serdes.base import Serde, serde_identity
from streams.topology.graph import Node, ProcessorNode, SourceNode, StoreNode


def topology_hash(nodes: dict[str, Node], stores: dict[str, StoreNode]) -> str:
    """The hash of a sub-topology's stateful structure, 16 hex digits."""
    skeleton = {
        "sources": sorted([source.name, list(source.subscription)] for source in _sources(nodes)),
        "operators": sorted(
            [
                node.name,
                node.kind.value,
                sorted(node.stores),
                [list(pair) for pair in node.parameters],
                nearest_lasting(nodes, node),
            ]
            for node in nodes.values()
            if isinstance(node, ProcessorNode) and not node.stateless
        ),
        "stores": sorted(
            [store.name, store.spec.kind.name, store.spec.retain_duplicates, *map(serde_identity, _serdes(store))]
            for store in stores.values()
        ),
    }
    text = json.dumps(skeleton, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _sources(nodes: dict[str, Node]) -> list[SourceNode]:
    return [node for node in nodes.values() if isinstance(node, SourceNode) and not node.retries]


def _serdes(store: StoreNode) -> tuple[Serde, Serde]:
    return store.key_serde, store.value_serde


def nearest_lasting(nodes: dict[str, Node], node: Node) -> list[str]:
    """The nearest sources and stateful operators above a node."""
    found: set[str] = set()
    for parent in node.parents:
        above = nodes[parent]
        if isinstance(above, ProcessorNode) and above.stateless:
            found.update(nearest_lasting(nodes, above))
        elif not (isinstance(above, SourceNode) and above.retries):
            found.add(parent)
    return sorted(found)
