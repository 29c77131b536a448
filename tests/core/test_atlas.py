"""Which jobs, data sets and records a config asks for."""

import pytest

from dpatlas.config.atlas import Atlas
from dpatlas.config.load import load_config, load_tier, read_config, validate
from dpatlas.core.files import check_writable
from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError


def changed(change):
    config = read_config()
    change(config["kl_privacy"])
    return set(Atlas(validate(config)).specs) - set(Atlas(load_config()).specs)


def test_one_init_less_changes_no_other_job():
    def drop(block):
        block["inits"].remove("ntk")

    # The Monte Carlo check lists its inits in one spec.
    assert [name.split("-w")[0] for name in changed(drop)] == ["constants"]


def test_every_record_behind_a_figure_is_a_spec_of_the_run():
    for tier in ("embedded", "smoke", "workstation", "paper"):
        atlas = Atlas(load_tier(tier))
        assert set(atlas.claim_records()) < set(atlas.all_records())
        paths = set(atlas.all_records())
        for name in [*atlas.figures, *atlas.tables]:
            # Without LoRA of ours its table has the printed values alone.
            assert atlas.behind(name) or (tier, name) == ("workstation", "lpfft_lora")
            assert set(atlas.behind(name)) <= paths


def test_no_two_jobs_share_noise():
    digests = [spec.digest for spec in Atlas(load_config()).specs.values()]
    keys = {Noise(digest, "keyed").key(0, 0, "step") for digest in digests}
    assert len(keys) == len(digests)


def test_the_paper_tier_has_the_settings_of_figures_1_and_2():
    atlas = Atlas(load_tier("paper"))
    specs = [spec.fields for spec in atlas.groups["kl_privacy"]["depth"]]
    assert {spec["width"] for spec in specs} == {1024}
    assert {spec["depth"] for spec in specs} == {2, 4, 6, 8, 10, 12, 14, 16}
    assert {(spec["runs"], spec["outputs"], spec["sigma"]) for spec in specs} == {(6, 2, 0.01)}
    assert {spec["data"]["n_train"] + spec["data"]["n_add"] for spec in specs} == {12000}
    widths = [spec.fields for spec in atlas.groups["kl_privacy"]["width"]]
    assert {spec["width"] for spec in widths} == {128, 256, 512, 1024, 2048}
    assert {spec["depth"] for spec in widths} == {10}


def test_a_sweep_over_depths_with_fewer_runs_shares_them_with_the_other_figures():
    groups = Atlas(load_tier("printed")).groups["kl_privacy"]
    runs = {
        name: [spec.id for spec in groups[name] if spec.slug.startswith("he-d10-w1024-run")]
        for name in ("depth", "width", "epochs")
    }
    assert [len(ids) for ids in runs.values()] == [2, 6, 6]
    assert runs["depth"] == runs["width"][:2] and runs["width"] == runs["epochs"]
    depths = {spec.fields["depth"] for spec in groups["depth"]}
    assert len(groups["depth"]) == 4 * 2 * len(depths)


def test_an_attack_needs_no_data_set_and_training_does():
    atlas = Atlas(load_config())
    attacks, training = (atlas.ids("audit", name) for name in ("mechanisms", "training"))
    assert all(atlas.data_manifest(name) == [] for name in attacks)
    (path,) = atlas.data_manifest(training[0])
    assert path.split("/")[-2] in atlas.data_sets()


def test_a_results_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    check_writable(tmp_path / "new" / "folder")
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="file"):
        check_writable(file / "below")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(InputError, match="without write permission"):
        check_writable(tmp_path / "new")
