"""A topology as text for `describe()`, as a Mermaid flow chart, and as an SVG drawing for notebooks.

The text has the format of Kafka Streams' `TopologyDescription`, for which there are viewers. Sub-topologies are ordered by
number, and nodes by how many are below them, most first, then by name (Kafka Streams' comparator). Children after an arrow are
in the order in which they run; in Kafka Streams they, and the stores of a node, are in the order of Java's hashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from streams.topology.graph import GlobalTable, Graph, InternalTopic, Node, ProcessorNode, SinkNode, SourceNode
from streams.topology.plan import SubTopology, plan_alone
from streams.topology.planning.sub_topologies import sub_topologies
from streams.wording import counted


def topology_text(topology: Graph) -> str:
    """Returns the text, which ends in an empty line."""
    groups = sub_topologies(topology)
    parts = [f"  Sub-topology: {index}\n{_sub_topology(topology, names)}\n" for index, names in enumerate(groups)]
    for index, table in enumerate(topology.global_tables.values(), len(groups)):
        parts.append(f"  Sub-topology: {index} for global store (will not generate tasks)\n{_global_table(table)}\n")
    return "Topologies:\n " + "".join(parts)


def short_text(graph: Graph) -> str:
    """Returns one line, such as `2 sub-topologies: orders -> totals-repartition; totals-repartition -> totals (1 store)`."""
    groups = sub_topologies(graph)
    parts = "; ".join(_short(graph, names) for names in groups)
    tables = f"; global tables: {', '.join(graph.global_tables)}" if graph.global_tables else ""
    return f"{counted(len(groups), 'sub-topology')}: {parts}{tables}"


def _short(graph: Graph, names: Sequence[str]) -> str:
    nodes = [graph.nodes[name] for name in names]
    read = sorted({topic for node in nodes if isinstance(node, SourceNode) for topic in node.subscription})
    written = sorted({_written(node, "topics chosen per record") for node in nodes if isinstance(node, SinkNode)})
    stores = {store for node in nodes for store in node.stores}
    text = ", ".join(read) + (f" -> {', '.join(written)}" if written else "")
    return f"{text} ({counted(len(stores), 'store')})" if stores else text


def _written(sink: SinkNode, chosen: str = "chosen per record") -> str:
    return chosen if sink.topic is None else str(sink.topic)


def _global_table(table: GlobalTable) -> str:
    source = table.source
    return (
        f"    Source: {source.name} (topics: [{', '.join(map(str, source.topics))}])\n      --> {table.name}\n"
        f"    Processor: {table.name} (stores: [{table.store.name}])\n      --> none\n      <-- {source.name}\n"
    )


def _sub_topology(topology: Graph, names: list[str]) -> str:
    children: dict[str, list[str]] = {name: [] for name in names}
    for name in names:
        for parent in topology.nodes[name].parents:
            children[parent].append(name)
    size: dict[str, int] = {}
    for name in reversed(names):  # children before parents
        size[name] = 1 + sum(size[child] for child in children[name])

    lines = []
    for name in sorted(names, key=lambda name: (-size[name], name)):
        lines.append(f"    {_headline(topology, name)}\n")
        if not isinstance(topology.nodes[name], SinkNode):
            lines.append(f"      --> {_listed(children[name])}\n")
        if not isinstance(topology.nodes[name], SourceNode):
            lines.append(f"      <-- {_listed(topology.nodes[name].parents)}\n")
    return "".join(lines)


def _headline(topology: Graph, name: str) -> str:
    node = topology.nodes[name]
    if isinstance(node, SourceNode):
        if node.pattern is not None:
            return f"Source: {name} (topics: {node.pattern.pattern})"
        return f"Source: {name} (topics: [{', '.join(node.subscription)}])"
    if isinstance(node, ProcessorNode):
        return f"Processor: {name} (stores: [{', '.join(node.stores)}])"
    if node.topic is None:
        extractor = getattr(node.topic_extractor, "__qualname__", type(node.topic_extractor).__qualname__)
        return f"Sink: {name} (extractor class: {extractor})"
    lake = next((f", {sink.target_text}" for sink in topology.lake_sinks.values() if sink.topic == node.topic), "")
    added = isinstance(node.topic, InternalTopic) and node.topic.added
    return f"Sink: {name} (topic: {node.topic}{lake}{f', because {added}' if added else ''})"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


# --- A topology as a Mermaid flow chart, as GitHub draws it.
#
# Each sub-topology is a box with the readers (sources and head) and the tasks (operators that need order or state). The arrow
# from one to the other is the shuffle. Topics and stores are cylinders.


def mermaid(topology: Graph) -> str:
    """Returns the chart's source, without a code fence. Topics are named without the application's id."""
    lines = ["flowchart LR"]
    ids: dict[tuple[str, str], str] = {}
    for sub in plan_alone(topology).sub_topologies:
        lines += _box(topology, sub, ids)
    lines += _arrows(topology, ids)
    return "\n".join(lines) + "\n"


def _box(topology: Graph, sub: SubTopology, ids: dict[tuple[str, str], str]) -> list[str]:
    readers = [name for name in sub.nodes if isinstance(sub.nodes[name], SourceNode) or name in sub.head]
    tasks = [name for name in sub.nodes if name not in readers]
    lines = [f'  subgraph sub{sub.index}["{sub.index}: {_text(_plain(topology, sub))}"]']
    for part, names in (("readers", readers), ("tasks", tasks)):
        if not names:
            continue
        lines.append(f'    subgraph sub{sub.index}{part}["{part}"]')
        lines += [f"      {_id(ids, 'node', name)}{_shape(topology.nodes[name])}" for name in names]
        if part == "tasks":
            lines += [f'      {_id(ids, "store", store)}[("{_text(store)}")]' for store in sub.stores]
        lines.append("    end")
    lines.append("  end")
    return lines


def _plain(topology: Graph, sub: SubTopology) -> str:
    """The sub-topology's name without the application's id."""
    source = topology.nodes[sub.sources[0].name]
    assert isinstance(source, SourceNode)
    return source.subscription[0]


def _shape(node: Node) -> str:
    if isinstance(node, ProcessorNode):
        return f'["{_text(node.name)}"]'
    return f'(["{_text(node.name)}"])'


def _arrows(topology: Graph, ids: dict[tuple[str, str], str]) -> list[str]:
    lines = []
    for node in topology.nodes.values():
        here = ids["node", node.name]
        if isinstance(node, SourceNode):
            lines += [
                f"  {_topic(ids, str(topic))} --> {here}"
                for topic in (node.subscription if node.pattern is not None else node.topics)
            ]
        lines += [f"  {ids['node', parent]} --> {here}" for parent in node.parents]
        lines += [f"  {here} -.- {ids['store', store]}" for store in node.stores]
        if isinstance(node, SinkNode) and node.topic is not None:
            lines.append(f"  {here} --> {_topic(ids, str(node.topic))}")
    for sink in topology.lake_sinks.values():
        target = _id(ids, "lake", sink.name)
        lines.append(f'  {_topic(ids, str(sink.topic))} --> {target}[("{_text(sink.target_text)}")]')
    return lines


def _topic(ids: dict[tuple[str, str], str], topic: str) -> str:
    return f'{_id(ids, "topic", topic)}[("{_text(topic)}")]'


def _id(ids: dict[tuple[str, str], str], kind: str, name: str) -> str:
    return ids.setdefault((kind, name), f"{kind[0]}{len(ids)}")


def _text(name: str) -> str:
    return name.replace('"', "#quot;")


# --- A topology as an SVG drawing, which a notebook shows without a network or a script.
#
# Sub-topologies are frames, one below the other, in which data flows from left to right: topics, then operators by their distance
# from the sources, then topics again. Operators in readers are blue; operators in tasks are yellow and name their stores.
#
# Invariants: equal topologies have equal drawings; all text is escaped.

_LINE = 16
_LONGEST_LINE = 32
_CHARACTER = 7
_PADDING = 10
_COLUMN_GAP = 44
_ROW_GAP = 12
_TITLE = 26
_STYLES = {
    "rect": "fill:none;stroke:#bbb",
    "text": "font:12px monospace;fill:#222",
    "path": "fill:none;stroke:#666;marker-end:url(#streams-arrow)",
    ".topic": "fill:#eee;stroke:#888",
    ".reader": "fill:#dcebfb;stroke:#4a7db5",
    ".task": "fill:#fdf3d0;stroke:#b58f2a",
}
"""Selector -> style. Selectors are limited to the drawing, because a style sheet in a notebook applies to the whole page."""
_ARROWHEAD = (
    '<defs><marker id="streams-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<polygon points="0 0 8 4 0 8" fill="#666"/></marker></defs>'
)


@dataclass(slots=True)
class _Box:
    """The box of one topic or operator.

    Attributes:
        look: The CSS class of the rectangle.
        lines: The text in the box.
        x, y: The upper left corner.
    """

    look: str
    lines: tuple[str, ...]
    x: int = 0
    y: int = 0

    @property
    def width(self) -> int:
        return max(map(len, self.lines)) * _CHARACTER + 2 * _PADDING

    @property
    def height(self) -> int:
        return len(self.lines) * _LINE + _PADDING

    def svg(self) -> str:
        corner = self.height // 2 if self.look == "topic" else 3
        size = f'width="{self.width}" height="{self.height}" rx="{corner}"'
        rectangle = f'<rect class="{self.look}" x="{self.x}" y="{self.y}" {size}/>'
        texts = [
            f'<text x="{self.x + _PADDING}" y="{self.y + _LINE * (at + 1)}">{escape(line)}</text>'
            for at, line in enumerate(self.lines)
        ]
        return "".join((rectangle, *texts))


def svg(graph: Graph) -> str:
    """Returns the drawing, an `<svg>` element.

    Raises:
        TopologyError: The topology cannot be planned.
    """
    parts: list[str] = []
    width, top = 0, _PADDING
    for sub in plan_alone(graph).sub_topologies:
        drawn, right, top = _frame(graph, sub, top)
        parts.append(drawn)
        width = max(width, right)
    for table in graph.global_tables.values():
        text = f"global table {table.store.name}, of the topic {table.source.topics[0]}"
        parts.append(f'<text x="{_PADDING}" y="{top + _LINE}">{escape(text)}</text>')
        width, top = max(width, len(text) * _CHARACTER + _PADDING), top + _LINE + _ROW_GAP
    size = f'width="{width + _PADDING}" height="{top}"'
    styles = "".join(f".streams-topology {selector}{{{style}}}" for selector, style in _STYLES.items())
    background = f'<rect x="0" y="0" {size} style="fill:white;stroke:none"/>'
    head = f'<svg class="streams-topology" xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width + _PADDING} {top}">'
    return "".join((head, f"<style>{styles}</style>", _ARROWHEAD, background, *parts, "</svg>"))


def _frame(graph: Graph, sub: SubTopology, top: int) -> tuple[str, int, int]:
    """Draws a sub-topology in its frame. Returns the drawing, the frame's right edge, and where the next one begins."""
    columns = _columns(graph, sub)
    boxes = {key: box for column in columns for key, box in column.items()}
    right, bottom = _place(columns, top + _TITLE)
    title = f"sub-topology {sub.index}: {_plain(graph, sub)}"
    right = max(right, 2 * _PADDING + len(title) * _CHARACTER)
    parts = [
        f'<rect class="frame" x="{_PADDING // 2}" y="{top}" width="{right}" height="{bottom - top}" rx="6"/>',
        f'<text x="{_PADDING}" y="{top + _LINE}" font-weight="bold">{escape(title)}</text>',
        *(_arrow(boxes[start], boxes[end]) for start, end in _edges(graph, sub)),
        *(box.svg() for box in boxes.values()),
    ]
    return "".join(parts), right, bottom + _ROW_GAP


