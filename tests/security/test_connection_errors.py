"""A connection that can never work is one named error, at the first contact, and not a wait for brokers that are away."""

import socket
from pathlib import Path

import pytest

from state.errors import KafkaClientError, TlsError
from state.kafka.connection import first_contact
from streams.cluster.admin import check_reachable
from tests.security.secured import Authority, server

# Far longer than any of these may take: a test that needs it has failed.
_PATIENT_S = 60.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


def client(port: int, authority: Authority | None) -> dict[str, str]:
    secured = {} if authority is None else {"security.protocol": "ssl", "ssl.ca.location": str(authority.file)}
    return {"bootstrap.servers": f"127.0.0.1:{port}", **secured}


def refusal(port: int, authority: Authority | None) -> str:
    with pytest.raises(TlsError) as caught:
        first_contact(client(port, authority), _PATIENT_S)
    assert not caught.value.transient
    assert f"127.0.0.1:{port}" in str(caught.value)
    return str(caught.value)


def test_a_certificate_of_an_unknown_authority_is_named(authority: Authority, tmp_path: Path) -> None:
    other = Authority.make(tmp_path / "other")
    with server(other.server()) as port:
        assert "not signed by an authority that this client trusts: check ssl.ca.location" in refusal(port, authority)


def test_an_expired_certificate_is_named(authority: Authority) -> None:
    with server(authority.server(days=-1)) as port:
        assert "has expired" in refusal(port, authority)


def test_a_certificate_of_another_host_is_named(authority: Authority) -> None:
    with server(authority.server(address="192.0.2.1")) as port:
        assert "is for another host" in refusal(port, authority)


def test_a_client_without_tls_learns_that_the_port_wants_tls(authority: Authority) -> None:
    with server(authority.server()) as port:
        assert "that port wants TLS" in refusal(port, None)


def test_a_client_with_tls_learns_that_the_port_has_none(authority: Authority) -> None:
    with server(None) as port:
        assert "that port speaks no TLS" in refusal(port, authority)


def test_commands_report_the_same_errors(authority: Authority, tmp_path: Path) -> None:
    with (
        server(Authority.make(tmp_path / "other").server()) as port,
        pytest.raises(TlsError, match=r"ssl\.ca\.location"),
    ):
        check_reachable(client(port, authority))


def test_a_port_that_nobody_listens_on_may_come_back(authority: Authority) -> None:
    with socket.socket() as bound:
        # Without `listen`, connections are refused.
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(KafkaClientError, match="did not answer") as caught:
            first_contact(client(bound.getsockname()[1], authority), timeout_s=0.5)
    assert caught.value.transient
