"""A real browser before the real server, which serves a small collection through the real encoder."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from samples import PETS
from site_served import Server, documents

from retriever import Retriever

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., "Page"]

OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 30_000
"""Milliseconds: machines that run tests may be busy."""


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where the browser lies; without it, or what drives it, the page's tests are skipped."""
    pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("the page is tested in chromium, which is not installed")
    return found


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator["Browser"]:
    """One for each file: while playwright runs, no other test of this process could begin an event loop."""
    from playwright import sync_api

    sync_api.expect.set_options(timeout=PATIENCE)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two collections; the first is whitened, so that raw and index rank differently."""
    root = tmp_path_factory.mktemp("collections")
    Retriever.build(documents(), root / "almanac", transform="whiten:soft=0.1", precision="fp32").close()
    Retriever.build(PETS, root / "pets", transform="none", precision="fp32").close()
    return [root / "almanac", root / "pets"]


@pytest.fixture(scope="session")
def server(chromium: str, folders: list[Path]) -> Iterator[Server]:
    pytest.importorskip("uvicorn", reason="serving needs the extra serve")
    server = Server(folders)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def open_page(browser: "Browser", server: Server) -> Iterator[Open]:
    """Opens the page at an address, in a context of its own; nothing may go wrong in it unseen."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def note(kind: str, text: str) -> None:
        # The browser itself tells of statuses that are problems, and of pictures that tests look at.
        if "Failed to load resource" not in text and "willReadFrequently" not in text:
            wrong.append(f"{kind}: {text}")

    def open_(address: str = "", at: str | None = None, **options: Any) -> "Page":
        options.setdefault("viewport", {"width": 1280, "height": 860})
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: note(said.type, said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: note("exception", str(error)))
        page.goto(f"{at or server.address}/{address}")
        return page

    yield open_
    for context in contexts:
        context.unroute_all(behavior="ignoreErrors")
        for page in context.pages:
            page.unroute_all(behavior="ignoreErrors")
        context.close()
    assert not wrong, "the page complained: " + "; ".join(wrong)
