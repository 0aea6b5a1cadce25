"""The dashboard of an application that runs in this process, and of one that runs elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from streams.config import StreamsConfig
from streams.config.settings import Address
from streams.logs.recent import keeping_lines
from streams.metrics.application import MicroBatchFigures
from streams.metrics.recorder import MetricsRecorder
from streams.serve.http.servers import check_installed, listening
from streams.topology.topology import Topology
from streams.ui.figures import unasked
from streams.ui.history import History
from streams.ui.kafka import KafkaLook
from streams.ui.pulse import Pulse
from streams.ui.server import Pages, PageServer, PageStores
from streams.ui.watch import KafkaWatch


def check_page(config: StreamsConfig) -> None:
    """Checks early, before anything else is started, whether the dashboard can be served.

    Raises:
        ConfigError: The address is taken, or the HTTP stack is not installed.
    """
    if config.ui_address is not None:
        check_installed("the dashboard (--ui)")
        listening(config.ui_address, "the dashboard", "--ui").close()


@contextmanager
def page_of_running(
    config: StreamsConfig,
    topology: Topology,
    recorder: MetricsRecorder,
    history: History,
    say: Callable[[str], None],
    target: str = "TARGET",
) -> Iterator[None]:
    """Within the block, serves the dashboard of an application that this process runs, if the settings ask for it.

    The code that runs the application passes its events to the history (`History.happened`).

    Raises:
        ConfigError: The address is taken, or the HTTP stack is not installed.
    """
    if config.ui_address is None:
        yield
        return

    def measured(batch: MicroBatchFigures) -> None:
        history.measured(batch)
        history.sample(recorder.snapshot())

    recorder.listen(measured)
    with (
        closing(KafkaLook(config, topology, target)) as look,
        pulse_of(look, recorder, history) as pulse,
        keeping_lines() as lines,
    ):
        pages = Pages(recorder, history, topology, look, config.ui_token, _store_node(config), pulse, lines)
        with PageServer(config.ui_address, pages, config.ui_token) as server:
            say(f"dashboard: {page_address(server.address)}")
            yield


@contextmanager
def page_from_kafka(
    config: StreamsConfig,
    address: Address,
    topology: Topology | None,
    target: str,
    stores: PageStores | None = None,
) -> Iterator[PageServer]:
    """Within the block, serves the dashboard of an application that runs elsewhere, or not at all.

    The dashboard shows these stores or, by default, the stores of the process in the setting `ui_stores`.

    Raises:
        ConfigError: The address is taken, or the HTTP stack is not installed.
    """
    recorder, history = MetricsRecorder(config.application_id), History()
    recorder.listen(history.measured)
    with closing(KafkaLook(config, topology, target)) as look:
        watch = KafkaWatch(look, recorder, history)
        with watch, pulse_of(look, recorder, history) as pulse, keeping_lines() as lines:
            pages = Pages(
                recorder, history, topology, look, config.ui_token, stores or _store_node(config), pulse, lines
            )
            with PageServer(address, pages, config.ui_token) as server:
                yield server


def pulse_of(look: KafkaLook, recorder: MetricsRecorder, history: History) -> Pulse:
    """A pulse that records the curves, and asks whether the brokers answer."""

    def sample() -> None:
        app = recorder.snapshot()
        silent = pulse.silent_s() is not None or "broker" in app.readiness.obstacles
        history.sample(unasked(app) if silent else app)

    pulse = Pulse(look.ask, sample)
    return pulse


def _store_node(config: StreamsConfig) -> PageStores | None:
    return PageStores.at(config.ui_stores, config.ui_stores_token) if config.ui_stores else None


def page_address(address: Address) -> str:
    """The address to open in a browser. A wildcard address is replaced by this host's name."""
    shown = Address("localhost", address.port) if address.host in ("0.0.0.0", "::") else address
    return f"http://{shown}/"
