"""Reads `key=value` files as Java does, so that a client's properties file for Kafka tools works unchanged."""

import re
from collections.abc import Iterator

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY_END = re.compile(r"(?<!\\)(?:\\\\)*([\s=:])")


def parse_java_properties(text: str) -> dict[str, str]:
    r"""Parses the text of a Java properties file.

    Follows `java.util.Properties.load`: comments start with `#` or `!`; the key ends at the first `=`, `:` or blank
    that is not escaped; a backslash at the end of a line joins it with the next; `\uXXXX`, `\t`, `\n`, `\r` and `\f`
    are escapes.

    Raises:
        ValueError: A `\u` escape without four hexadecimal digits.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        end = _KEY_END.search(line)
        key = line if end is None else line[: end.start(1)]
        rest = "" if end is None else line[end.start(1) :].lstrip()
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip()
        properties[_unescape(key)] = _unescape(rest)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Joins continued lines, and drops comments and empty lines."""
    joined = ""
    for natural in text.splitlines():
        line = natural.lstrip()
        if not joined and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
        else:
            yield joined + line
            joined = ""
    if joined:
        yield joined


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        escape = match.group(1)
        if escape[0] != "u":
            return _ESCAPES.get(escape, escape)
        if len(escape) != 5:
            raise ValueError(f"'\\{escape}' needs four hexadecimal digits")
        return chr(int(escape[1:], 16))

    return re.sub(r"\\(u[0-9a-fA-F]{0,4}|.)", replaced, text)
