"""Finds the operators that count a record again if it is read a second time after it has failed. A replay must not cause that.

A record that has failed in a node has been processed by all other nodes that it reaches without passing that node: those above it,
and those of other branches. The state that they have made of it stays, under each policy but `fail`. If the record is sent to its
topic once more, they process it once more. For most this changes nothing: a map, a look-up, a row of a table that is written again.
Others count it twice: aggregations of streams, `deduplicate` (which drops it), joins that keep records, processors with stores
(`NodeSpec.counts_records`). Example: a record passes a count and then fails in a map. If it is replayed, the count adds it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from streams.topology.graph import Node, ProcessorNode, SinkNode, SourceNode


def reached(nodes: Mapping[str, Node], topic: str, without: str | None = None) -> Iterator[Node]:
    """The nodes of a sub-topology, with real names, that a record of a topic can reach without passing the node `without`."""
    children: dict[str, list[str]] = {}
    for node in nodes.values():
        for parent in node.parents:
            children.setdefault(parent, []).append(node.name)
    waiting = [node.name for node in nodes.values() if isinstance(node, SourceNode) and _reads(node, topic)]
    seen = {without, *waiting}
    while waiting:
        name = waiting.pop()
        if name == without:
            continue
        yield nodes[name]
        new = [child for child in children.get(name, ()) if child not in seen]
        seen.update(new)
        waiting += new


def _reads(source: SourceNode, topic: str) -> bool:
    return topic in source.topics or (source.pattern is not None and source.pattern.fullmatch(topic) is not None)


def counted_by(
    nodes: Mapping[str, Node], beyond: Mapping[str, Sequence[str]], topic: str, failed: str
) -> tuple[str, ...]:
    """The operators that would count a record of a topic twice if it were read again after it has failed in a node.

    `nodes` are the nodes of the sub-topology that reads the topic. `beyond` has such operators after the topics of sinks.
    """
    found: list[str] = []
    for node in reached(nodes, topic, failed):
        if isinstance(node, ProcessorNode) and (node.spec.counts_records(node.stores) or node.spec.counts_updates):
            found.append(node.name)
        elif isinstance(node, SinkNode):
            found += beyond.get(node.name, ())
    return tuple(sorted(set(found)))


def counted_beyond(parts: Sequence[Mapping[str, Node]]) -> dict[str, tuple[str, ...]]:
    """For each sink whose topic the application reads itself, the operators after the topic that count a record twice.

    An update of a table does not count twice: a row that is written again subtracts what it adds.

    Args:
        parts: The nodes of each sub-topology.
    """
    found: dict[str, tuple[str, ...]] = {}
    for nodes in parts:
        for sink in nodes.values():
            if isinstance(sink, SinkNode) and isinstance(sink.topic, str) and (names := _behind(parts, sink.topic)):
                found[sink.name] = names
    return found


def _behind(parts: Sequence[Mapping[str, Node]], topic: str) -> tuple[str, ...]:
    found, topics, seen = set[str](), [topic], {topic}
    while topics:
        now = topics.pop()
        for node in (node for nodes in parts for node in reached(nodes, now)):
            if isinstance(node, ProcessorNode) and node.spec.counts_records(node.stores):
                found.add(node.name)
            elif isinstance(node, SinkNode) and isinstance(node.topic, str) and node.topic not in seen:
                seen.add(node.topic)
                topics.append(node.topic)
    return tuple(sorted(found))
