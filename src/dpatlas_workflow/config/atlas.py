"""The whole run as data: which specs, data sets, figures and tables a config asks for, and where.

The Snakefile, `plan` and `publish` read the same object, so they cannot disagree.
"""

import contextlib
import fcntl
import functools
import importlib.util
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.files import write_atomic
from dpatlas.base.folders import MORE_RUNS, RESULTS
from dpatlas.base.networks import PUBLISHED
from dpatlas.base.specs import Spec, distinct
from dpatlas.base.yaml_files import read_yaml
from dpatlas.data.registry import module_of
from dpatlas.errors import InputError
from dpatlas_workflow.blocks import Block
from dpatlas_workflow.config import own
from dpatlas_workflow.config.backbones import weights_file
from dpatlas_workflow.config.load import project_root
from dpatlas_workflow.config.planned import FrozenFeatures, PlannedJob, weights_of
from dpatlas_workflow.config.products import Product, all_products, products_of
from dpatlas_workflow.config.root import General
from dpatlas_workflow.cost.counting import cost_of
from dpatlas_workflow.records import parse_spec
from dpatlas_workflow.registry import all_blocks, all_papers

# Blocks of the config with specs of their own: public backbones, papers, checks of our own code.
PAPERS = tuple(all_papers())
KEYS = tuple(all_blocks())
# Snakemake's two processes beside a job on a node of a cluster, and a margin.
NODE_MB = 400
# What `decide` asks for beyond the config, in a tier's folder.
MOST_RUNS = 10_000
# Tiers whose published verdicts a page of another tier shows beside its own.
COUNTING = ("embedded", "workstation", "printed", "paper")
SUFFIXES = {"figure": ("pdf", "png", "svg", "csv", "json"), "table": ("csv", "md", "tex")}
Groups = dict[str, dict[str, list[Spec]]]


