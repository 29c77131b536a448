"""`python -m dpatlas explain` as users meet it: every kind of target, mistakes, first causes."""

import json
import re
import shutil

import pytest
from small_run import CODE_NOW, DATA, FIGURE, TABLE, entries, small_run, spec_of, write_run

from dpatlas.base.files import read_json, write_atomic, write_json
from dpatlas.cli import dispatch
from dpatlas.errors import run_command
from dpatlas_workflow.commands import explain
from dpatlas_workflow.report import lineage
from dpatlas_workflow.report.differences import _verdict_differences, compare
from dpatlas_workflow.report.lineage import trace
from dpatlas_workflow.report.text import describe, describe_comparison

pytestmark = pytest.mark.usefixtures("code_as_made")
DATA_ID, FEATURES_ID = "digits-aa", "digits-aa-net-bb"
# The keys of a trace of each kind, as the module documents them.
SHAPES = {}
for entry in re.sub(r"\([^)]*\)", "", lineage.__doc__.partition("\n\nWhat ")[0]).split("\n- ")[1:]:
    kinds, keys = (re.findall(r"`(\w+)`", words) for words in entry.split(":", 1))
    SHAPES |= {kind: {"kind", "tier", "file", "command", *keys} for kind in kinds}
CLAIMS = f"""claim,paper,place,statement,kind,verdict,expected,observed,low,high,runs,evidence
kl-1a,kl_privacy,Sec. 5,Up.,statistical,reproduced,> 0,1.5,1.25,1.75,2,figures/{FIGURE}.pdf
kl-1,kl_privacy,Sec. 5,Up and down.,statistical,inconclusive,all,1 of 2,,,2,figures/{FIGURE}.pdf
kl-2,kl_privacy,Table 1,Other.,exact,reproduced,1,1,,,1,tables/{TABLE}.csv
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with results/embedded: records, a figure, a table, claims, data, features."""
    folder = small_run(tmp_path / "results")
    write_atomic(folder / "claims.csv", CLAIMS)
    source = {"kind": "package", "file": None, "checksum": "sha256:" + "5" * 64}
    data = {"sha256": "d" * 64, "name": "digits", "what": "digits", "source": source}
    data |= {"licence": "CC BY 4.0", "counts": {"train": {"3": 10, "8": 20}}, "schema_version": 1}
    write_json(folder / "data" / DATA_ID / "manifest.json", data | {"options": {"n_train": 30}})
    features = {"id": FEATURES_ID, "sha256": "f" * 64, "code_digest": CODE_NOW, "device": "cpu"}
    features |= {"data": {"id": DATA_ID, "sha256": "d" * 64}, "versions": {"torch": "2.15.0"}}
    features |= {"backbone": {"id": "net-bb", "sha256": "b" * 64}}
    features |= {"arrays": {"x_train": {"shape": [30, 128], "sha256": "1" * 64}}}
    write_json(folder / "features" / FEATURES_ID / "manifest.json", features)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def again(project):
    """The same results in another folder."""
    shutil.copytree("results", "again")
    return project / "again/embedded"


PAIR = ("results/embedded", "again/embedded")


def said(capsys, *words):
    """Exit code, and what was printed on the two streams."""
    code = run_command(explain.main, list(words))
    return code, *capsys.readouterr()


def shown(capsys, *words):
    """What is printed, where nothing is wrong."""
    code, out, _ = said(capsys, *words)
    assert code == 0
    return out


def of_figures(*folders):
    """How the figures of two results differ."""
    return compare(*(trace(folder / "figures" / f"{FIGURE}.pdf") for folder in folders))


def test_of_a_name_an_edited_file_is_told(project):
    folder = project / "results"
    assert lineage.find(FIGURE, folder, "embedded")["as_made"]
    path = folder / f"embedded/figures/{FIGURE}.png"
    path.write_text("edited")
    found = lineage.find(FIGURE, folder, "embedded")
    assert (found["file"], found["as_made"]) == (str(path), False)


