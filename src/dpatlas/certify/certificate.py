"""A certificate on the error of one's own network: prior, posteriors, counts, bound."""

import contextlib
import math
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpatlas.base.guard import integer, one_of, real, single_value
from dpatlas.base.progress import Progress
from dpatlas.base.seeds import Noise
from dpatlas.certify.network import chain, check_takes, redrawn
from dpatlas.certify.posterior import count_errors, train_posterior
from dpatlas.certify.priors import (
    DP_SGD,
    HELD_OUT,
    PRIORS,
    PriorProblem,
    held_out_bound,
    make_prior,
)
from dpatlas.certify.report import CertifyReport, PosteriorRow
from dpatlas.certify.settings import CertifySettings
from dpatlas.errors import InputError
from dpatlas.formulas.max_information.certificates import (
    certificate_exponent,
    kl_inverse,
    monte_carlo_risk,
)
from dpatlas.models.mean_field import MeanField
from dpatlas.privacy.digest import row_digests
from dpatlas.privacy.noise import device_generator
from dpatlas.privacy.saved import are_trained

# From where max_information's grid begins to beyond its end: small networks want larger ones.
TAUS = (0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3)
DRAWS = 50_000
# Shares of delta: of the Monte Carlo step, and of the max-information of a DP-SGD prior.
MONTE_CARLO, MAX_INFORMATION = 0.25, 0.5
CPU = torch.device("cpu")
# Far below it, shares of delta are beyond the arithmetic of confidence limits.
SMALLEST_DELTA = 1e-100


@contextlib.contextmanager
def _torch_defaults() -> Iterator[None]:
    """float32, the CPU and gradients, whatever a script has set; afterwards as before."""
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    torch.set_default_dtype(torch.float32)
    try:
        # Entered only where it is needed: it costs something at each operation.
        elsewhere = contextlib.nullcontext() if device == CPU else CPU
        with torch.inference_mode(False), torch.enable_grad(), elsewhere:
            yield
    finally:
        torch.set_default_dtype(dtype)


