"""`python -m dpatlas train`: train privately; called again, a killed run goes on.

`train FILE.yaml` trains a network of one's own on one's own records (`dpatlas.train`), and `train`
with options a classifier on a prepared data set.
"""

import dpatlas.core.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpatlas.accounting.guarantees import ACCOUNTANTS, RELATIONS
from dpatlas.accounting.samplers import SAMPLERS, sampler
from dpatlas.accounting.selection import LAWS
from dpatlas.checks.audit.records.classifier import Extras
from dpatlas.checks.audit.records.selection import SelectionSpec
from dpatlas.checks.audit.records.training import TrainingSpec
from dpatlas.checks.audit.settings import Training, selection_spec, training_spec
from dpatlas.config.load import load_config, read_checked
from dpatlas.core.canonical import canonical_json, sha256
from dpatlas.core.digest import code_digest
from dpatlas.core.files import check_writable, only_process, read_json
from dpatlas.core.folders import RESULTS
from dpatlas.core.guard import integer, one_of, real
from dpatlas.core.progress import say
from dpatlas.core.records import read_record
from dpatlas.core.rounding import rounded_up, upward
from dpatlas.core.scripts import printing_to_stderr
from dpatlas.core.specs import Spec
from dpatlas.errors import ArgumentParser, InputError
from dpatlas.records import Record, parse_record

TrainingRecord = Record[TrainingSpec]
SelectionRecord = Record[SelectionSpec]
EPILOG = """\
`dpatlas train FILE.yaml` trains a network of your own on your own records: docs/training.md.
Without further arguments this trains the network of the audit table. The same command, given again,
resumes a run from its last checkpoint; with --resume it refuses to start from the beginning. The
record is OUTPUT/ID/record.json, the network OUTPUT/ID/model: weights (safetensors), ledger and a
card in words, for dpatlas.privacy.load_model. The guarantee covers
the given settings; it does not count what choosing them on the private data has cost. With --select
the settings are chosen privately, and the guarantee counts the choice: of a random number of
trials, each with settings drawn from ranges, only the best is released. The number of trials must
stay secret: release neither cost.json nor the running time."""
NO_TRIAL = "selected: none: the law drew no trial, and this is all that is released"
MOST_EPOCHS = 1e6
# Numbers of records in the parts of a named data set: private, to add, test and validation.
SPLITS: Mapping[str, Mapping[str, Any]] = {
    "digits": {"n_train": 1200, "n_add": 0, "n_test": 297, "n_validation": 300},
    "cifar10": {"n_train": 45000, "n_add": 0, "n_test": 10000, "n_validation": 5000},
}


def main(arguments: Sequence[str]) -> int:
    """Train as the arguments say, and print the guarantee and the accuracy."""
    if arguments and not arguments[0].startswith("-"):
        return _train_from_file(arguments)
    config = load_config()
    options = _parser(config.audit.training).parse_args(arguments)
    check_writable(options.output)
    integer(ge=0).check("--seed", options.seed)
    for name, value in vars(options).items():
        if isinstance(value, float):
            real().check(f"--{name.replace('_', '-')}", value)
    integer(ge=1).check("--steps", options.steps)
    integer(ge=1).check("--runs", options.runs)
    real(gt=0, lt=1).check("--delta", options.delta)
    one_of(*SAMPLERS).check("--sampler", options.sampler)
    one_of("keyed", "os").check("--noise-source", options.noise_source)
    selection = _selection(options)
    manifest, data = _data(options)
    prepared = read_json(manifest)
    n_train = prepared["shapes"]["x_train"][0]
    if options.delta > 1 / n_train:
        allowed = f"at most 1 / {n_train}: more would let one publish a random record"
        raise InputError("--delta", options.delta, allowed)
    spec = _spec(options, data, n_train, selection)
    if options.noise_multiplier == 0 and options.epsilon is None:
        say(f"{spec.id}: no noise, so this training is NOT private; its ledger says so")
    from dpatlas.jobs.job import execute
    from dpatlas.jobs.run import kind_of
    from dpatlas.train.earlier import earlier_records, say_what_adds_up

    path = options.output / spec.id / "record.json"
    with only_process(options.output, spec.id):
        if options.noise_source == "os" and path.is_file():
            # With new noise it would be a second release, and add to the privacy loss.
            say(f"{spec.id}: trained before; this is its record, and nothing is trained again")
            content = read_record(path)
        else:
            if not path.is_file():
                mine = prepared["sha256"]
                say_what_adds_up(
                    earlier_records(options.output),
                    lambda record: (record["data"] or {}).get("sha256") == mine,
                )
            module, kind = kind_of(spec)
            content = execute(
                spec,
                kind,
                module=module,
                data=manifest,
                record=path,
                checkpoints=options.output / "checkpoints",
                device=options.device,
                options=Extras(path.parent, options.show_private_loss),
                resume=options.resume,
            )
    folders = sorted(str(file.parent) for file in path.parent.glob("model*/ledger.json"))
    if options.json:
        print(json.dumps({**content, "record": str(path), "models": folders}, allow_nan=False))
    else:
        record = parse_record(content, str(path))
        *lines, last = (selection_report if selection else report)(record, path).splitlines()
        print("\n".join([*lines, *(f"model: {folder}" for folder in folders), last]))
    return 0