def record_of(depth=2):
    return f"results/embedded/runs/kl_privacy/{spec_of(depth=depth).id}"


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (FIGURE, "figure"),
        (f"results/embedded/figures/{FIGURE}.png", "figure"),
        (TABLE, "table"),
        (spec_of(depth=2).id, "record"),
        (record_of(), "record"),
        (f"{record_of()}/cost.json", "record"),
        (DATA_ID, "data"),
        (f"results/embedded/features/{FEATURES_ID}/manifest.json", "features"),
        ("kl-1", "claim"),
        ("results/embedded", "run"),
    ],
)
def test_every_kind_of_target_has_its_documented_shape_and_fits_a_terminal(
    project, capsys, target, kind
):
    found = json.loads(shown(capsys, target, "--json"))
    assert (found["kind"], set(found)) == (kind, SHAPES[kind])
    assert set().union(*(found.get("records", ()))) <= SHAPES["record"]
    for flags in ((), ("--all",)):
        wide = [line for line in shown(capsys, target, *flags).splitlines() if len(line) > 80]
        # A name or a digest is never cut in two.
        assert [line for line in wide if len(line.split()) > 6] == []


@pytest.mark.parametrize(
    ("folder", "target", "claims"),
    [
        ("figures", f"{FIGURE}.csv", 2),
        ("tables", f"../figures/{FIGURE}.csv", 2),
        ("runs", f"../lineage/{FIGURE}.json", 2),
        ("runs/kl_privacy", f"../kl_privacy/{spec_of(depth=2).id}/record.json", 3),
    ],
)
def test_a_path_from_within_the_results_is_traced(
    project, capsys, monkeypatch, folder, target, claims
):
    monkeypatch.chdir(project / "results/embedded" / folder)
    assert len(json.loads(shown(capsys, target, "--json"))["claims"]) == claims


def test_a_tree_tells_in_short_all_that_made_a_figure(project, capsys):
    out = shown(capsys, FIGURE)
    words = " ".join(out.split())
    for part in (
        f"make snakemake --cores 1 {FIGURE}",
        f"dpatlas_workflow.papers.kl_privacy.figures.{FIGURE} {CODE_NOW}, as now",
        "claims 2 on it; reproduced: kl-1a; inconclusive: kl-1",
        "2 records of kl_privacy, training: as used",
        "varied depth 2 | 4",
        f"digits, sha256 {'d' * 12}, from package (sha256 {'5' * 12})",
        "guaranteed: nothing; claimed: a KL",
        "wall 16 s, CPU 14 s, peak memory 500 MB, on cpu",
    ):
        assert part in words
    assert len(out.splitlines()) < 30
    # What the records share is told once.
    assert out.count(DATA["sha256"][:12]) == out.count("torch 2.15.0") == 1


def test_many_records_of_a_kind_are_counted_and_all_are_named_on_request(project, capsys):
    folder = project / "results" / "embedded"
    path = folder / "lineage" / f"{FIGURE}.json"
    content = read_json(path)
    made = [write_run(folder, spec_of(depth=depth)) for depth in range(5, 12)]
    write_json(path, {**content, "records": content["records"] | entries(folder, made)})
    out = shown(capsys, FIGURE)
    assert "9 records of kl_privacy" in out and "--all leaves nothing out" in out
    assert spec_of(depth=9).id not in out
    out = shown(capsys, FIGURE, "--all")
    assert all(spec_of(depth=depth).id in out for depth in (2, 4, *range(5, 12)))
    assert "--all" not in out


@pytest.mark.parametrize(
    ("target", "users", "claims"),
    [
        (spec_of(depth=2).id, {FIGURE, TABLE}, {"kl-1a", "kl-1", "kl-2"}),
        (DATA_ID, {FEATURES_ID, spec_of(depth=2).id, spec_of(depth=4).id}, set()),
    ],
)
def test_what_was_used_names_its_users_and_a_record_the_claims_on_it(
    project, capsys, target, users, claims
):
    found = json.loads(shown(capsys, target, "--json"))
    assert set(found["used_by"]) == users
    assert {each["claim"] for each in found["claims"]} == claims


