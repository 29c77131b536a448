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
from small_run import FIELDS, spec_of, write_run

from dpatlas.commands import plan as command
from dpatlas.config.atlas import Atlas
from dpatlas.config.load import load_tier, read_tier, validate
from dpatlas.config.sizes import size_of
from dpatlas.core.networks import NETWORKS
from dpatlas.core.specs import Spec
from dpatlas.cost.counting import Work
from dpatlas.cost.plan import (
    DRAWING_S,
    ORCHESTRATION_PER_JOB_S,
    ORCHESTRATION_S,
    STARTING_S,
    Job,
    describe_plan,
    make_plan,
    makespan,
)
from dpatlas.cost.rates import DEFAULTS, fit, past_runs, runtime_minutes
from dpatlas.cost.training import VIT
from dpatlas.cost.work import Size, cost_of, work
from dpatlas.data.registry import DATA_SETS
from dpatlas.records import parse_spec

SIZE = Size(30, 6, 64)
DOCS = Path(__file__).parents[2] / "docs"
KIND = (FIELDS["key"], FIELDS["kind"])


def typed(fields):
    return parse_spec(fields, "test")


def job(done=False, **changes):
    return job_of(FIELDS | changes, done)


def job_of(fields, done=False):
    kind = (fields["key"], fields["kind"])
    return Job(*kind, done, work(typed(fields), SIZE), cost_of(*kind).gpu, 600)


def fields_of_constants(draws):
    """Fields of a job that stays on the CPU."""
    shared = ("key", "seed", "noise_source", "data", "width", "outputs")
    fields = {name: FIELDS[name] for name in shared}
    return fields | {"kind": "constants", "inits": ["he"], "depths": [2], "draws": draws}


def write_past(results, slowness, spec, **cost):
    """A past run on a machine `slowness` times as slow as the default one."""
    counts = work(typed(spec.fields), SIZE).counts
    seconds = slowness * sum(DEFAULTS["cpu"][name] * count for name, count in counts.items())
    spent = {"cpu_s": seconds, "wall_s": seconds, "machine": platform.machine(), **cost}
    return write_run(results / "embedded", spec, cost=spent)


def big_specs():
    return [spec_of(depth=depth, width=width, steps=2000) for depth in (2, 6) for width in (32, 64)]


def test_products_of_a_step_are_counted_by_hand():
    fields = FIELDS | {"width": 4, "runs": 1, "steps": 1}
    counted = work(typed(fields), Size(n_train=2, n_add=1, inputs=5)).counts["products"]
    first, last = 5 * 4, 4 * 1
    forward_and_cross = 2 * (2 * 3 * (first + last))
    weight_gradients = 2 * 2 * (first + last)
    input_gradients = 2 * 3 * last
    assert counted == forward_and_cross + weight_gradients + input_gradients


def private_job(key, group):
    """A job's spec, the size of its data, and the spec of the backbone that it trains."""
    atlas = Atlas(load_tier("embedded"))
    fields = atlas.typed(atlas.groups[key][group][0].id)
    return fields, Size(*size_of(fields.data)), atlas.typed(fields.backbone)


@pytest.mark.parametrize(("key", "group"), [("lp_fft", "umap"), ("dp_sgld", "finetune")])
def test_private_steps_are_of_the_backbone_s_own_network(key, group):
    fields, size, backbone = private_job(key, group)
    counted = {}
    for model in ("wrn10-1", "bench-cnn", "imagenet-resnet18"):
        other = backbone.model_copy(update={"model": model, "options": {}})
        counts = work(fields, size, other).counts
        network = NETWORKS[model]
        # An imported network stretches 8x8 images to its own size.
        share = 1 if model == "imagenet-resnet18" else size.inputs / network.inputs
        visits = counts["products"] / (8 * network.multiplications * share)
        assert counts["elements"] == pytest.approx(3 * visits * network.activations * share)
        counted[model] = visits
    assert min(counted.values()) > fields.batch
    assert max(counted.values()) == pytest.approx(min(counted.values()))


