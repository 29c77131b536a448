import json

import pytest
from dpatlas.report.differences_text import describe_comparison
from dpatlas.report.lineage_text import describe
from small_run import CODE_NOW, DATA, FIGURE, TABLE, small_run, spec_of, write_run

from dpatlas.commands import explain
from dpatlas.core.files import read_json, write_json
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError, run_command
from dpatlas.report import lineage
from dpatlas.report.differences import compare
from dpatlas.report.lineage import trace


@pytest.fixture(autouse=True)
def code_on_disk(monkeypatch):
    monkeypatch.setattr(lineage, "digest_now", lambda module: CODE_NOW)


def explained(result) -> list[tuple[str, str | None]]:
    return [(each["what"], each["name"]) for each in result["differences"]]


@pytest.mark.parametrize("suffix", ["pdf", "png", "svg", "csv"])
def test_every_file_of_a_figure_leads_to_its_records(tmp_path, suffix):
    folder = small_run(tmp_path / "results")
    found = trace(folder / "figures" / f"{FIGURE}.{suffix}")
    assert (found["kind"], found["tier"], found["as_made"]) == ("figure", "embedded", True)
    assert found["command"] == f"snakemake --cores 1 {FIGURE}"
    assert [record["spec"]["depth"] for record in found["records"]] == [2, 4]
    assert all(record["as_used"] and record["code_unchanged"] for record in found["records"])


def test_a_record_file_its_folder_and_its_cost_are_the_same_question(tmp_path):
    record = write_run(tmp_path / "results" / "embedded", spec_of())
    traces = [trace(path) for path in (record, record.parent, record.with_name("cost.json"))]
    assert traces[0] == traces[1] == traces[2]
    assert traces[0]["command"] == (
        f"snakemake --cores 1 results/embedded/runs/kl_privacy/{spec_of().id}/record.json"
    )
    assert traces[0]["cost"]["cpu_s"] == 7.0


def test_a_record_leads_to_the_features_it_was_trained_on(tmp_path):
    made = {"id": "digits-1-net-2", "sha256": "a" * 64, "device": "cpu"}
    record = write_run(tmp_path / "results" / "embedded", spec_of(), metrics={"features": made})
    found = trace(record)
    manifest = tmp_path / "results/embedded/features/digits-1-net-2/manifest.json"
    assert found["features"] == {**made, "manifest": str(manifest)}
    assert "features  digits-1-net-2, sha256 aaaaaaaaaaaa, on cpu" in describe(found)
    assert str(manifest) in describe(found, full=True)
    # A backbone's own record counts its features.
    other = write_run(tmp_path / "results" / "embedded", spec_of(), metrics={"features": 128})
    assert trace(other)["features"] is None


def test_a_tier_of_ones_own_is_remade_from_its_saved_config(tmp_path):
    folder = small_run(tmp_path / "results", tier="mine")
    command = trace(folder / "tables" / f"{TABLE}.md")["command"]
    assert command == f"snakemake --cores 1 {TABLE} --configfile results/mine/config.json"


def test_an_edited_file_and_a_replaced_record_are_named(tmp_path):
    folder = small_run(tmp_path / "results")
    figure = folder / "figures" / f"{FIGURE}.csv"
    figure.write_text("edited")
    write_run(folder, spec_of(depth=4), metrics={"kl": None})
    found = trace(figure)
    assert found["as_made"] is False
    assert [record["as_used"] for record in found["records"]] == [True, False]
    text = describe(found)
    assert "CHANGED since it was made" in text
    assert f"1 as used, 1 CHANGED since ({spec_of(depth=4).id})" in text


def test_code_that_differs_from_the_disk_is_said(tmp_path, monkeypatch):
    record = write_run(tmp_path / "results" / "embedded", spec_of())
    monkeypatch.setattr(lineage, "digest_now", lambda module: "0" * 16)
    found = trace(record)
    assert found["code_unchanged"] is False
    assert f"{CODE_NOW}, CHANGED since: now {'0' * 16}" in " ".join(describe(found).split())


def test_records_that_share_everything_are_told_once(tmp_path):
    folder = small_run(tmp_path / "results")
    text = describe(trace(folder / "figures" / f"{FIGURE}.pdf"))
    assert text.count(DATA["sha256"][:12]) == 1
    assert text.count("torch 2.15.0") == 1
    assert "2 records of kl_privacy, training" in text
    assert "wall 16 s, CPU 14 s" in text


def test_a_record_that_is_gone_is_told_from_the_lineage(tmp_path):
    folder = small_run(tmp_path / "results")
    gone = folder / "runs" / "kl_privacy" / spec_of(depth=4).id
    digest = lineage.file_sha256(gone / "record.json")
    (gone / "record.json").unlink()
    found = trace(folder / "figures" / f"{FIGURE}.pdf")
    assert [record["present"] for record in found["records"]] == [True, False]
    assert f"not here, sha256 {digest[:12]}" in describe(found)


