"""Several processes that serve at one port."""

import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from streams.cli.replica import _reached
from streams.config.settings import Address
from streams.errors import ConfigError
from streams.serve.http.servers import Process, bound, listening, run_processes, this_process

# Says its number to whoever connects, and ends with code 3 where it is asked to.
CHILD = """
import sys
from pathlib import Path
from streams.config.settings import Address
from streams.serve.http.servers import listening, this_process
one = this_process()
with listening(Address("127.0.0.1", one.port), "stores", "--http", shared=True) as listener:
    Path(sys.argv[1], str(one.number)).write_text(str(one.port))
    while True:
        connection, _ = listener.accept()
        connection.sendall(b"%d" % one.number)
        if connection.recv(9) == b"end":
            sys.exit(3)
"""


def number_of(port: int, says: bytes = b"more") -> int:
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        found = int(connection.recv(9))
        connection.sendall(says)
        return found


def test_processes_share_a_port_and_end_together(tmp_path: Path):
    codes: list[int] = []
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    parent = threading.Thread(
        target=lambda: codes.append(run_processes(2, Address("127.0.0.1", 0), threading.Event(), command))
    )
    parent.start()
    deadline = time.monotonic() + 30
    while len(files := list(tmp_path.iterdir())) < 2 or not all(file.read_text() for file in files):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (port,) = {int(file.read_text()) for file in files}
    seen: set[int] = set()
    while seen != {0, 1}:
        assert time.monotonic() < deadline
        seen.add(number_of(port))
    number_of(port, b"end")
    parent.join(30)
    assert codes == [3]
    with pytest.raises(ConnectionRefusedError):
        number_of(port)


def test_a_port_is_shared_only_by_those_who_want_that():
    with listening(Address("127.0.0.1", 0), "stores", "--http", shared=True) as first:
        address = Address("127.0.0.1", first.getsockname()[1])
        bound(address, "stores", "--http", shared=True).close()
        with pytest.raises(ConfigError, match="cannot be served"):
            listening(address, "stores", "--http")


def test_each_process_has_its_own_folder_group_and_address(monkeypatch):
    assert this_process() is None
    monkeypatch.setenv("STREAMS_SERVE_PROCESS", "2:8080")
    one = this_process()
    assert one == Process(2, 8080)
    assert (one.folder(Path("/data/serve")), one.group("a-serve")) == (Path("/data/serve-2"), "a-serve-2")
    assert Process(0, 8080).folder(Path("/data/serve")) == Path("/data/serve")
    assert _reached("https://store.example:443/x", 9001, 2) == "https://store.example:9001/x"
    assert (_reached("http://[::1]:1", 9001, 2), _reached("http://a:1", 9001, 1)) == ("http://[::1]:9001", "http://a:1")
    assert _reached(None, 9001, 2) is None
