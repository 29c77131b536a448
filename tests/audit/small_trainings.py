"""DP-SGD of a logistic regression in numpy, correct or with one fault: a run takes milliseconds.

The canary has a coordinate of its own, which is zero in all other records.
"""

import numpy as np

from dpatlas.audit import Claim, plant

RECORDS, DIMENSION, BATCH, STEPS, NOISE, C = 64, 20, 16, 8, 0.8, 0.5
SETTINGS = {"sampler": "poisson", "n": RECORDS, "batch": BATCH, "noise": NOISE, "steps": STEPS}
OWN = 3
draws = np.random.default_rng(0)
x = draws.normal(size=(RECORDS, DIMENSION))
x[:, OWN] = 0
y = np.where(x[:, 0] > 0, 1.0, -1.0)
canary = np.zeros(DIMENSION)
canary[OWN] = 30.0


def claim(**changes):
    return Claim(**{**SETTINGS, "delta": 1e-5, **changes})


def training(
    noise=NOISE,
    sampler="poisson",
    clip=True,
    private_mean=False,
    same_noise=False,
    same_coordinates=False,
    extra_steps=0,
    looks_at_loss=False,
    own_seed=None,
    see=True,
    secret=False,
):
    """A function of a run. With its defaults it keeps `claim()`."""

    def train(run):
        draws = np.random.default_rng(run.seed if own_seed is None else own_seed)
        features, labels = plant(run, x, canary), plant(run, y, -1.0)
        present = plant(run, np.ones(RECORDS), 1.0)
        if private_mean:
            features = features - (features * present[:, None]).mean(0)
        weights, rate = np.zeros(DIMENSION), 0.5
        reused = draws.normal(size=DIMENSION)
        for step in range(STEPS + extra_steps):
            if sampler == "poisson":
                batch = draws.random(RECORDS) < BATCH / RECORDS
            else:
                place = step % (RECORDS // BATCH) * BATCH
                order = draws.permutation(RECORDS) if place == 0 else order  # noqa: F821
                batch = np.isin(np.arange(RECORDS), order[place : place + BATCH])
            margins = labels * (features @ weights)
            gradients = -(labels * present / (1 + np.exp(margins)))[:, None] * features
            if clip:
                norms = np.linalg.norm(gradients, axis=1, keepdims=True)
                gradients *= np.minimum(1, C / np.maximum(norms, 1e-12))
            fresh = np.random.default_rng() if secret else draws
            normal = reused if same_noise else fresh.normal(size=DIMENSION)
            if same_coordinates:
                normal = np.full(DIMENSION, normal[0])
            noisy = gradients[batch].sum(0) + noise * C * normal
            if see:
                run.see(noisy / C)
            weights = weights - rate * noisy / BATCH
            if looks_at_loss:
                rate = 0.5 * (np.log1p(np.exp(-margins)) * present).mean()
            run.weights(weights)
        return {"loss": np.log1p(np.exp(canary @ weights)), "weights": weights}

    return train
