"""What tests of imported backbones share: untrained networks, the job's command line, refusals."""

import numpy as np
import torch
from torch import nn

from dpatlas.core.specs import Spec
from dpatlas.errors import run_command
from dpatlas.jobs.run import main

FILES = ("record.json", "backbone/weights.npz", "backbone/manifest.json")


def untrained(name, outputs):
    """torchvision's network with statistics that are far from the identity."""
    from torchvision.models import get_model

    with torch.random.fork_rng():
        torch.manual_seed(5)
        net = get_model(name, num_classes=outputs).eval()
        for part in net.modules():
            if isinstance(part, nn.BatchNorm2d):
                nn.init.normal_(part.running_mean, std=0.2)
                nn.init.uniform_(part.running_var, 0.5, 2.0)
    return net


def arguments(folder, spec, *more):
    """The command line of an import whose files lie in `folder`."""
    return [
        "--spec", spec.argument,
        "--backbone", str(folder / "backbone"),
        "--record", str(folder / "record.json"),
        "--checkpoints", str(folder / "checkpoints"),
        "--download-folder", str(folder / "cache"),
        *map(str, more),
    ]  # fmt: skip


def import_spec(slug, fields):
    """The spec of an import; `fields` name the source, the model and the shape of images."""
    return Spec.of({"key": "pretrain", "kind": "imported", "options": {}, **fields}, slug)


def refused(capsys, folder, spec, *more):
    """The one line on stderr, with exit code 2; nothing was written."""
    assert run_command(main, arguments(folder, spec, *more)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert not any((folder / name).exists() for name in FILES)
    return line


def records_and_input(shape):
    """Random records (n, pixels) of images, and what a network for ImageNet is given for them."""
    x = np.random.default_rng(1).random((2, int(np.prod(shape))), dtype=np.float32)
    colour = torch.from_numpy(x).view(2, *shape).expand(-1, 3, -1, -1)
    large = nn.functional.interpolate(colour, (224, 224), mode="bilinear", antialias=True)
    mean, deviation = (
        torch.tensor(values)[:, None, None]
        for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    return x, (large - mean) / deviation
