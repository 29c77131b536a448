"""pretrain: import of a backbone whose weights others trained and published."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dpatlas.base.guard import one_of
from dpatlas.base.networks import FROM_FILES, IMPORTED, PUBLISHED
from dpatlas.base.seeds import generator, seed
from dpatlas.data import weights
from dpatlas.data.bounded import readable
from dpatlas.data.sources import file_digest
from dpatlas.errors import ArgumentParser, InputError, RunError
from dpatlas.jobs.job import Job, Kind, Outcome
from dpatlas.models import deit, efficientnet, moco
from dpatlas.models.backbone import save
from dpatlas.models.build import build
from dpatlas.models.imagenet import PREPROCESSING, SYMMETRIC, ImageNetInput, folded
from dpatlas.models.network import Network
from dpatlas_workflow.checks.pretrain.jobs.public import NO_PRIVATE_RECORD
from dpatlas_workflow.checks.pretrain.records.imported import RECORD, ImportedSpec

# Number of made-up records that are compared with the published network, and the largest difference
# of features that is allowed, as a share of the largest feature.
PROBED, TOLERANCE = 2, 1e-4
DEIT, LITE = "imagenet-deit-tiny", "imagenet-efficientnet-lite0"
# Class of a head that published weights without one are given: one output, all weights 0.
NO_CLASSES = ["none"]
TAKEN_AS_PUBLIC = "imagenet: taken as public, as the paper does"
PUBLIC_DATA = {
    "imagenet": TAKEN_AS_PUBLIC,
    "moco": f"{TAKEN_AS_PUBLIC}; weights under CC BY-NC 4.0, not for commercial use",
}
LEDGER = {
    **NO_PRIVATE_RECORD,
    "mechanism": "none: weights trained and published by others, on public images",
    "sampler": "none",
    "chosen_on_private_data": "nothing",
}


def file_of(arguments: Sequence[str]) -> Path:
    """The weights file that a command line names; InputError for other words in it."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--weights-file", required=True, type=Path)
    path: Path = parser.parse_args(arguments).weights_file
    return path


def imported(job: Job) -> Outcome:
    """Write the spec's backbone to its folder, in the form of those that are trained here.

    Raises InputError for an unknown source or model, and for a file that is missing, has another
    checksum, belongs to another network or has weights that are not finite; RunError if the
    features differ too much from the published network's.
    """
    folder, path = job.backbone_to_write(), job.options
    fields: ImportedSpec = job.fields
    one_of(*IMPORTED).check("source", fields.source)
    one_of(*IMPORTED[fields.source]).check("model", fields.model)
    model, image_shape, public = fields.model, fields.image_shape, PUBLIC_DATA[fields.source]
    file, state, known = _read(path, fields)
    published = published_network(model, path, state, len(known or NO_CLASSES))
    # Behind a map of the features the published head has no meaning.
    kept = None if fields.options.get("inputs") else known
    classes = kept or NO_CLASSES
    options: dict[str, Any] = {**fields.options, "key": fields.key, "run": 0, "base_seed": 0}
    network = build(model, image_shape, len(classes), **options)
    network.load_state_dict(own_weights(model, state, published, network))
    head = published.get_submodule(PUBLISHED[model].head)
    difference = compare(network, published, head, image_shape)
    scaled = SYMMETRIC if fields.options.get("symmetric") else PREPROCESSING
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
            "data": {"name": "imagenet", "sha256": None, "preprocessing": scaled},
            "public_data": public,
            "chosen_on_private_data": LEDGER["chosen_on_private_data"],
            "weights": file,
            "accuracy": None,
        },
    )
    facts = {
        "weights": file,
        "classes": len(kept or []),
        **{name: manifest[name] for name in ("features", "parameters", "image_shape")},
        "difference": difference,
        "backbone_sha256": manifest["sha256"],
    }
    return Outcome(facts, {**LEDGER, "public_data": public})


def _read(
    path: Path, fields: ImportedSpec
) -> tuple[dict[str, str | None], dict[str, Tensor], list[str] | None]:
    """The file as a record names it, its weights, and the classes of their head, None without one.

    They are of the checkpoint that the config names, or of a file that torchvision, or DeiT's
    authors, publish under a name with its checksum. InputError for another checksum.
    """
    address, classes = None, None
    digits, reason = fields.sha256 or "", "as the config says"
    if fields.source not in FROM_FILES:
        address, classes = listed(fields.model)
        digits = address.removesuffix(".pth").rpartition("-")[2]
        reason = "as its published name says"
    with readable(path):
        sha256 = file_digest(path, "sha256")
    if not sha256.startswith(digits):
        raise InputError(str(path), f"sha256 {sha256}", f"{digits}, {reason}")
    if fields.source in FROM_FILES:
        state = moco.encoder(fields.model, str(path), weights.read(path, moco.ENTRY))
    else:
        state = weights.read(path, deit.ENTRY if fields.model == DEIT else None)
    return {"file": path.name, "address": address, "sha256": sha256}, state, classes


