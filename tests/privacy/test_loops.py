"""Loops of transformers and Lightning take the steps and state the ledger of the engine."""

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import model_catalogue
import pytest
import torch
from small_training import flat, weights
from torch import nn
from torch.utils.data import TensorDataset

from dpatlas.accounting.samplers import Poisson
from dpatlas.base import seeds
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.optimizers import ParameterGroup
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.training import FOLLOWED, PrivateTraining
from shown_commands import written_files

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
N = 24


def of(package: str):
    missing = not model_catalogue.has(package)
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


def keyed() -> Noise:
    """The same noise again, as in another process."""
    seeds._claims.clear()
    return Noise("loops", "keyed")


def without_trace(ledger: dict) -> dict:
    """What a ledger says, but for the class that the records are in."""
    return {name: value for name, value in ledger.items() if name != "traced"}


def same(one: PrivateTraining, other: PrivateTraining) -> bool:
    """Whether both came to the same bits and state the same ledger."""
    bits = torch.equal(flat(weights(one.model)), flat(weights(other.model)))
    return bits and without_trace(one.ledger()) == without_trace(other.ledger())


@pytest.mark.parametrize(
    ("name", "package"),
    [
        pytest.param("private_trainer.py", "transformers", marks=of("transformers")),
        pytest.param("private_lightning.py", "lightning", marks=of("lightning")),
        pytest.param("two_processes.py", "torch"),
    ],
)
def test_the_scripts_of_the_page_train_privately(name, package, tmp_path):
    (tmp_path / name).write_text(written_files(ROOT / "docs/migrate.md")[name])
    start = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if package == "torch" else []
    done = subprocess.run(
        [sys.executable, *start, name], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr[-800:]
    (written,) = tmp_path.glob("*model*/ledger.json")
    ledger = json.loads(written.read_text())
    assert ledger["guaranteed"] in done.stdout
    assert done.stdout.count("epsilon ") >= 1


# Hugging Face


def sentences() -> list[dict]:
    torch.manual_seed(3)
    batch = {**model_catalogue.words(N), "labels": model_catalogue.classes(N)}
    return [{name: value[at] for name, value in batch.items()} for at in range(N)]


def bert() -> nn.Module:
    torch.manual_seed(4)
    return model_catalogue.bert_model()


def trainer(folder, kind=None, model=None, rows=None, noise=None, named=None, **arguments):
    from transformers import TrainingArguments

    from dpatlas.loops.huggingface import PrivateTrainer

    given = {
        "max_steps": 6,
        "learning_rate": 1e-2,
        "warmup_steps": 2,
        "weight_decay": 0.1,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "save_strategy": "steps",
        "save_steps": 3,
        "logging_steps": 2,
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        **arguments,
    }
    return (kind or PrivateTrainer)(
        model or bert(),
        TrainingArguments(str(folder), **given),
        train_dataset=rows or sentences(),
        noise=noise or keyed(),
        **({"noise_multiplier": 1.0} if named is None else named),
    )


@of("transformers")
@pytest.mark.parametrize(
    ("beta", "optimizer"),
    [(0.999, "adamw"), (0.9, partial(torch.optim.AdamW, betas=(0.9, 0.9)))],
)
def test_a_hugging_face_trainer_takes_the_steps_of_a_private_training(tmp_path, beta, optimizer):
    made = trainer(tmp_path, adam_beta2=beta)
    result = made.train()
    model, rows = bert(), sentences()
    small = [n for n, _ in model.named_parameters() if n.endswith("bias") or "LayerNorm" in n]
    phase = TrainingPhase(
        Poisson(N, 8),
        1.0,
        max_grad_norm=1.0,
        steps=6,
        lr=1e-2,
        optimizer=optimizer,
        weight_decay=0.1,
        max_physical_batch=4,
        lr_schedule=lambda step: step / 2 if step < 2 else (6 - step) / 4,
        parameter_groups=tuple(ParameterGroup(name, weight_decay=0.0) for name in small),
    )
    stacked = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    by_hand = PrivateTraining(
        model, [phase], stacked, noise=keyed(), loss=lambda output, _: output.loss
    )
    by_hand.run()
    assert same(made.private, by_hand)
    assert result.global_step == 6
    assert result.metrics["epsilon"] == by_hand.guarantee().epsilon
    assert json.loads((tmp_path / "checkpoint-3" / "ledger.json").read_text())["steps"] == 3


@of("transformers")
def test_a_hugging_face_trainer_on_two_processes_comes_to_the_weights_of_one(tmp_path):
    script = tmp_path / "two.py"
    script.write_text(
        f"import sys\nsys.path[:] = {sys.path}\n"
        "from test_loops import trainer\n"
        f"made = trainer({str(tmp_path)!r}, per_device_train_batch_size=2, ddp_backend='gloo')\n"
        "made.train()\nmade.save_model()\n"
    )
    start = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *start, script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-800:]
    two, again = (type(bert()).from_pretrained(tmp_path) for _ in range(2))
    # What another process trained privately is known by its folder.
    following = trainer(tmp_path / "next", model=again, max_steps=1)
    following.train()
    assert FOLLOWED in json.dumps(following.private.ledger())
    one = trainer(tmp_path / "one")
    one.train()
    assert torch.allclose(flat(weights(one.model)), flat(weights(two)), rtol=0, atol=1e-6)
    ledgers = json.loads((tmp_path / "ledger.json").read_text()), one.private.ledger()
    assert ledgers[0]["epsilon"] == ledgers[1]["epsilon"]