@pytest.mark.parametrize(
    "path",
    [
        "nothing.pdf",
        "results",
        "results/embedded/claims.csv",
        "stray.pdf",
        "stray.json",
        "torn.json",
    ],
)
def test_a_path_that_no_run_accounts_for_is_one_line_and_exit_2(
    tmp_path, monkeypatch, capsys, path
):
    small_run(tmp_path / "results")
    (tmp_path / "stray.pdf").write_text("x")
    (tmp_path / "stray.json").write_text("[1]")
    (tmp_path / "torn.json").write_text('{"id": ')
    monkeypatch.chdir(tmp_path)
    assert run_command(explain.main, [path]) == 2
    captured = capsys.readouterr()
    assert path in captured.err
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""


def test_causes_come_before_what_they_led_to(tmp_path):
    old = write_run(tmp_path / "a", spec_of())
    new = write_run(
        tmp_path / "b",
        spec_of(lr=0.1),
        code_digest="f" * 16,
        versions={"python": "3.12.1", "torch": "2.15.0"},
        device="cuda",
        seeds={"base": 1, "runs": 2},
        data=DATA | {"sha256": "e" * 64},
        metrics={"kl": {"worst": [0.5, 1.25]}},
    )
    result = compare(trace(old), trace(new))
    assert explained(result) == [
        ("spec", "lr"),
        ("data", "sha256"),
        ("code", "dpatlas.papers.kl_privacy.jobs.training"),
        ("versions", "python"),
        ("device", None),
        ("seeds", "base"),
        ("metrics", "kl.worst"),
        ("bytes", "record.json"),
    ]
    metrics = result["differences"][-2]
    assert (metrics["changed"], metrics["values"]) == (1, 2)
    assert metrics["largest_relative"] == pytest.approx(0.2)
    assert "on disk now: the old one" in describe_comparison(result)


def test_equal_records_are_the_same(tmp_path):
    paths = [write_run(tmp_path / name, spec_of()) for name in ("a", "b")]
    result = compare(*map(trace, paths))
    assert result["same"]
    assert (result["first_cause"], result["metrics"]) == (None, "same")
    assert describe_comparison(result).startswith("no difference")


def test_a_change_in_all_records_of_a_figure_is_told_once(tmp_path):
    old = small_run(tmp_path / "a" / "results")
    new = small_run(tmp_path / "b" / "results", text="new", data=DATA | {"sha256": "e" * 64})
    result = compare(*(trace(each / "figures" / f"{FIGURE}.pdf") for each in (old, new)))
    (data,) = (each for each in result["records"]["in_both"] if each["what"] == "data")
    assert data["ids"] == [spec_of(depth=2).id, spec_of(depth=4).id]
    assert explained(result) == [("bytes", f".{kind}") for kind in ("csv", "pdf", "png", "svg")]


def test_a_changed_spec_pairs_by_slug_and_a_new_one_stands_alone(tmp_path):
    folders = [small_run(tmp_path / name / "results") for name in ("a", "b")]
    path = folders[1] / "lineage" / f"{FIGURE}.json"
    content = read_json(path)
    content["records"] = {}
    for spec in (spec_of(depth=2, lr=0.5), spec_of(depth=4), spec_of(depth=6)):
        record = write_run(folders[1], spec)
        place = record.relative_to(folders[1]).as_posix()
        content["records"][spec.id] = {"path": place, "sha256": lineage.file_sha256(record)}
    write_json(path, content)
    result = compare(*(trace(each / "figures" / f"{FIGURE}.pdf") for each in folders))
    records = result["records"]
    assert (records["only_old"], records["only_new"]) == ([], [spec_of(depth=6).id])
    assert [(each["what"], each["name"]) for each in records["in_both"]] == [
        ("spec", "lr"),
        ("bytes", "record.json"),
    ]


def test_a_record_does_not_compare_with_a_figure(tmp_path):
    folder = small_run(tmp_path / "results")
    figure = trace(folder / "figures" / f"{FIGURE}.pdf")
    with pytest.raises(InputError, match="a figure and a record"):
        compare(figure, figure["records"][0])


def test_the_command_prints_json_and_ends_with_0_when_things_differ(tmp_path, capsys):
    paths = [str(write_run(tmp_path / "r", spec_of(depth=depth))) for depth in (2, 4)]
    assert run_command(explain.main, [*paths, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert not result["same"]
    assert result["differences"][0] == {"what": "spec", "name": "depth", "old": 2, "new": 4}


def test_a_record_without_a_data_set_says_so_and_its_ledger_reads_without_brackets(tmp_path):
    ledger = {
        "mechanism": "DP-SGD",
        "epsilon": 1.5,
        "claimed": {"epsilon": 1.0, "delta": 1e-5, "by": "a paper"},
    }
    fields = {"key": "audit", "kind": "mechanism", "mechanism": "dp-sgd-poisson"}
    spec = Spec.of(fields, "dp-sgd-poisson")
    path = write_run(tmp_path / "results" / "smoke", spec, data=None, ledger=ledger)
    text = describe(trace(path), full=True)
    assert "no data set" in text
    assert "claimed: by a paper, delta 1e-05, epsilon 1" in text
    assert compare(trace(path), trace(path))["same"]
