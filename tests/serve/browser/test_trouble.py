"""What the page does when something is wrong: it says so near the box, keeps what was typed, and recovers."""

import shutil
from pathlib import Path

import pytest
from browsing import Route, expect
from site_served import HOSTILE_ID, HOSTILE_TEXT, HOSTILE_TITLE, Server


def test_a_bad_filter(open_page):
    page = open_page("?q=stars")
    expect(page.locator(".hit")).to_have_count(10)
    page.locator("#filter-button").click()
    page.locator("#filter-text").fill("yeer >= 2020")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Filter: no document has a metadata field 'yeer'")
    expect(page.get_by_role("alert")).to_contain_text("did you mean 'year'")
    expect(page.locator("#query")).to_have_value("stars")
    expect(page.locator("#active .chip.bad")).to_contain_text("yeer >= 2020")
    expect(page.locator(".results.stale .hit")).to_have_count(10)
    page.locator("#active button", has_text="yeer >= 2020").click()
    page.locator("#filter-text").fill("year >= 2020")
    page.keyboard.press("Enter")
    expect(page.locator("#problem")).to_be_empty()
    expect(page.locator(".results:not(.stale) .hit").first).to_be_visible()


def test_a_filter_that_cannot_be_read(open_page):
    page = open_page("?q=stars&where=year+%3E%3E+1&where=topic+%3D+sky")
    expect(page.get_by_role("alert")).to_contain_text("cannot be understood")
    expect(page.locator("#active .chip.bad")).to_have_count(1)
    page.get_by_label("Remove the filter year >> 1").click()
    expect(page.locator(".hit")).to_have_count(8)


def test_a_filter_that_is_named_by_its_number(open_page):
    page = open_page()

    def refuse(route: Route) -> None:
        reason = "the value cannot be compared."  # which names neither the filter nor its field
        problem = {"title": "Unprocessable", "status": 422, "errors": [{"field": "where.1", "reason": reason}]}
        route.fulfill(status=422, json=problem, content_type="application/problem+json")

    page.route("**/v1/search", refuse)
    page.goto(f"{page.url}?q=stars&where=topic+%3D+sky&where=year+%3E+x&where=length+%3E+1")
    expect(page.get_by_role("alert")).to_contain_text("Filter: the value cannot be compared.")
    expect(page.locator("#active .chip.bad")).to_have_count(1)
    expect(page.locator("#active .chip.bad")).to_contain_text("year > x")


def test_fields_beyond_their_limits(open_page):
    page = open_page("?q=stars&k=5000")
    expect(page.get_by_role("alert")).to_contain_text("Hits:")
    page.locator("#k").select_option("5")
    expect(page.locator(".hit")).to_have_count(5)
    page.locator("#query").fill("long " * 2500)
    expect(page.get_by_role("alert")).to_contain_text("Query:")
    expect(page.locator("#query")).to_have_attribute("aria-invalid", "true")
    page.locator("#query").fill("bread")
    expect(page.locator(".hit h3").first).to_have_text("Bread")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("?q=stars&collection=nowhere", "nowhere"),
        ("?view=similar&id=nobody", "nobody"),
        ("?q=stars&view=compare&where=nope+%3D+1", "nope"),
    ],
)
def test_what_is_not_there(open_page, address, message):
    page = open_page(address)
    expect(page.get_by_role("alert").first).to_contain_text(message)


def test_a_document_that_is_not_there(open_page):
    page = open_page("?doc=nobody")
    expect(page.locator("#document")).to_contain_text("there is no document 'nobody'")


def test_the_server_goes_and_comes_back(open_page, folders: list[Path]):
    server = Server(folders[1:])
    server.start()
    try:
        page = open_page("?q=purring", at=server.address)
        expect(page.locator(".hit h3").first).to_have_text("Cats")
        server.stop()
        page.locator("#query").fill("gallop over fields")
        expect(page.locator("#connection")).to_contain_text("cannot be reached")
        expect(page.locator("#query")).to_have_value("gallop over fields")
        expect(page.locator(".hit h3").first).to_have_text("Cats")  # the last hits stay
        page.wait_for_timeout(2000)
        server.start()
        expect(page.locator(".hit h3").first).to_have_text("horse", timeout=60_000)
        expect(page.locator("#connection")).to_be_hidden()
        expect(page.locator("#query")).to_have_value("gallop over fields")
    finally:
        server.stop()


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again(open_page, status):
    page = open_page()
    busy = [True, True]

    def answer(route):
        if busy:
            busy.pop()
            route.fulfill(
                status=status,
                headers={"Retry-After": "1", "Content-Type": "application/problem+json"},
                body='{"title": "Busy", "status": 503, "detail": "too much to do.", "errors": []}',
            )
        else:
            route.continue_()

    page.route("**/v1/search", answer)
    page.locator("#query").fill("bread")
    expect(page.locator("#connection")).to_contain_text("The server is busy: too much to do.")
    expect(page.locator(".hit h3").first).to_have_text("Bread")
    expect(page.locator("#connection")).to_be_hidden()


