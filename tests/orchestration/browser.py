"""Prefect's own UI in headless Chromium, read as a user reads it.

It drives the Chromium that CHROMIUM names, or /usr/bin/chromium; none is ever downloaded. Every wait is for something
that a page shows, and is bounded.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from PIL import Image
from playwright.sync_api import Locator, Page, ViewportSize, sync_playwright

CHROMIUM = "/usr/bin/chromium"
PAGE_SECONDS = 60.0  # a page takes 3 to 6 s on an idle machine, and longer beside a training
SETTLE_SECONDS = 1.5  # for what fades in or moves once a page has its words
WINDOW: ViewportSize = {"width": 1440, "height": 900}
TALL: ViewportSize = {"width": 1440, "height": 1600}
COLOURS = 128


@contextmanager
def browser(site: str, pictures: Path | None = None) -> Iterator["Browser"]:
    """A browser on the UI at `site`. Pictures are kept where there is a folder for them."""
    with sync_playwright() as playwright:
        program = os.environ.get("CHROMIUM", CHROMIUM)
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            page = chromium.new_page(viewport=WINDOW)
            page.set_default_timeout(PAGE_SECONDS * 1000)
            yield Browser(page, site, pictures)
        finally:
            chromium.close()


class Browser:
    """One tab. `complaints`: answers of the server that are errors, and errors in the page's own scripts."""

    def __init__(self, page: Page, site: str, pictures: Path | None) -> None:
        self.page = page
        self.site = site
        self.complaints: list[str] = []
        self._pictures = pictures
        page.on("response", lambda answer: self._note(answer.url, answer.status))
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))

    def _note(self, url: str, status: int) -> None:
        path = urlsplit(url).path
        if status >= 400 and url.startswith(self.site) and path.startswith("/api/"):
            self.complaints.append(f"{status} {path}")

    def open(self, path: str, *texts: str) -> None:
        """Load a page, and wait until it shows each of `texts`."""
        self.page.goto(f"{self.site}{path}")
        self.shows(*texts)

    def shows(self, *texts: str, seconds: float = PAGE_SECONDS) -> None:
        """Wait until each of `texts` can be seen somewhere on the page."""
        for text in texts:
            self.page.get_by_text(text).filter(visible=True).first.wait_for(timeout=seconds * 1000)

    def text(self) -> str:
        """All that the page says."""
        return self.page.inner_text("body")

    def click(self, name: str, within: Locator | None = None) -> None:
        """The button of this name."""
        buttons = (within or self.page).get_by_role("button", name=name, exact=True)
        buttons.filter(visible=True).first.click()

    def wait_for_state(self, name: str, seconds: float) -> None:
        """Until the page of a flow run, which is open, says that it is in the state of this name: by itself, without
        being loaded again."""
        badge = self.page.locator(".page-heading-flow-run__meta .state-badge")
        badge.filter(has_text=re.compile(f"^\\s*{name}\\s*$")).wait_for(timeout=seconds * 1000)

    def done_pixels(self) -> int:
        """How many pixels of the run graph, on the page of a flow run that is open, have the colour of tasks that are
        done. It is drawn on a canvas and holds no text."""
        canvas = self.page.locator(".run-graph canvas")
        canvas.wait_for()
        self.settle()
        pixels = np.asarray(Image.open(BytesIO(canvas.screenshot())).convert("RGB")).astype(int)
        red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
        return int(((green > red + 60) & (green > blue + 60)).sum())

    def schedule(self, deployment: str, slug: str) -> Locator:
        """The card of a schedule, on the page of the deployment of this id."""
        self.open(f"/deployments/deployment/{deployment}", "Schedules")
        card = self.page.locator(".deployment-schedule-card").filter(has_text=slug)
        card.wait_for()
        return card

    def message(self, pattern: str, picture: str = "") -> str:
        """What the page says at its edge, for some seconds, where `pattern` is found in it; then it is put away."""
        found = self.page.locator(".p-toast__message").filter(has_text=re.compile(pattern)).filter(visible=True)
        found.first.wait_for()
        said = found.first.inner_text()
        if picture:
            self.picture(picture)
        self.page.locator(".p-toast__close-btn").evaluate_all("buttons => buttons.forEach(button => button.click())")
        found.first.wait_for(state="detached")
        return said

    def settle(self) -> None:
        """Give a moment to what still moves."""
        self.page.wait_for_timeout(SETTLE_SECONDS * 1000)

    def picture(self, name: str, *, tall: bool = False) -> None:
        """Keep what the window shows as `name`.png, in few colours."""
        if self._pictures is None:
            return
        if tall:
            self.page.set_viewport_size(TALL)
        self.settle()
        self._pictures.mkdir(parents=True, exist_ok=True)
        path = self._pictures / f"{name}.png"
        self.page.screenshot(path=path)
        with Image.open(path) as taken:
            small = taken.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        small.save(path, optimize=True)
        self.page.set_viewport_size(WINDOW)