def test_a_claim_says_why_it_is_not_reproduced_and_has_the_runs_that_decide(project, capsys):
    claims = "claim,paper,kind,verdict,expected,observed,low,high,runs,evidence,because,margin\n"
    claims += f"kl-2,kl_privacy,statistical,not reproduced,< 0,.02,-.09,.13,12,tables/{TABLE}.csv,"
    claims += "the effect is at most the margin,0.173\n"
    write_atomic(project / "results/embedded/claims.csv", claims)
    rows = "claim,comparison,decides,values\nkl-2,one,,7 8\nkl-2,two,1,0.25 0.123456 | -1 2\n"
    write_atomic(project / "results/embedded/comparisons.csv", rows)
    out = shown(capsys, "kl-2")
    assert "because the effect is at most the margin; margin 0.173" in " ".join(out.split())
    assert "\n  runs      0.25 0.1235 | -1 2\n" in out
    compared = json.loads(shown(capsys, "kl-2", "--json"))["compared"]
    assert [each["comparison"] for each in compared] == ["one", "two"]


def test_a_whole_run_has_all_its_claims_also_those_that_wait_for_their_figures(project, capsys):
    waits = "kl-7,kl_privacy,Sec. 7,Waits.,exact,not run at this tier,1,,,,0,\n"
    write_atomic(project / "results/embedded/claims.csv", CLAIMS + waits)
    found = json.loads(shown(capsys, "results/embedded", "--json"))
    assert [each["claim"] for each in found["claims"]] == ["kl-1a", "kl-1", "kl-2", "kl-7"]
    ids = sorted(spec_of(depth=depth).id for depth in (2, 4))
    assert sorted(record["id"] for record in found["records"]) == ids
    assert "4 in all" in shown(capsys, "results/embedded")


def test_a_backbone_is_traced_from_its_record_its_folder_and_its_weights(project, capsys):
    record = write_run(project / "results" / "embedded", spec_of(depth=8))
    folder = record.parent / "backbone"
    manifest = {"architecture": "mlp", "features": 128, "parameters": 9, "sha256": "b" * 64}
    write_json(folder / "manifest.json", manifest)
    (folder / "weights.npz").write_bytes(b"weights")
    targets = (record.parent, folder, folder / "weights.npz", folder / "manifest.json")
    (answer,) = {shown(capsys, str(target), "--json") for target in targets}
    found = json.loads(answer)
    assert found["extra"]["weights"] == manifest
    assert FEATURES_ID in found["used_by"]


def test_claim_10_is_no_part_of_claim_1_and_rests_on_each_of_its_products(project):
    folder = project / "results"
    both = f"tables/{TABLE}.csv;figures/{FIGURE}.pdf"
    more = f"kl-10,kl_privacy,Sec. 6,Both.,exact,reproduced,1,1,,,1,{both}\n"
    write_atomic(folder / "embedded/claims.csv", CLAIMS + more)
    rows = "claim,comparison,decides,values\nkl-1,one,1,\nkl-1a,two,1,\nkl-10,three,1,\n"
    write_atomic(folder / "embedded/comparisons.csv", rows)
    first, tenth = (lineage.find(name, folder, "embedded") for name in ("kl-1", "kl-10"))
    assert [part["claim"] for part in first["parts"]] == ["kl-1a"]
    assert first["products"][0]["as_made"] and len(first["records"]) == 2
    assert [row["comparison"] for row in first["compared"]] == ["one"]
    assert len(tenth["products"]) == len(tenth["records"]) == 2
    for name in (FIGURE, TABLE):
        on_it = lineage.find(name, folder, "embedded")["claims"]
        assert "kl-10" in [each["claim"] for each in on_it]