def _columns(graph: Graph, sub: SubTopology) -> list[dict[str, _Box]]:
    """The columns of boxes: topics that are read, operators by distance, topics that are written."""
    distance: dict[str, int] = {}
    for name in sub.nodes:  # parents first
        distance[name] = 1 + max((distance[parent] for parent in graph.nodes[name].parents), default=0)
    columns: list[dict[str, _Box]] = [{} for _ in range(max(distance.values()) + 2)]
    for name, at in distance.items():
        node = graph.nodes[name]
        in_reader = isinstance(node, SourceNode) or name in sub.head
        texts = (name, *(f"store {store}" for store in node.stores))
        columns[at][name] = _text_box("reader" if in_reader else "task", *texts)
    for key, topic in _topic_boxes(graph, sub, SourceNode):
        columns[0][key] = _text_box("topic", topic)
    for key, topic in _topic_boxes(graph, sub, SinkNode):
        columns[-1][key] = _text_box("topic", topic)
    return columns


def _text_box(look: str, *texts: str) -> _Box:
    return _Box(look, tuple(line for text in texts for line in _wrapped(text)))


def _wrapped(text: str) -> list[str]:
    """Wraps text into lines, if possible after dashes and spaces."""
    lines = [""]
    for part in re.findall(r"[^ -]*[ -]?", text):
        if lines[-1] and len(lines[-1]) + len(part) > _LONGEST_LINE:
            lines.append("")
        lines[-1] += part
    return lines