def test_the_plan_and_past_runs_know_the_backbone_s_network(tmp_path):
    fields, size, backbone = private_job("lp_fft", "umap")
    atlas = Atlas(load_tier("embedded"), tmp_path)
    jobs = command.jobs_of(atlas)
    (planned,) = (each for each in jobs if (each.paper, each.kind) == ("lp_fft", "umap"))
    assert planned.work == work(fields, size, backbone)
    spec = atlas.groups["lp_fft"]["umap"][0]
    shapes = {"x_train": [size.n_train, size.inputs], "x_add": [0, size.inputs]}
    write_run(atlas.folder, spec, data={"shapes": shapes}, cost={"machine": platform.machine()})
    assert past_runs(tmp_path, "cpu") == []
    trained = atlas.specs[spec.fields["backbone"]]
    write_run(atlas.folder, trained, cost={"machine": "another"})
    (past,) = past_runs(tmp_path, "cpu")
    assert past.counts == planned.work.counts


def test_a_vision_transformer_is_counted_at_its_options():
    from dpatlas.models.vit import vit

    usual = inspect.signature(vit).parameters
    assert {name: usual[name].default for name in VIT} == VIT
    fields, size, backbone = private_job("lp_fft", "umap")

    def products(**options):
        chosen = {"model": "vit-tiny", "options": options}
        return work(fields, size, backbone.model_copy(update=chosen)).counts["products"]

    assert products(**VIT, heads=6) == products()
    assert products(depth=6) == pytest.approx(products() / 2)
    assert products(patch=8) == pytest.approx(products() / 4)
    # Per token: 4 dim^2 of attention, 2 mlp_ratio dim^2 behind it.
    small = products(depth=2, dim=32, mlp_ratio=2) / products()
    assert small == pytest.approx(2 * (4 + 4) * 32**2 / (12 * (4 + 8) * 192**2))


@pytest.mark.parametrize(
    "tier", ["smoke", "embedded", "workstation", "photographs", "printed", "paper"]
)
def test_every_job_of_every_tier_has_a_cost(tier, tmp_path):
    jobs = command.jobs_of(Atlas(load_tier(tier), tmp_path))
    plan = make_plan(jobs, "cpu", tmp_path, 2, tier)
    assert all(row["cpu_hours"] > 0 and row["disk_mb"] > 0 for row in plan["rows"])
    assert sum(row["jobs"] for row in plan["rows"]) == len(jobs) == plan["total"]["jobs"]


def test_a_plan_has_the_cost_of_every_figure_with_what_it_waits_for(tmp_path):
    atlas = Atlas(load_tier("printed"), tmp_path)
    targets = command.targets_of(atlas)
    plan = make_plan(command.jobs_of(atlas), "cuda", tmp_path, 2, "printed", targets=targets)
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


def test_a_slower_machine_scales_work_that_it_never_did(tmp_path):
    for spec in big_specs():
        write_past(tmp_path, 3.0, spec)
    rates = fit(past_runs(tmp_path, "cpu"), "cpu")
    unseen = work(typed(FIELDS | {"width": 1024, "depth": 10}), Size(10_000, 2_000, 3_072)).counts
    assert rates.estimate(unseen, KIND) == pytest.approx(3 * fit([], "cpu").estimate(unseen, KIND))
    exact = {"low": 1.0, "median": 1.0, "high": 1.0, "of_sum": 1.0, "runs": 4}
    assert rates.spread() == pytest.approx(exact)
    assert rates.spread("embedded") == rates.spread()
    assert rates.spread("smoke") is None


