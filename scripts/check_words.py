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

FOR_READERS = {
    r"\bmeanwhile\b": "until then, at that time, or nothing",
    r"\bwhoever\b": "anyone who, or name the person or the program",
    r"\btells\b": "show, report",
    r"\bsome (?=(few|ten|hundred|thousand|million|(milli)?seconds?|minutes|hours|days|time later)\b)": "a few, about, several",
    r"\bof ours\b": "our",
    r"\bas ever\b": "as usual, as always",
    r"\bthe page of (?=(an?|the) (running )?application\b)": "the dashboard of",
    r"(?<!dead )(?<!dead-)\bletters? (?=(of|that|is|are|were|names?|has|have)\b)": "dead letter",
}
"""The same for pages and messages, which people read who do not know the code."""

_PYTHON = ("streams", "state")
_PAGES = ("docs", "README.md", "CONTRIBUTING.md")
_FOR_MAINTAINERS = ("docs/architecture.md", "docs/architecture/", "CONTRIBUTING.md")
_OF_MEASUREMENTS = ("docs/drills.md", "docs/drills-micro-batches.md", "docs/live.md", "docs/performance.md")
"""Pages that are written from results, and are reworded when these are made again."""
_TEXT = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def texts(path: Path) -> Iterator[tuple[int, str, bool]]:
    """The prose of a file, line by line, and whether it is for readers: a page, or a message in the code."""
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        is_page = not path.as_posix().startswith(_FOR_MAINTAINERS + _OF_MEASUREMENTS)
        for number, line in enumerate(content.split("\n"), 1):
            yield number, line, is_page
        return
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type in _TEXT:
            is_message = token.type != tokenize.COMMENT and not token.string.lstrip("rfb").startswith('"""')
            for number, line in enumerate(token.string.split("\n"), token.start[0]):
                yield number, line, is_message


def files(root: Path) -> Iterator[Path]:
    for folder in _PYTHON:
        yield from sorted((root / folder).rglob("*.py"))
    for page in _PAGES:
        yield from sorted((root / page).rglob("*.md")) if (root / page).is_dir() else [root / page]


def main() -> int:
    found = 0
    for path in files(Path()):
        for line, text, for_readers in texts(path):
            for pattern, better in (WORDS | FOR_READERS if for_readers else WORDS).items():
                for match in re.finditer(pattern, text, re.IGNORECASE):
                    found += 1
                    print(f"{path}:{line}: '{match.group(0).strip()}': write {better}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
