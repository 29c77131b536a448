"""What all tests share: where caches lie, examples that do not vary, and which files come first."""

from pathlib import Path

import numpy as np
import pytest
import small_jobs
from checkouts import copy_project
from hypothesis import settings

from dpatlas.base import seeds
from dpatlas.base.environment import keep_caches_in
from dpatlas.base.specs import Spec
from dpatlas.data import prepared
from dpatlas.errors import run_command

TESTS = Path(__file__).parent
# UMAP is compiled for half a minute: once, for all copies of the project. Before any import of it.
keep_caches_in(TESTS.parent / ".pytest_cache")

# A busy machine must not fail a property, and a failure must be the same for everyone.
settings.register_profile("dpatlas", deadline=None, derandomize=True)
settings.load_profile("dpatlas")

# Files that take longest, the longest first: started last, one would run while the other
# processes have nothing left to do.
FIRST = (
    "workflow/test_workflow.py",
    "faults/test_kills.py",
    "slurm/test_slurm.py",
    "workflow/test_config_fuzzing.py",
    "checks/audit/test_audit.py",
    "workflow/test_dry_run.py",
    "workflow/test_isolation.py",
    "test_bench.py",
    "test_shown_commands.py",
    "test_beside.py",
    "audit/test_engine_paths.py",
    "audit/test_faults.py",
    "certify/test_certify.py",
)


def pytest_collection_modifyitems(items):
    place = {TESTS / name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.fixture(autouse=True)
def noise_that_no_training_has_drawn(monkeypatch):
    """A test stands for a process of its own: what others trained with is no matter."""
    monkeypatch.setattr(seeds, "_claims", {})


@pytest.fixture
def result_of(capsys):
    """A function that runs a command's `main`: exit code, standard output, standard error."""

    def run(main, *words):
        capsys.readouterr()
        code = run_command(main, list(map(str, words)))
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def refusal_of(result_of):
    """A function that runs a command's `main`, which refuses its input: the line that says why."""

    def run(main, *words):
        code, out, error = result_of(main, *words)
        assert (code, out, error.count("\n")) == (2, "", 1), error
        return error

    return run


@pytest.fixture(scope="session")
def new_checkout(tmp_path_factory):
    """A function that makes a copy of the project in which nothing has run yet."""
    return lambda name: copy_project(tmp_path_factory.mktemp(name) / "dp-atlas")


@pytest.fixture
def half_the_noise(monkeypatch):
    """Private trainings add noise of half the scale that they state."""
    # Here, as most tests need no torch.
    from dpatlas.privacy import noise

    honest = noise.add_noise

    def halved(tensors, scale, *arguments, **keys):
        honest(tensors, scale / 2, *arguments, **keys)

    monkeypatch.setattr(noise, "add_noise", halved)


@pytest.fixture
def data_folder(tmp_path):
    """A small prepared set: 12 training records and 4 to add, in 6 dimensions."""
    draws = np.random.default_rng(5)
    arrays = {
        "x_train": draws.standard_normal((12, 6)).astype(np.float32),
        "y_train": draws.integers(0, 2, 12),
        "x_add": draws.standard_normal((4, 6)).astype(np.float32),
        "y_add": draws.integers(0, 2, 4),
    }
    folder = tmp_path / "data"
    prepared.save(folder, arrays, {"name": "small"})
    return folder


@pytest.fixture
def training_spec():
    def make(**changes):
        fields = small_jobs.kl_of(**{"steps": 12, "runs": 3, **changes})
        return Spec.of(fields, "small")

    return make


@pytest.fixture
def job(tmp_path):
    """The arguments with which `show.make` makes `name`, by default of sample records."""
    # Here, as most tests need neither records nor matplotlib.
    from figure_samples import show_words
    from kl_sample_records import RECORDS, SETTINGS

    def arguments(name, records=None, tier="trial", settings=SETTINGS):
        records = RECORDS[name]() if records is None else records
        return show_words(name, records, settings, tmp_path / tier, tier)

    return arguments
