"""`decide` with a stand-in for Snakemake: rounds, budget, what it prints, and how it goes on."""

import json
from types import SimpleNamespace

import pytest

from dpatlas.base.files import write_atomic
from dpatlas.base.folders import MORE_RUNS
from dpatlas.errors import InputError, run_command
from dpatlas_workflow.commands import decide as command
from dpatlas_workflow.config.load import load_tier
from dpatlas_workflow.evidence.claims import STATISTICAL, Claims
from dpatlas_workflow.evidence.more_runs import Condition, OpenEntry
from dpatlas_workflow.evidence.verdicts import INCONCLUSIVE, REPRODUCED

CONFIG = load_tier("embedded")
BLOCK = 12
# Runs at which the claims are decided, and CPU seconds of a run.
DECIDED = {"kl-1": 24, "kl-2": 48}
CPU_S = {"kl-1": 1.0, "kl-2": 2.0}


class Tier:
    """Two conditions behind a claim each, by the claim's name."""

    def __init__(self, folder):
        self.folder = folder
        self.runs = dict.fromkeys(DECIDED, 12)
        self.spent = {"old": 1e6}
        self.calls = []

    # As `State`.
    def __call__(self, config, results, words, dry_run=False):
        return self

    def rows(self, claims):
        return [self._row(name, runs) for name, runs in self.runs.items()]

    def _row(self, name, runs):
        verdict = REPRODUCED if runs >= DECIDED[name] else INCONCLUSIVE
        return {"claim": name, "verdict": verdict, "kind": STATISTICAL, "comparisons": 1}

    def open_entries(self, claims):
        return [
            OpenEntry(name, {look: 0.5 for look in (24, 48, 96) if look > runs}, (name,))
            for name, runs in self.runs.items()
            if runs < DECIDED[name]
        ]

    def conditions(self):
        return {name: Condition(runs, BLOCK, CPU_S[name]) for name, runs in self.runs.items()}

    def costs(self):
        return dict(self.spent)

    def ask_for(self, runs):
        self.asked = dict(runs)

    # As Snakemake.
    def run(self, words, code=0):
        self.calls.append((dict(self.asked), list(words)))
        for name, runs in self.asked.items():
            self.spent[f"{name}-{runs}"] = (runs - self.runs[name]) * CPU_S[name]
            self.runs[name] = runs
        return code


@pytest.fixture
def tier(tmp_path, monkeypatch):
    made = Tier(tmp_path)
    monkeypatch.setattr(command, "State", made)
    monkeypatch.setattr(command, "read_claims", lambda: Claims(()))
    return made


BOTH = [{"kl-1": 24, "kl-2": 24}, {"kl-2": 48}]


def asked(tier):
    return [runs for runs, _ in tier.calls]


def test_rounds_go_on_until_every_claim_is_decided_and_say_what_moved(tier, capsys):
    assert command.decide(CONFIG, 1000, tier.run, ["--cores", "2"]) == 0
    assert asked(tier) == BOTH
    assert tier.calls[0][1] == [str(tier.folder / "claims.csv"), "--cores", "2"]
    shown = capsys.readouterr().out
    assert shown.startswith("2 of 2 statistical entries are inconclusive\nround 1: ")
    assert "  kl-1: 12 -> 24 runs\n" in shown
    assert "  kl-1: inconclusive -> reproduced\n" in shown
    assert "spent 84 s of 17 min of CPU" in shown
    assert shown.endswith("0 of 2 statistical entries are inconclusive\n")


@pytest.mark.parametrize(
    ("budget", "rounds"),
    [
        (10, []),
        (14, [{"kl-1": 24}]),
        # After kl-1 24 s are left for kl-2, without room for surprises; or a little more.
        (36, [{"kl-1": 24}]),
        (39, [{"kl-1": 24}, {"kl-2": 24}]),
        (100, BOTH),
    ],
)
def test_no_more_is_spent_than_the_budget(tier, budget, rounds):
    assert command.decide(CONFIG, budget, tier.run) == 0
    assert asked(tier) == rounds
    assert sum(cost for name, cost in tier.spent.items() if name != "old") <= budget


def test_measured_time_counts_not_the_estimate(tier):
    def slow(words):
        code = tier.run(words)
        tier.spent |= {name: 10 * cost for name, cost in tier.spent.items() if name != "old"}
        return code

    assert command.decide(CONFIG, 100, slow) == 0
    assert len(tier.calls) == 1


def test_a_failed_round_ends_with_exit_code_1_and_the_next_call_goes_on(tier, capsys):
    assert command.decide(CONFIG, 1000, lambda words: tier.run(words, code=1)) == 1
    assert "the same command goes on" in capsys.readouterr().out
    assert command.decide(CONFIG, 1000, tier.run) == 0
    assert asked(tier) == BOTH