@pytest.mark.usefixtures("again")
def test_a_claim_judged_by_another_margin_asks_another_question(project):
    head, *rows = CLAIMS.splitlines()
    found = []
    for folder, margin in zip(PAIR, (0.1, 0.2), strict=True):
        text = "\n".join([f"{head},margin", *(f"{row},{margin}" for row in rows), ""])
        write_atomic(project / folder / "claims.csv", text)
        found.append(lineage.find("kl-1a", (project / folder).parent, "embedded"))
    cause = compare(*found)["first_cause"]
    assert (cause["name"], cause["old"], cause["new"]) == ("margin", "0.1", "0.2")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["kl_vs_dept"], FIGURE),
        ([f"results/embedded/figures/{FIGURE}.pfd"], f"{FIGURE}.pdf"),
        ([FIGURE, "--tier", "other"], "--tier embedded"),
        (["kl-1", "--results", "results/embedded"], "--results results --tier embedded"),
        ([FIGURE, "kl-1"], "a figure and a claim; allowed: two records"),
        (["results/embedded/claims.csv"], "no lineage of claims beside it"),
        (["stray.pdf"], "stray.pdf"),
        (["torn.json"], "torn.json"),
    ],
)
def test_a_mistake_is_one_line_with_what_comes_near_and_exit_2(project, refusal_of, words, named):
    for stray, text in (("stray.pdf", "x"), ("torn.json", '{"id": ')):
        (project / stray).write_text(text)
    assert named in refusal_of(explain.main, *words)


@pytest.mark.parametrize("words", [["x" * 5000], [FIGURE, "--tier", "x" * 5000]])
def test_a_name_too_long_for_a_file_is_one_line_and_exit_2(refusal_of, words):
    line = refusal_of(dispatch, "explain", *words)
    assert "found too long a name" in line and len(line) < 500


def test_before_the_verdicts_a_claim_is_named_with_the_command_that_makes_them(project, capsys):
    (project / "results/embedded/claims.csv").unlink()
    code, _, err = said(capsys, "sgld-1")
    assert code == 2 and "claims have a name after snakemake --cores 1 claims" in err


CHANGES = {
    "spec": {"lr": 0.1},
    "data": {"data": {"name": "digits", "sha256": "e" * 64, "source": {"kind": "package"}}},
    "features": {"metrics": {"kl": 1.0, "features": {"id": "f", "sha256": "9" * 64}}},
    "backbone": {"metrics": {"kl": 1.0, "backbone": {"id": "b", "sha256": "9" * 64}}},
    "code": {"code_digest": "f" * 16},
    "versions": {"versions": {"python": "3.11.7", "torch": "2.16.0"}},
    "device": {"device": "cuda"},
    "machine": {"cost": {"processor": "Some CPU, avx512f"}},
    "unexplained": {},
}
BEFORE = {"features": {"id": "f", "sha256": "8" * 64}, "backbone": {"id": "b", "sha256": "8" * 64}}


@pytest.mark.parametrize("cause", CHANGES)
def test_each_cause_is_named_in_the_first_line_and_comes_before_all_later_ones(
    tmp_path, capsys, cause
):
    order = list(CHANGES)
    later = order[order.index(cause) :]
    fields, inputs = {}, dict(BEFORE)
    for name in later:
        change = dict(CHANGES[name])
        inputs |= {k: v for k, v in change.pop("metrics", {}).items() if k in BEFORE}
        fields |= change
    spec = spec_of(**({"lr": fields.pop("lr")} if "lr" in fields else {}))
    old = write_run(tmp_path / "a", spec_of(), metrics={"kl": [1.0, 2.0], **BEFORE})
    new = write_run(tmp_path / "b", spec, metrics={"kl": [1.0, 3.0], **inputs}, **fields)
    out = shown(capsys, str(old), str(new))
    assert out.startswith(f"first cause: {cause}")
    words = "kl: 1 of 2 values differ, by up to 0.33 of the larger; the first 2 -> 3"
    assert words in " ".join(out.split())
    result = json.loads(shown(capsys, str(old), str(new), "--json"))
    keys = {"old", "new", "same", "tolerance", "first_cause", "metrics", "differences"}
    assert set(result) == keys
    assert (result["first_cause"]["what"], result["metrics"]) == (cause, "differ")
    assert result["first_cause"] == result["differences"][0]


