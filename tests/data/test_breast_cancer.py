import numpy as np
from sklearn.datasets import load_breast_cancer

from dpatlas.data.prepare import prepare
from dpatlas.data.prepared import load
from dpatlas.data.sets import breast_cancer

CLASSES = ["malignant", "benign"]


def test_columns_are_shares_of_their_limits_between_minus_one_and_one(tmp_path):
    prepare("breast_cancer", {"classes": CLASSES, "n_train": 569, "n_add": 0}, tmp_path)
    found = load(tmp_path)
    bunch = load_breast_cancer()
    expected = 2 * bunch.data / breast_cancer.LIMITS - 1
    order = np.lexsort(np.rint((expected + 1) * 127.5).T)
    np.testing.assert_allclose(
        found.x_train[np.lexsort(found.x_train.T)], expected[order], atol=1 / 255 + 1e-6
    )
    assert np.bincount(found.y_train).tolist() == [212, 357]


def test_no_column_reaches_its_limit_and_none_wastes_a_third_of_it():
    largest = load_breast_cancer().data.max(0) / breast_cancer.LIMITS
    assert largest.max() < 1 and largest.min() > 2 / 3


def test_the_measures_are_in_the_order_of_the_columns():
    names = list(load_breast_cancer().feature_names)
    kinds = ("mean {}", "{} error", "worst {}")
    assert names == [kind.format(each) for kind in kinds for each in breast_cancer.MEASURES]
