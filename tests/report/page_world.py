"""A small results folder, as the page reads it, full of text that would run if it could."""

from pathlib import Path

from dpatlas.base.files import write_json
from dpatlas.base.records import FIELDS
from dpatlas_workflow.config.products import Product
from dpatlas_workflow.evidence.claim_file import Claim, ClaimEntry, Claims, Finding, Headline
from dpatlas_workflow.evidence.claims import COLUMNS, COMPARISON_COLUMNS, write_claims
from dpatlas_workflow.evidence.errata import Erratum
from dpatlas_workflow.evidence.verdicts import REPRODUCED
from dpatlas_workflow.report.page import build_pages
from dpatlas_workflow.report.page_source import Source

SMALL = "positive, at most the margin"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
AXIS = {"label": "depth", "ends": [1, 10], "log": True, "ticks": [[1, "1"], [10, "10^{1}"]]}
LINEAR = {"ends": [0, 2], "log": False, "ticks": [[0, "0"], [1, "1"]]}
SERIES = {
    "key": [0],
    "color": "#0072b2",
    "marker": "o",
    "size": 4,
    "x": [1, 3, 10],
    "y": [1.5, 0.5, None],
    "low": [1, 0.25, None],
    "high": [2, 1, None],
}
CHART = {
    "headings": [],
    "key": [{"label": HOSTILE, "color": "#0072b2", "marker": "o", "dash": "", "width": 1}],
    "notes": [rf"ten runs {HOSTILE}, $\eta$ = $10^{{-5}}$"],
    "panels": [
        {
            "at": [0, 60, 0, 1],
            "shape": 0.6,
            "title": HOSTILE,
            "x": AXIS,
            "y": {"label": "KL", **LINEAR, "other": {**LINEAR, "ends": [0.1, 2], "log": True}},
            "series": [SERIES],
        }
    ],
}


def row(claim, **fields):
    return dict.fromkeys(COLUMNS, "") | {
        "claim": claim,
        "paper": "kl_privacy",
        "place": "Fig. 1",
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
        "module": "dpatlas_workflow.papers.kl_privacy.figures.kl_vs_depth",
        "code_digest": "0123456789abcdef",
        "settings": {},
        "records": {run_id: {"path": f"runs/kl_privacy/{run_id}/record.json", "sha256": "ab" * 32}},
        "outputs": {f"{name}.csv": "cd" * 32},
        "versions": {"python": "3.11"},
    }
    write_json(results / f"lineage/{name}.json", lineage)


DATA = {
    "name": "digits",
    "sha256": "ef" * 32,
    "what": HOSTILE,
    "classes": [3, 8],
    "licence": "BSD",
    "shapes": {"x_train": [300, 64], "x_add": [57, 64]},
    "source": {"kind": "scikit-learn", "file": None, "checksum": "md5:1"},
}
RECORD = dict.fromkeys(FIELDS) | {
    "schema_version": 1,
    "key": "kl_privacy",
    "spec": {"key": "kl_privacy", "kind": "training"},
    "spec_digest": "ab" * 32,
    "data": DATA,
    "ledger": {"guaranteed": "nothing at all", "claimed": "an average", "epsilon": None},
    "code_digest": "0123456789abcdef",
    "versions": {"python": "3.11"},
    "device": "cpu",
    "seeds": {"base": 3},
}


def record(results, run_id, changes=(), **metrics):
    content = RECORD | {"id": run_id, "metrics": metrics} | dict(changes)
    write_json(results / f"runs/kl_privacy/{run_id}/record.json", content)


