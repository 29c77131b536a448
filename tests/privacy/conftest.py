import places
import pytest


@pytest.fixture(params=places.DEVICES, scope="module")
def device(request):
    """What `places.put` and the small networks and data of these tests go to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "device", request.param)
        yield request.param
