import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from page_world import compared, row
from small_run import (
    CODE_NOW,
    DATA,
    FIGURE,
    TABLE,
    small_run,
    spec_of,
    write_manifest,
    write_product,
    write_run,
)

from dpatlas.base.canonical import sha256
from dpatlas.base.files import read_json, read_rows, write_atomic, write_json
from dpatlas.base.specs import Spec
from dpatlas.errors import InputError
from dpatlas_workflow.commands import publish as command
from dpatlas_workflow.commands import verify
from dpatlas_workflow.config.atlas import KEYS, Atlas
from dpatlas_workflow.config.load import load_config, load_tier, read_tier, validate
from dpatlas_workflow.evidence.claims import COMPARISON_COLUMNS, write_claims
from dpatlas_workflow.evidence.comparisons import NotRun, PaperRecords
from dpatlas_workflow.evidence.printed import PrintedComparison
from dpatlas_workflow.evidence.verdicts import check_files
from dpatlas_workflow.report import lineage, published_tier, state
from dpatlas_workflow.report import publish as module
from dpatlas_workflow.report.page import write_site
from dpatlas_workflow.report.printed_rows import printed_lines
from dpatlas_workflow.report.publish import publish
from dpatlas_workflow.statistics import Estimate

pytestmark = pytest.mark.usefixtures("code_as_made")
IDS = (spec_of(depth=2).id, spec_of(depth=4).id)
BEHIND = {f"figures/{FIGURE}": IDS, f"tables/{TABLE}": IDS[:1]}


@pytest.fixture
def run(tmp_path):
    folder = small_run(tmp_path / "results")
    own = {"mine": {"path": "/home/me/scans", "classes": ["a", "b"]}}
    data = {"root": "/home/me/data", "own": own}
    write_json(folder / "config.json", {"tier": "embedded", "data": data})
    return folder


def published(run, behind=BEHIND, waiting=None, commit="abc"):
    """The folder of the paper that `small_run` is of."""
    return publish(run, run.parents[1] / "docs", behind, waiting, commit) / "kl_privacy"


def waits(name, place="Fig.", **fields):
    usual = {"runs": 2, "there": 0, "cpu_hours": 1.0, "gpu_hours": 0.0, "files": []}
    return {"name": name, "place": place, **usual, "conditions": [], **fields}


def readme_of(target):
    return (target / "README.md").read_text()


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def test_summaries_are_copied_and_neither_raw_records_nor_figures_of_another_config(run):
    (run / "figures/kl_vs_moon.csv").write_text("of another config")
    # An empty folder is published to.
    (run.parents[1] / "docs/embedded").mkdir(parents=True)
    assert names(published(run)) == {
        "README.md",
        "manifest.json",
        "claims.csv",
        "comparisons.csv",
        "config.json",
        "more_runs.json",
        *(f"figures/{FIGURE}.{suffix}" for suffix in ("pdf", "png", "csv", "json")),
        *(f"tables/{TABLE}.{suffix}" for suffix in ("csv", "md", "tex")),
    }


def test_a_run_that_finds_the_published_numbers_of_runs_makes_the_same_runs(tmp_path):
    alone = {key: {"enabled": False} for key in KEYS if key != "kl_privacy"}
    config = load_config(changes={"tier": "alone", **alone})

    def specs(results):
        return Atlas(config, tmp_path / results).specs

    few = specs("few")
    condition = next(spec.condition for spec in few.values() if "first_run" in spec.fields)
    write_json(tmp_path / "more/alone/more_runs.json", {condition: 120})
    more = specs("more")
    assert few.keys() < more.keys()
    # As a manifest sorts them, the block of run 108 comes before that of run 12.
    records = {name: {"spec": more[name].fields} for name in sorted(more)}
    write_json(tmp_path / "again/alone/more_runs.json", published_tier._more_runs(records))
    assert specs("again").keys() == more.keys()


