"""Who may import whom: the floors of docs/architecture/floors.md. Imports of every sort count, in functions and for types, too."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = [
    "state/errors.py",
    "state/secrets.py",
    "state/exact_json.py",
    "state/machine_code.py",
    "state/numba_functions.py",
    "state/numba_kernels.py",
    "state/headers.py",
    "state/columns.py",
    "state/murmur3.py",
    "state/sorting.py",
    "state/kafka",
    "state/tables",
    "state/stores",
    "state/changelog.py",
    "state/commit",
    "state/restore",
    "streams/users_code.py",
    "streams/wording.py",
    "streams/errors.py",
    "streams/logs",
    "streams/migration_hints.py",
    "streams/model",
    "streams/sinks",
    "streams/serdes",
    "streams/operators",
    "streams/topology",
    "streams/dsl",
    "streams/config",
    "streams/broker",
    "streams/cluster",
    "streams/engine/source",
    "streams/engine/graph",
    "streams/engine/reader",
    "streams/engine/task",
    "streams/metrics",
    "streams/engine/step",
    "streams/engine/live",
    "streams/checkpoint",
    "streams/lake",
    "streams/application",
    "streams/serve",
    "streams/ui",
    "streams/engine/spark",
    "streams/driver",
    "streams/testing",
    "streams/pytest_plugin.py",
    "streams/drills",
    "streams/cli",
    "streams/__main__.py",
]
"""From the ground up: a file imports from its own floor and from those below."""

FOREIGN = {
    "pyspark": ("streams/driver", "streams/engine/spark", "streams/broker"),
    "confluent_kafka": (
        "state/kafka",
        "streams/broker",
        "streams/cluster",
        "streams/serdes",
        "streams/cli",
        "streams/engine/source",
        "streams/drills",
    ),
    "rocksdict": ("state/tables",),
    "fsspec": ("state/restore",),
    "psutil": ("streams/drills", "streams/metrics"),
    "prometheus_client": ("streams/metrics",),
    "opentelemetry": ("streams/metrics",),
    "starlette": ("streams/serve", "streams/ui"),
    "uvicorn": ("streams/serve", "streams/ui"),
    "typer": ("streams/cli",),
    "jwt": ("streams/serve",),
    "httpx2": ("streams/serve", "streams/ui"),
    "duckdb": ("streams/serve",),
    "psycopg": ("streams/sinks", "streams/drills"),
    "pyiceberg": ("streams/sinks", "streams/drills"),
    "datasketches": ("streams/model",),
    "ddsketch": ("streams/model",),
}
"""Libraries that only these floors know; the broker takes its jars from pyspark."""

FACADES = {f"streams/dsl/{name}.py" for name in ("grouped", "kstream", "kstream_joins", "ktable")}
"""The one circle: streams give tables, tables give streams, as `KStreamImpl` and `KTableImpl` do in Kafka Streams."""


@lru_cache
def python_files() -> list[Path]:
    return sorted(path for folder in ("state", "streams") for path in (ROOT / folder).rglob("*.py"))


@lru_cache(None)
def imports(path: Path) -> tuple[str, ...]:
    """What a file imports, as modules with dots; `from package import module` counts as the module."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)


@lru_cache(None)
def file_of(module: str) -> Path | None:
    """The file of a module of ours, or of the module that has this name in it."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:end])
        if place.with_suffix(".py").is_file():
            return place.with_suffix(".py")
        if (place / "__init__.py").is_file():
            return place / "__init__.py"
    return None


@lru_cache(None)
def floor(path: Path) -> int:
    """The number of a file's floor; packages' own `__init__.py` above all floors have none: -1."""
    name = path.relative_to(ROOT).as_posix()
    return next((n for n, place in enumerate(FLOORS) if name == place or name.startswith(place + "/")), -1)


@lru_cache
def arrows() -> list[tuple[Path, Path]]:
    """Importing file and imported file, of all imports among our own."""
    found = ((path, file_of(module)) for path in python_files() for module in imports(path))
    return [(path, target) for path, target in found if target is not None and target != path]


def test_every_file_belongs_to_a_layer() -> None:
    packages = {
        "state/__init__.py",
        "streams/__init__.py",
        "streams/api.py",
        "streams/engine/__init__.py",
        "streams/shadowing.py",
        "streams/version.py",
    }
    homeless = {path.relative_to(ROOT).as_posix() for path in python_files() if floor(path) < 0}
    assert homeless <= packages


@pytest.mark.parametrize("place", FLOORS)
def test_a_floor_imports_only_from_below(place: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {target.relative_to(ROOT)}"
        for path, target in arrows()
        if FLOORS[floor(path)] == place and floor(path) >= 0 and floor(target) > floor(path)
    ]
    assert wrong == []


@pytest.mark.parametrize("library", FOREIGN)
def test_a_library_is_known_to_its_floors_only(library: str) -> None:
    wrong = [
        path.relative_to(ROOT).as_posix()
        for path in python_files()
        if any(module.split(".")[0] == library for module in imports(path))
        and not path.relative_to(ROOT).as_posix().startswith(FOREIGN[library])
    ]
    assert wrong == []


def test_the_facades_of_the_dsl_are_the_only_circle() -> None:
    in_circles = {path.relative_to(ROOT).as_posix() for circle in circles() for path in circle}
    assert in_circles <= FACADES


def test_no_folder_is_too_full_to_find_a_file_by_its_name() -> None:
    folders = {path.parent for path in python_files()}
    full = {
        folder.relative_to(ROOT).as_posix(): count
        for folder in folders
        if (count := len([path for path in folder.glob("*.py") if path.name != "__init__.py"])) > 23
    }
    assert full == {}


def test_no_file_is_too_long_to_read_at_once() -> None:
    lines = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in python_files()}
    assert {path: count for path, count in lines.items() if count > 900} == {}


def circles() -> list[set[Path]]:
    """Files that import each other, directly or around corners (Tarjan's strongly connected components)."""
    following: dict[Path, set[Path]] = {path: set() for path in python_files()}
    for path, target in arrows():
        following[path].add(target)
    number: dict[Path, int] = {}
    lowest: dict[Path, int] = {}
    stack: list[Path] = []
    found: list[set[Path]] = []

    def visit(path: Path) -> None:
        number[path] = lowest[path] = len(number)
        stack.append(path)
        for target in following[path]:
            if target not in number:
                visit(target)
                lowest[path] = min(lowest[path], lowest[target])
            elif target in stack:
                lowest[path] = min(lowest[path], number[target])
        if lowest[path] == number[path]:
            circle = set()
            while True:
                last = stack.pop()
                circle.add(last)
                if last == path:
                    break
            if len(circle) > 1:
                found.append(circle)

    for path in following:
        if path not in number:
            visit(path)
    return found