@of("transformers")
def test_a_hugging_face_trainer_leaves_frozen_parameters_alone(tmp_path):
    model = bert()
    model.bert.embeddings.requires_grad_(False)
    frozen = weights(model.bert.embeddings)
    made = trainer(tmp_path, model=model)
    made.train()
    assert torch.equal(flat(weights(model.bert.embeddings)), flat(frozen))
    assert "not frozen" in made.private.ledger()["mechanism"]


@of("transformers")
def test_a_hugging_face_trainer_resumes_to_the_same_bits(tmp_path):
    whole = trainer(tmp_path)
    whole.train()
    first = whole.state.log_history
    resumed = trainer(tmp_path, model=bert())
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert same(whole.private, resumed.private)
    # The last line has the seconds that it took.
    assert resumed.state.log_history[:-1] == first[:-1]
    shutil.rmtree(tmp_path / "checkpoint-3" / "private")
    with pytest.raises(InputError, match=r"resume_from_checkpoint: .* a checkpoint of a Private"):
        trainer(tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))


@of("transformers")
def test_a_hugging_face_trainer_writes_the_secret_to_the_folder_private_alone(tmp_path):
    made = trainer(tmp_path, noise=Noise())
    made.train()
    made.save_model(str(tmp_path / "model"))
    secret = made.private.noise.secret.encode()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files if secret in path.read_bytes()} == {"private"}


@of("transformers")
def test_callbacks_see_every_step_and_no_log_has_the_training_loss(tmp_path):
    from transformers import TrainerCallback

    events = []

    class Notes(TrainerCallback):
        def on_epoch_begin(self, *_, **__):
            events.append("epoch")

        def on_step_end(self, args, state, control, **_):
            events.append(state.global_step)
            control.should_training_stop = state.global_step == 5

        def on_evaluate(self, *_, **__):
            events.append("evaluated")

        def on_save(self, *_, **__):
            events.append("saved")

    made = trainer(
        tmp_path,
        named={"epsilon": 5.0, "eval_dataset": sentences(), "callbacks": [Notes()]},
        eval_strategy="epoch",
        save_total_limit=1,
        save_steps=2,
    )
    made.train()
    expected = ["epoch", 1, 2, "saved", 3, "evaluated", "epoch", 4, "saved", 5, "evaluated"]
    assert events == expected
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-4"]
    shown = {name for row in made.state.log_history for name in row}
    assert "epsilon" in shown and "eval_loss" in shown and "loss" not in shown
    assert made.private.ledger()["steps"] == 5
    assert any("stopped after 5 of 6" in line for line in made.private.ledger()["warnings"])


