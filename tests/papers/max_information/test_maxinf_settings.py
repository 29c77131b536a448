"""From the config to specs: priors by kappa, the register of looks and what it charges."""

import copy

import pytest
from figure_samples import select
from maxinf_sample_records import certificates_record, typed

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError
from dpatlas_workflow.config.load import load_config, read_config, validate
from dpatlas_workflow.papers.max_information.looks import check_paid, label_of
from dpatlas_workflow.papers.max_information.records.certificates import CertificatesSpec
from dpatlas_workflow.papers.max_information.records.certified import SetLooks
from dpatlas_workflow.papers.max_information.register import GENERATED, looks_of, records_name
from dpatlas_workflow.papers.max_information.selection import settings_of
from dpatlas_workflow.papers.max_information.settings import KEY, groups

CONFIG = read_config()
SEED = CONFIG["seed"]
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
    "digits-3": "99a15d61012e",
    "fonts-4": "0e7ed90600aa",
    "digits-4": "7de9ff2d87a3",
    "fonts-5": "cbf93e7587f6",
    "mnist-3": "afae1c6d8c2f",
    "fonts-6": "bee0f5a0d4a9",
    "digits-5": "cff839f09089",
    "fonts-7": "9e83a242408a",
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


def looks_at(certified, seed=SEED, register=REGISTER):
    """The looks of a set; of the digits and of fonts every run has records of its own."""
    data = {"redeal": True, **certified["data"]}
    return looks_of(register, {**certified, "data": data}, seed)


def without_fixed(certified):
    return {name: value for name, value in certified.items() if name != "fixed"}


def label(spec_fields):
    return label_of(SetLooks.model_validate(spec_fields["looks"]))


def test_without_fixed_priors_every_prior_of_the_grid_stands_in_one_job():
    sets = [{**without_fixed(each), "priors_per_job": 4} for each in (DIGITS, FONTS)]
    config = after(lambda block: block["certificates"].update(sets=sets, runs=6))
    specs = [spec.fields for spec in groups(config)["certificates"]]
    for certified in sets:
        jobs = [spec for spec in specs if spec["data"]["name"] == certified["data"]["name"]]
        priors = [prior for job in jobs for prior in job["priors"]]
        grid = certified["grid"]
        controls = len(grid["lrs"]) * len(grid["epochs"])
        tuples = min(certified["K1"], len(grid["zetas"]) * controls)
        assert len(priors) == len(set(map(str, priors))) == 1 + tuples + controls
        # A control for every rate and number of epochs that a tuple has.
        alone = select(priors, kind="noise-only")
        assert len(alone) == controls
        assert all({**prior, "kind": "dp-sgd"} in priors for prior in alone)
        assert (jobs[0]["tuples"], jobs[0]["taus"]) == (certified["K1"], grid["taus"])
        assert all({**job, "priors": 0} == {**jobs[0], "priors": 0} for job in jobs)


def test_the_register_is_only_ever_added_to():
    digests = {name: sha256(canonical_json(look))[:12] for name, look in REGISTER.items()}
    assert list(digests.items())[: len(ENTRIES)] == list(ENTRIES.items())
    assert len(digests) == len(ENTRIES), "add the new entry here too"


def test_the_grid_that_was_changed_after_a_look_is_paid_for_with_what_it_was_before():
    first, second = (REGISTER[f"digits-{number}"]["set"]["grid"]["taus"] for number in (1, 2))
    assert (first, second) == ([0.1, 0.2], [0.2, 0.4])
    spec = fields(DIGITS)
    assert (spec["K1"], spec["K2"], spec["grid"]["taus"]) == (12, 3, [0.2, 0.4])
    others = " and ".join(f"digits-{number}" for number in range(1, 5))
    looks = f"look 5 at certificates of these records; others: {others}"
    assert label(spec) == {"selected_after_a_look": True, "looks": looks}
    # Records that no look has used, and those of a selection that was looked at.
    spec = fields(FONTS)
    assert (spec["K1"], spec["K2"], label(spec)["selected_after_a_look"]) == (6, 2, False)
    again = {**FONTS, "data": {**FONTS["data"], "selection": 0, "redeal": False}}
    assert label(fields(again))["selected_after_a_look"]