def test_equal_bytes_from_two_machines_do_not_differ(tmp_path, capsys):
    old = write_run(tmp_path / "a", spec_of())
    new = write_run(tmp_path / "b", spec_of(), cost={"host": "another", "processor": "another"})
    assert shown(capsys, str(old), str(new)).startswith("no difference")
    result = compare(trace(old), trace(new))
    assert (result["same"], result["first_cause"], result["metrics"]) == (True, None, "same")


@pytest.mark.parametrize("target", [f"figures/{FIGURE}.pdf", ""])
def test_a_figure_and_a_whole_run_differ_for_the_cause_in_their_records(again, capsys, target):
    write_run(again, spec_of(depth=2), versions={"python": "3.11.7", "torch": "2.16.0"})
    write_run(again, spec_of(depth=4), metrics={"kl": {"worst": [0.5, 2.0]}})
    out = shown(capsys, *(f"{folder}/{target}" for folder in PAIR))
    assert out.startswith(f"first cause: versions torch: 2.15.0 -> 2.16.0 [{spec_of(depth=2).id}]")
    assert f"unexplained [{spec_of(depth=4).id}] (same inputs, different bits)" in out
    assert "kl.worst: 1 of 2 values differ" in out
    assert shown(capsys, *[f"results/embedded/{target}"] * 2).startswith("no difference")


def test_a_run_with_another_verdict_or_without_a_figure_says_so(again, capsys):
    write_atomic(again / "claims.csv", CLAIMS.replace("inconclusive", "reproduced"))
    assert "verdict kl-1: inconclusive -> reproduced" in shown(capsys, *PAIR)
    (again / "lineage" / f"{TABLE}.json").unlink()
    assert shown(capsys, *PAIR).startswith(f"first cause: products {TABLE}: there -> absent")


def test_two_runs_whose_verdicts_rest_on_other_numbers_differ(project, again, capsys):
    for folder in PAIR:
        write_atomic(project / folder / "comparisons.csv", "claim,comparison,low\nkl-1a,up,1.25\n")
    # The verdicts are the same; what is asked, or what was seen, is not.
    write_atomic(again / "claims.csv", CLAIMS.replace("1.5,1.25,1.75,2", "1.6,1.35,1.75,2"))
    out = shown(capsys, *PAIR)
    assert out.startswith("first cause: unexplained") and "claims kl-1a (observed, low)" in out
    result = json.loads(shown(capsys, *PAIR, "--json"))
    (claim,) = (each for each in result["differences"] if each["what"] == "claims")
    assert claim["columns"] == {"observed": ["1.5", "1.6"], "low": ["1.25", "1.35"]}
    write_atomic(again / "claims.csv", CLAIMS.replace("> 0", "> 1"))
    assert shown(capsys, *PAIR).startswith("first cause: criterion kl-1a (expected)")
    write_atomic(again / "claims.csv", CLAIMS)
    assert shown(capsys, *PAIR).startswith("no difference")
    write_atomic(again / "comparisons.csv", "claim,comparison,low\nkl-1a,up,1.2\n")
    assert "differ: comparisons.csv" in shown(capsys, *PAIR)


