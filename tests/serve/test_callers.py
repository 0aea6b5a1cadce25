"""Who may ask over HTTP: names of the server, tokens and guesses, JWTs and their keys, certificates, and the audit's lines."""

from __future__ import annotations

import json
import logging
import os
import time

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from streams.errors import ConfigError
from streams.serve.http.security import Guard, RefusedError, Scope, Security, note
from streams.serve.http.signed import SignedTokens

OPEN = Security()
KNOWN = "known-token-of-reader"
HERE = "127.0.0.1"


@pytest.fixture
def private(tmp_path):
    def write(text, name="file"):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    return write


def status(guard, authorization=None, host="localhost", address=HERE):
    """What somebody is told: 200, or why not."""
    try:
        guard.admitted(Scope.READ, host, authorization, address)
        return 200
    except RefusedError as refused:
        return refused.status


# --- The server's name


@pytest.mark.parametrize("authorization", [None, "x", "Bearer x", "Bearer " + KNOWN, "Basic eDp4"])
def test_without_tokens_a_page_of_another_site_is_refused_whatever_it_sends(authorization):
    assert status(Guard(OPEN), authorization, "evil.example") == 421
    assert status(Guard(OPEN), authorization, "testserver") == 421
    assert status(Guard(OPEN), authorization, "") == 421
    assert status(Guard(OPEN), authorization, "localhost:8080") == 200


def test_with_tokens_only_who_has_one_may_call_the_server_otherwise(private):
    guard = Guard(Security(token_file=private(f"{KNOWN} read\n")))
    # As a proxy on this host does, which hands the name on.
    assert status(guard, f"Bearer {KNOWN}", "stores.example") == 200
    assert status(guard, "Bearer something-else", "stores.example") == 401
    assert status(guard, "Basic eDp4", "stores.example") == 421


# --- Tokens


def test_short_tokens_are_refused_at_the_start(private):
    with pytest.raises(ConfigError, match="fewer than 16 characters"):
        Guard(Security(token_file=private("ab admin\n")))


def test_wrong_tokens_are_limited_and_keep_nobody_else_out(private):
    clock = [0.0]
    guard = Guard(Security(token_file=private(f"{KNOWN} read\n")), clock_s=lambda: clock[0])
    told = [status(guard, f"Bearer wrong-{number}") for number in range(100)]
    assert (told.count(401), told.count(429)) == (20, 80)
    assert status(guard, f"Bearer {KNOWN}") == 200
    assert status(guard, "Bearer wrong", address="10.1.2.3") == 401
    clock[0] = 3.0
    assert [status(guard, "Bearer wrong") for _ in range(4)] == [401, 401, 401, 429]


def test_a_network_of_ipv6_is_one_that_guesses(private):
    guard = Guard(Security(token_file=private(f"{KNOWN} read\n")), clock_s=lambda: 0.0)
    told = [status(guard, "Bearer wrong", address=f"2001:db8::{number:x}") for number in range(1, 40)]
    assert told.count(401) == 20
    assert status(guard, "Bearer wrong", address="2001:db8:0:1::1") == 401


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), 1e9])
def test_a_rate_is_a_number_of_requests(rate):
    with pytest.raises(ConfigError, match="--rate"):
        Guard(OPEN, rate=rate)
    assert status(Guard(OPEN, rate=0.1)) == 200


def test_the_name_in_a_certificate_is_the_callers(tmp_path):
    guard = Guard(Security(tls_ca=tmp_path / "ca"), rate=1, clock_s=lambda: 0.0)
    assert guard.admitted(Scope.READ, "localhost", None, HERE, "billing").name == "billing"
    assert guard.admitted(Scope.READ, "localhost", None, HERE, "shop").name == "shop"
    with pytest.raises(RefusedError, match="too many"):
        guard.admitted(Scope.READ, "localhost", None, "10.1.2.3", "billing")


# --- JWTs


SECRET = "s" * 48


def pem(key) -> str:
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(*form).decode()


