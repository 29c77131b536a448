"""What private training refuses: settings, data, networks and states that do not fit."""

import pytest
from small_training import OUTPUTS, SAMPLERS, data, network, phase, training
from torch import nn

from dpatlas.core.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.samplers import Poisson
from dpatlas.privacy.training import PrivateTraining


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_grad_norm": 0}, "max_grad_norm: found 0; allowed: a number > 0"),
        ({"max_grad_norm": float("nan")}, "max_grad_norm: found nan"),
        ({"noise_multiplier": -1.0}, "noise_multiplier: found -1.0; allowed: a number >= 0"),
        ({"steps": 1.5}, "steps: found 1.5; allowed: a whole number"),
        ({"lr": 0}, "lr: found 0"),
        ({"momentum": 1.0}, "momentum: found 1.0"),
        ({"optimizer": "rmsprop"}, "optimizer: found 'rmsprop'; allowed: one of sgd, adam"),
        ({"clipping": "none"}, "clipping: found 'none'"),
        ({"max_physical_batch": 0}, "max_physical_batch: found 0"),
        ({"optimizer": "adam", "momentum": 0.5}, "momentum: found 0.5; allowed: 0 with adam"),
    ],
)
def test_a_bad_setting_of_a_phase_is_refused(changes, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        phase(**changes)


def test_data_that_do_not_fit_are_refused_before_training():
    x, labels = data()

    def attempt(x, labels, sampler=SAMPLERS[0], model=None, **changes):
        model = network("linear") if model is None else model
        PrivateTraining(
            model, [phase(sampler, **changes)], x, labels, noise=Noise("digest", "keyed")
        )

    with pytest.raises(InputError, match="data: found 0 records"):
        attempt(x[:0], labels[:0])
    with pytest.raises(InputError, match=r"labels: found torch.float32"):
        attempt(x, labels.float())
    with pytest.raises(InputError, match=r"labels: found torch.int64 of shape \(22,\)"):
        attempt(x, labels[1:])
    for value in (-1, OUTPUTS):
        wrong = labels.clone()
        wrong[3] = value
        for name in ("linear", "mlp"):
            with pytest.raises(InputError, match=rf"labels: found {value}; .* from 0 to 4"):
                attempt(x, wrong, model=network(name))
    with pytest.raises(InputError, match="sampler: found batches of 50 records"):
        attempt(x, labels, Poisson(50, 6))
    with pytest.raises(InputError, match=r"trainable: found .*'body'.* prefixes among head"):
        attempt(x, labels, trainable=("body",))
    with pytest.raises(InputError, match=r"parameter head.weight: found on meta; allowed: cpu"):
        attempt(x, labels, model=network("linear").to("meta"))


def test_batch_norm_in_a_later_phase_is_refused_before_the_first_step():
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten()
    )
    model.append(nn.Linear(144, OUTPUTS))
    with pytest.raises(InputError, match=r"layer 2 \(BatchNorm2d\)"):
        training([phase()], model)


def test_a_state_of_another_run_is_refused():
    arrays, facts = training([phase()]).state()
    with pytest.raises(InputError, match="checkpoint: found a state of another run"):
        training([phase()], repetition=1).restore(arrays, facts)
    with pytest.raises(InputError, match="checkpoint: found a state of another run"):
        training([phase()], network("mlp")).restore(arrays, facts)
    with pytest.raises(InputError, match="checkpoint: found a state of another run"):
        training([phase()], ema_decay=0.5).restore(arrays, facts)


def test_a_step_after_the_last_is_refused():
    run = training([phase(steps=1)])
    run.run()
    with pytest.raises(InputError, match="step: found 1; allowed: fewer than 1"):
        run.step()
