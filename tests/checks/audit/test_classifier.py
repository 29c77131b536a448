"""Private training of a classifier: resumed to the same bytes, honest about what it guarantees."""

import numpy as np
import pytest
import small_jobs
import torch
from small_classifier import record_of, run_main, save_data
from small_jobs import killed_at

from dpatlas.accounting.guarantees import Phase, guarantee
from dpatlas.accounting.samplers import Poisson
from dpatlas.checks.audit.jobs import canaries
from dpatlas.checks.audit.jobs import training as classifier
from dpatlas.checks.audit.jobs.classifier import training_phase
from dpatlas.checks.audit.records.training import TrainingSpec
from dpatlas.checks.audit.settings import training_spec
from dpatlas.core.networks import NETWORKS
from dpatlas.core.rounding import rounded_up
from dpatlas.core.seeds import Noise
from dpatlas.data import prepared
from dpatlas.errors import InputError
from dpatlas.jobs import job as job_module
from dpatlas.models.build import build
from dpatlas.privacy.training import PrivateTraining

SETTINGS = {**small_jobs.TRAINING, "steps": 5, "runs": 2, "settings_tried": 3}
CANARIES = {"canaries": 6, "runs": 1, "level": 0.95}
# Few steps of a small network, with as many canaries as the published audit.
ONE_RUN = {
    **{**SETTINGS, **CANARIES},
    **{"canaries": 1000, "batch": 1012, "epsilon": 4.0, "noise_multiplier": None},
}


def spec_of(**changes):
    return training_spec({"seed": 0, "noise_source": "keyed"}, {**SETTINGS, **changes})


def test_an_average_of_weights_and_canaries_survive_a_kill(data, tmp_path, monkeypatch):
    spec = spec_of(**CANARIES, model="mlp", ema_decay=0.5)
    whole = run_main(spec, data, tmp_path / "whole").read_bytes()
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    with killed_at(3, (PrivateTraining, "step")):
        run_main(spec, data, tmp_path)
    assert run_main(spec, data, tmp_path).read_bytes() == whole


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"canaries": 1}, "canaries"),
        ({"level": None}, "level"),
        ({"runs": 2}, "canaries"),
        ({"delta": 0.1}, "delta of a run with canaries"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"sampler": "fixed-size", "relation": "replace_one"}, "canaries"),
    ],
)
def test_canaries_that_would_show_nothing_are_refused_before_a_step(data, tmp_path, changes, word):
    with pytest.raises(InputError, match=word):
        run_main(spec_of(**{**CANARIES, **changes}), data, tmp_path)
    assert not (tmp_path / "record.json").exists()


def test_a_poisoned_record_is_counted_and_the_weights_stay_numbers(tmp_path):
    manifest = save_data(tmp_path / "data", x_train=np.nan)
    metrics = record_of(spec_of(batch=12), manifest, tmp_path)["metrics"]
    # At sample rate 1 the record is in every batch of every run.
    assert [row["skipped_records"] for row in metrics["runs"]] == [5, 5]
    assert all(point["loss"] is not None for point in metrics["curves"])


def test_accuracy_is_of_the_last_iterate_on_the_test_records(data, tmp_path):
    spec = spec_of(noise_multiplier=0.0, batch=12, runs=1)
    record = record_of(spec, data, tmp_path)
    content = prepared.load(data.parent)
    model = build("linear", (1, 4, 4), 3, key="audit", run=0, base_seed=0)
    phase = training_phase(TrainingSpec(**spec.fields), Poisson(12, 12))
    x, labels = torch.from_numpy(content.x_train), torch.from_numpy(content.y_train)
    with torch.no_grad():
        PrivateTraining(model, [phase], x, labels, noise=Noise(spec.digest, "keyed")).run()
        right = model(torch.from_numpy(content.x_test)).argmax(1).numpy() == content.y_test
    assert [row["accuracy"] for row in record["metrics"]["runs"]] == [right.mean()]


