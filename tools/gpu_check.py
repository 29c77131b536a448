"""The steps of tools/gpu_check.sh, each of which writes its file at once.

    python tools/gpu_check.py STEP [WORDS] --folder FOLDER --device cuda

With `--device cpu` every size is tiny: a rehearsal, whose numbers mean nothing.
"""

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1]
# What no step can do without, and what is missed where it is absent.
NEEDED = ("torch", "numpy", "scipy")
USED = {
    "pytest": "the tests",
    "hypothesis": "the tests",
    "pydantic": "the tests, the panel, the certificates",
    "yaml": "the tests, the panel",
    "sklearn": "the precision, some tests",
    "torchvision": "some tests",
    "opacus": "the candidates of Opacus",
    "dp_accounting": "some tests",
}
# Without those of `bench`, whose races are steps of their own.
TESTS = ("tests/privacy", "tests/jobs/test_limits.py")
REPEATS = 5
MAX_TESTS_NAMED = 20
# Several at a time where pytest-xdist is installed; each takes a GPU's memory for its CUDA context.
MOST_WORKERS = 10
STOPPED = ("124", "137")
# Of the rehearsal.
TINY_CASES: dict[str, dict[str, Any]] = {
    "kl": {"width": 8, "depth": 3, "inputs": 12, "n_train": 20, "n_add": 4}
    | {"chunk": 6, "peer_records": 24},
    "conv": {"model": "small-cnn-t", "image_shape": [1, 8, 8], "batch": 4}
    | {"max_physical_batch": None},
    "certificate": {"inputs": 12, "widths": [9], "records": 50, "pairs": 40, "sampled": 5},
}
TINY_NETWORK = {"width": 8, "steps": 3, "shown_steps": [3], "record_steps": [3]}
PHOTOGRAPHS = "CIFAR-10, airplane and automobile"
GENERATED = (
    "generated photographs of the shape of CIFAR-10's: no CIFAR-10 was at hand (CIFAR10=...)"
)


def environment(options: argparse.Namespace) -> int:
    """Write what there is to `run.json`; exit code 3, after a line, where no step can run."""
    missing = [name for name in (*NEEDED, *USED) if importlib.util.find_spec(name) is None]
    if wanted := [name for name in missing if name in NEEDED]:
        print(f"gpu_check: {sys.executable} lacks {', '.join(wanted)}; nothing was run")
        return 3
    import torch

    gpu = torch.cuda.is_available()
    if options.device == "cuda" and not gpu:
        build = torch.version.cuda
        reason = f"built for CUDA {build}, but no GPU is usable" if build else "built without CUDA"
        print(f"gpu_check: no GPU (torch {torch.__version__} is {reason}); nothing was run")
        return 3
    facts: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": options.device,
        "missing": {name: USED[name] for name in missing},
    }
    if options.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        facts |= {
            "gpu": properties.name,
            "memory_gb": properties.total_memory / 2**30,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }
    for name, use in facts["missing"].items():
        print(f"gpu_check: {name} is missing, which costs {use}")
    options.folder.mkdir(parents=True, exist_ok=True)
    for old in FILES:
        (options.folder / old).unlink(missing_ok=True)
    write(options, "run.json", {**facts, "steps": []})
    return 0


