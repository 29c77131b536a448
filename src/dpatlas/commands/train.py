"""`python -m dpatlas train`: train privately, as a file says; again, a killed run goes on."""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from dpatlas.base.files import check_writable, write_atomic
from dpatlas.base.folders import RESULTS
from dpatlas.base.progress import say
from dpatlas.base.rounding import upward
from dpatlas.base.scripts import printing_to_stderr
from dpatlas.base.yaml_files import read_checked
from dpatlas.errors import ArgumentParser, InputError

EPILOG = """\
Without a file an example is written to OUTPUT/example.yaml and run. The same command, given again,
resumes a run from its last checkpoint; with --resume it refuses to start from the beginning. The
record is OUTPUT/ID/record.json, the network OUTPUT/ID/model: weights (safetensors), ledger and a
card in words. With `select` in the file the settings are chosen privately, and the guarantee counts
the choice; the number of trials must stay secret: release neither cost.json nor the running
time."""


def main(arguments: Sequence[str]) -> int:
    """Train as a settings file says, and print the guarantee and what was measured."""
    options = _parser().parse_args(arguments)
    path = options.settings or _example(options.output)
    from dpatlas.train import Settings, train

    with printing_to_stderr():
        record = train(
            read_checked(path, Settings),
            base=path.parent,
            name=path.stem,
            output=options.output,
            device=options.device,
            resume=options.resume,
            private_loss=options.show_private_loss,
            data_root=options.data_root,
            allow_download=options.allow_download,
        )
    folder = options.output / record["id"]
    if options.json:
        print(json.dumps({**record, "record": str(folder / "record.json")}, allow_nan=False))
        return 0
    metrics, ledger = record["metrics"], record["ledger"]
    print(f"guaranteed: {ledger['guaranteed']}; {ledger['holds_for']}")
    selects = record["spec"]["settings"]["select"] is not None
    if selects:
        print(f"one trial alone: {ledger['single_trial']['guaranteed']}")
    elif total := (ledger.get("tuning") or {}).get("epsilon"):
        print(f"with the trainings that chose the settings: epsilon {upward(total)}")
    print(f"noise multiplier {metrics['noise_multiplier']:g}, {metrics['steps']} steps")
    if metrics.get("selected"):
        drawn = ", ".join(f"{name} {value:.6g}" for name, value in metrics["selected"].items())
        print(f"selected: {drawn}; score {metrics['score']:.4g}")
    elif selects:
        print("selected: none: the law drew no trial, and this is all that is released")
    runs = metrics.get("runs") or []
    mean = f", the mean of {len(runs)} networks," if len(runs) > 1 else ""
    tested = f"{metrics['n_test']} test records, which count as public"
    for name in ("accuracy", "loss"):
        if metrics.get(name) is not None:
            print(f"{name}: {metrics[name]:.4g}{mean} on {tested}")
    if metrics.get("balanced_accuracy") is not None:
        auc = "" if metrics["auc"] is None else f", AUC {metrics['auc']:.4g}"
        print(
            f"balanced accuracy {metrics['balanced_accuracy']:.4g}{auc}; to answer with the "
            f"largest class alone has accuracy {metrics['majority']:.4g}"
        )
    if audit := metrics.get("audit"):
        test = audit["profile_test"]
        needed = "no number" if test["needed"] is None else f"{test['needed']} of them"
        verdict = "contradicted" if audit["contradicted"] else "not contradicted"
        print(
            f"audit: {test['correct']} of {test['guesses']} guesses are right; {needed} would "
            f"contradict; epsilon at least {audit['lower']['epsilon']:.3g}: {verdict}"
        )
    if skipped := metrics.get("skipped_records"):
        print(f"gradients that were not finite, taken as zero: {skipped} (a private count)")
    for model in sorted(each.parent for each in folder.glob("model*/ledger.json")):
        print(f"model: {model}")
    private = "not for release: it has digests of the records and private counts"
    print(f"record: {folder / 'record.json'} ({private})")
    return 0


def _example(output: Path) -> Path:
    """The example, written to a folder where it may have been written before."""
    import dpatlas.train

    path = output / "example.yaml"
    text = Path(dpatlas.train.__file__).with_name("example.yaml").read_text(encoding="utf-8")
    if not path.exists():
        check_writable(output)
        write_atomic(path, text)
        say(f"{path}: an example of settings, written now; edit a copy of it")
    elif path.read_bytes() != text.encode():
        allowed = f"the example, or another --output; dpatlas train {path} trains by this file"
        raise InputError(str(path), "other settings", allowed)
    return path


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="dpatlas train",
        description="Train a network privately, as a file of settings says.",
        epilog=EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "settings", nargs="?", type=Path, metavar="FILE.yaml", help="see docs/training.md"
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda-tf32 or auto")
    parser.add_argument("--output", type=Path, default=RESULTS / "train", help="folder to write to")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with an interrupted training of these settings, or fail if there is none",
    )
    parser.add_argument("--json", action="store_true", help="print the record as one JSON object")
    parser.add_argument(
        "--data-root", type=Path, help="folder with local copies of data sets; never written to"
    )
    parser.add_argument("--allow-download", action="store_true", help="fetch data that are missing")
    parser.add_argument(
        "--show-private-loss",
        action="store_true",
        help="show the loss of training records beside the progress: it carries no noise, so "
        "nothing that keeps this output may be released",
    )
    return parser
