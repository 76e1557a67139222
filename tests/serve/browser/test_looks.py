"""How it looks: on a phone, in the dark, to a screen reader; and what it weighs."""

from collections.abc import Iterator
from itertools import product

import pytest
from browsing import Browser, expect
from site_served import Server, documents

from retriever import Retriever

VIEWS = {
    "start": ("", ".facts"),
    "search": ("?q=stars&where=topic+%3D+sky", ".hit mark"),
    "why": ("?q=galxy+pickels", ".meant a"),
    "document": ("?q=stars&doc=sky%2F0", "#document .text mark, #document .metadata"),
    "similar": ("?q=stars&view=similar&id=sky%2F0", "#view-similar .hit"),
    "compare": ("?q=stars&view=compare", ".moves path"),
    "ways": ("?q=purring&view=compare&collection=pets", ".three .moves path"),
    "space": ("?q=stars&view=space", ".map-hits li"),
    "card": ("?view=card", "article.card"),
}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
LOOKS = {"light": {}, "dark": {"color_scheme": "dark"}, "phone": PHONE}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing(browser: Browser, server: Server, view: str, look: str):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="accessibility is checked with axe")
    address, sign = VIEWS[view]
    context = browser.new_context(bypass_csp=True, reduced_motion="reduce", **LOOKS[look])
    page = context.new_page()
    page.goto(f"{server.address}/{address}")
    expect(page.locator(sign).first).to_be_attached(timeout=90_000)
    if view == "search":
        page.locator("#filter-button").click()
        expect(page.locator("#filter-panel fieldset").first).to_be_visible()
    if view == "why":
        page.locator(".why").first.click()
        expect(page.locator(".reasons")).to_be_visible()
    found = axe.Axe().run(page)
    told = [
        f"{one['id']}: {one['nodes'][0]['html'][:200]} {one['nodes'][0]['failureSummary']}"
        for one in found.response["violations"]
    ]
    context.close()
    assert not told, "\n".join(told)


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_needs_no_sideways_scrolling(open_page, view):
    address, sign = VIEWS[view]
    page = open_page(address, **PHONE)
    expect(page.locator(sign).first).to_be_attached(timeout=90_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


CUT_OFF = """() => [
    ...[...document.querySelectorAll('.card-scroll')].filter((one) => one.scrollWidth > one.clientWidth),
    ...[...document.querySelectorAll('.card-plot text')].filter((text) => {
        const [inner, outer] = [text, text.ownerSVGElement].map((one) => one.getBoundingClientRect());
        return inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1;
    }),
].map((one) => one.textContent)"""


@pytest.fixture(scope="module")
def chosen(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A collection whose transform was chosen among the candidates, and compared with a margin."""
    folder = tmp_path_factory.mktemp("chosen") / "chosen"
    found = [
        {"id": f"{n}", "text": f"{one.text} It was written down in the {word} year. {word} {one.title} is its name."}
        for n, (word, one) in enumerate(product("first second third fourth fifth sixth".split(), documents()))
    ]
    Retriever.build(found, folder, precision="fp32").close()
    server = Server([folder])
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("look", LOOKS)
def test_nothing_of_the_card_is_cut_off(open_page, chosen: Server, look: str):
    page = open_page("?view=card", at=chosen.address, **LOOKS[look])
    expect(page.locator(".card-dots .card-row").first).to_be_visible()
    expect(page.locator(".card-scroll tbody tr").first).to_be_visible()
    assert page.evaluate(CUT_OFF) == []


def test_dark_where_the_system_is(open_page):
    light = open_page("?q=stars")
    dark = open_page("?q=stars", color_scheme="dark")
    brightness = "parseInt(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"
    assert light.evaluate(brightness) > 200
    assert dark.evaluate(brightness) < 60


def test_no_motion_where_none_is_wanted(open_page):
    page = open_page("?q=stars", reduced_motion="reduce")
    page.keyboard.type("?")
    assert page.evaluate("getComputedStyle(document.querySelector('#busy'), '::after').animationName") == "none"


def test_landmarks_and_labels(open_page):
    page = open_page("?q=stars")
    for role in ("banner", "navigation", "search", "main"):
        expect(page.get_by_role(role)).to_have_count(1)
    expect(page.get_by_role("searchbox", name="What are you looking for?")).to_be_visible()
    expect(page.get_by_role("list", name="Hits for stars")).to_be_visible()


def test_it_is_light(browser: Browser, server: Server):
    """Everything that is sent for the first paint, headers included: under 120 KB, and from this server alone."""
    context = browser.new_context()
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: list[float] = []
    asked: list[str] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(server.address)
    expect(page.locator(".facts")).to_be_visible()
    page.wait_for_load_state("networkidle")
    context.close()
    assert 0 < sum(sizes) < 120_000
    assert all(url.startswith((server.address, "data:")) for url in asked)
    later = ("space", "compare", "why")  # what nobody has asked for yet
    assert not [url for url in asked if any(name in url for name in later)]
