"""Suggestions for misspelt names: `did you mean 'tasks'?`."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question that names the closest of the known names; empty where none is close."""
    found = get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, found))}?" if found else ""
