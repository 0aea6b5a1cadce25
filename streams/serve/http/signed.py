"""`SignedTokens`: recognises JWTs by a key in a file, which is read again when it changes.

The file has a public key or a certificate as PEM, a set of keys (JWKS), or a shared secret. Only the algorithms that fit a key are
accepted with it (RFC 8725), so a public key is never taken for a secret.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from state.secrets import remember
from streams.errors import ConfigError
from streams.serve.http.secret_file import SecretFile

if TYPE_CHECKING:
    import jwt

log = logging.getLogger(__name__)

LEEWAY_S = 30.0
"""How far an issuer's clock may be off, by default."""
MOST_LEEWAY_S = 300.0
_SHORTEST_SECRET = 32
_RSA_BITS = 2048
_MOST_KNOWN = 10_000
_FOR_EVER_S = 2**53
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----")
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that tokens may be signed with.

    Attributes:
        key: The key, as PyJWT takes it.
        algorithms: The algorithms that fit it.
        id: Its name in the header `kid` of tokens; empty: it has no name.
    """

    key: Any = field(repr=False)
    algorithms: tuple[str, ...]
    id: str = ""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claims of a valid token.

    Attributes:
        subject: Whose token it is.
        scopes: What its owner may do.
        until_s: When it expires, in seconds since 1970.
    """

    subject: str
    scopes: frozenset[str]
    until_s: float


class NotValidError(Exception):
    """A token's signature is right, but the token is not valid here. The message has the reason, which its owner may know."""


