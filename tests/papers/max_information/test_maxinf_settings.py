"""From the config to specs: priors by kappa, the register of looks and what it charges."""

import copy

import pytest
from figure_samples import select
from maxinf_sample_records import certificates_record, typed

from dpatlas.config.atlas import Atlas
from dpatlas.config.load import load_config, load_tier, read_config, read_tier, validate
from dpatlas.core.canonical import canonical_json, sha256
from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError
from dpatlas.papers.max_information.formulas.kappa import kappa_of_form
from dpatlas.papers.max_information.looks import check_paid, label_of
from dpatlas.papers.max_information.records.certificates import Spec
from dpatlas.papers.max_information.records.certified import Looks
from dpatlas.papers.max_information.register import GENERATED, looks_of, records_name
from dpatlas.papers.max_information.selection import settings_of
from dpatlas.papers.max_information.settings import KEY, Grid, groups, priors_of

# The paper's on MNIST.
GRID = Grid(
    zetas=[0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05],
    lrs=[5, 20, 50, 100],
    epochs=[1, 3, 5, 10, 20],
    taus=[0.02, 0.03],
    m=5000,
    sigma=1.0,
)
CONFIG = read_config()
REGISTER = CONFIG[KEY]["looks"]
DIGITS, FONTS = CONFIG[KEY]["certificates"]["sets"]
# Entries are added to this list as they are to the register; none of them ever changes.
ENTRIES = {
    "digits-1": "c6af17a161ab",
    "digits-2": "72bac23885fc",
    "fonts-1": "4510472913a1",
    "fonts-2": "a608a3f1fb83",
    "mnist-1": "b1dcc864efa7",
    "mnist-2": "66921e586aa5",
    "fonts-3": "e27f2e6823a6",
}
TUPLE = (0.02, 1.0, 359, 1, 40.0)


def after(change):
    """The config after a change of the paper's block."""
    config = read_config()
    change(config[KEY])
    return validate(config)


def with_grid(certified, **grid):
    return {**certified, "grid": {**certified["grid"], **grid}}


def fields(certified):
    """Fields of the first job of a set that is the only one."""
    config = after(lambda block: block["certificates"].update(sets=[certified]))
    return groups(config)["certificates"][0].fields


def label(spec_fields):
    return label_of(Looks.model_validate(spec_fields["looks"]))


def test_the_priors_are_the_tuples_of_lowest_kappa_and_their_noise_alone():
    priors = priors_of(GRID, 100, 60_000, 0.025)
    assert priors[0] == {"kind": "independent"}
    private, alone = (select(priors, kind=kind) for kind in ("dp-sgd", "noise-only"))
    assert len(private) == 100
    # A control for every rate and number of epochs that a tuple has.
    pairs = {(prior["lr"], prior["E"]) for prior in private}
    assert len(alone) == len(pairs) and {(prior["lr"], prior["E"]) for prior in alone} == pairs
    assert all({**prior, "kind": "dp-sgd"} in private for prior in alone)

    def cost(zeta, E):
        return kappa_of_form("optimised", 5000, zeta, 1.0, 12, E, 0.025 / 100)

    tried = {(prior["zeta"], prior["E"]) for prior in private}
    left = {(zeta, E) for zeta in GRID.zetas for E in GRID.epochs} - tried
    assert max(cost(*pair) for pair in tried) <= min(cost(*pair) for pair in left)


def test_every_prior_stands_in_one_job_of_its_data_set():
    specs = [spec.fields for spec in groups(load_tier("embedded"))["certificates"]]
    for certified in read_tier("embedded")[KEY]["certificates"]["sets"]:
        jobs = [spec for spec in specs if spec["data"]["name"] == certified["data"]["name"]]
        priors = [str(prior) for job in jobs for prior in job["priors"]]
        grid = certified["grid"]
        controls = len(grid["lrs"]) * len(grid["epochs"])
        tuples = min(certified["K1"], len(grid["zetas"]) * controls)
        assert len(priors) == len(set(priors)) == 1 + tuples + controls
        assert (jobs[0]["tuples"], jobs[0]["taus"]) == (certified["K1"], grid["taus"])
        assert all({**job, "priors": 0} == {**jobs[0], "priors": 0} for job in jobs)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("delta_mc", 0.03, "delta"),
        ("certificates.sets.0.grid.m", 2000, "certificates.sets.0.grid.m: found 2000"),
        ("certificates.sets.0.data.n_test", 500, "certificates.sets.0.data: found 1937 records"),
        ("certificates.sets.1.grid.lrs", [100, 123.456], "sets.1.grid.lrs: found 123.456"),
        ("looks.digits-1.set.grid.m", 2000, "looks.digits-1.set.grid.m: found 2000"),
        ("agreement.set", 9, "agreement.set: found 9"),
        # Poisson batches cannot be asked for.
        ("certificates.sampler", "poisson", "sampler: found a key that does not exist"),
    ],
)
def test_settings_that_cannot_go_together_are_refused_before_any_job(path, value, words):
    *parents, last = path.split(".")

    def change(block):
        for name in parents:
            block = block[int(name) if name.isdigit() else name]
        block[last] = value

    with pytest.raises(InputError) as caught:
        Atlas(after(change))
    assert words in str(caught.value)


