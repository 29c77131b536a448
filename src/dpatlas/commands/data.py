"""`python -m dpatlas data`: the published files that a tier needs, and where they are or belong."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpatlas.core.config import load_config, load_tier
from dpatlas.data import prepare
from dpatlas.data.registry import DataSet, find
from dpatlas.errors import ArgumentParser
from dpatlas.specs.atlas import Atlas


@dataclass(frozen=True)
class Needed:
    """A data set or a weight file that others published.

    found: what kind of copy is there, and where; None if none is. accepts: what may lie in a place
    or in its sub-folder. addresses: of the official files; empty where they are fetched by hand.
    """

    name: str
    licence: str
    found: str | None
    accepts: list[str]
    subfolder: str
    addresses: list[str]
    by_hand: str


def main(arguments: Sequence[str]) -> int:
    """List what a tier, or config files as Snakemake's --configfile takes them, need."""
    parser = ArgumentParser(prog="dpatlas data", description=__doc__, allow_abbrev=False)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tier", default="embedded", help="a tier that ships with the project")
    which.add_argument("--config", nargs="+", type=Path, metavar="FILE", help="config files")
    parser.add_argument("--json", action="store_true", help="for tools")
    options = parser.parse_args(arguments)
    atlas = Atlas(load_config(options.config) if options.config else load_tier(options.tier))
    atlas.check_data_root()
    files = needed(atlas)
    if options.json:
        print(json.dumps([asdict(each) for each in files], indent=1))
    else:
        print("\n".join(describe(files, places(atlas), atlas)))
    return 0


def needed(atlas: Atlas) -> list[Needed]:
    """Every published data set, and every published weight file, of the run; each once."""
    names = {json.loads(options)["name"] for options in atlas.data_sets().values()}
    sets = [find(name) for name in sorted(names)]
    found = [_data_set(each, places(atlas)) for each in sets if each.files or each.by_hand]
    models = sorted({fields["model"] for fields in _imported(atlas)})
    return found + [_weights(model, places(atlas)) for model in models]


def missing(atlas: Atlas) -> list[str]:
    """A line for everything that a run without a network lacks: what, and where to put it."""
    looked_in = places(atlas)
    return [_missing_line(each, looked_in) for each in needed(atlas) if each.found is None]


def places(atlas: Atlas) -> list[Path]:
    """Where copies are looked for, in this order."""
    root = atlas.config["data"]["root"]
    return [*([Path(root).expanduser()] if root else []), prepare.CACHE]


def describe(files: Sequence[Needed], looked_in: Sequence[Path], atlas: Atlas) -> list[str]:
    """Lines for people."""
    if not files:
        return [f"tier {atlas.tier}: no published file is needed"]
    lines = [f"tier {atlas.tier}: looked in {', then '.join(map(str, looked_in))}"]
    for each in files:
        lines.append(f"{each.name}: {each.found}" if each.found else _missing_line(each, looked_in))
        lines.append(f"  licence: {each.licence}")
    return lines


def _missing_line(each: Needed, looked_in: Sequence[Path]) -> str:
    place = looked_in[0]
    official = f"; official: {', '.join(each.addresses)}" if each.addresses else ""
    by_hand = f" ({each.by_hand})" if each.by_hand else ""
    accepted = ", or ".join(each.accepts)
    return f"{each.name}: missing; put {accepted} into {place}/ or {place / each.subfolder}/" + (
        official + by_hand
    )


def _data_set(data_set: DataSet, looked_in: Sequence[Path]) -> Needed:
    source = prepare.READERS[data_set.name].locate(data_set, looked_in)
    return Needed(
        name=data_set.name,
        licence=data_set.licence,
        found=f"{source.kind}, {source.where}" if source else None,
        accepts=list(data_set.accepts),
        subfolder=data_set.name,
        addresses=[file.address for file in data_set.files],
        by_hand=data_set.by_hand,
    )


def _imported(atlas: Atlas) -> list[dict[str, Any]]:
    specs = atlas.groups.get("pretrain", {}).get("imported", [])
    return [spec.fields for spec in specs]


def _weights(model: str, looked_in: Sequence[Path]) -> Needed:
    # Torch and torchvision take seconds to load.
    from dpatlas.data.weights import FOLDER, locate
    from dpatlas.experiments.imported import listed

    address, _ = listed(model)
    name = address.rpartition("/")[2]
    found = locate(name, looked_in)
    return Needed(
        name=f"weights of {model}",
        licence="the publisher's; trained on ImageNet, under its terms",
        found=str(found) if found else None,
        accepts=[name],
        subfolder=FOLDER,
        addresses=[address],
        by_hand="",
    )
