"""Compare, similar and card, and the address that holds what they show."""

import re

from browsing import Route, expect


def test_compare_shows_who_moved(open_page):
    page = open_page("?view=compare&q=something+that+shines+at+night&k=10")
    raw = page.get_by_role("region", name="Raw ranking", exact=True).locator("li")
    index = page.get_by_role("region", name="Index ranking", exact=True).locator("li")
    expect(raw).to_have_count(10)
    expect(index).to_have_count(10)
    before = raw.locator("a").all_inner_texts()
    after = index.locator("a").all_inner_texts()
    assert before != after
    expect(page.locator(".moves path")).to_have_count(len(set(before) & set(after)))
    for title, move in zip(after, index.locator(".move .hidden").all_inner_texts(), strict=True):
        if title not in before:
            assert move.startswith("new")
            continue
        up = before.index(title) - after.index(title)
        assert move.startswith(f"{abs(up)} {'up' if up > 0 else 'down'}") if up else move == "at the same rank"
    for title, entry in zip(before, raw.all_inner_texts(), strict=True):
        assert (title in after) != bool(re.search("gone|now", entry))
    expect(page.locator("#view-compare .summary")).to_contain_text("in both")


def test_lines_end_at_their_documents(open_page):
    page = open_page("?view=compare&q=something+that+shines+at+night")
    expect(page.locator(".moves path").first).to_be_attached()
    for _ in range(2):
        wrong = page.evaluate("""() => [...document.querySelectorAll('.moves path')].filter((path) => {
            const box = path.ownerSVGElement.getBoundingClientRect();
            const ends = path.getAttribute('d').match(/[\\d.]+/g).map(Number);
            const middle = (list) => {
                const item = [...list.children].find((one) => one.hit.id === path.dataset.id).getBoundingClientRect();
                return item.top + item.height / 2 - box.top;
            };
            const [left, right] = document.querySelectorAll('.board ol');
            return Math.abs(ends[1] - middle(left)) > 1 || Math.abs(ends.at(-1) - middle(right)) > 1;
        }).length""")
        assert wrong == 0
        page.set_viewport_size({"width": 420, "height": 800})
        page.wait_for_timeout(300)


def test_compare_of_a_collection_without_transform(open_page):
    page = open_page("?view=compare&q=purring&collection=pets")
    expect(page.locator("#view-compare .summary")).to_contain_text("has no transform")

    def late(route: Route) -> None:
        page.wait_for_timeout(1000)
        route.continue_()

    page.route("**/v1/collections", late)
    page.reload()
    expect(page.locator("#view-compare .summary")).to_contain_text("has no transform")


def test_similar_from_a_hit(open_page):
    page = open_page("?q=purring+cats&k=5")
    page.get_by_label("Documents similar to Cats").click()
    expect(page.locator("#view-similar .summary")).to_contain_text("5 documents most similar to Cats")
    found = page.locator("#view-similar .hit h3").all_inner_texts()
    assert "Cats" not in found
    expect(page).to_have_url(re.compile("view=similar.*id=animals%2F0"))
    page.get_by_role("link", name="← Hits").click()
    expect(page.locator("#view-search .hit h3").first).to_have_text("Cats")


def test_the_card(open_page):
    page = open_page("?q=cats")
    page.get_by_role("link", name="Card", exact=True).click()
    card = page.locator("#view-card article.card")
    expect(card).to_contain_text("all-MiniLM-L6-v2")
    assert page.locator("article.card script").count() == 0
    page.locator("#collection").select_option("pets")
    expect(page.locator("#view-card")).to_contain_text("pets")
    page.locator("#query").fill("purring")  # a query asked from the card leads to its hits
    expect(page.locator("#view-search .hit h3").first).to_have_text("Cats")


def test_an_address_is_a_search(open_page):
    page = open_page("?q=stars&mode=dense&k=5&where=topic+%3D+sky&where=year+%3E%3D+2016")
    expect(page.locator("#query")).to_have_value("stars")
    expect(page.locator(".hit")).to_have_count(5)
    expect(page.locator("#active .chip")).to_have_count(2)
    expect(page.get_by_role("radio", name="Meaning")).to_be_checked()
    expect(page).to_have_title("stars · retriever")


def test_an_address_may_name_the_default_mode(open_page):
    page = open_page("?q=stars&mode=hybrid")
    expect(page.get_by_role("radio", name="Both")).to_be_checked()
    expect(page.locator(".summary").first).to_contain_text("by meaning and words")


def test_an_address_opens_a_document(open_page):
    page = open_page("?q=stars&doc=sky%2F0")
    expect(page.locator("#document")).to_contain_text("Comets")
    page.get_by_label("Close the document").click()
    expect(page.locator("#document")).to_be_hidden()
    expect(page.locator(".hit").first).to_be_visible()


def test_back_and_forward(open_page):
    page = open_page()
    page.locator("#query").fill("baking bread")
    page.keyboard.press("Enter")
    expect(page.locator(".hit h3").first).to_have_text("Bread")
    page.locator("#query").fill("")
    page.keyboard.type("planet with rings", delay=40)
    expect(page.locator(".hit h3").first).to_have_text("Saturn")
    page.get_by_role("link", name="Saturn", exact=True).click()
    expect(page.locator("#document")).to_be_visible()
    page.go_back()
    expect(page.locator("#document")).to_be_hidden()
    expect(page.locator("#query")).to_have_value("planet with rings")
    page.go_back()
    expect(page.locator("#query")).to_have_value("baking bread")
    expect(page.locator(".hit h3").first).to_have_text("Bread")
    page.go_forward()
    expect(page.locator(".hit h3").first).to_have_text("Saturn")


def test_an_address_that_makes_no_sense(open_page):
    page = open_page("?view=nonsense&mode=telepathy&k=many&q=stars")
    expect(page.locator(".hit")).to_have_count(10)
