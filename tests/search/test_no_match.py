"""What is said if no document meets the filters: the values that exist, and the nearest one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from retriever import Retriever
from retriever.errors import BadFilter

RECORDS = [
    {
        "id": "1",
        "text": "The portal shows bills.",
        "product": "Portal",
        "year": 2020,
        "date": "2020-01-31",
        "of": "7",
        "price": "3",
        "at": {"city": "Oslo"},
        "nothing": None,
    },
    {
        "id": "2",
        "text": "Billing is monthly.",
        "product": "Billing",
        "year": 2021,
        "date": "2021-02-28",
        "of": "8",
        "price": "1,5",
    },
    {"id": "3", "text": "Hardware breaks.", "product": "Hardware", "year": 2022, "date": "2022-03-01", "done": True},
]


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory, tiny_bert: str) -> Iterator[Retriever]:
    folder: Path = tmp_path_factory.mktemp("products")
    with Retriever.build(RECORDS, folder, encoder=tiny_bert, transform="none") as built:
        yield built


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("product = portal", "Did you mean Portal? The values are Portal, Billing, Hardware."),
        ("product = Hardwares", "Did you mean Hardware? The values are"),
        ("product in (x, BILLING)", "No document has product in (x, BILLING). Did you mean Billing?"),
        ("product = zzz", "No document has product = zzz. The values are Portal, Billing, Hardware."),
        ("product = null", "All documents have a value of product."),
        ("done != true", "Every document that has done has this value."),
        ("year > 2030", "No document has year > 2030. Its values are from 2020 to 2022."),
        ("year < spring", "The values of year are numbers, from 2020 to 2022."),
        ("of > 9", "Its values are from 7 to 8."),
        ("date >= 2025", "The values of date are texts, e.g. 2020-01-31. Write the value in quotes."),
        ("date >= 31.1.2020", "Dates of date are written like 2020-01-31."),
        ("date = 2021", "It has dates of that year. Write two filters: date >= 2021, and date <= 2021."),
        ("done > 1", "The values of done are true or false, which have no order."),
        ("done = yes", "The values are true."),
        ("at > 1", "at has no value in any document. It holds other fields: at.city."),
        ("at = 1", "It holds other fields: at.city."),
        ("nothing > 1", "nothing has no value in any document."),
        ("year = '2021'", "No document has year = '2021'. Did you mean 2021?"),
        ("price < 2", "Its values are from 3 to 3. Some values are not numbers, e.g. 1,5."),
        ("date >= '2025'", "Its values are from 2020-01-31 to 2022-03-01."),
    ],
)
@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
def test_a_filter_that_no_document_meets(products: Retriever, where: str, said: str, mode: str) -> None:
    (answer,) = products.answer_many(["bills"], mode=mode, where=[where])  # type: ignore[arg-type]
    assert answer.hits == [] and said in answer.note


def test_filters_that_exclude_each_other(products: Retriever) -> None:
    (answer,) = products.answer_many(["bills"], where=["product = Portal", "year >= 2021"])
    alone = "product = Portal by 1 document; year >= 2021 by 2 documents."
    assert answer.note == f"No document meets all filters together. Each filter alone is met: {alone}"


@pytest.mark.parametrize("where", ["date >= 01.02.2020", "date < 5 March 2021", "date <= 2021/03/01"])
def test_a_date_of_another_form_is_refused_if_it_would_find_something(products: Retriever, where: str) -> None:
    """Texts are compared by code point: 01.02.2020 comes before every date that begins with a 2."""
    with pytest.raises(BadFilter, match=r"dates of date are written like 20\d\d-\d\d-\d\d"):
        products.search("bills", where=[where])
    assert len(products.search("bills", where=["date >= '2021-03'"])) == 1


def test_nothing_is_said_if_a_document_meets_the_filter(products: Retriever) -> None:
    (answer,) = products.answer_many(["bills"], where=["product = Portal"])
    assert [hit.id for hit in answer.hits] == ["1"] and answer.note == ""
