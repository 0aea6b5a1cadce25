"""The page in a real browser, while an application works whose worker is killed and whose broker stands still for a while.

The pictures in docs/ui.md are made by

    UI_PICTURES=docs/pictures python -m pytest tests/spark/test_page_browser.py
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from playwright.sync_api import Browser, Page

from streams import Joined, JsonSerde, KafkaStreams, Materialized, StreamsBuilder, Topology
from streams.broker import EmbeddedBroker
from tests.browser import chromium
from tests.spark.harness import Harness, Sent

TOKEN = "a-token-for-the-page"
WAIT_S = 180.0
PICTURES = os.environ.get("UI_PICTURES")
KEYS = 40


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def shop(orders: str, customers: str, revenue: str, rejected: str) -> Topology:
    builder = StreamsBuilder(default_value_serde=JsonSerde())

    def checked(order: dict[str, int]) -> dict[str, int]:
        if order["cents"] < 0:
            raise ValueError(f"an order of {order['cents']} cents")
        return order

    known = builder.table(customers, materialized=Materialized("customers"))
    valid = builder.stream(orders).map_values(checked, named="check-order")
    large = valid.filter(lambda key, order: order["cents"] >= 1_000, named="large-orders")
    large.join(known, lambda order, customer: {**order, **customer}, Joined(name="with-customer")).to(rejected)
    valid.map_values(lambda order: order["cents"], named="cents").group_by_key().reduce(
        lambda one, other: one + other, Materialized("revenue")
    ).to_stream().to(revenue)
    return builder.build()


@contextmanager
def orders_arriving(harness: Harness, topic: str) -> Iterator[None]:
    """Some hundred orders a second within the block."""
    ended = threading.Event()

    def send() -> None:
        number = 0
        while not ended.wait(0.1):
            now = int(time.time() * 1000)
            one = [(n, orjson.dumps({"cents": 100 + 97 * n % 2_000})) for n in range(number, number + 40)]
            harness.send(topic, [Sent(b"c%d" % (n * n % KEYS), value, now) for n, value in one])
            number += 40

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def url(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[str]:
    """The page of an application that has rejected an order, and one of whose workers was killed."""
    harness.application_id = "shop"
    names = [harness.topic(name, 4) for name in ("orders", "customers", "revenue", "large")]
    letters, now = harness.topic("rejected", 1), int(time.time() * 1000)
    monkeypatch.setenv("STREAMS_FAULT", "marker_sent@1:2")
    monkeypatch.setenv("STREAMS_FAULT_ONCE", str(tmp_path / "killed"))
    harness.send(names[1], [Sent(b"c%d" % n, orjson.dumps({"name": f"customer {n}"}), now) for n in range(KEYS)])
    policies = {"processing": "dlq", "dead_letter_topic": letters}
    config = harness.config(available_now=False, ui="0", ui_token=TOKEN, ui_follow="c1", tasks=4, **policies)
    said = ""
    with KafkaStreams(shop(*names), config).start(harness.spark) as streams, orders_arriving(harness, names[0]):
        assert streams.wait_until_running(WAIT_S)
        end = time.monotonic() + WAIT_S
        while not (tmp_path / "killed").exists():
            assert not streams.await_termination(timeout=0.2)
            assert time.monotonic() < end
        # A worker that dies takes the counts of its last steps along, so this comes after.
        harness.send(names[0], [Sent(b"c1", b'{"cents": -5}', now)])
        said += capsys.readouterr().err
        (found,) = re.findall(r"dashboard: (http://\S+)", said)
        yield found


@contextmanager
def broker_stands_still(broker: EmbeddedBroker) -> Iterator[None]:
    (node,) = broker.status().nodes
    assert node.pid is not None
    os.kill(node.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(node.pid, signal.SIGCONT)


def picture(page: Page, name: str) -> None:
    if PICTURES:
        Path(PICTURES).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(PICTURES) / f"page-{name}.png")


def test_the_page_in_a_browser(browser: Browser, url: str, broker: EmbeddedBroker) -> None:
    errors: list[str] = []
    asked: set[str] = set()
    page = browser.new_page(viewport={"width": 1280, "height": 560})
    page.set_default_timeout(WAIT_S * 1000)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.add(request.url))
    questions: list[str] = []
    page.on("dialog", lambda dialog: (questions.append(dialog.message), dialog.accept()))
    page.goto(url)

    # Without the token, nothing is shown.
    page.fill("#token", TOKEN)
    page.press("#token", "Enter")
    page.wait_for_selector("#state:text('RUNNING')")
    page.locator("#sentence", has_text=re.compile(r"records read/s · visible after .* \(p99\) · ")).wait_for()
    assert not page.is_visible("#login")

    # The graph: counts, and by the keyboard the details of an operator with the line of code.
    box = page.locator(".box[aria-label='operator check-order']")
    page.locator(".badge text", has_text="1 dead letter").first.wait_for()
    page.locator(".rate", has_text=re.compile(r"[1-9][\d,.]*/s")).first.wait_for()
    page.locator(".cpu", has_text=re.compile(r"[1-9]\d* % CPU")).first.wait_for()
    if PICTURES:
        # Pictures show more than the first micro-batches.
        page.wait_for_timeout(100_000)
    # All of it is in the window.
    drawing = page.locator("#graph svg")
    assert drawing.bounding_box()["width"] <= 1280
    picture(page, "graph")
    whole = drawing.get_attribute("viewBox")
    page.click("#graph button[aria-label='Larger']")
    assert drawing.get_attribute("viewBox") != whole
    page.click("#graph button[aria-label='Fit the window']")
    assert drawing.get_attribute("viewBox") == whole
    title = page.locator("#graph .title").first
    title.click()
    page.locator("#graph .title", has_text="▸").wait_for()
    assert box.count() == 0
    title.click()
    box.focus()
    page.keyboard.press("Enter")
    assert 'named="check-order"' in page.inner_text("#details-body pre")
    assert re.search(r"test_page_browser\.py, line \d+", page.inner_text("#details-body"))
    assert re.search(r"dead letters\s+1", page.inner_text("#details-body"))
    page.keyboard.press("Escape")
    assert not page.is_visible("#details")

    # The last records of a topic, from its box.
    page.click(".box[aria-label='topic shop.orders']")
    page.click("#details-body button:text('Show its last records')")
    page.locator("#details-body td", has_text="cents").first.wait_for()
    page.keyboard.press("Escape")

    # Curves: the first point comes after ten seconds.
    page.keyboard.press("c")
    page.locator("#curves path.line0[d^='M']").first.wait_for(state="attached")
    picture(page, "curves")

    # The killed worker: a failed attempt of task 1, and an event.
    page.keyboard.press("2")
    page.wait_for_selector("#tasks .bad:text('1')")
    assert page.locator("#tasks canvas").count() == 4
    picture(page, "tasks")
    page.keyboard.press("9")
    page.wait_for_selector("#events :text('retried')")

    page.keyboard.press("3")
    page.locator("#steps .bar.p50").first.wait_for()
    widths = page.locator("#steps .bar.p50").evaluate_all("bars => bars.map(one => one.clientWidth)")
    assert sum(widths) > 20
    picture(page, "steps")
    page.keyboard.press("4")
    page.wait_for_selector("#commits td.number")

    # Nothing serves the stores of this run, and the page says what would.
    page.keyboard.press("6")
    page.wait_for_selector("#store-rows :text('streams serve TARGET --ui')")

    # The followed key: what operators received of it, and why one dropped a record.
    page.keyboard.press("7")
    page.wait_for_selector("#follow .bad:text('ValueError: an order of -5 cents')")
    picture(page, "follow")

    # A dead letter goes back to where it came from; it fails again, and so becomes a second one.
    page.keyboard.press("8")
    page.wait_for_selector("#letters :text('an order of -5 cents')")
    page.click("#letters button:text-is('Replay')")
    page.wait_for_selector("#letters td:text('replayed')")
    assert re.fullmatch(r"Send this record to \S*orders once more\?", questions.pop())
    # The second one goes back with all that were not sent before, and becomes a third one.
    page.wait_for_selector("#letters button:text-is('Replay')")
    assert page.locator("#letters td:text('replayed')").count() == 1
    page.click("#letters button:text-is('Replay all')")
    page.locator("#letters td:text('replayed')").nth(1).wait_for()
    assert re.fullmatch(r"Send all records of \S*rejected once more that were not sent before\?", questions.pop())
    page.wait_for_selector("#letters button:text-is('Replay')")
    assert page.locator("#letters td:text('replayed')").count() == 2

    page.keyboard.press("0")
    page.wait_for_selector("#doctor td:text('checkpoint')")

    # A pause, and its end.
    page.keyboard.press("1")
    page.locator("#subs button:text-is('Pause')").first.click()
    page.wait_for_selector("#state:text('PAUSED')")
    assert questions.pop().startswith("Pause ")
    page.locator("#subs button:text-is('Resume')").first.click()
    page.wait_for_selector("#state:text('RUNNING')")
    questions.clear()

    # The broker stands still while a view waits for it: within seconds nothing is green, and figures are grey.
    page.keyboard.press("8")
    page.wait_for_timeout(1_000)
    with broker_stands_still(broker):
        page.wait_for_selector("#state:text('WAITING')", timeout=8_000)
        assert page.evaluate("document.body.dataset.level") == "bad"
        assert page.evaluate("getComputedStyle(document.querySelector('main')).opacity") == "0.45"
        page.keyboard.press("1")
        page.locator("#subs td:text-is('\u2013')").first.wait_for()
        picture(page, "away")
    page.wait_for_selector("#state:text('RUNNING')")
    assert not page.evaluate("document.body.classList.contains('old')")

    assert errors == []
    assert all(one.startswith(url) for one in asked)
    token = page.evaluate("sessionStorage.getItem('token')")
    page.close()
    _on_a_phone_in_the_dark(browser, url, token)
    if PICTURES:
        _in_other_colours(browser, url, token)


def _in_other_colours(browser: Browser, url: str, token: str) -> None:
    """Pictures of the page in the colours and sizes that the test itself does not use."""
    desk, phone = {"width": 1280, "height": 560}, {"width": 390, "height": 780}
    for name, size, colours, scale in (("dark", desk, "dark", 1), ("phone-light", phone, "light", 2)):
        context = browser.new_context(viewport=size, color_scheme=colours, device_scale_factor=scale)
        context.add_init_script(f"sessionStorage.setItem('token', '{token}')")
        page = context.new_page()
        page.goto(url)
        page.wait_for_selector("#graph .box")
        page.wait_for_timeout(5_000)
        picture(page, name)
        context.close()


def _on_a_phone_in_the_dark(browser: Browser, url: str, token: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 780}, color_scheme="dark", device_scale_factor=2)
    context.add_init_script(f"sessionStorage.setItem('token', '{token}')")
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("#state:text('RUNNING')")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 27)"
    picture(page, "phone")
    # Upright, and as wide as the screen.
    across, down = (page.locator("#graph svg").bounding_box()[side] for side in ("width", "height"))
    assert across <= 390
    assert down > across
    for view in ("graph", "curves", "tasks", "steps", "commits"):
        page.click(f"#tab-{view}")
        page.wait_for_selector(f"#view-{view} :is(table, .waterfall, figure)")
        # What is wider than the screen scrolls within itself.
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
    context.close()
