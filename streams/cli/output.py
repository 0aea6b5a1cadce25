"""The output of commands: text that is safe for a terminal, tables, and JSON for programs.

Bytes of records and names from a cluster may contain anything. A control character in them could move the cursor, change
colours or the window's title, or hide text, so each is printed as an escape, to a terminal, a pipe or a file.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import orjson
import typer

if TYPE_CHECKING:
    # Most commands print a few lines of text.
    from rich.console import Console
    from rich.table import Table

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_WIDE = 10_000
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""Unicode's control, format, surrogate, private, and line or paragraph separating characters."""


def visible(text: str, keep: str = "") -> str:
    r"""The text with control and format characters as escapes, such as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(one if one in keep or unicodedata.category(one) not in _HIDDEN else _escape(one) for one in text)


def visible_bytes(data: bytes) -> str:
    r"""Bytes as text: UTF-8 where valid, `\xNN` elsewhere, control characters as escapes."""
    return visible(data.decode(errors="backslashreplace"))


def _escape(character: str) -> str:
    code = ord(character)
    named = _NAMED.get(character)
    if named is not None:
        return named
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown_time(at: int) -> str:
    """A time in UTC to the millisecond, or the number itself if it is beyond the range of the calendar."""
    try:
        return (EPOCH + timedelta(milliseconds=at)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(at)


def print_json(value: Any) -> None:
    """Prints a value as indented JSON; types unknown to JSON become text."""
    _echo(orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))


def print_json_line(value: Any) -> None:
    """Prints a value as one line of JSON, with integers of any size."""
    try:
        data = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        from streams.serdes.json_shown import shown_json

        data = shown_json(value)
    _echo(data)


def _echo(data: bytes) -> None:
    """Prints JSON. Control characters beyond ASCII, which only strings can have, are printed as escapes, too."""
    text = data.decode()
    if not text.isprintable():
        text = "".join(
            json.dumps(one)[1:-1] if one != "\n" and unicodedata.category(one) in _HIDDEN else one for one in text
        )
    typer.echo(text)


def table_console() -> Console:
    """A console for tables on standard output.

    A terminal bounds the width of a table. A pipe or a file does not, unless `COLUMNS` is set: a table that is cut to 80 columns
    there would lose what a script looks for.
    """
    from rich.console import Console

    bounded = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console() if bounded else Console(width=_WIDE)


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]] = (), **options: Any) -> Table:
    """A table without lines. A heading that begins with `>` is above a column of numbers, which is aligned to the right."""
    from rich.table import Table

    made = Table(box=None, header_style="bold", **options)
    for heading in headings:
        justify: Any = "right" if heading.startswith(">") else "left"
        made.add_column(heading.removeprefix(">"), justify=justify, overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def print_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints a table on standard output; texts in it may have Rich's markup."""
    table_console().print(table(headings, rows))


def print_line(text: str, console: Console | None = None) -> None:
    """Prints a line as it is, without markup, colours or breaks."""
    (console or table_console()).print(text, markup=False, highlight=False, soft_wrap=True)


def print_finding(level: str, colour: str, text: str, width: int = 7) -> None:
    """Prints a finding on standard output: its level in colour, and its text."""
    from rich.console import Console

    console = Console()
    console.print(f"[{colour}]{level:>{width}}[/]  ", end="")
    print_line(text, console)
