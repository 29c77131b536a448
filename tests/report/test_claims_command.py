import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from dpatlas.errors import run_command
from dpatlas_workflow.commands.claims import badge, changes, main, read_verdicts, summary
from dpatlas_workflow.evidence.claims import read_claims
from dpatlas_workflow.evidence.verdicts import (
    FAILURES,
    IDENTITY,
    INCONCLUSIVE,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    OURS,
    OUTCOMES,
    PAPER,
    REPRODUCED,
    VERDICTS,
    counted,
    counts,
    is_part,
)

PROJECT = Path(__file__).resolve().parents[2]
FIGURE = "figures/kl_vs_depth.pdf"
ALL = ", ".join(VERDICTS)
SHOWN = [each for each in OUTCOMES if each != NOT_REPRODUCED]


def row(claim, verdict, paper="kl_privacy", **fields):
    return {
        "claim": claim,
        "paper": paper,
        "place": "Fig. 1",
        "statement": f"what {claim} says",
        "verdict": verdict,
        "observed": "0.533333",
        "low": "0.0956",
        "high": "0.971",
        "evidence": FIGURE,
        "failure": "",
    } | fields


ROWS = [
    row("kl-1a", REPRODUCED),
    row("kl-1", INCONCLUSIVE, observed="1 of 2", low="", high=""),
    row("sgld-1", NOT_REPRODUCED, paper="dp_sgld", failure="smaller"),
    row("feat-1", NOT_RUN, paper="feature_learning", evidence="figures/none.pdf"),
]


@pytest.fixture
def folders(tmp_path):
    for name in ("results", "docs"):
        folder = tmp_path / name / "embedded"
        (folder / FIGURE).parent.mkdir(parents=True)
        (folder / FIGURE).write_bytes(b"drawn")
        with (folder / "claims.csv").open("w", newline="") as stream:
            writer = csv.DictWriter(stream, ROWS[0])
            writer.writeheader()
            writer.writerows(ROWS)
    return tmp_path


def run(folders, *arguments):
    return run_command(main, [*words(folders), *arguments])


def words(folders):
    return ["--results", str(folders / "results"), "--docs", str(folders / "docs")]


def test_every_claim_has_a_line_and_the_verdicts_are_counted(folders, capsys):
    assert run(folders) == 0
    shown = capsys.readouterr().out
    for each in ROWS:
        (line,) = (line for line in shown.splitlines() if line.split()[:1] == [each["claim"]])
        assert each["verdict"] in line
    assert "0.533 [0.0956, 0.971]" in shown
    assert shown.endswith(
        "of the papers' claims: 1 not reproduced (1 smaller), 1 inconclusive, 1 not run at this "
        "tier\nclaims of our own stand apart: none\n"
    )
    assert "< not reproduced: smaller  " in shown
    assert "\033[" not in shown
    assert run(folders, "--paper", "dp_sgld", "--json") == 0
    assert [each["claim"] for each in json.loads(capsys.readouterr().out)] == ["sgld-1"]


def test_the_summary_counts_the_papers_claims_and_says_how_they_failed(folders, capsys):
    assert run(folders, "--markdown") == 0
    assert capsys.readouterr().out.splitlines() == [
        "| paper | reproduced | not reproduced: mathematics | not reproduced: opposite | not "
        "reproduced: smaller | not contradicted | inconclusive | not run at this tier |",
        "|---|---|---|---|---|---|---|---|",
        "| kl_privacy | 0 | 0 | 0 | 0 | 0 | 1 | 0 |",
        "| dp_sgld | 0 | 0 | 0 | 1 | 0 | 0 | 0 |",
        "| feature_learning | 0 | 0 | 0 | 0 | 0 | 0 | 1 |",
        "| all | 0 | 0 | 0 | 1 | 0 | 1 | 1 |",
        "",
        "claims of our own stand apart: none.",
    ]


def test_every_view_counts_alike():
    rows = read_verdicts(PROJECT / "docs" / "results" / "embedded", None, "place", "failure")
    total = sum(counts(rows).values(), Counter())
    published = {row["claim"] for row in rows}
    theirs = sum(claim.origin == PAPER for claim in read_claims().claims if claim.id in published)
    assert total.total() == theirs
    assert badge(rows).startswith(f"{total[REPRODUCED]} of {theirs} ")
    failed = sum(total[each] for each in FAILURES)
    assert counted(rows).startswith(f"{total[REPRODUCED]} reproduced, ")
    assert f"{failed} not reproduced (" in counted(rows) and total[NOT_REPRODUCED] == 0
    last = [line for line in summary(rows).splitlines() if line.startswith("| all")]
    assert last == [f"| all | {' | '.join(str(total[each]) for each in SHOWN)} |"]
    ours = sum(counts(rows, OURS).values(), Counter()).total()
    assert sum(not is_part(row) for row in rows) == theirs + ours


