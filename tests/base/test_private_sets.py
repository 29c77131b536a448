import subprocess
import sys

import pytest

from dpatlas.data.registry import DATA_SETS
from dpatlas.errors import InputError
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import TIERS, load_config, project_root
from dpatlas_workflow.config.types import PRIVATE_SETS

MODULE = """
from dpatlas.data.definitions import DataSet, Scaling

NEW = DataSet("new", "what", ("0", "1", "2"), (1, 2, 2), {}, Scaling(1, 0, 1), "free")
SETS = (NEW,)
"""
CONFIG = """
import sys
from dpatlas.data import sets
sets.__path__.append(sys.argv[1])
from dpatlas.base.schema import validated
from dpatlas_workflow.config.types import PrivateSplit
from dpatlas.errors import InputError
counts = {"n_train": 5, "n_test": 2, "n_validation": 2}
print(validated(PrivateSplit, {"name": "new", "classes": [0, 2], **counts}).classes)
try:
    validated(PrivateSplit, {"name": "new", "classes": ["0", "2"], **counts})
except InputError as error:
    print(error)
"""


def test_a_new_module_is_all_that_a_config_needs_of_a_new_data_set(tmp_path):
    (tmp_path / "new_set.py").write_text(MODULE)
    words = [sys.executable, "-c", CONFIG, str(tmp_path)]
    found = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    allowed, refused = found.splitlines()
    assert allowed == "[0, 2]" and refused.endswith("allowed: one of 0, 1, 2")


def test_sets_that_backbones_are_trained_on_are_not_named_as_private_records():
    public = {"cifar100", "digits-and-letters", "inverted-letters", "leaves", "styles", "scribbles"}
    assert public <= set(DATA_SETS) - set(PRIVATE_SETS)
    assert {"digits", "fonts", "mnist", "cifar10", "stl10", "pneumonia"} <= set(PRIVATE_SETS)


def test_a_backbone_of_one_half_serves_the_other_and_one_of_the_whole_does_not():
    tier = [project_root() / TIERS / "shifted.yaml"]
    backbones = {"half": {"source": "cifar10"}}
    assert load_config(tier).lp_fft.scenarios[1].data.name == "cifar10-blurred"
    with pytest.raises(InputError, match=r"scenarios.0.backbone: found half, .* of cifar10; "):
        Atlas(load_config(tier, {"pretrain": {"backbones": backbones}}))
