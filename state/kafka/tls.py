"""What is wrong with a TLS connection: one handshake of our own, because librdkafka only says that its handshake failed."""

from __future__ import annotations

import socket
import ssl

from state.kafka.config import ClientConfig

_EXPIRED, _NOT_YET_VALID, _HOSTNAME, _ADDRESS = 10, 9, 62, 64
_ADVICE = {
    _EXPIRED: "its certificate has expired: have it renewed, and check this machine's clock",
    _NOT_YET_VALID: "its certificate is not valid yet: check this machine's clock, and the certificate's dates",
    _HOSTNAME: "its certificate is for another host: use an address that the certificate names",
    _ADDRESS: "its certificate is for another host: use an address that the certificate names",
}
_UNTRUSTED = "its certificate is not signed by an authority that this client trusts: check ssl.ca.location"
_NO_TLS = "that port speaks no TLS: check security.protocol and the port"
_WANTS_TLS = "that port wants TLS: set security.protocol (SASL_SSL, or SSL without users), and ssl.ca.location"
_ELSE = "check security.protocol, ssl.ca.location, and the client's certificate and key, if the brokers ask for one"
_TIMEOUT_S = 5.0


def uses_tls(config: ClientConfig) -> bool:
    """Whether these client properties ask for TLS."""
    return config.get("security.protocol", "").lower().endswith("ssl")


def tls_advice(config: ClientConfig) -> str:
    """What to do about a handshake that failed."""
    for host, port in _addresses(config):
        try:
            context = ssl.create_default_context(cafile=config.get("ssl.ca.location"))
            context.check_hostname = config.get("ssl.endpoint.identification.algorithm") != "none"
            _handshake(context, host, port)
        except ssl.SSLCertVerificationError as error:
            return _ADVICE.get(error.verify_code, _UNTRUSTED)
        except ssl.SSLError as error:
            if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE"):
                return _NO_TLS
        except (OSError, ValueError):
            continue
    return _ELSE


def wants_tls(config: ClientConfig) -> str | None:
    """What to do where a client without TLS talks to a port that has it; None where no address has."""
    # Nothing is sent over this connection, so whose certificate it is does not matter.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for host, port in _addresses(config):
        try:
            _handshake(context, host, port)
        except OSError:
            continue
        return _WANTS_TLS
    return None


def _handshake(context: ssl.SSLContext, host: str, port: int) -> None:
    with socket.create_connection((host, port), _TIMEOUT_S) as plain, context.wrap_socket(plain, server_hostname=host):
        return


def _addresses(config: ClientConfig) -> list[tuple[str, int]]:
    """Hosts and ports of `bootstrap.servers`, without any `PROTOCOL://`."""
    found = []
    for server in config.get("bootstrap.servers", "").split(","):
        host, _, port = server.strip().rpartition("://")[2].rpartition(":")
        if host and port.isdigit():
            found.append((host.strip("[]"), int(port)))
    return found
