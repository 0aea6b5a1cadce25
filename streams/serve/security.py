"""Who may do what over HTTP: bearer tokens and JWTs with scopes, a limit on requests, and an audit line for each request."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from state.secrets import mask, remember
from streams.config.settings import Address
from streams.errors import ConfigError

audit = logging.getLogger("streams.serve.audit")

CALLER = "streams.caller"
"""Under what name a connection has its caller, once that is known."""


class Scope(str, Enum):
    """What a caller may do; each scope includes the ones before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def includes(self, other: Scope) -> bool:
        """Whether this scope allows what the other one does."""
        return self is other or self is Scope.ADMIN or other is Scope.READ


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request.

    Attributes:
        name: For audit lines and limits, never a secret.
        scope: The largest scope.
    """

    name: str
    scope: Scope


class RefusedError(Exception):
    """A request is refused: its HTTP status, and what to say. Never leaves the server as an exception."""

    def __init__(self, status: int, why: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(why)
        self.status, self.headers = status, dict(headers or {})


@dataclass(frozen=True, slots=True)
class Security:
    """How callers are recognised.

    Attributes:
        token_file: Lines with a token and its scope, `SECRET read`; None: there are no such tokens.
        jwt_key_file: The key that JWTs are signed with: a public key as PEM, or a shared secret; None: no JWTs.
        jwt_audience: The audience that a JWT must name; None: none.
        tls_ca: The authority whose certificates clients need to connect at all; None: they need none.
    """

    token_file: Path | None = None
    jwt_key_file: Path | None = None
    jwt_audience: str | None = None
    tls_ca: Path | None = None

    @property
    def present(self) -> bool:
        """Whether callers are recognised in any way."""
        return bool(self.token_file or self.jwt_key_file or self.tls_ca)


@lru_cache(1024)
def is_loopback(host: str) -> bool:
    """Whether only programs on this host can connect to a server that listens there."""
    return Address(host, 0).is_loopback


def check_protected(host: str, security: Security) -> None:
    """Refuses a server that anybody on the network could ask.

    Raises:
        ConfigError: It listens beyond this host, and recognises nobody.
    """
    if not is_loopback(host) and not security.present:
        raise ConfigError(
            f"{host} can be reached from other hosts, and no caller would be recognised: give --token-file, --jwt-key or --tls-ca, "
            f"or listen on 127.0.0.1"
        )


class Guard:
    """Recognises callers and limits them.

    Args:
        security: How callers are recognised; if not at all, everybody may do everything, which is only for loopback addresses.
        rate: The most requests of a caller each second, on average; None: no limit.
        clock_s: Measures the time between requests.

    Raises:
        ConfigError: A file cannot be read, can be read by others, or has no usable content.
    """

    def __init__(
        self, security: Security, rate: float | None = None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._open = not security.present
        self._tokens = {} if security.token_file is None else _tokens(security.token_file)
        self._jwt = None if security.jwt_key_file is None else _Jwt.of(security.jwt_key_file, security.jwt_audience)
        self._by_certificate = security.tls_ca is not None
        self._rate = None if rate is None else _Rate(rate, clock_s)

    def admitted(self, scope: Scope, host: str, authorization: str | None, address: str) -> Caller:
        """Who sends a request.

        Args:
            scope: What the request needs.
            host: The server's name, as the request has it.
            authorization: The header, if there is one.
            address: Where the request comes from.

        Raises:
            RefusedError: Nobody who may do that.
        """
        if authorization is None and is_loopback(address) and not _is_this_host(host):
            # A page of another site that has given itself an address of this host (DNS rebinding).
            raise RefusedError(421, f"this server is not {host!r}: ask for 127.0.0.1 or localhost")
        found = self.caller(authorization, address)
        if not found.scope.includes(scope):
            challenge = f'Bearer error="insufficient_scope", scope="{scope.value}"'
            raise RefusedError(403, f"the scope {scope.value!r} is needed", {"WWW-Authenticate": challenge})
        return found

    def caller(self, authorization: str | None, address: str) -> Caller:
        """Who sends a request, whatever the request needs.

        Raises:
            RefusedError: Nobody who is known, or one who has sent too many.
        """
        found = self._recognised(authorization, address)
        if self._rate is not None:
            wait_s = self._rate.wait_s(found.name)
            if wait_s > 0:
                raise RefusedError(429, "too many requests", {"Retry-After": str(max(1, round(wait_s)))})
        return found

    def _recognised(self, authorization: str | None, address: str) -> Caller:
        if self._open:
            return _anybody(address)
        kind, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if kind.lower() == "bearer" and token:
            found = self._tokens.get(_digest(token))
            if found is None and self._jwt is not None:
                found = self._jwt.caller(token)
            if found is not None:
                return found
            raise _unknown("the token is not known")
        if self._by_certificate:
            return Caller(address, Scope.READ)
        raise RefusedError(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})


def address_of(connection: Mapping[str, Any]) -> str:
    """Where an ASGI connection comes from."""
    return connection["client"][0] if connection.get("client") else "?"


@lru_cache(1024)
def _anybody(address: str) -> Caller:
    return Caller(address, Scope.ADMIN)


@lru_cache(1024)
def _is_this_host(header: str) -> bool:
    try:
        host = urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return False
    return is_loopback(host) or host == "testserver"


def note(caller: str, method: str, path: str, status: int, seconds: float) -> None:
    """Writes the audit line of a request: warnings for refused ones."""
    level = logging.WARNING if status in (401, 403, 429) else logging.INFO
    if audit.isEnabledFor(level):
        audit.log(level, "%s %s %s -> %d in %.1f ms", caller, method, mask(path), status, seconds * 1000)


def _digest(token: str) -> bytes:
    # Tokens are looked up by their digests, so that the time of a look-up says nothing of them.
    return hashlib.sha256(token.encode()).digest()


def private_text(path: Path, option: str) -> str:
    """The text of a file with secrets.

    Raises:
        ConfigError: It cannot be read, or others can read it, too.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{option} {path} can be read by other users: chmod 600 {path}")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{option} {path} cannot be read: {error.strerror}") from error


