"""`python -m dpatlas train`: train privately, as a file says; again, a killed run goes on."""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from dpatlas.base.files import check_writable, write_atomic
from dpatlas.base.folders import RESULTS
from dpatlas.base.progress import say
from dpatlas.base.rounding import upward
from dpatlas.base.schema import is_number
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


ARMS_COST = (
    "arms without noise spend privacy that no epsilon counts: run them on public or synthetic "
    "records; ledgers of later trainings on the same records in this folder say that they ran"
)
ARM_WORDS = {
    "no privacy": "no privacy (shuffled batches)",
    "batches": "the sampler's batches",
    "clip": "these batches, and the clip",
    "noise": "these batches, the clip and noise",
}
TEST = "# test: HELD_OUT.csv  # records to measure on; they count as public\n"
TABLE = """\
table:
  target: {}
  classes: [FIRST, SECOND]  # as the cells name them; without this line targets are numbers
  # groups: COLUMN  # the person of a record, for a guarantee per person
  # What is declared here is public: take it from what the columns mean, not from these records.
  # Missing cells are refused, or filled by a constant: {{range: [0, 100], missing: 50}}.
  columns:  # those that are inputs
"""
TEST_IMAGES = "# images to measure on: test/CLASS beside train/CLASS; they count as public\n"
FOLDER = """\
data: {data}
images:
  classes: {classes}
  image_shape: [1, 28, 28]  # channels (1 or 3), height, width
  scaling: centred
  resize: true
model: small-cnn-s  # or another of docs/settings.md, or FILE.py:FUNCTION of rows of pixels
"""
REST = """\
epsilon: 3
batch: 100  # expected size of a Poisson batch
epochs: 10
max_grad_norm: 1.0
lr: 0.5  # chosen by comparing on other records; that costs privacy on these
"""
# Without ASCII escapes: YAML does not read JSON's surrogate pairs.
_quoted = partial(json.dumps, ensure_ascii=False)


def main(arguments: Sequence[str]) -> int:
    """Train as a settings file says, and print the guarantee and what was measured."""
    options = _parser().parse_args(arguments)
    if options.init:
        print(f"settings: {_init(options.init)}: fill in what stands in capitals, then train by it")
        return 0
    path = options.settings or _example(options.output)
    from dpatlas.train import Settings, train

    if options.arms:
        say(f"warning: {ARMS_COST}")
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
            arms=options.arms,
        )
    if options.arms:
        print(json.dumps(record, allow_nan=False) if options.json else _arms_in_words(record))
        return 0
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


def _arms_in_words(compared: dict[str, Any]) -> str:
    """A line for each arm, and one on where accuracy is lost."""
    rows, columns = compared["arms"], ("accuracy", "balanced_accuracy", "auc", "loss", "epsilon")
    lines = [f"{'arm':34}" + "".join(f"{name.replace('_', ' '):>18}" for name in columns)]
    for row in rows:
        shown = ("-" if row[name] is None else f"{row[name]:.4g}" for name in columns)
        lines.append(f"{ARM_WORDS[row['arm']]:34}" + "".join(f"{each:>18}" for each in shown))
    return "\n".join([*lines, _where_lost(rows)])


def _where_lost(rows: Sequence[Mapping[str, Any]]) -> str:
    """The part with which accuracy, or without classes the loss, gets worse most.

    A difference of accuracies counts beyond two standard errors on the test records.
    """
    what = "loss" if rows[0]["accuracy"] is None else "accuracy"
    values, sign = [row[what] for row in rows], -1 if what == "loss" else 1
    if None in values:
        return f"no loss that is finite: {ARM_WORDS[rows[values.index(None)]['arm']]}"

    def error(*shares: float) -> float:
        variance = sum(each * (1 - each) for each in shares) / rows[0]["n_test"]
        return 2 * math.sqrt(variance) if sign > 0 else 0.0

    if sign > 0 and values[0] <= rows[0]["majority"] + error(values[0]):
        return (
            f"nothing is learnt even without privacy: accuracy {values[0]:.4g}, and the largest "
            f"class alone has {rows[0]['majority']:.4g}: look at network, rate and data first"
        )
    losses = [sign * (before - after) for before, after in pairwise(values)]
    worst = losses.index(max(losses))
    before, after = values[worst], values[worst + 1]
    if losses[worst] <= error(before, after):
        return f"no part costs {what} beyond what chance explains on the test records"
    verb = "falls" if sign > 0 else "rises"
    return f"{what} {verb} most by the {rows[worst + 1]['arm']}: from {before:.4g} to {after:.4g}"


def _init(data: Path) -> Path:
    """Settings for a table or a folder of images, beside it; values stay to be declared.

    Of the records only names are taken: of columns or classes, and whether the first row has a
    number in a column. InputError for settings that are there already.
    """
    data = data.absolute()
    path = data.with_suffix(".yaml")
    if path.exists():
        raise InputError(str(path), "a file", "--init where no settings are written yet")
    if data.is_dir():
        parts = _folders(data)
        classes = _folders(data / "train") if "train" in parts else parts
        lines = [FOLDER.format(data=_quoted(f"{data.name}/"), classes=_quoted(classes))]
        if len(classes) < 2:
            found, allowed = ", ".join(classes) or "none", "two or more, perhaps in train/"
            raise InputError(str(data), f"folders of classes: {found}", allowed)
        if "test" not in parts:
            lines.append(TEST_IMAGES)
    else:
        from dpatlas.train.files import read_cells
        from dpatlas.train.settings import TABLES

        if data.suffix not in TABLES:
            raise InputError("--init", str(data), f"a folder, or FILE{' or FILE'.join(TABLES)}")
        *inputs, target = read_cells("--init", data).items()
        lines = [f"data: {_quoted(data.name)}\n{TEST}", TABLE.format(_quoted(target[0]))]
        if not inputs:
            found = f"{data}: the column {target[0]} alone"
            raise InputError("--init", found, "two or more, in a CSV file with commas between them")
        for name, cells in inputs:
            kind = "range: [LOW, HIGH]" if is_number(cells[0]) else "categories: [FIRST, SECOND]"
            lines.append(f"    {_quoted(name)}: {{{kind}}}\n")
        lines.append("model: linear  # or mlp, or FILE.py:FUNCTION, which returns your network\n")
    try:
        write_atomic(path, "".join([*lines, REST]))
    except UnicodeEncodeError:
        raise InputError("--init", f"{str(data)!r}: a name that is no text", "UTF-8") from None
    return path


def _folders(folder: Path) -> list[str]:
    """Names of the sub-folders, without hidden ones, which `dpatlas.data.own` ignores."""
    folders = (each.name for each in folder.iterdir() if each.is_dir())
    return sorted(name for name in folders if not name.startswith("."))


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="dpatlas train",
        description="Train a network privately, as a file of settings says.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument(
        "settings",
        nargs="?",
        type=Path,
        metavar="FILE.yaml",
        help="settings: see docs/settings.md",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--arms",
        action="store_true",
        help="train without privacy, and with batches, clip and noise one by one, and show where "
        "accuracy is lost; save no network",
    )
    instead.add_argument(
        "--init",
        type=Path,
        metavar="DATA",
        help="write settings for a CSV or Parquet file or an image folder",
    )
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda-tf32 or auto")
    parser.add_argument(
        "--output", type=Path, default=RESULTS / "train", help="folder to write to (results/train)"
    )
    instead.add_argument(
        "--resume",
        action="store_true",
        help="continue an interrupted training of these settings, or fail if there is none",
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