def test_the_manifest_accounts_for_every_file_and_record(run):
    target = published(run)
    manifest = read_json(target / "manifest.json")
    files = manifest["files"]
    assert set(files) | {"manifest.json", "README.md"} == names(target)
    assert all(sha256((target / path).read_bytes()) == digest for path, digest in files.items())
    assert set(manifest["records"]) == set(IDS)
    assert manifest["data"][DATA["sha256"]]["source"] == DATA["source"]
    assert manifest["commit"] == "abc"
    assert manifest["cost"]["jobs"] == 2
    assert manifest["cost"]["cpu_hours"] == pytest.approx(14 / 3600)


def test_nothing_of_the_machine_is_published(run):
    target = published(run)
    text = "".join(path.read_text() for path in target.rglob("*.[jmc]*"))
    assert not any(private in text for private in ("some-host", "/home/me", str(run)))
    own = {"mine": {"path": "mine", "classes": ["a", "b"]}}
    saved = {"tier": "embedded", "data": {"root": None, "own": own}}
    assert read_json(target / "config.json") == saved


def test_a_published_figure_can_be_explained_without_its_records(run):
    figure = lineage.trace(published(run) / "figures" / f"{FIGURE}.png")
    assert figure["as_made"]
    assert {record["processor"] for record in figure["records"]} == {"Some CPU, avx2"}
    assert [(each["present"], each["as_used"]) for each in figure["records"]] == [(False, None)] * 2
    assert [record["spec"]["depth"] for record in figure["records"]] == [2, 4]
    assert figure["records"][0]["data"]["sha256"] == DATA["sha256"]
    # It still says what was guaranteed and by which seeds.
    made = lineage.trace(run / "figures" / f"{FIGURE}.png")
    for there, here in zip(figure["records"], made["records"], strict=True):
        assert here["ledger"] and there["ledger"] == here["ledger"]
        assert there["seeds"] == here["seeds"]


def test_of_runs_under_several_versions_no_record_is_said_to_have_one_of_them(run):
    target = published(run)
    manifest = read_json(target / "manifest.json")
    (before,) = manifest["versions"]
    manifest["versions"] = [before, before | {"torch": "2.16.0"}]
    write_json(target / "manifest.json", manifest)
    figure = lineage.trace(target / "figures" / f"{FIGURE}.png")
    assert [record["versions"] for record in figure["records"]] == [before] * 2
    # As older publications are.
    for record in manifest["records"].values():
        del record["versions"]
    write_json(target / "manifest.json", manifest)
    figure = lineage.trace(target / "figures" / f"{FIGURE}.png")
    assert [record["versions"] for record in figure["records"]] == [None, None]


GONE = "found no such file; allowed: a complete run"
EDITED = "found other content than manifest.txt says"


@pytest.mark.parametrize(
    ("name", "change", "found"),
    [
        (f"figures/{FIGURE}.png", None, f"figures/{FIGURE}.png"),
        (f"lineage/{FIGURE}.json", None, f"lineage/{FIGURE}.json"),
        ("claims.csv", None, f"claims.csv: {GONE}"),
        ("comparisons.csv", None, f"comparisons.csv: {GONE}"),
        ("manifest.txt", None, f"manifest.txt: {GONE}"),
        ("claims.csv", ("inconclusive", "reproduced"), f"claims.csv: {EDITED}"),
        ("comparisons.csv", ("slope", "mean"), f"comparisons.csv: {EDITED}"),
        ("manifest.txt", ("claims.csv", "verdicts.csv"), f"claims.csv: {EDITED}"),
    ],
)
def test_a_run_that_is_not_whole_or_not_as_it_was_made_is_refused(run, name, change, found):
    path = run / name
    if change:
        path.write_text(path.read_text().replace(*change))
    else:
        path.unlink()
    with pytest.raises(InputError, match=found):
        published(run)
    assert not (run.parents[1] / "docs").exists()


def test_a_figure_of_other_records_than_the_config_asks_for_is_refused(run):
    for ids, named in (((*IDS, "he-d6-w8-00000000"), "he-d6-w8-00000000"), (IDS[:1], IDS[1])):
        with pytest.raises(InputError, match=named):
            published(run, {f"figures/{FIGURE}": ids})


