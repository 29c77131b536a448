"""A finished tier as one archive, and what is made of it again without training anything."""

import contextlib
import gzip
import io
import json
import os
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from dpatlas.base.files import read_json, write_json
from dpatlas.base.records import read_record
from dpatlas.errors import InputError
from dpatlas.jobs.job import execute
from dpatlas_workflow.commands import bundle as command
from dpatlas_workflow.commands import claims, publish, verify
from dpatlas_workflow.config.atlas import KEYS, Atlas
from dpatlas_workflow.config.load import merge, read_tier, validate
from dpatlas_workflow.cost.estimate import seconds_per_run
from dpatlas_workflow.evidence import claims as judging
from dpatlas_workflow.evidence.verdicts import read_claims
from dpatlas_workflow.report import bundle, lineage, manifest
from dpatlas_workflow.report.differences import compare
from dpatlas_workflow.run.command import kind_of
from dpatlas_workflow.show import make

# Simulations alone: neither data nor backbones, which no bundle holds.
ALONE = "feature_learning"
RUNS = 12


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Results of a tier with every record, figure and verdict of one paper."""
    results = tmp_path_factory.mktemp("bundle") / "results"
    others = {key: {"enabled": False} for key in KEYS if key != ALONE}
    change = {**others, "verdicts": True, ALONE: {"runs": RUNS}}
    atlas = Atlas(validate(merge(read_tier("smoke"), change)), results)
    run = atlas.folder
    for spec in atlas.specs.values():
        module, kind = kind_of(spec)
        places = {"record": run / f"runs/{spec.key}/{spec.id}/record.json", "data": None}
        execute(spec, kind, module=module, checkpoints=run / "checkpoints", device="cpu", **places)
    write_json(run / "config.json", atlas.config.plain())
    atlas.write_lists()
    write_json(run / "lists/costs.json", seconds_per_run(atlas))
    for name, product in atlas.products.items():
        words = ["--tier", "smoke", "--settings", atlas.settings(ALONE)]
        words += ["--output", str(run / product.folder)]
        words += ["--records", str(run / f"lists/{name}.txt")]
        words += ["--lineage", str(run / f"lineage/{name}.json")]
        make.main([atlas.blocks[ALONE].product_module(name), *words])
    words = ["--tier", "smoke", "--settings", str(run / "lists/claims.json")]
    words += ["--records", str(run / "lists/claims.txt"), "--costs", str(run / "lists/costs.json")]
    words += ["--products", str(run / "lists/products.txt")]
    with contextlib.redirect_stdout(io.StringIO()):
        judging.main([*words, "--output", str(run / "claims.csv")])
    verdicts = [run / f"{name}.csv" for name in ("claims", "comparisons")]
    numbers = [*verdicts, *run.glob("figures/*.csv"), *run.glob("tables/*.csv")]
    (run / "manifest.txt").write_text(manifest.manifest_of(run, numbers))
    return results


@pytest.fixture(scope="module")
def archive(finished, tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "smoke.tar.gz"
    assert command.main(words(finished, path)) == 0
    return path


def words(results, path):
    return ["--tier", "smoke", "--results", str(results), "--output", str(path)]


def opened(archive, results, *more):
    return command.main(["--open", str(archive), "--results", str(results), *more])


def packed(path, files, about=None):
    """An archive of these files; about: changes of what it says of itself."""
    bundle.write_bundle(path, "smoke", files, None)
    if about is not None:
        with tarfile.open(path) as old:
            contents = {member.name: old.extractfile(member).read() for member in old}
        contents[bundle.NAME] = json.dumps({**json.loads(contents[bundle.NAME]), **about}).encode()
        tarred(path, [(tarfile.TarInfo(name), text) for name, text in contents.items()])
    return path


def tarred(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_a_finished_run_is_published_and_differs_in_nothing_from_what_it_publishes(
    finished, tmp_path, capsys
):
    docs = tmp_path / "docs"
    assert publish.main(["--tier", "smoke", "--results", str(finished), "--docs", str(docs)]) == 0
    assert {path.name for path in docs.glob("smoke/*/")} == {ALONE}
    assert verify.main([str(docs / "smoke")]) == 0
    traces = [lineage.find(str(of / "smoke"), finished, "smoke") for of in (finished, docs)]
    assert compare(*traces)["differences"] == []
    folders = ["--results", str(finished), "--docs", str(docs)]
    assert claims.main(["--tier", "smoke", "--check", *folders]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 of ")


@pytest.mark.slow
def test_what_is_opened_has_every_number_to_the_byte(finished, archive, tmp_path, capsys):
    assert opened(archive, tmp_path) == 0
    run, again = finished / "smoke", tmp_path / "smoke"
    said = capsys.readouterr().out
    count = len((run / "manifest.txt").read_text().splitlines())
    assert f"{count} of {count} csv files have the bytes of the run" in said
    assert "0 of " in said and "verdicts changed" in said
    for name in ("manifest.txt", "claims.csv"):
        assert (again / name).read_bytes() == (run / name).read_bytes()
    for path in (*run.glob("figures/*"), *run.glob("tables/*"), *run.glob("runs/*/*/record.json")):
        assert (again / path.relative_to(run)).read_bytes() == path.read_bytes(), path.name
    assert "<html" in (again / "report/index.html").read_text()
    assert verify.differences(again) == []
    # Neither checkpoints nor what says something about the machine.
    assert not list(again.glob("**/cost.json")) and not (again / "checkpoints").exists()


@pytest.mark.slow
def test_two_archives_of_a_run_are_equal_bytes(finished, archive, tmp_path):
    other = tmp_path / "again.tar.gz"
    copied = shutil.copytree(finished, tmp_path / "elsewhere")
    assert command.main(words(copied, other)) == 0
    assert other.read_bytes() == archive.read_bytes()


def test_other_margins_judge_the_same_records_again(
    finished, archive, tmp_path, monkeypatch, capsys
):
    """Effects are far below a margin of a million times the usual one."""

    def copied(words):
        """Figures do not change with margins."""
        name, to = words[0].rpartition(".")[2], Path(words[words.index("--output") + 1])
        to.mkdir(parents=True, exist_ok=True)
        for path in finished.glob(f"smoke/*s/{name}.*"):
            shutil.copy(path, to)

    monkeypatch.setattr(make, "main", copied)
    claims = judging.read_claims()
    small = tuple(
        replace(claim, entries=tuple(replace(each, margin=1e-3) for each in claim.entries))
        for claim in claims.claims
    )
    monkeypatch.setattr(judging, "read_claims", lambda: replace(claims, claims=small))
    assert opened(archive, tmp_path) == 0
    before = {row["claim"]: row for row in read_claims(tmp_path / "smoke")}
    capsys.readouterr()
    # What was opened before is replaced.
    assert opened(archive, tmp_path, "--margin-factor", "1e6") == 0
    after = {row["claim"]: row for row in read_claims(tmp_path / "smoke")}
    scaled = [name for name, row in before.items() if row["margin"]]
    assert scaled and all(after[name]["margin"] == "1000" for name in scaled)
    moved = [name for name in before if before[name]["verdict"] != after[name]["verdict"]]
    assert moved
    said = capsys.readouterr().out
    assert "other bytes: claims.csv" in said
    assert all(after[name]["verdict"] == "not reproduced" for name in moved)
    bundled = {row["claim"]: row for row in read_claims(finished / "smoke")}
    for name, row in bundled.items():
        assert (f"{name}: " in said) == (row["verdict"] != after[name]["verdict"])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--open", "x.tar.gz", "--margin-factor", "0"), "--margin-factor: found 0.0; allowed: a"),
        (("--open", "x.tar.gz", "--margin-factor", "nan"), "--margin-factor: found nan; allowed"),
        (("--open", "gone.tar.gz"), "gone.tar.gz: found No such file"),
        (("--tier", "smoke", "--results", "nowhere"), "no such folder"),
        (("--open", "x.tar.gz", "--tier", "smoke"), "--tier: found it together with --open"),
        (("--open", "x.tar.gz", "--output", "y"), "--output: found it together with --open"),
        (("--output", "/"), "/: found a folder; allowed: a file, which need not exist: --output"),
        (("--open", "/"), "/: found Is a directory"),
        (("--open", "x.tar.gz", "--results", __file__), f"{__file__}: found a file; allowed: a f"),
        (("--output", __file__), f"{__file__}: found a file that is no archive; allowed: another"),
        (("--output", f"{__file__}/x"), f"{__file__}: found a file; allowed: a folder"),
    ],
)
def test_wrong_arguments_end_in_a_line_and_2(arguments, line, refusal_of):
    assert line in refusal_of(command.main, *arguments)


OTHER = "found other content than"


@pytest.mark.parametrize(
    ("pattern", "old", "new", "found"),
    [
        ("claims.csv", "0", "1", rf"\.csv: {OTHER}"),
        ("figures/feature_risk.csv", "0", "1", rf"\.csv: {OTHER}"),
        ("manifest.txt", "0", "1", rf"\.csv: {OTHER}"),
        ("runs/*/*/record.json", "0.1", "0.2", OTHER),
        ("runs/*/*/record.json", None, "", "no such file"),
        # Verdicts that read other records.
        ("lists/claims.txt", "0", "1", "found other records than the config"),
    ],
)
def test_an_edited_or_incomplete_run_is_not_bundled(finished, tmp_path, pattern, old, new, found):
    copied = shutil.copytree(finished, tmp_path / "results")
    path = next(copied.glob(f"smoke/{pattern}"))
    if old is None:
        path.unlink()
    else:
        path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match=found):
        command.main(words(copied, tmp_path / "x.tar.gz"))
    assert not (tmp_path / "x.tar.gz").exists()


def test_a_device_or_a_pipe_is_not_replaced_by_an_archive(finished, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(InputError, match=f"{path}: found neither a file nor a folder"):
        command.main(words(finished, path))
    assert path.is_fifo()


def test_a_record_that_contradicts_itself_is_not_bundled(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "record_slips", lambda record, path: ["another spec"])
    with pytest.raises(InputError, match=r"record\.json: found another spec; allowed: the file as"):
        command.main(words(finished, tmp_path / "x.tar.gz"))


@pytest.fixture
def refusal(refusal_of, tmp_path):
    """A function of an archive: the line in which it is refused; nothing is left of it."""

    def opened(archive):
        line = refusal_of(command.main, "--open", archive, "--results", tmp_path / "o")
        assert not list(tmp_path.glob("o/*"))
        return line

    return opened


def test_damaged_bytes_are_refused(archive, tmp_path, refusal):
    whole, path = archive.read_bytes(), tmp_path / "bad.tar.gz"
    middle = len(whole) // 2
    flipped = bytearray(whole)
    flipped[middle] ^= 0xFF
    for content in (whole[:middle], b"", b"no archive", whole[:-9], bytes(flipped)):
        path.write_bytes(content)
        assert str(path) in refusal(path)


@pytest.mark.parametrize(
    "name",
    [
        *("../evil.json", "/tmp/evil.json", "runs/../../evil/record.json", "notes.txt"),
        *("runs/kl_privacy/../record.json", "runs/a/.hidden/record.json", "lists/a/b.txt"),
    ],
)
def test_a_path_that_leaves_the_folder_is_refused(name, tmp_path, refusal):
    path = packed(tmp_path / "bad.tar.gz", {"claims.csv": b"", name: b"{}"})
    assert repr(name) in refusal(path)
    assert not list(tmp_path.parent.glob("**/evil*"))


def test_links_and_doubled_files_are_refused(tmp_path, refusal):
    link = tarfile.TarInfo("claims.csv")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    doubled = [(tarfile.TarInfo("claims.csv"), b"a"), (tarfile.TarInfo("claims.csv"), b"b")]
    for members in ([(link, b"")], doubled):
        path = tarred(tmp_path / "bad.tar.gz", members)
        assert "'claims.csv', " in refusal(path)


def test_an_archive_that_unpacks_to_more_than_any_tier_is_refused(tmp_path, refusal, monkeypatch):
    monkeypatch.setattr(bundle, "MOST_BYTES", 10_000)
    path = packed(tmp_path / "bad.tar.gz", {"claims.csv": b"0" * 20_000})
    assert "more than 10000 bytes" in refusal(path)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"format": 2}, "bundle.json: format: found 2; allowed: Input should be 1"),
        ({"tier": "../up"}, "bundle.json: tier: found '../up'"),
        ({"tier": "up\n"}, "bundle.json: tier: found 'up\\n'"),
        ({"tier": 5}, "bundle.json: tier: found 5"),
        ({"files": []}, "bundle.json: files: found []"),
        ({"files": {}}, "claims.csv: found a file that bundle.json does not name"),
        ({"files": {"claims.csv": "0" * 64}}, "claims.csv: found changed"),
        ({"files": {"config.json": "0" * 64}}, "claims.csv: found a file that"),
    ],
)
def test_what_an_archive_says_of_itself_has_to_be_true(about, words, tmp_path, refusal):
    path = packed(tmp_path / "bad.tar.gz", {"claims.csv": b"claim\n"}, about)
    assert words in refusal(path)


def test_records_of_another_version_are_named_in_the_archive(finished, tmp_path, refusal):
    copied = shutil.copytree(finished, tmp_path / "results") / "smoke"
    files = command.bundled(Atlas(command.config_of("smoke", finished), finished))
    name = bundle.records_in(files)[0]
    record = read_record(copied / name)
    changed = {**record, "metrics_version": 99}
    files[name] = json.dumps(changed).encode()
    path = packed(tmp_path / "old.tar.gz", files)
    line, known = refusal(path), record["metrics_version"]
    assert f"{path}/{name}: metrics_version: found 99; allowed: {known}: run its job again" in line


def test_results_that_were_not_opened_stay_as_they_are(finished, archive):
    before = (finished / "smoke/claims.csv").read_bytes()
    with pytest.raises(InputError, match="results that were not made of an archive"):
        opened(archive, finished)
    assert (finished / "smoke/claims.csv").read_bytes() == before
    assert read_json(finished / "smoke/config.json")["tier"] == "smoke"


def test_the_bytes_say_neither_when_nor_by_whom(archive):
    content = archive.read_bytes()
    # Time and name in the header of gzip.
    assert content[4:8] == bytes(4) and not content[3] & 8
    with gzip.open(archive) as stream, tarfile.open(fileobj=stream) as members:
        for member in members:
            assert (member.mtime, member.uid, member.gid, member.uname) == (0, 0, 0, "")
