"""The workflow as its users meet it: what runs, what runs again, and what stops it."""

import contextlib
import json

import chromium
import numpy as np
import pytest
import yaml
from checkouts import PROJECT, SMOKE, Checkout
from figure_samples import names_of
from runs_on_disk import files_of, pixels_of, said, start

from dpatlas.base.files import read_rows
from dpatlas.base.records import read_record
from dpatlas_workflow.config.atlas import KEYS, Atlas
from dpatlas_workflow.config.load import load_config

# What every change of a number makes anew.
LAST = ["claims", "manifest", "page"]
LIBRARY, SRC, STATEMENT = "src/dpatlas", "src/dpatlas_workflow", "EDITED = 1\n"
# A few, each of few runs.
FIGURES = ("kl_tradeoff", "sgld_utility", "maxinf_kappa")
pytestmark = [pytest.mark.smoke, pytest.mark.slow]


def smoke_atlas() -> Atlas:
    return Atlas(load_config([SMOKE]))


def jobs_of(key: str) -> dict[str, int]:
    """Jobs of the smoke tier per rule of a block."""
    return {f"{key}_{kind}": len(ids) for kind, ids in smoke_atlas().kinds(key).items()}


def with_config(checkout, change):
    """A config file that changes the smoke tier and keeps its name."""
    path = checkout.folder / "change.yaml"
    path.write_text(yaml.safe_dump({"tier": "smoke", **change}))
    return ("--configfile", SMOKE, "change.yaml")


def test_one_command_makes_every_output_of_the_contract(smoke):
    results, atlas = smoke.folder / "results/smoke", smoke_atlas()
    others = ("report/index.html", "claims.csv", "manifest.txt", "config.json")
    for product in (*atlas.product_files(), *others):
        assert (results / product).stat().st_size > 0
    for path in atlas.all_records():
        read_record(smoke.folder / path)
    verdicts = {row["verdict"] for row in read_rows(results / "claims.csv")}
    assert verdicts == {"not run at this tier"}
    assert not list(results.glob("checkpoints/**/*.npz"))
    covered = {line.split("  ")[1] for line in (results / "manifest.txt").read_text().splitlines()}
    assert covered > {f"figures/{name}.csv" for name in atlas.figures} | {"claims.csv"}


def test_the_whole_run_needs_no_network(smoke):
    if not smoke.offline:
        pytest.skip("no network namespace can be made here")
    code = "import socket; socket.create_connection(('127.0.0.1', 9), 2)"
    refused = smoke.python("-c", code)
    assert refused.returncode == 1
    assert "Network is unreachable" in refused.stderr or "Cannot assign" in refused.stderr
    names = smoke.python("-c", "import socket; print(*[name for _, name in socket.if_nameindex()])")
    assert names.stdout.split() == ["lo"]


def test_jobs_that_are_processes_on_one_core_give_the_same_bytes_as_forks_on_two(
    smoke, new_checkout
):
    """Every fifth kind of job and figures, as a user runs them: to the byte and to the pixel."""
    atlas = smoke_atlas()
    records = [
        atlas.record(ids[-1]) for key in KEYS for ids in list(atlas.kinds(key).values())[::5]
    ]
    alone = new_checkout("one-core")
    process = start(alone, 1, *records, *FIGURES, "--configfile", SMOKE)
    try:
        assert process.wait(timeout=3600) == 0, said(alone)[-3000:]
    finally:
        process.kill()
    forks, processes = files_of(smoke, "smoke"), files_of(alone, "smoke")
    made = {name for name in processes if name.startswith(("data/", "runs/", "figures/"))}
    assert {path.removeprefix(f"{atlas.folder}/") for path in records} < made
    assert {name for name in made if forks.get(name) != processes[name]} == set()
    shown, drawn = pixels_of(smoke, "smoke"), pixels_of(alone, "smoke")
    assert drawn.keys() == {f"{name}.png" for name in FIGURES}
    for name, pixels in drawn.items():
        assert np.array_equal(pixels, shown[name]), name


def test_a_run_is_what_its_manifest_says(smoke):
    result = smoke.python("-m", "dpatlas", "verify", "--tier", "smoke")
    assert result.returncode == 0, result.stdout + result.stderr
    command = "cd results/smoke && sha256sum --quiet -c manifest.txt"
    assert smoke.run("sh", "-c", command).returncode == 0