def test_publishing_again_replaces_the_folder(run):
    target = published(run)
    (target / "figures" / "old.png").write_text("of an earlier run")
    manifest = read_json(target / "manifest.json")
    manifest["files"]["figures/old.png"] = "0" * 64
    write_json(target / "manifest.json", manifest)
    assert "figures/old.png" not in names(published(run))
    beside = {"README.md", "claims.csv", "comparisons.csv", "more_runs.json"}
    assert names(target.parent) == {f"kl_privacy/{name}" for name in names(target)} | beside


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", ["notes.txt", "thesis/ch1.tex", "figures/mine/", ".hidden"])
def test_a_folder_with_files_that_no_publication_wrote_is_refused(run, again, name):
    folder = run.parents[1] / "docs/embedded"
    target = published(run) if again else folder
    path = (target if again and name[0] != "n" else folder) / name
    if name.endswith("/"):
        path.mkdir(parents=True)
    else:
        write_atomic(path, "mine")
    before = names(target)
    with pytest.raises(InputError, match=f"{path}: found a file that no publication wrote; .*DIR"):
        published(run)
    assert path.exists() and names(target) == before


@pytest.mark.parametrize("place", ["docs", "docs/embedded"])
def test_a_file_is_no_place_for_a_publication(run, place):
    path = run.parents[1] / place
    write_atomic(path, "mine")
    with pytest.raises(InputError, match=f"{path}: found a file"):
        published(run)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("name", ["index", "dp_sgld", "runs"])
def test_a_page_of_the_users_own_beside_the_tiers_is_not_replaced(tmp_path, refusal_of, name):
    write_atomic(tmp_path / f"{name}.html", "mine")
    places = ["--results", tmp_path, "--docs", tmp_path / "docs"]
    line = refusal_of(command.main, "--tier", "embedded", *places)
    assert f"{tmp_path / name}.html: found a file that no pub" in line
    assert (tmp_path / f"{name}.html").read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ([], r"found \[\]"),
        ({"products": None}, "products: found None"),
        ({"files": 1}, "files: found 1"),
        ({"versions": None}, "versions: found None"),
        ({"records": "x"}, "records: found 'x'"),
        ({"data": "x"}, "data: found 'x'"),
        ({"records": {}}, "products.kl_constants: found .*, a record that it lacks"),
        ({"products": {"kl_vs_depth": {}}}, "products.kl_vs_depth.name: found nothing"),
    ],
)
def test_a_damaged_manifest_of_an_earlier_publication_is_named(run, content, found):
    path = published(run) / "manifest.json"
    write_json(path, {**read_json(path), **content} if content else [])
    with pytest.raises(InputError, match=rf"manifest\.json.*{found}"):
        published(run)


