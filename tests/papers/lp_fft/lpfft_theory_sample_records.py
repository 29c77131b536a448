"""Small made-up records of lp_fft's simulated theory, with its experiments' fields."""

import numpy as np
from figure_samples import bare_record

TIMES = (0.5, 1.0, 2.0)
COUNTS = ("zeroth_below", "zeroth_above", "diffusion_below", "diffusion_above")
HEADS = (("head", "random"), ("all", "random"), ("all", "aligned"))


def _record(kind, metrics, **fields):
    return bare_record(
        kind, metrics, key="lp_fft", **{"seed": 0, "noise_source": "keyed"}, **fields
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
                    {
                        "phase": phase,
                        "heads": heads,
                        "draw": draw,
                        "sigma": sigma,
                        "class": 1,
                        "start": 1 + sigma / 10,
                        "lower": (0.7 * zeroth).tolist(),
                        "upper": (1.2 * zeroth).tolist(),
                        "zeroth": (worst * zeroth).tolist(),
                        "diffusion": (0.6 * worst * zeroth).tolist(),
                        "standard_error": (0.01 * zeroth).tolist(),
                    }
                )
    counts = [
        {"phase": phase, "heads": heads, "cases": 6}
        | {name: (place + k) % 4 for k, name in enumerate(COUNTS)}
        for place, (phase, heads) in enumerate(HEADS)
    ]
    norm = 0.3 + np.exp(-times)
    probing = {
        "times": times.tolist(),
        "norm": norm.tolist(),
        "norm_standard_error": [0.01] * 3,
        "norm_paper": (norm + 0.2).tolist(),
        "norm_exact": (norm + 0.001).tolist(),
        "loss": (norm / 2).tolist(),
        "loss_standard_error": [0.005] * 3,
        "loss_exact": (norm / 2 + 0.001).tolist(),
        "loss_bound_paper": (norm + 0.4).tolist(),
        "loss_bound_exact": (norm + 0.1).tolist(),
    }
    tuned = [
        {
            "d": d,
            "h": h,
            "times": [1.0, 2.0, 3.0],
            "loss": [1.0, 1.0 + d / 20, 1.0 + d / 10],
            "standard_error": [0.05] * 3,
            "bound": [2.0, 1.0, 0.5],
        }
        for d, h in sizes
    ]
    metrics = {
        "times": list(TIMES),
        "relu": relu,
        "counts": counts,
        "probing": probing,
        "fine_tuning": tuned,
    }
    return _record(
        "dynamics",
        metrics,
        relu={
            "records": 4,
            "angle": 20.0,
            "hidden": 4,
            "phases": {"head": {"paths": 900}, "all": {"paths": 400}},
        },
        probing={"hidden": 3, "head_variance": 0.4, "sigma2": 0.05, "paths": 1000},
        fine_tuning={"head_excess": 4.0, "noise_share": 0.5, "paths": 200},
    )


def _share(share, trials=1000):
    count = round(share * trials)
    low, high = (min(1.0, max(0.0, share + sign * 0.02)) for sign in (-1, 1))
    return {"trials": trials, "count": count, "share": count / trials, "low": low, "high": high}


def distortion_record(variances=(0.01, 1.0, 100.0)):
    """Shares as claimed on clusters; they fall with the variance on two records."""
    clusters = [
        {"h": h, "head_variance": variance, "claimed": 1 - 2.0**-h}
        | _share(1 - 2.0**-h - 0.001 * place)
        for h in (1, 2, 4)
        for place, variance in enumerate(variances)
    ]
    two = [
        {"head_variance": variance, "claimed": 0.5, "exact": 0.5 / (1 + variance / 50)}
        | _share(0.49 / (1 + variance / 50))
        for variance in variances
    ]
    after = [
        {"angle": angle, "fft_span": span, "networks": 100, "aligned": 100}
        | _share(1 / (1 + angle * span / 20), 100)
        for angle in (1.0, 10.0, 44.0)
        for span in (0.1, 1.0)
    ]
    s = np.linspace(0, 2, 5)
    example = [
        {
            "lp_span": span,
            "aligned": True,
            "s": s.tolist(),
            "cosine": (0.99 - 0.01 * span * s).tolist(),
            "fall": 0.02 * span,
        }
        for span in (1.0, 4.0)
    ]
    metrics = {
        "clusters": clusters,
        "two_records": two,
        "after_probing": after,
        "counterexample": example,
    }
    return _record(
        "distortion",
        metrics,
        clusters={"records": 10, "angle": 40.0},
        two_records={"spread": 0.2, "ratio": 2.0},
        after_probing={"hidden": 4, "feature_angle": 44.0, "lp_span": 40.0},
    )


def sensitivity_record():
    """The ratio grows as d^(1/4) or sqrt(d), by the reading."""
    start = []
    for d in (10, 20, 40):
        for reading, power in (("variance", 0.25), ("deviation", 0.5)):
            row = {"d": d, "h": 8, "reading": reading, "seeds": 100}
            for kind, factor in (("record", 0.04), ("ball", 0.08)):
                values = {"head": 10 / d, "features": 50 / d, "ratio": factor * d**power}
                for what, value in values.items():
                    row |= {f"{kind}_{what}": value, f"{kind}_{what}_error": 0.01 * value}
            start.append(row)
    drift = [
        {"noise": noise, "d": 20, "h": 8, "reading": "variance", "steps": [0, 10, 20]}
        | {"ratio": [0.2, 0.2 + 0.01 * place, 0.25], "error": [0.01] * 3}
        for place, noise in enumerate(("uniform", "layer-wise"))
    ]
    return _record(
        "sensitivity",
        {"start": start, "drift": drift},
        start={"hidden": 8, "records_per_input": 2},
        drift={"d": 20, "reading": "variance", "step": 0.01, "sigma2": 0.01, "seeds": 50},
    )


def imbalance_record():
    gap = [
        {"sigma": sigma, "steps": [0, 10, 20], "gap": [0.0, sigma * 1e-4, 0.011]}
        | {"error": [0.0, 4e-4, 5e-4], "eigenvalue": [-1.0, -2.0, -4.0], "paths": 400}
        for sigma in (50.0, 100.0)
    ]
    drift = [
        {
            "noise": noise,
            "times": [0.0, 1.0],
            "change": [0.0, 0.01 - rate],
            "error": [0.0, 0.02],
            "paper": [0.0, -rate / 2],
            "exact": [0.0, -rate],
        }
        for noise, rate in (("uniform", 0.36), ("layer-wise", 0.0))
    ]
    return _record(
        "imbalance",
        {"gap": gap, "drift": drift},
        gap={
            "hidden": 8,
            "inputs": 10,
            "records": 20,
            "max_grad_norm": 1.0,
            "lr": 0.02,
            "paths": 400,
        },
        drift={"sigma2": 0.02, "paths": 400},
    )


RECORDS = {
    "lpfft_theory": lambda: [dynamics_record(), distortion_record()],
    "lpfft_sensitivity": lambda: [sensitivity_record()],
    "lpfft_imbalance": lambda: [imbalance_record()],
}
