"""Words for messages: short descriptions of values, which never show a value in full, and suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from types import BuiltinFunctionType, FunctionType, MethodType

_SHOWN = 60
_PLAIN = (str, bytes, int, float, bool, type(None))
# These begin with a vowel in writing and with a consonant in speech.
_SPOKEN_AS_YOU = ("uu", "uni", "use", "util")


def a_or_an(noun: str) -> str:
    """The noun with its article: `an int`, `a str`, `a UUID`."""
    spoken = noun.lower()
    vowel = spoken.startswith(tuple("aeiou")) and not spoken.startswith(_SPOKEN_AS_YOU)
    return f"{'an' if vowel else 'a'} {noun}"


def a_kind_of(value: object) -> str:
    """The type of a value, with its article."""
    return a_or_an(type(value).__name__)


def counted(number: int, noun: str) -> str:
    """The number with its noun: `1 record`, `2 records`, `1,000 queries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def described(value: object) -> str:
    """Describes a value: plain values as they are written, functions and classes by name, and all others by type."""
    if isinstance(value, FunctionType | BuiltinFunctionType | MethodType):
        name = value.__name__
        return "a lambda" if name == "<lambda>" else f"the function {name}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, _PLAIN):
        text = repr(value)
        return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    return a_kind_of(value)


# --- Suggestions for misspelt names: `did you mean 'tasks'?`.


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question that names the closest of the known names; empty if none is close."""
    found = get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, found))}?" if found else ""
