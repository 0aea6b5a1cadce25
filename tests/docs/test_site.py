"""The documentation site has every page, and every public name in its reference; `make site` itself is strict about links."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import streams
from streams.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
NAVIGATION = re.findall(r": ([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
REPORTS = {"drills.md", "drills-micro-batches.md"}
"""Pages of results that other pages link to, and that the navigation leaves out."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_script", ROOT / "scripts" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module)["PAGES"] = tmp_path_factory.mktemp("site") / "docs"
    module.write_pages()
    return module


def test_each_page_is_in_the_navigation_once(site: ModuleType) -> None:
    pages = {path.relative_to(site.PAGES).as_posix() for path in site.PAGES.rglob("*.md")}
    assert sorted(NAVIGATION) == sorted(pages - REPORTS)


@pytest.mark.parametrize("page", ["port/names.md", "reference/options.md"])
def test_github_shows_the_pages_from_the_code_as_the_site_does(site: ModuleType, page: str) -> None:
    made = (site.PAGES / page).read_text(encoding="utf-8")
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == made, "write it again: python scripts/site.py"


def test_every_command_has_a_heading(site: ModuleType) -> None:
    options = (site.PAGES / "reference/options.md").read_text(encoding="utf-8")
    assert {name for name in COMMANDS if f"\n## streams {name}\n" not in options} == set()
    assert "`--available-now`" in options


def test_the_reference_has_every_public_class_and_function(site: ModuleType) -> None:
    found = [path for paths in site.documented().values() for path in paths]
    assert len(found) == len(set(found))
    public = {name for name in streams.__all__ if callable(getattr(streams, name))}  # type: ignore[attr-defined]
    assert public <= {path.rpartition(".")[2] for path in found}
    assert all(site.documented().values()), "a page without names"