@pytest.fixture(scope="module")
def guarded(browser, folders: list[Path]):
    """A server that needs a token."""
    server = Server(folders[1:], "--token", "a-good-secret")
    server.start()
    yield server
    server.stop()


def test_a_token_is_asked_for_and_kept(open_page, guarded: Server):
    page = open_page("?q=purring", at=guarded.address)
    dialog = page.locator("#token")
    expect(dialog).to_contain_text("needs a token")
    page.get_by_label("Token", exact=True).fill("guess")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("refused this token")
    page.get_by_label("Token", exact=True).fill("a-good-secret")
    page.keyboard.press("Enter")
    expect(page.locator(".hit h3").first).to_have_text("Cats")
    page.reload()
    expect(page.locator(".hit h3").first).to_have_text("Cats")
    expect(dialog).to_be_hidden()
    assert "secret" not in page.url
    assert page.evaluate("localStorage.length") == 0


@pytest.mark.parametrize("presses", [1, 2])
def test_who_closes_the_token_dialog_is_asked_again(open_page, guarded: Server, presses: int):
    page = open_page("?q=purring", at=guarded.address)
    dialog = page.locator("#token")
    expect(dialog).to_be_visible()
    for _ in range(2):  # as often as one likes
        for _ in range(presses):
            page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        expect(page.locator("#token-needed")).to_contain_text("needs a token")
        page.get_by_role("button", name="Enter the token").click()
        expect(dialog).to_be_visible()
    page.get_by_label("Token", exact=True).fill("a-good-secret")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    if presses > 1:  # the second is the box's, which it empties
        page.locator("#query").fill("purring")
    expect(page.locator(".hit h3").first).to_have_text("Cats")
    expect(page.locator("#token-needed")).to_be_hidden()


@pytest.mark.parametrize("token", ["gehe\u0131m", "señor", "two words", "🔑", "   "])
def test_a_token_that_no_request_can_carry(open_page, guarded: Server, token: str):
    page = open_page("?q=purring", at=guarded.address)
    dialog = page.locator("#token")
    page.get_by_label("Token", exact=True).fill(token)
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("Enter a token" if token.isspace() else "is not a token")
    expect(dialog).to_be_visible()
    page.get_by_label("Token", exact=True).fill("  a-good-secret ")
    page.keyboard.press("Enter")
    expect(page.locator(".hit h3").first).to_have_text("Cats")
    expect(page.locator("#connection")).to_be_hidden()


def test_a_kept_token_that_no_request_can_carry_is_asked_for_anew(open_page, guarded: Server):
    page = open_page("?q=purring", at=guarded.address)
    page.evaluate("sessionStorage.setItem('retriever-token', 'señor\\u2028')")
    page.reload()
    page.get_by_label("Token", exact=True).fill("a-good-secret")
    page.keyboard.press("Enter")
    expect(page.locator(".hit h3").first).to_have_text("Cats")


def test_a_hostile_document_is_text(open_page):
    """Titles, texts, ids, fields and values that are markup are shown and never run; the console hears no complaint."""
    page = open_page("?q=virus+that+steals+passwords+from+browsers&k=5")
    hit = page.locator(".hit", has_text="A virus that steals").first
    expect(hit.locator("h3")).to_have_text(HOSTILE_TITLE)
    expect(hit.locator(".passage")).to_have_text(HOSTILE_TEXT)
    expect(hit.locator(".id")).to_have_text(HOSTILE_ID)
    page.wait_for_selector("#view-search[data-marked]")
    page.locator("#filter-button").click()
    expect(page.locator("#filter-panel")).to_contain_text("<script>window.stolen")
    hit.locator(".chip", has_text="<b>bold</b>").click()
    expect(page.locator(".hit")).to_have_count(1)
    hit.locator("h3 a").click()
    expect(page.locator("#document .text")).to_have_text(HOSTILE_TEXT)
    expect(page.locator("#document-title")).to_have_text(HOSTILE_TITLE)
    page.keyboard.press("Escape")
    page.locator(".hit .similar").first.click()
    expect(page.locator("#view-similar .summary")).to_contain_text(HOSTILE_TITLE)
    page.get_by_role("link", name="Compare").click()
    expect(page.locator(".board")).to_contain_text(HOSTILE_TITLE)
    assert page.evaluate("window.stolen") is None
    assert page.locator("main img, main script, dialog img, dialog script").count() == 0


@pytest.mark.heavy
def test_a_server_without_a_collection_says_so_until_one_comes(open_page, folders: list[Path], tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    server = Server([home])
    server.start()
    try:
        page = open_page(at=server.address)
        expect(page.locator("#view-search")).to_contain_text("This server has no collection yet.")
        expect(page.locator("#view-search")).to_contain_text("retriever index SOURCE --index FOLDER/NAME")
        shutil.copytree(folders[1], tmp_path / "pets").rename(home / "pets")
        expect(page.locator("#view-search .facts")).to_contain_text("documents")
        expect(page.locator("#view-search")).not_to_contain_text("no collection")
        page.locator("#query").fill("purring")
        expect(page.locator(".hit").first).to_be_visible()
    finally:
        server.stop()
