"""report.html: every figure is the one given, whatever comes from data is text, and the file needs no other."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pages import Element, parse_page
from rankings_made_up import MADE_BY, Bench, make_bench, make_ranking, make_topics

from retriever.errors import Misuse
from retriever.evaluate.rankings import Comparison, Ranking, Topics
from retriever.evaluate.report.report import LARGEST, write_report
from retriever.evaluate.results import Configuration
from retriever.terminal import cut

SCRIPT = "<script>alert(1)</script>"
HOSTILE = f"\"'><img src=x onerror=alert(1)>{SCRIPT}{{{{ 7 * 7 }}}}"
RAW = Configuration("tiny-bert", "mean", "none", "documents")
FLOW = RAW._replace(transform="flow")
MAIN = "ndcg@10"


def write(bench: Bench, path: Path, *, title: str = "A benchmark", notes: tuple[str, ...] = ()) -> Element:
    written = write_report(path / "report.html", title, bench.topics, bench.rankings, bench.comparisons, notes)
    assert [file.name for file in path.iterdir()] == ["report.html"]
    return parse_page(written.read_text(encoding="utf-8"))


def section(page: Element, name: str) -> Element:
    return next(one for one in page.find("section") if one.attributes.get("aria-labelledby") == name)


def lines(table: Element) -> dict[tuple[str, str], list[Element]]:
    """The cells of each line by the name of its group and its own."""
    found, group = {}, ""
    for row in table.find("tr"):
        heads = row.find("th")
        if heads[0].attributes["scope"] == "rowgroup":
            group = heads[0].text
        elif row.find("td"):
            found[group, heads[0].text] = row.find("td")
    return found


@pytest.fixture(scope="module")
def bench() -> Bench:
    return make_bench({"cranfield": 30, "scifact": 40})


@pytest.fixture(scope="module")
def page(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Element:
    return write(bench, tmp_path_factory.mktemp("out"), title="Cranfield and SciFact", notes=("one note",))


def group_of(one: Comparison) -> tuple[str, str]:
    line = one.configuration
    if not line.pooling:
        return "without an encoder", line.encoder
    return f"{line.encoder} ({line.pooling})", "raw" if line.transform == "none" else line.transform


def test_the_summary_shows_the_comparisons(page: Element, bench: Bench) -> None:
    table = section(page, "summary").find("table")[0]
    heads = [head.text for head in table.find("thead")[0].find("th")]
    assert len(heads) == 4 and heads[0] == "system" and heads[3].startswith("average")
    assert heads[1].startswith("cranfield") and heads[2].startswith("scifact")
    assert "30 queries" in heads[1] and "200 documents" in heads[1] and "test" in heads[1]
    shown = lines(table)
    own = [one for one in bench.comparisons if one.metric == MAIN]
    assert len(shown) == len({one.configuration for one in own})
    for column, dataset in enumerate(("cranfield", "scifact")):
        here = [one for one in own if one.dataset == dataset]
        best = max(one.mean for one in here)
        for one in here:
            cell = shown[group_of(one)][column]
            triangles = "" if one.p is None else "▲▲" if one.p < 0.01 else "▲" if one.p < 0.05 else ""
            below = f"{100 * one.low:.1f} to {100 * one.high:.1f}"
            assert cell.text.replace(" ", "") == f"{100 * one.mean:.1f}{triangles}{below}".replace(" ", "")
            assert bool(cell.find("b")) == (f"{100 * one.mean:.1f}" == f"{100 * best:.1f}")
    for line, cells in shown.items():
        means = [one.mean for one in own if group_of(one) == line]
        assert cells[2].text == f"{100 * np.mean(means):.1f}"


def test_a_loss_points_down(tmp_path: Path, bench: Bench) -> None:
    ps = {"center": 0.03, "whiten": 0.2, "flow": 0.001}
    changed = [
        replace(one, gain=-0.05, gain_low=-0.09, gain_high=-0.01, p=ps[one.configuration.transform])
        for one in bench.comparisons
        if one.configuration.transform in ps and one.configuration.encoder == "tiny-bert" and one.metric == MAIN
    ]
    page = write(Bench(comparisons=changed), tmp_path)
    summary, gains = (lines(table) for table in section(page, "summary").find("table")[:2])
    assert [summary["tiny-bert (mean)", name][0].find("span")[0].text for name in ps] == ["▼", "", "▼▼"]
    cell = gains["tiny-bert (mean)", "flow"][0]
    assert [part.text for part in cell.find("small")] == ["−9.0 to −1.0", "p = 0.0010"]
    assert cell.text.startswith("−5.0")


def test_the_other_metrics_are_collapsed(page: Element, bench: Bench) -> None:
    details = section(page, "summary").find("details")
    assert len(details) == 1 and "open" not in details[0].attributes
    tables = {table.find("caption")[0].text.split()[0]: lines(table) for table in details[0].find("table")}
    assert list(tables) == ["Gain", "MRR@10", "MAP@100", "recall@10", "recall@100"]
    for one in bench.comparisons:
        if one.metric == "recall@100" and one.dataset == "scifact":
            assert tables["recall@100"][group_of(one)][1].text.startswith(f"{100 * one.mean:.1f}")


def test_metrics_that_nobody_compared_have_their_means(tmp_path: Path, bench: Bench) -> None:
    main_only = [one for one in bench.comparisons if one.metric == MAIN]
    page = write(replace(bench, comparisons=main_only), tmp_path)
    table = next(t for t in section(page, "summary").find("table") if t.find("caption")[0].text == "MRR@10 × 100")
    shown = lines(table)
    for one in bench.comparisons:
        if one.metric == "mrr@10" and one.dataset == "cranfield":
            assert shown[group_of(one)][0].text == f"{100 * one.mean:.1f}"


def test_the_headline(page: Element, bench: Bench) -> None:
    def mean(encoder: str, transform: str) -> float:
        own = [one for one in bench.comparisons if one.metric == MAIN]
        return float(np.mean([o.mean for o in own if o.configuration[::2] == (encoder, transform)]))

    lead = page.find("p", "lead")[0].text
    best = f"{100 * mean('mini-lm', 'hybrid'):.1f}"
    assert lead == f"On average over 2 data sets, hybrid with mini-lm (mean) is best: nDCG@10 {best}."
    told = [item.text for item in page.find("header")[0].find("ul", "plain")[0].find("li")]
    assert len(told) == 2
    raw, flow, auto = (mean("tiny-bert", name) for name in ("none", "flow", "auto"))
    assert told[0].startswith(f"tiny-bert (mean): raw vectors have nDCG@10 {100 * raw:.1f}, flow {100 * flow:.1f} (+")
    assert f"{100 * (flow - raw):+.1f}, better at p < 0.01 on 2 of 2 data sets)" in told[0]
    assert f"auto {100 * auto:.1f} ({100 * (auto - raw):+.1f}" in told[0]
    assert MADE_BY in page.find("p", "byline")[0].text
    assert re.match(r"\d{4}-\d\d-\d\d ", page.find("p", "byline")[0].text)


def test_every_query_has_its_place_in_the_scatter(page: Element, bench: Bench) -> None:
    plots = section(page, "scatter").find("figure")
    assert len(plots) == 4
    raw, flow = (
        next(r for r in bench.rankings if r.dataset == "cranfield" and r.configuration[::2] == ("tiny-bert", name))
        for name in ("none", "flow")
    )
    gains = {query: flow.scores[MAIN][query] - value for query, value in raw.scores[MAIN].items()}
    better, worse = sum(g > 1e-9 for g in gains.values()), sum(g < -1e-9 for g in gains.values())
    assert plots[0].find("figcaption")[0].text == (
        f"cranfield, tiny-bert (mean): of 30 queries {better} are better with flow (above the line), {worse} worse "
        f"(below it) and {30 - better - worse} the same (on it)."
    )
    places = {}
    for kind in ("gained", "lost", "same"):
        for group in plots[0].find("g", kind):
            for dot in group.find("circle"):
                for told in dot.find("title")[0].text.split(": ", 1)[1].split("; "):
                    places[told] = kind, float(dot.attributes["cx"]), float(dot.attributes["cy"])
    assert len(places) == 30
    for query, text in bench.topics[0].queries.items():
        kind, x, y = places[text]
        assert kind == ("gained" if gains[query] > 1e-9 else "lost" if gains[query] < -1e-9 else "same")
        assert (x - 42) / 280 == pytest.approx(raw.scores[MAIN][query], abs=0.006)
        assert 1 - (y - 12) / 280 == pytest.approx(flow.scores[MAIN][query], abs=0.006)


def test_what_moved_stands_side_by_side(tmp_path: Path) -> None:
    texts = {"a": ("Title of a", "text of a"), "b": ("", "text of b"), "c": ("Title of c", "")}
    topics = Topics(
        "pets",
        "test",
        {"1": "one?", "2": "two?", "3": "three?"},
        {"1": {"a": 2, "b": 0}, "2": {"a": 1}, "3": {"a": 1}},
        4,
        lambda ids: {id_: texts[id_] for id_ in ids if id_ in texts},
    )
    before = {"1": [("b", 3.0), ("c", 2.0), ("a", 1.0)], "2": [("a", 2.0), ("b", 1.0)], "3": [("a", 1.0)]}
    after = {"1": [("a", 3.0), ("c", 2.0), ("lost", 1.0)], "2": [], "3": [("a", 1.0)]}
    rankings = [
        Ranking("pets", "test", RAW, before, {MAIN: {"1": 0.5, "2": 1.0, "3": 1.0}}),
        Ranking("pets", "test", FLOW, after, {MAIN: {"1": 1.0, "2": 0.0, "3": 1.0}}),
    ]
    moved = section(write(Bench([topics], rankings), tmp_path), "moved")
    gained, lost = moved.find("details")
    assert gained.find("summary")[0].text == "+50.0 one? (50.0 → 100.0)"
    assert lost.find("summary")[0].text == "−100.0 two? (100.0 → 0.0)"
    left, right = gained.find("section")
    tags = [[span.text for span in hit.find("div", "tags")[0].find("span")] for hit in left.find("li")]
    assert tags == [
        ["✘ judged not relevant", "gone", "b"],
        ["not judged", "= 2", "c"],
        ["✔ relevant, grade 2", "▲ to 1", "a"],
    ]
    tags = [[span.text for span in hit.find("div", "tags")[0].find("span")] for hit in right.find("li")]
    assert tags == [
        ["✔ relevant, grade 2", "▲ from 3", "a"],
        ["not judged", "= 2", "c"],
        ["not judged", "new", "lost"],
    ]
    assert [title.text for title in right.find("b")] == ["Title of a", "Title of c"]
    assert "its text was not found" in right.find("li")[2].text
    assert "Nothing was found" in lost.find("section")[1].text


def test_the_queries_that_moved_most_come_first(page: Element, bench: Bench) -> None:
    raw, flow = (
        next(r for r in bench.rankings if r.dataset == "cranfield" and r.configuration[::2] == ("tiny-bert", name))
        for name in ("none", "flow")
    )
    gains = sorted((flow.scores[MAIN][query] - value for query, value in raw.scores[MAIN].items()), reverse=True)
    shown = [one.find("span", "change")[0].text for one in section(page, "moved").find("details")[:5]]
    assert shown == [f"{100 * gain:+.1f}" for gain in gains[:5]]


def test_the_page_needs_nothing_else(page: Element, tmp_path: Path, bench: Bench) -> None:
    text = write_report(tmp_path / "r.html", "t", bench.topics, bench.rankings, bench.comparisons, []).read_text()
    assert "default-src 'none'" in page.find("meta")[1].attributes["content"]
    assert not re.search(r"https?:|//\w|url\(|@import|javascript:", text)
    assert {one.tag for one in page}.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "base"})
    assert not [name for one in page for name in one.attributes if name.startswith("on") or name in ("src", "srcset")]
    ids = {one.attributes["id"] for one in page if "id" in one.attributes}
    links = [one.attributes["href"] for one in page if "href" in one.attributes]
    assert links and all(link.startswith("#") and link[1:] in ids for link in links)


def test_headings_captions_and_titles(page: Element) -> None:
    levels = [int(one.tag[1]) for one in page if re.fullmatch(r"h\d", one.tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    assert all(table.find("caption") for table in page.find("table"))
    assert all(svg.find("title") for svg in page.find("svg") if svg.attributes.get("role") == "img")


def hostile_bench() -> Bench:
    bench = make_bench({HOSTILE: 6}, encoders=(HOSTILE,), transforms=("none", HOSTILE))
    topics = bench.topics[0]
    bench.topics[0] = replace(
        topics,
        queries=dict.fromkeys(topics.queries, HOSTILE),
        text_of=lambda ids: dict.fromkeys(ids, (HOSTILE, HOSTILE)),
        notes=(HOSTILE,),
    )
    told = {"made_by": HOSTILE, "chosen": HOSTILE, "inputs": {HOSTILE: HOSTILE}, "encoder_weights": HOSTILE}
    bench.rankings = [replace(one, provenance=told) for one in bench.rankings]
    return bench


def test_data_is_only_ever_text(tmp_path: Path) -> None:
    page = write(hostile_bench(), tmp_path, title=HOSTILE, notes=(HOSTILE,))
    clean = write(make_bench({"x": 6}, encoders=("e",), transforms=("none", "f:a=1")), tmp_path)
    assert {one.tag for one in page} <= {one.tag for one in clean}
    assert {name for one in page for name in one.attributes} <= {name for one in clean for name in one.attributes}
    assert page.find("h1")[0].text == HOSTILE and page.find("title")[0].text == HOSTILE
    hit = section(page, "moved").find("li")[0]
    assert hit.find("b")[0].text == cut(HOSTILE, 80) and hit.find("p")[0].text == HOSTILE
    assert HOSTILE in section(page, "moved").find("bdi")[0].text


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60), title=st.text(max_size=60))
def test_any_text_can_be_shown(tmp_path: Path, text: str, title: str) -> None:
    bench = make_bench({"set": 3}, encoders=("e",), transforms=("none", "flow"), bm25=False)
    topics = bench.topics[0]
    bench.topics[0] = replace(
        topics, queries=dict.fromkeys(topics.queries, text), text_of=lambda ids: dict.fromkeys(ids, (title, text))
    )
    page = write(bench, tmp_path)
    visible = "".join(c for c in text if c.isalnum() and c.isprintable())
    assert visible in "".join(c for c in section(page, "moved").find("bdi")[0].text if c.isalnum())


def test_characters_that_turn_text_around_are_left_out(tmp_path: Path) -> None:
    turned = "safe\u202egnp.exe \x00 \ud800"
    bench = make_bench({turned: 4}, encoders=(turned,), transforms=("none", "flow"))
    topics = bench.topics[0]
    bench.topics[0] = replace(topics, queries=dict.fromkeys(topics.queries, turned))
    write(bench, tmp_path, title=turned, notes=(turned,))
    shown = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "safegnp.exe" in shown and not re.search("[\u202e\x00]", shown)


def test_right_to_left_and_chinese(tmp_path: Path) -> None:
    bench = make_bench({"مجموعة": 4, "数据集": 4}, encoders=("e",), transforms=("none", "flow"))
    arabic, chinese = "النص العربي الطويل", "超音速流" * 100
    for number, text in enumerate((arabic, chinese)):
        topics = bench.topics[number]
        bench.topics[number] = replace(topics, text_of=lambda ids, text=text: dict.fromkeys(ids, (text, text)))
    hits = section(write(bench, tmp_path), "moved").find("li")
    assert hits[0].find("b")[0].text == arabic
    assert hits[-1].find("p")[0].text == "超音速流" * 39 + "超音速…"
    assert all(hit.find(tag)[0].attributes["dir"] == "auto" for hit in hits for tag in ("b", "p"))


def test_without_raw_there_is_no_scatter_and_it_is_said(tmp_path: Path) -> None:
    page = write(make_bench({"set": 5}, encoders=("e",), transforms=("flow", "auto")), tmp_path)
    assert not section(page, "scatter").find("figure") and not section(page, "moved").find("details")
    assert "set, e (mean): the raw vectors (none) were not measured" in section(page, "scatter").text
    assert "No configuration was tested" in section(page, "summary").text
    page = write(make_bench({"set": 5}, encoders=("e",), transforms=("none",)), tmp_path)
    assert "only the raw vectors were measured" in section(page, "scatter").text


@pytest.mark.parametrize(
    ("transforms", "shown"),
    [
        (("none", "center", "auto", "flow"), "flow"),
        (("none", "flow:blocks=2", "auto"), "flow:blocks=2"),
        (("none", "center", "auto"), "auto"),
        (("none", "center", "whiten"), "center"),
    ],
)
def test_what_raw_is_held_against(tmp_path: Path, transforms: tuple[str, ...], shown: str) -> None:
    page = write(make_bench({"set": 5}, encoders=("e",), transforms=transforms), tmp_path)
    assert f"are better with {shown} (" in section(page, "scatter").text


def test_figures_without_rankings_and_other_metrics(tmp_path: Path) -> None:
    """As the benchmarks of questions and answers have them."""
    comparisons = [
        Comparison(dataset, "test", Configuration(*line), metric, mean, mean - 0.02, mean + 0.02)
        for dataset, metrics in (("wikiqa", ("map", "mrr")), ("qnli", ("auc",)))
        for metric in metrics
        for line, mean in {
            ("e", "mean", "none", "target"): 0.5,
            ("e", "mean", "flow", "target"): 0.625,
            ("lexical", "", "overlap", ""): 0.6,
        }.items()
    ]
    page = write(Bench(comparisons=comparisons), tmp_path)
    summary, *others = section(page, "summary").find("table")
    heads = [head.text for head in summary.find("thead")[0].find("th")]
    assert "MAP" in heads[1] and "AUC" in heads[2] and len(heads) == 3
    assert lines(summary)["without an encoder", "overlap"][1].text.startswith("60.0")
    assert [table.find("caption")[0].text.split()[0] for table in others] == ["MRR"]
    assert "On wikiqa, flow with e (mean) is best: MAP 62.5. On qnli" in page.find("p", "lead")[0].text
    assert "flow 62.5 (+12.5)" in page.find("header")[0].text
    assert "DeLong" in section(page, "made").text
    assert [one.attributes["href"] for one in page.find("a")] == ["#summary", "#made"]


def test_texts_of_the_fit_are_told_apart_where_they_differ(tmp_path: Path) -> None:
    lines_ = [Configuration("e", "mean", name, fit) for fit in ("nli", "target") for name in ("none", "flow")]
    comparisons = [Comparison("set", "test", line, "map", 0.5, 0.4, 0.6) for line in lines_]
    page = write(Bench(comparisons=comparisons), tmp_path)
    groups = [group for group, _ in lines(section(page, "summary").find("table")[0])]
    assert list(dict.fromkeys(groups)) == ["e (mean, fit on nli)", "e (mean, fit on target)"]


def test_splits_of_one_set_are_told_apart(tmp_path: Path) -> None:
    bench = make_bench({"set": 5}, encoders=("e",), transforms=("none", "flow"))
    for kind in ("topics", "rankings", "comparisons"):
        own = getattr(bench, kind)
        own += [replace(one, split="dev") for one in own]
    page = write(bench, tmp_path)
    heads = [head.text for head in section(page, "summary").find("thead")[0].find("th")]
    assert heads[1].startswith("set test") and heads[2].startswith("set dev")
    assert [one.find("b")[0].text for one in section(page, "scatter").find("figcaption")] == ["set test", "set dev"]


def test_origins(page: Element, bench: Bench, tmp_path: Path) -> None:
    rows = section(page, "made").find("table", "made")[0].find("tbody")[0].find("tr")
    assert len(rows) == len(bench.rankings)
    assert "one note" in section(page, "made").text and "cranfield: 2 queries without" in section(page, "made").text
    code = rows[1].find("code")
    weights = str(bench.rankings[1].provenance["encoder_weights"])
    assert code[0].text == weights[:12] + "…" and code[0].attributes["title"] == weights
    bare = replace(bench, rankings=[replace(one, provenance={}) for one in bench.rankings])
    rows = section(write(bare, tmp_path), "made").find("table", "made")[0].find("tbody")[0].find("tr")
    assert [cell.text for cell in rows[0].find("td")[1:]] == ["–"] * 6


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no figures"):
        write_report(tmp_path / "r.html", "t", [], [], [], [])
    assert not list(tmp_path.iterdir())


def test_an_older_report_stays_where_a_new_one_fails(tmp_path: Path) -> None:
    def fail(ids: object) -> dict[str, tuple[str, str]]:
        raise OSError("the corpus is gone")

    bench = make_bench({"set": 5}, encoders=("e",), transforms=("none", "flow"))
    write(bench, tmp_path)
    before = (tmp_path / "report.html").read_bytes()
    bench.topics[0] = replace(bench.topics[0], text_of=fail)
    with pytest.raises(OSError, match="gone"):
        write_report(tmp_path / "report.html", "t", bench.topics, bench.rankings, bench.comparisons, [])
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_bytes() == before


@pytest.mark.slow
def test_a_large_benchmark_can_still_be_mailed(tmp_path: Path) -> None:
    """Ten sets of 3,000 queries and four encoders, all in Chinese."""
    rng = np.random.default_rng(0)
    bench, text = Bench(), "超音速流れにおける境界層の熱伝達" * 20
    queries = [f"{n}" for n in range(3000)]
    hits = {query: [(f"d{d}", 1.0) for d in rng.choice(1000, 10, replace=False)] for query in queries}
    for number in range(10):
        name = f"集合{number}"
        told = {query: f"{query} {text}" for query in queries}
        topics = Topics(name, "test", told, {}, 1000, lambda ids: dict.fromkeys(ids, (text, text)))
        bench.topics.append(topics)
        for encoder in range(4):
            for transform in ("none", "flow"):
                line = Configuration(f"encoder-{encoder}", "mean", transform, "documents")
                scores = {MAIN: dict(zip(queries, rng.random(3000).tolist(), strict=True))}
                bench.rankings.append(Ranking(name, "test", line, hits, scores))
    page = write(bench, tmp_path)
    assert (tmp_path / "report.html").stat().st_size <= LARGEST
    plots = section(page, "scatter").find("figure")
    assert len(plots) == 40 and all("of 3,000 queries" in plot.text for plot in plots)
    assert len(section(page, "moved").find("h3")) == 40


def test_three_thousand_queries_keep_their_texts(tmp_path: Path) -> None:
    topics = make_topics("set", queries=3000)
    rankings = [make_ranking(topics, line, skill) for line, skill in ((RAW, 0.5), (FLOW, 1.5))]
    page = write(Bench([topics], rankings), tmp_path)
    dots = section(page, "scatter").find("circle")
    assert all("what is known of" in dot.find("title")[0].text for dot in dots)
    assert (tmp_path / "report.html").stat().st_size <= LARGEST


def test_it_leads_with_tested_contests(page: Element, bench: Bench) -> None:
    """Each gain, interval and p is checked against the rankings, with scipy's permutation test."""
    from scipy.stats import permutation_test

    scores = {(one.dataset, *group_of_ranking(one)): one.scores[MAIN] for one in bench.rankings}
    figure = page.find("figure", "contests")[0]
    rows = [one for one in figure.find("div") if one.find("dt")]
    expected = [("flow", "raw"), ("hybrid", "bm25")]
    assert len(rows) == len({one.dataset for one in bench.rankings}) * 2 * len(expected)
    for row in rows:
        named, (told,) = row.find("dt")[0].text, [one.text for one in row.find("span")]
        system, rival = next(pair for pair in expected if named.startswith(f"{pair[0]} against {pair[1]} "))
        dataset, series, _ = named.removeprefix(f"{system} against {rival} ").split(", ")
        own = scores[dataset, series, system]
        other = scores[dataset, "without an encoder" if rival == "bm25" else series, rival]
        gains = np.array([own[query] - other[query] for query in own])
        assert told.startswith(f"{100 * gains.mean():+.1f}".replace("-", "−"))
        p = permutation_test(
            (gains,), np.mean, permutation_type="samples", n_resamples=9999, rng=np.random.default_rng(0)
        ).pvalue
        if rival == "bm25" and not 0.03 < p < 0.07:
            outcome = "within chance" if p >= 0.05 else "better" if gains.mean() > 0 else "worse"
            assert outcome in told
    verdict = page.find("p", "verdict")[0].text
    assert verdict.startswith("Flow is better than the raw vectors on ") and "hybrid is better than BM25 on" in verdict


def group_of_ranking(one: Ranking) -> tuple[str, str]:
    line = one.configuration
    if not line.pooling:
        return "without an encoder", line.encoder
    return f"{line.encoder} ({line.pooling})", "raw" if line.transform == "none" else line.transform


def test_a_difference_within_chance_is_called_so(tmp_path: Path) -> None:
    topics = make_topics("cranfield", queries=20)
    rankings = [
        make_ranking(topics, RAW._replace(transform="hybrid"), 1.0, seed=1),
        make_ranking(topics, Configuration("bm25", "", "", "documents"), 1.0, seed=2),
    ]
    page = write(Bench([topics], rankings, []), tmp_path)
    assert page.find("p", "verdict")[0].text.startswith("The difference between hybrid and BM25 is within chance (")
    (row,) = [one for one in page.find("figure", "contests")[0].find("div") if one.find("dt")]
    assert row.attributes["class"] == "within-chance" and "within chance" in row.text
    alone = write(Bench([topics], rankings[:1], []), tmp_path)
    assert not alone.find("p", "verdict") and not alone.find("figure", "contests")
