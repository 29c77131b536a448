"""Noise is drawn by one training: a second one would show the difference of their clean sums."""

import copy

import numpy as np
import pytest
import torch
from small_networks import Net
from small_training import OUTPUTS, N, data, flat, network, phase, weights
from torch import nn

from dpatlas.accounting.clip_bounds import AdaptiveClip
from dpatlas.accounting.samplers import FullBatch
from dpatlas.base.seeds import SHARED_NOISE, Noise, recording
from dpatlas.errors import InputError
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.digest import digest
from dpatlas.privacy.langevin import Langevin, LangevinRun
from dpatlas.privacy.losses import cross_entropy
from dpatlas.privacy.training import PrivateTraining

REFUSED = "noise: found repetition 0 of noise that another training has drawn"


def keyed():
    return Noise("digest", "keyed")


def halved(output, labels):
    return cross_entropy(output, labels) / 2


def run(noise=None, x=None, labels=None, loss=cross_entropy, model=None, phases=None, **options):
    """A private training of one step on the usual data, that it may change."""
    given = data()
    return PrivateTraining(
        network("mlp") if model is None else model,
        phases or [phase(FullBatch(N), steps=3)],
        given[0] if x is None else x,
        given[1] if labels is None else labels,
        noise=noise or keyed(),
        loss=loss,
        **options,
    )


def langevin(noise, scale=1.0, repetition=0, sigma=0.1, **options):
    x, labels = data()
    settings = Langevin(FullBatch(N), sigma, 0.05, 10.0, (0.3,) * 3)
    options |= {"noise": noise, "repetition": repetition}
    return LangevinRun(settings, scale * x, labels, OUTPUTS, **options)


NOISES = {
    "one keyed object": lambda: [keyed()] * 2,
    "two keyed objects": lambda: [keyed(), keyed()],
    "one os object": lambda: [Noise()] * 2,
}


def test_noise_of_the_operating_system_is_what_one_gets():
    assert Noise().source == "os" and Noise("my run").source == "os"
    assert Noise("my run").key(0, 0, "noise") != Noise("my run").key(0, 0, "noise")
    with pytest.raises(InputError, match="root: found ''; allowed: a text that keys the noise"):
        Noise(source="keyed")


def half_frozen():
    model = network("mlp")
    model.linear1.requires_grad_(False)
    return model


CHANGES = {
    "one label": lambda: {"labels": (data()[1] + torch.eye(N, dtype=torch.int64)[0]) % OUTPUTS},
    "one number of the data": lambda: {"x": data()[0] + 1e-6 * torch.eye(N, 64)},
    "noise multiplier": lambda: {"phases": [phase(FullBatch(N), steps=3, noise_multiplier=2.0)]},
    "learning rate": lambda: {"phases": [phase(FullBatch(N), steps=3, lr=0.31)]},
    "steps": lambda: {"phases": [phase(FullBatch(N), steps=4)]},
    "sampler": lambda: {"phases": [phase(steps=3)]},
    "frozen parameters": lambda: {"model": half_frozen()},
    "initial weights": lambda: {"model": network("mlp", run=1)},
    "loss": lambda: {"loss": halved},
    "views": lambda: {"augmentation": ShiftAndFlip((1, 8, 8), 2, 1, True)},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_a_noisy_sum_depends_on_makes_another_training(change):
    run().run()
    with pytest.raises(InputError, match=REFUSED):
        run(**change()).run()


TEMPERATURE, SETTINGS = 1.0, {"weights": [torch.ones(())]}


def scaled(output, labels):
    return cross_entropy(output, labels) * (TEMPERATURE * SETTINGS["weights"][0])


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(f"{__name__}.TEMPERATURE", 2.0),
        lambda patch: patch.setitem(SETTINGS, "weights", [torch.tensor(2.0)]),
    ],
    ids=["a global", "a global tensor"],
)
def test_a_change_of_what_a_loss_reads_makes_another_training(change, monkeypatch):
    for _ in range(2):
        run(loss=scaled).step()
    change(monkeypatch)
    with pytest.raises(InputError, match=REFUSED):
        run(loss=scaled).step()


def test_the_same_training_may_be_repeated_bit_for_bit():
    found = []
    for _ in range(2):
        again = run()
        again.run()
        found.append(flat(weights(again.model)))
        run(repetition=1, augmentation=ShiftAndFlip((1, 8, 8), 2, 1, True), ema_decay=0.9).run()
        langevin(keyed(), repetition=3).run()
    assert torch.equal(*found)


