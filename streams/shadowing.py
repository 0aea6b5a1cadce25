"""Checks that `state` is the engine's second package, in the repository and where the engine is installed editable.

Python looks in the folder of the user's program first, and programs may have a `state.py`. Without the check, the first import
would fail deep inside the engine with `'state' is not a package`. A wheel has `streams._state` instead (`setup.py`).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path


def check_state_package() -> None:
    """Raises `ImportError` if another module called `state` hides the engine's."""
    if Path(__file__).with_name("_state").is_dir():
        return
    found = importlib.util.find_spec("state")
    own = Path(__file__).parents[1] / "state" / "__init__.py"
    if found is None or found.origin is None or Path(found.origin).resolve() != own.resolve():
        where = "nowhere" if found is None else found.origin or ", ".join(found.submodule_search_locations or ())
        raise ImportError(
            f"streams-on-spark consists of the packages `streams` and `state`, but Python finds `state` at {where}, not at "
            f"{own}. Rename your module or folder `state` (or move it into a package of yours), or install "
            "streams-on-spark from a wheel, which has no package `state`."
        )
