"""What tests of imported backbones share: untrained networks, the job's command line, refusals."""

import json

import numpy as np
import torch
from torch import nn

from dpatlas.base.specs import Spec
from dpatlas.errors import run_command
from dpatlas.models import backbone
from dpatlas_workflow.run.command import main

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


def arguments(folder, spec, file):
    """The command line of an import from `file` into `folder`."""
    return [
        "--spec", spec.argument,
        "--backbone", str(folder / "backbone"),
        "--record", str(folder / "record.json"),
        "--checkpoints", str(folder / "checkpoints"),
        f"--weights-file={file}",
    ]  # fmt: skip


def import_spec(slug, fields):
    """The spec of an import; `fields` name the source, the model and the shape of images."""
    return Spec.of({"key": "pretrain", "kind": "imported", "options": {}, **fields}, slug)


def refused(capsys, folder, spec, file):
    """The one line on stderr, with exit code 2; nothing was written."""
    assert run_command(main, arguments(folder, spec, file)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert not any((folder / name).exists() for name in FILES)
    return line


def check_features(imported, net, shape):
    """Features of a backbone are what the published network `net`, without its head, computes."""
    x = np.random.default_rng(1).random((2, int(np.prod(shape))), dtype=np.float32)
    colour = torch.from_numpy(x).view(2, *shape).expand(-1, 3, -1, -1)
    large = nn.functional.interpolate(colour, (224, 224), mode="bilinear", antialias=True)
    mean, deviation = (
        torch.tensor(values)[:, None, None]
        for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    with torch.no_grad():
        expected = net((large - mean) / deviation).numpy()
    found = backbone.features(imported.network, x)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
    assert found.shape == (2, imported.manifest["features"])


def read(path):
    return json.loads(path.read_text())