@of("transformers")
@pytest.mark.parametrize(
    ("arguments", "named", "where"),
    [
        ({"label_smoothing_factor": 0.1}, None, "label_smoothing_factor"),
        ({"optim": "adafactor"}, None, "optim"),
        ({"push_to_hub": True}, None, "push_to_hub"),
        ({}, {}, "epsilon"),
        ({}, {"noise_multiplier": 1.0, "epsilon": 1.0}, "epsilon"),
        ({}, {"noise_multiplier": 1.0, "compute_loss_func": len}, "compute_loss_func"),
        (
            {},
            {"noise_multiplier": 1.0, "optimizer_cls_and_kwargs": (torch.optim.Adam, {})},
            "optimizer_cls_and_kwargs",
        ),
    ],
)
def test_what_a_hugging_face_trainer_would_not_follow_is_refused(tmp_path, arguments, named, where):
    with pytest.raises(InputError) as refused:
        trainer(tmp_path, named=named, **arguments)
    assert refused.value.where == where


@of("transformers")
@pytest.mark.parametrize("several", [False, True])
def test_an_evaluation_on_the_training_records_is_refused(tmp_path, several):
    rows = sentences()
    named = {"noise_multiplier": 1.0, "eval_dataset": {"train": rows} if several else rows}
    with pytest.raises(InputError, match="eval_dataset: found train_dataset; allowed: public"):
        trainer(tmp_path, rows=rows, named=named)


@of("transformers")
def test_a_loss_over_the_batch_and_a_scheduler_that_sees_metrics_are_refused(tmp_path):
    from dpatlas.loops.huggingface import PrivateTrainer

    class Contrasting(PrivateTrainer):
        def compute_loss(self, *_, **__):
            raise AssertionError

    with pytest.raises(InputError, match="compute_loss: found one's own"):
        trainer(tmp_path, kind=Contrasting)
    plateau = trainer(
        tmp_path,
        lr_scheduler_type="reduce_lr_on_plateau",
        eval_strategy="steps",
        named={"noise_multiplier": 1.0, "eval_dataset": sentences()},
    )
    with pytest.raises(InputError, match="lr_scheduler_type"):
        plateau.train()
    longer = sentences()
    longer[5] = {
        name: value.repeat(2) if value.dim() else value for name, value in longer[5].items()
    }
    with pytest.raises(InputError, match="items of one shape"):
        trainer(tmp_path, rows=longer, max_steps=20).train()


# Lightning


def table(n: int = N) -> TensorDataset:
    draws = torch.Generator().manual_seed(6)
    return TensorDataset(
        torch.randn(n, 8, generator=draws), torch.randint(0, 3, (n,), generator=draws)
    )


def phases(**changes) -> list[TrainingPhase]:
    settings = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "steps": 7, "lr": 0.3}
    return [TrainingPhase(Poisson(N, 8), **{**settings, "momentum": 0.5, **changes})]


def net(private: bool = True, dataset=None, noise=None, order=None, **options):
    from lightning.pytorch import LightningModule

    from dpatlas.loops.lightning import PrivateModule

    class Net(LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(7)
            self.layers = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))

        def forward(self, x):
            return self.layers(x)

        def training_step(self, batch, batch_idx):
            x, labels = batch
            loss = nn.functional.cross_entropy(self(x), labels)
            self.log("train_loss", loss)
            return {"loss": loss}

        def validation_step(self, batch, batch_idx):
            x, labels = batch
            self.log("accuracy", (self(x).argmax(1) == labels).float().mean())

    bases = (PrivateModule, Net) if order is None else (Net, PrivateModule)
    made = type("PrivateNet", bases if private else (Net,), {})()
    if not private:
        return made
    made.train_privately(dataset or table(), phases(), noise=noise or keyed(), **options)
    return made


