"""Searching on the page: hits as one types, modes, filters, folding, documents, collections."""

import re

import pytest
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
    expect(page.get_by_role("radio", name="Both")).to_be_checked()
    expect(page.locator(".summary").first).to_contain_text("10 hits by meaning and words")
    page.get_by_role("radio", name="Words").check()
    expect(page.locator(".summary").first).to_contain_text("2 hits by words")
    assert set(titles(page)) == {"Jupiter", "Mars"}
    expect(page).to_have_url(re.compile("mode=lexical"))
    page.get_by_role("radio", name="Meaning").check()
    expect(page.locator(".summary").first).to_contain_text("10 hits by meaning in")
    expect(page).to_have_url(re.compile("mode=dense"))
    page.get_by_role("radio", name="Both").check()
    expect(page.locator(".summary").first).to_contain_text("by meaning and words")
    assert "mode=" not in page.url


def test_number_of_hits(open_page):
    page = open_page("?q=planet")
    page.locator("#k").select_option("5")
    expect(page.locator(".hit")).to_have_count(5)
    expect(page).to_have_url(re.compile("k=5"))


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_the_bar_shows_the_relevance(open_page, mode):
    page = open_page(f"?q=jupiter+is+the+largest+planet&mode={mode}")
    expect(page.locator(".hit").first).to_be_visible()
    numbers = [int(text) for text in page.locator(".hit .number").all_inner_texts()]
    widths = page.locator(".hit .bar span").evaluate_all("bars => bars.map(bar => parseFloat(bar.style.width))")
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] > 40
    for number, width in zip(numbers, widths, strict=True):
        assert abs(width - number) <= 0.51


def test_why_a_hit_was_found(open_page):
    page = open_page("?q=jupiter+is+the+largest+planet")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.post_data or request.url))
    first = page.locator(".hit").first
    expect(first.locator("mark")).to_be_visible()
    button = first.get_by_role("button", name="Why? Jupiter")
    expect(button).to_have_attribute("aria-expanded", "false")
    button.click()
    why = first.get_by_role("group", name="Why Jupiter was found")
    expect(why).to_be_visible()
    expect(button).to_have_attribute("aria-expanded", "true")
    assert button.get_attribute("aria-controls") == why.get_attribute("id")
    told = re.sub(r"\s+", " ", why.inner_text())
    side = r"strength (\d+) of 100 rank 1 {} [\d.]+"
    assert re.search("By meaning " + side.format("cosine"), told) and re.search("By words " + side.format("BM25"), told)
    assert re.search(r"Words found jupiter is the largest planet Weight meaning 50 %, words 50 %$", told)
    page.locator(".hit").nth(1).locator(".why").click()
    expect(page.locator(".reasons")).to_have_count(2)
    assert sum('"explain":true' in one for one in asked) == 1  # one request explains all hits
    button.click()
    expect(why).to_be_hidden()
    expect(button).to_have_attribute("aria-expanded", "false")


@pytest.mark.parametrize(
    ("query", "mode", "told"),
    [
        ("planet", "dense", {"By words": "not searched", "Weight": "meaning 100 %, words 0 %"}),
        ("planet", "lexical", {"By meaning": "not searched", "Words found": "planet"}),
        ("xylophone", "hybrid", {"By words": "no word of the query", "Weight": "meaning 100 %, words 0 %"}),
    ],
)
def test_why_when_a_side_found_nothing(open_page, query, mode, told):
    page = open_page(f"?q={query}&mode={mode}")
    page.locator(".why").first.click()
    for term, definition in told.items():
        expect(page.locator(f".reasons dt:text-is('{term}') + dd")).to_have_text(definition)


@pytest.mark.parametrize("query", ["sky/6", "SKY/6"])
def test_why_an_id_comes_first(open_page, query):
    page = open_page(f"?q={query}")
    expect(page.locator(".hit .number").first).to_have_text("100")
    page.locator(".why").first.click()
    expect(page.locator(".reasons p")).to_have_text("The query is the id of this document, so it comes first.")


def test_a_misspelt_word_is_noted_and_corrected(open_page):
    page = open_page("?q=galxy&k=5")
    expect(page.locator(".summary").first).to_contain_text("No document has a word of the query, so these hits are by")
    expect(page.locator("#live")).to_contain_text("Did you mean: Galaxies?")
    page.locator(".meant").get_by_role("link", name="Galaxies").click()
    expect(page.locator(".hit h3").first).to_have_text("Galaxies")
    expect(page.locator("#query")).to_have_value("Galaxies")
    expect(page).to_have_url(re.compile(r"q=Galaxies&k=5$"))
    expect(page.locator(".meant")).to_be_hidden()
    expect(page.locator(".summary").first).not_to_contain_text("No document")
    page.go_back()
    expect(page.locator(".meant")).to_have_text("Did you mean: Galaxies?")


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
    expect(page.locator("#view-search .empty")).to_have_text(
        "No document has a word of the query. Try searching by meaning."
    )


def test_another_collection(open_page):
    page = open_page("?q=purring")
    expect(page.locator(".hit h3").first).to_have_text("Cats")
    page.locator("#collection").select_option("pets")
    expect(page.locator(".hit")).to_have_count(5)
    expect(page).to_have_url(re.compile("collection=pets"))
    page.locator("#query").fill("gallop")
    expect(page.locator(".hit h3").first).to_have_text("horse")
