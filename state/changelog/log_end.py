"""Whether a changelog still has all that its commit marker promises."""

from __future__ import annotations

from state.errors import RestoreError

NO_CHANGELOG = (
    "Restore the topic from a backup, with the offsets that it had, and take it over with `streams adopt`; keep the state_dir of "
    "every host until then. If there is no backup, the state can only be made anew from the inputs (`streams reset`)."
)


def check_end(store: str, end: int, version: int, promised: int) -> None:
    """Checks that a changelog still has all that a step wrote.

    Raises:
        RestoreError: Records are missing.
    """
    if end < promised:
        raise RestoreError(
            f"the changelog of store {store!r} ends at offset {end}, but the commit marker of step {version} says "
            f"{promised}: the topic was truncated, or deleted and created again. {NO_CHANGELOG}"
        )
