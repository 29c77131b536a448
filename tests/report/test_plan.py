import functools
import inspect
import json
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import seconds
from small_run import FIELDS, spec_of, write_run

from dpatlas.base.files import read_rows
from dpatlas.base.networks import NETWORKS
from dpatlas.base.specs import Spec
from dpatlas.data.registry import DATA_SETS
from dpatlas_workflow.commands import plan as command
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_tier, read_tier, tiers, validate
from dpatlas_workflow.cost.counting import VIT, KindCost, cost_of, pass_work, units
from dpatlas_workflow.cost.estimate import (
    GUESS,
    Job,
    factor_of,
    job_seconds,
    measured,
    minutes,
    past_runs,
    seconds_of,
)
from dpatlas_workflow.cost.plan import describe_plan, jobs_of, make_plan, makespan, targets_of
from dpatlas_workflow.records import parse_spec
from dpatlas_workflow.registry import all_blocks

DOCS = Path(__file__).parents[2] / "docs"
KIND = (FIELDS["key"], FIELDS["kind"])
MACHINE = platform.machine()


@functools.cache
def fresh(tier):
    """A tier of which nothing has run; nobody may change it."""
    return Atlas(load_tier(tier), Path("no results"))


def typed(fields):
    return parse_spec(fields, "test")


def job(gpu=False, **changes):
    return Job(*KIND, False, units(typed(FIELDS | changes)), gpu, 600)


def write_past(results, slowness, spec, **cost):
    """A past run on a machine `slowness` times as slow as that of the table."""
    fields = typed(spec.fields)
    seconds = slowness * seconds_of((fields.key, fields.kind), units(fields))
    spent = {"cpu_s": seconds, "wall_s": seconds, "machine": MACHINE, **cost}
    return write_run(results / "embedded", spec, cost=spent)


def big_specs():
    return [spec_of(depth=depth, width=width, steps=2000) for depth in (2, 6) for width in (32, 64)]


def test_work_is_steps_times_records_times_multiplications():
    fields = FIELDS | {"width": 4, "depth": 2, "outputs": 1, "runs": 3, "steps": 5, "networks": 2}
    spec = typed(fields | {"data": FIELDS["data"] | {"n_train": 2, "n_add": 1}})
    assert units(spec) == 3 * 2 * 5 * (2 + 1) * (64 * 4 + 4 * 1 + 400 * 4 * 2)


def private_job(key, group):
    """A job's spec and that of the backbone that it trains."""
    atlas = fresh("embedded")
    fields = atlas.job(atlas.groups[key][group][0].id).fields
    return fields, atlas.job(fields.backbone).fields


@pytest.mark.parametrize(("key", "group"), [("lp_fft", "umap"), ("dp_sgld", "finetune")])
def test_private_steps_are_of_the_backbone_s_own_network(key, group):
    fields, backbone = private_job(key, group)

    def counted(model):
        return units(fields, backbone.model_copy(update={"model": model, "options": {}}))

    def of_a_pass(model):
        network = NETWORKS[model]
        # An imported network stretches 8x8 images to its own size.
        share = 1 if network.weights else 64 / network.inputs
        return share * (network.multiplications + 260 * network.activations)

    small, large, imported = map(counted, ("wrn10-1", "bench-cnn", "imagenet-resnet18"))
    assert small < large < imported
    ratio = (imported - large) / (large - small)
    passes = list(map(of_a_pass, ("wrn10-1", "bench-cnn", "imagenet-resnet18")))
    assert ratio == pytest.approx((passes[2] - passes[1]) / (passes[1] - passes[0]))


def test_the_plan_and_past_runs_know_the_backbone_s_network(tmp_path):
    fields, backbone = private_job("lp_fft", "umap")
    atlas = Atlas(load_tier("embedded"), tmp_path)
    jobs = jobs_of(atlas)
    (planned,) = (each for each in jobs if (each.paper, each.kind) == ("lp_fft", "umap"))
    assert planned.units == units(fields, backbone)
    spec = atlas.groups["lp_fft"]["umap"][0]
    write_run(atlas.folder, spec, cost={"machine": MACHINE})
    assert past_runs(tmp_path, MACHINE) == []
    trained = atlas.specs[spec.fields["backbone"]]
    write_run(atlas.folder, trained, cost={"machine": "another"})
    (past,) = past_runs(tmp_path, MACHINE)
    assert past.units == planned.units


