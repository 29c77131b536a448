"""A tier from download to page on miniatures, in a copy of the project."""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import archives
import yaml
from checkouts import PROJECT, copy_project, forked
from local_server import Server, fail, serve
from shrink import shrink

from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import read_config, validate

HERE = Path(__file__).resolve().parent
TIER_FILE = "workflow/tiers/{}.yaml"
# Transfers of these break half-way on the mirror, which gives no rest: the official address does.
BROKEN = ("stl10_binary", "resnet50")
CORES = min(4, os.cpu_count() or 1)
TIMEOUT = 3600


class FileServer:
    """The files of a folder, below `mirror` and `official`; the mirror breaks transfers of BROKEN.

    asked: by file name, where it was asked for, and "range" after it for the rest of a file.
    """

    def __init__(self, folder: Path):
        self.folder, self.asked = folder, defaultdict(list)
        self.server = Server()
        self.server.answers = [self.answer]
        self.address = self.server.address

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """As a file server does."""
        _, place, name = handler.path.split("/")
        self.asked[name].append(f"{place} range" if handler.headers.get("Range") else place)
        content = (self.folder / name).read_bytes()
        breaks = place == "mirror" and name.startswith(BROKEN)
        if breaks and "Range" in handler.headers:
            fail(410)(handler)
            return
        serve(content, cut=len(content) // 2 if breaks else None)(handler)


class MiniRun:
    """A copy of the project in `folder`, with the archives, the weights and the config of a run.

    tier: that is made small. whole, small: its config and ours. served, root: folders of what is
    fetched and of what lies under data.root.
    """

    def __init__(self, folder: Path, tier: str):
        self.folder, self.project = folder, folder / "dp-atlas"
        self.tier, self.tier_file = tier, TIER_FILE.format(tier)
        self.served, self.root = folder / "served", folder / "root"
        for each in (self.served, self.root):
            each.mkdir(parents=True)
        self.server = FileServer(self.served)
        copy_project(self.project)
        address = self.server.address
        self.whole = read_config([self.tier_file], root=PROJECT)
        self.small = small_config(self.whole, f"{address}/mirror", self.root)
        self.config = self.project / "mini.yaml"
        self.config.write_text(yaml.safe_dump(self.small, sort_keys=False))
        self.atlas = Atlas(validate(self.small))
        entries = archives.write_data(self.served, self.root)
        official = f"{address}/official"
        specs = self.atlas.groups["pretrain"]["imported"]
        models = sorted({spec.fields["model"] for spec in specs})
        weights = dict(archives.write_weights(model, self.served) for model in models)
        expected = {
            "data": archives.expected(entries, official),
            "weights": {url: f"{official}/{name}" for url, name in weights.items()},
        }
        self.expected = folder / "expected.json"
        self.expected.write_text(json.dumps(expected))

    @property
    def results(self) -> Path:
        """The tier's folder."""
        return self.project / self.atlas.folder

    def snakemake(self, *arguments: str, small: bool = True) -> subprocess.CompletedProcess[str]:
        """Snakemake in the copy, on miniatures or, with `small` False, as it is."""
        variables = {key: each for key, each in os.environ.items() if "_proxy" not in key.lower()}
        places = [str(self.project / "src"), *([str(HERE / "site")] if small else [])]
        variables |= {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join(places),
            "MINIATURES": str(self.expected),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "no_proxy": "127.0.0.1",
        }
        variables |= forked(variables["PYTHONPATH"])
        files = [self.tier_file, *([str(self.config)] if small else [])]
        command = ["snakemake", "--cores", str(CORES), *arguments, "--configfile", *files]
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=self.project,
            env=variables,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT,
        )

    def run(self) -> None:
        """The whole tier; AssertionError with the logs of what failed."""
        done = self.snakemake("--keep-going")
        (self.folder / "snakemake.log").write_text(done.stdout)
        assert done.returncode == 0, self.failure(done.stdout)

    def planned(self) -> set[str]:
        """Rules of a dry run of the tier as it is."""
        done = self.snakemake("-n", small=False)
        table = re.search(r"^job +count\n[- ]+\n(.*?)\ntotal", done.stdout, re.S | re.M)
        assert done.returncode == 0 and table, done.stdout
        return {line.split()[0] for line in table[1].splitlines()} - {"all"}

    def rules(self) -> set[str]:
        """Rules of every job that ran, by Snakemake's own notes."""
        notes = (self.project / ".snakemake/metadata").rglob("*")
        return {json.loads(path.read_text())["rule"] for path in notes if path.is_file()}

    def failure(self, output: str) -> str:
        """What failed, and the ends of its logs."""
        logs = dict.fromkeys(re.findall(r"^Error in rule.*?\n +log: (\S+)", output, re.M | re.S))
        failed = [self.project / log for log in logs if (self.project / log).is_file()]
        ends = [f"{path}:\n{path.read_text()[-2000:]}" for path in failed]
        return "\n\n".join([*(ends or [output[-4000:]]), f"all of it: {self.folder}/snakemake.log"])


def small_config(whole: Mapping[str, Any], mirror: str, root: Path) -> dict[str, Any]:
    """The tier's config with small sizes, and with our own server and folder."""
    data = {**whole["data"], "mirrors": [mirror], "root": str(root)}
    return {**shrink(whole), "tier": f"{whole['tier']}-mini", "seed": 0, "data": data}
