"""Preparing a copy of a published set, and what is said where that is refused."""

import hashlib
import io
import tarfile
from dataclasses import replace

import pytest

from dpatlas.data.prepare import prepare
from dpatlas.data.prepared import Prepared, load
from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError


def prepared(name, root, out, options) -> Prepared:
    # The default cache is relative to the working folder and must not be seen here.
    prepare(name, options, out, data_root=root, download_folder=out / "cache")
    return load(out)


def refusal(name, root, out, options) -> str:
    """The message, in one line; nothing is written."""
    with pytest.raises(InputError) as caught:
        prepared(name, root, out, options)
    assert "\n" not in str(caught.value)
    assert not (out / "arrays.npz").exists() and not (out / "manifest.json").exists()
    return str(caught.value)


class Hostile:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (exec, ("open('proof', 'w').close()",))


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def tar_bytes(members, mode) -> bytes:
    """A packed tar file; a member is (name, bytes) or a ready TarInfo."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return stream.getvalue()


class OfficialCopy:
    """A small official archive, packed or not, and a registry that expects it.

    Of a subclass: `entries`, which share the archive; `folder`, inside it; `per_class`, images by
    split; `raw(**replaced)`, the files that count, by name; `extras`, members that are never read.
    """

    extras = ()

    def register(self, archive=b"", files=None):
        """Make the registry expect these sizes, and `archive` and `files` as published."""
        files = files or self.raw()
        for entry in self.entries:
            changed = replace(
                entry,
                counts={split: (n,) * len(entry.classes) for split, n in self.per_class.items()},
                files=(replace(entry.files[0], md5=md5(archive)),),
                unpacked_md5={name: md5(files[name]) for name in entry.unpacked_md5},
            )
            self.patch.setitem(DATA_SETS, entry.name, changed)

    def archive_bytes(self, without=(), **replaced) -> bytes:
        files = {
            name: content for name, content in self.raw(**replaced).items() if name not in without
        }
        members = [(f"{self.folder}/{name}", content) for name, content in files.items()]
        return tar_bytes([*self.extras, *members], "w:gz")

    def write_archive(self, root, **changes):
        """The official archive, with its md5 registered."""
        content = self.archive_bytes(**changes)
        self.register(archive=content)
        path = root / self.entries[0].files[0].name
        path.write_bytes(content)
        return path

    def write_unpacked(self, root):
        (root / self.folder).mkdir(parents=True)
        for name, content in self.raw().items():
            (root / self.folder / name).write_bytes(content)
        return root / self.folder