def test_a_vision_transformer_is_counted_at_its_options():
    from dpatlas.models.vit import vit

    usual = inspect.signature(vit).parameters
    assert {name: usual[name].default for name in VIT} == dict(VIT)

    def work(**options):
        return pass_work("vit-tiny", 3072, options)

    assert work(**VIT, heads=6) == work()
    assert work(depth=6) == pytest.approx(work() / 2)
    assert work(patch=8) == pytest.approx(work() / 4)


def test_every_kind_was_measured_and_one_without_a_cost_of_its_own_counts_runs(monkeypatch):
    for key, block in all_blocks().items():
        for kind in filter(block.cost, block.kinds):
            assert (key, kind) in measured()
    assert seconds_of(("a_new_paper", "kind"), 2) == GUESS[0] + 2 * GUESS[1]
    monkeypatch.setattr(type(all_blocks()[KIND[0]]), "cost", lambda block, kind: None)
    spec = typed(FIELDS | {"runs": 7})
    assert cost_of(spec) == KindCost() and units(spec) == 7


@pytest.mark.parametrize(
    "tier",
    [
        each if each in ("embedded", "paper") else pytest.param(each, marks=pytest.mark.slow)
        for each in tiers()
    ],
)
def test_every_job_of_every_tier_has_a_cost(tier):
    jobs = jobs_of(fresh(tier))
    plan = make_plan(jobs, fresh(tier).config.device, (), 2, tier)
    assert all(row["cpu_hours"] > 0 and row["disk_mb"] > 0 for row in plan["rows"])
    assert sum(row["jobs"] for row in plan["rows"]) == len(jobs) == plan["total"]["jobs"]


def test_a_plan_has_the_cost_of_every_figure_with_what_it_waits_for():
    atlas = fresh("printed")
    targets = targets_of(atlas)
    plan = make_plan(jobs_of(atlas), "cuda", (), 2, "printed", targets=targets)
    rows = {row["target"]: row for row in plan["targets"]}
    assert list(rows) == list(atlas.products)
    needed = {name: atlas.needed_for(name) for name in rows}
    assert {spec for ids in needed.values() for spec in ids} == set(atlas.specs)
    spent = {row["kind"]: row["gpu_hours"] for row in plan["rows"]}
    # Table 2 of lp_fft needs its backbone, a tuning for every level, then the runs.
    kinds = Counter(atlas.spec(name).fields["kind"] for name in needed["lpfft_lora"])
    assert kinds == {"imported": 1, "strategies_tuning": 5, "strategies": 15}
    assert 0 < rows["lpfft_lora"]["gpu_hours"] < spent["strategies_tuning"] + spent["strategies"]
    assert rows["kl_vs_epochs"]["jobs"] == 2 * 4 * 6 and "Fig. 2c" in describe_plan(plan)


def test_past_runs_of_a_kind_scale_its_estimates_and_all_of_them_those_of_other_kinds(tmp_path):
    for spec in big_specs():
        write_past(tmp_path, 3.0, spec)
    # A job that stays on the CPU.
    shared = ("key", "seed", "noise_source", "data", "width", "outputs")
    fields = {"kind": "constants", "inits": ["he"], "depths": [2], "draws": 10**6}
    fields |= {name: FIELDS[name] for name in shared}
    write_past(tmp_path, 0.5, Spec.of(fields, "constants"))
    past = past_runs(tmp_path, MACHINE)
    assert factor_of(past, KIND, gpu=False) == pytest.approx(3)
    assert factor_of(past, (KIND[0], "constants"), gpu=False) == pytest.approx(0.5)
    together = sum(run.actual_s for run in past) / sum(run.estimated_s for run in past)
    assert factor_of(past, ("dp_sgld", "utility"), gpu=False) == pytest.approx(together)
    # On another device nothing ran.
    assert factor_of(past, KIND, gpu=True) == factor_of((), KIND, gpu=False) == 1
    jobs = [job()]
    with_past, without = (make_plan(jobs, "cpu", runs, 1, "t")["total"] for runs in (past, ()))
    assert with_past["cpu_hours"] == pytest.approx(3 * without["cpu_hours"])


