"""pretrain: a public backbone whose weights were trained and published by others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dpatlas.checks.pretrain.records.imported import Metrics, Spec, WeightsFile
from dpatlas.core.guard import one_of
from dpatlas.core.published_weights import FROM_FILES, IMPORTED
from dpatlas.core.seeds import generator, seed
from dpatlas.data import weights
from dpatlas.data.sources import file_digest
from dpatlas.errors import ArgumentParser, InputError, RunError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models import deit, moco
from dpatlas.models.backbone import save
from dpatlas.models.build import build
from dpatlas.models.imagenet import ORIGINS, PREPROCESSING, ImageNetInput, folded
from dpatlas.models.network import Network

# Records of the comparison with the published network, and how far features may be apart, as a
# share of the largest.
PROBED, TOLERANCE = 2, 1e-4
DEIT = "imagenet-deit-tiny"
# Of a head that stands where the published weights have none: one output, all weights 0.
NO_CLASSES = ["none"]
TAKEN_AS_PUBLIC = "imagenet: taken as public, as the paper does"
PUBLIC_DATA = {
    "imagenet": TAKEN_AS_PUBLIC,
    "moco": f"{TAKEN_AS_PUBLIC}; weights under CC BY-NC 4.0, not for commercial use",
}
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
    "chosen_on_private_data": "nothing",
    "holds_for": "backbone and record",
}


@dataclass(frozen=True)
class Places:
    """Where the published file may come from: the arguments of `weights.obtain`.

    file: as the config names it, for weights that no address is known of.
    """

    file: str | None = None
    data_root: Path | None = None
    download_folder: Path = weights.CACHE
    allow_download: bool = False
    mirrors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Weights:
    """What a file holds.

    facts: for a record. classes: of the published head, None without one.
    """

    path: Path
    facts: WeightsFile
    state: dict[str, Tensor]
    classes: list[str] | None


def places_of(arguments: Sequence[str]) -> Places:
    """The places that a command line names; InputError for other words in it."""
    # Unabbreviated, or it would take another parser's --data for its own --data-root.
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--weights-file", dest="file")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--allow-download", action="store_true")
    parser.add_argument("--download-folder", type=Path, default=weights.CACHE)
    parser.add_argument("--mirror", action="append", default=[], dest="mirrors")
    given = parser.parse_args(arguments)
    return Places(**{**vars(given), "mirrors": tuple(given.mirrors)})


def imported(job: Job) -> Outcome:
    """Write the spec's backbone to its folder, like those that are trained here.

    Raises InputError for an unknown source or model, for a missing file, for one with another
    checksum, of another network or with weights that are not finite; RunError if the download fails
    or the difference is too large.
    """
    folder, places = job.backbone_to_write(), job.options
    fields: Spec = job.fields
    one_of(*IMPORTED).check("source", fields.source)
    one_of(*IMPORTED[fields.source]).check("model", fields.model)
    model, image_shape, public = fields.model, fields.image_shape, PUBLIC_DATA[fields.source]
    read = _from_file if fields.source in FROM_FILES else _from_address
    stored = read(job.spec.slug, fields, places)
    classes = stored.classes or NO_CLASSES
    published = published_network(model, stored.path, stored.state, len(classes))
    options: dict[str, Any] = {**fields.options, "key": fields.key, "run": 0, "base_seed": 0}
    network = build(model, image_shape, len(classes), **options)
    network.load_state_dict(own_weights(model, stored.state, published, network))
    head = published.get_submodule(deit.HEAD if model == DEIT else ORIGINS[model].head)
    difference = compare(network, published, head, image_shape)
    manifest = save(
        folder,
        network,
        architecture=model,
        options=fields.options,
        image_shape=image_shape,
        classes=classes,
        training={
            "spec": job.spec.fields,
            "spec_id": job.spec.id,
            "data": {"name": "imagenet", "sha256": None, "preprocessing": PREPROCESSING},
            "public_data": public,
            "chosen_on_private_data": LEDGER["chosen_on_private_data"],
            "weights": stored.facts.model_dump(),
            "accuracy": None,
        },
    )
    metrics = Metrics(
        weights=stored.facts,
        classes=len(stored.classes or []),
        **{name: manifest[name] for name in ("features", "parameters", "image_shape")},
        difference=difference,
        backbone_sha256=manifest["sha256"],
    )
    return Outcome(metrics, {**LEDGER, "public_data": public})


def _from_address(slug: str, fields: Spec, places: Places) -> Weights:
    """The file that torchvision, or DeiT's authors, publish."""
    model = fields.model
    if places.file:
        raise InputError("--weights-file", places.file, f"none: {model} has an address")
    address, classes = listed(model)
    options = {name: value for name, value in asdict(places).items() if name != "file"}
    path = weights.obtain(address, **options)
    facts = _facts(path, address)
    state = weights.read(path, deit.ENTRY if model == DEIT else None)
    return Weights(path, facts, state, classes)