def test_tokens_are_read_again_when_their_file_changes(private, caplog):
    clock = [0.0]
    path = private(f"{KNOWN} read\n")
    guard = Guard(Security(token_file=path), clock_s=lambda: clock[0])

    def known(secret):
        try:
            return guard.caller(f"Bearer {secret}", "10.0.0.1").scope
        except RefusedError:
            return None

    def change(text):
        clock[0] += 2
        path.write_text(text)
        os.utime(path, ns=(time.time_ns(), time.time_ns() + int(clock[0])))

    other = KNOWN[::-1] + "x"
    change(f"{other} write\n")
    assert (known(other), known(KNOWN)) == (Scope.WRITE, None)
    change("half of a line")
    assert (known(other), "from before remains in effect" in caplog.text) == (Scope.WRITE, True)
    change(f"{KNOWN} admin\n{other} read\n")
    assert (known(KNOWN), known(other)) == (Scope.ADMIN, Scope.READ)


def private_pem(key) -> str:
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(*form).decode()


def certificate(key) -> str:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "signer")])
    from datetime import datetime, timedelta, timezone

    now = datetime.now(timezone.utc)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


class In(float):
    """In so many seconds from now."""


def token(key, algorithm="HS256", headers=None, **claims):
    given = {"sub": "ada", "scope": "read", "exp": In(600), **claims}
    given = {name: one + time.time() if isinstance(one, In) else one for name, one in given.items() if one is not ...}
    return jwt.encode(given, key, algorithm, headers)


RSA = rsa.generate_private_key(65537, 2048)


@pytest.mark.parametrize(
    ("key", "algorithms"),
    [
        (RSA, ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]),
        (ec.generate_private_key(ec.SECP256R1()), ["ES256"]),
        (ec.generate_private_key(ec.SECP384R1()), ["ES384"]),
        (ec.generate_private_key(ec.SECP521R1()), ["ES512"]),
        (ed25519.Ed25519PrivateKey.generate(), ["EdDSA"]),
    ],
)
def test_algorithms_are_those_of_the_key(private, key, algorithms):
    guards = [Guard(Security(jwt_key_file=private(pem(key), "public")))]
    if algorithms != ["EdDSA"]:
        guards.append(Guard(Security(jwt_key_file=private(certificate(key), "certificate"))))
    for guard in guards:
        for algorithm in algorithms:
            assert status(guard, f"Bearer {token(key, algorithm)}") == 200
        assert status(guard, f"Bearer {token(SECRET)}") == 401
        unsigned = jwt.encode({"scope": "read", "exp": time.time() + 600}, None, "none")
        assert status(guard, f"Bearer {unsigned}") == 401


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_secret_signs_by_three_algorithms(private, algorithm):
    guard = Guard(Security(jwt_key_file=private("x" * 64)))
    assert status(guard, f"Bearer {token('x' * 64, algorithm)}") == 200


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (private_pem(RSA), "is a private key"),
        (private_pem(RSA).replace("PRIVATE", "RSA PRIVATE"), "is a private key"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "cannot be read|can be read"),
        ("-----BEGIN DH PARAMETERS-----\nAAAA\n-----END DH PARAMETERS-----", "a public key or a certificate is needed"),
        (pem(rsa.generate_private_key(65537, 1024)), "at least 2048 bits"),
        ("short", "at least 32 characters"),
        ('{"keys": []}', "no key"),
        ("{", "JWKS"),
    ],
)
def test_a_file_that_is_no_key_is_refused_at_the_start(private, text, words):
    with pytest.raises(ConfigError, match=words):
        Guard(Security(jwt_key_file=private(text)))


def test_what_is_asked_of_jwts_needs_their_key():
    with pytest.raises(ConfigError, match="need --jwt-key"):
        Guard(Security(jwt_issuer="https://login.example"))
    for leeway_s in (-1.0, 301.0, float("nan")):
        with pytest.raises(ConfigError, match="--jwt-leeway"):
            SignedTokens(os.devnull, leeway_s=leeway_s)