class SignedTokens:
    """Recognises JWTs by the keys in a file, which is read again when it changes.

    Args:
        path: The file with the key or the keys.
        audience: The audience that tokens must name; None: none.
        issuer: The issuer that tokens must name; None: any issuer that has the key.
        leeway_s: How far the issuer's clock may be off.
        clock_s: A monotonic clock.

    Raises:
        ConfigError: The file cannot be read, can be read by others, or has no usable key.
    """

    def __init__(
        self,
        path: Path,
        audience: str | None = None,
        issuer: str | None = None,
        leeway_s: float = LEEWAY_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        if find_spec("jwt") is None:
            raise ConfigError("--jwt-key needs PyJWT, which is not installed: pip install 'streams-on-spark[serve]'")
        if not 0 <= leeway_s <= MOST_LEEWAY_S:
            raise ConfigError(f"--jwt-leeway is 0 to {MOST_LEEWAY_S:g} seconds, not {leeway_s:g}")
        self._audience, self._issuer, self._leeway_s = audience, issuer, leeway_s
        self._keys = SecretFile(path, "--jwt-key", keys_of, clock_s)
        self._known: OrderedDict[bytes, Claimed] = OrderedDict()
        """Tokens that were valid, by their digests: a signature costs as much as a read."""

    def known(self, token: str) -> Claimed | None:
        """The claims of a token that was checked before and has not expired; None: the token has to be checked."""
        self._look()
        found = self._known.get(_digest(token))
        return found if found is not None and time.time() < found.until_s + self._leeway_s else None

    def checked(self, token: str) -> Claimed | None:
        """Checks a token and returns its claims; None: it is not signed with one of the keys.

        Raises:
            NotValidError: It is signed with one of the keys, but is not valid here.
        """
        self._look()
        claims = self._verified(token)
        if claims is None:
            return None
        found = Claimed(str(claims.get("sub", "jwt")), _scopes(claims), float(min(int(claims["exp"]), _FOR_EVER_S)))
        self._known[_digest(token)] = found
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return found

    def _verified(self, token: str) -> Mapping[str, Any] | None:
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            fit = _fitting(self._keys.content, header)
            for key in fit:
                try:
                    return self._decoded(token, key)
                except jwt.InvalidSignatureError:
                    continue
        except (jwt.ExpiredSignatureError, jwt.ImmatureSignatureError) as error:
            raise NotValidError(
                f"{_said(error)}. The clocks of this server and of the signer may differ by {self._leeway_s:g} s"
            ) from error
        except (jwt.InvalidSignatureError, jwt.DecodeError, jwt.InvalidAlgorithmError):
            return None
        except jwt.InvalidTokenError as error:
            # The signature was right, so its owner may know what else is wrong.
            raise NotValidError(_said(error)) from error
        except Exception:
            # A token in a form that no library expects. It is not one of this server's tokens.
            log.debug("a token cannot be read", exc_info=True)
        return None

    def _decoded(self, token: str, key: SigningKey) -> Mapping[str, Any]:
        import jwt

        claims: Mapping[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=list(key.algorithms),
            audience=self._audience,
            issuer=self._issuer,
            leeway=self._leeway_s,
            options={"require": ["exp"]},
        )
        return claims

    def _look(self) -> None:
        """Reads the keys again if the file has changed, and then forgets all tokens that were valid."""
        if self._keys.look():
            self._known.clear()


def keys_of(path: Path) -> list[SigningKey]:
    """The keys in a file.

    Raises:
        ConfigError: It cannot be read, can be read by others although it has a secret, or has no usable key.
    """
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--jwt-key {path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if (pem := _PEM.search(text)) is not None:
        return [_of_pem(path, text, pem[1])]
    if text.startswith("{"):
        return _of_set(path, text)
    check_private(path, "--jwt-key")
    if len(text) < _SHORTEST_SECRET:
        raise ConfigError(f"--jwt-key {path}: a shared secret has at least {_SHORTEST_SECRET} characters")
    remember({"secret": text})
    return [SigningKey(text, ("HS256", "HS384", "HS512"), "")]


def check_private(path: Path, option: str) -> None:
    """Refuses a file with secrets that others can read.

    Raises:
        ConfigError: Others can read it, or its permissions cannot be read.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"{option} {path} cannot be read: {error.strerror}") from error
    if mode & 0o077:
        raise ConfigError(f"{option} {path} can be read by other users: chmod 600 {path}")


def _of_pem(path: Path, text: str, kind: str) -> SigningKey:
    _check_cryptography(path)
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificate

    if "PRIVATE KEY" in text:
        raise ConfigError(
            f"--jwt-key {path} is a private key, which only the signer may have: give its public key "
            f"(openssl pkey -in KEY -pubout), and take the private one from this host"
        )
    try:
        if kind == "CERTIFICATE":
            return _public(path, load_pem_x509_certificate(text.encode()).public_key())
        if kind.endswith("PUBLIC KEY"):
            return _public(path, load_pem_public_key(text.encode()))
    except ValueError as error:
        raise ConfigError(f"--jwt-key {path} is not a {kind.lower()} that can be read: {error}") from error
    raise ConfigError(f"--jwt-key {path} is a {kind.lower()}: a public key or a certificate is needed")


def _of_set(path: Path, text: str) -> list[SigningKey]:
    """The keys of a JWKS (RFC 7517). Keys for other uses, and of kinds that are not supported, are left out."""
    _check_cryptography(path)
    import jwt

    try:
        data = orjson.loads(text)
        parts = data["keys"]
        given = [dict(part) for part in parts]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f'--jwt-key {path} is not a set of keys (JWKS): {{"keys": [...]}}') from error
    found = []
    for part in given:
        id_ = str(part.get("kid", ""))
        if part.get("use", "sig") != "sig":
            continue
        if "d" in part:
            raise ConfigError(f"--jwt-key {path} has the private key {id_!r}, which only the signer may have")
        try:
            key = jwt.PyJWK(part).key
        except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
            log.warning("--jwt-key %s: the key %r is left out: %s", path, id_, error)
            continue
        if isinstance(key, bytes):
            check_private(path, "--jwt-key")
            if len(key) < _SHORTEST_SECRET:
                raise ConfigError(f"--jwt-key {path}: the secret {id_!r} has fewer than {_SHORTEST_SECRET} bytes")
            found.append(SigningKey(key, ("HS256", "HS384", "HS512"), id_))
        else:
            found.append(_public(path, key, id_))
    if not found:
        raise ConfigError(f"--jwt-key {path} has no key that tokens can be signed with")
    return found


def _public(path: Path, key: Any, id_: str = "") -> SigningKey:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    if isinstance(key, RSAPublicKey):
        if key.key_size < _RSA_BITS:
            raise ConfigError(f"--jwt-key {path}: an RSA key has at least {_RSA_BITS} bits, not {key.key_size}")
        return SigningKey(key, ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), id_)
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return SigningKey(key, (_CURVES[key.curve.name],), id_)
    if isinstance(key, Ed25519PublicKey | Ed448PublicKey):
        return SigningKey(key, ("EdDSA",), id_)
    raise ConfigError(f"--jwt-key {path}: keys are RSA, EC (P-256, P-384, P-521) or Ed25519, not {type(key).__name__}")


def _check_cryptography(path: Path) -> None:
    if find_spec("cryptography") is None:
        raise ConfigError(f"--jwt-key {path} has a public key, which needs cryptography: pip install cryptography")


def _fitting(keys: Sequence[SigningKey], header: Mapping[str, Any]) -> list[SigningKey]:
    """The keys that a token may be signed with, by its header."""
    named = header.get("kid")
    fit = [key for key in keys if header.get("alg") in key.algorithms]
    return [key for key in fit if not key.id or not named or key.id == named]


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """The scopes of a token: a text with blanks between them (RFC 8693), or a list of texts.

    Raises:
        NotValidError: The claim is neither of these.
    """
    # `scp` is what Microsoft Entra and Okta call them.
    given = next((claims[name] for name in ("scope", "scp", "scopes") if name in claims), "")
    parts = given.split() if isinstance(given, str) else given
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise NotValidError("its claim 'scope' is neither a text nor a list of texts")
    return frozenset(parts)


def _said(error: jwt.PyJWTError) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
