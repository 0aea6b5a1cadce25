"""The page in a real browser over figures that this process makes: what it shows when nobody answers, and how its graph behaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from playwright.sync_api import Browser

from streams.metrics.recorder import START, MetricsRecorder
from streams.serve.app import Api
from streams.serve.http.security import Guard, Security
from streams.testing import TopologyTestDriver
from streams.ui.history import History
from streams.ui.server import PageStores
from tests.browser import chromium
from tests.metrics.made import step
from tests.serve.test_reading import build, click
from tests.ui.test_server import served
from tests.ui.test_stores import page as page_of_stores


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def running() -> MetricsRecorder:
    made = MetricsRecorder("app")
    made.starting("orders", 2, ("orders",))
    made.obstacle(START, None)
    counters = {"dropped:paid:processing": 3, "dropped:paid:null_key": 2, "dead_letters:processing": 3, "in:paid": 9}
    made.step("orders", 0, (step(0, counters=counters), step(1)))
    made.positions("orders", {("orders", 0): (4, 9007199254741003)})
    return made


def test_when_the_process_is_gone_nothing_is_green_and_figures_are_grey(browser: Browser) -> None:
    page = browser.new_page()
    with served(running(), History()) as url:
        page.goto(url)
        page.wait_for_selector("#state:text('RUNNING')")
        assert page.inner_text("#sentence").startswith("3 dead letters in the last 10 min")
        page.locator(".badge text", has_text="2 dropped, 3 dead letters").wait_for()
    page.wait_for_selector("#state:text('NO ANSWER')", timeout=8_000)
    assert page.evaluate("document.body.dataset.level") == "bad"
    assert page.evaluate("getComputedStyle(document.querySelector('main')).opacity") == "0.45"
    page.close()


def test_the_headline_does_not_wait_for_a_view_that_gets_no_answer(browser: Browser) -> None:
    page = browser.new_page()
    made = running()
    with served(made, History()) as url:
        # Kafka answers nothing there, so the view of dead letters waits long.
        page.goto(f"{url}#/letters")
        page.wait_for_selector("#state:text('RUNNING')")
        made.failed("no luck")
        page.wait_for_selector("#state:text('FAILED')", timeout=5_000)
    page.close()


@pytest.mark.parametrize(("width", "upright"), [(1280, False), (390, True)])
def test_the_graph_fits_moves_zooms_and_folds(browser: Browser, width: int, upright: bool) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})
    with served(running(), History()) as url:
        page.goto(url)
        drawing, boxes = page.locator("#graph svg"), page.locator("#graph .box")
        boxes.first.wait_for()
        box = drawing.bounding_box()
        assert box is not None
        assert box["width"] <= width
        assert (box["height"] > box["width"]) == upright
        whole = drawing.get_attribute("viewBox")
        page.click("#graph button[aria-label='Larger']")
        larger = drawing.get_attribute("viewBox")
        assert larger != whole
        page.mouse.move(box["x"] + 60, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 20, box["y"] + 40, steps=4)
        page.mouse.up()
        assert drawing.get_attribute("viewBox") not in (whole, larger)
        # A drag is no click.
        assert not page.is_visible("#details")
        page.click("#graph button[aria-label='Fit the window']")
        assert drawing.get_attribute("viewBox") == whole
        page.locator("#graph .title").first.click()
        page.locator("#graph .title", has_text="▸").wait_for()
        assert boxes.count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def test_changes_of_a_store_appear_as_they_are_committed_and_sql_is_answered(browser: Browser) -> None:
    page = browser.new_page()
    with TopologyTestDriver(build(), partitions={"clicks": 3, "prices": 3}) as driver:
        served_stores = Api(driver.served(), Guard(Security()), source=lambda: nullcontext(driver._kafka)).application()
        with page_of_stores(PageStores.within(served_stores)) as url:
            page.goto(f"{url.removesuffix('api/v1/')}#/stores")
            page.select_option("#store", "counts")
            page.click("#store-follow")
            page.locator("#store-rows", has_text="Changes of counts appear here").wait_for()
            click(driver, [("ann", 1000), ("ben", 1000)])
            page.locator("#store-rows td", has_text="ben").wait_for()
            click(driver, [("ann", 2000)])
            page.locator("#store-rows tr", has_text="ann").nth(1).wait_for()
            # Newest first, and nothing twice.
            rows = page.locator("#store-rows tbody tr").all_inner_texts()
            assert rows[0].split("\t")[-2:] == ["ann", "2"]
            assert len(rows) == 3
            page.click("#store-follow")
            page.fill("#sql", "SELECT count(*) AS there FROM counts")
            page.click("#sql-form button")
            page.locator("#sql-rows th", has_text="there").wait_for()
            assert page.locator("#sql-rows td").all_inner_texts() == ["2"]
    page.close()
