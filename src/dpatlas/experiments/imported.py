"""pretrain: a public backbone whose weights were trained and published by others."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dpatlas.core.guard import one_of
from dpatlas.core.seeds import generator, seed
from dpatlas.data import weights
from dpatlas.data.sources import file_digest
from dpatlas.errors import ArgumentParser, InputError, RunError
from dpatlas.experiments.job import Job
from dpatlas.models.backbone import save
from dpatlas.models.build import IMPORTED, build
from dpatlas.models.imagenet import PREPROCESSING, ImageNetInput, folded
from dpatlas.models.network import Network

DOMAINS = {"source": one_of("imagenet"), "model": one_of(*IMPORTED)}
# Records of the comparison with the published network, and how far features may be apart, as a
# share of the largest.
PROBED, TOLERANCE = 2, 1e-4
LEDGER = {
    "mechanism": "none: weights trained and published by others, on public images",
    "neighbour_relation": "any: the output is independent of every private data set",
    "sampler": "none",
    "accountant": "none needed",
    "epsilon": 0.0,
    "delta": 0.0,
    "guaranteed": "epsilon 0: no private record was read",
    "claimed": None,
    "clip": None,
    "noise_multiplier": None,
    "public_data": "imagenet: taken as public, as the paper does",
    "chosen_on_private_data": "nothing",
    "holds_for": "backbone and record",
}


@dataclass(frozen=True)
class Places:
    """Where the published file may come from, as `weights.obtain` takes it."""

    data_root: Path | None = None
    download_folder: Path = weights.CACHE
    allow_download: bool = False


def places_of(arguments: Sequence[str]) -> tuple[Places, list[str]]:
    """The places that a command line names, and its other words."""
    # Unabbreviated, or it would take another parser's --data for its own --data-root.
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--allow-download", action="store_true")
    parser.add_argument("--download-folder", type=Path, default=weights.CACHE)
    found, rest = parser.parse_known_args(arguments)
    return Places(**vars(found)), rest


def imported(job: Job, folder: Path, places: Places) -> dict[str, Any]:
    """Write the spec's backbone to `folder`, like those that are trained here.

    Metrics: weights (file, address, sha256), features, parameters, image_shape, backbone_sha256,
    and difference: of features between the published network and this one, on made-up records, as
    a share of the largest.

    Raises InputError for an unknown source or model, for a missing file, for one with another
    checksum or of another network; RunError if the download fails or the difference is too large.
    """
    fields = job.spec.fields
    for name, domain in DOMAINS.items():
        domain.check(name, fields[name])
    address, classes = listed()
    path = weights.obtain(address, **asdict(places))
    file = {"file": path.name, "address": address, "sha256": file_digest(path, "sha256")}
    published = published_network(path, len(classes))
    what, options = (fields["model"], fields["image_shape"]), fields["options"]
    network = build(*what, len(classes), key=job.spec.key, run=0, base_seed=0, **options)
    network.load_state_dict(folded(published.state_dict()))
    difference = compare(network, published, fields["image_shape"])
    manifest = save(
        folder,
        network,
        architecture=fields["model"],
        options=options,
        image_shape=fields["image_shape"],
        classes=classes,
        training={
            "spec": fields,
            "spec_id": job.spec.id,
            "data": {"name": fields["source"], "sha256": None, "preprocessing": PREPROCESSING},
            "public_data": LEDGER["public_data"],
            "chosen_on_private_data": LEDGER["chosen_on_private_data"],
            "weights": file,
            "accuracy": None,
        },
    )
    metrics = {
        "weights": file,
        "classes": len(classes),
        **{name: manifest[name] for name in ("features", "parameters", "image_shape")},
        "difference": difference,
        "backbone_sha256": manifest["sha256"],
    }
    return {"metrics": metrics, "seeds": {"probe": "seed(pretrain, use=probe)"}, "ledger": LEDGER}


def listed() -> tuple[str, list[str]]:
    """Address of the weights, and the classes of their head, as torchvision lists them."""
    # Takes a second to import.
    from torchvision.models import ResNet18_Weights

    found = ResNet18_Weights.IMAGENET1K_V1
    return found.url, found.meta["categories"]


def published_network(path: Path, outputs: int) -> nn.Module:
    """torchvision's resnet18 in evaluation mode with the weights in `path`."""
    from torchvision.models import resnet18

    # torch draws weights of its own here, which are overwritten; its generator stays as it was.
    with torch.random.fork_rng(devices=[]):
        network = resnet18(num_classes=outputs)
    try:
        network.load_state_dict(weights.read(path))
    except RuntimeError:
        raise InputError(str(path), "weights of another network", "those of resnet18") from None
    return network.eval()


def compare(network: Network, published: nn.Module, image_shape: Sequence[int]) -> float:
    """Largest difference of the features of made-up records, as a share of the largest feature.

    Raises RunError if it is above `TOLERANCE`, or no number.
    """
    draws = generator(seed("pretrain", use="probe"))
    x = torch.from_numpy(draws.random((PROBED, *image_shape), dtype="float32"))
    body = nn.Sequential(ImageNetInput(), *list(published.children())[:-1], nn.Flatten())
    expected: Tensor = body(x)
    found = network.features(x.flatten(1))
    difference = float((found - expected).abs().max() / expected.abs().max())
    if not difference <= TOLERANCE:
        raise RunError(f"features differ from the published network's by {difference:g}")
    return difference