def test_a_commit_is_marked_where_files_differ_from_it(tmp_path):
    assert module.commit_of(tmp_path) is None
    write_atomic(tmp_path / "file", "one")
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    for words in (["init", "-q"], ["add", "file"], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    commit = module.commit_of(tmp_path)
    assert len(commit) == 40
    write_atomic(tmp_path / "file", "two")
    assert module.commit_of(tmp_path) == f"{commit} with changes"


def test_the_readme_says_when_jobs_finished_and_which_code_changed_since(run, monkeypatch):
    now = {True: "another", False: CODE_NOW}
    monkeypatch.setattr(state, "digest_now", lambda module: now[module.endswith(TABLE)])
    first, second = run.glob("runs/*/*/cost.json")
    write_json(first, read_json(first) | {"finished": "2026-01-31T03:04:05Z"})
    text = readme_of(published(run))
    assert "finished 2026-01-02 to 2026-01-31)" in text
    assert f"both digests): dpatlas_workflow.papers.kl_privacy.figures.{TABLE}." in text
    for path in (first, second):
        path.unlink()
    assert "finished on an unknown day)" in readme_of(published(run))


@pytest.mark.parametrize(("tier", "listed"), [("printed", True), ("embedded", False)])
def test_a_tier_at_the_printed_sizes_stands_beside_what_is_printed(tmp_path, tier, listed):
    folder = small_run(tmp_path / "results", tier)
    write_claims(folder / "claims.csv", [row("kl-1", kind="statistical")])
    comparison = compared("kl-1", level=0.95, runs=12)
    write_claims(folder / "comparisons.csv", [comparison], COMPARISON_COLUMNS)
    write_manifest(folder)
    row_of_it = "| kl-1 | statement of kl-1 | slope of the KL |"
    assert (row_of_it in readme_of(published(folder))) == listed


SPENT = {"cpu_s": 1, "wall_s": 1, "peak_memory_mb": 1, "device": "cpu"}


@pytest.mark.parametrize("cost", [[], {**SPENT, "cpu_s": -5}, SPENT, {**SPENT, "finished": None}])
def test_a_damaged_cost_is_named(run, cost):
    write_json(next(run.glob("runs/*/*/cost.json")), cost)
    with pytest.raises(InputError, match=r"cost\.json.*allowed: "):
        published(run)


def test_a_lineage_of_no_module_of_a_paper_is_named(run):
    path = run / f"lineage/{FIGURE}.json"
    write_json(path, {**read_json(path), "module": "kl"})
    with pytest.raises(InputError, match=r"kl_vs_depth\.json: module: found 'kl'"):
        published(run)


def test_a_partial_publication_says_what_waits_for_what(run):
    more = {"files": ["stl10"], "conditions": ["he-d4-w8", "he-d4-w16"]}
    width = waits("kl_vs_width", "Fig. 2c", runs=9, there=1, cpu_hours=3.0, **more)
    target = published(run, waiting=[width, waits("sgld_utility", "Thm 4.1")])
    text = readme_of(target)
    words = "about 3.0 h of CPU; files: stl10; for he-d4-w8, he-d4-w16"
    assert f"| kl_vs_width | Fig. 2c | 1 of 9 | {words} |" in text
    assert "a complete run" not in text and "## What waits" in text
    (waiting,) = read_json(target / "manifest.json")["waiting"]
    assert waiting["name"] == width["name"]
    named = module.waits_for(width | {"gpu_hours": 2.0, "conditions": [*"abcdefghij"]})
    assert named == "about 2.0 h of a GPU; files: stl10; for a, b, c, d, e, f, g, h and 2 more"
    # Of a paper of which nothing is there.
    assert "| sgld_utility | Thm 4.1 |" in readme_of(target / "../dp_sgld")
    assert not (target / "../dp_sgld/claims.csv").exists()


def test_a_part_of_a_tier_waits_for_its_files_and_hours(tmp_path):
    config = validate({**read_tier("printed"), "partial": True})
    whole = Atlas(load_tier("printed"), tmp_path)
    with pytest.raises(InputError, match="partial: found no run"):
        Atlas(config, tmp_path)
    for path in whole.behind("kl_vs_epochs"):
        write_json(Path(path), {})
    asked = whole.groups["kl_privacy"]
    judged = json.loads(Atlas(config, tmp_path).claim_settings())["kl_privacy"]
    assert judged["groups"]["width"] == [] != judged["groups"]["epochs"]
    done, of = judged["waiting"]["width"]
    assert 0 < done < of == len(asked["width"]) and "epochs" not in judged["waiting"]
    with pytest.raises(NotRun, match=f"waits for runs: {done} of the {of} jobs of group width"):
        PaperRecords(judged, {"width": []}).group("width")
    assert "waiting" not in json.loads(whole.claim_settings())["kl_privacy"]
    waiting = {each["name"]: each for each in command.waiting_of(config, tmp_path)}
    assert set(whole.products) - set(waiting) == {"kl_vs_epochs"}
    width, lora = waiting["kl_vs_width"], waiting["lpfft_lora"]
    assert (width["runs"], width["there"]) == (4 * 4 * 6, 4 * 6)
    assert "he-d10-w512" in width["conditions"]
    assert lora["conditions"][0] == "deit-tiny-lora-noise0" and lora["gpu_hours"] > 1
    assert {"stl10", "weights of imagenet-deit-tiny"} >= {*lora["files"]}


def test_printed_rows_stand_beside_ours():
    ours = Estimate(8000.0, 50.0, 2.0, 3)
    pair = PrintedComparison("MNIST, kl", 8155, 37.5, "mnist, mlp", ours, 2, same_data=True)
    alone = PrintedComparison("MNIST, kl", 8155, 0, "mnist, mlp", ours, same_data=True)
    beyond = [replace(pair, printed=printed) for printed in (7000, 9000)]
    other = replace(pair, same_data=False)
    lines = printed_lines([pair, alone, *beyond, other], [], [])
    inside = [line.split(" | ")[3] for line in lines if line.startswith("| MNIST")]
    assert inside == ["yes", "yes", "no", "no", ""]
    row = "| MNIST, kl | 8155 | 8000 (7785 to 8215) | yes | {} | 3 | mnist, mlp |"
    assert row.format("-155 (-334 to 24)") in lines
    assert row.format("no spread is printed") in lines
    assert row.format("").replace("yes", "") in lines


# A statistical claim of what a paper's text says, and a comparison of it.
CLAIM = {"claim": "kl-4b", "statement": "KL rises", "kind": "statistical", "place": "Fig. 2"}
COMPARED = {
    **{"claim": "kl-4b", "comparison": "slope", "observed": "1.5", "low": "1", "high": "2"},
    **{"above": "0", "below": "", "level": "0.95", "runs": "6"},
}


@pytest.mark.parametrize(
    ("level", "said"),
    [(0.95, "95.00%"), (0.99964286, "99.964%"), (0.99999996, "99.9999960%"), (1.0, "100.00%")],
)
def test_no_level_below_1_is_shown_as_1(level, said):
    assert f"| {said} |" in printed_lines([], [CLAIM], [COMPARED | {"level": f"{level:.10g}"}])[-2]


@pytest.mark.parametrize(
    ("low", "high", "above", "below", "said"),
    [
        ("1", "2", "0", "", "as claimed"),
        ("-1", "2", "0", "", "both sides"),
        ("-2", "-1", "0", "", "opposite"),
        ("1", "2", "0.5", "1.5", "both sides"),
        ("2", "3", "0.5", "1.5", "opposite"),
    ],
)
def test_what_the_text_says_is_on_one_side_of_the_interval_or_on_both(
    low, high, above, below, said
):
    row = COMPARED | {"low": low, "high": high, "above": above, "below": below}
    identity = row | {"claim": "kl-4a"}
    lines = printed_lines([], [CLAIM], [row, identity])
    (line,) = (line for line in lines if line.startswith("| kl-4"))
    assert line.startswith("| kl-4b | KL rises | slope |") and line.endswith(f"| {said} |")


def test_a_claim_of_our_own_is_not_told_as_what_the_text_says():
    ours = CLAIM | {"place": "ours (Table 1 prints a fall)"}
    assert printed_lines([], [ours], [COMPARED]) == []
    assert any("KL rises" in line for line in printed_lines([], [CLAIM], [COMPARED]))


@pytest.mark.parametrize("fails", ["writing a file", "taking the place of the old folder"])
def test_a_failed_publication_keeps_what_was_published(run, monkeypatch, fails):
    target = published(run)
    before = {name: (target / name).read_bytes() for name in names(target)}
    rename = Path.rename

    def full(path, content):
        raise OSError("No space left on device")

    def refuse(path, to):
        return full(path, to) if path.name == "fresh" else rename(path, to)

    if fails == "writing a file":
        monkeypatch.setattr(module, "write_atomic", full)
    else:
        monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="No space"):
        published(run)
    assert {name: (target / name).read_bytes() for name in names(target)} == before
    assert [path.name for path in target.parents[1].iterdir()] == ["embedded"]


