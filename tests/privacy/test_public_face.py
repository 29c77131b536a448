"""`dpatlas.privacy` offers the engine by name, and loads of it what is asked for."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dpatlas.privacy

ROOT = Path(__file__).parents[2]
FACE = (
    *("PrivateTraining", "TrainingPhase", "calibrate", "guarantee", "Noise", "epsilon_lower_bound"),
    *("Poisson", "FixedSize", "Shuffled", "Cyclic", "FullBatch"),
    *("PerRecordWarning", "cross_entropy", "binary_cross_entropy", "squared_error"),
    *("TokenCrossEntropy", "load_model", "load_weights", "lora_parameters", "with_lora"),
    *("AdaptiveClip", "LayerBounds", "ParameterGroup", "InverseTime", "StepDecay", "WarmupCosine"),
)


def run(code: str, folder: Path = ROOT) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder
    ).stdout


def test_every_public_name_is_the_one_of_its_module():
    assert set(FACE) <= set(dpatlas.privacy.__all__) <= set(dir(dpatlas.privacy))
    for module, names in dpatlas.privacy.MODULES.items():
        for name in names:
            assert getattr(dpatlas.privacy, name) is getattr(importlib.import_module(module), name)
    with pytest.raises(AttributeError, match=r"dpatlas.privacy. has no attribute .PrivacyEngine."):
        dpatlas.privacy.PrivacyEngine  # noqa: B018


@pytest.mark.parametrize(
    "code",
    [
        "import dpatlas.privacy",
        "from dpatlas.accounting import mean_release",
        "from dpatlas.privacy import Poisson, calibrate, guarantee, Noise, epsilon_lower_bound",
        "from dpatlas.accounting import ledger",
    ],
)
def test_what_does_not_train_does_not_load_torch(code):
    assert run(f"{code}\nimport sys; print('torch' in sys.modules)") == "False\n"


def test_the_project_imports_from_the_modules_themselves():
    """A digest of code follows import statements, and these would lead it to no module."""
    names = "|".join(dpatlas.privacy.__all__)
    for path in (ROOT / "src").rglob("*.py"):
        found = re.search(rf"from dpatlas\.privacy import .*\b({names})\b", path.read_text())
        assert found is None or path.parent.name == "privacy", path


def test_the_trainings_of_the_page_run_and_the_first_prints_its_guarantee(tmp_path):
    text = (ROOT / "docs/private_training.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", text, re.S)
    for name in ("PrivateTraining", "at_epsilon", ".guarantee(", ".ledger("):
        assert name in snippets[0]
    # Each snippet of the page goes on from those before it.
    first, *_ = run("\n".join(snippets), tmp_path).splitlines()
    epsilon = float(re.search(r"epsilon (\d+\.\d+)", first)[1])
    assert 1.9 < epsilon <= 2.0
