"""Weight files made to take more memory than they are long."""

import zipfile

import pytest
import torch

from dpatlas.data import weights
from dpatlas.errors import InputError

MB = 1 << 20


def test_a_weight_file_that_swells_is_never_opened(tmp_path, monkeypatch):
    path, packed = tmp_path / "net.pth", tmp_path / "packed.pth"
    torch.save({"weight": torch.zeros(5 * MB)}, path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert packed.stat().st_size < MB
    # Torch would unpack it.
    assert len(torch.load(packed, weights_only=True)["weight"]) == 5 * MB
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(InputError, match="members that are not compressed"):
        weights.read(packed)


def test_members_of_a_weight_file_that_share_their_bytes_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "net.pth"
    torch.save({"weight": torch.zeros(MB)}, path)
    with zipfile.ZipFile(path, "a") as archive:
        member = next(each for each in archive.infolist() if each.filename.endswith("data/0"))
        again = [zipfile.ZipInfo(f"archive/data/{number}") for number in range(1, 9)]
        for info in again:
            for field in ("header_offset", "CRC", "compress_size", "file_size"):
                setattr(info, field, getattr(member, field))
            archive.filelist.append(info)
        archive._didModify = True
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(InputError, match=r"net\.pth: found \d+ bytes packed in"):
        weights.read(path)


def test_a_weight_file_of_an_absurd_size_or_that_is_none_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "net.pth"
    with path.open("wb") as stream:
        stream.truncate(weights.LARGEST_FILE + 1)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(InputError, match=f"{weights.LARGEST_FILE} bytes at most"):
        weights.read(path)
    with pytest.raises(InputError, match="Is a directory"):
        weights.read(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        weights.read(tmp_path / "nowhere.pth")
