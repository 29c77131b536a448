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
    batch_size=BATCH,
    steps=STEPS,
    clip=True,
    private_mean=False,
    period=None,
    coordinates=DIMENSION,
    law=lambda draws: draws.normal(size=DIMENSION),
    extra_steps=0,
    looks_at_loss=False,
    own_seed=None,
    see=True,
    secret=False,
    secret_batches=False,
    removed=False,
    rounding=0.0,
    frozen=0,
    bare=False,
    weighted=False,
    best=False,
    canary=canary,
):
    """A function of a run. With its defaults it keeps `claim()`.

    noise: a number, or one per step. period: of noise that is drawn again. coordinates: whose noise
    is drawn; the others have it again. law: of the noise. rounding: of the sums, at random.
    removed: whether the canary is removed instead of blanked. frozen: number of coordinates that
    are not trained, and shown as zeros; or one per step. bare: no noise on the canary's own
    coordinate. weighted: whether losses have the weights of the run. best: whether it publishes the
    weights with the most private records right.
    """

    def train(run):
        draws = np.random.default_rng(run.seed if own_seed is None else own_seed)
        noises = np.random.default_rng(run.seed + 1) if removed or secret_batches else draws
        batches = np.random.default_rng() if secret_batches else draws
        features, labels = plant(run, x, canary), plant(run, y, -1.0)
        present = run.loss_weights(RECORDS) if weighted else plant(run, np.ones(RECORDS), 1.0)
        if removed and not run.member:
            features, labels, present = features[1:], labels[1:], present[1:]
        if private_mean:
            features = features - (features * present[:, None]).mean(0)
        weights, rate, drawn, most = np.zeros(DIMENSION), 0.5, [], -1
        for step in range(steps + extra_steps):
            if sampler == "poisson":
                batch = batches.random(len(features)) < batch_size / RECORDS
            else:
                place = step % (RECORDS // batch_size) * batch_size
                order = batches.permutation(RECORDS) if place == 0 else order  # noqa: F821
                batch = np.isin(np.arange(RECORDS), order[place : place + batch_size])
            margins = labels * (features @ weights)
            gradients = -(labels * present / (1 + np.exp(margins)))[:, None] * features
            if clip:
                norms = np.linalg.norm(gradients, axis=1, keepdims=True)
                gradients *= np.minimum(1, C / np.maximum(norms, 1e-12))
            fresh = np.random.default_rng() if secret else noises
            again = period is not None and step >= period
            normal = drawn[step % period] if again else law(fresh)
            drawn.append(normal)
            normal = np.resize(normal[:coordinates], DIMENSION)
            if bare:
                normal[OWN] = 0
            scale = noise if np.isscalar(noise) else noise[step]
            noisy = gradients[batch].sum(0) + scale * C * normal
            noisy += rounding * np.random.default_rng().normal(size=DIMENSION)
            noisy[len(noisy) - (frozen if np.isscalar(frozen) else frozen[step]) :] = 0
            if see:
                run.see(noisy / C)
            weights = weights - rate * noisy / batch_size
            if looks_at_loss:
                rate = 0.5 * (np.log1p(np.exp(-margins)) * present).mean()
            run.weights(weights)
            right = np.sum(np.sign(features @ weights) == labels)
            if right > most or not best:
                most, kept = right, weights
        return {"loss": np.log1p(np.exp(canary @ kept)), "weights": kept}

    return train


def principal_component(run):
    """Private gradient ascent to a first principal component, honest: what is left of an earlier
    step's noise grows, so that sums of later steps vary less than they would apart."""
    settings = run.claim
    draws, records = (
        np.random.default_rng(run.seed),
        np.random.default_rng(1).normal(size=(2000, 10)),
    )
    records *= np.linspace(1, 3, 10)
    records = plant(run, records, np.eye(10)[0] * 30)
    weights = np.zeros(10)
    for _ in range(settings.steps):
        batch = records[draws.random(len(records)) < settings.sample_rate]
        gradients = -(batch @ weights)[:, None] * batch
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        gradients *= np.minimum(1, 1 / np.maximum(norms, 1e-12))
        noisy = gradients.sum(0) + settings.noise * draws.normal(size=10)
        run.see(noisy)
        weights = weights - 0.5 * noisy / settings.batch
    return {"weights": weights}