def test_the_register_is_only_ever_added_to():
    digests = {name: sha256(canonical_json(look))[:12] for name, look in REGISTER.items()}
    assert list(digests.items())[: len(ENTRIES)] == list(ENTRIES.items())
    assert len(digests) == len(ENTRIES), "add the new entry here too"


def test_the_grid_that_was_changed_after_a_look_is_paid_for_with_what_it_was_before():
    first, second = (REGISTER[f"digits-{number}"]["set"]["grid"]["taus"] for number in (1, 2))
    assert (first, second) == ([0.1, 0.2], [0.2, 0.4])
    spec = fields(DIGITS)
    assert (spec["K1"], spec["K2"], spec["taus"]) == (12, 3, [0.2, 0.4])
    looks = "look 2 at these records; others: digits-1"
    assert label(spec) == {"selected_after_a_look": True, "looks": looks}
    # Records that no look has used, and the same ones in another selection.
    assert records_name(FONTS["data"]) != records_name(REGISTER["fonts-2"]["set"]["data"])
    assert not label(fields(FONTS))["selected_after_a_look"]
    again = {**FONTS, "data": {**FONTS["data"], "selection": 0}}
    assert label(fields(again))["selected_after_a_look"]


def test_another_selection_is_new_records_for_generated_sets_alone():
    offered = {"digits", "fonts", "strokes", "mnist", "cifar10"}
    assert offered & {name for name, entry in DATA_SETS.items() if entry.drawn} == set(GENERATED)
    assert records_name({"name": "digits", "selection": 7}) == records_name({"name": "digits"})
    assert records_name({"name": "fonts", "selection": 7}) != records_name({"name": "fonts"})
    assert records_name({"name": "fonts", "selection": 0}) == records_name({"name": "fonts"})


@pytest.mark.parametrize("tier", ["embedded", "workstation"])
def test_every_published_set_is_in_the_register(tier):
    config = read_tier(tier)
    for certified in config[KEY]["certificates"]["sets"]:
        assert looks_of(config[KEY]["looks"], certified, config["seed"])["registered"]


@pytest.mark.parametrize(
    ("certified", "seed"),
    [
        (with_grid(DIGITS, taus=[0.2, 0.8]), 0),
        ({**DIGITS, "training": {**DIGITS["training"], "epochs": 61}}, 0),
        ({**DIGITS, "options": {"widths": [200]}}, 0),
        ({**DIGITS, "data": {**DIGITS["data"], "selection": 3}}, 0),
        (DIGITS, 1),
    ],
    ids=["tau", "training", "widths", "selection", "seed"],
)
def test_a_set_that_was_changed_is_the_next_look(certified, seed):
    looks = looks_of(REGISTER, certified, CONFIG["seed"] + seed)
    assert (looks["number"], looks["registered"]) == (3, False)
    assert [other["look"] for other in looks["others"]] == ["digits-1", "digits-2"]
    assert looks_of(REGISTER, {**DIGITS, "priors_per_job": 1}, CONFIG["seed"])["registered"]


def test_new_tuples_and_taus_are_counted_beside_the_old_ones():
    spec = fields({**with_grid(DIGITS, zetas=[0.01], taus=[0.4, 0.8]), "K1": 4})
    # 3 clips x 2 rates x 2 epochs before, 1 x 2 x 2 now; .1, .2, .4 before and .8 now.
    assert (spec["K1"], spec["K2"], spec["tuples"]) == (16, 4, 4)
    assert len({str(prior) for prior in spec["priors"] if prior["kind"] == "dp-sgd"}) == 4


def test_a_config_of_ones_own_adds_to_the_register_and_takes_nothing_away(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("tier: mine\nmax_information: {looks: {}}\n")
    assert load_config([path]).max_information.plain("looks") == {"looks": REGISTER}
    path.write_text("tier: mine\nmax_information: {looks: {digits-1: null}}\n")
    with pytest.raises(InputError, match=r"looks\.digits-1"):
        load_config([path])
    look = {**copy.deepcopy(REGISTER["digits-2"]), "seed": 5, "then": "mine"}
    looks = read_config(changes={KEY: {"looks": {"mine": look}}})[KEY]["looks"]
    assert list(looks) == [*REGISTER, "mine"]
    assert looks_of(looks, DIGITS, 5)["number"] == 3


@pytest.mark.parametrize(
    ("K1", "K2", "complaint"),
    [(12, 2, "K2: found 2; allowed: .*>= 3"), (11, 3, "K1: found 11; allowed: .*>= 12")],
)
def test_a_register_that_is_not_paid_is_refused(K1, K2, complaint):
    spec = {**fields(DIGITS), "K1": K1, "K2": K2}
    with pytest.raises(InputError, match=complaint):
        check_paid(Spec.model_validate(spec), [TUPLE], [0.4])
    record = certificates_record(runs=1)
    names = dict(zip(("zeta", "sigma", "m", "E", "lr"), TUPLE, strict=True))
    row = record["metrics"]["rows"][0] | names | {"prior": "dp-sgd", "tau": 0.4, "run": 0}
    record["spec"], record["metrics"]["rows"] = spec, [row]
    with pytest.raises(InputError, match=complaint):
        settings_of(typed([record]))