def tests(options: argparse.Namespace) -> int:
    """The tests marked `gpu`: their counts and the names of those that failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = ["-m", "gpu", "-p", "no:cacheprovider", "--tb=short", f"--junitxml={report}"]
        words += TESTS
        if importlib.util.find_spec("xdist"):
            words += ["-n", str(min(MOST_WORKERS, os.cpu_count() or 1))]
        command = [sys.executable, "-m", "pytest", *words]
        code = subprocess.run(command, cwd=PROJECT, check=False).returncode
        (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    counts = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    bad = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    write(options, "tests.json", {**counts, "exit_code": code, "failed": bad[:MAX_TESTS_NAMED]})
    return code


def bench(options: argparse.Namespace) -> int:
    """One case of `python -m dpatlas bench --device`, added to `bench.json`."""
    from dpatlas.bench.kernels import KERNELS
    from dpatlas.bench.race import race

    name, case_name = options.words
    kernel = KERNELS[name]
    case = kernel.cases_on("cuda")[case_name] | {"device": options.device}
    repeats = REPEATS
    if options.device == "cpu":
        case, repeats = case | TINY_CASES[name], 1
    rows = race(kernel.module, case_name, case, kernel.candidates_on("cuda", case_name), repeats)
    races = [*read(options, "bench.json", []), {"kernel": name, "cases": rows}]
    write(options, "bench.json", races)
    return 0


def precision(options: argparse.Namespace) -> int:
    """The numbers of tools/emulate_precision.py in float32 and TF32, and by the CPU in float32."""
    import emulate_precision as emulated

    from dpatlas.models.precision import set_precision

    measured: dict[str, Callable[[str], float]] = {
        "largest KL of a record (nats)": lambda device: emulated.worst_kl(device=device),
        "largest share / C, small-cnn-s": lambda device: emulated.largest_share(
            "small-cnn-s", device
        ),
        "largest share / C, resnet18": lambda device: emulated.largest_share("resnet18", device),
        "certificate of a risk": emulated.certificate,
    }
    rows = []
    for name in list(measured)[: 1 if options.device == "cpu" else None]:
        found = {"cpu": measured[name]("cpu")}
        if options.device == "cuda":
            for setting in ("float32", "tf32"):
                before = set_precision(setting)
                found[setting] = measured[name]("cuda")
                set_precision(before)
        rows.append({"number": name, **found})
        write(options, "precision.json", rows)
    return 0


def panel(options: argparse.Namespace) -> int:
    """Fig. 2a and 2b of kl_privacy by the tier `printed`, one run: KL against depth at width 1024.

    Every network is trained with float32 and with TF32 in passes, from the same weights with the
    same noise. After each, `panel.json` has the KL of the worst record at every horizon, the time
    of a step and the peak of memory.
    """
    import torch

    from dpatlas.base.seeds import Noise
    from dpatlas.models.precision import set_precision
    from dpatlas_workflow.config.atlas import Atlas
    from dpatlas_workflow.config.load import load_config
    from dpatlas_workflow.papers.kl_privacy.jobs.training import NoisyDescent, TrainingData
    from dpatlas_workflow.papers.kl_privacy.records.training import KlTrainingSpec

    settings = load_config([PROJECT / "workflow" / "tiers" / "printed.yaml"])
    block = settings.kl_privacy
    tiny = options.device == "cpu"
    sweep = block.depth_sweep
    horizons = [3] if tiny else [block.horizons.short, block.horizons.long]
    specs = [
        spec
        for spec in Atlas(settings).specs.values()
        if spec.fields["key"] == "kl_privacy"
        and spec.fields["kind"] == "training"
        and spec.fields["width"] == sweep.width
        and spec.fields["depth"] in sweep.depths
        and spec.fields["first_run"] == 0
    ]
    specs.sort(key=lambda spec: spec.fields["depth"])
    x, labels, n_train, source = photographs(options, block.data.n_train, block.data.n_add)
    tensors = [torch.from_numpy(part).to(options.device) for part in (x, labels)]
    positions = torch.arange(len(x)).numpy()
    data = TrainingData(*tensors, n_train, positions)
    facts = {"records": source, "n_train": n_train, "n_add": len(x) - n_train}
    facts |= {
        "width": TINY_NETWORK["width"] if tiny else sweep.width,
        "lr": specs[0].fields["lr"],
        "horizons": horizons,
    }
    rows: list[dict[str, Any]] = []
    for spec in specs[:1] if tiny else specs:
        fields = KlTrainingSpec.model_validate(spec.fields | (TINY_NETWORK if tiny else {}))
        for setting in ("float32", "tf32"):
            before = set_precision(setting)
            with torch.no_grad():
                noise = Noise(spec.digest, "keyed")
                descent = NoisyDescent(fields, data, 0, 0, noise, options.device)
                seconds, peak = trained(descent, options.device)
                kl = descent.curves["kl"].max(1).values.tolist()
            set_precision(before)
            rows.append(
                {
                    "init": fields.init,
                    "depth": fields.depth,
                    "precision": setting,
                    "kl_max": [kl[step - 1] for step in horizons],
                    "step_s": seconds / fields.steps,
                    "memory_mb": peak / 2**20,
                }
            )
            write(options, "panel.json", {**facts, "rows": rows})
    return 0


def trained(descent: Any, device: str) -> tuple[float, int]:
    """Wall seconds of the whole training and, on a GPU, the peak of torch's allocations."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    while descent.steps_done < descent.steps:
        descent.step()
    if device == "cpu":
        return time.perf_counter() - start, 0
    torch.cuda.synchronize()
    return time.perf_counter() - start, torch.cuda.max_memory_allocated()


