import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import Markup

from dpatlas.core.records import FIELDS
from dpatlas.errors import InputError, run_command
from dpatlas.report.claims import COLUMNS, REPRODUCED, write_claims
from dpatlas.report.inline_svg import inline_svg
from dpatlas.report.page import Item, build_page, main

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
SVG = """<?xml version="1.0"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
     width="10pt" height="10pt" viewBox="0 0 10 10" onload="alert(3)">
 <metadata><a xmlns="http://creativecommons.org/ns#">made</a></metadata>
 <style>* {fill: url(https://example.org/x)}</style>
 <script>alert(4)</script>
 <defs><clipPath id="p"><rect width="5" height="5"/></clipPath><path id="m" d="M0 0L1 1"/></defs>
 <g clip-path="url(#p)" style="fill: url('#p')"><use xlink:href="#m"/></g>
 <rect fill="url(https://example.org/y)" style="fill: u\\72l(//example.org)"/>
 <a xlink:href="https://example.org"><text>out</text></a>
 <image xlink:href="https://example.org/z.png"/><image xlink:href="data:image/png;base64,AA=="/>
 <text>kept &lt;b&gt;</text>
</svg>
"""


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


def row(claim, **fields):
    return dict.fromkeys(COLUMNS, "") | {
        "claim": claim,
        "statement": f"statement of {claim}",
        "verdict": REPRODUCED,
        "observed": 1.5,
        "low": 1.0,
        "high": 2.0,
        "runs": 5,
        "evidence": "figures/first.pdf",
        **fields,
    }


def product(results, name, kind, run_id):
    lineage = {
        "name": name,
        "kind": kind,
        "tier": "t",
        "module": "dpatlas.figures.kl_privacy",
        "code_digest": "0123456789abcdef",
        "settings": {},
        "records": {run_id: {"path": f"runs/kl_privacy/{run_id}/record.json", "sha256": "ab" * 32}},
        "outputs": {f"{name}.csv": "cd" * 32},
        "versions": {"python": "3.11"},
    }
    (results / "lineage" / f"{name}.json").write_text(json.dumps(lineage))


def record(results, run_id, changes=None, **metrics):
    content = (
        dict.fromkeys(FIELDS)
        | {
            "schema_version": 1,
            "id": run_id,
            "key": "kl_privacy",
            "data": {
                "name": "digits",
                "sha256": "ef" * 32,
                "what": HOSTILE,
                "classes": [3, 8],
                "licence": "BSD",
                "shapes": {"x_train": [300, 64], "x_add": [57, 64]},
                "source": {"kind": "scikit-learn", "file": None, "checksum": "md5:1"},
            },
            "ledger": {"guaranteed": "nothing at all", "claimed": "an average", "epsilon": None},
            "metrics": metrics,
        }
        | (changes or {})
    )
    folder = results / "runs" / "kl_privacy" / run_id
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps(content))


@pytest.fixture
def results(tmp_path):
    results = tmp_path / "results" / "t"
    for folder in ("figures", "tables", "lineage"):
        (results / folder).mkdir(parents=True)
    for name in ("first", "second"):
        (results / "figures" / f"{name}.svg").write_text(SVG)
        (results / "figures" / f"{name}.pdf").write_bytes(b"")
        product(results, name, "figure", "run-a")
    (results / "tables" / "third.csv").write_text(
        f"part,name,B,R,tier,runs\nx,{HOSTILE.replace(chr(34), '')},1.23456,,t,run-b\nx,z,2,,t,r\n"
    )
    product(results, "third", "table", "run-b")
    record(results, "run-a", diverged=[None, 7, None])
    record(results, "run-b")
    write_claims(
        results / "claims.csv",
        [
            row("kl-1a"),
            row("kl-1b", statement=HOSTILE, note=HOSTILE),
            row("kl-1", evidence="figures/first.pdf;tables/third.csv"),
            row("kl-2", verdict="inconclusive", evidence="figures/second.csv", low=float("-inf")),
        ],
    )
    captions = tmp_path / "captions"
    captions.mkdir()
    for name in ("first", "second", "third", "claims"):
        (captions / f"{name}.rst").write_text(f"Caption of *{name}*, {HOSTILE}\n")
    return results


@pytest.fixture
def page(results):
    return build_page(results, "t", results.parents[1] / "captions")


def test_page_shows_every_claim_figure_and_table(page):
    ids = Reader(page).ids
    assert [f"claim-{name}" for name in ("kl-1", "kl-1a", "kl-1b", "kl-2")] == [
        i for i in ids if i.startswith("claim-")
    ]
    assert {"first", "second", "third"} <= set(ids)
    assert page.count("<svg") == 2
    assert "Caption of <em>second</em>" in page
    assert "1.235" in page
    assert "−∞" in page


def test_page_names_no_address_outside_the_results(page):
    assert not re.search(r"https?:", page)
    assert "//example" not in page
    addresses = Reader(page).addresses
    assert all(re.match(r"#|\.\./|data:image/png;base64,", address) for address in addresses)


def test_hostile_text_and_drawings_run_nothing(page):
    reader = Reader(page)
    assert reader.tags.count("script") == 1
    assert not reader.handlers
    assert "alert(4)" not in page
    assert HOSTILE not in page
    assert "img" not in reader.tags


