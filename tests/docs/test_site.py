"""The documentation site has every page, and every public name in its reference; `make site` itself is strict about links."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import streams

ROOT = Path(__file__).parents[2]
NAVIGATION = re.findall(r": ([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_script", ROOT / "scripts" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_page_is_in_the_navigation_once(site: ModuleType) -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(NAVIGATION) == sorted({*pages, *(f"api/{page}.md" for page in site.API)})


def test_the_reference_has_every_public_class_and_function(site: ModuleType) -> None:
    found = [path for paths in site.documented().values() for path in paths]
    assert len(found) == len(set(found))
    public = {name for name in streams.__all__ if callable(getattr(streams, name))}  # type: ignore[attr-defined]
    assert public <= {path.rpartition(".")[2] for path in found}
    assert all(site.documented().values()), "a page without names"