class Atlas:
    """Names, specs and paths of one run, from a validated config."""

    def __init__(
        self,
        config: General,
        results: Path = RESULTS,
        more_runs: Mapping[str, int] | None = None,
    ):
        """more_runs: in place of those that stand beside the results."""
        self._jobs: dict[str, PlannedJob] = {}
        self.tier: str = config.tier
        self.folder = Path(results) / self.tier
        more_runs = read_more_runs(self.folder / MORE_RUNS) if more_runs is None else more_runs
        self.config = config = config.with_more_runs(more_runs)
        self.blocks: dict[str, Block] = {
            key: block for key, block in all_blocks().items() if getattr(config, key).enabled
        }
        # What the config asks for, and the part of it that the run has: all, or what is there.
        self._planned: Groups = {
            key: block.load("settings").groups(config) for key, block in self.blocks.items()
        }
        self.groups = self._planned
        if config.partial:
            self.groups = {
                key: {name: list(self._first_there(specs)) for name, specs in groups.items()}
                for key, groups in self._planned.items()
            }
            if not any(specs for groups in self.groups.values() for specs in groups.values()):
                raise InputError("partial", f"no run in {self.folder}", "false, to run it first")
        # All tunings, whether or not a spec waits for their outcome.
        tunings = (getattr(b.load("settings"), "tunings", None) for b in self.blocks.values())
        self.tunings: dict[str, Spec] = distinct(
            spec
            for tunings_of in filter(None, tunings)
            for spec in tunings_of(config)
            if not config.partial or self._is_there(spec)
        )
        in_groups = distinct(
            spec for groups in self.groups.values() for specs in groups.values() for spec in specs
        )
        waited_for = [tuning for spec in in_groups.values() if (tuning := waits_for(spec))]
        for tuning in waited_for:
            if tuning not in self.tunings:
                found = f"runs without the record of their tuning {tuning}"
                raise InputError("partial", found, "that record too, or false, to run it")
        self.specs: dict[str, Spec] = {
            **{tuning: self.tunings[tuning] for tuning in waited_for},
            **in_groups,
        }
        self._known = {**self.tunings, **self.specs}

    def _first_there(self, specs: Iterable[Spec]) -> Iterator[Spec]:
        """Specs whose records are there; of a condition, the blocks before the first that lacks."""
        ended: set[str] = set()
        for spec in specs:
            if spec.condition in ended or not self._is_there(spec):
                ended.add(spec.condition)
            else:
                yield spec

    def _is_there(self, spec: Spec) -> bool:
        return (self.folder / "runs" / spec.key / spec.id / "record.json").is_file()

    def _is_whole(self, key: str, group: str) -> bool:
        """Whether the run has all that the config asks for of a block's group."""
        return len(self.groups[key][group]) == len(self._planned[key][group])

    def _is_shown(self, key: str, product: Product) -> bool:
        """A figure needs all its runs, a table some of every group of which it asks for any.

        Of what a table may lack it needs none.
        """
        if product.kind == "figure":
            return all(self._is_whole(key, name) for name in product.needs)
        needed = set(product.needs) - set(product.may_lack)
        return all(self.groups[key][name] or not self._planned[key][name] for name in needed)

    @functools.cached_property
    def products(self) -> dict[str, Product]:
        """Figures, then tables, of all blocks, by name."""
        products = [
            product
            for key, block in self.blocks.items()
            for product in products_of(block)
            if self._is_shown(key, product)
        ]
        # Of equal kind they stay in the order in which their blocks name them.
        return {each.name: each for each in sorted(products, key=lambda each: each.kind)}

    @functools.cached_property
    def block_of_product(self) -> dict[str, Block]:
        """The block of each figure and table, by its name."""
        return {name: block for name, (_, block) in all_products().items()}

    @functools.cached_property
    def left_out(self) -> dict[str, InputError]:
        """By name, why the config makes no such figure or table."""
        found = "true, and runs behind this are missing"
        missing = InputError("partial", found, "false, to run them")
        return {
            name: missing
            if block.key in self.blocks
            else InputError(f"{block.key}.enabled", f"false, and {name} asked for", "true")
            for name, block in self.block_of_product.items()
            if name not in self.products
        }

    @property
    def figures(self) -> list[str]:
        """Names of the figures."""
        return [name for name, each in self.products.items() if each.kind == "figure"]

    @property
    def tables(self) -> list[str]:
        """Names of the tables."""
        return [name for name, each in self.products.items() if each.kind == "table"]

    def product_files(self) -> list[str]:
        """Figure and table files for readers, relative to the tier's folder."""
        return [
            f"{product.folder}/{name}.{suffix}"
            for name, product in self.products.items()
            for suffix in SUFFIXES[product.kind]
        ]

    def kinds(self, key: str) -> dict[str, list[str]]:
        """Ids of a block's specs by kind, all tunings included, for the kinds that have any."""
        by_kind: dict[str, list[str]] = {}
        for spec_id, spec in self._known.items():
            if spec.key == key:
                by_kind.setdefault(spec.fields["kind"], []).append(spec_id)
        return by_kind

    def ids(self, key: str, *groups: str) -> list[str]:
        """Ids of the specs in these groups of a block (all if none is named), each once."""
        names = groups or tuple(self.groups[key])
        return list(distinct(spec for name in names for spec in self.groups[key][name]))

    def files(self, name: str) -> list[str]:
        """Paths of the files of that name in the folders of all blocks, relative to the project.

        Of disabled blocks too: their claims count among the planned ones.
        """
        paths = (block.folder / name for block in all_blocks().values())
        return [os.path.relpath(path, project_root()) for path in paths if path.is_file()]

    def published(self, *, here: bool) -> list[str]:
        """The published verdicts of this tier, or of the others that count, within the project."""
        tiers = [self.tier] if here else [tier for tier in COUNTING if tier != self.tier]
        names = (f"docs/results/{tier}/claims.csv" for tier in tiers)
        return [name for name in names if (project_root() / name).is_file()]

    @property
    def pages(self) -> list[str]:
        """Names of the pages beside the index: papers, checks with figures or tables, `runs`."""
        judged = [key for key, of in all_blocks().items() if (of.folder / "claims.yaml").is_file()]
        shown = [self.block_of_product[name].key for name in self.products]
        return [*dict.fromkeys([*judged, *shown]), "runs"]

    def modules(self, name: str) -> list[str]:
        """The modules of that name of all blocks that have one."""
        modules = (f"{block.package}.{name}" for block in self.blocks.values())
        return [module for module in modules if importlib.util.find_spec(module)]

    @property
    def captions(self) -> str:
        """Digest of what the page says of figures and tables in words."""
        words = {name: [each.caption, each.paper_shows] for name, each in self.products.items()}
        return sha256(canonical_json(words))

    def behind(self, name: str) -> list[str]:
        """Record paths behind a figure or table."""
        key = self.block_of_product[name].key
        return [self.record(spec_id) for spec_id in self.ids(key, *self.products[name].needs)]

    def needed_for(self, name: str) -> list[str]:
        """Ids of all specs that have to run for a figure or table: tunings and backbones, too."""
        key = self.block_of_product[name].key
        needed: set[str] = set()
        waiting = set(self.ids(key, *self.products[name].needs))
        while waiting:
            needed |= waiting
            specs = [self._known[spec_id] for spec_id in waiting]
            before = {each for spec in specs for each in (waits_for(spec), *_backbones(spec))}
            waiting = {each for each in before if each} - needed
        return [spec_id for spec_id in self.specs if spec_id in needed]

    def all_records(self) -> list[str]:
        """Record paths of every spec."""
        return [self.record(spec_id) for spec_id in self.specs]

    def claim_records(self) -> list[str]:
        """Record paths of the papers' specs, on which claims are judged."""
        return [
            self.record(name)
            for name, spec in self.specs.items()
            if spec.key in PAPERS and name not in self.tunings
        ]

    def record(self, spec_id: str) -> str:
        """Path of a run's record."""
        return f"{self.folder}/runs/{self._known[spec_id].key}/{spec_id}/record.json"

    def spec(self, spec_id: str) -> Spec:
        """The spec of this id, of the run or of a tuning."""
        return self._known[spec_id]

    def job(self, spec_id: str) -> PlannedJob:
        """The job of a spec, of the run or of a tuning.

        Raises InputError, naming the key of its kind's part of the block, for fields that do not go
        together.
        """
        if spec_id in self._jobs:
            return self._jobs[spec_id]
        spec = self._known[spec_id]
        fields = parse_spec(spec.fields, f"{spec.key}.{spec.fields['kind']}")
        cost, tuning = cost_of(fields), waits_for(spec)
        data, public_data = (
            [self._manifest(data_id(spec, name))] if name in spec.fields else []
            for name in ("data", "public_data")
        )
        features = self._features_of(spec, fields)
        self._jobs[spec_id] = PlannedJob(
            spec=spec,
            fields=fields,
            record=self.record(spec_id),
            data=data,
            public_data=public_data,
            backbones=[self.backbone(name) for name in _backbones(spec)],
            features=[f"{self.features(features.id)}/manifest.json"] if features else [],
            tuning=[self.record(tuning)] if tuning else [],
            device=self.features_device() if cost.gpu else "cpu",
            memory_mb=cost.memory_mb(fields) + NODE_MB,
        )
        return self._jobs[spec_id]

    def _manifest(self, name: str) -> str:
        return f"{self.folder}/data/{name}/manifest.json"

    def tunings_of(self, key: str) -> list[str]:
        """Ids of a block's tunings."""
        return [name for name, spec in self.tunings.items() if spec.key == key]

    @functools.cached_property
    def tuned_papers(self) -> list[str]:
        """Keys of the blocks that have tunings."""
        return list(dict.fromkeys(spec.key for spec in self.tunings.values()))

    def tuned_file(self, key: str) -> str:
        """Path of the outcomes of a block's tunings."""
        return str(self.folder / "tuned" / f"{key}.yaml")

    def settings(self, key: str) -> str:
        """What figures and tables of a block need of the config, as canonical JSON."""
        return canonical_json(self._settings(key))

    def _settings(self, key: str) -> dict[str, Any]:
        """The `settings` of a block; empty for one that has none and shows its records alone."""
        settings_of = getattr(self.blocks[key].load("settings"), "settings", None)
        return settings_of(self.config) if settings_of else {}

    def claim_settings(self) -> str:
        """Settings and group members of every paper, as canonical JSON.

        waiting: of a partial run, how many jobs of a group are done, of how many.
        """
        content: dict[str, Any] = {"verdicts": self.config.verdicts}
        content |= {"partial": True} if self.config.partial else {}
        for key, groups in self.groups.items():
            if key in PAPERS:
                ids, waiting = {}, {}
                for name, specs in groups.items():
                    whole = self._is_whole(key, name)
                    ids[name] = [spec.id for spec in specs] if whole else []
                    if not whole:
                        waiting[name] = [len(specs), len(self._planned[key][name])]
                content[key] = {**self._settings(key), "groups": ids}
                content[key] |= {"waiting": waiting} if waiting else {}
        return canonical_json(content)

    def write_lists(self) -> None:
        """Write what jobs read by file: lists that grow with the number of records.

        `lists/NAME.txt` for a figure or table, `lists/claims.txt`: a record's path per line;
        `lists/products.txt`; `lists/claims.json`, the `claim_settings`; `lists/captions/NAME.rst`,
        for `snakemake --report`.

        Runs at the same time share a folder only with the same lists, and each holds a lock until
        it ends: otherwise a figure would show the records that another run asks for. InputError
        for a run that comes second and has others. On file systems without locks nothing is
        checked.
        """
        lists = {name: self.behind(name) for name in self.products}
        lists |= {"claims": self.claim_records(), "products": self.product_files()}
        texts = {f"{name}.txt": "".join(f"{x}\n" for x in lines) for name, lines in lists.items()}
        texts["claims.json"] = self.claim_settings()
        digest, folder = sha256(canonical_json(texts)), self.folder / "lists"
        texts |= {f"captions/{name}.rst": each.caption for name, each in self.products.items()}
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / ".lock").open("a+")
        with contextlib.suppress(BlockingIOError):
            _lock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name, text in texts.items():
                write_atomic(folder / name, text)
            self._lock.truncate(0)
            self._lock.write(digest)
            self._lock.flush()
        _lock(self._lock, fcntl.LOCK_SH)
        self._lock.seek(0)
        if self._lock.read() != digest:
            found = "another run with other settings, which has not ended"
            raise InputError(str(self.folder), found, "one at a time, or a tier for each")

    @functools.cached_property
    def data_sets(self) -> dict[str, str]:
        """Options of every data set in use, as canonical JSON, by the data set's id."""
        return {
            data_id(spec, field): data_options(spec, field)
            for spec in self._known.values()
            for field in ("data", "public_data")
            if field in spec.fields
        }

    @functools.cached_property
    def weights_files(self) -> dict[str, str]:
        """Paths that published weights are fetched to, under their published names, by backbone."""
        if "pretrain" not in self.groups:
            return {}
        paths = {}
        for spec in self.groups["pretrain"]["imported"]:
            weights = PUBLISHED[spec.fields["model"]]
            name = weights.file or Path(weights_file(self.config, spec)).name
            paths[spec.id] = str(self.folder / "weights" / spec.id / name)
        return paths

    def weights_arguments(self, spec_id: str) -> str:
        """Command-line arguments that say which weights an imported backbone takes, quoted."""
        spec = self.specs[spec_id]
        words = ["--name", spec.fields["model"]]
        if file := weights_file(self.config, spec):
            words += [f"--weights-file={file}", f"--sha256={spec.fields.get('sha256') or ''}"]
        return shlex.join(words)

    def weights_state(self, spec_id: str) -> tuple[int, int] | None:
        """Size and time of the file of weights that the config names; None without one."""
        file = weights_file(self.config, self.specs[spec_id])
        if not file:
            return None
        # Downloads are not needed to read a workflow.
        from dpatlas.data.sources import CACHE, folders_to_search
        from dpatlas.data.weights import find

        try:
            path = find(file, folders_to_search(self.config.data.root, CACHE))
        except OSError:
            return None
        return own.size_and_time(path) if path else None

    def data_modules(self, name: str) -> tuple[str, ...]:
        """Names of the modules that make the data set of this id."""
        options = json.loads(self.data_sets[name])
        of_set = () if "own" in options else (module_of(options["name"]),)
        return ("dpatlas.data.prepare", *of_set)

    @functools.cached_property
    def frozen_features(self) -> dict[str, FrozenFeatures]:
        """What frozen backbones show to some spec or tuning, each pair once, by id."""
        jobs = map(self.job, self._known)
        features = (self._features_of(job.spec, job.fields) for job in jobs)
        return {one.id: one for one in features if one}

    def _features_of(self, spec: Spec, fields: Any) -> FrozenFeatures | None:
        if not cost_of(fields).takes_features(fields):
            return None
        backbone = self.job(fields.backbone)
        return FrozenFeatures(data_id(spec), fields.data, backbone.spec, backbone.fields)

    def features(self, features_id: str) -> str:
        """Folder of a data set's features."""
        return str(self.folder / "features" / features_id)

    def features_files(self, features_id: str) -> tuple[list[str], list[str]]:
        """What they are made of: manifest of the data set; manifest and weights of the backbone."""
        features = self.frozen_features[features_id]
        return [self._manifest(features.data_id)], weights_of(self.backbone(features.backbone.id))

    def features_memory_mb(self, features_id: str) -> int:
        """Memory to ask a scheduler for, in MB, as `memory_mb`."""
        return self.frozen_features[features_id].memory_mb + NODE_MB

    def features_device(self) -> str:
        """Where features are computed: cpu, cuda or auto, the latter two maybe with -tf32."""
        device, precision = self.config.device, self.config.precision
        return device if device == "cpu" or precision == "float32" else f"{device}-{precision}"

    def backbone(self, spec_id: str) -> str:
        """Folder of the backbone that the spec trains."""
        return str(self.folder / "runs" / "pretrain" / spec_id / "backbone")

    @functools.cached_property
    def own_sets(self) -> dict[str, str]:
        """Name under `data.own` of every own data set in use, by the data set's id."""
        used = {name: json.loads(options) for name, options in self.data_sets.items()}
        return {name: options["name"] for name, options in used.items() if "own" in options}

    def _own_path(self, name: str | None) -> str | None:
        own_name = self.own_sets.get(name or "")
        return own_name and self.config.data.own[own_name].path

    def own_state(self, name: str) -> str | None:
        """What changes with the files of the data set of this id; None if it is no own one."""
        path = self._own_path(name)
        return path and own.state(path)

    def data_source(self, name: str | None = None) -> str:
        """Command-line arguments that say where data sets come from, quoted for a shell.

        name: the id of one data set; an own one has a path of its own.
        """
        if path := self._own_path(name):
            return shlex.join([f"--own-path={path}"])
        data = self.config.data
        # In one word: a folder's name may begin with a dash.
        words = [f"--data-root={data.root}"] if data.root else []
        if data.download and not data.offline:
            words.append("--allow-download")
            words += [word for mirror in data.mirrors for word in ("--mirror", mirror)]
        return shlex.join(words)

    @property
    def data_root(self) -> Path | None:
        """The folder that data.root names, `~` being the home; that of no user stays as it is."""
        root = self.config.data.root
        return Path(os.path.expanduser(root)) if root else None  # noqa: PTH111

    def check_data_root(self) -> None:
        """InputError if data.root names no folder that can be read."""
        folder = self.data_root
        if folder and not (folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)):
            wrong = "no permission to read it" if folder.is_dir() else "no such folder"
            found = f"{self.config.data.root!r}, {wrong}"
            raise InputError("data.root", found, "a readable folder, or null")

    def check_own_paths(self) -> None:
        """InputError if an own data set in use is not where its path says."""
        for name in self.own_sets.values():
            path = self.config.data.own[name].path
            if found := own.path_error(path):
                where = f"data.own.{name}.path"
                raise InputError(where, f"{path!r}, {found}", "a readable folder or .npz file")


