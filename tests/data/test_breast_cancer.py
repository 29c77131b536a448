import numpy as np
from sklearn.datasets import load_breast_cancer

from dpatlas.data.prepare import prepare
from dpatlas.data.prepared import load
from dpatlas.data.sets import breast_cancer

CLASSES = ["malignant", "benign"]


def test_columns_are_shares_of_their_limits_between_minus_one_and_one(tmp_path):
    prepare("breast_cancer", {"classes": CLASSES, "n_train": 569, "n_add": 0}, tmp_path)
    found = load(tmp_path)
    shares = load_breast_cancer().data / breast_cancer.LIMITS
    # No column reaches its limit and none wastes a third of it.
    assert shares.max() < 1 and shares.max(0).min() > 2 / 3
    expected = 2 * shares - 1
    order = np.lexsort(np.rint((expected + 1) * 127.5).T)
    np.testing.assert_allclose(
        found.x_train[np.lexsort(found.x_train.T)], expected[order], atol=1 / 255 + 1e-6
    )
    assert np.bincount(found.y_train).tolist() == [212, 357]