def photographs(options: argparse.Namespace, n_train: int, n_add: int) -> tuple[Any, Any, int, str]:
    """Records (n_train + n_add, 3072), labels, how many are trained on, and where they are from."""
    import numpy as np

    from dpatlas.data.definitions import scale
    from dpatlas.data.generated import COLOUR_SCALING
    from dpatlas.data.sets import cifar10, leaves

    if options.device == "cpu":
        n_train, n_add = 20, 4
    if folder := os.environ.get("CIFAR10"):
        source = cifar10.locate(cifar10.CIFAR10, [Path(folder)])
        if source is None:
            sys.exit(f"CIFAR10: found no copy in {folder}; allowed: those that docs/data.md names")
        splits = cifar10.read(source, cifar10.CIFAR10, cifar10.CIFAR10.classes[:2]).splits
        train, add = splits["train"], splits["test"]
        chosen = [np.arange(len(part[1])) for part in (train, add)]
        if options.device == "cpu":
            chosen = [part[:size] for part, size in zip(chosen, (n_train, n_add), strict=True)]
        pixels, labels = (
            np.concatenate([train[place][chosen[0]], add[place][chosen[1]]]) for place in (0, 1)
        )
        named = PHOTOGRAPHS
    else:
        draws = np.random.default_rng(0)
        labels = np.arange(n_train + n_add) % 2
        # Two hues, else alike.
        kinds = labels * (len(leaves.COLOUR.classes) // len(leaves.HUES))
        pixels, named = leaves.COLOUR.draw(draws, kinds), GENERATED
    return scale(pixels, COLOUR_SCALING, None), labels.astype(np.int64), n_train, named


def summary(options: argparse.Namespace) -> int:
    """Add a finished step to `run.json`; write `summary.json` and `summary.md` of all files."""
    run = read(options, "run.json", None)
    if options.step:
        outcome = (
            "done" if options.code == "0" else "stopped" if options.code in STOPPED else "failed"
        )
        outcome = "not started" if options.code == "none" else outcome
        run["steps"].append({"step": options.step, "outcome": outcome, "seconds": options.seconds})
        write(options, "run.json", run)
    found = {
        "run": run,
        "tests": read(options, "tests.json", None),
        "ratios": ratios(read(options, "bench.json", [])),
        "precision": read(options, "precision.json", []),
        "panel": read(options, "panel.json", None),
    }
    write(options, "summary.json", found)
    text = "\n".join(lines(found)) + "\n"
    (options.folder / "summary.md").write_text(text, encoding="utf-8")
    return 0


def ratios(races: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Time and memory of every candidate as ratios to the plain step, and its peak."""
    kept = ("case", "candidate", "time_ratio", "memory_ratio", "memory_mb", "gpu_s", "left_out")
    return [
        {"kernel": each["kernel"], **{name: row[name] for name in kept if name in row}}
        for each in races
        for row in each["cases"]
    ]


def lines(found: dict[str, Any]) -> list[str]:
    """The summary for a reader."""
    run = found["run"]
    gpu = f"{run['gpu']}, {run['memory_gb']:.0f} GB" if "gpu" in run else "CPU: a rehearsal"
    said = [
        "# GPU check",
        "",
        f"{gpu}; torch {run['torch']}, Python {run['python']}, {run['date']}.",
    ]
    if run["device"] == "cpu":
        said += ["", "**Sizes are tiny and nothing ran on a GPU: these numbers mean nothing.**"]
    if run["missing"]:
        said += ["", "Missing: " + "; ".join(f"{n} ({use})" for n, use in run["missing"].items())]
    said += ["", "| step | outcome | seconds |", "|---|---|---|"]
    said += [f"| {one['step']} | {one['outcome']} | {one['seconds']} |" for one in run["steps"]]
    if found["tests"]:
        counts = found["tests"]
        total = ", ".join(f"{counts[n]} {n}" for n in ("tests", "failures", "errors", "skipped"))
        said += ["", "## Tests", "", total, *(f"- {name}" for name in counts["failed"])]
    if found["ratios"]:
        said += ["", "## Time and memory relative to a plain step", ""]
        said += ["| case | candidate | time | memory | peak, MB |", "|---|---|---|---|---|"]
        said += [ratio_line(row) for row in found["ratios"]]
    if found["precision"]:
        said += ["", "## Precision", "", "| number | CPU | float32 | TF32 in passes | change |"]
        said += ["|---|---|---|---|---|"]
        said += [precision_line(row) for row in found["precision"]]
    if found["panel"]:
        said += ["", "## Fig. 2 of kl_privacy", "", *panel_lines(found["panel"])]
    return said


def ratio_line(row: dict[str, Any]) -> str:
    """One candidate's row."""
    head = f"| {row['case']} | {row['candidate']} |"
    if "left_out" in row:
        return f"{head} left out | {row['left_out']} | |"
    time_ratio = row["time_ratio"]
    spread = f"{time_ratio['min']:.3g} to {time_ratio['max']:.3g}"
    memory = "-" if row["memory_ratio"] is None else f"{row['memory_ratio']:.2f}"
    return f"{head} {time_ratio['median']:.3g} ({spread}) | {memory} | {row['memory_mb']:.0f} |"


def precision_line(row: dict[str, Any]) -> str:
    """One number on the CPU and, where there is one, on the GPU."""
    cells = [f"{row[name]:.6g}" if name in row else "" for name in ("cpu", "float32", "tf32")]
    change = f"{row['tf32'] / row['float32'] - 1:+.1e}" if "tf32" in row else ""
    return f"| {row['number']} | {' | '.join(cells)} | {change} |"


def panel_lines(found: dict[str, Any]) -> list[str]:
    """The KL of the worst record by initialisation and depth."""
    at = " and ".join(str(step) for step in found["horizons"])
    said = [
        f"{found['records']}; {found['n_train']} records to train and {found['n_add']} to add; "
        f"width {found['width']}, step {found['lr']}, one run. KL in nats after {at} steps.",
        "",
        "| init | depth | precision | KL | ms a step | peak, MB |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        kl = ", ".join(f"{value:.5g}" for value in row["kl_max"])
        cells = (row["init"], row["depth"], row["precision"], kl)
        numbers = f"{1e3 * row['step_s']:.3g} | {row['memory_mb']:.0f}"
        said.append(f"| {' | '.join(map(str, cells))} | {numbers} |")
    return said


def read(options: argparse.Namespace, name: str, default: Any) -> Any:
    """What an earlier step wrote."""
    path = options.folder / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else default


def write(options: argparse.Namespace, name: str, content: Any) -> None:
    """As a whole or not at all: the step may be stopped."""
    part = options.folder / f"{name}.part"
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    part.replace(options.folder / name)


STEPS: dict[str, Callable[[argparse.Namespace], int]] = {
    each.__name__: each for each in (environment, tests, bench, precision, panel, summary)
}
FILES = ("run.json", "tests.json", "bench.json", "precision.json", "panel.json", "log.txt")
FILES += ("summary.json", "summary.md")


def main() -> int:
    """One step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step_name", choices=STEPS, metavar="STEP")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--step")
    parser.add_argument("--code")
    parser.add_argument("--seconds", type=int)
    options = parser.parse_args()
    return STEPS[options.step_name](options)


if __name__ == "__main__":
    sys.exit(main())
