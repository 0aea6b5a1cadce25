"""Finds words that make our English hard to read, in comments, docstrings, messages and documentation, and names better ones."""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

WORDS = {
    r"\banew\b": "again, or: from the start",
    r"(?<!none )(?<!half )(?<!some )(?<!one )(?<!each )\bof which\b": "start a new sentence",
    r"\bthose that\b": "name the things: the records that",
    r"(?<!there )\b(is|are) no (?!longer\b|more\b|other\b|one\b)": "is not a",
    r"\b(mends?|mended)\b": "fix",
    r"\btold\b": "reported, or: specified",
    r"\bgo(es)? on\b": "continue",
    r"\bbeside\b": "next to, together with",
    r"\b(wish|wishes)\b": "want",
    r"\bneeded no more\b": "no longer needed",
}
"""Pattern -> what to write."""

_PYTHON = ("streams", "state")
_PAGES = ("docs", "README.md", "CONTRIBUTING.md")
_TEXT = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The prose of a file, line by line."""
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(content.split("\n"), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type in _TEXT:
            yield from enumerate(token.string.split("\n"), token.start[0])


def files(root: Path) -> Iterator[Path]:
    for folder in _PYTHON:
        yield from sorted((root / folder).rglob("*.py"))
    for page in _PAGES:
        yield from sorted((root / page).rglob("*.md")) if (root / page).is_dir() else [root / page]


def main() -> int:
    found = 0
    for path in files(Path()):
        for line, text in texts(path):
            for pattern, better in WORDS.items():
                for match in re.finditer(pattern, text, re.IGNORECASE):
                    found += 1
                    print(f"{path}:{line}: '{match.group(0).strip()}': write {better}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
