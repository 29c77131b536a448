import places
import pytest
from torch.utils.weak import WeakIdKeyDictionary

from dpatlas.privacy import saved

MARKS = {"cpu": (), "cuda": pytest.mark.gpu}
PARAMS = [pytest.param(name, marks=MARKS[name]) for name in places.DEVICES]


@pytest.fixture(params=PARAMS, scope="module")
def device(request):
    """What `places.put` and the small networks and data of these tests go to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "device", request.param)
        yield request.param


@pytest.fixture(autouse=True)
def no_earlier_training(monkeypatch):
    """Nothing is known of other tests' trainings, which may start and end at the same weights."""
    monkeypatch.setattr(saved, "_left", set())
    monkeypatch.setattr(saved, "_trained_versions", WeakIdKeyDictionary())