def _lock(stream: IO[str], kind: int) -> None:
    """As fcntl.flock, but for file systems that have no locks."""
    try:
        fcntl.flock(stream, kind)
    except BlockingIOError:
        raise
    except OSError:
        pass


def read_more_runs(path: Path) -> dict[str, int]:
    """Numbers of runs by condition, from the file that `decide` writes; none without that file.

    Conditions that the config does not have (any more) are none of its business. Raises InputError
    for what is no such file.
    """
    if not path.exists():
        return {}
    content = read_yaml(path)
    for condition, runs in content.items():
        if type(runs) is not int or not 1 <= runs <= MOST_RUNS:
            raise InputError(f"{path}: {condition}", repr(runs), f"1 to {MOST_RUNS} runs")
    return content


def waits_for(spec: Spec) -> str | None:
    """Id of the tuning that has to run before the spec; None where its choice is known."""
    fields = spec.fields
    return fields["tuning"] if fields.get("chosen", {}) is None else None


def _backbones(spec: Spec) -> list[str]:
    one = spec.fields.get("backbone")
    return spec.fields.get("backbones", [one] if one else [])


def data_options(spec: Spec, field: str = "data") -> str:
    """The data set that `spec` needs, as canonical JSON; how its runs are dealt takes no part."""
    options = spec.fields[field]
    return canonical_json({name: value for name, value in options.items() if name != "redeal"})


def data_id(spec: Spec, field: str = "data") -> str:
    """Name and the first 8 hex digits of the digest of the options."""
    return f"{spec.fields[field]['name']}-{sha256(data_options(spec, field))[:8]}"