@pytest.mark.parametrize(
    ("old", "new", "criterion"),
    [
        # More entries share the error: all else is as it was.
        ("inconclusive,24,24,0.99963,2", "inconclusive,24,24,0.99964,2", ["level"]),
        # It has been refuted, whose intervals are of another level.
        ("inconclusive,24,24,0.99963,2", "not reproduced,48,48,0.99926,2", []),
        # Every run has comparisons of its own.
        ("not contradicted,12,12,0.99861,72", "not contradicted,96,96,0.99861,576", []),
    ],
)
def test_a_level_that_follows_from_the_runs_is_no_other_question(tmp_path, old, new, criterion):
    for name, cells in (("old", old), ("new", new)):
        text = f"claim,statement,verdict,runs,look,level,comparisons\nkl-8a,It is so.,{cells}\n"
        write_atomic(tmp_path / name / "claims.csv", text)
    found = _verdict_differences(tmp_path / "old", tmp_path / "new")
    asked = [name for each in found if each["what"] == "criterion" for name in each["columns"]]
    assert asked == criterion


def test_so_many_claims_that_differ_are_named_and_the_others_counted(project, again, capsys):
    row = CLAIMS.splitlines()[1]
    for folder, seen in zip(PAIR, ("1.5", "1.6"), strict=True):
        rows = [row.replace("kl-1a", f"kl-{n}").replace("1.5", seen) for n in range(11, 31)]
        write_atomic(project / folder / "claims.csv", CLAIMS + "\n".join([*rows, ""]))
    out = shown(capsys, *PAIR)
    assert out.count("claims kl-") == 8 and "and 12 more" in out
    assert shown(capsys, *PAIR, "--all").count("claims kl-") == 20


def test_a_record_leads_to_the_features_it_was_trained_on(tmp_path):
    made = {"id": "digits-1-net-2", "sha256": "a" * 64, "device": "cpu"}
    record = write_run(tmp_path / "results" / "embedded", spec_of(), metrics={"features": made})
    found = trace(record)
    manifest = tmp_path / "results/embedded/features/digits-1-net-2/manifest.json"
    assert found["features"] == {**made, "manifest": str(manifest)}
    assert "features  digits-1-net-2, sha256 aaaaaaaaaaaa, on cpu" in describe(found)
    # A backbone's own record counts its features.
    other = write_run(tmp_path / "results" / "embedded", spec_of(), metrics={"features": 128})
    assert trace(other)["features"] is None


def test_a_tier_of_ones_own_is_remade_from_its_saved_config(tmp_path):
    folder = small_run(tmp_path / "results", tier="mine")
    command = trace(folder / "tables" / f"{TABLE}.md")["command"]
    assert command == f"snakemake --cores 1 {TABLE} --configfile results/mine/config.json"


def test_a_change_in_all_records_of_a_figure_is_told_once(tmp_path):
    old = small_run(tmp_path / "a" / "results")
    new = small_run(tmp_path / "b" / "results", text="new", data=DATA | {"sha256": "e" * 64})
    result = of_figures(old, new)
    (data,) = (each for each in result["records"]["in_both"] if each["what"] == "data")
    assert data["ids"] == [spec_of(depth=2).id, spec_of(depth=4).id]
    assert {each["what"] for each in result["differences"]} == {"bytes"}


def test_equal_bytes_are_said_of_what_both_have(tmp_path):
    folders = [small_run(tmp_path / name / "results") for name in ("a", "b")]
    path = folders[1] / "lineage" / f"{FIGURE}.json"
    write_json(path, {**read_json(path), "settings": {"other": 1}})
    result = of_figures(*folders)
    assert not [each for each in result["differences"] if each["what"] == "bytes"]
    assert "every output that both have is the same" in describe_comparison(result)


def test_without_the_records_nothing_is_said_of_their_metrics(project, again):
    shutil.rmtree(again / "runs")
    assert of_figures(project / PAIR[0], again)["metrics"] == "unknown"


@pytest.mark.parametrize(("tolerance", "first"), [("1e-9", ""), ("1e-17", "unexplained")])
@pytest.mark.usefixtures("again")
def test_numbers_that_differ_by_rounding_alone_are_explained(project, capsys, tolerance, first):
    name = spec_of(depth=2).id
    for folder, low in zip(PAIR, ("0.1", "0.10000000000000002"), strict=True):
        write_run(project / folder, spec_of(depth=2), metrics={"kl": float(low)})
        write_atomic(project / folder / "comparisons.csv", f"claim,values\nkl-1,{low} | 2\n")
    out = shown(capsys, *PAIR, "--tolerance", tolerance)
    assert out.startswith(f"first cause: {first}" if first else "no difference beyond a relative")
    said_of = " ".join(out.split())
    assert f"record.json [{name}] by up to 1.4e-16 of the larger" in said_of
    assert "comparisons.csv by up to 1.4e-16 of the larger" in said_of