@pytest.mark.parametrize("source", ["keyed", "os"])
@pytest.mark.parametrize("done", [0, 2])
def test_a_training_goes_on_from_its_state_within_one_process(source, done):
    first = run(Noise("digest", source))
    for _ in range(done):
        first.step()
    state = first.state()
    first.run()
    second = run(Noise("digest", source))
    second.restore(*state)
    second.run()
    assert torch.equal(flat(weights(second.model)), flat(weights(first.model)))
    third = run(Noise("digest", source), -data()[0])
    with pytest.raises(InputError, match="checkpoint: found a state of another plan: records"):
        third.restore(*state)
    # A state that does not say of which records it is.
    arrays, facts = state
    third.data.digest = lambda: None
    del third._records
    third.restore(arrays, facts | {"plan": facts["plan"] | {"records": None}})
    with pytest.raises(InputError, match=REFUSED):
        third.step()


def test_arms_that_share_noise_by_name_may_differ():
    x, _ = data()
    sums = []
    with recording() as streams:
        for sign in (1, -1):
            arm = run(x=sign * x, shared_noise="signs", on_update=lambda step, s: sums.append(s))
            assert arm.shared_noise == "signs"
            arm.step()
    assert streams.facts()["shared_noise"] == ["signs"]
    assert "only one of them may be released" in SHARED_NOISE
    for other in ({}, {"shared_noise": "others"}):
        with pytest.raises(InputError, match=REFUSED):
            run(x=2 * x, **other).step()
    langevin(keyed(), repetition=1, shared_noise="signs").run()
    langevin(keyed(), -1.0, repetition=1, shared_noise="signs").run()


def test_a_digest_is_of_values_and_of_others_by_themselves():
    assert digest(data(), {1: [2.0, None]}) == digest(data(), {1: [2.0, None]})
    zeros, one = torch.zeros(4), object()
    different = [0, 0.0, "0", False, {0: 0}, one, object(), zeros, zeros.view(2, 2), zeros.int()]
    different += [np.zeros(4), np.zeros(4, np.float32), len, halved]
    assert len({digest(value) for value in different}) == len(different)
    assert digest(one) == digest(one) and digest(torch.ones(2, dtype=torch.bfloat16))
    with torch.inference_mode():
        # Torch counts no changes of such a tensor.
        value = torch.ones(2)
        assert digest(value) != digest(value.mul_(2))


@pytest.mark.parametrize("noises", NOISES.values(), ids=NOISES)
@pytest.mark.parametrize("kind", ["training", "langevin", "one of each"])
def test_a_second_training_on_one_noise_is_refused_and_releases_nothing(noises, kind):
    (first, second), seen = noises(), []
    x, _ = data()
    one = langevin(first) if kind == "langevin" else run(first)
    two = langevin(second, -1.0)
    if kind == "training":
        two = run(second, -x, on_update=lambda step, sums: seen.append(step))
    before = copy.deepcopy(two.state()[0])
    one.step()
    with pytest.raises(InputError, match=REFUSED):
        two.step()
    np.testing.assert_equal(two.state()[0], before)
    assert two.steps_done == 0 and seen == []


def test_another_repetition_another_noise_or_none_is_free():
    x, _ = data()
    silent = [phase(FullBatch(N), steps=3, noise_multiplier=0.0)]
    run(phases=silent).run()
    run().run()
    run(x=2 * x, phases=silent).run()
    run(x=-x, repetition=1).run()
    run(Noise("other", "keyed"), -x).run()
    for sign in (1, -1):
        run(Noise(), sign * x).run()
    langevin(keyed(), repetition=2, sigma=0.0).run()
    langevin(keyed(), -1.0, repetition=2).run()