def write_results(tmp_path: Path) -> Path:
    """results/t with two figures and a table."""
    results = tmp_path / "results" / "t"
    (results / "tables").mkdir(parents=True)
    for name in ("first", "second"):
        write_json(results / f"figures/{name}.json", CHART)
        (results / "figures" / f"{name}.pdf").write_bytes(b"")
        (results / "figures" / f"{name}.csv").write_text("depth,kl,tier,runs\n2,1.23456,t,run-a\n")
        product(results, name, "figure", "run-a")
    (results / "tables" / "third.csv").write_text(
        f"part,name,B,R,tier,runs\nx,{HOSTILE.replace(chr(34), '')},1.23456,,t,run-b\nx,z,2,,t,r\n"
    )
    (results / "tables" / "third.md").write_text(
        f"**Of {HOSTILE}, \\|x\\|, $`B`$**\n\n| name | $`\\frac{{1}}{{2}}`$ |\n| --- | ---: |\n"
        f"| {HOSTILE} | 1.23 ± 0.01 |\n\n_tier t_\n"
    )
    product(results, "third", "table", "run-b")
    record(results, "run-a", diverged=[None, 7, None])
    record(results, "run-b")
    small = {"kind": "statistical", "margin": 0.25, "look": 12, "because": SMALL}
    open_one = {"verdict": "inconclusive", "evidence": "figures/second.csv", "low": float("-inf")}
    claims = [
        row("kl-1a", **small),
        row("kl-1b", statement=HOSTILE, note=HOSTILE),
        row("kl-1", evidence="figures/first.pdf;tables/third.csv"),
        row("kl-2", **open_one, runs_to_decide=48, cpu_s_to_decide=7200.0),
    ]
    comparisons = [compared("kl-1a", decides=1)]
    comparisons.append(compared("kl-1a", comparison=HOSTILE, low="", high=""))
    write_claims(results / "claims.csv", claims)
    write_claims(results / "comparisons.csv", comparisons, COMPARISON_COLUMNS)
    return results


def compared(claim, **fields):
    return dict.fromkeys(COMPARISON_COLUMNS, "") | {
        "claim": claim,
        "comparison": "slope of the KL",
        "observed": 1.5,
        "low": 1.0,
        "high": 2.0,
        "above": 0.0,
        "margin": 0.25,
        "holds": 1,
        **fields,
    }


def caption(name):
    return f"Caption of *{name}*, {HOSTILE}"


PRODUCTS = {
    name: Product(
        name=name,
        kind="figure",
        needs=[],
        place="Fig. 1",
        caption=caption(name),
        paper_shows=f"The paper, {HOSTILE}",
    )
    for name in ("first", "second", "third")
}
ERRATUM = Erratum(
    id="kl-x",
    place="Eq. 6",
    status="proved",
    printed=f"twice {HOSTILE}",
    corrected="once",
    consequence="none",
    shown_by=["tests/bounds/test_a.py::test_b"],
    products=["first"],
    claims=["kl-1", "kl-99"],
)


def entry(name, **fields):
    tested = {"claim": "kl-1", "expected": "", "test": "", "arguments": {}}
    return ClaimEntry(**{**tested, **STATED, **ASSERTED, **fields, "id": name})


STATED = {
    "id": "kl-1",
    "paper": "kl_privacy",
    "place": "Fig. 1",
    "statement": "",
    "kind": "statistical",
    "evidence": (),
}
ASSERTED = {
    "asserts": f"The paper states it, {HOSTILE}",
    "deviations": ("Fewer records.", f"Another network, {HOSTILE}"),
    "pilots": "Two runs with seed 0.",
}
PARTS = (
    entry("kl-1a", margin=0.25, margin_from="Half of what Table 1 prints."),
    entry("kl-1b", asserts="The part states this.", deviations=(), pilots=HOSTILE),
)
FINDING = Finding(
    values={"slope": "kl-1a"},
    number="{slope}",
    says=f"is the slope {HOSTILE}",
    bars={"printed": "1", "ours": "{slope.exp}", HOSTILE: "{slope.least}"},
)
ADDRESS = "https://example.org/paper"
MAIN = {"kl-1": f"it grows {HOSTILE}"}
HEADLINE = Headline(f"KL grows {HOSTILE}", "Somebody", MAIN, ADDRESS, [FINDING])
WRITTEN = Claims(
    (Claim(entries=PARTS, **STATED, **ASSERTED),),
    headlines={"kl_privacy": HEADLINE},
)


def whole_pages(results, show=None):
    """The pages by name, with captions, errata and what is written of claims."""
    rest = {"errata": {"kl_privacy": [ERRATUM]}, "about": caption("claims"), "written": WRITTEN}
    return build_pages(Source(results), "t", PRODUCTS, show, **rest)
