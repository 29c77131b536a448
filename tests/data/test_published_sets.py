"""What holds for every published set: accepted copies, places, downloads, refusals.

That a reader gives the published images is shown beside torchvision's readers.
"""

from dataclasses import replace

import cifar10_miniature
import cifar100_miniature
import mnist_miniature
import numpy as np
import pneumonia_miniature
import pytest
import stl10_miniature
from copies import md5, prepared, refusal
from local_server import send

from dpatlas.data.prepare import prepare
from dpatlas.data.registry import DATA_SETS

# Of every set: its miniature, two of its classes, and the forms of a copy that hold equal images.
ARCHIVES = ("write_archive", "write_unpacked")
SETS = {
    "cifar10": (cifar10_miniature, ["airplane", "automobile"], ARCHIVES),
    "cifar10 as JPEG": (
        cifar10_miniature,
        ["airplane", "automobile"],
        ("write_jpeg_tar", "write_jpeg_folder"),
    ),
    "cifar100": (cifar100_miniature, ["baby", "apple"], ARCHIVES),
    "stl10": (stl10_miniature, ["monkey", "airplane"], ARCHIVES),
    "stl10-32": (stl10_miniature, ["monkey", "airplane"], ARCHIVES),
    "mnist": (
        mnist_miniature,
        [7, 0],
        ("write_archives", "write_unpacked", "write_packed_anew", "write_mixed"),
    ),
    "pneumonia": (pneumonia_miniature, ["normal", "pneumonia"], ARCHIVES),
    "pneumonia_causes": (pneumonia_miniature, ["virus", "bacteria"], ARCHIVES),
}
IN_ARCHIVES = ["cifar10", "cifar100", "stl10", "stl10-32"]


@pytest.fixture
def copy(request, monkeypatch):
    """Name of the set, its miniature, options with two classes, forms."""
    name = request.param
    module, classes, forms = SETS[name]
    return name.partition(" ")[0], module.Miniature(monkeypatch), {"classes": classes}, forms


def each(*names):
    return pytest.mark.parametrize("copy", names or SETS, indirect=True)


@each()
def test_every_form_of_a_copy_and_both_places_give_the_same_records(copy, tmp_path):
    name, miniature, options, forms = copy
    found = []
    for form in forms:
        for folder in ("", name.partition("-")[0].partition("_")[0]):
            root = tmp_path / f"{form}-{folder}"
            (root / folder).mkdir(parents=True)
            getattr(miniature, form)(root / folder)
            found.append(prepared(name, root, root / "out", options))
    assert len({each.sha256 for each in found}) == 1
    counts = DATA_SETS[name].counts
    codes = [DATA_SETS[name].classes.index(str(each)) for each in options["classes"]]
    for split, y in (("train", found[0].y_train), ("test", found[0].y_add)):
        assert np.bincount(y).tolist() == [counts[split][code] for code in codes]
    official = [not each.manifest["source"]["kind"].startswith("JPEG") for each in found]
    assert len(set(official)) == 1 and official[0] == ("write_jpeg_tar" not in forms)


@each()
def test_the_order_of_the_classes_names_the_labels(copy, tmp_path):
    name, miniature, options, forms = copy
    getattr(miniature, forms[0])(tmp_path)
    one = prepared(name, tmp_path, tmp_path / "one", options)
    turned = {"classes": options["classes"][::-1]}
    two = prepared(name, tmp_path, tmp_path / "two", turned)
    for label in (0, 1):
        rows = one.x_train[one.y_train == label], two.x_train[two.y_train == 1 - label]
        assert {row.tobytes() for row in rows[0]} == {row.tobytes() for row in rows[1]}


