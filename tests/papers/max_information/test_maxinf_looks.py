"""The register of looks: what it holds, what it charges, and that nothing leaves it."""

import copy

import pytest
from maxinf_sample_records import certificates_record, typed
from pydantic import ValidationError

from dpatlas.config.load import load_config, read_config, read_tier, validate
from dpatlas.core.canonical import canonical_json, sha256
from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError
from dpatlas.papers.max_information.looks import check_paid, label_of
from dpatlas.papers.max_information.records.certificates import Spec
from dpatlas.papers.max_information.records.certified import Looks
from dpatlas.papers.max_information.register import GENERATED, looks_of, records_name
from dpatlas.papers.max_information.selection import settings_of
from dpatlas.papers.max_information.settings import KEY, groups

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


def changed(chosen, **grid):
    return {**chosen, "grid": {**chosen["grid"], **grid}}


def fields(chosen, config=CONFIG):
    """Of the set's first job."""
    changed = {**config, KEY: {**config[KEY], "certificates": with_set(config, chosen)}}
    jobs = groups(validate(changed))
    return jobs["certificates"][0].fields


def with_set(config, chosen):
    return {**config[KEY]["certificates"], "sets": [chosen]}


def test_the_register_is_only_ever_added_to():
    found = {name: sha256(canonical_json(look))[:12] for name, look in REGISTER.items()}
    assert list(found.items())[: len(ENTRIES)] == list(ENTRIES.items())
    assert len(found) == len(ENTRIES), "add the new entry here too"


def test_the_grid_that_was_changed_after_a_look_is_paid_for_with_what_it_was_before():
    first, second = (REGISTER[f"digits-{number}"]["set"]["grid"]["taus"] for number in (1, 2))
    assert (first, second) == ([0.1, 0.2], [0.2, 0.4])
    found = fields(DIGITS)
    assert (found["K1"], found["K2"]) == (12, 3)
    assert found["taus"] == [0.2, 0.4]
    label = label_of(Looks.model_validate(found["looks"]))
    assert label["selected_after_a_look"]
    assert label["looks"] == "look 2 at these records; others: digits-1"
    assert "0.4 took the place of 0.1" in REGISTER["digits-1"]["then"]


def test_records_that_no_look_has_used_carry_no_label():
    found = fields(FONTS)
    assert records_name(FONTS["data"]) != records_name(REGISTER["fonts-2"]["set"]["data"])
    assert (found["K1"], found["K2"]) == (6, 2)
    assert label_of(Looks.model_validate(found["looks"])) == {
        "selected_after_a_look": False,
        "looks": "look 1 at these records, and the only one",
    }
    again = {**FONTS, "data": {**FONTS["data"], "selection": 0}}
    assert label_of(Looks.model_validate(fields(again)["looks"]))["selected_after_a_look"]


def test_another_selection_is_new_records_for_generated_sets_alone():
    offered = {"digits", "fonts", "strokes", "mnist", "cifar10"}
    assert offered & {name for name, entry in DATA_SETS.items() if entry.drawn} == set(GENERATED)
    assert records_name({"name": "digits", "selection": 7}) == records_name({"name": "digits"})
    assert records_name({"name": "fonts", "selection": 7}) != records_name({"name": "fonts"})
    assert records_name({"name": "fonts", "selection": 0}) == records_name({"name": "fonts"})


@pytest.mark.parametrize("tier", ["embedded", "workstation"])
def test_every_published_set_is_in_the_register(tier):
    config = read_tier(tier)
    for chosen in config[KEY]["certificates"]["sets"]:
        assert looks_of(config[KEY]["looks"], chosen, config["seed"])["registered"]


@pytest.mark.parametrize(
    "chosen",
    [
        changed(DIGITS, taus=[0.2, 0.8]),
        changed(DIGITS, zetas=[0.01, 0.04]),
        {**DIGITS, "training": {**DIGITS["training"], "epochs": 61}},
        {**DIGITS, "options": {"widths": [200]}},
        {**DIGITS, "data": {**DIGITS["data"], "selection": 3}},
    ],
    ids=["tau", "zeta", "training", "widths", "selection"],
)
def test_a_set_that_was_changed_is_the_next_look(chosen):
    looks = fields(chosen)["looks"]
    assert (looks["number"], looks["registered"]) == (3, False)
    assert [other["look"] for other in looks["others"]] == ["digits-1", "digits-2"]
    assert "not in the register" in label_of(Looks.model_validate(looks))["looks"]


def test_another_base_seed_is_another_look_and_jobs_of_another_size_are_none():
    assert looks_of(REGISTER, DIGITS, CONFIG["seed"] + 1)["number"] == 3
    assert looks_of(REGISTER, {**DIGITS, "priors_per_job": 1}, CONFIG["seed"])["registered"]


def test_new_tuples_and_taus_are_counted_beside_the_old_ones():
    found = fields({**changed(DIGITS, zetas=[0.01], taus=[0.4, 0.8]), "K1": 4})
    # 3 clips x 2 rates x 2 epochs before, 1 x 2 x 2 now; .1, .2, .4 before and .8 now.
    assert (found["K1"], found["K2"], found["tuples"]) == (16, 4, 4)
    assert len({str(prior) for prior in found["priors"] if prior["kind"] == "dp-sgd"}) == 4


def test_a_config_of_ones_own_adds_to_the_register_and_takes_nothing_away(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("tier: mine\nmax_information: {looks: {}}\n")
    assert load_config([path]).max_information.plain("looks") == {"looks": REGISTER}
    path.write_text("tier: mine\nmax_information: {looks: {digits-1: null}}\n")
    with pytest.raises(InputError, match=r"looks\.digits-1"):
        load_config([path])
    own = {**copy.deepcopy(REGISTER["digits-2"]), "seed": 5, "then": "mine"}
    changes = {KEY: {"looks": {"mine": own}}}
    assert list(load_config(changes=changes).max_information.looks) == [*REGISTER, "mine"]
    looks = read_config(changes=changes)[KEY]["looks"]
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


def test_a_certificate_without_a_register_is_refused():
    spec = {name: value for name, value in fields(DIGITS).items() if name != "looks"}
    with pytest.raises(ValidationError, match="looks"):
        Spec.model_validate(spec)