def lightning(folder, **options):
    from lightning.pytorch import Trainer

    given = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_progress_bar": False}
    plain = {"max_epochs": -1, "enable_model_summary": False, "enable_checkpointing": False}
    return Trainer(default_root_dir=folder, **{**given, **plain, **options})


@of("lightning")
def test_lightning_takes_the_steps_of_a_private_training(tmp_path):
    made = net()
    loop = lightning(tmp_path, log_every_n_steps=1)
    loop.fit(made)
    by_hand = PrivateTraining(net(private=False), phases(), *table().tensors, noise=keyed())
    by_hand.run()
    assert same(made.private, by_hand)
    assert loop.global_step == 7
    assert {*loop.logged_metrics} == {"epsilon"}


@of("lightning")
def test_lightning_resumes_to_the_same_bits_after_any_step(tmp_path):
    from lightning.pytorch.callbacks import ModelCheckpoint

    keeping = ModelCheckpoint(
        tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1, save_on_train_epoch_end=False
    )
    whole = net()
    lightning(tmp_path, enable_checkpointing=True, callbacks=[keeping]).fit(whole)
    for step in range(1, 7):
        resumed = net()
        lightning(tmp_path).fit(resumed, ckpt_path=tmp_path / f"step={step}.ckpt")
        assert same(whole.private, resumed.private)


@of("lightning")
def test_lightning_validates_between_steps_and_may_stop_early(tmp_path):
    from torch.utils.data import DataLoader

    made = net()
    loop = lightning(tmp_path, max_epochs=2)
    loop.fit(made, val_dataloaders=DataLoader(table(), 8))
    # Three batches of 8 are an epoch of 24 records.
    assert made.private.ledger()["steps"] == 6
    assert {"accuracy"} <= {*loop.logged_metrics} <= {"accuracy", "epsilon"}


@of("lightning")
def test_what_would_get_round_the_engine_is_refused_in_lightning(tmp_path):
    from torch.utils.data import DataLoader

    with pytest.raises(InputError, match="PrivateNet: found training_step in front of Private"):
        net(order="wrong")
    with pytest.raises(InputError, match="train_dataloaders: found list; allowed: none"):
        lightning(tmp_path).fit(net(), DataLoader(table(), 8))
    with pytest.raises(InputError, match="precision: found bf16-mixed"):
        lightning(tmp_path, precision="bf16-mixed").fit(net())
    unplanned = net()
    unplanned._plan = None
    with pytest.raises(InputError, match="a fit without a plan"):
        lightning(tmp_path).fit(unplanned)


@of("lightning")
def test_weights_that_lightning_saves_alone_have_no_secret_and_start_no_private_fit(tmp_path):
    made = net(noise=Noise())
    loop = lightning(tmp_path)
    loop.fit(made)
    for name, alone in (("whole", False), ("weights", True)):
        loop.save_checkpoint(tmp_path / f"{name}.ckpt", weights_only=alone)
    secret = made.private.noise.secret.encode()
    assert secret in (tmp_path / "whole.ckpt").read_bytes()
    assert secret not in (tmp_path / "weights.ckpt").read_bytes()
    with pytest.raises(InputError, match="ckpt_path: found one without private steps"):
        lightning(tmp_path).fit(net(), ckpt_path=tmp_path / "weights.ckpt")


@of("lightning")
def test_a_second_fit_of_a_lightning_module_is_refused_and_keeps_the_ledger(tmp_path):
    made = net()
    lightning(tmp_path).fit(made)
    with pytest.raises(InputError, match="PrivateNet: found a second fit"):
        lightning(tmp_path).fit(made)
    assert made.private.ledger()["steps"] == 7
    made.train_privately(table(), phases(), noise=Noise())
    lightning(tmp_path).fit(made)
    assert any("earlier training" in line for line in made.private.ledger()["warnings"])