def test_smoke_is_refused(tmp_path, refusal_of):
    said = refusal_of(command.main, "--tier", "smoke", "--docs", tmp_path / "docs")
    assert "smoke, whose numbers mean nothing" in said
    assert not (tmp_path / "docs").exists()


def test_the_config_saved_beside_a_run_says_what_it_should_hold(tmp_path):
    config = load_config(changes={"tier": "mine"})
    write_json(tmp_path / "mine" / "config.json", config.plain())
    assert command.config_of("mine", tmp_path) == config
    assert command.config_of("embedded", tmp_path) == load_tier("embedded")


def audit_run(run):
    """The same tier with another block: a run of one record, one table and its claims."""
    spec = Spec.of({"key": "audit", "kind": "mechanism", "seed": 0}, "attack")
    shutil.rmtree(run)
    record = write_run(run, spec, data=None)
    write_product(run, "table", "audit", [record])
    claims = "claim,paper,verdict,statement,evidence,level\n"
    claims += "kl-1,kl_privacy,not run at this tier,It grows.,,\n"
    claims += "audit-1,audit,reproduced,It leaks.,tables/audit.md,\n"
    write_atomic(run / "claims.csv", claims)
    write_atomic(run / "comparisons.csv", "claim,comparison,outlying\naudit-1,gap,0\n")
    write_manifest(run)
    return published(run, {"tables/audit": (spec.id,)}, commit="def").parent


