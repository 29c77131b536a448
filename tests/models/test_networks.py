"""One row of the registry is all that config, plan, weights and builder know of a network."""

import inspect
from typing import get_args

import pytest
from torchvision.models import get_model_weights

from dpatlas.base.digest import reachable
from dpatlas.base.networks import FROM_FILES, IMPORTED, NETWORKS, PACKAGE, PUBLISHED
from dpatlas.data.weights import NAME
from dpatlas.models.build import NAMES, builder
from dpatlas_workflow.config.backbones import Backbone
from dpatlas_workflow.config.types import SmallNetwork
from dpatlas_workflow.cost.counting import pass_work


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_has_a_builder_whose_code_jobs_are_re_run_for(name):
    taken = set(inspect.signature(builder(name)).parameters) - {"image_shape", "outputs"}
    # Part of what `wrn10-2-stride2` is.
    assert taken - {"stem_stride"} == set(NETWORKS[name].options)
    module = NETWORKS[name].builder.partition(":")[0]
    assert module in reachable("dpatlas.models.build")


def test_configs_may_name_every_network_and_plans_count_it():
    choices = set(get_args(Backbone.model_fields["model"].annotation))
    assert choices == set(NETWORKS) - {"linear"}
    small = set(get_args(get_args(SmallNetwork)[0]))
    assert small == {name for name, entry in NETWORKS.items() if entry.inputs == 64}
    assert all(pass_work(name, 3072, {}) > 0 for name in NETWORKS)


def test_a_network_is_trained_here_or_imported_from_its_publisher():
    assert {name for names in IMPORTED.values() for name in names} == set(PUBLISHED)
    assert set(NAMES) == set(NETWORKS) - set(PUBLISHED)
    assert all(entry.body for name, entry in NETWORKS.items() if name in PUBLISHED)
    for weights in PUBLISHED.values():
        assert bool(weights.address) == (weights.source not in FROM_FILES)


def test_addresses_are_those_that_torchvision_lists_and_carry_a_checksum():
    for name, weights in PUBLISHED.items():
        if weights.address:
            assert NAME.fullmatch(weights.file)
            assert weights.address.startswith(("https://", PACKAGE))
            if name not in ("imagenet-deit-tiny", "imagenet-efficientnet-lite0"):
                assert weights.address == get_model_weights(weights.name).IMAGENET1K_V1.url
