import base64
import gzip
import hashlib
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from markupsafe import Markup
from page_world import (
    ADDRESS,
    CHART,
    FINDING,
    HEADLINE,
    HOSTILE,
    PRODUCTS,
    compared,
    product,
    record,
    row,
    whole_pages,
    write_results,
)

from dpatlas.base.files import read_rows
from dpatlas.errors import InputError
from dpatlas_workflow.config.products import all_products
from dpatlas_workflow.evidence.claims import COLUMNS, COMPARISON_COLUMNS, write_claims
from dpatlas_workflow.evidence.looks import LOOKS, MOST_EQUAL
from dpatlas_workflow.evidence.verdicts import (
    INCONCLUSIVE,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
)
from dpatlas_workflow.registry import all_papers
from dpatlas_workflow.report.page import _environment, build_pages, main, write_pages
from dpatlas_workflow.report.page_claims import ROOM, RUNS_WIDTH, cards
from dpatlas_workflow.report.page_findings import findings
from dpatlas_workflow.report.page_items import Item
from dpatlas_workflow.report.page_source import Source

PROJECT = Path(__file__).resolve().parents[2]


class Reader(HTMLParser):
    """Elements, ids and addresses of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.addresses, self.handlers = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src", "xlink:href"):
                self.addresses.append(value)
            if name.startswith("on"):
                self.handlers.append(value)


@pytest.fixture
def results(tmp_path):
    return write_results(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results that no test changes."""
    return write_results(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def pages(made):
    return whole_pages(made)


@pytest.fixture(scope="module")
def page(pages):
    """That of the only paper."""
    return pages["kl_privacy"]


def paper_of(results, *comparisons):
    """The page of the only paper, with these comparisons in the place of the usual ones."""
    write_claims(results / "comparisons.csv", comparisons, COMPARISON_COLUMNS)
    return whole_pages(results)["kl_privacy"]


def plain(html):
    """The text of some HTML, with single spaces."""
    return " ".join(re.sub(r"<[^>]*>", "", html).split())


def first_screen(page):
    return page[page.index('<section id="held"') : page.index('<section id="claims"')]


def article(page, name):
    """What the page has of a figure or table."""
    return page.partition(f'<article class="item" id="{name}"')[2].partition("</article>")[0]


CARD = r'<details class="card" id="([^"]+)"'


def card_of(page, claim):
    """What the card of a claim has."""
    after = page.partition(f'<details class="card" id="{claim}"')[2]
    return after.partition('<details class="card"')[0].partition('id="errata"')[0]


def test_the_pages_show_every_claim_figure_and_table(pages, page):
    ids = Reader(pages["index"]).ids
    claims = [f"claim-{name}" for name in ("kl-1", "kl-1a", "kl-1b", "kl-2")]
    assert claims == [name for name in ids if name.startswith("claim-")]
    assert {"kl-1", "kl-2", "first", "second", "third"} <= set(Reader(page).ids)
    assert page.count('<script type="application/gzip">') == 2
    assert "Caption of <em>second</em>" in page
    assert "[−∞, 2]" in pages["index"]


def test_the_pages_lead_to_each_other_to_results_and_to_the_paper_alone(made, pages):
    write_pages(made / "report", pages)
    ids = {name: set(Reader(text).ids) for name, text in pages.items()}
    inside = "|".join(f"{name}.html" for name in pages)
    for name, text in pages.items():
        assert re.findall(r"https?:[^\"]*", text.replace("http://www.w3.org/2000/svg", "")) in (
            [[ADDRESS]] if ADDRESS in text else [[]]
        )
        for address in Reader(text).addresses:
            assert re.match(rf"#|\.\./|({inside})(#|$)|data:image/|{ADDRESS}$", address), address
            path, _, place = address.partition("#")
            if not path.startswith(("https:", "data:")):
                assert not path or (made / "report" / path).resolve().exists(), address
                assert not place or place in ids[Path(path).stem or name], address


def test_hostile_text_and_drawings_run_nothing(pages):
    for name, charts in {"index": 0, "kl_privacy": 2, "runs": 0}.items():
        page, reader = pages[name], Reader(pages[name])
        assert reader.tags.count("script") == 1 + charts
        assert not reader.handlers and "img" not in reader.tags
        assert HOSTILE not in page
        # The policy lets exactly the page's own script run.
        script = re.search(r"<script>(.*)</script>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}'" in page and "default-src 'none'" in page


def test_the_index_opens_with_numbers_of_verdicts_and_their_bars(pages, results):
    finding = re.search(r'<div class="finding">.*?</div>', pages["index"], re.DOTALL)[0]
    assert 'href="kl_privacy.html#kl-1a"' in finding
    assert "1.5 is the slope" in plain(finding) and "4.5" in plain(finding)
    # Of 1, e^1.5 = 4.48 and 1.5 the second is the longest.
    assert [float(width) for width in re.findall(r"--w:([^\"]+)", finding)] == [22.2, 100, 33.3]
    write_claims(results / "claims.csv", [row("kl-1a", verdict=NOT_RUN), row("kl-1")])
    assert 'class="finding"' not in whole_pages(results)["index"]
    unnamed = FINDING.model_copy(update={"number": "{nobody}"})
    headlines = {"kl_privacy": replace(HEADLINE, findings=[unnamed])}
    with pytest.raises(InputError, match="findings of kl_privacy"):
        findings(headlines, "t", {"t": ([row("kl-1a")], [])})


def test_a_card_to_share_names_what_a_reader_sees_where_the_site_has_an_address(results, page):
    (results / "figures/first.png").write_bytes(b"")
    site = build_pages(Source(results, "results/t/"), "t", site="https://example.org/atlas/")
    image = "https://example.org/atlas/results/t/figures/first.png"
    for name in ("kl_privacy", "index"):
        assert f'<meta property="og:image" content="{image}">' in site[name]
    address = "https://example.org/atlas/kl_privacy.html"
    assert f'<meta property="og:url" content="{address}">' in site["kl_privacy"]
    assert all('<meta name="description" content="' in text for text in site.values())
    assert "og:" not in page


def test_the_charts_of_a_page_are_what_the_figures_have(page):
    charts = re.findall(r'<script type="application/gzip">(.*?)</script>', page, re.DOTALL)
    told = {name: part for name, part in CHART.items() if name != "notes"}
    unpacked = [gzip.decompress(base64.b64decode(chart)) for chart in charts]
    assert [json.loads(chart) for chart in unpacked] == [told, told]
    assert "ten runs &lt;script&gt;" in page
    # Formulas in the notes are drawn.
    assert re.search("<mi>(&#x003B7;|η)</mi></mrow></math> = <math", page)
    assert "$" not in page[page.index("ten runs") :].partition("</p>")[0]


def test_ids_of_a_table_named_as_its_block_do_not_clash(results, page):
    for kind in ("csv", "md"):
        shutil.copy(results / "tables" / f"third.{kind}", results / f"tables/kl_privacy.{kind}")
    product(results, "kl_privacy", "table", "run-b")
    for text in (page, build_pages(Source(results), "t")["kl_privacy"]):
        ids = Reader(text).ids
        assert len(ids) == len(set(ids))


def test_diverged_runs_are_counted_by_condition_and_not_by_block():
    steps = {"a-run0-01234567": [None, 7], "a-run2-01234567": [3, 4], "b-01234567": [None]}
    records = []
    for name, diverged in steps.items():
        spec = {"first_run": int(name[5]), "runs": 2} if "run" in name else {"runs": 1}
        record_ = {"id": name, "spec_digest": "01234567", "diverged": diverged, "spec": spec}
        records.append(record_)
    item = Item("first", "figure", "kl_privacy", "", Markup(), Markup(), [], [], {}, records)
    (sentence,) = item.diverged
    assert re.fullmatch(r"a-\w{8}: 3 of 4 runs diverged", sentence)


def test_pages_say_what_the_tier_means_and_what_is_guaranteed(pages):
    assert "settings of the user" in pages["index"]
    assert "nothing at all" in pages["runs"] and "an average" in pages["runs"]
    runs = pages["runs"][pages["runs"].index('id="runs"') :]
    assert "kl_privacy training: 2 jobs" in plain(runs)
    assert "<dd>base 3</dd>" in runs and "<dd>python 3.11</dd>" in runs


def test_ledgers_are_read_out_and_their_long_words_said_once(results):
    long = "for what it is worth, " * 6
    shared = {"guaranteed": long, "mechanism": long}
    record(results, "run-a", {"ledger": shared | {"sampler": [{"name": "poisson"}]}})
    ledger = shared | {
        "claimed": {"epsilon": 2.0, "by": "a paper"},
        "sampler": [{"name": "poisson", "n": 9}, {"name": "full-batch", "n": 9}],
        "chosen_on_private_data": [{"what": "the step", "cost": "not counted"}],
    }
    record(results, "run-b", {"data": None, "ledger": ledger})
    page = build_pages(Source(results), "t")["runs"]
    assert "1 condition uses no data set" in page and "by a paper, epsilon 2" in page
    assert "n 9, name poisson; n 9, name full-batch" in page
    assert "cost not counted, what the step" in page
    # What is guaranteed is said always, the mechanism once.
    (number,) = re.findall(r'<a href="#statement-(\d+)">as statement \1</a>', page)
    first = page[page.index(f'<details id="statement-{number}">') :]
    assert first[: first.index("</details>")].count(long.strip()) == 2
    assert page.count(long.strip()) == 3


def test_figures_carry_their_verdicts_their_lineage_and_what_the_paper_shows(page):
    first = article(page, "first")
    assert re.findall(r'href="#(kl-[^"]+)"', first) == ["kl-1a", "kl-1b", "kl-1"]
    assert "run-a: 1 of 3 runs diverged" in first
    assert "0123456789abcdef" in first
    assert "snakemake --cores 2 first" in first
    assert "In the paper.</strong> The paper, " in first


def test_a_table_is_shown_as_people_read_it_with_formulas_drawn_by_the_browser(page):
    third = article(page, "third")
    assert all(shown in third for shown in ("<mfrac>", "1.23 ± 0.01", ", |x|, <math"))
    assert "tier t" not in third.lower()
    assert "$`" not in page


def test_errata_stand_beside_the_claims_and_figures_that_they_concern(page):
    errata = page[page.index('id="errata"') :]
    closed = re.search("<summary>.*?</summary>", errata, re.DOTALL)[0]
    assert plain(closed) == "once Eq. 6, proved wrong"
    assert "tests/bounds/test_a.py::test_b" in errata
    assert '<a href="#first">first</a>' in errata
    assert '<dt>claims</dt><dd><a href="#kl-1">kl-1</a></dd>' in errata
    card = card_of(page, "kl-1").replace("\n", " ")
    assert '<p>Our corrections: <a href="#erratum-kl-x">Eq. 6</a>.</p>' in card


def test_links_and_commands_name_only_figures_and_tables_on_the_page(results):
    page = whole_pages(results, ["second"])["kl_privacy"]
    inside = [address[1:] for address in Reader(page).addresses if address.startswith("#")]
    assert set(inside) <= set(Reader(page).ids)
    other, there = card_of(page, "kl-1"), card_of(page, "kl-2")
    assert "explain kl-1</code>." in other and "snakemake" not in other
    assert "Seen in" in there and "snakemake --cores 2 second</code>" in there


def test_a_claim_says_how_it_is_tested_and_its_parts_what_is_different(page):
    first, second, whole = re.split('id="kl-1b"|<details><summary>What the', card_of(page, "kl-1"))
    assert "The paper states it" in whole and "Two runs with seed 0." in whole
    assert "<li>Fewer records.</li>" in whole
    assert "The paper states it" not in first + second and "Fewer records" not in first + second
    assert "The part states this." in second
    assert "<dt>differences from the paper</dt><dd>nothing</dd>" in second
    assert "Margin 0.25: Half of what Table 1 prints." in first
    assert "5 runs, judged after 12." in plain(first)


def test_a_row_says_why_and_what_would_decide_it(pages):
    rows = pages["index"].split("<tr ")
    first, open_one = (
        next(row for row in rows if row.startswith(f'id="claim-{name}"'))
        for name in ("kl-1a", "kl-2")
    )
    assert "<small>positive, at most the margin</small>" in first
    assert "<small>margin 0.25</small>" in first
    assert '<span class="number">48 runs</span> <small>2.0 h of CPU</small>' in open_one
    assert "runs</span>" not in first


def test_claims_are_counted_and_stand_in_order_the_main_ones_first_and_ours_apart(results, pages):
    assert "Claimed, held: it grows" in plain(first_screen(pages["index"]))
    verdicts = {"kl-0": REPRODUCED, "kl-10": INCONCLUSIVE, "kl-3": NOT_REPRODUCED}
    # A claim whose number begins as another's is not its part.
    names = ("kl-0", "kl-3", "kl-1a", "kl-1", "kl-10", "kl-11b", "kl-11")
    rows = [row(name, verdict=verdicts.get(name, REPRODUCED)) for name in names]
    rows[0]["place"], rows[1]["place"] = "ours", "ours (Sec. 4)"
    rows[3]["verdict"] = NOT_REPRODUCED
    write_claims(results / "claims.csv", rows)
    pages = whole_pages(results)
    index, screen = pages["index"], first_screen(pages["index"])
    assert plain(re.search(r'<p class="lede">(.*?)</p>', index, re.DOTALL)[1]) == (
        "At the tier t, of the papers' 3 claims, 1 held, 1 did not and 1 stays open. "
        "2 more claims are our own."
    )
    assert "1 of 3 claims held" in plain(screen)
    assert "Claimed, did not hold: it grows" in plain(screen)
    cell = r'class="cell" href="kl_privacy.html#([^"]+)"'
    found = [re.findall(cell, part) for part in screen.split('<div class="group ours">')]
    assert found == [["kl-1", "kl-10", "kl-11"], ["kl-0", "kl-3"]]
    order = re.findall(r'<tr id="claim-([^"]+)"', index)
    assert order == ["kl-0", "kl-3", "kl-1", "kl-1a", "kl-10", "kl-11", "kl-11b"]
    assert re.findall(CARD, pages["kl_privacy"]) == ["kl-1", "kl-10", "kl-11", "kl-0", "kl-3"]


def test_a_card_gives_the_answer_first_and_every_comparison_with_its_limit(page):
    card = card_of(page, "kl-1")
    assert card.index("It held. Of 2 parts: 2 held.") < card.index('class="forest ')
    assert "1.5 [1, 2]" in card and "decides" in card
    # From the limit at 0 to the right end, of which the margin is too near to matter.
    assert '<div class="forest margins"' in card and '<span class="axis">' in card
    zone, small = (re.search(f"--{letter}:([^%]+)%;--{letter}w:([^%]+)%", card) for letter in "zs")
    assert float(zone[1]) + float(zone[2]) == pytest.approx(100, abs=0.02)
    assert float(small[1]) == float(zone[1]) and 0 < float(small[2]) < float(zone[2])


def test_of_the_comparison_that_decides_every_run_is_told_and_drawn_where_it_lies(results):
    other = compared("kl-1a", comparison="KL of ntk less he in quick-0123abcd", values="9 9 9")
    page = paper_of(results, compared("kl-1a", decides=1, values="3 -0.5 1.5 2"), other)
    card = card_of(page, "kl-1")
    assert "The 4 runs behind 1.5, their mean" in card and "3, −0.5, 1.5, 2" in card
    assert '<a href="../comparisons.csv">' in card
    assert 'title="KL of ntk less he in quick-0123abcd">KL of ntk \u2212 he in quick<' in card
    (path,) = re.findall(r'<svg class="runs" [^>]*><path d="M0 1([^"]*)"/></svg>', card)
    steps = re.findall(r"m(\d+)-1v1", path)
    assert path == "".join(f"m{step}-1v1" for step in steps)
    places = np.cumsum([int(step) for step in steps]) * 100 / RUNS_WIDTH
    # The lowest and the highest run are the ends of the axis, but for its room.
    room, width = 100 * ROOM / (1 + 2 * ROOM), 100 / (1 + 2 * ROOM)
    expected = [room + width * (run + 0.5) / 3.5 for run in (-0.5, 1.5, 2, 3)]
    assert places == pytest.approx(expected, abs=100 / RUNS_WIDTH)
    # Runs of two groups that are not paired have no place on an axis of differences.
    page = paper_of(results, compared("kl-1a", decides=1, values="3 2 | 1 0.5"), other)
    assert "<svg" not in card_of(page, "kl-1")


def test_an_open_claim_is_not_given_an_interval_that_it_lacks():
    whole = {"claim": "kl-2", "statement": "KL is smaller", "kind": "statistical"}
    whole |= {"verdict": INCONCLUSIVE, "note": "5 of 6 runs diverged", "place": "Fig. 1"}
    (card,) = cards([whole], [], None, {})
    assert card.answer.startswith("It is open") and "interval" not in card.answer


def test_the_top_says_what_is_open_and_what_the_published_run_found(results, tmp_path, pages):
    held, waits = ({"kind": "statistical", "verdict": v} for v in (REPRODUCED, INCONCLUSIVE))
    parts = [row("kl-1a", **waits, look=6), row("kl-1b", **held, look=6), row("kl-1", **waits)]
    write_claims(results / "claims.csv", [*parts, row("kl-2", **held, look=6)])
    rows = [row(name, **held, look=96) for name in ("kl-1a", "kl-1b", "kl-1", "kl-2")]
    (tmp_path / "published").mkdir()
    write_claims(tmp_path / "published/claims.csv", rows)
    page = build_pages(Source(results), "t", published=Source(tmp_path / "published"))["index"]
    state = r'<p class="state">(.*?)</p>'
    (line,) = re.findall(state, page)
    assert plain(line) == (
        "1 of 3 questions that need runs is open at looks of up to 6 runs. "
        "python -m dpatlas decide --hours 1 adds runs where an hour decides most. "
        "The published run of this tier, up to 96 runs, gives for the same claims: 2 held."
    )
    # No question that needs runs is open there.
    assert not re.findall(state, pages["index"])


def test_another_tier_is_shown_where_it_judged_the_same_claims(results, tmp_path):
    rows = [row(f"kl-{number}", expected="e") for number in (1, 2, 3, 4)]
    write_claims(results / "claims.csv", rows)
    other = [{**each, "verdict": INCONCLUSIVE} for each in rows]
    changed = [{**each, "statement": "another"} for each in other[:1]] + other[1:]
    few = [{**each, "expected": "another"} for each in other[:3]] + other[3:]
    kinds = [{**each, "kind": "identity"} for each in other]
    for name, there in (("large", changed), ("few", few), ("kinds", kinds), ("old", other)):
        (tmp_path / name).mkdir()
        columns = [each for each in COLUMNS if (name, each) != ("old", "margin")]
        write_claims(tmp_path / name / "claims.csv", there, columns)
    write_claims(tmp_path / "large" / "comparisons.csv", [compared("kl-2")], COMPARISON_COLUMNS)
    large = Source(tmp_path / "large", "../../large/")
    pages = build_pages(Source(results), "t", beside={"large": large})
    screen, page = pages["index"], pages["kl_privacy"]
    assert "large: open" in screen and page.count("(large)") == 3
    assert "its 2 marks are the tiers t, large." in plain(first_screen(screen))
    assert "Tier large: settings of the user" in plain(first_screen(screen))
    assert card_of(page, "kl-2").count('class="forest') == 1
    assert 'aria-label="kl-2, large: what was compared"' in page
    # One of the few is the same.
    same = {"few": 1, "kinds": 0, "old": 0}
    beside = {name: Source(tmp_path / name) for name in same}
    pages = build_pages(Source(results), "t", beside=beside)
    assert not any(f"{name}: open" in pages["index"] for name in same)
    assert {name: pages["kl_privacy"].count(f"({name})") for name in same} == same


def test_a_damaged_comparison_is_bad_input(results):
    path = results / "comparisons.csv"
    path.write_text(path.read_text().replace("1.5", "many"))
    with pytest.raises(InputError, match=r"comparisons\.csv, kl-1a"):
        whole_pages(results)


@pytest.mark.parametrize(
    "missing", ["runs/kl_privacy/run-b/record.json", "tables/third.md", "figures/first.csv"]
)
def test_a_missing_piece_is_bad_input_and_writes_no_page(results, missing, refusal_of):
    (results / missing).unlink()
    output = results / "report" / "index.html"
    words = ["--tier", "t", "--results", results, "--output", output]
    assert Path(missing).stem in refusal_of(main, *words)
    assert not output.exists()


def test_a_caption_cannot_pull_in_files_or_raw_html(results):
    first = PRODUCTS["first"].model_copy(update={"caption": ".. include:: /etc/hostname\n"})
    with pytest.raises(InputError, match="caption of first"):
        build_pages(Source(results), "t", {"first": first})


def test_every_figure_and_table_has_a_caption_and_words_for_what_the_paper_shows():
    for name, (shown, _) in all_products().items():
        assert len(shown.caption) > 40 and len(shown.paper_shows) > 10, name


def test_what_is_said_of_verdicts_on_every_page_is_what_the_code_does():
    about = " ".join((PROJECT / "workflow/report/claims.rst").read_text().split())
    assert f"fewer than {LOOKS[0]} runs" in about and MOST_EQUAL == 0.5
    assert "more than half of the runs are equal" in about


def test_the_published_pages_are_of_the_published_tiers_and_small_enough_to_be_sent():
    folder = PROJECT / "docs"
    text = (folder / "index.html").read_text()
    shown = re.findall(r'<tr id="claim-([^"]+)" data-verdict="([^"]+)"', text)
    rows = read_rows(folder / "results/embedded/claims.csv")
    assert dict(shown) == {row["claim"]: row["verdict"] for row in rows}
    paths = [*folder.glob("*.html")]
    assert {"index", "runs", *all_papers()} <= {path.stem for path in paths}
    for path in paths:
        assert path.stat().st_size < 600_000, path
        links = {each.partition("#")[0] for each in Reader(path.read_text()).addresses}
        inside = [link for link in links if not link.startswith(("https:", "data:"))]
        assert all((folder / link).exists() for link in inside), path


@pytest.mark.parametrize(
    ("published", "shown"),
    [
        ("KL of ntk less he in quick-0123abcd", "KL of ntk \u2212 he in quick"),
        ("largest kappa less 1 < 1: less than 2", "largest kappa \u2212 1 < 1: less than 2"),
        # A minus sign would stand for (share - 1) - 2^-h.
        ("share less 1 - 2^-h", "share less 1 - 2^-h"),
    ],
)
def test_a_difference_has_a_minus_sign_where_it_needs_no_brackets(published, shown):
    assert _environment().filters["compared"](published) == shown
