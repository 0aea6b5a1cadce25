"""Which application ids there can be: they are part of the names of topics, and name folders."""

from __future__ import annotations

import re


def wrong_application_id(application_id: str) -> str | None:
    """What is wrong with an application id, as a sentence without its end; None if nothing is."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", application_id):
        return "use letters, digits, '.', '_' and '-'"
    if not application_id.strip("."):
        return "as the name of a folder, dots alone mean other folders, so add a letter or a digit"
    return None
