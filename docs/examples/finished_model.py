"""How well can members be told from a finished model? Attacked by 16 reference models."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from dpatlas.audit import attack_model

x, y = load_digits(return_X_y=True)
coins = np.random.default_rng(0).random((17, len(x))) < 0.5  # the model, and 16 references


def log_odds(members):
    model = MLPClassifier((64,), max_iter=200, random_state=0).fit(x[members] / 16, y[members])
    right = model.predict_proba(x / 16)[np.arange(len(y)), y].clip(1e-12, 1 - 1e-12)
    return np.log(right) - np.log1p(-right)


print(attack_model([log_odds(members) for members in coins], coins, delta=1e-4, epsilon=1.0))
