"""Certificates for tests, and a TLS server that presents one of them."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Authority:
    """An authority that signs certificates, in a folder."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, folder: Path) -> Authority:
        """A new authority, whose certificate is `ca.pem` in the folder."""
        key, name = ec.generate_private_key(ec.SECP256R1()), _name("authority")
        basic = x509.BasicConstraints(ca=True, path_length=None)
        made = _builder(name, name, key, 365).add_extension(basic, critical=True).sign(key, hashes.SHA256())
        folder.mkdir(parents=True, exist_ok=True)
        authority = cls(folder, key, made)
        authority.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        return authority

    @property
    def file(self) -> Path:
        """The file with the authority's certificate."""
        return self.folder / "ca.pem"

    def server(self, *, address: str = "127.0.0.1", days: int = 365) -> ssl.SSLContext:
        """The context of a server with a certificate for an address, valid for some days from now (below 0: expired)."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        made = _builder(_name("server"), self.certificate.subject, key, days).add_extension(names, critical=False)
        file = self.folder / f"server-{address}-{days}.pem"
        file.write_bytes(
            made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=400))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


@contextmanager
def server(context: ssl.SSLContext | None) -> Iterator[int]:
    """A server on this machine, and its port: it completes TLS handshakes; without a context, it is a service without TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_serve, args=(listening, context), daemon=True).start()
        yield listening.getsockname()[1]


def _serve(listening: socket.socket, context: ssl.SSLContext | None) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection, suppress(OSError):
            connection.settimeout(5)
            if context is None:
                connection.recv(1)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            else:
                with context.wrap_socket(connection, server_side=True) as secured:
                    secured.recv(1)
