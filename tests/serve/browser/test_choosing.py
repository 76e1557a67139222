"""The start screen with its examples, filters by ranges and values, and meaning, both and words side by side."""

import re
from collections.abc import Iterator

import pytest
from browsing import expect
from site_served import Server

from retriever import Retriever
from retriever.corpus import Document


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A collection with a title, without a transform, with a number, a date and a field of many values."""
    folder = tmp_path_factory.mktemp("letters") / "letters"
    found = [
        Document(
            f"l{n}",
            f"Letter {n} tells of the {('harbour', 'garden', 'winter')[n % 3]} and of a visit from an old friend.",
            f"A letter about the {('harbour', 'garden', 'winter')[n % 3]}",
            {"year": 1900 + n, "sent": f"19{n:02d}-06-{1 + n % 28:02d}", "writer": f"Writer {n}"},
            "",
        )
        for n in range(40)
    ]
    with Retriever.build(found, folder, transform="none", precision="fp32") as retriever:
        retriever.describe(title="Letters <b>home</b>", description="Forty letters.\nAll of them are short.")
    server = Server([folder])
    server.start()
    yield server
    server.stop()


def test_the_start_screen(open_page, letters: Server) -> None:
    page = open_page("", at=letters.address)
    start = page.locator("#view-search")
    expect(start.locator(".title")).to_have_text("Letters <b>home</b>")
    expect(start.locator(".description")).to_contain_text("All of them are short.")
    expect(start.locator(".facts")).to_have_text("40 documents")
    for word in ("encoder", "MiniLM", "transform"):
        expect(start).not_to_contain_text(word)
    examples = start.locator(".examples a")
    expect(examples).to_have_count(3)
    text = examples.first.inner_text()
    examples.first.click()
    expect(page.locator("#query")).to_have_value(text)
    expect(page.locator(".hit").first).to_be_visible()


def test_a_range_of_numbers(open_page, letters: Server) -> None:
    page = open_page("?q=letter&k=50&mode=dense", at=letters.address)
    page.locator("#filter-button").click()
    years = page.locator("fieldset", has_text=re.compile("^year"))
    years.get_by_label("from").fill("1910")
    years.get_by_label("from").press("Enter")
    expect(page.locator("#active")).to_contain_text("year >= 1910")
    years.get_by_label("to").fill("1912")
    years.get_by_label("to").press("Enter")
    expect(page.locator(".hit")).to_have_count(3)
    page.reload()
    page.locator("#filter-button").click()
    expect(years.get_by_label("to")).to_have_value("1912")
    assert years.locator(".histogram rect.out").count() > years.locator(".histogram rect:not(.out)").count() > 0
    years.get_by_label("from").fill("")
    years.get_by_label("from").press("Enter")
    expect(page.locator(".hit")).to_have_count(13)
    box = years.locator(".histogram").bounding_box()
    assert box
    page.mouse.move(box["x"] + 1, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 10)
    page.mouse.up()
    expect(page.locator("#active")).to_contain_text("year >= 1900")
    high = int(years.get_by_label("to").input_value())
    assert 1908 <= high <= 1912
    expect(page.locator(".hit")).to_have_count(high - 1900 + 1)


def test_a_range_of_dates(open_page, letters: Server) -> None:
    page = open_page("?q=letter&k=50&mode=dense", at=letters.address)
    page.locator("#filter-button").click()
    sent = page.locator("fieldset", has_text=re.compile("^sent"))
    sent.get_by_label("from").fill("1930-01-01")
    sent.get_by_label("to").fill("1931-12-31")
    sent.get_by_label("to").blur()
    expect(page.locator(".hit")).to_have_count(2)
    expect(page.locator("#active")).to_contain_text("sent <= '1931-12-31'")


def test_searching_within_the_values(open_page, letters: Server) -> None:
    page = open_page("?q=letter&k=50&mode=dense", at=letters.address)
    page.locator("#filter-button").click()
    writers = page.locator("fieldset", has_text=re.compile("^writer"))
    writers.get_by_label("Search the values of writer").fill("r 37")
    expect(writers.locator("button.chip")).to_have_count(1)
    writers.locator("button.chip").click()
    expect(page.locator(".hit")).to_have_count(1)
    expect(writers.locator("button.chip")).to_have_attribute("aria-pressed", "true")
    writers.get_by_label("Search the values of writer").fill("nobody")
    expect(writers).to_contain_text("No value contains this.")


def test_meaning_both_and_words_side_by_side(open_page, letters: Server) -> None:
    page = open_page("?view=compare&q=the+garden+in+winter&k=5", at=letters.address)
    expect(page.locator(".board section h3")).to_have_count(3)
    heads = [one.split()[0] for one in page.locator(".board section h3").all_inner_texts()]
    assert heads == ["Meaning", "Both", "Words"]
    expect(page.locator(".moves")).to_have_count(2)
    expect(page.locator("#mode")).to_be_hidden()
    shown = []
    for place, mode in enumerate(("dense", "hybrid", "lexical")):
        titles = page.locator(".board section").nth(place).locator("li a")
        shown.append([link.get_attribute("href").split("doc=")[1].split("&")[0] for link in titles.all()])
        answer = page.request.post(
            f"{letters.address}/v1/search", data={"query": "the garden in winter", "k": 5, "mode": mode}
        )
        assert shown[place] == [hit["id"] for hit in answer.json()["hits"]]
    first = page.locator(".board section").nth(1).locator("li .move").first
    expect(first).to_contain_text("by meaning")


def test_places_of_hits_are_moved_apart(open_page, letters: Server) -> None:
    page = open_page("", at=letters.address)
    places = page.evaluate(
        """async () => {
            const { apart } = await import('./mapmarks.js');
            const same = Array.from({ length: 20 }, () => [100, 100]);
            return apart([...same, [400, 400]]);
        }"""
    )
    *crowd, alone = places
    assert alone == [400, 400]
    gaps = [((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) ** 0.5 for i, a in enumerate(crowd) for b in crowd[:i]]
    assert min(gaps) > 20
    assert max(abs(x - 100) + abs(y - 100) for x, y in crowd) < 120