@each()
def test_private_and_held_out_records_come_from_their_splits_and_share_none(copy, tmp_path):
    name, miniature, options, forms = copy
    getattr(miniature, forms[0])(tmp_path)
    whole = prepared(name, tmp_path, tmp_path / "whole", options)
    dealt = options | {"n_validation": 2, "n_test": 1, "selection": 3}
    found = prepared(name, tmp_path, tmp_path / "out", dealt)
    for x, parts in (
        (whole.x_train, (found.x_train, found.x_validation)),
        (whole.x_add, (found.x_add, found.x_test)),
    ):
        rows = sorted(row.tobytes() for part in parts for row in part)
        assert rows == sorted(row.tobytes() for row in x)


@each()
def test_a_copy_that_may_only_be_read_is_enough_and_stays_as_it_is(copy, tmp_path):
    name, miniature, options, forms = copy
    root = tmp_path / "root"
    root.mkdir()
    getattr(miniature, forms[0])(root)
    before = sorted(root.rglob("*"))
    for path in [*before, root]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    prepared(name, root, tmp_path / "out", options)
    assert sorted(root.rglob("*")) == before
    root.chmod(0o700)


@each()
def test_a_missing_copy_is_named_with_all_that_would_do(copy, tmp_path):
    name, _, options, _ = copy
    message = refusal(name, tmp_path, tmp_path / "out", options)
    entry = DATA_SETS[name]
    for part in ("data.root", str(tmp_path), *entry.accepts, entry.by_hand):
        assert part in message
    assert all(file.address in message for file in entry.files)
    assert ("permission to download" in message) == bool(entry.files)


@each(*IN_ARCHIVES)
@pytest.mark.parametrize("change", ["truncated", "corrupted"])
def test_an_archive_with_another_md5_is_never_opened(copy, tmp_path, monkeypatch, change):
    name, miniature, options, _ = copy
    path = miniature.write_archive(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content[:-100] if change == "truncated" else content)
    monkeypatch.setattr("tarfile.open", lambda *_: pytest.fail("opened"))
    message = refusal(name, tmp_path, tmp_path / "out", options)
    assert f"{path}: found md5" in message and "remove this one" in message


@each(*IN_ARCHIVES)
def test_a_published_archive_that_is_damaged_or_lacks_a_file_is_refused(copy, tmp_path):
    name, miniature, options, _ = copy
    content = miniature.archive_bytes()
    for damaged in (content[: len(content) // 2], b"<html>not found</html>"):
        miniature.register(archive=damaged)
        (tmp_path / DATA_SETS[name].files[0].name).write_bytes(damaged)
        message = refusal(name, tmp_path, tmp_path / "out", options)
        assert "a truncated or damaged archive" in message
    lacking = next(iter(miniature.raw()))
    miniature.write_archive(tmp_path, without=[lacking])
    assert f"found no {lacking}" in refusal(name, tmp_path, tmp_path / "out", options)


@each(*IN_ARCHIVES)
def test_changed_and_missing_files_of_an_unpacked_copy_are_named(copy, tmp_path):
    name, miniature, options, _ = copy
    folder = miniature.write_unpacked(tmp_path)
    changed, *_, missing = miniature.raw()
    (folder / changed).write_bytes(b"something else")
    message = refusal(name, tmp_path, tmp_path / "out", options)
    assert f"{folder / changed}: found md5" in message
    (folder / missing).unlink()
    message = refusal(name, tmp_path, tmp_path / "out", options)
    assert f"{folder.name}: found no {missing}; allowed: all files of {name}" in message


@each(*IN_ARCHIVES)
def test_an_archive_is_fetched_where_that_is_allowed(copy, server, tmp_path, monkeypatch):
    name, miniature, options, _ = copy
    content = miniature.archive_bytes()
    server.answers = [send(content)]
    miniature.register(archive=content)
    file = replace(DATA_SETS[name].files[0], address=f"{server.address}/published")
    monkeypatch.setitem(DATA_SETS, name, replace(DATA_SETS[name], files=(file,)))
    folder = {"download_folder": tmp_path / "cache"}
    for _ in range(2):
        prepare(name, options, tmp_path / "out", allow_download=True, **folder)
    assert server.paths == ["/published"]
    assert md5((tmp_path / "cache" / file.name).read_bytes()) == file.md5
