"""The output of commands: text that is safe for a terminal, and JSON for programs.

Bytes of records and names from a cluster may contain anything. A control character in them could move the cursor, change
colours or the window's title, or hide text, so each is printed as an escape, to a terminal, a pipe or a file.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import orjson
import typer

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


def print_json(value: Any) -> None:
    """Prints a value as indented JSON; types unknown to JSON become text."""
    _echo(orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))


def print_json_line(value: Any) -> None:
    """Prints a value as one line of JSON."""
    _echo(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS))


def _echo(data: bytes) -> None:
    """Prints JSON with control characters above ASCII as escapes too; such characters can only occur in its strings."""
    text = data.decode()
    if not text.isprintable():
        text = "".join(_json_escape(one) if unicodedata.category(one) in _HIDDEN else one for one in text)
    typer.echo(text)


def _json_escape(character: str) -> str:
    return character if character == "\n" else json.dumps(character)[1:-1]


def _escape(character: str) -> str:
    code = ord(character)
    named = _NAMED.get(character)
    if named is not None:
        return named
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