def test_records_are_new_by_selection_or_base_seed_for_generated_sets_alone():
    offered = {"digits", "fonts", "strokes", "mnist", "cifar10"}
    assert offered & {name for name, entry in DATA_SETS.items() if entry.drawn} == set(GENERATED)

    def pool(name, seed=0, **options):
        return records_name({"name": name, **options}, seed)

    # Deals of one pool share records: a look at one is a look at all.
    deals = [pool("digits", 7, redeal=True), pool("digits", selection=7), pool("digits", 1)]
    assert set(deals) == {pool("digits")}
    assert pool("fonts", selection=7) != pool("fonts") == pool("fonts", selection=0)
    # A selection is the same under every base seed; what runs draw for themselves is not.
    assert pool("fonts", 1) == pool("fonts", 2)
    fresh = [pool("fonts", seed, redeal=True) for seed in (1, 2)]
    assert len({*fresh, pool("fonts")}) == 3
    assert pool("fonts", 1, redeal=True, selection=7) == fresh[0]


def at_another_tau(tried):
    tried["grid"]["taus"] = [0.8]
    for prior in tried["fixed"].values():
        prior["tau"] = 0.8


def test_a_look_at_the_deals_of_another_base_seed_is_paid_for_by_every_deal():
    """Each deal has most of the records of any other, so what one look chose depends on all."""
    look = copy.deepcopy(REGISTER["digits-4"])
    at_another_tau(look["set"])
    look["seed"] = 77
    config = after(lambda block: block["looks"].update(mine=look))
    dealt = {spec.fields["data"]["name"]: spec.fields for spec in groups(config)["certificates"]}
    assert (dealt["digits"]["K2"], dealt["fonts"]["K2"]) == (4, 2)
    # The same look at fonts costs a study under another base seed nothing.
    look = {**copy.deepcopy(REGISTER["fonts-5"]), "seed": 77}
    at_another_tau(look["set"])
    for seed, paid in ((77, 3), (SEED, 2)):
        register = {"mine": {**look, "seed": seed}}
        config = after(lambda block, extra=register: block["looks"].update(extra))
        spec = next(
            spec.fields
            for spec in groups(config.model_copy(update={"seed": 77}))["certificates"]
            if spec.fields["data"]["name"] == "fonts"
        )
        assert spec["K2"] == paid


@pytest.mark.parametrize(
    ("certified", "seed"),
    [
        (with_grid(DIGITS, taus=[0.2, 0.8]), 0),
        ({**DIGITS, "training": {**DIGITS["training"], "epochs": 61}}, 0),
        ({**DIGITS, "options": {"widths": [200]}}, 0),
        ({**DIGITS, "data": {**DIGITS["data"], "selection": 3}}, 0),
        ({**DIGITS, "data": {**DIGITS["data"], "redeal": False}}, 0),
        (without_fixed(DIGITS), 0),
        (DIGITS, 1),
    ],
    ids=["tau", "training", "widths", "selection", "deals", "fixed", "seed"],
)
def test_a_set_that_was_changed_is_the_next_look(certified, seed):
    looks = looks_at(certified, SEED + seed)
    assert (looks["number"], looks["registered"]) == (6, False)
    names = [f"digits-{number}" for number in range(1, 6)]
    assert [other["look"] for other in looks["others"]] == names
    assert looks_at({**DIGITS, "priors_per_job": 1})["registered"]


def test_new_tuples_and_taus_are_counted_beside_the_old_ones():
    digits = without_fixed(DIGITS)
    spec = fields(
        {**with_grid(digits, zetas=[0.01], taus=[0.4, 0.8]), "K1": 4, "priors_per_job": 9}
    )
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
    look = {**copy.deepcopy(REGISTER["digits-4"]), "seed": 77, "then": "mine"}
    looks = read_config(changes={KEY: {"looks": {"mine": look}}})[KEY]["looks"]
    assert list(looks) == [*REGISTER, "mine"]
    assert looks_at(DIGITS, 77, looks)["number"] == 6


@pytest.mark.parametrize(
    ("K1", "K2", "complaint"),
    [(12, 2, "K2: found 2; allowed: .*>= 3"), (11, 3, "K1: found 11; allowed: .*>= 12")],
)
def test_a_register_that_is_not_paid_is_refused(K1, K2, complaint):
    spec = {**fields(DIGITS), "K1": K1, "K2": K2}
    with pytest.raises(InputError, match=complaint):
        check_paid(CertificatesSpec.model_validate(spec), [TUPLE], [0.4])
    record = certificates_record(runs=1)
    names = dict(zip(("zeta", "sigma", "m", "E", "lr"), TUPLE, strict=True))
    row = record["metrics"]["rows"][0] | names | {"prior": "dp-sgd", "tau": 0.4, "run": 0}
    record["spec"], record["metrics"]["rows"] = spec, [row]
    with pytest.raises(InputError, match=complaint):
        settings_of(typed([record]))