def test_the_ledger_says_what_is_guaranteed_and_how_settings_were_chosen(data, tmp_path):
    told = record_of(spec_of(), data, tmp_path / "told")
    assert told["ledger"]["epsilon"] > 0
    tuning = told["ledger"]["tuning"]
    assert (tuning["trials"], tuning["reported_runs"]) == (3, spec_of().fields["runs"])
    (choice,) = told["ledger"]["chosen_on_private_data"]
    assert "3 trainings on the private records, as declared" in choice["what"]
    assert f"epsilon {rounded_up(tuning['epsilon'])} at delta" in choice["cost"]
    assert "no finite epsilon for those records" in choice["cost"]
    assert "one of 3 settings" in told["metrics"]["selection"]
    untold = record_of(spec_of(settings_tried=None), data, tmp_path / "untold")["ledger"]
    assert "tuning" not in untold
    assert "unknown" in untold["chosen_on_private_data"][0]["what"]


def test_noise_is_calibrated_to_one_run_and_several_runs_compose(data, tmp_path):
    spec = spec_of(epsilon=2.0, noise_multiplier=None, runs=3, settings_tried=None)
    ledger = record_of(spec, data, tmp_path)["ledger"]
    assert 1.99 < ledger["one_run"]["epsilon"] <= 2.0
    noise, steps = ledger["noise_multiplier"], 3 * ledger["steps"]
    phase = Phase(Poisson(ledger["sampler"]["n"], spec.fields["batch"]), noise, steps)
    delta, relation = spec.fields["delta"], spec.fields["relation"]
    assert ledger["epsilon"] == pytest.approx(guarantee([phase], delta, relation).epsilon)
    assert "all 3 runs together; one alone: epsilon" in ledger["guaranteed"]


def test_canaries_that_are_out_are_never_in_a_batch(data):
    fields, content = TrainingSpec(**spec_of(**CANARIES).fields), prepared.load(data.parent)
    offered = canaries.Canaries.of(content, fields)
    sampler = classifier.batches_of(fields, 12, offered)
    drawn = [sampler.batch_indices(Noise("x", "keyed"), 0, step) for step in range(200)]
    assert set(range(18)) - set(np.concatenate(drawn).tolist()) == offered.empty_slots
    assert (sampler.expected_batch, sampler.sample_rate) == (8, 8 / 18)


def test_the_attack_finds_canaries_when_hardly_any_noise_hides_them(data, tmp_path):
    spec = spec_of(**CANARIES, noise_multiplier=0.01, batch=18, steps=3)
    audit = record_of(spec, data, tmp_path)["metrics"]["audit"]
    assert audit["auc"] == 1
    assert audit["lower"]["epsilon"] == pytest.approx(audit["lower"]["ceiling"])
    assert not audit["contradicted"]


@pytest.fixture
def one_run(data, tmp_path):
    """Audits of single runs, which differ in their seeds."""

    def audits(seeds):
        for number in seeds:
            spec = training_spec({"seed": number, "noise_source": "keyed"}, ONE_RUN)
            yield record_of(spec, data, tmp_path / str(number))["metrics"]["audit"]

    return audits


def test_correct_training_is_not_contradicted_by_its_canaries(one_run):
    for audit in one_run(range(3)):
        assert not audit["contradicted"]
        assert audit["profile_test"]["needed"] < audit["profile_test"]["guesses"]
        # A bound on epsilon at one delta, beside a guaranteed 4: the profile is a sharper claim.
        assert 0 < audit["lower"]["epsilon"] < 4


def test_half_the_noise_is_contradicted_by_a_thousand_canaries(one_run, half_the_noise):
    assert all(audit["contradicted"] for audit in one_run(range(3)))


def test_a_forgotten_clip_is_contradicted_by_a_thousand_canaries(one_run, no_clip):
    assert all(audit["contradicted"] for audit in one_run(range(1)))


def test_few_canaries_are_said_to_contradict_nothing(data, tmp_path):
    test = record_of(spec_of(**CANARIES), data, tmp_path)["metrics"]["audit"]["profile_test"]
    assert test["needed"] is None
    assert test["least_p_value"] > 0.05


@pytest.mark.parametrize("name", [name for name, each in NETWORKS.items() if each.inputs == 64])
def test_the_plan_counts_a_network_s_multiplications_and_activations(name):
    model = build(name, (1, 8, 8), 10, key="audit", run=0, base_seed=0)
    counted = [0, 0]

    def count(layer, inputs, output):
        counted[0] += output[0].numel() * layer.weight[0].numel()
        counted[1] += output[0].numel()

    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d):
            layer.register_forward_hook(count)
    model(torch.zeros(1, 64))
    assert [NETWORKS[name].multiplications, NETWORKS[name].activations] == counted
