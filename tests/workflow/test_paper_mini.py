"""The tiers for clusters and GPUs on miniatures: what they do there was done here, smaller."""

import hashlib
import json
import re
import subprocess
import sys

import pytest
from archives import write_data
from mini_run import BROKEN, HERE, MiniRun
from shrink import shrink

from dpatlas.base.records import read_record
from dpatlas.data.prepare import Options
from dpatlas.data.registry import find
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import read_tier, validate

# Keys that carry sizes: names of jobs and tunings, which priors share a job, which look a study is.
SIZED = ("slug", "tuning", "priors", "looks")
TIERS = ("printed", "paper")
# Their data sets that are made here or ship with a package.
GENERATED = {"printed": {"leaves", "leaves-grey"}, "paper": {"digits", "leaves"}}


MARKS = (pytest.mark.slow, pytest.mark.mini)


@pytest.fixture(scope="module", params=[pytest.param(tier, marks=MARKS) for tier in TIERS])
def mini(request, tmp_path_factory):
    """The tier, run: 20 minutes of two cores, most of them in the probes of large networks."""
    run = MiniRun(tmp_path_factory.mktemp(f"{request.param}-mini"), request.param)
    try:
        run.run()
    finally:
        run.server.server.close()
    return run


def words(value):
    """A spec without its numbers: its keys, its words, and where a number stands."""
    if isinstance(value, dict):
        return frozenset((key, words(each)) for key, each in value.items() if key not in SIZED)
    if isinstance(value, list):
        return frozenset(map(words, value))
    # A backbone's id ends in a digest of its settings.
    return re.sub("-[0-9a-f]{8}$", "", value) if isinstance(value, str) else type(value).__name__


def structure(atlas):
    return {
        (key, group, words(spec.fields))
        for key, groups in atlas.groups.items()
        for group, specs in groups.items()
        for spec in specs
    }


@pytest.mark.parametrize("tier", TIERS)
def test_only_sizes_differ_from_the_tier(tier):
    config = read_tier(tier)
    small = Atlas(validate({**shrink(config), "tier": f"{tier}-mini"}))
    assert structure(small) == structure(Atlas(validate(config)))


@pytest.mark.parametrize(
    ("tier", "small"),
    [("smoke", False), ("embedded", False), ("workstation", False)]
    + [(tier, small) for tier in TIERS for small in (False, True)],
)
def test_every_data_set_of_a_tier_is_one_that_can_be_asked_for(tier, small, tmp_path):
    miniatures = write_data(tmp_path, tmp_path) if small else {}
    config = read_tier(tier)
    for options in Atlas(validate(shrink(config) if small else config)).data_sets.values():
        asked = json.loads(options)
        name = asked.pop("name")
        data_set = miniatures.get(name, find(name))
        chosen = Options.of(asked, data_set)
        for split, counts in data_set.counts.items():
            available = sum(counts[data_set.classes.index(each)] for each in chosen.classes)
            assert parts(chosen, split, data_set) <= available


def parts(chosen, split, data_set):
    """Records that are asked for of a split; without a test split all come from the other."""
    training = (chosen.n_train or 0) + chosen.n_validation
    testing = (chosen.n_add or 0) + chosen.n_test
    if "test" not in data_set.counts:
        return training + testing
    return training if split == "train" else testing


def test_a_size_that_no_rule_knows_is_not_overlooked():
    paper = read_tier("paper")
    paper["lp_fft"]["umap"][0]["new_size"] = [3, 4]
    with pytest.raises(KeyError, match=r"lp_fft\.umap\.new_size"):
        shrink(paper)


def test_a_process_of_the_run_reaches_no_other_host(tmp_path):
    path = tmp_path / "expected.json"
    path.write_text('{"data": {}, "weights": {}}')
    code = "import socket; socket.create_connection(('192.0.2.1', 80), 1)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(HERE / "site"), "MINIATURES": str(path)},
        capture_output=True,
        text=True,
    )
    assert "asks for ('192.0.2.1', 80)" in result.stderr


def test_every_record_product_and_the_page_are_there(mini):
    for path in mini.atlas.all_records():
        read_record(mini.project / path)
    for product in (*mini.atlas.product_files(), "claims.csv", "report/index.html"):
        assert (mini.results / product).stat().st_size > 0
    assert not list(mini.results.glob("checkpoints/**/*.npz"))


def test_every_rule_of_the_tier_ran(mini):
    assert mini.rules() == mini.planned()


def test_every_data_set_is_a_download_the_given_archive_or_made_here(mini):
    manifests = [json.loads(path.read_text()) for path in mini.results.glob("data/*/manifest.json")]
    assert len(manifests) == len(mini.atlas.data_sets)
    fetched = downloads(mini)
    for manifest in manifests:
        file = manifest["source"]["file"]
        given = file is not None and (mini.root / file).is_file()
        assert file is None or given or file in fetched
        assert given == (manifest["name"] == "pneumonia-224")
    without_file = {each["name"] for each in manifests if each["source"]["file"] is None}
    assert without_file == GENERATED[mini.tier]


def test_every_published_file_is_fetched_once_and_recorded(mini):
    fetched = downloads(mini)
    assert set(fetched) == {path.name for path in mini.served.iterdir()} == set(mini.server.asked)
    for name, record in fetched.items():
        content = (mini.served / name).read_bytes()
        assert record["sha256"] == hashlib.sha256(content).hexdigest()
        broken = name.startswith(BROKEN)
        place = "official" if broken else "mirror"
        assert record["address"] == f"{mini.server.address}/{place}/{name}"
        assert mini.server.asked[name] == [
            "mirror",
            *(["mirror range", "official range"] if broken else []),
        ]


def test_imported_backbones_compute_what_the_fetched_networks_do(mini):
    fetched = downloads(mini)
    for spec in mini.atlas.groups["pretrain"]["imported"]:
        metrics = read_record(mini.project / mini.atlas.record(spec.id))["metrics"]
        weights = metrics["weights"]
        assert weights["sha256"] == fetched[weights["file"]]["sha256"]
        assert metrics["classes"] == 1000 and metrics["difference"] < 1e-4


def downloads(mini):
    return json.loads((mini.project / "data/cache/downloads.json").read_text())