def test_a_partial_run_trains_nothing(smoke):
    """Also where the code of a job has changed since."""
    lost = smoke.folder / smoke_atlas().behind("kl_vs_width")[-1]
    code = smoke.folder / "src/dpatlas_workflow/papers/kl_privacy/jobs/training.py"
    kept = {path: path.read_bytes() for path in (lost, code)}
    lost.unlink()
    code.write_bytes(kept[code] + b"\n\nCHANGED = 1\n")
    try:
        partial = smoke.planned("--configfile", SMOKE, "--config", "tier=smoke", "partial=True")
    finally:
        for path, content in kept.items():
            path.write_bytes(content)
    assert set(partial) <= {*smoke_atlas().products, "claims", "manifest", "page"}
    assert {"claims", "page"} <= set(partial) and "kl_vs_width" not in partial


def test_one_more_depth_runs_one_new_job_per_init_and_what_depends_on_them(smoke):
    depths = load_config([SMOKE]).kl_privacy.depth_sweep.depths
    change = with_config(smoke, {"kl_privacy": {"depth_sweep": {"depths": [*depths, 5]}}})
    jobs = {"kl_privacy_training": 2, **dict.fromkeys(["kl_vs_depth", *LAST], 1)}
    assert smoke.planned(*change) == jobs


def test_more_runs_are_blocks_of_their_own_and_run_nothing_again(smoke):
    """Twice the runs of a condition: the new blocks, and what shows the condition or judges it."""
    utility = smoke_atlas().groups["dp_sgld"]["utility"]
    asked = smoke.folder / "results/smoke/more_runs.json"
    asked.write_text(json.dumps({utility[0].condition: 2 * len(utility)}))
    try:
        planned = smoke.planned("--configfile", SMOKE)
        asked.write_text('{"utility": "many"}')
        refused = smoke.snakemake("-n", "--configfile", SMOKE)
    finally:
        asked.unlink()
    shown = dict.fromkeys(["sgld_utility", *LAST], 1)
    assert planned == {"dp_sgld_utility": len(utility), **shown}
    assert refused.returncode == 2
    (line,) = (line for line in refused.stderr.splitlines() if line.startswith("dpatlas: "))
    assert "results/smoke/more_runs.json: utility: found 'many'; allowed: " in line


def test_a_change_of_the_plot_runs_the_plots_only(smoke):
    with smoke.edit(f"{SRC}/show/plot.py", "\n\n\n", "\n\n\nEDITED = 1\n\n\n"):
        planned = smoke.planned("--configfile", SMOKE)
    assert planned.pop("page") == planned.pop("manifest") == 1
    atlas = smoke_atlas()
    assert set(planned) <= {*atlas.figures, *atlas.tables}
    assert {"kl_vs_depth", "sgld_utility"} <= set(planned)


