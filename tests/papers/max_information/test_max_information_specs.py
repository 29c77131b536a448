import pytest

from dpatlas.config.atlas import Atlas
from dpatlas.config.load import load_config, load_tier, read_config, read_tier, validate
from dpatlas.errors import InputError
from dpatlas.papers.max_information.formulas.kappa import kappa_of_form
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


def changed(change):
    config = read_config()
    change(config[KEY])
    return validate(config)


def test_the_priors_are_the_tuples_of_lowest_kappa_and_their_noise_alone():
    priors = priors_of(GRID, 100, 60_000, 0.025)
    assert priors[0] == {"kind": "independent"}
    private = [prior for prior in priors if prior["kind"] == "dp-sgd"]
    alone = [prior for prior in priors if prior["kind"] == "noise-only"]
    assert len(private) == 100
    # A control for every rate and number of epochs that a tuple has.
    assert len(alone) == len({(prior["lr"], prior["E"]) for prior in private})
    assert {(prior["lr"], prior["E"]) for prior in alone} == {
        (prior["lr"], prior["E"]) for prior in private
    }
    assert all({**prior, "kind": "dp-sgd"} in private for prior in alone)

    def cost(zeta, E):
        return kappa_of_form("optimised", 5000, zeta, 1.0, 12, E, 0.025 / 100)

    tried = {(prior["zeta"], prior["E"]) for prior in private}
    left = {(z, E) for z in GRID.zetas for E in (1, 3, 5, 10, 20)} - tried
    assert max(cost(*each) for each in tried) <= min(cost(*each) for each in left)


def test_every_prior_stands_in_one_job_of_its_data_set():
    for tier in ("embedded", "smoke"):
        config = load_tier(tier)
        for each in read_tier(tier)[KEY]["certificates"]["sets"]:
            jobs = [
                spec
                for spec in groups(config)["certificates"]
                if spec.fields["data"]["name"] == each["data"]["name"]
            ]
            found = [str(prior) for spec in jobs for prior in spec.fields["priors"]]
            size = len(each["grid"]["zetas"]) * len(each["grid"]["lrs"])
            size = min(each["K1"], size * len(each["grid"]["epochs"]))
            controls = len(each["grid"]["lrs"]) * len(each["grid"]["epochs"])
            assert len(found) == len(set(found)) == 1 + size + controls
            assert {spec.fields["tuples"] for spec in jobs} == {each["K1"]}
            assert {tuple(spec.fields["taus"]) for spec in jobs} == {tuple(each["grid"]["taus"])}
            shared = [{k: v for k, v in s.fields.items() if k != "priors"} for s in jobs]
            assert all(fields == shared[0] for fields in shared)


def test_fewer_priors_in_a_job_change_no_prior():
    def one_each(block):
        block["certificates"]["sets"][0]["priors_per_job"] = 1

    before, after = (groups(c)["certificates"] for c in (load_config(), changed(one_each)))
    assert len(after) > len(before)

    def all_priors(specs):
        return [
            prior
            for spec in specs
            if spec.fields["data"]["name"] == "digits"
            for prior in spec.fields["priors"]
        ]

    assert all_priors(before) == all_priors(after)


def test_whole_numbers_and_their_reals_are_one_run():
    def whole(block):
        block["certificates"]["sets"][0]["grid"]["sigma"] = 1
        lrs = block["certificates"]["sets"][0]["grid"]["lrs"]
        block["certificates"]["sets"][0]["grid"]["lrs"] = [float(lr) for lr in lrs]

    ids = [set(Atlas(config).ids(KEY)) for config in (load_config(), changed(whole))]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: b.update(delta_mc=0.03), "max_information.delta"),
        (
            lambda b: b["certificates"]["sets"][0]["grid"].update(m=2000),
            "max_information.certificates.sets.0.grid.m: found 2000",
        ),
        (
            lambda b: b["certificates"]["sets"][0]["training"].update(batch=5000),
            "max_information.certificates.sets.0.training.batch: found 5000",
        ),
        (
            lambda b: b["certificates"]["sets"][0]["data"].update(n_test=500),
            "max_information.certificates.sets.0.data: found 1937 records",
        ),
        (
            lambda b: b["certificates"]["sets"][1]["grid"].update(lrs=[100, 123.456]),
            "max_information.certificates.sets.1.grid.lrs: found 123.456",
        ),
        (
            lambda b: b["certificates"]["sets"][0]["grid"].update(sigma=2.0),
            "max_information.certificates.sets.0.grid.sigma: found 2.0",
        ),
        (
            lambda b: b["looks"]["digits-1"]["set"]["grid"].update(m=2000),
            "max_information.looks.digits-1.set.grid.m: found 2000",
        ),
        (lambda b: b["agreement"].update(set=9), "max_information.agreement.set: found 9"),
    ],
)
def test_settings_that_cannot_go_together_are_refused_before_any_job(change, words):
    with pytest.raises(InputError) as caught:
        Atlas(changed(change))
    assert words in str(caught.value)


def test_poisson_batches_cannot_be_asked_for(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("max_information: {certificates: {sampler: poisson}}")
    with pytest.raises(InputError, match=r"certificates\.sampler: found a key that does not exist"):
        load_config([path])