def test_the_policy_lets_exactly_the_page_s_own_script_run(page):
    script = re.search(r"<script>(.*)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page


def test_ids_of_two_drawings_do_not_clash(page):
    ids = Reader(page).ids
    assert len(ids) == len(set(ids))
    assert {"first-m", "second-m"} <= set(ids)
    assert 'href="#second-m"' in page
    assert 'clip-path="url(#second-p)"' in page


def test_a_table_may_have_the_name_of_its_block(results):
    shutil.copy(results / "tables" / "third.csv", results / "tables" / "kl_privacy.csv")
    product(results, "kl_privacy", "table", "run-b")
    ids = Reader(build_page(results, "t")).ids
    assert len(ids) == len(set(ids))


def test_every_link_into_the_results_leads_to_a_file(results, page):
    report = results / "report"
    for address in Reader(page).addresses:
        if address.startswith("../"):
            assert (report / address).resolve().exists(), address


def test_figures_carry_their_verdicts_and_lineage(page):
    first = page[page.index('id="first"') : page.index('id="third"')]
    assert re.findall(r'href="#claim-([^"]+)"', first) == ["kl-1a", "kl-1b", "kl-1"]
    assert "run-a: 1 of 3 runs diverged" in first
    assert "0123456789abcdef" in first
    assert "snakemake --cores 2 first" in first


def test_a_figure_is_listed_where_the_claims_first_call_on_it(results):
    claims = [row("kl-1", evidence="figures/second.pdf"), row("kl-2")]
    write_claims(results / "claims.csv", claims)
    page = build_page(results, "t")
    assert page.index('<article class="item" id="second"') < page.index('id="first"')


def test_page_says_what_the_tier_means_and_what_is_guaranteed(results, page):
    assert "settings of the user" in page
    assert "mean nothing" in build_page(results, "smoke")
    assert "nothing at all" in page
    assert "an average" in page


def test_a_run_without_a_data_set_is_counted_and_its_ledger_read_out(results):
    shutil.rmtree(results / "runs" / "kl_privacy" / "run-b")
    ledger = {
        "claimed": {"epsilon": 2.0, "by": "a paper"},
        "sampler": [{"name": "poisson", "n": 9}, {"name": "full-batch", "n": 9}],
        "chosen_on_private_data": [{"what": "the step", "cost": "not counted"}],
    }
    record(results, "run-b", {"data": None, "ledger": ledger})
    page = build_page(results, "t")
    assert "1 condition uses no data set" in page
    assert "epsilon 2, by a paper" in page
    assert "name poisson, n 9; name full-batch, n 9" in page
    assert "what the step, cost not counted" in page


def test_the_same_results_give_the_same_bytes(results, page):
    assert build_page(results, "t", results.parents[1] / "captions") == page


def test_page_leaves_empty_and_repeated_columns_of_a_table_to_the_csv(page):
    third = page[page.index('id="third"') :]
    assert re.findall(r"<th>([^<]*)</th>", third) == ["name", "B"]


@pytest.mark.parametrize(
    "missing", ["claims.csv", "lineage/first.json", "runs/kl_privacy/run-b/record.json"]
)
def test_a_missing_piece_is_bad_input_and_writes_no_page(results, missing, capsys):
    (results / missing).unlink()
    output = results / "report" / "index.html"
    arguments = ["--tier", "t", "--results", str(results), "--output", str(output)]
    assert run_command(main, arguments) == 2
    assert Path(missing).stem in capsys.readouterr().err
    assert not output.exists()


def test_a_caption_cannot_pull_in_files_or_raw_html(results):
    captions = results.parents[1] / "captions"
    (captions / "first.rst").write_text(".. include:: /etc/hostname\n")
    with pytest.raises(InputError, match=r"first\.rst"):
        build_page(results, "t", captions)


@pytest.mark.parametrize("content", ["not xml", "<html></html>"])
def test_what_is_no_svg_is_refused(tmp_path, content):
    path = tmp_path / "x.svg"
    path.write_text(content)
    with pytest.raises(InputError, match="an SVG file"):
        inline_svg(path, "x-", "x")


def test_a_drawing_keeps_its_shapes_and_text_and_loses_its_size(tmp_path):
    path = tmp_path / "x.svg"
    path.write_text(SVG)
    drawing = inline_svg(path, "x-", "A figure")
    assert "kept &lt;b&gt;" in drawing
    assert 'd="M0 0L1 1"' in drawing
    assert 'viewBox="0 0 10 10"' in drawing
    assert "10pt" not in drawing
    assert 'aria-label="A figure"' in drawing


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({}, []),
        ({"diverged": None}, []),
        ({"diverged": 7}, ["run-c: 1 of 1 runs diverged"]),
        ({"rows": [{"diverged": None}, {"diverged": 3}]}, ["run-c: 1 of 2 runs diverged"]),
        ({"rows": [{"accuracy": 1.0}]}, []),
    ],
)
def test_divergence_is_said_however_a_record_keeps_it(metrics, said):
    item = Item(
        *("name", "table", "paper", Markup(""), Markup("")),
        **{"tables": [], "links": [], "claims": [], "lineage": {}},
        records=[{"id": "run-c", "metrics": metrics}],
    )
    assert item.diverged == said
