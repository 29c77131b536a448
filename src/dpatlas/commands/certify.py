"""`python -m dpatlas certify`: what does my model risk? Of a network and records of one's own."""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpatlas.base.arrays import read_arrays
from dpatlas.base.guard import integer
from dpatlas.base.scripts import error_place, named_function, printing_to_stderr
from dpatlas.commands.bound import strict_json
from dpatlas.errors import ArgumentParser, InputError

MODEL = "FILE.py:FUNCTION that returns the model, such as mine.py:make_model"
ARRAYS = ("x", "y", "x_test", "y_test")
DATA = "an npz file with x and y, and perhaps x_test and y_test"
EPILOG = """\
FUNCTION takes nothing and returns a torch.nn.Sequential that has not seen the records; torch's
random numbers are seeded before it is called. docs/certify.md shows one. Exit code 0: a
certificate, which may be 1. 2: bad input, or FUNCTION failed."""


def main(arguments: Sequence[str]) -> int:
    """Print a certificate, vacuous or not, with what it was paid with."""
    options = _parser().parse_args(arguments)
    import torch

    from dpatlas.certify import Settings, certify

    settings = Settings.of(options.set)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    integer(ge=0, lt=2**63).check("--seed", seed)
    arrays = _data(options.data)
    make_model, _, file = named_function(options.model, MODEL)
    torch.manual_seed(seed)
    try:
        with printing_to_stderr():
            model = make_model()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a stranger's code raises
        raise InputError(f"script {file}", error_place(error), "a model") from None
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"script {file}", f"{type(model).__name__}", "a torch.nn.Sequential")
    chosen: dict[str, Any] = {
        name: value
        for name in ("prior", "delta", "draws")
        if (value := getattr(options, name)) is not None
    }
    if options.tau is not None:
        chosen["taus"] = tuple(options.tau)
    report = certify(model, **arrays, **chosen, seed=seed, redraw=options.redraw, settings=settings)
    print(strict_json(report.as_dict()) if options.json else report)
    return 0


def _data(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError("--data", f"no file {path}", DATA)
    try:
        arrays = read_arrays(path)
    except ValueError as error:
        raise InputError("--data", error, DATA) from None
    if not {"x", "y"} <= arrays.keys() <= set(ARRAYS):
        raise InputError("--data", f"{path} with {', '.join(arrays) or 'no array'}", DATA)
    return arrays


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="dpatlas certify",
        description="An upper bound on the error of one's own network, made random, that holds "
        "with probability 1 - delta.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="FILE.py:FUNCTION", help="returns your network")
    parser.add_argument("--data", type=Path, required=True, metavar="FILE.npz", help=DATA)
    parser.add_argument("--prior", help="initialisation, held-out (default) or dp-sgd")
    parser.add_argument(
        "--tau",
        type=float,
        action="append",
        help="standard deviation of the prior; repeatable, each is paid for (seven from .02 to .3)",
    )
    parser.add_argument("--delta", type=float, help="probability that the certificate fails (.05)")
    parser.add_argument("--draws", type=int, help="draws of a record and weights for each risk")
    parser.add_argument("--seed", type=int, help="repeats a certificate")
    parser.add_argument(
        "--redraw", action="store_true", help="draw the weights afresh: the model has seen records"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the training of priors and posteriors, such as epochs=100; repeatable",
    )
    return parser