def test_data_that_were_changed_in_place_are_other_data_and_noise_is_not_shared_later():
    x, _ = data()
    run(x=x).run()
    with pytest.raises(InputError, match=REFUSED):
        run(x=x, shared_noise="signs").step()
    x[0, 0] += 1
    with pytest.raises(InputError, match=REFUSED):
        run(x=x).run()


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_a_training_that_others_change_on_its_way_cannot_repeat_the_noise(name):
    # Of noise drawn anew, one in thirty moves what is compared at a step by too little.
    noise, seen = Noise("on its way", "keyed"), []

    def trained(after=None):
        model = network(name)
        options = {"on_update": lambda step, sums: seen.append(flat(sums).clone())}
        run(noise, model=model, **options).run(lambda step: after and after(model))

    def changed(model):
        with torch.no_grad():
            for value in model.parameters():
                value.mul_(0.5)

    trained()
    trained()
    assert torch.equal(torch.stack(seen[:3]), torch.stack(seen[3:]))
    # The sums would differ by what they have without noise.
    with pytest.raises(InputError, match="noise: found that of step 1, which was added to another"):
        trained(changed)
    assert len(seen) == 7


def test_noise_is_not_added_to_another_sum_that_differs_in_an_early_parameter():
    def apart(self, x):
        return self.a(x[:, :32]).square() + self.b(x[:, 32:]).square()

    x, _ = data()
    model = Net(apart, a=nn.Linear(32, 5), b=nn.Linear(32, 5))
    phases = [phase(FullBatch(N), max_grad_norm=1e3, noise_multiplier=1e-6)]
    again = run(Noise(), x, model=model, phases=phases, loss=lambda output, _: output.mean(1))
    state = again.state()
    again.step()
    x.numpy()[:, :32] += 1
    again.restore(*state)
    with pytest.raises(InputError, match="added to another sum"):
        again.step()


def test_a_secret_from_another_process_is_refused_but_by_a_checkpoint(monkeypatch):
    """After a fork both would draw from one secret, and neither knows what the other drew."""
    noise = Noise()
    monkeypatch.setattr("os.getpid", lambda: 0)
    with pytest.raises(InputError, match="noise: found noise of the operating system from process"):
        noise.claim(0, "a training")
    noise.carry(noise.secret)
    noise.claim(0, "a training")


@pytest.mark.parametrize("kind", ["training", "count", "langevin"])
def test_a_training_goes_on_in_no_process_that_was_forked_from_it(kind, monkeypatch):
    """Of two children that differ from here, the difference of their sums would have no noise."""
    # Of the count alone there is noise.
    counting = {"clipping": AdaptiveClip(0.5, 1.0), "noise_multiplier": 0.0}
    begun = (
        langevin(Noise())
        if kind == "langevin"
        else run(Noise(), phases=[phase(FullBatch(N), **(counting if kind == "count" else {}))])
    )
    begun.step()
    monkeypatch.setattr("os.getpid", lambda: 0)
    before = begun.state()[0]
    for _ in range(2):
        with pytest.raises(InputError, match=r"noise: found noise of .* from process"):
            begun.step()
    np.testing.assert_equal(begun.state()[0], before)


def test_keyed_noise_which_is_public_goes_on_after_a_fork_with_the_same_sums_alone(monkeypatch):
    x, labels = data()
    begun = run(Noise("fork", "keyed"), x=x, labels=labels)
    begun.step()
    state = begun.state()
    monkeypatch.setattr("os.getpid", lambda: 0)
    for _ in range(2):
        begun.restore(*state)
        begun.step()
    x.data[0] = -x.data[0] + 1
    begun.restore(*state)
    with pytest.raises(InputError, match="noise: found that of step 1, which was added to another"):
        begun.step()


def test_a_state_of_an_arm_or_of_another_source_is_refused():
    arm = run(shared_noise="signs")
    arm.step()
    with pytest.raises(InputError, match="checkpoint: found a state of another run"):
        run().restore(*arm.state())
    for mine, other in (("keyed", "os"), ("os", "keyed")):
        state = run(Noise("digest", other)).state()
        with pytest.raises(InputError, match=f"allowed: one with source='{mine}'"):
            run(Noise("digest", mine)).restore(*state)


@pytest.mark.parametrize("source", ["keyed", "os"])
def test_a_state_with_other_noise_is_refused_once_sums_were_released(source):
    """Seven sums would be released, and four stated."""
    earlier, later = run(Noise("earlier", source)), run(Noise("later", source))
    earlier.step()
    later.step()
    with pytest.raises(InputError, match="a state with other noise, after 1 step"):
        later.restore(*earlier.state())


def test_another_secret_is_not_carried_into_noise_that_others_draw_from():
    noise = Noise()
    run(noise).step()
    other = run(noise, repetition=1)
    with pytest.raises(InputError, match="another secret, after noise of this one was drawn"):
        other.restore(*run(Noise(), repetition=1).state())
