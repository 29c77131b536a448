"""A small problem of one's own: a file of functions, records on disk, and settings."""

import textwrap

import numpy as np
import yaml

from dpatlas.commands.train import main

MINE = """
    import numpy as np
    import torch
    from torch import nn

    draws = torch.Generator().manual_seed(3)
    X = torch.randn(60, 4, generator=draws)
    Y = (X[:, 0] > 0).long()

    def records(): return X[:40], Y[:40]
    def arrays(): return X[:40].numpy().astype(float), Y[:40].numpy().astype(np.uint8)
    def test_arrays(): return X[40:].numpy().astype(float), Y[40:].numpy().astype(np.int32)
    def none_held_out(): return X[:0], Y[:0]
    def held_out(): return X[40:], Y[40:]
    def held_out_in_part(): return X[30:], Y[30:]
    def persons(): return X[:40], Y[:40], np.arange(40) // 4
    def numbers(): return X[:40], X[:40, 1] - X[:40, 2]
    def other_numbers(): return X[40:], X[40:, 1] - X[40:, 2]

    class Items(torch.utils.data.Dataset):
        fingerprint = "items of the test"

        def __len__(self):
            return 40

        def __getitem__(self, index):
            return {"rows": X[index]}, Y[index]

    def words(): return (X[:40] > 0).long() + (torch.arange(40) == 39)[:, None] * 7, Y[:40]
    def embedded(): return nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(8, 2))

    class Named(nn.Linear):
        def forward(self, rows):
            return super().forward(rows)

    def items(): return Items()
    def network(): return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    def one_output(): return nn.Linear(4, 1)
    def named(): return Named(4, 2)
    def squares(output, targets): return (output[:, 0] - targets).square()
    def near(output, targets): return (output[:, 0] - targets).abs() < 0.5
    def not_one_for_each(output, targets): return (output[:, 0] - targets).abs().max() < 0.5
    def of_other_width(): return X[40:, :3], Y[40:]
    def other_labels(): return X[40:], Y[40:] + 5

    SHARED = nn.Linear(4, 2)

    def shared(): return SHARED

    def other_each_time():
        network = nn.Linear(4, 2)
        with torch.no_grad():
            network.weight.fill_(np.random.default_rng().random())
        return network

    class WithBuffer(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("features", torch.randn(4, 16))
            self.head = nn.Linear(16, 2)

        def forward(self, x):
            return self.head(torch.tanh(x @ self.features))

    def with_buffer(): return WithBuffer()

    class TestTime(nn.Module):
        def __init__(self, keeps):
            super().__init__()
            self.keeps = keeps
            self.register_buffer("kept", torch.zeros(4))

        def forward(self, x):
            if self.training:
                return x
            if self.keeps:
                self.kept.copy_(x[0].detach())
                return x
            return x - x.mean(0)

    def centred_in_evaluation(): return nn.Sequential(TestTime(False), nn.Linear(4, 2))
    def keeps_in_evaluation(): return nn.Sequential(TestTime(True), nn.Linear(4, 2))
    def mixing(): return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))
    def leaves(): raise SystemExit(3)
    def broken(): raise KeyError("no such column")
"""
SETTINGS = {
    "data": "mine.py:records",
    "test": "mine.py:held_out",
    "model": "mine.py:network",
    "noise_multiplier": 1.0,
    "delta": 1e-3,
    "batch": 10,
    "steps": 6,
    "max_grad_norm": 1.0,
    "lr": 0.5,
    "noise_source": "keyed",
}


def write(folder, **changes):
    """A settings file with mine.py and mine.npz beside it; a change to None drops the key."""
    folder.mkdir(exist_ok=True)
    (folder / "mine.py").write_text(textwrap.dedent(MINE))
    draws = np.random.default_rng(0)
    arrays = {"x": draws.standard_normal((12, 4)), "y": np.arange(12, dtype=np.uint8) % 2}
    np.savez(folder / "mine.npz", **arrays)
    np.savez(folder / "persons.npz", **arrays, groups=np.arange(12) // 3)
    merged = {**SETTINGS, **changes}
    content = {name: value for name, value in merged.items() if value is not None}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def run(path, *options):
    """What the command returns; it writes beside the settings."""
    return main([str(path), "--output", str(path.parent / "trained"), *options])