@pytest.mark.parametrize(
    ("claims", "wanted"),
    [
        ({"scope": None}, 401),
        ({"scope": 5}, 401),
        ({"scope": True}, 401),
        ({"scope": {"admin": False}}, 401),
        ({"scope": ["read", 7]}, 401),
        ({"scope": ["openid", "read"]}, 200),
        ({"scope": ..., "scp": "openid read"}, 200),
        ({"scope": ..., "scp": ["read"]}, 200),
        ({"scope": ...}, 401),
        ({"nbf": In(10)}, 200),
        ({"iat": In(10)}, 200),
        ({"nbf": In(600)}, 401),
        ({"exp": In(-10)}, 200),
        ({"exp": In(-60)}, 401),
        ({"exp": 1e300}, 200),
        ({"exp": 10**400}, 200),
        ({"exp": float("inf")}, 401),
        ({"exp": "soon"}, 401),
        ({"exp": [1]}, 401),
        ({"iss": "https://evil.example"}, 401),
        ({"iss": ...}, 401),
    ],
)
def test_claims_are_checked_and_never_a_fault_of_the_server(private, claims, wanted):
    issuer = "https://login.example"
    guard = Guard(Security(jwt_key_file=private(SECRET), jwt_issuer=issuer))
    assert status(guard, "Bearer " + token(SECRET, **{"iss": issuer, **claims})) == wanted


def test_who_comes_too_early_is_told_of_clocks(private):
    guard = Guard(Security(jwt_key_file=private(SECRET)))
    with pytest.raises(RefusedError, match="clocks"):
        guard.caller(f"Bearer {token(SECRET, nbf=time.time() + 600)}", HERE)


def test_a_valid_token_is_known_until_it_ends(private, monkeypatch):
    tokens = SignedTokens(private(SECRET), leeway_s=0)
    end = int(time.time()) + 600
    good = token(SECRET, exp=end)
    assert tokens.known(good) is None
    assert tokens.checked(good).subject == "ada"
    assert tokens.known(good).scopes == {"read"}
    monkeypatch.setattr(time, "time", lambda: float(end))
    assert tokens.known(good) is None


def jwks(**keys) -> str:
    found = []
    for name, key in keys.items():
        algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
        found.append({**json.loads(algorithm.to_jwk(key.public_key())), "kid": name, "use": "sig"})
    return json.dumps({"keys": found})


def test_a_set_of_keys_is_read_again_when_it_changes(private, caplog):
    first, second = RSA, ec.generate_private_key(ec.SECP256R1())
    clock = [0.0]
    path = private(jwks(first=first))
    tokens = SignedTokens(path, clock_s=lambda: clock[0])
    old, new = token(first, "RS256", {"kid": "first"}), token(second, "ES256", {"kid": "second"})
    assert tokens.checked(old).subject == "ada"
    assert tokens.checked(new) is None

    def change(text):
        path.write_text(text)
        os.utime(path, ns=(time.time_ns(), time.time_ns() + int(clock[0]) + 1))
        clock[0] += 2

    change("half of a file")
    assert (tokens.known(old) is not None, "from before remains in effect" in caplog.text) == (True, True)
    change(jwks(second=second))
    assert tokens.known(old) is None
    assert tokens.checked(old) is None
    assert tokens.checked(new).subject == "ada"
    path.unlink()
    clock[0] += 2
    assert tokens.checked(new).subject == "ada"


def test_a_set_with_a_secret_is_private_and_one_with_a_private_key_is_refused(private):
    secret = json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0" * 8}]})
    path = private(secret)
    SignedTokens(path)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        SignedTokens(path)
    with pytest.raises(ConfigError, match="private key"):
        SignedTokens(private(json.dumps({"keys": [json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA))]})))


# --- The audit


def lines(caplog, caller, path):
    caplog.clear()
    caplog.set_level(logging.INFO, "streams.serve.audit")
    note(caller, "GET", path, 401, 0.001)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("path", ["/v1/stores/x%0Aadmin%20GET%20/y", "/v1/stores/x\nadmin GET /y"])
def test_nobody_writes_a_line_of_the_audit(caplog, path):
    (line,) = lines(caplog, "evil\n2026-01-01 admin \x1b[2J\u2028", path)
    assert line.isprintable()
    assert line.split()[1:4] == ["GET", "/v1/stores/x%0Aadmin%20GET%20/y", "->"]
    assert line.startswith("evil%0A2026-01-01%20admin%20%1B%5B2J%E2%80%A8 GET")


def test_lines_of_the_audit_are_bounded(caplog):
    (line,) = lines(caplog, "\ud800" + "x" * 10_000, "/" + "y" * 100_000)
    assert len(line) < 3000
