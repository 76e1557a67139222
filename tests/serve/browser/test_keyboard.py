"""Everything by keyboard alone, with the focus always to be seen."""

import re

from browsing import Page, expect

WHERE_THE_FOCUS_IS = """() => {
    const at = document.activeElement;
    const accent = getComputedStyle(document.querySelector('nav [aria-current]')).color;
    const ringed = (node) => node && getComputedStyle(node).outlineStyle !== 'none'
        && parseFloat(getComputedStyle(node).outlineWidth) > 0;
    const around = at.closest('.hit');
    const seen = ringed(at) || ringed(at.nextElementSibling)
        || (around && getComputedStyle(around).borderTopColor === accent);
    return [at.tagName, at.id || at.getAttribute('aria-label') || at.innerText || at.value, Boolean(seen)];
}"""


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.innerText || document.activeElement.id"))


def test_from_box_to_document_and_back(open_page):
    page = open_page()
    page.keyboard.type("planet with rings")
    expect(page.locator(".hit h3").first).to_have_text("Saturn")
    second = page.locator(".hit h3").nth(1).inner_text()
    page.keyboard.press("ArrowDown")
    assert focused(page) == "Saturn"
    page.keyboard.press("j")
    assert focused(page) == second
    page.keyboard.press("ArrowUp")
    assert focused(page) == "Saturn"
    page.keyboard.press("Enter")
    expect(page.locator("#document")).to_contain_text("ice and rock")
    page.keyboard.press("Escape")
    expect(page.locator("#document")).to_be_hidden()
    assert focused(page) == "Saturn"
    page.keyboard.press("k")
    expect(page.locator("#query")).to_be_focused()
    expect(page.locator("#query")).to_have_value("planet with rings")


def test_keys_of_a_hit(open_page):
    page = open_page("?q=the+keeper+of+the+lighthouse+writes+about+fog")
    expect(page.locator(".hit h3").first).to_have_text("The lighthouse")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("m")
    expect(page.locator(".hit").first.locator(".fold")).to_have_text("Less")
    page.keyboard.press("w")
    expect(page.locator(".hit").first.locator(".reasons")).to_contain_text("By meaning")
    page.keyboard.press("w")
    expect(page.locator(".hit").first.locator(".reasons")).to_be_hidden()
    page.keyboard.press("s")
    expect(page.locator("#view-similar .summary")).to_contain_text("most similar to The lighthouse")
    page.keyboard.press("Escape")
    expect(page.locator("#view-search .hit h3").first).to_have_text("The lighthouse")


def test_slash_views_filters_and_help(open_page):
    page = open_page("?q=stars")
    expect(page.locator(".hit").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("2")
    expect(page.locator(".board")).to_be_visible()
    page.keyboard.press("1")
    page.keyboard.press("f")
    expect(page.locator("#filter-panel")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#filter-panel")).to_be_hidden()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.locator("#query")).to_be_focused()
    page.keyboard.type("/?2")  # letters, in the box
    expect(page.locator("#query")).to_have_value(re.compile(r"/\?2"))


def test_tab_reaches_everything_and_shows_where_it_is(open_page):
    page = open_page("?q=stars&k=5&where=topic+%3D+sky")
    expect(page.locator(".hit")).to_have_count(5)
    page.wait_for_selector("#view-search[data-marked]")
    page.locator(".skip").focus()
    reached = []
    for _ in range(120):
        what = page.evaluate(WHERE_THE_FOCUS_IS)
        if what[0] == "BODY":
            break
        reached.append(what)
        page.keyboard.press("Tab")
    names = [name for _, name, _ in reached]
    for wanted in ("Search", "Card", "collection", "help-button", "query", "k", "filter-button", "topic = sky"):
        assert wanted in names, f"{wanted} cannot be reached: {names}"
    assert "Remove the filter topic = sky" in names
    assert sum(name.startswith("Documents similar to") for name in names) == 5
    assert [name for tag, name, ringed in reached if not ringed and tag != "BODY"] == []


def test_modes_by_arrow_keys(open_page):
    page = open_page("?q=planet")
    page.get_by_role("radio", name="Meaning").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".summary").first).to_contain_text("by words")
    expect(page.get_by_role("radio", name="Words")).to_be_focused()
