"""`python -m dpatlas bundle`: one archive of a run's raw records, and what can be made of it again.

`--open FILE` makes verdicts, figures, tables and page of such an archive, without data, training or
Snakemake: to see where a number comes from, or to judge again by other claims. `--margin-factor 2`
doubles every margin; for all else edit a paper's claims.yaml first. It prints which csv files have
other bytes than those of the run, and which verdicts changed.
"""

import contextlib
import io
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dpatlas.base.canonical import canonical_json
from dpatlas.base.files import check_writable, read_lines, replacing_folder, write_atomic
from dpatlas.base.folders import CONFIG, DEFAULT_TIER, MORE_RUNS, RESULTS
from dpatlas.base.guard import real
from dpatlas.base.records import read_record
from dpatlas.errors import ArgumentParser, InputError
from dpatlas_workflow.commands.claims import changes
from dpatlas_workflow.commands.publish import behind_of, config_of
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import project_root
from dpatlas_workflow.config.products import all_products
from dpatlas_workflow.evidence import claims as judging
from dpatlas_workflow.evidence.verdicts import CLAIMS, read_claims
from dpatlas_workflow.report import manifest, page
from dpatlas_workflow.report.bundle import (
    NAME,
    may_be_replaced,
    read_bundle,
    records_in,
    write_bundle,
)
from dpatlas_workflow.report.index import read_lineage
from dpatlas_workflow.report.publish import commit_of, complete_run
from dpatlas_workflow.report.published_tier import public_config
from dpatlas_workflow.report.state import REMAKE, RERUN
from dpatlas_workflow.report.verify import record_slips, refused

OPENED = Path("opened")
ABOUT = Path("workflow/report/claims.rst")


def main(arguments: Sequence[str]) -> int:
    """Write the archive of a complete run, or open one."""
    parser = ArgumentParser(prog="dpatlas bundle", description=__doc__, allow_abbrev=False)
    parser.add_argument("--tier", help=f"folder under the results (default: {DEFAULT_TIER})")
    parser.add_argument("--output", type=Path, help="archive (default: RESULTS/TIER.tar.gz)")
    parser.add_argument("--open", type=Path, metavar="FILE", help="archive to make results of")
    parser.add_argument(
        "--results",
        type=Path,
        help=f"folder of all tiers (default: {RESULTS}; with --open {OPENED}, to write to)",
    )
    parser.add_argument("--margin-factor", type=float, help="with --open: on every margin")
    options = parser.parse_args(arguments)
    if options.open is None:
        if options.margin_factor is not None:
            raise InputError("--margin-factor", "no --open", "an archive to judge again")
        tier = DEFAULT_TIER if options.tier is None else options.tier
        return _write(tier, options.results or RESULTS, options.output)
    for name in ("tier", "output"):
        if getattr(options, name) is not None:
            found = "it together with --open"
            allowed = "without --open; an archive is opened to RESULTS/TIER, its own tier"
            raise InputError(f"--{name}", found, allowed)
    factor = 1.0 if options.margin_factor is None else options.margin_factor
    real(gt=0).check("--margin-factor", factor)
    return _open(options.open, options.results or OPENED, factor)


def _write(tier: str, results: Path, output: Path | None) -> int:
    atlas = Atlas(config_of(tier, results), results)
    path, run = output or results / f"{tier}.tar.gz", atlas.folder
    if path.exists() and not path.is_file():
        found = "a folder" if path.is_dir() else "neither a file nor a folder"
        raise InputError(str(path), found, "a file, which need not exist: --output FILE")
    check_writable(path.parent)
    if path.is_file() and not may_be_replaced(path):
        raise InputError(str(path), "a file that is no archive", "another file: --output FILE")
    files = bundled(atlas)
    write_bundle(path, tier, files, commit_of(Path.cwd()))
    size = path.stat().st_size / 1e6
    print(f"{path}: {len(records_in(files))} records of {run}, {size:.1f} MB")
    if own := sorted(set(atlas.own_sets.values())):
        print(f"it holds class counts and checksums of your own data: {', '.join(own)}")
    return 0


def bundled(atlas: Atlas) -> dict[str, bytes | Path]:
    """Every file of the bundle of a run, content or path, by its name there.

    Raises InputError for a run that is not complete.
    """
    run = atlas.folder
    lineages = complete_run(run, behind_of(atlas))
    names = [*_names(atlas.all_records()), *(f"lineage/{name}.json" for name in lineages)]
    names += [*manifest.VERDICTS, manifest.NAME, "lists/claims.json", "lists/costs.json"]
    names += [MORE_RUNS] if (run / MORE_RUNS).is_file() else []
    if missing := [name for name in names if not (run / name).is_file()]:
        raise InputError(str(run / missing[0]), "no such file", RERUN)
    for name in records_in(names):
        if slips := refused(run, run / name, lambda path: record_slips(read_record(path), path)):
            raise InputError(str(run / name), slips[0], REMAKE)
    made: dict[str, bytes | Path] = {name: run / name for name in names}
    # As they were read: a row's place in a csv follows from the order of the records.
    listed = {name: atlas.behind(name) for name in lineages} | {"claims": atlas.claim_records()}
    for name, paths in listed.items():
        path = run / "lists" / f"{name}.txt"
        records = _names(read_lines(path))
        if set(records) != set(_names(paths)):
            raise InputError(str(path), "other records than the config asks for", RERUN)
        made[f"lists/{name}.txt"] = _lines(records)
    products = _lines(atlas.product_files())
    return made | {CONFIG: public_config(atlas.config.plain()), "lists/products.txt": products}