def listed(model: str) -> tuple[str, list[str]]:
    """Address of the published weights, and the classes of their head, as torchvision lists them.

    torchvision lacks some of these networks; their classes are those of every one for ImageNet.

    Raises InputError for weights without a known address.
    """
    published = PUBLISHED.get(model)
    if published is None or not published.address:
        raise InputError("model", model, "one whose weights torchvision or its authors list")
    # Imported here since it takes a second.
    from torchvision.models import get_model_weights

    name = "resnet18" if model in (DEIT, LITE) else published.name
    return published.address, get_model_weights(name).IMAGENET1K_V1.meta["categories"]


def published_network(
    model: str, path: Path, state: Mapping[str, Tensor], outputs: int
) -> nn.Module:
    """The published network behind `model` in evaluation mode, with the weights read from `path`.

    It is torchvision's, but for EfficientNet-Lite0, which torchvision lacks.

    Where the weights have no last layer, the network's output is that layer's input.

    Raises InputError for weights of another network, and for weights that are not finite.
    """
    from torchvision.models import VisionTransformer, get_model

    origin = PUBLISHED[model]
    # The constructor draws weights, which are overwritten; torch's generator is left as it was.
    with torch.random.fork_rng(devices=[]):
        if model == DEIT:
            network = VisionTransformer(**deit.LAYOUT, num_classes=outputs)
            state = deit.to_torchvision(state)
        elif model == LITE:
            network = efficientnet.with_norms(outputs)
            state = efficientnet.named_as_ours(state)
        else:
            network = get_model(origin.name, num_classes=outputs)
    if not origin.classifies:
        network.set_submodule(origin.head, nn.Identity())
    try:
        network.load_state_dict(state)
    except RuntimeError:
        allowed = f"those of {origin.name}"
        raise InputError(str(path), "weights of another network", allowed) from None
    for entry, value in network.state_dict().items():
        if not value.isfinite().all():
            raise InputError(str(path), f"infinite or no numbers in {entry}", "finite weights")
    return network.eval()


def own_weights(
    model: str, state: Mapping[str, Tensor], published: nn.Module, network: Network
) -> dict[str, Tensor]:
    """Weights for our `network` from the published ones; zeros for a head that they lack."""
    if model == DEIT:
        return deit.to_ours(state)
    ours = folded(model, published)
    if isinstance(mapped := _directions(network), nn.Linear):
        name, weights = "body.directions.weight", ours["head.weight"]
        ours[name] = efficientnet.principal_directions(weights, mapped.out_features)
    elif PUBLISHED[model].classifies:
        return ours
    head = {f"head.{name}": value for name, value in network.head.state_dict().items()}
    return {**ours, **{name: torch.zeros_like(value) for name, value in head.items()}}


def _directions(network: Network) -> nn.Module | None:
    """The constant map of features of EfficientNet-Lite0 with option `inputs`; None without one."""
    return dict(network.named_modules()).get("body.directions")


@torch.no_grad()
def compare(
    network: Network, published: nn.Module, head: nn.Module, image_shape: Sequence[int]
) -> float:
    """Largest difference of the features of made-up records, as a share of the largest feature.

    head: the last layer of the published network, whose inputs are the features. Raises RunError
    if the difference is above `TOLERANCE` or not finite.
    """
    draws = generator(seed("pretrain", use="probe"))
    x = torch.from_numpy(draws.random((PROBED, *image_shape), dtype="float32"))
    images = next(part for part in network.modules() if isinstance(part, ImageNetInput))
    expected = _inputs(head, lambda: published(images(x)))
    if (mapped := _directions(network)) is not None:
        expected = mapped(expected)
    ours = network.features(x.flatten(1))
    difference = float((ours - expected).abs().max() / expected.abs().max())
    if not difference <= TOLERANCE:
        raise RunError(f"features differ from the published network's by {difference:g}")
    return difference


def _inputs(layer: nn.Module, run: Callable[[], Tensor]) -> Tensor:
    """The input of `layer` while `run` runs."""
    inputs: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    run()
    hook.remove()
    return inputs[0]


KIND = Kind(
    imported,
    record=RECORD,
    packages=("torch", "torchvision", "numpy", "scikit-learn"),
    options=file_of,
)
