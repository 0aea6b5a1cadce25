"""Who may import whom: the arrows of docs/architecture.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RULES = {
    "state": {"streams", "pyspark", "topologies"},
    "streams/model": {
        "pyspark",
        "confluent_kafka",
        "streams.serdes",
        "streams.operators",
        "streams.topology",
        "streams.dsl",
        "streams.runtime",
    },
    "streams/operators": {
        "pyspark",
        "confluent_kafka",
        "streams.spark",
        "streams.runtime",
        "streams.dsl",
        "streams.topology",
    },
    "streams/runtime": {"pyspark", "confluent_kafka", "streams.spark", "streams.dsl", "streams.source"},
    "streams/dsl": {"pyspark", "confluent_kafka", "streams.spark", "streams.runtime"},
    "streams/topology": {"pyspark", "confluent_kafka", "streams.spark", "streams.runtime", "streams.dsl"},
    "streams/serdes": {
        "pyspark",
        "streams.spark",
        "streams.runtime",
        "streams.dsl",
        "streams.topology",
        "streams.operators",
    },
    "streams/source": {"pyspark", "streams.spark", "streams.runtime", "streams.dsl"},
    "streams/microbatch": {"pyspark", "confluent_kafka", "streams.spark", "streams.dsl"},
    "streams/checkpoint": {
        "pyspark",
        "confluent_kafka",
        "streams.spark",
        "streams.runtime",
        "streams.dsl",
        "streams.application",
    },
    "streams/application": {"pyspark", "streams.spark"},
    "streams/testing": {"pyspark", "confluent_kafka", "streams.spark"},
    "streams/broker": {"streams.spark", "streams.dsl", "streams.runtime"},
}


def imports(path: Path) -> set[str]:
    """Modules that a file imports anywhere outside `if TYPE_CHECKING`, relative imports left out."""
    found: set[str] = set()

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(ast.parse(path.read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize("folder", RULES)
def test_imports(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for module in sorted(imports(path))
        for forbidden in RULES[folder]
        if module == forbidden or module.startswith(forbidden + ".")
    ]
    # How to reach the broker's jars, which come with pyspark, is the one thing that the broker asks of it.
    assert wrong == []


def test_every_folder_has_files() -> None:
    for folder in RULES:
        assert list((ROOT / folder).rglob("*.py")), folder