def test_runs_that_hardly_do_more_than_start_say_nothing_of_how_fast_a_machine_computes(tmp_path):
    """As those of the tier smoke, which start in a quarter of the default time."""
    for steps in range(1, 31):
        write_past(tmp_path, 0.2, spec_of(depth=2, width=4, steps=steps))
    rates = fit(past_runs(tmp_path, "cpu"), "cpu")
    assert rates.seconds["starts"] < 0.5 * DEFAULTS["cpu"]["starts"]
    assert rates.seconds["products"] == pytest.approx(DEFAULTS["cpu"]["products"], rel=0.2)
    # A few long runs settle it.
    for depth in (2, 4, 6):
        write_past(tmp_path, 0.5, spec_of(depth=depth, width=64, steps=20_000))
    rates = fit(past_runs(tmp_path, "cpu"), "cpu")
    assert rates.seconds["products"] == pytest.approx(0.5 * DEFAULTS["cpu"]["products"], rel=0.3)


def test_a_run_does_not_judge_its_own_estimate(tmp_path):
    *others, last = big_specs()
    for spec in others:
        write_past(tmp_path, 1.0, spec)
    write_past(tmp_path, 5.0, last)
    rates = fit(past_runs(tmp_path, "cpu"), "cpu")
    assert max(run.actual / run.estimate for run in rates.validated) == pytest.approx(5.0)


def test_one_run_of_a_kind_moves_its_factor_half_way_and_no_other_kind(tmp_path):
    for spec in big_specs():
        write_past(tmp_path, 1.0, spec)
    other = Spec.of(fields_of_constants(draws=10**6), "constants")
    write_past(tmp_path, 4.0, other)
    rates = fit(past_runs(tmp_path, "cpu"), "cpu")
    assert 1.5 < rates.factors[other.key, "constants"] < 3
    assert rates.factors[KIND] == pytest.approx(1, abs=0.3)


def test_other_machines_other_devices_and_broken_records_are_passed_over(tmp_path):
    first, second, third, fourth = big_specs()
    write_past(tmp_path, 1.0, first)
    write_past(tmp_path, 1.0, second, machine="another")
    write_past(tmp_path, 1.0, third, device="cuda")
    write_past(tmp_path, 1.0, fourth).write_text("{")
    assert len(past_runs(tmp_path, "cpu")) == 1
    assert len(past_runs(tmp_path, "cuda")) == 1


def test_finished_runs_are_counted_as_done_and_cost_nothing(tmp_path):
    atlas = Atlas(load_tier("smoke"), tmp_path)
    fresh = make_plan(command.jobs_of(atlas), "cpu", tmp_path, 1, "smoke")["total"]
    spec = next(iter(atlas.specs.values()))
    write_run(atlas.folder, spec, cost={"machine": "another"})
    rest = make_plan(command.jobs_of(atlas), "cpu", tmp_path, 1, "smoke")["total"]
    assert (fresh["done"], rest["done"]) == (0, 1)
    assert rest["jobs"] == fresh["jobs"]
    assert rest["cpu_hours"] < fresh["cpu_hours"]


def test_without_past_runs_the_rates_are_the_default_ones(tmp_path):
    """So what a publication waits for does not depend on how busy the machine was."""
    jobs = command.jobs_of(Atlas(load_tier("smoke"), tmp_path))
    for spec in big_specs():
        write_past(tmp_path, 5.0, spec)
    fitted, default, fresh = (
        make_plan(jobs, "cpu", results, 1, "smoke")["total"]["cpu_hours"]
        for results in (tmp_path, None, tmp_path / "none")
    )
    assert fitted > 2 * default and default == fresh