def as_before(target):
    """The tier in the layout of before publications were by paper."""
    tier = target.parent
    for path in [*tier.iterdir()]:
        if path != target:
            path.unlink()
    for path in [*target.iterdir()]:
        path.rename(tier / path.name)
    target.rmdir()
    manifest = read_json(tier / "manifest.json")
    del manifest["block"]
    kept = {FIGURE: "older", "gone": "older"}
    read_again = {"commit": "abc", "judged": ["kl-2", "sgld-1"], "withdrawn": []}
    write_json(tier / "manifest.json", manifest | {"kept": kept, "read_again": read_again})


@pytest.mark.parametrize("old", [False, True])
def test_a_paper_that_is_no_part_of_the_run_stays_as_it_was_published(run, old, capsys):
    target = published(run)
    before = {path.relative_to(target): path.read_bytes() for path in target.rglob("*.*")}
    if old:
        as_before(target)
        assert verify.main([str(target.parent)]) == 0
    tier = audit_run(run)
    changed = {"README.md", "manifest.json"} if old else set()
    for path, content in before.items():
        assert path.name in changed or (target / path).read_bytes() == content
    manifests = [read_json(tier / key / "manifest.json") for key in ("kl_privacy", "audit")]
    assert [each["commit"] for each in manifests] == ["abc", "def"]
    assert [set(each["products"]) for each in manifests] == [{FIGURE, TABLE}, {"audit"}]
    assert set(manifests[0]["records"]) == {*IDS}
    if old:
        assert manifests[0]["kept"] == {FIGURE: "older"}
        text = readme_of(target)
        assert f"Kept from earlier publications, as that run has not made them: {FIGURE}." in text
        assert "without the records. Judged again by the published runs: kl-2." in text
    assert lineage.trace(target / "figures" / f"{FIGURE}.png")["as_made"]
    assert verify.main([str(tier)]) == 0


