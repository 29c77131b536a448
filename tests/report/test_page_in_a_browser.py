"""The page in a real browser: Debian's Chromium, where it is installed."""

import base64
import json
import math
import os
import re
from pathlib import Path

import chromium
import pytest
from page_world import row, whole_pages, write_results

from dpatlas_workflow.evidence.claims import write_claims
from dpatlas_workflow.registry import all_papers
from dpatlas_workflow.report.page import write_pages

pytestmark = pytest.mark.skipif(chromium.find() is None, reason="no Chromium on this machine")
PROJECT = Path(__file__).resolve().parents[2]
SHOWN = (
    "document.getElementById('all-rows').open = true, "
    "[...document.querySelectorAll('table.claims tbody tr')]"
    ".filter(row => row.offsetParent !== null).map(row => row.id)"
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    results = write_results(folder)
    rows = [
        row("kl-1a", paper="kl_privacy", kind="qualitative"),
        row("kl-1b", paper="kl_privacy", kind="statistical", statement="it RISES with depth"),
        row("kl-1", paper="kl_privacy", kind="statistical", verdict="inconclusive"),
        row("sgld-1", paper="dp_sgld", kind="exact", verdict="not reproduced"),
    ]
    write_claims(results / "claims.csv", rows)
    write_pages(results / "report", whole_pages(results))
    return results / "report"


@pytest.fixture(scope="module")
def page(pages):
    return pages / "kl_privacy.html"


@pytest.fixture(scope="module")
def index(pages):
    return pages / "index.html"


@pytest.fixture(params=["index", "kl_privacy", "runs"])
def every(pages, request):
    return pages / f"{request.param}.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium.Chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


def choose(browser, name, value):
    browser.evaluate(
        f"(() => {{ const box = document.getElementById('filter-{name}'); box.value = {value!r};"
        " box.dispatchEvent(new Event(box.tagName === 'INPUT' ? 'input' : 'change')); })()"
    )


def test_it_loads_from_a_file_without_a_word_and_without_a_request(browser, every):
    browser.open(every)
    assert browser.complaints == []
    assert [each for each in browser.requests if not each.startswith("data:")] == [every.as_uri()]
    charts = 2 if every.stem == "kl_privacy" else 0
    assert browser.evaluate("document.querySelectorAll('.panel svg[role]').length") == charts


@pytest.mark.parametrize(
    ("filters", "shown"),
    [
        ({}, ["kl-1", "kl-1a", "kl-1b", "sgld-1"]),
        ({"paper": "dp_sgld"}, ["sgld-1"]),
        ({"outcome": "reproduced"}, ["kl-1a", "kl-1b"]),
        ({"kind": "statistical"}, ["kl-1", "kl-1b"]),
        ({"search": "Depth rises"}, ["kl-1b"]),
        ({"paper": "kl_privacy", "kind": "exact"}, []),
        ({"outcome": "reproduced", "search": "qualitative"}, ["kl-1a"]),
        # Words of the page and of the paper, which no cell of a row has.
        ({"search": "held qualitative"}, ["kl-1a"]),
        ({"search": "somebody"}, ["kl-1", "kl-1a", "kl-1b"]),
        ({"search": "Langevin"}, ["sgld-1"]),
    ],
)
def test_filters_show_the_rows_that_fit_them_all(browser, index, filters, shown):
    browser.open(index)
    for name, value in filters.items():
        choose(browser, name, value)
    assert browser.evaluate(SHOWN) == [f"claim-{claim}" for claim in shown]
    count = browser.evaluate("document.getElementById('filter-count').textContent")
    assert count == f"{len(shown)} of 4 rows"
    # The address can be sent: it opens on the same rows.
    address = browser.evaluate("location.hash")
    browser.open(index)
    browser.evaluate(f"location.hash = {address!r}")
    browser.evaluate("new Promise(done => setTimeout(done))")
    if filters:
        assert browser.evaluate("document.getElementById('all-rows').open") is True
    assert browser.evaluate(SHOWN) == [f"claim-{claim}" for claim in shown]
    browser.evaluate("document.getElementById('filter-reset').click()")
    assert len(browser.evaluate(SHOWN)) == 4


def test_a_cell_of_the_map_says_its_claim_and_opens_the_card_by_keyboard(browser, index):
    browser.open(index)
    browser.evaluate("document.querySelector('.cell[href=\"dp_sgld.html#sgld-1\"]').focus()")
    named = browser.evaluate("document.querySelector('.named').textContent")
    assert named.startswith("sgld-1: statement of sgld-1 It did not hold.")
    browser.press("Enter")
    browser.wait("Page.frameNavigated")
    browser.wait("Page.loadEventFired")
    browser.evaluate("new Promise(done => setTimeout(done, 100))")
    assert browser.evaluate("location.pathname").endswith("dp_sgld.html")
    assert browser.evaluate("document.getElementById('sgld-1').open") is True


def test_the_first_tab_leads_past_the_head_and_every_control_can_be_reached(browser, index):
    browser.open(index)
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.className") == "skip"
    browser.evaluate("document.getElementById('all-rows').open = true")
    seen = set()
    for _ in range(120):
        browser.press("Tab")
        seen.add(browser.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"filter-paper", "filter-outcome", "filter-kind", "filter-search"} <= seen
    assert {"SUMMARY", "A", "filter-reset"} <= seen


def test_a_link_to_what_is_folded_opens_it(browser, page):
    browser.open(page)
    opened = "document.getElementById('erratum-kl-x').open"
    assert browser.evaluate(opened) is False
    browser.evaluate("location.hash = 'erratum-kl-x'")
    browser.wait("Page.navigatedWithinDocument")
    assert browser.evaluate(f"new Promise(done => setTimeout(() => done({opened})))") is not None
    assert browser.evaluate(opened) is True


# What is drawn of the first chart: its points, and what the reader is told of one.
MARKS = "document.querySelectorAll('#first .panel svg[role] > g:last-of-type > path').length"
TOLD = "document.querySelector('#first .tip').innerText"


def open_drawn(browser, page):
    """The page once its charts are drawn, which they are when it is laid out."""
    browser.open(page)
    browser.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")


def test_a_chart_shows_its_points_and_hides_what_is_off(browser, page):
    open_drawn(browser, page)
    assert browser.evaluate(MARKS) == 2
    toggle = "document.querySelector('#first .keys button')"
    browser.evaluate(f"{toggle}.click()")
    assert browser.evaluate(f"{toggle}.getAttribute('aria-pressed')") == "false"
    assert browser.evaluate(MARKS) == 0
    browser.evaluate(f"{toggle}.click()")
    assert browser.evaluate(MARKS) == 2


def test_the_values_of_a_chart_can_be_read_by_keyboard(browser, page):
    open_drawn(browser, page)
    browser.evaluate("document.querySelector('#first .panel svg[role]').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate(TOLD).endswith("depth: 1\nKL: 1.5 [1, 2]")
    browser.press("ArrowRight")
    assert browser.evaluate(TOLD).endswith("depth: 3\nKL: 0.5 [0.25, 1]")
    browser.press("Escape")
    assert browser.evaluate("document.querySelector('#first .tip').hidden") is True


def test_the_other_scale_moves_the_points(browser, page):
    open_drawn(browser, page)
    heights = (
        "[...document.querySelectorAll('#first .panel svg[role] > g:last-of-type > path')]"
        ".map(mark => mark.transform.baseVal[0].matrix.f)"
    )
    linear = browser.evaluate(heights)
    browser.evaluate("document.querySelector('#first .scale-switch').click()")
    log = browser.evaluate(heights)
    # 1.5 and 0.5 lie half of the axis apart from 0 to 2, and log 3 / log 20 from 0.1 to 2.
    apart = (log[1] - log[0]) / (linear[1] - linear[0])
    assert apart == pytest.approx(math.log(3) / math.log(20) / 0.5, rel=0.01)


def test_a_link_to_a_claim_that_is_filtered_away_shows_it(browser, index):
    browser.open(index)
    choose(browser, "paper", "dp_sgld")
    browser.evaluate("location.hash = 'claim-kl-1b'")
    browser.wait("Page.navigatedWithinDocument")
    browser.evaluate("new Promise(done => setTimeout(done))")
    assert "claim-kl-1b" in browser.evaluate(SHOWN)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser, index, scheme):
    browser.media(scheme)
    browser.open(index)
    ratio = browser.evaluate(
        """(() => {
          const light = colour => {
            const parts = colour.match(/[0-9.]+/g).slice(0, 3).map(value => {
              const share = value / 255;
              return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
          };
          const ground = light(getComputedStyle(document.body).backgroundColor);
          const all = ["body", "a[href]", ".soft", ".verdict", "th", "summary"].map(name => {
            const ink = light(getComputedStyle(document.querySelector(name)).color);
            return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
          });
          return Math.min(...all);
        })()"""
    )
    browser.media("light")
    assert ratio >= 4.5


def test_on_a_phone_nothing_is_wider_than_the_screen(browser, every):
    browser.open(every, width=390, height=844, mobile=True)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    browser.open(every)


# Elements of a list of which some text lies outside.
OUTSIDE = (
    "[...document.querySelectorAll({names!r})].filter(each => "
    "each.scrollHeight > each.clientHeight + 1 || each.scrollWidth > each.clientWidth + 1).length"
)


def test_on_a_phone_the_words_below_a_plot_do_not_run_into_the_next_paragraph(browser, page):
    browser.open(page, width=390, height=844, mobile=True)
    browser.evaluate("document.querySelectorAll('details').forEach(node => { node.open = true })")
    assert browser.evaluate("document.querySelectorAll('.strip.scale').length")
    assert browser.evaluate(OUTSIDE.format(names=".strip.scale")) == 0
    browser.open(page)


def test_on_paper_no_number_is_cut(browser, page):
    browser.open(page, width=720)
    browser.media("light", "print")
    browser.evaluate("document.querySelectorAll('details').forEach(node => { node.open = true })")
    browser.evaluate(
        "document.querySelectorAll('.strip .number').forEach(each => "
        "{ each.textContent = '−0.0557 [−0.111, −0.0000508]' })"
    )
    assert browser.evaluate("document.querySelectorAll('.strip .number').length")
    assert browser.evaluate(OUTSIDE.format(names=".strip .number")) == 0
    many = "cell.parentNode.append(...Array.from({length: 14}, () => cell.cloneNode(true)))"
    browser.evaluate(f"(cell => {many})(document.querySelector('.values td.r'))")
    width = browser.evaluate("document.querySelector('.values table').scrollWidth")
    browser.media("light")
    browser.open(page)
    assert width <= 720


@pytest.mark.parametrize("width", [900, 1280])
def test_verdicts_of_a_card_never_stand_below_its_name(browser, page, width):
    browser.open(page, width=width)
    left = browser.evaluate(
        """(() => {
          const card = document.querySelector(".card > summary:has(.chip)");
          const chip = card.querySelector(".chip");
          chip.textContent = "not contradicted (workstation)";
          chip.after(chip.cloneNode(true), chip.cloneNode(true));
          const start = card.querySelector(".says").getBoundingClientRect().left;
          return [...card.querySelectorAll(".chip")].filter(each =>
            each.getBoundingClientRect().left < start).length;
        })()"""
    )
    browser.open(page)
    assert left == 0


def test_on_paper_cards_are_lines_and_filters_and_other_folded_parts_left_out(browser, index, page):
    shown = "getComputedStyle(document.querySelector({!r})).display"
    browser.open(index)
    browser.media("light", "print")
    assert browser.evaluate(shown.format(".filter")) == "none"
    browser.open(page)
    assert browser.evaluate(shown.format(".item details:not([open])")) == "none"
    assert browser.evaluate(shown.format("#erratum-kl-x")) != "none"
    browser.media("light")


def printed_pages(browser, path):
    """How many A4 pages a printer makes of it."""
    browser.open(path)
    pdf = base64.b64decode(
        browser.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"]
    )
    return max(int(count) for count in re.findall(rb"/Count (\d+)", pdf))


@pytest.mark.parametrize("key", all_papers())
def test_a_published_paper_prints_on_few_pages(browser, key):
    assert printed_pages(browser, PROJECT / f"docs/{key}.html") <= 12


def test_a_screenshot_shows_more_than_an_empty_page(browser, index, tmp_path):
    from PIL import Image

    browser.open(index)
    browser.screenshot(tmp_path / "page.png")
    with Image.open(tmp_path / "page.png") as image:
        assert len(image.convert("RGB").getcolors(1 << 24)) > 50


@pytest.mark.parametrize("width", [360, 768])
def test_the_head_stays_in_sight_and_the_map_needs_no_scrolling(browser, index, width):
    browser.open(index, width=width, height=740, mobile=True)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.querySelector('.map').scrollWidth") <= width
    browser.evaluate("scrollTo(0, 1200)")
    stuck = "document.querySelector('.top nav').getBoundingClientRect()"
    assert browser.evaluate(f"{stuck}.height") <= 48
    browser.open(index)


@pytest.mark.skipif("DPATLAS_AXE" not in os.environ, reason="no path of axe.min.js (npm axe-core)")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_rules_of_axe_find_nothing_serious(browser, every, scheme):
    browser.media(scheme)
    browser.open(every)
    browser.evaluate("document.querySelectorAll('details').forEach(node => { node.open = true })")
    browser.evaluate(Path(os.environ["DPATLAS_AXE"]).read_text() + "; 0")
    found = browser.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then(found => JSON.stringify("
        "found.violations.map(each => [each.impact, each.id, each.nodes[0].html])))"
    )
    browser.media("light")
    assert [each for each in json.loads(found) if each[0] in ("serious", "critical")] == []