@_torch_defaults()
def certify(
    model: nn.Module,
    x: Any,
    y: Any,
    *,
    prior: str = HELD_OUT,
    taus: Sequence[float] = TAUS,
    delta: float = 0.05,
    draws: int = DRAWS,
    seed: int | None = None,
    x_test: Any = None,
    y_test: Any = None,
    redraw: bool = False,
    settings: CertifySettings | None = None,
) -> CertifyReport:
    """A bound on the error of a randomised network around the model, and what it was paid with.

    model: an `nn.Sequential` of linear layers, 3x3 convolutions, activations, pooling, as it is
    before it has seen any of the records; it stays as it is. With `redraw` its weights are drawn
    afresh. x: records, an array or tensor (n, ...), taken as float32, independent draws of one
    distribution; y: labels (n,), whole numbers from 0.

    For each tau the prior is N(centre, tau^2 I) and the posterior an independent normal for each
    weight; the prior itself is a candidate too. Centre by `prior`: "initialisation", the model's
    weights; "held-out", trained on a part of the records, of which the certificate counts the
    others only; "dp-sgd", trained on all records by DP-SGD and paid by its max-information kappa
    (max_information Eq. 97, epochs composed without Eq. 84). With probability 1 - delta over
    records and draws, the certificates of all candidates hold together. seed: with it all is
    repeated, to the bit on one machine; drawn if None. A test set (x_test, y_test) chooses nothing.

    Beside it stands the plain held-out bound at the same delta: the network is trained on the part
    of the records that a prior "held-out" learns from, and its errors on the others are counted
    (Clopper-Pearson). The report says which is tighter.

    Raises InputError for a model of another form, for records or settings that do not fit, and for
    weights that a private training in this process left, or that `load_weights` read, unless
    `redraw`: whatever the prior, a model that has seen the records has no certificate. A training
    without privacy cannot be seen here: the certificate of a model that it left is false.
    """
    start = time.monotonic()
    one_of(*PRIORS).check("prior", prior)
    settings = CertifySettings() if settings is None else settings
    if not isinstance(settings, CertifySettings):
        raise InputError("settings", type(settings).__name__, "a dpatlas.certify.Settings")
    if not isinstance(redraw, bool | np.bool_):
        raise InputError("redraw", repr(redraw), "True or False")
    delta = single_value("delta", delta, real(ge=SMALLEST_DELTA, lt=1))
    draws = single_value("draws", draws, integer(ge=1, le=10**8))
    seed = secrets.randbits(32) if seed is None else single_value("seed", seed, integer(ge=0))
    grid = _grid(taus)
    noise = Noise(f"certify/{seed}", "keyed")
    network = chain(model)
    if not redraw and are_trained(model.parameters(), copies=False):
        found = "weights that a private training left, which may have seen the records"
        allowed = "redraw=True, or copy.deepcopy(model) where it was trained on other records alone"
        raise InputError("model", found, allowed)
    records, labels = _records("x", x), _labels("y", y, x)
    classes = check_takes(network, records)
    _check_classes("y", labels, classes)
    test = _test_set(x_test, y_test, records, classes)
    known = set(row_digests(records))
    duplicates = len(records) - len(known)
    test_overlap = 0 if test is None else sum(each in known for each in row_digests(test[0]))
    if redraw:
        redrawn(network, _draws(noise, 0, "weights"))
    delta_mc = MONTE_CARLO * delta
    beta = MAX_INFORMATION * delta if prior == DP_SGD else 0.0
    problem = PriorProblem(network, records, labels, settings, noise)
    centred = make_prior(prior, problem, beta)
    plain = held_out_bound(problem, delta)
    records, labels = records[centred.certified], labels[centred.certified]
    n, K2 = len(records), len(grid)
    # The posterior and the prior of every tau are counted, each at its share of delta_mc.
    level = delta_mc / (2 * K2)

    def exponent(kl: float) -> float:
        # K1 = 1: one centre.
        paid = (kl, centred.kappa, n, 1, K2, delta, delta_mc, beta)
        return float(certificate_exponent(*paid))

    def row(tau: float, law: MeanField | None, number: int, trained: bool) -> PosteriorRow:
        """Certificate of a law from draws of a record and weights; 1 if training diverged."""
        kl = math.inf if law is None else law.kl(centred.centre, tau) if trained else 0.0
        if law is None or math.isinf(kl + centred.kappa):
            return PosteriorRow(tau, trained, 1.0, 1.0, kl, 1.0)
        repetition = 2 * number + trained
        drawn = noise.generator(repetition=repetition, step=0, use="records").integers(0, n, draws)
        pairs = _draws(noise, repetition, "pairs")
        risk = count_errors(law, records, labels, np.sort(drawn), pairs) / draws
        limit = float(monte_carlo_risk(risk, draws, level, "clopper-pearson"))
        return PosteriorRow(tau, trained, risk, limit, kl, float(kl_inverse(limit, exponent(kl))))

    finite = math.isfinite(centred.kappa) and bool(centred.centre.isfinite().all())
    rows, laws = [], []
    with Progress(K2 * settings.epochs, "certify: epochs of posteriors") as progress:
        for number, tau in enumerate(grid):
            start_law = MeanField.around(network, centred.centre, tau) if finite else None
            posterior = start_law and train_posterior(
                network,
                centred.centre,
                tau,
                records,
                labels,
                settings,
                extra=exponent(0.0) * n,
                generator=_draws(noise, number, "training"),
                advance=progress.advance,
            )
            for trained, law in ((True, posterior), (False, start_law)):
                rows.append(row(tau, law, number, trained))
                laws.append(law)
    best = min(range(len(rows)), key=lambda number: rows[number].certificate)
    law, test_error = laws[best], None
    if test is not None and law is not None:
        tested = np.repeat(np.arange(len(test[0])), -(-draws // len(test[0])))
        wrong = count_errors(law, *test, tested, _draws(noise, 0, "test"))
        test_error = wrong / len(tested)
    parts = {
        "PAC-Bayes bound": delta - delta_mc - beta,
        "Monte Carlo": delta_mc,
        "max-information": beta,
    }
    return CertifyReport(
        prior=prior,
        paid=centred.paid,
        rows=tuple(rows),
        n=n,
        draws=draws,
        delta=delta,
        delta_parts=parts,
        kappa=centred.kappa,
        kappa_printed=centred.kappa_printed,
        test_error=test_error,
        n_test=0 if test is None else len(test[0]),
        duplicates=duplicates,
        test_overlap=test_overlap,
        held_out=plain,
        parameters=len(centred.centre),
        seed=seed,
        seconds=time.monotonic() - start,
    )


def _draws(noise: Noise, repetition: int, use: str) -> torch.Generator:
    return device_generator(noise.key(repetition, 0, use), CPU)


def _grid(taus: Sequence[float]) -> list[float]:
    try:
        listed = list(taus)
    except TypeError:
        raise InputError("taus", repr(taus), "a sequence of numbers") from None
    grid = [float(single_value("taus", tau, real(ge=1e-6, le=1e3))) for tau in listed]
    if not grid or len(set(grid)) < len(grid):
        raise InputError("taus", f"{grid}", "one value or more, none twice")
    return grid


def _array(name: str, values: Any) -> np.ndarray:
    allowed = "an array of numbers"
    if np.ma.is_masked(values):
        raise InputError(name, "an array with a mask", f"{allowed}, none masked")
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu()
            # numpy has no bfloat16.
            values = (values.double() if values.is_floating_point() else values).numpy()
        found = np.asarray(values)
    except (TypeError, ValueError):
        raise InputError(name, f"a {type(values).__name__} that is none", allowed) from None
    if found.dtype.kind not in "buif":
        raise InputError(name, f"an array of {found.dtype}", allowed)
    return found


def _records(name: str, values: Any) -> Tensor:
    found = _array(name, values)
    if found.ndim < 2 or not found.size:
        raise InputError(name, f"shape {found.shape}", "(n, ...), records first, at least one")
    with np.errstate(over="ignore"):
        found = found.astype(np.float32)
    if not np.isfinite(found).all():
        raise InputError(name, "a value that is not finite in float32", "finite numbers")
    return torch.from_numpy(found)


def _labels(name: str, values: Any, x: Any) -> Tensor:
    found = _array(name, values)
    if found.shape != (len(x),) or found.dtype.kind not in "ui":
        allowed = f"whole numbers of shape ({len(x)},), a label for each record"
        raise InputError(name, f"{found.dtype} of shape {found.shape}", allowed)
    return torch.from_numpy(found.astype(np.int64))


def _check_classes(name: str, labels: Tensor, classes: int) -> None:
    least, most = int(labels.min()), int(labels.max())
    if classes < 2:
        raise InputError("model", f"{classes} output", "an output for each class, two or more")
    if least < 0 or most >= classes:
        allowed = f"0 to {classes - 1}, an output of the model for each class"
        raise InputError(name, f"labels from {least} to {most}", allowed)


def _test_set(x: Any, y: Any, records: Tensor, classes: int) -> tuple[Tensor, Tensor] | None:
    if (x is None) != (y is None):
        raise InputError("x_test and y_test", "one of them", "both or neither")
    if x is None:
        return None
    found, labels = _records("x_test", x), _labels("y_test", y, x)
    if found.shape[1:] != records.shape[1:]:
        shapes = f"records of shape {tuple(found.shape[1:])}"
        raise InputError("x_test", shapes, f"{tuple(records.shape[1:])}, that of x")
    _check_classes("y_test", labels, classes)
    return found, labels