# What an edit runs again: file, old text (none: the new one is put first), new text, jobs per rule.
PAGE = {"manifest": 1, "page": 1}
NUMBERS = {"claims": 1, **PAGE}
LP_FFT, KL = f"{SRC}/papers/lp_fft", f"{SRC}/papers/kl_privacy"
NO_JOB = {
    "a comment": (f"{LIBRARY}/base/seeds.py", "import os\n", "import os  # for urandom\n"),
    "a comment of a plot": (f"{SRC}/show/plot.py", "\n\n\n", "\n# a remark\n\n\n"),
    "a docstring": (f"{LIBRARY}/privacy/kl.py", '"""The KL kernel:', '"""This KL kernel:'),
    "a place in the paper": (f"{LP_FFT}/products.yaml", "Figs. 4, 5", "Fig. 4"),
    "an estimate of memory": (f"{LP_FFT}/cost.py", "base_mb=1700", "base_mb=1800"),
    "what is registered": (f"{LP_FFT}/block.py", 'title="', 'title="Edited: '),
    "a sentence of the settings": (
        f"{LP_FFT}/records/distortion.py",
        "Length of linear probing",
        "How long it probes",
    ),
    "a data set that nobody uses": (f"{LIBRARY}/data/sets/mnist.py", "", STATEMENT),
}
EDITS = {
    "a caption": (
        f"{KL}/products.yaml",
        "privacy loss against depth after",
        "loss against depth after",
        {"page": 1},
    ),
    "one kind of job": (
        *(f"{LP_FFT}/jobs/umap.py", "", STATEMENT),
        {"lp_fft_umap": 1, "lpfft_umap": 1, **NUMBERS},
    ),
    "the test of a claim": (f"{KL}/claims.py", "", STATEMENT, NUMBERS),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_runs_exactly_what_depends_on_it(smoke, edit):
    path, old, new, expected = EDITS[edit]
    with smoke.edit(path, old, new):
        assert smoke.planned("--configfile", SMOKE) == expected


def test_comments_words_estimates_and_a_new_data_set_run_nothing(smoke):
    path = smoke.folder / "src/dpatlas/data/sets/mine.py"
    path.write_text("from dpatlas.data.sets.mnist import MNIST\n\nSETS = ()\n")
    try:
        with contextlib.ExitStack() as edits:
            for edit in NO_JOB.values():
                edits.enter_context(smoke.edit(*edit))
            assert smoke.planned("--configfile", SMOKE) == {}
    finally:
        path.unlink()


def test_a_semantic_edit_in_a_bounds_module_runs_exactly_its_users(smoke):
    with smoke.edit(
        "src/dpatlas/formulas/kl_privacy/theorems.py", '"exact": 4,', '"exact": 4 + 0,'
    ):
        planned = smoke.planned("--configfile", SMOKE)
    everything = {name: 1 for name in [*names_of("kl_privacy", "figure"), "kl_constants", *LAST]}
    assert planned == {**everything, **jobs_of("kl_privacy")}
    with smoke.edit("src/dpatlas_workflow/report/page.py", "autoescape=True", "autoescape=bool(1)"):
        assert smoke.planned("--configfile", SMOKE) == {"page": 1}


def test_a_deleted_figure_is_made_again_alone(smoke):
    path = smoke.folder / "results/smoke/figures/kl_vs_width.pdf"
    before = path.read_bytes()
    path.unlink()
    planned = smoke.planned("--configfile", SMOKE)
    for name in ("page", "manifest"):
        planned.pop(name, None)
    assert planned == {"kl_vs_width": 1}
    result = smoke.snakemake("kl_vs_width", "--configfile", SMOKE)
    assert result.returncode == 0, result.stderr
    assert path.read_bytes() == before


def test_a_lost_record_lineage_or_verdict_is_made_again(smoke):
    """As publish and bundle advise, though everything that follows from it is there."""
    results, record = smoke.folder / "results/smoke", smoke_atlas().behind("kl_vs_width")[-1]
    rules = {
        "kl_privacy_training": smoke.folder / record,
        "kl_vs_width": results / "lineage/kl_vs_width.json",
        "claims": results / "claims.csv",
    }
    for rule, path in rules.items():
        kept = path.with_name("kept")
        path.rename(kept)
        try:
            assert smoke.planned("--configfile", SMOKE).get(rule) == 1
        finally:
            kept.rename(path)
    assert smoke.planned("--configfile", SMOKE) == {}


def test_another_seed_runs_every_training_job_but_for_backbones_and_tunings(smoke):
    atlas = smoke_atlas()
    own = {"protocol": {"seed": 77}, "accuracy": {"seed": 77}}
    planned = smoke.planned(*with_config(smoke, {"seed": 77, "dp_sgld": own}))
    kept = {"pretrain_backbone", "pretrain_imported", "data_set", "features"}
    for key in atlas.blocks:
        tunings = {rule for rule in jobs_of(key) if rule.endswith("_tuning")}
        kept |= tunings
        jobs = {rule: count for rule, count in jobs_of(key).items() if rule not in kept}
        assert jobs.items() <= planned.items(), key
        assert tunings or key not in ("dp_sgld", "lp_fft")
    assert not kept & set(planned)


def test_another_folder_of_data_runs_nothing(smoke, tmp_path):
    """Records and features would else be made again where a folder has moved."""
    change = {"data": {"root": str(tmp_path), "download": True}}
    assert smoke.planned(*with_config(smoke, change)) == {}


def test_another_rate_of_one_backbone_runs_what_takes_its_features(smoke):
    change = {"pretrain": {"backbones": {"strokes-mlp": {"lr": 1.0e-3}}}}
    planned = smoke.planned(*with_config(smoke, change))
    drawn = ["sgld_long_training", "pretrain_samples", *LAST]
    drawn += ["lpfft_feature_quality", "lpfft_umap", "lpfft_privacy_utility", "lpfft_lora"]
    jobs = {"pretrain_backbone": 1, "pretrain_transfer": 1}
    jobs |= {"dp_sgld_long_training_tuning": 1, "dp_sgld_long_training": 2}
    jobs["lp_fft_strategies_tuning"] = 1
    for group, kind in (("lora", "strategies"), ("feature_quality",) * 2, ("umap",) * 2):
        jobs[f"lp_fft_{kind}"] = len(smoke_atlas().ids("lp_fft", group))
    shown = smoke_atlas().frozen_features.values()
    jobs["features"] = sum(each.backbone.slug == "strokes-mlp" for each in shown)
    assert planned == {**jobs, **dict.fromkeys(drawn, 1)}


def test_a_private_mechanism_that_changes_is_audited_again_and_who_does_not_use_it_is_not_run(
    smoke,
):
    with smoke.edit("src/dpatlas/privacy/clipping.py", "nan=0.0", "nan=0.0 + 0"):
        planned = smoke.planned("--configfile", SMOKE)
    assert jobs_of("audit").items() <= planned.items()
    assert {"dp_sgld_accuracy", "dp_sgld_finetune", "lp_fft_strategies"} <= set(planned)
    idle = {"kl_privacy_training", "dp_sgld_counterexample", "lp_fft_dynamics", "kl_vs_depth"}
    assert not {*idle, "pretrain_backbone"} & set(planned)


def test_another_tier_takes_over_what_was_run_alike(smoke):
    wider = {"width_sweep": {"widths": [4, 8, 12]}}
    config = with_config(smoke, {"tier": "again", "kl_privacy": wider})
    assert smoke.snakemake("kl_vs_width", *config).returncode == 0
    taken = []
    for path in sorted((smoke.folder / "results/again/runs/kl_privacy").glob("*/record.json")):
        here, name = path.read_bytes(), path.parent.name
        there = smoke.folder / f"results/smoke/runs/kl_privacy/{name}/record.json"
        log = smoke.folder / f"results/again/logs/kl_privacy_training/{name}.log"
        taken.append(there.exists())
        assert ("taken over from results/smoke" in log.read_text()) == taken[-1]
        assert not taken[-1] or here == there.read_bytes()
    assert set(taken) == {True, False}


def test_code_of_another_checkout_is_refused(smoke):
    other = Checkout(smoke.folder)
    other.environment["PYTHONPATH"] = str(PROJECT / "src")
    assert other.snakemake("-n", "--configfile", SMOKE).returncode == 0
    with smoke.edit("src/dpatlas/errors.py", "EXIT_BAD_INPUT = 2", "EXIT_BAD_INPUT = 1 + 1"):
        said = other.refusal("-n", "--configfile", SMOKE)
    assert said.startswith("dpatlas: code: found that of")


def test_as_a_module_it_is_refused(smoke):
    lines = ["module atlas:", '    snakefile: "../Snakefile"', "use rule * from atlas as atlas_*"]
    (smoke.folder / "other").mkdir()
    (smoke.folder / "other" / "Snakefile").write_text("\n".join(lines) + "\n")
    assert "dpatlas: module: found" in smoke.refusal("-s", "other/Snakefile", "-n")


def test_a_paper_can_be_left_out(smoke):
    left_out = {key: {"enabled": False} for key in KEYS}
    config = with_config(smoke, {"tier": "without", **left_out})
    assert smoke.planned(*config) == dict.fromkeys(LAST, 1)
    result = smoke.snakemake(*config)
    assert result.returncode == 0, result.stderr
    claims = (smoke.folder / "results/without/claims.csv").read_text()
    assert "kl_privacy is not part of this run" in claims
    line = "dpatlas: kl_privacy.enabled: found false, and kl_vs_depth asked for; allowed: true"
    assert smoke.refusal("kl_vs_depth", *config) == line


def test_the_report_is_made_offline(smoke):
    result = smoke.snakemake("--report", "report.html", "--configfile", SMOKE)
    assert result.returncode == 0, result.stderr
    report = (smoke.folder / "report.html").read_text()
    assert "kl_vs_depth" in report and "The page of the tier" in report


@pytest.mark.skipif(chromium.find() is None, reason="no Chromium on this machine")
def test_the_page_shows_every_claim_and_figure_in_a_browser(smoke, tmp_path):
    folder = smoke.folder / "results/smoke"
    ids, drawn, atlas = set[str](), list[str](), smoke_atlas()
    with chromium.Chromium(tmp_path / "profile") as browser:
        for name in ("index", *atlas.pages):
            page = folder / f"report/{name}.html"
            browser.open(page)
            assert browser.complaints == []
            asked = [each for each in browser.requests if not each.startswith("data:")]
            assert asked == [page.as_uri()]
            ids |= {*browser.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")}
            drawn += browser.evaluate(
                "[...document.querySelectorAll('.chart .panel > svg')]"
                ".filter(each => each.getBoundingClientRect().height > 100)"
                ".map(each => each.closest('article').id)"
            )
    claims = {f"claim-{row['claim']}" for row in read_rows(folder / "claims.csv")}
    assert claims | {*atlas.figures, *atlas.tables} <= ids
    assert set(drawn) == set(atlas.figures)