def test_the_plan_says_how_far_estimates_were_off_and_what_never_ran(tmp_path):
    for spec in big_specs():
        write_past(tmp_path, 3.0, spec)
    jobs = [job(), Job("dp_sgld", "utility", False, 100.0)]
    plan = make_plan(jobs, "cpu", past_runs(tmp_path, MACHINE), 1, "embedded")
    off = {"runs": 4, "of_sum": 3.0, "median": 3.0, "low": 3.0, "high": 3.0}
    assert plan["past"] == {"cpu": {"embedded": pytest.approx(off)}, "cuda": {}}
    assert plan["rough"] == ["dp_sgld utility"]
    text = describe_plan(plan)
    assert "actual / estimate before it 3.00 in all" in text
    assert "rough, since none was timed here: dp_sgld utility" in text
    assert "no past runs on cpu" in describe_plan(make_plan(jobs, "cpu", (), 1, "embedded"))


def test_the_table_is_written_from_finished_runs(tmp_path, monkeypatch):
    """A kind's quickest job is its start; the longer ones, the time of a unit."""
    table = tmp_path / "seconds.csv"
    shutil.copy(seconds.TABLE, table)
    monkeypatch.setattr(seconds, "TABLE", table)
    short, long = spec_of(depth=2, width=32, steps=1), spec_of(depth=6, width=64, steps=20_000)
    work = units(typed(long.fields)) / 1e3
    for spec, spent in ((short, 2.0), (long, 2.0 + work)):
        write_past(tmp_path, 1.0, spec, cpu_s=spent, wall_s=spent)
    before = {(row["block"], row["kind"]): row for row in read_rows(table)}
    seconds.main(tmp_path)
    after = {(row["block"], row["kind"]): row for row in read_rows(table)}
    moved = {kind for kind, row in after.items() if row != before[kind]}
    assert after.keys() == before.keys() and moved == {KIND}
    assert (after[KIND]["start_s"], after[KIND]["unit_s"]) == ("2", "0.001")
    assert after[KIND]["gpu_unit_s"] == before[KIND]["gpu_unit_s"]


def test_other_machines_other_devices_and_broken_records_are_passed_over(tmp_path):
    first, second, third, fourth = big_specs()
    write_past(tmp_path, 1.0, first)
    write_past(tmp_path, 1.0, second, machine="another")
    write_past(tmp_path, 1.0, third, device="cuda")
    write_past(tmp_path, 1.0, fourth).write_text("{")
    assert sorted(run.gpu for run in past_runs(tmp_path, MACHINE)) == [False, True]


def test_finished_runs_are_counted_as_done_and_cost_nothing(tmp_path):
    atlas = Atlas(load_tier("smoke"), tmp_path)
    write_run(atlas.folder, next(iter(atlas.specs.values())), cost={"machine": "another"})
    before, after = (
        make_plan(jobs_of(each), "cpu", (), 1, "smoke")["total"] for each in (fresh("smoke"), atlas)
    )
    assert (before["done"], after["done"]) == (0, 1)
    assert after["jobs"] == before["jobs"] and after["cpu_hours"] < before["cpu_hours"]


def test_the_documents_have_the_times_of_the_plan(tmp_path):
    """Of runs on two cores and, of what is as well done by a GPU, on one core."""
    folder = tmp_path / "embedded"
    folder.mkdir()
    shutil.copy(DOCS / "results" / "embedded" / "more_runs.json", folder)

    def planned(tier, results, quantity):
        config = load_tier(tier).model_copy(update={"device": "cpu"})
        jobs = jobs_of(Atlas(config, results))
        return make_plan(jobs, "cpu", (), 2, tier)["total"][quantity]

    folders = (tmp_path, tmp_path / "none")
    published, first = (round(60 * planned("embedded", each, "wall_hours")) for each in folders)
    text = (DOCS / "verdicts.md").read_text()
    assert f"(by `plan` {published} minutes on two cores)" in text
    assert f"those of the first look ({first} minutes)" in text
    commands = (DOCS / "commands.md").read_text()
    for tier in ("photographs", "photographs-far", "photographs-controls", "photographs-low-noise"):
        (row,) = re.findall(rf"^\| {tier} \| (.*) \|$", commands, re.M)
        assert f"about {planned(tier, tmp_path, 'cpu_hours'):.0f} hours of a CPU core" in row