def test_how_far_values_differ_is_not_said_where_one_is_no_number(tmp_path):
    old = write_run(tmp_path / "a", spec_of(), metrics={"kl": [1.0, 2.0]})
    new = write_run(tmp_path / "b", spec_of(), metrics={"kl": [1.5, None]})
    differences = compare(trace(old), trace(new))["differences"]
    (kl,) = (each for each in differences if each["name"] == "kl")
    assert (kl["changed"], kl["largest_relative"]) == (2, None)


def test_a_changed_spec_pairs_by_slug_and_a_new_one_stands_alone(tmp_path):
    folders = [small_run(tmp_path / name / "results") for name in ("a", "b")]
    path = folders[1] / "lineage" / f"{FIGURE}.json"
    content = read_json(path)
    specs = (spec_of(depth=2, lr=0.5), spec_of(depth=4), spec_of(depth=6))
    made = [write_run(folders[1], spec) for spec in specs]
    write_json(path, {**content, "records": entries(folders[1], made)})
    records = of_figures(*folders)["records"]
    assert (records["only_old"], records["only_new"]) == ([], [spec_of(depth=6).id])
    in_both = [(each["what"], each["name"]) for each in records["in_both"]]
    assert in_both == [("spec", "lr"), ("bytes", "record.json")]


def test_a_published_record_is_explained_by_its_id_and_a_near_one_is_offered(capsys):
    published = ("--results", "docs/results")
    claim = shown(capsys, "kl-5b", *published)
    name = claim.split("e.g.")[1].split(",")[0].strip()
    out = shown(capsys, name, *published)
    assert out.startswith(f"{name}  (record of kl_privacy, tier embedded)")
    assert "which is not here" in out and "spec      depth" in out and "kl_vs_depth" in out
    code, _, err = said(capsys, name[:-1], *published)
    assert code == 2 and name in err


RECORD = f"runs/kl_privacy/{spec_of(depth=2).id}/record.json"
COST = RECORD.replace("record.json", "cost.json")
LINEAGE = f"lineage/{FIGURE}.json"
FEATURES, DATA_SET = f"features/{FEATURES_ID}/manifest.json", f"data/{DATA_ID}/manifest.json"


@pytest.mark.parametrize(
    ("file", "fields", "value"),
    [
        (RECORD, ("data", "spec", "ledger", "seeds", "metrics"), "x"),
        (RECORD, ("seeds", "versions", "device", "id", "spec_digest"), []),
        (RECORD, ("ledger",), True),
        (RECORD, ("id",), {}),
        (RECORD, ("metrics",), 1),
        (COST, ("device",), 5),
        (LINEAGE, ("records",), []),
        (LINEAGE, ("outputs",), 1),
        (LINEAGE, ("settings", "versions"), "x"),
        (LINEAGE, ("module",), None),
        (FEATURES, ("data",), "x"),
        (DATA_SET, ("options",), 1),
    ],
)
def test_json_of_another_shape_is_one_line_that_names_file_and_field_and_exit_2(
    project, refusal_of, file, fields, value
):
    path = project / "results/embedded" / file
    whole = read_json(path)
    itself = [f"results/embedded/{RECORD if file == COST else file}"]
    others = [[FIGURE], ["kl-1a"], ["results/embedded"], ["results/embedded"] * 2]
    for field in fields:
        write_json(path, {**whole, field: value})
        for words in (itself, *others[: 0 if file in (FEATURES, DATA_SET) else None]):
            assert f"{file}: {field}: found" in refusal_of(explain.main, *words)