def _from_file(slug: str, fields: Spec, places: Places) -> Weights:
    """The checkpoint that the config names."""
    model, key = fields.model, f"pretrain.backbones.{slug}.file"
    if not places.file:
        raise InputError("--weights-file", "nothing", f"the path under {key}")
    path = weights.named_file(
        places.file,
        key,
        data_root=places.data_root,
        download_folder=places.download_folder,
        digits=fields.sha256 or "",
    )
    facts = _facts(path, None)
    state = moco.encoder(model, str(path), weights.read(path, moco.ENTRY))
    return Weights(path, facts, state, None)


def _facts(path: Path, address: str | None) -> WeightsFile:
    return WeightsFile(file=path.name, address=address, sha256=file_digest(path, "sha256"))


def listed(model: str) -> tuple[str, list[str]]:
    """Address of the weights, and the classes of their head, as torchvision lists them.

    torchvision has no DeiT; its classes are those of all networks for ImageNet.

    Raises InputError for weights that no address is known of.
    """
    if model in IMPORTED["moco"]:
        raise InputError("model", model, "one whose weights torchvision or its authors list")
    # Takes a second to import.
    from torchvision.models import get_model_weights

    name = "resnet18" if model == DEIT else ORIGINS[model].name
    listing = get_model_weights(name).IMAGENET1K_V1
    return deit.ADDRESS if model == DEIT else listing.url, listing.meta["categories"]


def published_network(
    model: str, path: Path, state: Mapping[str, Tensor], outputs: int
) -> nn.Module:
    """torchvision's network behind `model` in evaluation mode, with the weights read from `path`.

    A network whose weights have no last layer hands on what that layer would be given.

    Raises InputError for weights of another network, and for some that are not finite.
    """
    from torchvision.models import VisionTransformer, get_model

    name = "DeiT-tiny" if model == DEIT else ORIGINS[model].name
    # torch draws weights of its own here, which are overwritten; its generator stays as it was.
    with torch.random.fork_rng(devices=[]):
        if model == DEIT:
            network = VisionTransformer(**deit.LAYOUT, num_classes=outputs)
            state = deit.to_torchvision(state)
        else:
            network = get_model(name, num_classes=outputs)
    if model != DEIT and not ORIGINS[model].classifies:
        network.set_submodule(ORIGINS[model].head, nn.Identity())
    try:
        network.load_state_dict(state)
    except RuntimeError:
        raise InputError(str(path), "weights of another network", f"those of {name}") from None
    for entry, value in network.state_dict().items():
        if not value.isfinite().all():
            raise InputError(str(path), f"infinite or no numbers in {entry}", "finite weights")
    return network.eval()


def own_weights(
    model: str, state: Mapping[str, Tensor], published: nn.Module, network: Network
) -> dict[str, Tensor]:
    """The weights of our `network` from those of the published one; 0 for a head that it lacks."""
    if model == DEIT:
        return deit.to_ours(state)
    ours = folded(model, published)
    if ORIGINS[model].classifies:
        return ours
    head = {f"head.{name}": value for name, value in network.head.state_dict().items()}
    return {**ours, **{name: torch.zeros_like(value) for name, value in head.items()}}


@torch.no_grad()
def compare(
    network: Network, published: nn.Module, head: nn.Module, image_shape: Sequence[int]
) -> float:
    """Largest difference of the features of made-up records, as a share of the largest feature.

    head: the published network's, whose inputs are the features. Raises RunError if the difference
    is above `TOLERANCE`, or no number.
    """
    draws = generator(seed("pretrain", use="probe"))
    x = torch.from_numpy(draws.random((PROBED, *image_shape), dtype="float32"))
    expected = _inputs(head, lambda: published(ImageNetInput()(x)))
    ours = network.features(x.flatten(1))
    difference = float((ours - expected).abs().max() / expected.abs().max())
    if not difference <= TOLERANCE:
        raise RunError(f"features differ from the published network's by {difference:g}")
    return difference


def _inputs(layer: nn.Module, run: Callable[[], Tensor]) -> Tensor:
    """What `layer` is given while `run` runs."""
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    run()
    hook.remove()
    return seen[0]


KIND = Kind(
    imported,
    spec=Spec,
    packages=("torch", "torchvision", "numpy", "scikit-learn"),
    options=places_of,
)
