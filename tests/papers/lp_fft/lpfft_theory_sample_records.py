"""Small made-up records of lp_fft's simulated theory; their specs are the smoke tier's."""

import numpy as np
from lpfft_sample_records import record_of_kind

from dpatlas.papers.lp_fft.records import distortion, dynamics, imbalance, sensitivity

TIMES = (0.5, 1.0, 2.0)
COUNTS = ("zeroth_below", "zeroth_above", "diffusion_below", "diffusion_above")
HEADS = (("head", "random"), ("all", "random"), ("all", "aligned"))


def bracket_row(label=1, **fields):
    """A row with the label of a class, and its other fields."""
    return dynamics.BracketRow(**{"class": label}, **fields)


def probed(times, norm, error, paper, exact):
    """Linear probing at `times`; the losses are half the norms, and below their bounds."""
    halves = np.array(norm) / 2
    return dynamics.Probed(
        times=list(times),
        norm=list(norm),
        norm_standard_error=list(error),
        norm_paper=list(paper),
        norm_exact=list(exact),
        loss=halves.tolist(),
        loss_standard_error=[0.005] * len(halves),
        loss_exact=(halves + 0.001).tolist(),
        loss_bound_paper=(2 * halves + 0.4).tolist(),
        loss_bound_exact=(2 * halves + 0.1).tolist(),
    )


def dynamics_record(sizes=((4, 3), (10, 8)), sigmas=(0.5, 1.0, 2.0)):
    """Losses that fall like 1/(1 + t); draw 1 of FFT with random heads lies above its bracket."""
    times = np.array(TIMES)
    relu = []
    for phase, heads in HEADS:
        for draw in (0, 1):
            for sigma in sigmas:
                zeroth = (1 + sigma / 10) / (1 + times)
                worst = 3 if (phase, heads, draw) == ("all", "random", 1) else 1
                relu.append(
                    bracket_row(
                        phase=phase,
                        heads=heads,
                        draw=draw,
                        sigma=sigma,
                        start=1 + sigma / 10,
                        lower=(0.7 * zeroth).tolist(),
                        upper=(1.2 * zeroth).tolist(),
                        zeroth=(worst * zeroth).tolist(),
                        diffusion=(0.6 * worst * zeroth).tolist(),
                        standard_error=(0.01 * zeroth).tolist(),
                    )
                )
    counts = [
        dynamics.Violations(
            phase=phase,
            heads=heads,
            cases=6,
            **{name: (place + k) % 4 for k, name in enumerate(COUNTS)},
        )
        for place, (phase, heads) in enumerate(HEADS)
    ]
    norm = 0.3 + np.exp(-times)
    tuned = [
        dynamics.Tuned(
            d=d,
            h=h,
            head_variance=1.0,
            sigma2=0.1,
            rate=1.0,
            times=[1.0, 2.0, 3.0],
            loss=[1.0, 1.0 + d / 20, 1.0 + d / 10],
            standard_error=[0.05] * 3,
            bound=[2.0, 1.0, 0.5],
            largest_ratio=2.0 + d / 5,
            largest_ratio_error=0.1,
        )
        for d, h in sizes
    ]
    metrics = dynamics.Metrics(
        times=list(TIMES),
        relu=relu,
        counts=counts,
        probing=probed(TIMES, norm.tolist(), [0.01] * 3, norm + 0.2, norm + 0.001),
        fine_tuning=tuned,
    )
    return record_of_kind(dynamics, metrics)


def share(value, trials=1000):
    """Fields of a `Share`, with an interval of two percent to either side."""
    low, high = (min(1.0, max(0.0, value + sign * 0.02)) for sign in (-1, 1))
    count = round(value * trials)
    return {"trials": trials, "count": count, "share": count / trials, "low": low, "high": high}


def distortion_record(variances=(0.01, 1.0, 100.0), trials=1000):
    """Shares as claimed on clusters; they fall with the variance on two records."""
    clusters = [
        distortion.ClusterRow(
            h=h,
            head_variance=variance,
            claimed=1 - 2.0**-h,
            **share(1 - 2.0**-h - 0.001 * place, trials),
        )
        for h in (1, 2, 4)
        for place, variance in enumerate(variances)
    ]
    two = [
        distortion.TwoRecordRow(
            head_variance=variance,
            claimed=0.5,
            exact=0.5 / (1 + variance / 50),
            **share(0.49 / (1 + variance / 50)),
        )
        for variance in variances
    ]
    after = [
        distortion.AfterProbingRow(
            angle=angle,
            fft_span=span,
            networks=100,
            aligned=100,
            **share(1 / (1 + angle * span / 20), 100),
        )
        for angle in (1.0, 10.0, 44.0)
        for span in (0.1, 1.0)
    ]
    s = np.linspace(0, 2, 5)
    example = [
        distortion.Curve(
            lp_span=span,
            aligned=True,
            s=s.tolist(),
            cosine=(0.99 - 0.01 * span * s).tolist(),
            fall=0.02 * span,
        )
        for span in (1.0, 4.0)
    ]
    metrics = distortion.Metrics(
        clusters=clusters, two_records=two, after_probing=after, counterexample=example
    )
    return record_of_kind(distortion, metrics)


def sensitivity_record():
    """The ratio grows as d^(1/4) or sqrt(d), by the reading."""
    start = []
    for d in (10, 20, 40):
        for reading, power in (("variance", 0.25), ("deviation", 0.5)):
            columns = {}
            for kind, factor in (("record", 0.04), ("ball", 0.08)):
                values = {"head": 10 / d, "features": 50 / d, "ratio": factor * d**power}
                for what, value in values.items():
                    columns |= {f"{kind}_{what}": value, f"{kind}_{what}_error": 0.01 * value}
            row = {"d": d, "h": 8, "reading": reading, "head_variance": 1.0, "seeds": 100}
            start.append(sensitivity.StartRow(**row, **columns))
    drift = [
        sensitivity.DriftRow(
            noise=noise,
            d=20,
            h=8,
            reading="variance",
            steps=[0, 10, 20],
            ratio=[0.2, 0.2 + 0.01 * place, 0.25],
            error=[0.01] * 3,
        )
        for place, noise in enumerate(("uniform", "layer-wise"))
    ]
    return record_of_kind(sensitivity, sensitivity.Metrics(start=start, drift=drift))


def imbalance_record():
    gap = [
        imbalance.GapRow(
            sigma=sigma,
            paths=400,
            steps=[0, 10, 20],
            gap=[0.0, sigma * 1e-4, 0.011],
            error=[0.0, 4e-4, 5e-4],
            eigenvalue=[-1.0, -2.0, -4.0],
        )
        for sigma in (50.0, 100.0)
    ]
    drift = [
        imbalance.DriftRow(
            noise=noise,
            times=[0.0, 1.0],
            change=[0.0, 0.01 - rate],
            error=[0.0, 0.02],
            paper=[0.0, -rate / 2],
            exact=[0.0, -rate],
        )
        for noise, rate in (("uniform", 0.36), ("layer-wise", 0.0))
    ]
    return record_of_kind(imbalance, imbalance.Metrics(gap=gap, drift=drift))


RECORDS = {
    "lpfft_theory": lambda: [dynamics_record(), distortion_record()],
    "lpfft_sensitivity": lambda: [sensitivity_record()],
    "lpfft_imbalance": lambda: [imbalance_record()],
}
