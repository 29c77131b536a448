"""Which jobs, data sets and records a config asks for."""

import json
from pathlib import Path

import pytest
from tier_atlases import atlas_of

from dpatlas.base.files import check_writable, write_json
from dpatlas.errors import InputError
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_config, load_tier, read_tier, validate


def test_every_record_behind_a_figure_is_a_spec_of_the_run():
    for tier in ("embedded", "smoke", "workstation", "paper"):
        atlas = atlas_of(tier)
        assert set(atlas.claim_records()) < set(atlas.all_records())
        paths = set(atlas.all_records())
        for name in [*atlas.figures, *atlas.tables]:
            # Without LoRA of ours its table has the printed values alone.
            assert atlas.behind(name) or (tier, name) == ("workstation", "lpfft_lora")
            assert set(atlas.behind(name)) <= paths
        # A whole run has every figure and table of its papers.
        assert not atlas.left_out
        # Its own verdicts do not stand beside themselves.
        beside = {Path(path).parent.name for path in atlas.published(here=False)}
        assert beside and tier not in beside
        # The numbers of smoke mean nothing.
        assert json.loads(atlas.claim_settings())["verdicts"] == (tier != "smoke")


def test_claims_of_a_disabled_paper_are_read_too():
    atlas = Atlas(load_config(changes={"kl_privacy": {"enabled": False}}))
    assert "src/dpatlas_workflow/papers/kl_privacy/claims.yaml" in atlas.files("claims.yaml")


def test_a_results_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    check_writable(tmp_path / "new" / "folder")
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="file"):
        check_writable(file / "below")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(InputError, match="without write permission"):
        check_writable(tmp_path / "new")


def test_a_partial_run_shows_whole_figures_and_rows_of_tables(tmp_path):
    """Verdicts read whole groups alone; of a condition, the runs before the first missing one."""
    settings = read_tier("smoke")
    first, *_ = sets = settings["max_information"]["certificates"]["sets"]
    first["priors_per_job"] = 1
    sets.append({**first, "data": {**first["data"], "name": "fonts"}})
    config = validate(settings)
    whole, partial = Atlas(config, tmp_path), config.model_copy(update={"partial": True})
    there = [path for path in whole.behind("maxinf_certificates") if "fonts" not in path]
    *_, gap = (path for path in there if "-run0-" in path)
    for path in {*whole.behind("kl_vs_depth"), *there} - {gap}:
        write_json(Path(path), {})
    atlas = Atlas(partial, tmp_path)
    assert set(atlas.products) == {"kl_vs_depth", "maxinf_certificates", "maxinf_grid"}
    rows = [Path(path).parent.name for path in atlas.behind("maxinf_certificates")]
    lost = Path(gap).parent.name.partition("-run")[0]
    assert rows and not any(name.startswith(lost) for name in rows)
    judged = json.loads(atlas.claim_settings())
    assert judged["partial"] and judged["kl_privacy"]["groups"]["depth"]
    assert judged["max_information"]["groups"]["certificates"] == []
    assert set(atlas.specs) < set(whole.specs) and not atlas.tunings
    # The second estimate of the risk, which this table may lack, and the certificates, without
    # which it is nothing.
    for kind, left in (("agreement", True), ("", False)):
        for path in {*there} - {gap}:
            if kind in path:
                Path(path).unlink(missing_ok=True)
        assert ("maxinf_certificates" in Atlas(partial, tmp_path).products) is left


def test_a_partial_run_without_the_record_of_a_tuning_is_refused(tmp_path):
    config = load_tier("imagenet")
    whole = Atlas(config, tmp_path)
    first, *_ = whole.groups["lp_fft"]["strategies"]
    write_json(Path(whole.record(first.id)), {})
    with pytest.raises(InputError, match="partial: found runs without the record of their tuning"):
        Atlas(config.model_copy(update={"partial": True}), tmp_path)


def test_runs_at_the_same_time_have_the_same_lists(tmp_path):
    """A figure would show the records of the run that began last."""
    config = load_tier("smoke")
    other = config.model_copy(update={"seed": 1})
    first = Atlas(config, tmp_path)
    first.write_lists()
    listed = first.folder / "lists/sgld_utility.txt"
    before = listed.read_text()
    with pytest.raises(InputError, match=r"smoke: found another run with other settings"):
        Atlas(other, tmp_path).write_lists()
    Atlas(config, tmp_path).write_lists()
    assert listed.read_text() == before
    del first
    Atlas(other, tmp_path).write_lists()
    assert listed.read_text() != before
