"""Validates application ids, which are part of the names of topics and folders."""

from __future__ import annotations

import re


def wrong_application_id(application_id: str) -> str | None:
    """What is wrong with an application id, as a sentence without a full stop; None if it is valid."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", application_id):
        return "use letters, digits, '.', '_' and '-'"
    if not application_id.strip("."):
        return "as the name of a folder, dots alone mean other folders, so add a letter or a digit"
    return None
