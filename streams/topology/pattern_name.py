"""Names for patterns of topics, so that state is found again whichever topics match at a start."""

from __future__ import annotations

import re


def fit_for_topic(name: str) -> str:
    """A name with all that Kafka does not allow in topic names replaced by `-`."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)


def pattern_text(pattern: re.Pattern[str]) -> str:
    """The pattern between slashes, followed by its flags as a number if there are any."""
    flags = pattern.flags & ~re.UNICODE
    return f"/{pattern.pattern}/{int(flags) or ''}"


def pattern_name(pattern: re.Pattern[str]) -> str:
    """A name for the internal topics of a source with a pattern: the pattern's plain text and `-pattern`."""
    plain = re.sub(r"-{2,}", "-", fit_for_topic(pattern.pattern)).strip("-.")
    return f"{plain}-pattern" if plain else "pattern"