def _tokens(path: Path) -> dict[bytes, Caller]:
    found = {}
    for number, line in enumerate(private_text(path, "--token-file").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) not in (2, 3) or words[1] not in {scope.value for scope in Scope}:
            raise ConfigError(
                f"--token-file {path}, line {number}: write a token, its scope (read, write or admin), and perhaps a name"
            )
        remember({"token": words[0]})
        found[_digest(words[0])] = Caller(words[2] if len(words) == 3 else f"token {number}", Scope(words[1]))
    if not found:
        raise ConfigError(f"--token-file {path} has no token: write lines such as `SECRET read`")
    return found


@dataclass(frozen=True)
class _Jwt:
    key: str = field(repr=False)
    algorithms: list[str]
    audience: str | None

    @classmethod
    def of(cls, path: Path, audience: str | None) -> _Jwt:
        if path.exists() and b"PUBLIC KEY" in path.read_bytes():
            if find_spec("cryptography") is None:
                raise ConfigError(
                    f"--jwt-key {path} is a public key, which needs cryptography: pip install cryptography"
                )
            return cls(
                path.read_text(encoding="utf-8"), ["RS256", "RS512", "PS256", "ES256", "ES512", "EdDSA"], audience
            )
        key = private_text(path, "--jwt-key").strip()
        if len(key) < 32:
            raise ConfigError(f"--jwt-key {path}: a shared secret has at least 32 characters")
        remember({"secret": key})
        return cls(key, ["HS256", "HS512"], audience)

    def caller(self, token: str) -> Caller | None:
        """Who has signed in with this token; None: the key says nothing of it.

        Raises:
            RefusedError: It is signed with the key, and not valid here.
        """
        import jwt

        try:
            claims: dict[str, Any] = jwt.decode(
                token, self.key, algorithms=self.algorithms, audience=self.audience, options={"require": ["exp"]}
            )
        except (jwt.ExpiredSignatureError, jwt.InvalidAudienceError, jwt.MissingRequiredClaimError) as error:
            # The signature was right, so its owner may know what else is wrong.
            raise _unknown(f"the token is not valid here: {str(error).lower()}") from error
        except jwt.InvalidTokenError:
            return None
        given = claims.get("scope", claims.get("scopes", ""))
        scopes = given.split() if isinstance(given, str) else list(given)
        known = [scope for scope in Scope if scope.value in scopes]
        if not known:
            raise _unknown("the token is not valid here: its claim 'scope' has none of read, write and admin")
        return Caller(str(claims.get("sub", "jwt")), known[-1])


def _unknown(why: str) -> RefusedError:
    return RefusedError(401, why, {"WWW-Authenticate": 'Bearer error="invalid_token"'})


class _Rate:
    """A bucket of a second's requests for each caller, which fills at the rate."""

    def __init__(self, rate: float, clock_s: Callable[[], float], callers: int = 10_000) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._clock_s = clock_s
        self._callers = callers
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, caller: str) -> float:
        """Takes one request from the caller's bucket; or how long to wait until there is one."""
        now_s = self._clock_s()
        left, at_s = self._buckets.pop(caller, (self._most, now_s))
        left = min(self._most, left + (now_s - at_s) * self._rate)
        wait_s = 0.0 if left >= 1 else (1 - left) / self._rate
        self._buckets[caller] = (left if wait_s else left - 1, now_s)
        if len(self._buckets) > self._callers:
            self._buckets.popitem(last=False)
        return wait_s