def _names(records: Sequence[str]) -> list[str]:
    """runs/KEY/ID/record.json of each path of a record."""
    return [Path(*Path(path).parts[-4:]).as_posix() for path in records]


def _lines(words: Sequence[str]) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()


def _open(path: Path, results: Path, factor: float) -> int:
    check_writable(results)
    about, files = read_bundle(path)
    target = results / about["tier"]
    if target.exists() and not (target / NAME).is_file():
        found = "results that were not made of an archive"
        raise InputError(str(target), found, "another folder: --results DIR")
    with replacing_folder(target) as fresh:
        try:
            write_atomic(fresh / NAME, json.dumps(about, indent=1, sort_keys=True) + "\n")
            for name, content in files.items():
                write_atomic(fresh / name, content)
            before = read_claims(fresh), manifest.read_manifest(fresh / manifest.NAME)
            _make(fresh, about["tier"], list(files), factor)
            now = read_claims(fresh)
            lines = list(_differences(fresh, before[1]))
        except InputError as error:
            # The folder will be gone: what is wrong is in the archive.
            where = error.where.replace(str(fresh), str(path))
            raise InputError(where, error.found, error.allowed) from None
    commit = about["commit"] or "unknown"
    print(f"{target}: {len(records_in(files))} records, bundled at commit {commit}")
    print(*lines, sep="\n")
    moved = [line for line, _ in changes(before[0], now)]
    print(*moved, f"{len(moved)} of {len(now)} verdicts changed", sep="\n")
    print(f"page: {target / 'report/index.html'}")
    return 0


def _make(folder: Path, tier: str, names: Sequence[str], factor: float) -> None:
    # It imports what draws, which takes seconds that writing an archive does without.
    from dpatlas_workflow.show import make

    # It warns of the dates in a font, which in a run goes to the log of the job.
    logging.getLogger("fontTools").setLevel(logging.ERROR)
    products = {
        name: (folder / product.folder, block.product_module(name))
        for name, (product, block) in all_products().items()
    }
    lists, lineages = folder / "lists", folder / "lineage"
    shown = sorted(Path(name).stem for name in names if name.startswith("lineage/"))
    for name in shown:
        path = lineages / f"{name}.json"
        if name not in products:
            raise InputError(str(path), "a figure or table unknown here", ", ".join(products))
        to, module = products[name]
        words = [module, "--tier", tier, "--output", to, "--lineage", path]
        words += ["--settings", canonical_json(read_lineage(path)["settings"])]
        with _listed(folder, name) as records:
            make.main([str(word) for word in [*words, "--records", records]])
    words = ["--tier", tier, "--settings", lists / "claims.json", "--costs", lists / "costs.json"]
    words += ["--products", lists / "products.txt", "--output", folder / CLAIMS]
    with _listed(folder, "claims") as records, contextlib.redirect_stdout(io.StringIO()):
        words += ["--records", records, "--margin-factor", factor]
        judging.main([str(word) for word in words])
    numbers = [folder / name for name in manifest.VERDICTS]
    numbers += [products[name][0] / f"{name}.csv" for name in shown]
    write_atomic(folder / manifest.NAME, manifest.manifest_of(folder, numbers))
    words = ["--tier", tier, "--results", folder, "--about", project_root() / ABOUT]
    words += ["--output", folder / "report/index.html", "--show", *shown]
    page.main([str(word) for word in words])


@contextlib.contextmanager
def _listed(folder: Path, name: str) -> Iterator[Path]:
    """A file with the paths of the records in a list of the bundle, as jobs take them."""
    path = folder / "records.txt"
    write_atomic(
        path, _lines([f"{folder / each}" for each in read_lines(folder / f"lists/{name}.txt")])
    )
    yield path
    path.unlink()


def _differences(folder: Path, made: Mapping[str, str]) -> Iterator[str]:
    """Which csv files are not those of the run, by the manifest that the archive has of it."""
    now = manifest.read_manifest(folder / manifest.NAME)
    other = [name for name in sorted(made.keys() | now.keys()) if made.get(name) != now.get(name)]
    yield f"{len(now.keys() - set(other))} of {len(made)} csv files have the bytes of the run"
    yield from (f"other bytes: {name}" for name in other)
