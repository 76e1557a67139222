"""The map: made while one waits, lit up by a query, moved about by mouse, finger and keys; 100,000 points, too."""

import json
import re
from typing import Any

import numpy as np
from browsing import Page, Route, expect
from site_served import LONG

PATIENCE = 120_000
"""Milliseconds: the map is made when it is first asked for."""


HOW_MUCH_IS_DRAWN = """(which) => {
    const canvas = document.querySelector(which);
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const pixels = new Uint32Array(data.buffer);
    let [drawn, sum] = [0, 0];
    for (let i = 0; i < pixels.length; i++) {
        if (pixels[i] === pixels[0]) continue;
        drawn++;
        sum = (sum + i * (pixels[i] & 0xffff)) % 1000003;
    }
    return [drawn, sum];
}"""
WHERE_THE_HIT_IS = """() => {
    const canvas = document.querySelector('.marks');
    const { data, width } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let [x, y, n] = [0, 0, 0];
    for (let i = 0; i < data.length; i += 4) {
        if (data[i] !== 0xb0 || data[i + 1] !== 0x2a || data[i + 2] !== 0x0f) continue;
        x += (i / 4) % width;
        y += Math.floor(i / 4 / width);
        n++;
    }
    return [x / n, y / n].map((one) => one * canvas.clientWidth / width);
}"""


def pixels(page: Page, canvas: str = ".points") -> list[int]:
    """How many pixels are not the paper's, and a sum that tells two pictures apart."""
    return page.evaluate(HOW_MUCH_IS_DRAWN, canvas)


def settled(page: Page) -> None:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_the_map_with_a_query(open_page):
    page = open_page("?view=space&q=planets+and+stars&k=5")
    expect(page.locator(".map-hits li")).to_have_count(5, timeout=PATIENCE)
    expect(page.locator("#map-said")).to_contain_text("drawn between its hits")
    settled(page)
    assert pixels(page)[0] > 0
    assert pixels(page, ".marks")[0] > 500
    expect(page.locator(".legend li").first).to_be_visible()
    counts = [int(text) for text in page.locator(".legend .many").all_inner_texts()]
    assert sum(counts) == 35


def test_colours_by_a_field(open_page):
    page = open_page("?view=space")
    expect(page.locator(".legend li").first).to_be_visible(timeout=PATIENCE)
    page.get_by_label("Colour by").select_option("topic")
    expect(page.locator(".legend")).to_contain_text("kitchen")
    expect(page).to_have_url(re.compile("colour=topic"))
    settled(page)
    before = pixels(page)
    page.locator(".legend button", has_text="kitchen").click()
    settled(page)
    assert pixels(page)[0] < before[0]
    page.get_by_label("Colour by").select_option("length")
    expect(page.locator(".scale")).to_contain_text(str(len(LONG)))


def test_a_link_with_a_field_that_nobody_has(open_page):
    page = open_page("?view=space&colour=nope&q=stars&k=5")
    expect(page.locator(".map-hits li")).to_have_count(5, timeout=PATIENCE)
    expect(page.get_by_role("alert").filter(has_text="nope")).to_contain_text("coloured by cluster")
    expect(page).not_to_have_url(re.compile("colour"))
    expect(page.get_by_label("Colour by")).to_have_value("")
    expect(page.locator(".legend li").first).to_be_visible()
    settled(page)
    assert pixels(page)[0] > 0
    page.locator("#query").fill("bread")  # a search leaves the message alone, a choice takes it away
    expect(page.locator(".map-hits")).to_contain_text("Bread")
    expect(page.get_by_role("alert").filter(has_text="nope")).to_be_visible()
    page.get_by_label("Colour by").select_option("topic")
    expect(page.locator(".legend")).to_contain_text("kitchen")
    expect(page.get_by_role("alert").filter(has_text="nope")).to_be_hidden()


def test_zoom_and_pan(open_page):
    page = open_page("?view=space")
    expect(page.locator(".legend li").first).to_be_visible(timeout=PATIENCE)
    settled(page)
    seen = [pixels(page)]

    def changed() -> None:
        settled(page)
        seen.append(pixels(page))
        assert seen[-1] != seen[-2]

    page.get_by_label("Zoom in").click()
    changed()
    box = page.locator(".marks").bounding_box()
    assert box
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(100)
    changed()
    page.mouse.down()
    page.mouse.move(middle[0] + 80, middle[1] + 40, steps=4)
    page.mouse.up()
    changed()
    expect(page).to_have_url(re.compile(r"at=\d+%2C\d+%2C[\d.]+"))
    there = page.url
    page.reload()
    expect(page.locator(".legend li").first).to_be_visible(timeout=PATIENCE)
    page.wait_for_timeout(500)
    assert page.url == there
    page.get_by_label("Show all").click()
    settled(page)
    assert pixels(page) == seen[0]


def place_of_hit(page: Page) -> tuple[float, float]:
    """Where the first hit is drawn: its number has a ground of one colour."""
    box = page.locator(".marks").bounding_box()
    assert box
    page.locator(".map-hits a").first.hover()
    card = page.locator(".point-card")
    expect(card).to_be_visible()
    x, y = page.evaluate(WHERE_THE_HIT_IS)
    return box["x"] + x, box["y"] + y


