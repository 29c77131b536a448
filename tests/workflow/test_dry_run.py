"""What a user asks for by name, what he may not ask for, and what would run: nothing does."""

from collections import Counter

import pytest
from checkouts import planned_in

from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_config

pytestmark = pytest.mark.smoke


def own(path: str, offline: str = "false") -> str:
    """A config in which kl_privacy names an own data set."""
    return f"""
data:
  offline: {offline}
  own:
    my-scans: {{path: {path}, classes: [a, b], image_shape: [1, 6, 5], scaling: unit}}
kl_privacy: {{data: {{name: my-scans, classes: [a, b], n_train: 300, n_add: 9}}}}
"""


def test_a_figure_is_reached_by_its_rule_name(checkout):
    planned = checkout.planned("kl_vs_depth")
    assert planned["kl_vs_depth"] == 1
    assert planned["kl_privacy_training"] == len(Atlas(load_config()).ids("kl_privacy", "depth"))
    assert "claims" not in planned


@pytest.mark.slow
def test_no_command_grows_with_the_number_of_records(checkout):
    """Lists of records travel by file: a shell refuses a command of many."""
    commands = []
    for depths in ([2, 3], list(range(2, 40))):
        path = checkout.folder / "depths.yaml"
        path.write_text(f"tier: deep\nkl_privacy: {{depth_sweep: {{depths: {depths}}}}}\n")
        result = checkout.snakemake("-n", "-p", "claims", "kl_vs_depth", "--configfile", path.name)
        assert result.returncode == 0, result.stdout + result.stderr
        modules = ("dpatlas_workflow.show", "dpatlas_workflow.evidence.claims")
        lines = {line.strip() for line in result.stdout.splitlines()}
        commands.append({line for line in lines if any(f" {m} " in line for m in modules)})
    assert len(commands[0]) == 2
    assert commands[0] == commands[1]


@pytest.mark.slow
def test_of_a_sweep_of_many_jobs_each_is_planned_once_by_its_own_rule(checkout):
    widths = list(range(2, 300))
    path = checkout.folder / "many.yaml"
    path.write_text(f"tier: many\nkl_privacy: {{width_sweep: {{widths: {widths}}}}}\n")
    wanted = Atlas(load_config([path]))
    planned = checkout.planned("kl_vs_width", "kl_tradeoff", "--configfile", path.name)
    assert planned["kl_privacy_training"] == len(wanted.ids("kl_privacy", "width")) > 1000
    others = wanted.ids("kl_privacy", "linearized")
    assert planned["kl_privacy_linearized"] == len(others) > 0


def test_a_backbone_is_trained_before_what_takes_its_features(checkout):
    planned = checkout.planned("sgld_long_training")
    jobs = ("pretrain_backbone", "features", "sgld_long_training")
    blocks = len(Atlas(load_config()).ids("dp_sgld", "long_training"))
    assert planned == {"data_set": 2, "dp_sgld_long_training": blocks, **dict.fromkeys(jobs, 1)}


@pytest.mark.slow
def test_runs_whose_settings_are_not_shipped_tune_first(checkout):
    """The same runs, with another learning rate in the grid."""
    path = checkout.folder / "rates.yaml"
    path.write_text("tier: rates\ndp_sgld: {long_training: {lrs: [0.1, 0.3]}}\n")
    result = checkout.snakemake("-n", "-p", "sgld_long_training", "--configfile", path.name)
    shipped = checkout.snakemake("-n", "-p", "sgld_long_training")
    planned = planned_in(result)
    assert planned == {**planned_in(shipped), "dp_sgld_long_training_tuning": 1}
    commands = [line for line in result.stdout.splitlines() if " dpatlas_workflow.run " in line]
    waiting = [line for line in commands if '"chosen":null' in line]
    assert len(waiting) == planned["dp_sgld_long_training"]
    for line in waiting:
        assert "-tuning-" in line.split("--tuning ")[1].split()[0]
    assert "--tuning" not in shipped.stdout
    tunings = Atlas(load_config()).tunings.values()
    kinds = [f"{spec.key}_{spec.fields['kind']}" for spec in tunings]
    expected = {**Counter(kinds), "tuned": len({spec.key for spec in tunings}), "tune": 1}
    assert expected.items() <= checkout.planned("tune").items()


def test_an_own_data_set_is_read_from_its_path(checkout):
    scans = "my {id} scans' folder"
    (checkout.folder / scans / "a").mkdir(parents=True)
    (checkout.folder / "mine.yaml").write_text(own(f'"{scans}"'))
    result = checkout.snakemake("-n", "-p", "kl_vs_depth", "--configfile", "mine.yaml")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "results/custom/data/my-scans-" in result.stdout
    assert "'--own-path=my {id} scans'\"'\"' folder'" in result.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data: {root: nowhere/at/all}", ["data.root", "nowhere/at/all", "a readable folder"]),
        (
            "data: {offline: true}\n"
            "kl_privacy: {data: {name: cifar10, classes: [airplane, truck], n_train: 9, n_add: 9}}",
            ["data.offline", "missing"],
        ),
        (own("nowhere"), ["data.own.my-scans.path", "'nowhere'"]),
    ],
)
def test_data_that_is_not_there_stops_before_any_job_with_one_line_and_exit_code_2(
    checkout, text, words
):
    (checkout.folder / "wrong.yaml").write_text(text + "\n")
    line = checkout.refusal("-n", "--configfile", "wrong.yaml")
    for word in words:
        assert word in line


def test_another_working_folder_is_refused_in_one_line(checkout, tmp_path):
    line = checkout.refusal("-n", "--directory", str(tmp_path))
    assert f"working folder: found {tmp_path}; allowed: {checkout.folder}" in line


def test_the_lint_of_the_workflow_is_clean(checkout):
    result = checkout.snakemake("--lint")
    assert result.returncode == 0, result.stdout + result.stderr