def _place(columns: Iterable[dict[str, _Box]], top: int) -> tuple[int, int]:
    """Places each box, and returns the right and the lower edge."""
    x, bottom = 2 * _PADDING, top
    for column in columns:
        y = top
        for box in column.values():
            box.x, box.y = x, y
            y += box.height + _ROW_GAP
        if column:
            x += max(box.width for box in column.values()) + _COLUMN_GAP
            bottom = max(bottom, y)
    return x - _COLUMN_GAP + _PADDING, bottom


def _topic_boxes(graph: Graph, sub: SubTopology, of: type[SourceNode] | type[SinkNode]) -> list[tuple[str, str]]:
    """The topics that a sub-topology reads or writes, each once, with a key for its box."""
    found: list[str] = []
    for name in sub.nodes:
        node = graph.nodes[name]
        if isinstance(node, SourceNode) and of is SourceNode:
            found += node.subscription
        elif isinstance(node, SinkNode) and of is SinkNode:
            found.append(_written(node))
    return [(f"{of.__name__} {topic}", topic) for topic in dict.fromkeys(found)]


def _edges(graph: Graph, sub: SubTopology) -> list[tuple[str, str]]:
    """The arrows, as pairs of the keys of their boxes."""
    edges: list[tuple[str, str]] = []
    for name in sub.nodes:
        node = graph.nodes[name]
        if isinstance(node, SourceNode):
            edges += [(f"SourceNode {topic}", name) for topic in node.subscription]
        edges += [(parent, name) for parent in node.parents]
        if isinstance(node, SinkNode):
            edges.append((name, f"SinkNode {_written(node)}"))
    return edges


def _arrow(start: _Box, end: _Box) -> str:
    x, y = start.x + start.width, start.y + start.height // 2
    to_x, to_y = end.x, end.y + end.height // 2
    bend = max((to_x - x) // 2, _COLUMN_GAP // 2)
    return f'<path d="M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"/>'
