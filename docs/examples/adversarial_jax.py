"""The cases of adversarial.py by jax-privacy, which needs an environment of its own.

pip install jax jax-privacy; python adversarial_jax.py prints {title: [kind, text]} as JSON.
jax-privacy calls the loss with one record at a time, so nothing inside of it sees another record.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
from jax_privacy import clipped_grad

ROUNDING = 1e-4


def cross_entropy(logits, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()


def linear(params, x):
    return x @ params["w"] + params["b"]


def weights(into=8, out=3, dtype=np.float32):
    draws = np.random.default_rng(0)
    values = {"w": draws.normal(size=(into, out)) / into**0.5, "b": np.zeros(out)}
    return {name: jnp.asarray(value, dtype) for name, value in values.items()}


def classifying(forward):
    return lambda params, x, y: cross_entropy(forward(params, x), y)


def contrastive(params, x, y):
    z = linear(params, x)
    z = z / jnp.linalg.norm(z, axis=1, keepdims=True)
    return cross_entropy(10 * z @ z.T, jnp.arange(len(z)))


def temperature(params, x, y):
    z = linear(params, x)
    return cross_entropy(z / z.std(), y)


def standardised(x):
    return (x - x.mean(0)) / (x.std(0) + 1e-6)


def tied(params, x):
    return jnp.tanh(x @ params["w"]) @ params["w"].T


SIGNS = jnp.array([1.0, -1.0] * 8)[None, :, None]
DRAWS = np.random.default_rng(1)
FRAMES = np.repeat(DRAWS.normal(size=(8, 1, 8)), 16, axis=1).astype(np.float32)
RECORDS = DRAWS.normal(size=(21, 8)).astype(np.float32)
POSITIONS = DRAWS.normal(size=(2, 16, 8))


def removed(x):
    return x, x[:-1]


def replaced(x):
    other = x.copy()
    other[0] = 300 * x[0]
    return x, other


def folded(params, x):
    return linear(params, x.reshape(-1, 8)).reshape(-1, 16, 3).mean(1)


def time_first(params, x):
    return linear(params, x.transpose(1, 0, 2)).mean(0)


def differences(params, x):
    return (linear(params, x) * SIGNS).mean(1)[:, :3]


def offset(by):
    return removed((POSITIONS + by).astype(np.float32))


# title: loss, neighbours, clip bound, weights
CASES = {
    "frames folded into the batch, outputs pooled": (
        classifying(folded),
        removed(FRAMES),
        1e-3,
        weights(),
    ),
    "time first inside the network": (
        classifying(time_first),
        removed(DRAWS.normal(size=(8, 16, 8))),
        1e-2,
        weights(),
    ),
    "linear layer over positions, offset 10000": (
        classifying(differences),
        offset(1e4),
        0.1,
        weights(8, 16),
    ),
    "linear layer over positions, offset 1e+06": (
        classifying(differences),
        offset(1e6),
        0.1,
        weights(8, 16),
    ),
    "`x - x[:1]` inside the network": (
        classifying(lambda p, x: linear(p, x - x[:1])),
        replaced(RECORDS),
        1e-2,
        weights(),
    ),
    "`x.cumsum(0)` inside the network": (
        classifying(lambda p, x: linear(p, x.cumsum(0))),
        replaced(RECORDS),
        1e-2,
        weights(),
    ),
    "loss with a temperature of the batch": (temperature, replaced(RECORDS), 0.3, weights()),
    "contrastive loss": (contrastive, removed(RECORDS), 1e-2, weights()),
    "augmentation that standardises by the batch": (
        classifying(linear),
        tuple(map(standardised, replaced(RECORDS))),
        1e-2,
        weights(),
    ),
    "records standardised by their own statistics beforehand": (
        classifying(linear),
        tuple(map(standardised, replaced(RECORDS))),
        1e-2,
        weights(),
    ),
    "BatchNorm in training mode": (
        classifying(lambda p, x: linear(p, standardised(x))),
        replaced(RECORDS),
        1e-2,
        weights(),
    ),
    "bfloat16 parameters, 4,096 records": (
        classifying(linear),
        removed(jnp.asarray(DRAWS.normal(size=(4096, 8)), jnp.bfloat16)),
        1.0,
        weights(dtype=jnp.bfloat16),
    ),
    "1e7 equal entries of a gradient": (
        lambda p, x, y: (x @ p["w"]).sum(),
        removed(np.ones((2, 3162), np.float32)),
        1.0,
        {"w": jnp.zeros((3162, 3162))},
    ),
}


def clipped_sum(loss, params, x, clip):
    labels = jnp.arange(len(x)) % 3
    total = clipped_grad(loss, l2_clip_norm=clip, batch_argnums=(1, 2))(
        params, jnp.asarray(x), labels
    )
    parts = [np.asarray(each, np.float64).ravel() for each in jax.tree.leaves(total)]
    return np.concatenate(parts)


def measured(loss, neighbours, clip, params):
    try:
        first, other = (clipped_sum(loss, params, x, clip) for x in neighbours)
    except Exception as error:  # a tool may refuse by any
        return "refuses", f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
    allowed = 1 if len(neighbours[0]) != len(neighbours[1]) else 2
    moved = np.linalg.norm(first - other) / clip
    kind = "keeps" if moved <= allowed * (1 + ROUNDING) else "breaks"
    return kind, f"{moved:.4g} C of {'C' if allowed == 1 else '2 C'}"


def tie():
    def loss(params, x, y):
        return jnp.square(tied(params, x) - 1).sum()

    params = {"w": weights(8, 4)["w"]}
    true = jax.grad(lambda p: jnp.square(tied(p, RECORDS) - 1).sum())(params)["w"]
    error = np.linalg.norm(clipped_sum(loss, params, RECORDS, 1e6) - np.ravel(true))
    kind, text = measured(loss, removed(RECORDS), 1e-2, params)
    return kind, f"{text}; gradient right to {error / np.linalg.norm(true):.0e}"


if __name__ == "__main__":
    found = {title: measured(*case) for title, case in CASES.items()}
    print(json.dumps({**found, "weights tied by a function": tie()}, indent=1))
