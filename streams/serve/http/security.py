"""Who may do what over HTTP: bearer tokens and JWTs with scopes, a limit on requests, and an audit line for each request."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from state.secrets import mask, remember
from streams.config.settings import SHORTEST_TOKEN, Address
from streams.errors import ConfigError
from streams.serve.http.secret_file import SecretFile
from streams.serve.http.signed import LEEWAY_S, Claimed, NotValidError, SignedTokens, check_private

audit = logging.getLogger("streams.serve.audit")

CALLER = "streams.caller"
"""The key of the ASGI scope under which the caller is kept, once it is known."""
CERTIFICATE = "streams.certificate"
"""The key of the ASGI scope under which the name in the client's certificate is kept."""
_WRONG_AT_ONCE, _WRONG_PER_S = 20, 1.0
"""The number of wrong tokens that an address may send before it has to wait, and how many more it may send each second."""
_CALLERS = 10_000
"""The number of callers whose requests are counted."""
_WAITING = 32
"""The number of requests that wait for their turn."""
_MOST_RATE = 1_000_000.0
_NAME, _PATH = 200, 2000
"""The most characters of the name and of the path in an audit line."""


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
    """The sender of a request.

    Attributes:
        name: For audit lines and limits, never a secret.
        scope: The largest scope.
    """

    name: str
    scope: Scope


