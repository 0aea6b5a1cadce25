"""The Chromium of this machine (Debian: `apt-get install chromium`), driven by Playwright, which downloads none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser within a `with` block; without one, the test is skipped."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip(f"no Chromium on the PATH: looked for {', '.join(_NAMES)}")
    with sync_playwright() as started:
        # In a container, Chromium's own sandbox has no rights; the page is the only one that it opens.
        browser = started.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()
