"""Searching on the page: hits as one types, modes, filters, folding, documents, collections."""

import re

from browsing import Page, Route, expect
from site_served import LONG


def titles(page: Page) -> list[str]:
    return page.locator("#view-search .hit h3").all_inner_texts()


def test_hits_come_as_one_types(open_page):
    page = open_page()
    expect(page.locator(".facts")).to_contain_text("35")
    page.keyboard.type("an animal that hunts at night")
    expect(page.locator(".hit h3").first).to_have_text(re.compile("Cats|Owls"))
    expect(page).to_have_url(re.compile(r"q=an\+animal\+that\+hunts\+at\+night"))
    expect(page.locator("#live")).to_contain_text("10 hits for an animal that hunts at night")


def test_the_nearest_sentence_is_marked(open_page):
    page = open_page("?q=what+points+away+from+the+sun")
    first = page.locator(".hit").first
    expect(first.locator("h3")).to_have_text("Comets")
    expect(first.locator("mark")).to_have_text("The tail always points away from it.")


def test_marks_count_code_points(open_page):
    page = open_page("?q=chasing+rabbits")
    fox = page.locator(".hit", has_text="Foxes")
    expect(fox.locator("mark")).to_have_text(re.compile("^(🐇🐇🐇 )?They chase rabbits through the snow.$"))


def test_answers_that_come_late_are_dropped(open_page):
    """The answer to what was typed first comes last, and is not shown."""
    page = open_page()

    def answer(route: Route) -> None:
        if "bread" in (route.request.post_data or ""):
            page.wait_for_timeout(1500)
        route.continue_()

    page.route("**/v1/search", answer)
    page.locator("#query").fill("baking bread")
    page.wait_for_timeout(300)
    page.locator("#query").fill("red planet")
    expect(page.locator(".hit h3").first).to_have_text("Mars")
    page.wait_for_timeout(2000)
    expect(page.locator(".hit h3").first).to_have_text("Mars")


def test_what_is_being_typed_survives_a_click_elsewhere(open_page):
    page = open_page()
    page.keyboard.type("planet with ri")
    page.get_by_role("link", name="Compare").click()
    expect(page.locator("#query")).to_have_value("planet with ri")
    expect(page.locator(".board")).to_contain_text("Saturn")


def test_modes(open_page):
    page = open_page("?q=planet")
    page.get_by_role("radio", name="Words").check()
    expect(page.locator(".summary").first).to_contain_text("2 hits by words")
    assert set(titles(page)) == {"Jupiter", "Mars"}
    expect(page).to_have_url(re.compile("mode=lexical"))
    page.get_by_role("radio", name="Both").check()
    expect(page.locator(".summary").first).to_contain_text("by meaning and words")
    widths = page.locator(".hit .bar span").evaluate_all("bars => bars.map(bar => bar.style.width)")
    assert widths[0] == "100%"  # nats have no scale but the best


def test_number_of_hits(open_page):
    page = open_page("?q=planet")
    page.locator("#k").select_option("5")
    expect(page.locator(".hit")).to_have_count(5)
    expect(page).to_have_url(re.compile("k=5"))


def test_the_bar_shows_the_cosine(open_page):
    page = open_page("?q=jupiter+is+the+largest+planet")
    score = float(page.locator(".hit .number").first.inner_text())
    width = page.locator(".hit .bar span").first.evaluate("bar => parseFloat(bar.style.width)")
    assert abs(width - 100 * score) < 0.1


def test_filter_by_a_chip_of_a_hit(open_page):
    page = open_page("?q=something+very+large")
    page.locator(".hit", has_text="Whales").locator(".chip", has_text="animals").click()
    expect(page.locator("#active")).to_contain_text("topic = animals")
    expect(page.locator(".hit")).to_have_count(9)
    assert all("animals" in text for text in page.locator(".hit .foot").all_inner_texts())
    page.get_by_label("Remove the filter topic = animals").click()
    expect(page.locator(".hit")).to_have_count(10)
    expect(page.locator("#active .chip")).to_have_count(0)


def test_filters_of_the_panel(open_page):
    page = open_page("?q=something+very+large")
    page.locator("#filter-button").click()
    topics = page.locator("fieldset", has=page.locator("legend", has_text="topic"))
    topics.locator(".chip", has_text="sky").click()
    topics.locator(".chip", has_text="kitchen").click()
    expect(page.locator("#active")).to_contain_text("topic in (sky, kitchen)")
    expect(topics.locator(".chip[aria-pressed=true]")).to_have_count(2)
    topics.locator(".chip", has_text="kitchen").click()
    expect(page.locator("#active")).to_contain_text("topic = sky")
    expect(page.locator(".hit")).to_have_count(8)
    page.locator("#filter-text").fill("year >= 2020")
    page.keyboard.press("Enter")
    expect(page.locator(".hit")).to_have_count(3)
    page.locator("#active button", has_text="year >= 2020").click()
    expect(page.locator("#filter-text")).to_have_value("year >= 2020")
    page.locator("#filter-text").fill("year >= 2022")
    page.keyboard.press("Enter")
    expect(page.locator(".hit")).to_have_count(1)


def test_long_passages_are_folded(open_page):
    page = open_page("?q=the+keeper+of+the+lighthouse+writes+about+fog")
    hit = page.locator(".hit", has_text="The lighthouse").first
    passage = hit.locator(".passage")
    expect(passage).to_contain_text("…")
    short = len(passage.inner_text())
    hit.get_by_role("button", name="More of The lighthouse").click()
    expect(hit.get_by_role("button", name="Less of The lighthouse")).to_have_attribute("aria-expanded", "true")
    assert len(passage.inner_text()) > 1.5 * short
    assert "…" not in passage.inner_text()


def test_a_document_opens_whole(open_page):
    page = open_page("?q=the+keeper+of+the+lighthouse+writes+about+fog")
    page.get_by_role("link", name="The lighthouse", exact=True).click()
    dialog = page.locator("#document")
    expect(dialog).to_contain_text("The lighthouse")
    expect(dialog.locator(".text")).to_have_text(LONG)
    expect(dialog.locator(".metadata")).to_contain_text("books")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("link", name="The lighthouse", exact=True)).to_be_focused()
    assert "doc=" not in page.url


def test_a_strange_query_is_noted(open_page):
    page = open_page("?q=lighthouse")
    page.route("**/v1/search", _with_strange)
    page.locator("#query").fill("xqzw vvkpt")
    expect(page.get_by_role("note")).to_contain_text("Unusual query")
    expect(page.locator("#live")).to_contain_text("unlike the texts")


def _with_strange(route):
    # Three dozen documents are too few for the server to know what is ordinary.
    answer = route.fetch()
    route.fulfill(response=answer, json={**answer.json(), "novelty": 3.5, "limit": 2.25, "strange": True})


def test_nothing_found(open_page):
    page = open_page("?q=xylophone&mode=lexical")
    expect(page.locator("#view-search")).to_contain_text("Nothing found by words.")


def test_another_collection(open_page):
    page = open_page("?q=purring")
    expect(page.locator(".hit h3").first).to_have_text("Cats")
    page.locator("#collection").select_option("pets")
    expect(page.locator(".hit")).to_have_count(5)
    expect(page).to_have_url(re.compile("collection=pets"))
    page.locator("#query").fill("gallop")
    expect(page.locator(".hit h3").first).to_have_text("horse")