class RefusedError(Exception):
    """A request is refused, with an HTTP status and a message. Never leaves the server as an exception."""

    def __init__(self, status: int, why: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(why)
        self.status, self.headers = status, dict(headers or {})


@dataclass(frozen=True, slots=True)
class Security:
    """How callers are recognised.

    Attributes:
        token_file: Lines with a token and its scope, `SECRET read`, read again when they change; None: there are no such tokens.
        jwt_key_file: The key that JWTs are signed with (`SignedTokens`); None: no JWTs.
        jwt_audience: The audience that a JWT must name; None: none.
        tls_ca: The authority that must have signed a client's certificate; None: clients need no certificate.
        jwt_issuer: The issuer that a JWT must name; None: any issuer that has the key.
        jwt_leeway_s: How far the issuer's clock may be off.
    """

    token_file: Path | None = None
    jwt_key_file: Path | None = None
    jwt_audience: str | None = None
    tls_ca: Path | None = None
    jwt_issuer: str | None = None
    jwt_leeway_s: float = LEEWAY_S

    @property
    def present(self) -> bool:
        """Whether callers are recognised in any way."""
        return bool(self.token_file or self.jwt_key_file or self.tls_ca)


@lru_cache(1024)
def is_loopback(host: str) -> bool:
    """Whether only programs on this host can connect to a server that listens there."""
    return Address(host, 0).is_loopback


def check_protected(host: str, security: Security) -> None:
    """Refuses to start a server that would answer anybody on the network.

    Raises:
        ConfigError: The server listens beyond this host, and does not recognise callers.
    """
    if not is_loopback(host) and not security.present:
        raise ConfigError(
            f"{host} can be reached from other hosts, and no caller would be recognised: give --token-file, --jwt-key or --tls-ca, "
            f"or listen on 127.0.0.1"
        )


class Guard:
    """Recognises callers and limits them.

    Args:
        security: How callers are recognised. If they are not, everybody may do everything, which is allowed on loopback addresses
            only.
        rate: The most requests of a caller per second, on average; None: no limit.
        clock_s: Measures the time between requests.

    Raises:
        ConfigError: A file cannot be read, can be read by others, or has no usable content; or the rate is out of bounds.
    """

    def __init__(
        self, security: Security, rate: float | None = None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._open = not security.present
        token_file = security.token_file
        self._tokens = None if token_file is None else SecretFile(token_file, "--token-file", _tokens, clock_s)
        self._signed = _signed_tokens(security)
        self._by_certificate = security.tls_ca is not None
        # NaN compares with nothing.
        if rate is not None and not 0 < rate <= _MOST_RATE:
            raise ConfigError(
                f"--rate is a number of requests above 0 and up to {_MOST_RATE:,.0f} each second, not {rate:g}"
            )
        self._rate = None if rate is None else _Rate(rate, max(1.0, rate), clock_s)
        self._wrong = _Rate(_WRONG_PER_S, _WRONG_AT_ONCE, clock_s)

    def admitted(
        self, scope: Scope, host: str, authorization: str | None, address: str, certificate: str | None = None
    ) -> Caller:
        """Recognises the sender of a request, and checks that it may send it.

        Args:
            scope: The scope that the request needs.
            host: The server's name, as the request has it.
            authorization: The header, if there is one.
            address: Where the request comes from.
            certificate: The name in the client's certificate, if it has shown one.

        Raises:
            RefusedError: The sender is not known, or may not do this.
        """
        if self._open or _token_of(authorization) is None:
            check_host(host, address)
        found = self.caller(authorization, address, certificate)
        if not found.scope.includes(scope):
            challenge = f'Bearer error="insufficient_scope", scope="{scope.value}"'
            raise RefusedError(403, f"the scope {scope.value!r} is needed", {"WWW-Authenticate": challenge})
        return found

    def check_name(self, host: str, address: str) -> None:
        """Refuses a request from this host for another host, if callers are not recognised: another site's page may have sent it.

        Raises:
            RefusedError: The request comes from this host, and asks for another one.
        """
        if self._open:
            check_host(host, address)

    def caller(self, authorization: str | None, address: str, certificate: str | None = None) -> Caller:
        """Recognises the sender of a request, without checking what the request needs.

        Raises:
            RefusedError: The sender is not known, or has sent too many requests.
        """
        found = self._recognised(authorization, address, certificate)
        if self._rate is not None:
            _wait(self._rate.wait_s(found.name), "too many requests")
        return found

    def _recognised(self, authorization: str | None, address: str, certificate: str | None) -> Caller:
        if self._open:
            return _anybody(address)
        token = _token_of(authorization)
        if token is not None:
            return self._with_token(token, network_of(address))
        if self._by_certificate:
            return Caller(certificate or address, Scope.READ)
        raise RefusedError(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})

    def _with_token(self, token: str, network: str) -> Caller:
        """The owner of a token.

        Only unknown tokens count, so a client that guesses does not lock out others at the same address.
        """
        if self._tokens is not None:
            self._tokens.look()
            if (found := self._tokens.content.get(_digest(token))) is not None:
                return found
        if self._signed is not None and (claimed := self._signed.known(token)) is not None:
            return _claimed(claimed)
        _wait(self._wrong.wait_s(network, 0), "too many wrong tokens came from this address")
        why = "the token is not known"
        try:
            claimed = None if self._signed is None else self._signed.checked(token)
            if claimed is not None:
                return _claimed(claimed)
        except NotValidError as error:
            why = f"the token is not valid here: {error}"
        self._wrong.wait_s(network)
        raise RefusedError(401, why, {"WWW-Authenticate": 'Bearer error="invalid_token"'})


def check_host(host: str, address: str) -> None:
    """Refuses a page of another site that has given itself an address of this host (DNS rebinding).

    Args:
        host: The server's name, as the request has it.
        address: Where the request comes from.

    Raises:
        RefusedError: The request comes from this host, and asks for another one.
    """
    if is_loopback(address) and not _is_this_host(host):
        raise RefusedError(421, f"this server is not {host!r}: ask for 127.0.0.1 or localhost")


def _wait(wait_s: float, why: str) -> None:
    if wait_s > 0:
        raise RefusedError(429, why, {"Retry-After": str(max(1, round(wait_s)))})


def _token_of(authorization: str | None) -> str | None:
    """The bearer token in the header; None if it has none."""
    kind, _, token = (authorization or "").partition(" ")
    return token.strip() or None if kind.lower() == "bearer" else None


@lru_cache(1024)
def network_of(address: str) -> str:
    """The network that limits count an address under: the address itself, or the /64 network of an IPv6 address."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    return str(found) if not isinstance(found, IPv6Address) else found.exploded[:19]


def address_of(connection: Mapping[str, Any]) -> str:
    """The address that an ASGI connection comes from."""
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
    return is_loopback(host)


def note(caller: str, method: str, path: str, status: int, seconds: float) -> None:
    """Writes the audit line of a request, as a warning if the request was refused.

    Args:
        caller: The sender.
        method: Its method.
        path: Its path, decoded or not; the line has the same spelling for both.
        status: The answer's status.
        seconds: How long it took.
    """
    level = logging.WARNING if status in (401, 403, 421, 429) else logging.INFO
    if audit.isEnabledFor(level):
        where = _in_a_line(mask(unquote(path)), _PATH)
        audit.log(level, "%s %s %s -> %d in %.1f ms", _in_a_line(caller, _NAME), method, where, status, seconds * 1000)


def _in_a_line(text: str, most: int) -> str:
    """Makes one word of text from outside, so that it cannot write lines, blanks or terminal commands into a log."""
    found = quote(text, safe="/:*@!$&'()+,;=~|", errors="backslashreplace")
    return found if len(found) <= most else f"{found[:most]}..."


def _digest(token: str) -> bytes:
    # Tokens are looked up by their digests, so that the time of a look-up says nothing of them.
    return hashlib.sha256(token.encode(errors="replace")).digest()


def private_text(path: Path, option: str) -> str:
    """The text of a file with secrets.

    Raises:
        ConfigError: It cannot be read, or others can read it, too.
    """
    check_private(path, option)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option} {path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


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
        if len(words[0]) < SHORTEST_TOKEN:
            raise ConfigError(
                f"--token-file {path}, line {number}: the token has fewer than {SHORTEST_TOKEN} characters, so it could be "
                'guessed: use the output of `python -c "import secrets; print(secrets.token_urlsafe())"`'
            )
        remember({"token": words[0]})
        found[_digest(words[0])] = Caller(words[2] if len(words) == 3 else f"token {number}", Scope(words[1]))
    if not found:
        raise ConfigError(f"--token-file {path} has no token: write lines such as `SECRET read`")
    return found


def _signed_tokens(security: Security) -> SignedTokens | None:
    """The object that recognises JWTs; None if JWTs are not used.

    Raises:
        ConfigError: There is no usable key, or there are requirements for JWTs although they are not used.
    """
    if security.jwt_key_file is None:
        if security.jwt_audience is not None or security.jwt_issuer is not None:
            raise ConfigError("--jwt-audience and --jwt-issuer need --jwt-key, the key of the issuer of the tokens")
        return None
    return SignedTokens(security.jwt_key_file, security.jwt_audience, security.jwt_issuer, security.jwt_leeway_s)


def _claimed(claimed: Claimed) -> Caller:
    """The caller that a JWT names.

    Raises:
        NotValidError: It has no scope that allows anything here.
    """
    known = [scope for scope in Scope if scope.value in claimed.scopes]
    if not known:
        raise NotValidError("its claim 'scope' has none of read, write and admin")
    return Caller(claimed.subject, known[-1])


class _Rate:
    """A bucket of requests for each caller, which fills at the rate.

    Args:
        rate: How many a second.
        most: How many at once.
        clock_s: A monotonic clock.
    """

    def __init__(self, rate: float, most: float, clock_s: Callable[[], float]) -> None:
        self._rate = rate
        self._most = most
        self._clock_s = clock_s
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, caller: str, takes: int = 1) -> float:
        """Takes requests out of the caller's bucket and returns 0; if the bucket is empty, returns the seconds until it has one."""
        now_s = self._clock_s()
        left, at_s = self._buckets.pop(caller, (self._most, now_s))
        left = min(self._most, left + (now_s - at_s) * self._rate)
        wait_s = 0.0 if left >= 1 else (1 - left) / self._rate
        self._buckets[caller] = (left if wait_s else left - takes, now_s)
        if len(self._buckets) > _CALLERS:
            self._buckets.popitem(last=False)
        return wait_s


class Turns:
    """Limits how many requests may do something at the same time, and how many may wait for it. Others are refused.

    Args:
        most: The most requests at the same time.
        what: What they do, for messages.
    """

    def __init__(self, most: int, what: str) -> None:
        self._free = asyncio.Semaphore(most)
        self._waits, self._what = 0, what

    async def __aenter__(self) -> None:
        if self._waits >= _WAITING:
            raise RefusedError(503, f"too many {self._what} wait for their turn: ask again", {"Retry-After": "1"})
        self._waits += 1
        try:
            await self._free.acquire()
        finally:
            self._waits -= 1

    async def __aexit__(self, *_: object) -> None:
        self._free.release()