def test_hover_shows_and_click_opens_the_document(open_page):
    page = open_page("?view=space&q=planet+with+rings&k=1")
    expect(page.locator(".map-hits li")).to_have_count(1, timeout=PATIENCE)
    settled(page)
    x, y = place_of_hit(page)
    page.mouse.move(5, 5)
    expect(page.locator(".point-card")).to_be_hidden()
    # With one hit the query's diamond lies on it; the disc's edge around it is symmetrical.
    page.mouse.move(x, y)
    expect(page.locator(".point-card")).to_contain_text("Saturn")
    page.mouse.click(x, y)
    expect(page.locator("#document")).to_contain_text("ice and rock")
    page.get_by_role("link", name="Documents similar to Saturn").click()
    expect(page.locator("#view-similar .summary")).to_contain_text("most similar to Saturn")


def test_a_finger_shows_the_document_and_its_links(open_page):
    page = open_page(
        "?view=space&q=planet+with+rings&k=1", viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True
    )
    expect(page.locator(".map-hits li")).to_have_count(1, timeout=PATIENCE)
    settled(page)
    x, y = place_of_hit(page)
    page.touchscreen.tap(x, y)
    card = page.locator(".point-card")
    expect(card).to_contain_text("Saturn")
    card.get_by_role("link", name="Open").tap()
    expect(page.locator("#document")).to_contain_text("ice and rock")


def test_the_map_by_keyboard(open_page):
    page = open_page("?view=space")
    expect(page.locator(".legend li").first).to_be_visible(timeout=PATIENCE)
    page.locator("#filter-button").focus()
    page.keyboard.press("Tab")
    expect(page.locator(".marks")).to_be_focused()
    settled(page)
    before = pixels(page)
    for _ in range(3):
        page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    settled(page)
    assert pixels(page) != before
    for way in ("ArrowLeft", "ArrowUp", "ArrowDown", "ArrowRight", "ArrowLeft") * 6:
        page.wait_for_timeout(250)
        if page.locator(".point-card").is_visible():
            break
        page.keyboard.press(way)
    else:
        page.keyboard.press("0")
    title = page.locator(".point-card strong").inner_text()
    expect(page.locator("#live")).to_have_text(title)
    page.keyboard.press("Enter")
    expect(page.locator("#document-title")).to_have_text(title)


def test_words_for_those_who_do_not_see_it(open_page):
    page = open_page("?view=space")
    expect(page.locator("#live")).to_have_text(re.compile("A map of 35 documents in .* cluster"), timeout=PATIENCE)
    expect(page.get_by_role("list", name="Colours").get_by_role("listitem").first).to_be_visible()
    expect(page.get_by_role("application")).to_have_attribute("aria-label", re.compile("arrow keys"))


def many(points: int) -> dict[str, Any]:
    """A made-up map of a dozen clouds."""
    chance = np.random.default_rng(0)
    clusters = (np.arange(points) % 12).astype(np.uint8)
    middles = chance.uniform(8000, 57000, (12, 2))
    places = np.clip(middles[clusters] + chance.normal(0, 3000, (points, 2)), 0, 65535).astype("<u2")
    about = {
        "state": "ready",
        "key": "made-up",
        "documents": points,
        "clusters": [{"number": n, "label": f"cloud {n}", "documents": int(np.sum(clusters == n))} for n in range(12)],
        "fields": [],
    }
    return {"about": about, "points": places[:, 0].tobytes() + places[:, 1].tobytes() + clusters.tobytes()}


def test_a_hundred_thousand_points(open_page):
    """Only the map is made up, as embedding so many texts would take an hour; the hits are the server's."""
    made = many(100_000)
    making = [{"state": "making", "done": 0.4, "what": "laying out the documents"}]

    def about(route: Route) -> None:
        status, body = (202, making.pop()) if making else (200, made["about"])
        route.fulfill(status=status, content_type="application/json", body=json.dumps(body))

    def point(route: Route) -> None:
        number = re.search(r"points/(\d+)", route.request.url)
        assert number
        route.fulfill(json={"id": "sky/5", "title": f"point {number[1]}", "passage": "A made-up point."})

    page = open_page()
    page.route("**/v1/map?*", about)
    page.route("**/v1/map", about)
    page.route("**/v1/map/points?*", lambda route: route.fulfill(body=made["points"]))
    page.route("**/v1/map/points/*", point)
    page.route("**/v1/map/locate", lambda route: route.fulfill(json={"numbers": list(range(0, 50_000, 5_000))}))
    page.locator("#query").fill("stars")
    page.get_by_role("link", name="Space").click()
    expect(page.locator(".making")).to_contain_text("laying out the documents: 40 %")
    expect(page.locator(".legend li")).to_have_count(12)
    expect(page.locator(".map-hits li")).to_have_count(10)
    settled(page)
    drawn = pixels(page)[0]
    assert drawn > 50_000
    box = page.locator(".marks").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    for _ in range(8):
        page.mouse.wheel(0, -120)
        page.wait_for_timeout(20)
    settled(page)
    assert pixels(page)[0] != drawn
    page.get_by_label("Show all").click()
    for x in range(200, 700, 3):
        page.mouse.move(box["x"] + x, box["y"] + box["height"] / 2)
        if page.locator(".marks.pointing").count():
            break
    expect(page.locator(".point-card")).to_contain_text("point ")
