"""Published weights as one file: `python -m dpatlas.data.fetch_weights --name N --output FILE`.

The file is found in the user's folder or among the downloads, or is fetched if that is allowed; an
interrupted download continues where it broke off. Its checksum is compared, and its content is
never opened: nothing in it is unpickled.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from dpatlas.base.files import remove_parts, replacing
from dpatlas.base.networks import PUBLISHED
from dpatlas.data.sources import CACHE
from dpatlas.data.weights import named_file, obtain
from dpatlas.errors import ArgumentParser, InputError, run_command


def main(arguments: Sequence[str]) -> None:
    """The command: the weights of one network."""
    parser = ArgumentParser(
        prog="dpatlas.data.fetch_weights", description=(main.__doc__ or ""), allow_abbrev=False
    )
    parser.add_argument("--name", required=True, help="network, as base/networks.py lists it")
    parser.add_argument("--output", required=True, type=Path, help="where the file is to appear")
    parser.add_argument("--weights-file", help="checkpoint, for weights without a known address")
    parser.add_argument("--sha256", default="", help="first digits that its checksum must have")
    parser.add_argument("--data-root", type=Path, help="folder with local copies, only read")
    parser.add_argument("--allow-download", action="store_true", help="fetch what is missing")
    parser.add_argument("--download-folder", type=Path, default=CACHE, help="where downloads go")
    parser.add_argument("--mirror", action="append", default=[], help="base address; repeatable")
    parsed = parser.parse_args(arguments)
    if parsed.name not in PUBLISHED:
        raise InputError("--name", repr(parsed.name), "one of " + ", ".join(PUBLISHED))
    address = PUBLISHED[parsed.name].address
    folders = {"data_root": parsed.data_root, "download_folder": parsed.download_folder}
    if address:
        if parsed.weights_file:
            allowed = f"none: {parsed.name} has an address"
            raise InputError("--weights-file", parsed.weights_file, allowed)
        fetched = {"allow_download": parsed.allow_download, "mirrors": parsed.mirror}
        path = obtain(address, **folders, **fetched)
    else:
        if not parsed.weights_file:
            allowed = f"a checkpoint of {parsed.name}: no address of it is known"
            raise InputError("--weights-file", "nothing", allowed)
        digits = parsed.sha256.lower()
        path = named_file(parsed.weights_file, "--weights-file", **folders, digits=digits)
    deliver(path, parsed.output, linked=path.parent == parsed.download_folder)


def deliver(path: Path, output: Path, *, linked: bool) -> None:
    """Make `output` the file at `path`: a copy or, with `linked`, a hard link where the disk can.

    It appears by rename. OSError (a full disk, a folder without permission) goes on to the caller.
    """
    if output.exists() and output.samefile(path):
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    remove_parts(output.parent, output.name)
    if linked:
        link = output.with_name(f".{output.name}.link")
        link.unlink(missing_ok=True)
        try:
            os.link(path, link)
        # Another file system, or one without hard links.
        except OSError:
            pass
        else:
            link.replace(output)
            return
    with path.open("rb") as source, replacing(output) as copy:
        shutil.copyfileobj(source, copy)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