def test_more_gpus_share_the_jobs_and_papers_add_up():
    jobs = [job(gpu=True, steps=10**9), job(gpu=True, steps=10**9)]
    jobs.append(Job("shared", "data", done=False, disk_mb=5))
    one, two = (make_plan(jobs, "cuda", (), 1, "paper", gpus=gpus) for gpus in (1, 2))
    longest = one["total"]["longest_job_hours"]
    assert one["total"]["wall_hours"] == pytest.approx(2 * longest)
    assert two["total"]["wall_hours"] == pytest.approx(longest)
    assert "1 core, 2 GPUs" in describe_plan(two)
    assert [row["paper"] for row in one["papers"]] == ["kl_privacy", "shared"]
    assert one["papers"][1]["disk_mb"] == 5
    for name in ("jobs", "cpu_hours", "gpu_hours", "disk_mb"):
        total = sum(row[name] for row in one["papers"])
        assert total == pytest.approx(one["total"][name])


def test_a_scheduler_is_asked_for_more_time_for_larger_networks_within_bounds():
    without = Atlas(fresh("paper").config.model_copy(update={"device": "cpu"}))
    on_gpu, on_cpu = (
        {name: minutes(job_seconds(atlas, name)) for name in atlas.specs}
        for atlas in (fresh("paper"), without)
    )
    assert set(on_gpu.values()) >= {20, 24 * 60}
    assert all(20 <= each <= 24 * 60 for each in on_gpu.values())
    assert all(on_cpu[name] >= each for name, each in on_gpu.items())
    depths = [on_cpu[name] for depth in (8, 12, 16) for name in on_cpu if f"he-d{depth}-" in name]
    assert depths == sorted(depths)
    assert depths[0] < depths[-1]
    # A retry is given more, and never more than a day.
    assert [minutes(3600, attempt) for attempt in (1, 2, 5)] == [300, 600, 24 * 60]
    assert minutes(1e12) == 24 * 60


def test_what_would_be_downloaded_is_counted_once_and_not_where_it_is(tmp_path):
    everything = command.download_mb(fresh("paper"))
    sizes = {file.name: file.size for name in DATA_SETS for file in DATA_SETS[name].files}
    assert everything == pytest.approx(sum(sizes.values()) / 2**20)
    (tmp_path / "stl10_binary.tar.gz").touch()
    config = read_tier("paper")
    config["data"]["root"] = str(tmp_path)
    local = Atlas(validate(config), tmp_path)
    stl10 = sizes["stl10_binary.tar.gz"] / 2**20
    assert everything - command.download_mb(local) == pytest.approx(stl10)
    config["data"]["root"] = "~nobody-at-all/data"
    assert command.download_mb(Atlas(validate(config), tmp_path)) == everything
    assert command.download_mb(fresh("embedded")) == 0


def test_cores_take_the_longest_job_that_is_left():
    assert makespan([1, 2, 3, 4], cores=1) == 10
    assert makespan([1, 2, 3, 4], cores=2) == 5
    assert makespan([4, 1, 1], cores=4) == 4
    assert makespan([], cores=2) == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--tier", "nope"], "'nope'"),
        (["--cores", "0"], "--cores"),
        (["--cores", "999999999999"], "--cores: found 999999999999; allowed: a whole number"),
        (["--gpus", "999999999999"], "--gpus"),
        (["--results", __file__], "--results: found"),
        (["--config", "missing.yaml"], "missing.yaml"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_2(refusal_of, arguments, named):
    assert named in refusal_of(command.main, *arguments)


def test_the_plan_is_made_without_torch(tmp_path):
    script = (
        "import sys; from dpatlas_workflow.commands.plan import main; main(sys.argv[1:]); "
        "assert not {'torch', 'scipy.optimize'} & set(sys.modules)"
    )
    words = ["--tier", "smoke", "--json", "--results", str(tmp_path)]
    run = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["tier"] == "smoke"