@pytest.mark.parametrize("dry_run", [False, True])
def test_json_has_what_was_done_and_nothing_else_is_on_stdout(tier, capsys, monkeypatch, dry_run):
    def snakemake(words):
        print("of a job")
        return tier.run(words)

    words = ["--hours", "1", "--json", *(["--dry-run"] if dry_run else [])]
    assert run_command(lambda arguments: command.main(arguments, snakemake), words) == 0
    shown = capsys.readouterr()
    assert "round 1: " in shown.err
    assert ("of a job" in shown.err) == bool(tier.calls) != dry_run
    done = json.loads(shown.out)
    both = ["kl-1", "kl-2"]
    first = {"cpu_s": 36.0, "entries": both, "runs": {name: [12, 24] for name in both}}
    moved = {} if dry_run else {"changes": ["kl-1: inconclusive -> reproduced"]}
    assert done.pop("rounds")[0] == first | moved
    spent, still_open = (0.0, both) if dry_run else (84.0, [])
    of_all = {"tier": CONFIG.tier, "budget_cpu_s": 3600.0, "statistical_entries": 2}
    assert done == of_all | {"spent_cpu_s": spent, "inconclusive": still_open}


@pytest.mark.parametrize("cost", ["{}", "[]", "{", '{"cpu_s": NaN}', '{"cpu_s": -5}'])
def test_a_damaged_cost_is_named(tmp_path, cost):
    path = tmp_path / "runs/kl_privacy/one/cost.json"
    write_atomic(path, cost)
    with pytest.raises(InputError, match=rf"{path}.*; allowed: a"):
        command.State.costs(SimpleNamespace(folder=tmp_path))


def test_what_a_round_finished_counts_up_to_the_first_missing_block(tmp_path):
    """Blocks 0, 12 and 36 are there and 24 is not: 24 runs can be read."""
    specs = {"b": SimpleNamespace(fields={}, condition="b")}
    for first in (0, 12, 24, 36):
        fields = {"first_run": first, "runs": BLOCK}
        specs[f"a-run{first}"] = SimpleNamespace(fields=fields, condition="a-00000000")
    for name in ("a-run0", "a-run12", "a-run36"):
        (tmp_path / name).write_text("{}")
    config = SimpleNamespace(more_runs={"a-00000000": 48, "gone-00000000": 24})
    atlas = SimpleNamespace(specs=specs, record=lambda name: tmp_path / name, config=config)
    assert command._finished(atlas) == {"a-00000000": 24}


def test_raises_are_added_to_those_that_stand_in_the_file(tmp_path):
    path = tmp_path / MORE_RUNS
    path.write_text(json.dumps({"a-00000000": 24}))
    command.State.ask_for(SimpleNamespace(folder=tmp_path), {"b-00000000": 48})
    assert json.loads(path.read_text()) == {"a-00000000": 24, "b-00000000": 48}


@pytest.mark.parametrize("asked", [{}, {"of-another-seed-00000000": 24}])
def test_a_tier_that_has_not_run_is_named_and_what_was_asked_for_stands(tmp_path, asked):
    path = tmp_path / CONFIG.tier / MORE_RUNS
    if asked:
        write_atomic(path, json.dumps(asked))
    words = ["--cores", "2", "--configfile", "my file.yaml"]
    again = "a tier that has run: snakemake --cores 2 --configfile 'my file.yaml'"
    with pytest.raises(InputError, match=rf"no .*record\.json; allowed: {again}"):
        command.decide(CONFIG, 1000, None, words, results=tmp_path)
    assert not asked or json.loads(path.read_text()) == asked


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_dry_run_changes_nothing_that_another_one_asked_for(tmp_path, monkeypatch, dry_run):
    specs = command.Atlas(CONFIG, tmp_path).specs.values()
    condition = next(spec.condition for spec in specs if "first_run" in spec.fields)
    path = tmp_path / CONFIG.tier / MORE_RUNS
    write_atomic(path, json.dumps({condition: 24}))
    # As if no run were missing, of the first ones.
    monkeypatch.setattr(command.Atlas, "claim_records", lambda self: [])
    for name in ("read_papers", "seconds_per_run"):
        monkeypatch.setattr(command, name, lambda *_: {})
    command.State(CONFIG, tmp_path, dry_run=dry_run)
    assert json.loads(path.read_text()) == ({condition: 24} if dry_run else {})


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "--hours"),
        (("--hours", "nan"), "--hours"),
        (("--hours", "1", "--cores", "0"), "--cores"),
        (("--hours", "1", "--cores", "many"), "--cores"),
        (("--hours", "1", "--profile", "workflow/profiles/slrum"), "--profile"),
        (("--hours", "1", "--profile", "workflow/profiles/slurm", "--cores", "0"), "--cores"),
        (("--hours", "1", "--configfile", "workflow/tiers/smoke.yaml"), "verdicts"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_2(arguments, named, refusal_of):
    assert named in refusal_of(command.main, *arguments)
