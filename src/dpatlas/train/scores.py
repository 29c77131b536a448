"""How well outputs tell classes apart, also where one class is much larger than the others."""

import numpy as np
from scipy.special import softmax
from scipy.stats import mannwhitneyu


def class_scores(outputs: np.ndarray, labels: np.ndarray) -> dict[str, float | None]:
    """Scores of outputs (n, classes) for labels (n,), classes from 0.

    accuracy: share of right answers. majority: that of the largest class. By means over the classes
    present, balanced_accuracy: share of theirs that is right; auc: chance that one of theirs has a
    larger output (softmax) for the class than one of the others, ties by half. auc is None for
    less than two classes and for outputs that are not finite.
    """
    right = outputs.argmax(1) == labels
    present, counts = np.unique(labels, return_counts=True)
    aucs: list[float] = []
    if len(present) > 1 and np.isfinite(outputs).all():
        shares = softmax(outputs, axis=1)
        for each in present:
            samples = shares[labels == each, each], shares[labels != each, each]
            pairs_won = mannwhitneyu(*samples, method="asymptotic").statistic
            aucs.append(pairs_won / (len(samples[0]) * len(samples[1])))
    return {
        "accuracy": float(right.mean()),
        "majority": float(counts.max() / len(labels)),
        "balanced_accuracy": float(np.mean([right[labels == each].mean() for each in present])),
        "auc": float(np.mean(aucs)) if aucs else None,
    }
