"""The whole run as data: which specs, data sets, figures and tables a config asks for, and where.

The Snakefile, `plan` and `publish` read the same object, so they cannot disagree.
"""

import importlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from dpatlas.core.canonical import canonical_json, sha256
from dpatlas.core.specs import Spec, distinct
from dpatlas.errors import InputError

# Blocks of the config with specs of their own: public backbones, papers, checks of our own code.
PAPERS = ("kl_privacy", "dp_sgld", "feature_learning", "lp_fft", "max_information")
KEYS = ("pretrain", *PAPERS, "audit")
RESULTS = Path("results")
FIGURE_KINDS = ("pdf", "png", "csv")
TABLE_KINDS = ("csv", "md", "tex")


class Atlas:
    """Names, specs and paths of one run, from a validated config."""

    def __init__(self, config: Mapping[str, Any], results: Path = RESULTS):
        self.config = config
        self.tier: str = config["tier"]
        self.folder = Path(results) / self.tier
        self.blocks: dict[str, ModuleType] = {
            key: importlib.import_module(f"dpatlas.specs.{key}")
            for key in KEYS
            if config[key]["enabled"]
        }
        self.groups: dict[str, dict[str, list[Spec]]] = {
            key: block.groups(config) for key, block in self.blocks.items()
        }
        self.specs: dict[str, Spec] = distinct(
            spec for groups in self.groups.values() for specs in groups.values() for spec in specs
        )

    @property
    def figures(self) -> dict[str, str]:
        """Key of the block by figure name."""
        return {name: key for key, block in self.blocks.items() for name in block.FIGURES}

    @property
    def tables(self) -> dict[str, str]:
        """Key of the block by table name."""
        return {name: key for key, block in self.blocks.items() for name in block.TABLES}

    def products(self) -> list[str]:
        """Figure and table files for readers, relative to the tier's folder."""
        figures = [f"figures/{name}.{kind}" for name in self.figures for kind in FIGURE_KINDS]
        return figures + [f"tables/{name}.{kind}" for name in self.tables for kind in TABLE_KINDS]

    def ids(self, key: str, *groups: str) -> list[str]:
        """Ids of the specs in these groups of a block (all if none is named), each once."""
        chosen = groups or tuple(self.groups[key])
        return list(distinct(spec for group in chosen for spec in self.groups[key][group]))

    def behind(self, name: str) -> list[str]:
        """Record paths behind a figure or table."""
        key = {**self.figures, **self.tables}[name]
        block = self.blocks[key]
        groups = {**block.FIGURES, **block.TABLES}[name]
        return [self.record(spec_id) for spec_id in self.ids(key, *groups)]

    def all_records(self) -> list[str]:
        """Record paths of every spec."""
        return [self.record(spec_id) for spec_id in self.specs]

    def claim_records(self) -> list[str]:
        """Record paths of the papers' specs, on which claims are judged."""
        return [self.record(name) for name, spec in self.specs.items() if spec.key in PAPERS]

    def record(self, spec_id: str) -> str:
        """Path of a run's record."""
        return str(self.folder / "runs" / self.specs[spec_id].key / spec_id / "record.json")

    def settings(self, key: str) -> str:
        """What figures and tables of a block need of the config, as canonical JSON."""
        return canonical_json(self.blocks[key].settings(self.config))

    def claim_settings(self) -> str:
        """Settings and group members of every paper, as canonical JSON."""
        papers = {
            key: {
                **self.blocks[key].settings(self.config),
                "groups": {name: [spec.id for spec in specs] for name, specs in groups.items()},
            }
            for key, groups in self.groups.items()
            if key in PAPERS
        }
        return canonical_json({**papers, "verdicts": self.config["verdicts"]})

    def data_sets(self) -> dict[str, str]:
        """Options of every data set in use, as canonical JSON, by the data set's id."""
        return {
            data_id(spec, field): data_options(spec, field)
            for spec in self.specs.values()
            for field in ("data", "public_data")
            if field in spec.fields
        }

    def data_manifest(self, spec_id: str) -> list[str]:
        """Manifest of the data set that a spec trains on, as a list: none if it names no set."""
        return self._manifest(spec_id, "data")

    def public_manifest(self, spec_id: str) -> list[str]:
        """Likewise of its `public_data`, which it looks at beside the data it trains on."""
        return self._manifest(spec_id, "public_data")

    def _manifest(self, spec_id: str, field: str) -> list[str]:
        spec = self.specs[spec_id]
        if field not in spec.fields:
            return []
        return [str(self.folder / "data" / data_id(spec, field) / "manifest.json")]

    def backbones(self, spec_id: str) -> list[str]:
        """Folders of the backbones that a spec takes features of, in its order."""
        fields = self.specs[spec_id].fields
        one = fields.get("backbone")
        names = fields.get("backbones", [one] if one else [])
        return [self.backbone(name) for name in names]

    def backbone_files(self, spec_id: str) -> list[str]:
        """What has to be there before the spec can run: manifests and weights."""
        names = ("manifest.json", "weights.npz")
        return [f"{folder}/{name}" for folder in self.backbones(spec_id) for name in names]

    def backbone_arguments(self, spec_id: str) -> str:
        """Command-line arguments for them, quoted for a shell."""
        folders = self.backbones(spec_id)
        return shlex.join(part for folder in folders for part in ("--backbone", folder))

    def backbone(self, spec_id: str) -> str:
        """Folder of the backbone that the spec trains."""
        return str(self.folder / "runs" / "pretrain" / spec_id / "backbone")

    def data_source(self) -> str:
        """Command-line arguments that say where data sets come from, quoted for a shell."""
        data = self.config["data"]
        words = ["--data-root", data["root"]] if data["root"] else []
        if data["download"] and not data["offline"]:
            words.append("--allow-download")
            words += [word for mirror in data["mirrors"] for word in ("--mirror", mirror)]
        return shlex.join(words)

    def check_data_root(self) -> None:
        """InputError if data.root names no folder that can be read."""
        root = self.config["data"]["root"]
        if root is None:
            return
        folder = Path(root).expanduser()
        if not folder.is_dir() or not os.access(folder, os.R_OK | os.X_OK):
            found = "no permission to read it" if folder.is_dir() else "no such folder"
            raise InputError("data.root", f"{root!r}, {found}", "a readable folder, or null")

    def device(self, spec_id: str) -> str:
        """cpu, cuda or auto."""
        spec = self.specs[spec_id]
        return self.blocks[spec.key].device(spec, self.config["device"])

    def memory_mb(self, spec_id: str) -> int:
        """Memory to ask a scheduler for, in MB."""
        return self.blocks[self.specs[spec_id].key].memory_mb(self.specs[spec_id])


def data_options(spec: Spec, field: str = "data") -> str:
    """The data set that `spec` needs, as canonical JSON."""
    return canonical_json(spec.fields[field])


def data_id(spec: Spec, field: str = "data") -> str:
    """Name and the first 8 hex digits of the digest of the options."""
    return f"{spec.fields[field]['name']}-{sha256(data_options(spec, field))[:8]}"
