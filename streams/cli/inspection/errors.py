"""`streams errors`: what an error means, from the page of errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from streams.cli.command import argument, command
from streams.errors import ConfigError
from streams.wording import did_you_mean

_SHIPPED = Path(__file__).parents[1] / "errors.md"
"""The page of errors as setup.py puts it into a wheel."""
_IN_REPOSITORY = Path(__file__).parents[3] / "docs" / "errors.md"


@command
def errors(name: Annotated[str | None, argument("An error's name; without one: all names.")] = None) -> None:
    """Print what an error means, what to do, and whether something is lost."""
    known = entries()
    if name is None:
        typer.echo("\n".join(known))
    elif name in known:
        typer.echo(f"{name}\n\n{known[name]}")
    else:
        raise ConfigError(f"there is no error {name!r}.{did_you_mean(name, known)}")


def entries() -> Mapping[str, str]:
    """The name of each error -> its entry in docs/errors.md, as plain text."""
    page = (_SHIPPED if _SHIPPED.exists() else _IN_REPOSITORY).read_text(encoding="utf-8")
    found = re.findall(r"^### (\w+)\n\n(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE)
    return {name: re.sub(r"\[([^]]+)\]\([^)]*\)|\*\*", r"\1", text).strip() for name, text in found}
