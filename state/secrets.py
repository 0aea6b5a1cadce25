"""Masks secrets of the settings wherever something is shown: by the name of a property, by known values, and by their form.

There are three ways because each misses something. A property whose name says so (`sasl.password`) is masked where settings are
printed (`redact`). The values of such properties are noted (`remember`), so that they are masked in any text, even one that a
library or Java has written. And text that looks like a password in an address (`https://user:password@host`), a private key, or
`password=...` is masked even if its value is not known (`mask`).

Invariant: masking never fails, and removes at most a value; a text without secrets stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

MASK = "********"
SHORTEST = 4
"""The length of the shortest value that is masked in any text. Shorter ones occur in ordinary words."""

_IN_IDENTITIES = re.compile(
    r"password|secret|token(?!\.endpoint|\.refresh)|credential|jaas|user\.info|private\.key|key\.pem|key\.p8|ssl_key"
    r"|oauthbearer\.config|passphrase"
)
"""Names of secrets in the settings of serdes. The result is a part of topology hashes, so this list never changes."""
_FURTHER = re.compile(r"passwd|private_?key|keystore\.key$|ssl\.key$|access[._-]?key|account\.key|api[._-]?key|\.sas\.")
SPARK_PATTERN = (
    r"(?i)password|passwd|passphrase|secret|token|credential|jaas|user[.]info|private[._-]?key|key[.]pem|ssl[.]key$|ssl_key"
    r"|access[._-]?key|account[.]key|api[._-]?key|[.]sas[.]|://[^/@\s]+:[^/@\s]+@"
)
"""Names and values of secrets for Spark, which compares this pattern with both in its settings (`spark.redaction.regex`)."""
_IN_ADDRESS = re.compile(r"(?P<before>\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/?#:@'\"]*:)[^\s/?#'\"]+(?=@)")
_PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_ASSIGNED = re.compile(
    r"(?P<before>\b[\w.-]*(?:password|passwd|passphrase|secret|user\.info)[\w.-]*\\?[\"']?\s*[=:]\s*)"
    r"(?:\\?\"[^\"\\]*(?:\\?\")|\\?'[^'\\]*(?:\\?')|[^\s\"',;&|)}\]\\]+)",
    re.IGNORECASE,
)
_PARTS = re.compile(r"[\w.]*(?:password|secret|clientSecret)[\w.]*\s*=\s*[\"']?([^\"';\s]+)", re.IGNORECASE)
_ADDRESS_PASSWORD = re.compile(r"://[^\s/?#:@]*:([^\s/?#]+)@")

_known: set[str] = set()
_pattern: list[re.Pattern[str]] = []
"""The noted values as one pattern, made when it is first needed. Empty if it is not made yet, or if there are no values."""


def is_secret(name: str) -> bool:
    """Whether a property's name says that its value is a secret."""
    lower = name.lower()
    return _IN_IDENTITIES.search(lower) is not None or _FURTHER.search(lower) is not None


def redact(config: Mapping[str, object]) -> dict[str, object]:
    """Copies properties with secret values masked, for logs and terminals."""
    return {name: MASK if is_secret(name) else _shown(value) for name, value in config.items()}


def redact_identity(settings: Mapping[str, object]) -> dict[str, object]:
    """Masks the settings of a serde by a list of names that never changes, because the result is part of topology hashes."""
    return {name: MASK if _IN_IDENTITIES.search(name.lower()) else value for name, value in settings.items()}


def remember(config: Mapping[str, object]) -> None:
    """Notes the secret values of properties, so that `mask` finds them in any text of this process."""
    found = {value for value in secret_values(config) if len(value) >= SHORTEST}
    if not found <= _known:
        _known.update(found)
        _pattern.clear()


def secret_values(config: Mapping[str, object]) -> Iterator[str]:
    """Yields the secrets among the values of properties: whole values, and the parts of them that are passwords themselves."""
    for name, value in config.items():
        if not isinstance(value, str):
            continue
        yield from _ADDRESS_PASSWORD.findall(value)
        if not is_secret(name):
            continue
        yield value
        # The options of a login module, or `user:password`.
        yield from _PARTS.findall(value)
        if "user.info" in name:
            yield value.partition(":")[2]


def mask(text: str) -> str:
    """Replaces the secrets in a text by `MASK`: known values, and everything that has the form of a secret."""
    text = mask_known(text)
    if "://" in text:
        text = _IN_ADDRESS.sub(rf"\g<before>{MASK}", text)
    if "PRIVATE KEY" in text:
        text = _PRIVATE_KEY.sub(rf"\1{MASK}\2", text)
    return _ASSIGNED.sub(rf"\g<before>{MASK}", text)


def mask_known(text: str) -> str:
    """Replaces the values that are known to be secret; much cheaper than `mask`."""
    return _known_pattern().sub(MASK, text) if _known else text


def mask_line(line: bytes) -> bytes:
    """Applies `mask_known` to a line of another program, whatever its bytes are."""
    if not _known:
        return line
    return mask_known(line.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def _known_pattern() -> re.Pattern[str]:
    if not _pattern:
        # A longer value comes first, since another may be a part of it. In JSON, a value is written with escapes.
        forms = {form for value in _known for form in _forms(value)}
        _pattern.append(re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))))
    return _pattern[0]


def _forms(value: str) -> Iterable[str]:
    """The value as it is, as in JSON, and as by `repr`."""
    return value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]


def _shown(value: object) -> object:
    return _IN_ADDRESS.sub(rf"\g<before>{MASK}", value) if isinstance(value, str) else value