def test_the_documents_have_the_times_of_the_plan(tmp_path):
    """Of runs on two cores and, of what is as well done by a GPU, on one core."""
    folder = tmp_path / "embedded"
    folder.mkdir()
    shutil.copy(DOCS / "results" / "embedded" / "more_runs.json", folder)

    def planned(tier, results, quantity):
        jobs = command.jobs_of(Atlas(load_tier(tier), results))
        return make_plan(jobs, "cpu", results, 2, tier)["total"][quantity]

    published, first = (
        round(60 * planned("embedded", results, "wall_hours"))
        for results in (tmp_path, tmp_path / "none")
    )
    text = (DOCS / "verdicts.md").read_text()
    assert f"(by `plan` {published} minutes on two cores)" in text
    assert f"those of the first look ({first} minutes)" in text
    commands = (DOCS / "commands.md").read_text()
    for tier in ("photographs", "photographs-far", "photographs-controls", "photographs-low-noise"):
        (row,) = re.findall(rf"^\| {tier} \| (.*) \|$", commands, re.M)
        assert f"about {planned(tier, tmp_path, 'cpu_hours'):.0f} hours of a CPU core" in row


def test_more_gpus_share_the_jobs_and_papers_add_up(tmp_path):
    jobs = [job(steps=10**6), job(steps=10**6)]
    jobs.append(Job("shared", "data", done=False, disk_bytes=5 * 2**20))
    one, two = (make_plan(jobs, "cuda", tmp_path, 1, "paper", gpus=gpus) for gpus in (1, 2))
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
    def minutes(**changes):
        atlas = Atlas(validate({**read_tier("paper"), **changes}))
        return {name: runtime_minutes(atlas, name) for name in atlas.specs}

    on_gpu, on_cpu = minutes(), minutes(device="cpu")
    assert set(on_gpu.values()) >= {20, 24 * 60}
    assert all(20 <= each <= 24 * 60 for each in on_gpu.values())
    assert all(on_cpu[name] >= each for name, each in on_gpu.items())
    depths = [on_cpu[name] for depth in (8, 12, 16) for name in on_cpu if f"he-d{depth}-" in name]
    assert depths == sorted(depths)
    assert depths[0] < depths[-1]


def test_what_would_be_downloaded_is_counted_once_and_not_where_it_is(tmp_path):
    config = read_tier("paper")
    everything = command.download_mb(Atlas(validate(config), tmp_path))
    sizes = {file.name: file.size for name in DATA_SETS for file in DATA_SETS[name].files}
    assert everything == pytest.approx(sum(sizes.values()) / 2**20)
    (tmp_path / "stl10_binary.tar.gz").touch()
    config["data"]["root"] = str(tmp_path)
    local = Atlas(validate(config), tmp_path)
    stl10 = sizes["stl10_binary.tar.gz"] / 2**20
    assert everything - command.download_mb(local) == pytest.approx(stl10)
    assert command.download_mb(Atlas(load_tier("embedded"), tmp_path)) == 0


def test_what_no_paper_asks_for_is_counted_by_hand(tmp_path):
    unit = DEFAULTS["cpu"]
    training = Work({"starts": 3, "steps": 1000}, 0)
    jobs = [Job("lp_fft", "strategies", False, training), Job("lp_fft", "figures", False)]
    jobs.append(Job("lp_fft", "strategies", True, training))
    overhead = make_plan(jobs, "cpu", tmp_path, 2, "embedded")["overhead"]
    starts = 3 * unit["starts"] + STARTING_S
    snakemake = ORCHESTRATION_S + 2 * ORCHESTRATION_PER_JOB_S
    assert overhead["start_hours"] == pytest.approx(starts / 3600)
    assert overhead["orchestration_hours"] == pytest.approx(snakemake / 3600)
    drawing = DRAWING_S["figures"] - STARTING_S
    whole = starts + snakemake + 1000 * unit["steps"] + drawing
    assert overhead["share"] == pytest.approx((starts + snakemake) / whole)


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
        "import sys; from dpatlas.commands.plan import main; main(sys.argv[1:]); "
        "assert not {'torch', 'scipy.optimize'} & set(sys.modules)"
    )
    words = ["--tier", "paper", "--json", "--results", str(tmp_path)]
    run = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["tier"] == "paper"
