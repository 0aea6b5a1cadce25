"""Where the server listens, what it needs for that, and certificates."""

import socket
import ssl

import httpx2
import pytest

from streams.config.settings import Address
from streams.errors import ConfigError
from streams.serve.app import Api
from streams.serve.http.security import Guard, Security
from streams.serve.http.servers import HttpThread, listening
from streams.serve.server import own_url, tls_options, trusted
from streams.testing import TopologyTestDriver
from tests.security.secured import Authority
from tests.serve.test_reading import build, click


def test_connections_send_small_answers_at_once():
    """asyncio sets TCP_NODELAY for sockets that name their protocol only; otherwise an answer waits for 40 ms."""
    with listening(Address("127.0.0.1", 0), "stores", "--http") as listener:
        assert listener.proto == socket.IPPROTO_TCP
        with socket.create_connection(listener.getsockname()):
            pass


def test_an_address_that_is_taken_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="--http HOST:PORT"):
            listening(Address("127.0.0.1", taken.getsockname()[1]), "stores", "--http")


def test_a_request_cannot_say_that_it_comes_from_elsewhere():
    """A page of another site with our address could send the header, and would then be no caller of this host any more."""
    with TopologyTestDriver(build(), partitions={"clicks": 1, "prices": 1}) as driver:
        listener = listening(Address("127.0.0.1", 0), "stores", "--http")
        with HttpThread(Api(driver.served(), Guard(Security())).application(), listener):
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/metadata"
            assert httpx2.get(url).status_code == 200
            forged = {"Host": "evil.example", "X-Forwarded-For": "192.0.2.1"}
            assert httpx2.get(url, headers=forged).status_code == 421


def test_tls_needs_a_certificate(tmp_path):
    assert tls_options(None, None, Security()) == {}
    for key, security in ((tmp_path / "key", Security()), (None, Security(tls_ca=tmp_path / "ca"))):
        with pytest.raises(ConfigError, match="--tls-cert"):
            tls_options(None, key, security)


def test_only_clients_with_a_certificate_of_the_authority_connect_and_they_may_read(tmp_path):
    authority, other = (Authority.make(folder) for folder in made(tmp_path, "ours", "others"))
    for one, address in ((authority, "127.0.0.1"), (authority, "127.0.0.2"), (other, "127.0.0.3")):
        one.server(address=address)
    mine, client, stranger = (
        one.folder / f"server-{address}-365.pem"
        for one, address in ((authority, "127.0.0.1"), (authority, "127.0.0.2"), (other, "127.0.0.3"))
    )
    security = Security(tls_ca=authority.file)
    with TopologyTestDriver(build(), partitions={"clicks": 1, "prices": 1}) as driver:
        click(driver, [("k001", 1000)])
        application = Api(driver.served(), Guard(security)).application()
        listener = listening(Address("127.0.0.1", 0), "stores", "--http")
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with HttpThread(application, listener, tls_options(mine, None, security)):

            def ask(context, method="GET", path="/v1/stores/counts/keys/k001", **more):
                with httpx2.Client(verify=context) as http:
                    return http.request(method, url + path, **more)

            def shown(certificate=None):
                context = ssl.create_default_context(cafile=authority.file)
                if certificate is not None:
                    context.load_cert_chain(certificate)
                return context

            assert ask(shown(client)).json()["value"] == 1
            refused = ask(shown(client), "POST", "/v1/topics/clicks", json={"key": "k001", "value": 1})
            assert (refused.status_code, "'write' is needed" in refused.text) == (403, True)
            for certificate in (None, stranger):
                with pytest.raises(httpx2.TransportError):
                    ask(shown(certificate))
            # As the other processes ask: with the server's own certificate.
            assert ask(trusted(mine, None, security)).json()["value"] == 1
            with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
                ask(trusted(stranger, None, Security(tls_ca=other.file)))


def test_processes_that_share_a_certificate_need_no_authority(tmp_path):
    (folder,) = made(tmp_path, "ours")
    authority = Authority.make(folder)
    authority.server()
    mine = folder / "server-127.0.0.1-365.pem"
    assert trusted(None, None, Security()) is None
    with TopologyTestDriver(build(), partitions={"clicks": 1, "prices": 1}) as driver:
        application = Api(driver.served(), Guard(Security())).application()
        listener = listening(Address("127.0.0.1", 0), "stores", "--http")
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/v1/health"
        with HttpThread(application, listener, tls_options(mine, None, Security())):
            with httpx2.Client(verify=trusted(mine, None, Security())) as http:
                assert http.get(url).status_code == 200
            with httpx2.Client() as http, pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
                http.get(url)


def test_others_are_told_an_address_that_they_can_reach():
    assert own_url(Address("127.0.0.1", 80), tls=False) == "http://127.0.0.1:80"
    assert own_url(Address("::1", 80), tls=True) == "https://[::1]:80"
    assert own_url(Address("0.0.0.0", 80), tls=True) == f"https://{socket.gethostname()}:80"


def made(folder, *names):
    """Folders."""
    for name in names:
        (folder / name).mkdir()
    return [folder / name for name in names]