def _train_from_file(arguments: Sequence[str]) -> int:
    """Train as a settings file says, and print the guarantee and what was measured."""
    parser = ArgumentParser(
        prog="dpatlas train FILE.yaml",
        description="Train a network of your own on records of your own, as a file says.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("settings", type=Path, metavar="FILE.yaml", help="see docs/training.md")
    _add_common(parser)
    options = parser.parse_args(arguments)
    from dpatlas.train import Settings, train

    with printing_to_stderr():
        record = train(
            read_checked(options.settings, Settings),
            base=options.settings.parent,
            name=options.settings.stem,
            output=options.output,
            device=options.device,
            resume=options.resume,
        )
    folder = options.output / record["id"]
    if options.json:
        print(json.dumps({**record, "record": str(folder / "record.json")}, allow_nan=False))
        return 0
    metrics, ledger = record["metrics"], record["ledger"]
    print(f"guaranteed: {ledger['guaranteed']}; {ledger['holds_for']}")
    selects = record["spec"]["settings"]["select"] is not None
    if (total := (ledger.get("tuning") or {}).get("epsilon")) and not selects:
        print(f"with the trainings that chose the settings: epsilon {upward(total)}")
    print(f"noise multiplier {metrics['noise_multiplier']:g}, {metrics['steps']} steps")
    if metrics.get("selected"):
        drawn = ", ".join(f"{name} {value:.6g}" for name, value in metrics["selected"].items())
        print(f"selected: {drawn}; score {metrics['score']:.4g}")
    elif selects:
        print(NO_TRIAL)
    for name in ("accuracy", "loss"):
        if metrics.get(name) is not None:
            tested = f"{metrics['n_test']} test records, which count as public"
            print(f"{name}: {metrics[name]:.4g} on {tested}")
    if skipped := metrics.get("skipped_records"):
        print(f"gradients that were not finite, taken as zero: {skipped} (a private count)")
    if (folder / "model").is_dir():
        print(f"model: {folder / 'model'}")
    private = "not for release: it has digests of the records and private counts"
    print(f"record: {folder / 'record.json'} ({private})")
    return 0


def report(record: TrainingRecord, path: Path) -> str:
    """The guarantee in one line, the accuracy, and the path of the record."""
    ledger, facts, runs = record.ledger, record.facts, record.tables["runs"]
    if ledger["epsilon"] is None:
        guarantee = f"guaranteed: {ledger['guaranteed']}"
    else:
        together = ""
        if "one_run" in ledger:
            together = (
                f" of all {record.spec.runs} runs together (one alone: epsilon "
                f"{upward(ledger['one_run']['epsilon'])})"
            )
        guarantee = (
            f"guaranteed: epsilon {upward(ledger['epsilon'])} "
            f"at delta {rounded_up(ledger['delta'])}{together}, {record.spec.relation}, "
            f"{record.spec.sampler} batches, noise multiplier "
            f"{facts['noise_multiplier']:g}; {ledger['holds_for']}"
        )
    averaged = [row["ema_accuracy"] for row in runs if row["ema_accuracy"] is not None]
    lines = [guarantee, _accuracy("accuracy", [row["accuracy"] for row in runs], facts["n_test"])]
    if averaged:
        lines.append(_accuracy("accuracy of averaged weights", averaged, None))
    if skipped := sum(row["skipped_records"] for row in runs):
        lines.append(f"gradients that were not finite, taken as zero: {skipped}")
    return "\n".join([*lines, f"record: {path}"])


def selection_report(record: SelectionRecord, path: Path) -> str:
    """Both guarantees, and the settings, score and accuracy of the released trial."""
    ledger, facts = record.ledger, record.facts
    lines = [
        f"guaranteed: {ledger['guaranteed']}, of the selection; {ledger['holds_for']}",
        f"one trial alone: {ledger['single_trial']['guaranteed']}",
    ]
    if facts["settings"] is None or facts["accuracy"] is None:
        lines.append(NO_TRIAL)
    else:
        settings = ", ".join(f"{name} {value:.6g}" for name, value in facts["settings"].items())
        deviation = facts["score_deviation"]
        noise = "without noise: public"
        if deviation is not None:
            noise = f"noise of deviation {deviation:.2g}"
        score = f"{facts['score']:.3f} on {facts['n_validation']} validation records, {noise}"
        lines += [
            f"selected: {settings}; score {score}",
            _accuracy("accuracy", [facts["accuracy"]], facts["n_test"]),
        ]
    return "\n".join([*lines, f"record: {path}"])


def _accuracy(name: str, runs: Sequence[float], n_test: int | None) -> str:
    spread = ""
    if len(runs) > 1:
        error = float(np.std(runs, ddof=1) / np.sqrt(len(runs)))
        spread = f" ± {error:.2g} (standard error of {len(runs)} runs)"
    tested = f" on {n_test} held-out records" if n_test else ""
    return f"{name}: {np.mean(runs):.3f}{spread}{tested}"


def _data(options: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    """Manifest of the data set, which is prepared first if need be, and its fields for the spec."""
    path = Path(options.data)
    if path.suffix == ".json":
        content = read_json(path)
        shapes = content.get("shapes") if isinstance(content, dict) else None
        records = shapes.get("x_train") if isinstance(shapes, dict) else None
        if not isinstance(records, list) or not records or not {"sha256", "name"} <= set(content):
            raise InputError("--data", str(path), "the manifest of a prepared data set")
        integer(ge=1).check(f"{path}: shapes.x_train", records[0])
        return path, {"name": content["name"], "sha256": content["sha256"]}
    if options.data not in SPLITS:
        allowed = f"one of {', '.join(SPLITS)}, or a manifest.json"
        raise InputError("--data", repr(options.data), allowed)
    from dpatlas.data.prepare import prepare
    from dpatlas.data.registry import find, module_of

    split = {"classes": list(find(options.data).classes), **SPLITS[options.data]}
    code = code_digest("dpatlas.data.prepare", module_of(options.data))
    name = f"{options.data}-{sha256(canonical_json([split, code]))[:8]}"
    folder = options.output / "data" / name
    if not (folder / "manifest.json").is_file():
        prepare(
            options.data,
            split,
            folder,
            data_root=options.data_root,
            allow_download=options.allow_download,
        )
    return folder / "manifest.json", {"name": options.data, **split}


def _selection(options: argparse.Namespace) -> dict[str, Any] | None:
    """Fields of a selection's spec beside those of its training; None without --select.

    Raises InputError for options that cannot be combined, and for lists of settings.
    """
    ranges = {
        name: _range(f"--{option}-from", text)
        for name, option in {"lr": "lr", "max_grad_norm": "max-grad-norm"}.items()
        if (text := getattr(options, f"{name}_from")) is not None
    }
    selection_only = {
        "--expected-trials": options.expected_trials,
        "--score-noise": options.score_noise,
        "--public-validation": options.public_validation or None,
    }
    if options.select is None:
        selection_only |= {"--lr-from or --max-grad-norm-from": ranges or None}
        for name, value in selection_only.items():
            if value is not None:
                raise InputError(name, "no --select", "it together with --select LAW")
        return None
    one_of(*LAWS).check("--select", options.select)
    if options.expected_trials is None:
        raise InputError("--expected-trials", "none", "a number > 1 with --select")
    if not ranges:
        raise InputError("--select", "no range", "--lr-from or --max-grad-norm-from LOW,HIGH")
    if (options.score_noise is None) != options.public_validation:
        found = "both" if options.public_validation else "neither"
        allowed = "the one where validation records are private, the other where they are public"
        raise InputError("--score-noise and --public-validation", found, allowed)
    if options.noise_multiplier == 0:
        raise InputError("--noise-multiplier", "0 with --select", "a number > 0")
    if options.runs != 1 or options.ema_decay is not None:
        name = "--runs" if options.runs != 1 else "--ema-decay"
        raise InputError(name, "--select", "one of the two: a selection releases one network")
    if options.show_private_loss:
        raise InputError("--show-private-loss", "--select", "one of the two: it shows no progress")
    return {
        "law": options.select,
        "expected_trials": options.expected_trials,
        "ranges": ranges,
        "score_noise": options.score_noise,
    }


def _range(option: str, text: str) -> list[float]:
    """LOW,HIGH as two numbers; InputError for any other text, such as a list."""
    allowed = (
        "LOW,HIGH with 1e-30 <= LOW < HIGH <= 1e30: each trial draws a value between them, "
        "not from a list"
    )
    try:
        low, high = (float(word) for word in text.split(","))
    except ValueError:
        raise InputError(option, repr(text), allowed) from None
    if not 1e-30 <= low < high <= 1e30:
        raise InputError(option, repr(text), allowed)
    return [low, high]


def _spec(
    options: argparse.Namespace, data: dict[str, Any], n: int, selection: dict[str, Any] | None
) -> Spec:
    epsilon = options.epsilon
    if epsilon is None and options.noise_multiplier is None:
        epsilon = options.default_epsilon
    relation = options.relation or next(
        relation for relation in RELATIONS if (options.sampler, relation) in ACCOUNTANTS
    )
    batch = options.batch
    if batch is None:
        batch = n if options.sampler == "full-batch" else options.default_batch
    momentum = options.momentum
    if momentum is None:
        momentum = options.default_momentum if options.optimizer == "sgd" else 0.0
    steps = options.steps
    if options.epochs is not None:
        real(gt=0, le=MOST_EPOCHS).check("--epochs", options.epochs)
        integer(ge=1, le=n).check("--batch", batch)
        steps = sampler(options.sampler, n, batch).steps_in(options.epochs)
    names = (
        "model",
        "delta",
        "sampler",
        "noise_multiplier",
        "max_grad_norm",
        "lr",
        "optimizer",
        "clipping",
        "max_physical_batch",
        "ema_decay",
        "runs",
    )
    settings = {name: getattr(options, name) for name in names}
    seeds = {"seed": options.seed, "noise_source": options.noise_source}
    settings |= {
        "data": data,
        "epsilon": epsilon,
        "relation": relation,
        "batch": batch,
        "momentum": momentum,
        "steps": steps,
        "settings_tried": None,
    }
    if selection is not None:
        return selection_spec(seeds, settings, selection)
    return training_spec(seeds, settings)


def _add_common(parser: Any) -> None:
    """Arguments of both ways to train."""
    parser.add_argument(
        "--device",
        default="cpu",
        help="cpu, cuda, cuda-tf32 or auto",
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "train", help="folder to write to")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with an interrupted training of these settings, or fail if there is none",
    )
    parser.add_argument("--json", action="store_true", help="print the record as one JSON object")


def _parser(default: Training) -> ArgumentParser:
    """The command line; `default` is the private training of the config's audit block."""
    parser = ArgumentParser(
        prog="dpatlas train",
        description=__doc__,
        epilog=EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    data = parser.add_argument_group("data and model")
    data.add_argument(
        "--data", default="digits", help="digits, cifar10 or the path of a manifest.json"
    )
    data.add_argument("--data-root", type=Path, help="folder with local copies; never written to")
    data.add_argument("--allow-download", action="store_true", help="fetch what is missing")
    data.add_argument("--model", default=default.model, help="name of the network")
    privacy = parser.add_argument_group("privacy")
    privacy.add_argument(
        "--epsilon",
        type=float,
        help=f"epsilon that the noise is calibrated to; {default.epsilon:g} if neither is given",
    )
    privacy.add_argument(
        "--noise-multiplier", type=float, help="in place of epsilon; 0 for no noise"
    )
    privacy.add_argument(
        "--delta", type=float, default=default.delta, help="delta of the guarantee"
    )
    privacy.add_argument(
        "--relation", help="add_remove or replace_one; by default one that the sampler supports"
    )
    privacy.add_argument("--sampler", default="poisson", help="how batches are drawn")
    clip = privacy.add_mutually_exclusive_group()
    clip.add_argument(
        "--max-grad-norm", type=float, default=default.max_grad_norm, help="clip bound"
    )
    privacy.add_argument("--clipping", default="flat", help="flat or per-layer clipping")
    privacy.add_argument(
        "--noise-source",
        default="os",
        help="os: noise of the operating system, which nobody can reproduce; the same command "
        "resumes a killed run and shows the record of a finished one without training again. "
        "keyed: reproducible noise, which anyone who knows the settings can subtract",
    )
    work = parser.add_argument_group("training")
    work.add_argument(
        "--batch", type=int, help=f"expected batch size; {default.batch} if not given"
    )
    length = work.add_mutually_exclusive_group()
    length.add_argument(
        "--steps", type=int, default=default.steps, help="number of private updates"
    )
    length.add_argument("--epochs", type=float, help="passes over the data, in place of steps")
    rate = work.add_mutually_exclusive_group()
    rate.add_argument("--lr", type=float, default=default.lr, help="learning rate")
    work.add_argument(
        "--momentum",
        type=float,
        help=f"momentum of sgd; {default.momentum:g} if not given, and 0 with other optimisers",
    )
    work.add_argument("--optimizer", default=default.optimizer, help="sgd, adam or adamw")
    work.add_argument("--max-physical-batch", type=int, help="records in memory at a time")
    work.add_argument(
        "--ema-decay", type=float, help="decay of an average of the weights, also tested"
    )
    work.add_argument(
        "--runs", type=int, default=1, help="number of networks, with independent randomness"
    )
    work.add_argument("--seed", type=int, default=0, help="base of all named seeds")
    _add_common(work)
    work.add_argument(
        "--show-private-loss",
        action="store_true",
        help="show the loss of training records beside the progress: it carries no noise, so "
        "nothing that keeps this output may be released",
    )
    choice = parser.add_argument_group("private selection of settings")
    choice.add_argument(
        "--select", metavar="LAW", help=f"distribution of the number of trials: {', '.join(LAWS)}"
    )
    choice.add_argument("--expected-trials", type=float, help="mean of that law")
    rate.add_argument(
        "--lr-from", metavar="LOW,HIGH", help="range from which a trial draws it log-uniformly"
    )
    clip.add_argument(
        "--max-grad-norm-from",
        metavar="LOW,HIGH",
        help="range from which a trial draws it likewise",
    )
    choice.add_argument(
        "--score-noise",
        type=float,
        help="standard deviation of the noise on the count of right answers, where validation "
        "records are private",
    )
    choice.add_argument(
        "--public-validation",
        action="store_true",
        help="validation records are public: scores carry no noise",
    )
    parser.set_defaults(
        default_epsilon=default.epsilon,
        default_batch=default.batch,
        default_momentum=default.momentum,
    )
    return parser
