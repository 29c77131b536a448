import places
import pytest

MARKS = {"cpu": (), "cuda": pytest.mark.gpu}
PARAMS = [pytest.param(name, marks=MARKS[name]) for name in places.DEVICES]


@pytest.fixture(params=PARAMS, scope="module")
def device(request):
    """What `places.put` and the small networks and data of these tests go to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "device", request.param)
        yield request.param