def edit(folders, name, old, new):
    path = folders / name / "embedded/claims.csv"
    path.write_text(path.read_text().replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("0.533333", "0.6", "0 of 4 verdicts changed"),
        (INCONCLUSIVE, REPRODUCED, "kl-1: inconclusive -> reproduced\n1 of 4 verdicts changed"),
    ],
)
def test_a_change_that_is_no_contradiction_passes_the_check(folders, capsys, old, new, said):
    edit(folders, "results", old, new)
    assert run(folders, "--check") == 0
    assert capsys.readouterr().out == f"{said}; 0 contradictions\n"


@pytest.mark.parametrize("turned", [(REPRODUCED, NOT_REPRODUCED), (NOT_REPRODUCED, REPRODUCED)])
def test_a_verdict_that_turned_fails_the_check_and_is_named(folders, capsys, turned):
    for name, verdict in zip(("docs", "results"), turned, strict=True):
        edit(folders, name, INCONCLUSIVE, verdict)
    line = f"kl-1: {turned[0]} -> {turned[1]}, a contradiction"
    assert run(folders, "--check") == 1
    said = capsys.readouterr().out
    assert said == f"{line}\n1 of 4 verdicts changed; 1 contradiction\n"
    assert run(folders, "--check", "--json") == 1
    expected = {"verdicts": 4, "changes": [line], "contradictions": [line]}
    assert json.loads(capsys.readouterr().out) == expected


def test_an_identity_that_is_refuted_contradicts_what_was_published():
    for kind, contradicts in ((IDENTITY, True), ("statistical", False)):
        before, now = (row("kl-1a", each, kind=kind) for each in (NOT_CONTRADICTED, NOT_REPRODUCED))
        assert [found for _, found in changes([before], [now])] == [contradicts]


def test_new_and_lost_claims_are_changes_and_no_contradictions():
    found = changes(ROWS[:2], ROWS[1:3])
    assert found == [
        (f"kl-1a: {REPRODUCED} -> no such claim", False),
        (f"sgld-1: no such claim -> {NOT_REPRODUCED}", False),
    ]


def test_a_verdict_without_its_evidence_is_an_error(folders, refusal_of):
    (folders / "results" / "embedded" / FIGURE).unlink()
    error = refusal_of(main, *words(folders))
    assert "evidence of kl-1a" in error and FIGURE in error


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--tier", "../secret", "--published"), "claims.csv"),
        (("--check", "--published"), "--published"),
        (("--check", "--markdown"), "--check: found --markdown as well; allowed: --json"),
        (("--badge", "--check"), "--check: found --badge as well; allowed: --json"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_2(folders, refusal_of, arguments, named):
    assert named in refusal_of(main, *words(folders), *arguments)


def test_before_the_first_run_a_line_says_what_to_do(folders, refusal_of):
    (folders / "results/embedded/claims.csv").unlink()
    for arguments in ((), ("--check",)):
        line = refusal_of(main, *words(folders), *arguments)
        assert "run snakemake --cores 1 claims first, or --published" in line
    assert run(folders, "--published") == 0
    line = refusal_of(main, *words(folders), "--published", "--tier", "smoke")
    assert "no such file; allowed: --tier embedded" in line


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda text: text + text.splitlines()[1], "kl-1a twice"),
        (lambda text: text.replace("verdict", "judgement", 1), "no column verdict"),
        (lambda text: text.rsplit(",", 1)[0], "row 4 with another number of cells"),
        (lambda text: text.replace("kl-1,", ","), "row 2 without a claim's name"),
        (lambda text: text.replace(INCONCLUSIVE, "maybe"), f"maybe; allowed: {ALL}"),
        (lambda text: text.replace("smaller", "tiny"), "sgld-1: found tiny; allowed: mathematics"),
    ],
)
def test_a_damaged_file_of_claims_is_one_line(folders, refusal_of, change, named):
    path = folders / "results/embedded/claims.csv"
    path.write_text(change(path.read_text()))
    line = refusal_of(main, *words(folders))
    assert named in line and "claims.csv" in line


def test_a_badge_counts_the_papers_own_claims_once():
    verdicts = {"kl-1a": REPRODUCED, "kl-1": REPRODUCED, "kl-2": INCONCLUSIVE, "kl-3": REPRODUCED}
    rows = [row(name, verdict) for name, verdict in verdicts.items()]
    rows[-1]["place"] = "ours, beside Figure 2"
    assert badge(rows) == "1 of 2 claims reproduced"


def test_a_badge_needs_to_know_whose_claims_they_are(folders, refusal_of):
    edit(folders, "results", "place", "where")
    assert "claims.csv: found no column place" in refusal_of(main, *words(folders), "--badge")