def test_beside_the_papers_stands_what_they_say_together(run, capsys):
    published(run)
    tier = audit_run(run)
    rows = read_rows(tier / "claims.csv")
    verdicts = {"kl-1": "reproduced", "kl-2": "inconclusive", "audit-1": "reproduced"}
    assert {row["claim"]: row["verdict"] for row in rows} == verdicts
    check_files(tier, rows[2:])
    compared = (tier / "comparisons.csv").read_text().splitlines()
    # A column that one of them does not have is empty.
    assert compared == ["claim,comparison,outlying", "kl-1,slope,", "kl-2,slope,", "audit-1,gap,0"]
    text = readme_of(tier)
    assert "| [audit](audit/README.md) | 1 | 0 | 1 reproduced | none |" in text
    traced = lineage.find(str(tier), run.parent, "embedded")
    assert {product["name"] for product in traced["products"]} == {FIGURE, TABLE, "audit"}
    assert len(traced["records"]) == 3 and traced["tier"] == "embedded"
    for name in (FIGURE, IDS[0], "audit-1"):
        assert lineage.find(name, tier.parent, "embedded")["tier"] == "embedded"
    # Of one paper.
    one = lineage.find(str(tier / "kl_privacy"), run.parent, "embedded")
    assert (one["tier"], len(one["products"]), len(one["claims"])) == ("embedded", 2, 2)
    assert one["records"][0]["tier"] == "embedded"
    (tier / "claims.csv").write_text("edited")
    (tier / "audit/tables/audit.md").unlink()
    write_atomic(tier / "figures/mine.png", "mine")
    assert verify.main([str(tier)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "audit/tables/audit.md: missing",
        "claims.csv: not what the papers have together",
        "figures/mine.png: of no paper",
    ]


def test_a_figure_that_was_drawn_again_from_its_csv_says_so(run):
    manifest = read_json(published(run) / "manifest.json")
    manifest["products"][FIGURE]["redrawn"] = {"from": [f"figures/{FIGURE}.csv"], "why": "its axis"}
    text = module.readme(manifest, run.parents[1] / "docs/embedded/kl_privacy")
    assert "\nDrawn again from its csv: its axis.\n" in text


def test_a_partial_run_takes_nothing_away_that_is_published(run):
    """So a tier is run a figure at a time."""
    target = published(run)
    table = {f"tables/{TABLE}": IDS[:1]}
    lacks = f"kl_privacy: found {FIGURE}, of which this partial run lacks records; allowed: records"
    with pytest.raises(InputError, match=lacks):
        published(run, table, [waits(FIGURE)], "def")
    # Of a paper of which it has nothing it says nothing.
    published(run, {}, [waits(FIGURE), waits(TABLE)], "def")
    assert read_json(target / "manifest.json")["commit"] == "abc"
    published(run, waiting=[waits("kl_bounds")], commit="def")
    assert read_json(target / "manifest.json")["commit"] == "def"
    # A complete run says all that there is to say of its papers.
    published(run, table)
    assert FIGURE not in read_json(target / "manifest.json")["products"]


def test_an_edited_publication_is_not_carried_on(run):
    (published(run) / "figures" / f"{FIGURE}.png").write_text("edited")
    with pytest.raises(InputError, match=f"{FIGURE}.png: found other content"):
        audit_run(run)


def test_all_published_tiers_come_on_the_same_pages_of_links_that_lead_somewhere(run):
    for tier in ("embedded", "workstation"):
        folder = small_run(run.parent, tier, data=None)
        write_claims(folder / "claims.csv", [row("kl-1", evidence=f"figures/{FIGURE}.png")])
        write_claims(folder / "comparisons.csv", [compared("kl-1")], COMPARISON_COLUMNS)
        write_manifest(folder)
        published(folder)
    page = write_site(run.parents[1] / "docs").with_name("kl_privacy.html")
    text = page.read_text()
    links = re.findall(r'href="(?!data:|https:)([^"#]+)', text)
    assert f"docs/embedded/kl_privacy/figures/{FIGURE}.png" in links
    assert f"docs/workstation/kl_privacy/figures/{FIGURE}.png" in links
    assert all((page.parent / link).is_file() for link in links)
    assert text.count('<script type="application/gzip">') == 2
    assert "<summary>Tier workstation</summary>" in text
    assert text.count('class="forest') == 2


def test_without_a_published_tier_there_is_no_page(tmp_path):
    with pytest.raises(InputError, match="no published tier"):
        write_site(tmp_path)


def test_a_tier_that_there_is_not_is_answered_with_those_that_have_results(tmp_path):
    write_json(tmp_path / "mine/config.json", {})
    with pytest.raises(InputError, match=f"'nosuch'; allowed: one with results in {tmp_path}: mi"):
        command.config_of("nosuch", tmp_path)
    with pytest.raises(InputError, match="allowed: one that ships with the project: embedded"):
        command.config_of("nosuch", tmp_path / "none")
    write_json(tmp_path / "mine/config.json", load_tier("smoke").plain())
    with pytest.raises(InputError, match=r"config\.json: found tier smoke; allowed: mine"):
        command.config_of("mine", tmp_path)
