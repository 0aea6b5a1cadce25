"""A topology as an SVG drawing, which a notebook shows without a network or a script.

Sub-topologies are frames, one below the other, in which data flows from left to right: topics, then operators by their distance
from the sources, then topics again. Operators in readers are blue; operators in tasks are yellow and name their stores.

Invariants: equal topologies have equal drawings; all text is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from streams.topology.graph import Graph, SinkNode, SourceNode
from streams.topology.plan import SubTopology, plan_alone

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
"""By selector; within the drawing, as a style sheet in a notebook concerns the whole page."""
_ARROWHEAD = (
    '<defs><marker id="streams-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<polygon points="0 0 8 4 0 8" fill="#666"/></marker></defs>'
)


@dataclass(slots=True)
class _Box:
    """One topic or operator.

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
    """The drawing, an `<svg>` element.

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
    """Draws a sub-topology in its frame; returns the frame's right edge, and where the next one begins."""
    columns = _columns(graph, sub)
    boxes = {key: box for column in columns for key, box in column.items()}
    right, bottom = _place(columns, top + _TITLE)
    title = f"sub-topology {sub.index}: {_title(graph, sub)}"
    right = max(right, 2 * _PADDING + len(title) * _CHARACTER)
    parts = [
        f'<rect class="frame" x="{_PADDING // 2}" y="{top}" width="{right}" height="{bottom - top}" rx="6"/>',
        f'<text x="{_PADDING}" y="{top + _LINE}" font-weight="bold">{escape(title)}</text>',
        *(_arrow(boxes[start], boxes[end]) for start, end in _edges(graph, sub)),
        *(box.svg() for box in boxes.values()),
    ]
    return "".join(parts), right, bottom + _ROW_GAP


def _columns(graph: Graph, sub: SubTopology) -> list[dict[str, _Box]]:
    """The columns: topics that are read, operators by distance, topics that are written."""
    distance: dict[str, int] = {}
    for name in sub.nodes:  # parents first
        distance[name] = 1 + max((distance[parent] for parent in graph.nodes[name].parents), default=0)
    columns: list[dict[str, _Box]] = [{} for _ in range(max(distance.values()) + 2)]
    for name, at in distance.items():
        node = graph.nodes[name]
        in_reader = isinstance(node, SourceNode) or name in sub.head
        texts = (name, *(f"store {store}" for store in node.stores))
        columns[at][name] = _box("reader" if in_reader else "task", *texts)
    for key, topic in _topics(graph, sub, SourceNode):
        columns[0][key] = _box("topic", topic)
    for key, topic in _topics(graph, sub, SinkNode):
        columns[-1][key] = _box("topic", topic)
    return columns


def _box(look: str, *texts: str) -> _Box:
    """A box with its text, long text in several lines."""
    return _Box(look, tuple(line for text in texts for line in _lines(text)))


def _lines(text: str) -> list[str]:
    """Text wrapped into lines, if possible after dashes and spaces."""
    lines = [""]
    for part in re.findall(r"[^ -]*[ -]?", text):
        if lines[-1] and len(lines[-1]) + len(part) > _LONGEST_LINE:
            lines.append("")
        lines[-1] += part
    return lines


def _place(columns: Iterable[dict[str, _Box]], top: int) -> tuple[int, int]:
    """Places each box; returns the right and the lower edge."""
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


def _topics(graph: Graph, sub: SubTopology, of: type[SourceNode] | type[SinkNode]) -> list[tuple[str, str]]:
    """The topics that a sub-topology reads or writes, each once, with a key for its box."""
    found: list[str] = []
    for name in sub.nodes:
        node = graph.nodes[name]
        if isinstance(node, SourceNode) and of is SourceNode:
            found += _read(node)
        elif isinstance(node, SinkNode) and of is SinkNode:
            found.append(_written(node))
    return [(f"{of.__name__} {topic}", topic) for topic in dict.fromkeys(found)]


def _read(source: SourceNode) -> tuple[str, ...]:
    return source.subscription


def _written(sink: SinkNode) -> str:
    return "chosen per record" if sink.topic is None else str(sink.topic)


def _edges(graph: Graph, sub: SubTopology) -> list[tuple[str, str]]:
    """The arrows, by the keys of their boxes."""
    edges: list[tuple[str, str]] = []
    for name in sub.nodes:
        node = graph.nodes[name]
        if isinstance(node, SourceNode):
            edges += [(f"SourceNode {topic}", name) for topic in _read(node)]
        edges += [(parent, name) for parent in node.parents]
        if isinstance(node, SinkNode):
            edges.append((name, f"SinkNode {_written(node)}"))
    return edges


def _arrow(start: _Box, end: _Box) -> str:
    x, y = start.x + start.width, start.y + start.height // 2
    to_x, to_y = end.x, end.y + end.height // 2
    bend = max((to_x - x) // 2, _COLUMN_GAP // 2)
    return f'<path d="M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"/>'


def _title(graph: Graph, sub: SubTopology) -> str:
    """The sub-topology's name without the application's id."""
    source = graph.nodes[sub.sources[0].name]
    assert isinstance(source, SourceNode)
    return source.subscription[0]
