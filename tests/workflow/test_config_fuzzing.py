"""Any config either makes a run or is refused in one line that names the key."""

import itertools
import random

import pytest
from config_mutations import base, bases, copied, mutate
from first_questions import evaluate

from dpatlas.errors import InputError
from dpatlas_workflow.config.atlas import PAPERS
from dpatlas_workflow.config.load import load_config, validate

# Where a wrong value may be met by a key that refers to it: (changed, named).
REFERENCES = (
    ("pretrain", "dp_sgld"),
    ("pretrain", "lp_fft"),
    ("pretrain", "pretrain"),
    ("data.own", ""),
    ("lp_fft", "lp_fft.scenarios"),
    ("lp_fft", "lp_fft.lora"),
    ("lp_fft.lora", "lp_fft.scenarios"),
    ("lp_fft.scenarios", "lp_fft.clip_sweep"),
    ("lp_fft.lrs", "lp_fft.clip_sweep"),
    ("lp_fft.lora_rank", "lp_fft.clip_sweep"),
    ("lp_fft.relation", "lp_fft.accountant"),
    ("dp_sgld", "dp_sgld"),
    ("feature_learning.links", "feature_learning.base"),
    ("feature_learning.base", "feature_learning"),
    ("kl_privacy.inits", "kl_privacy.lr"),
    ("max_information.certificates.sets", "max_information.agreement.set"),
    ("max_information.kappa.axes", "max_information.kappa.base.m"),
    ("max_information.certificates.sets", "max_information.certificates.sets"),
)


def outcome(config, changed):
    """None if the config makes a run; else the refusal, whose words are looked at."""
    try:
        evaluate(validate(focused(config, {path[0] for path in changed})))
    except InputError as error:
        named = error.where
        text = str(error)
        assert text.isprintable(), f"not printable | {text!r} {changed}"
        assert len(text) < 2000, f"long | {named} {len(text)} {changed}"
        assert any(related(place, named) for place in map(dotted, changed)), (
            f"unrelated {named} | {text} {changed}"
        )
        return error
    return None


def focused(config, reached):
    """The config with the papers switched off that no change can reach, to save time."""
    if not reached <= set(PAPERS):
        return config
    off = {
        key: {**config[key], "enabled": False}
        for key in PAPERS
        if key not in reached and isinstance(config.get(key), dict)
    }
    return {**config, **off}


def dotted(path):
    return ".".join(map(str, path))


def related(changed, named):
    """Whether `named` is the changed key, lies above or beside it, or refers to it."""
    # What a data set has bounds numbers beside it.
    beside = changed.rpartition(".")[0].removesuffix(".data")
    return (
        named == "config"
        or within(named, changed)
        or within(changed, named)
        or (beside and within(named, beside))
        or any(within(changed, ours) and within(named, theirs) for ours, theirs in REFERENCES)
    )


def within(path, folder):
    return not folder or path == folder or path.startswith(f"{folder}.")


def check_many(seed, count):
    """So many wrong configs, the same ones for a seed.

    Hypothesis would also take its examples from constants of whatever modules are loaded.
    """
    draws = random.Random(seed)
    kinds = set()
    for _ in range(count):
        tier, config, changed = mutate(draws.choice)
        try:
            kinds.add(outcome(config, changed) is None)
        except Exception as error:
            error.add_note(f"tier {tier}, changed: {changed}")
            raise
    assert kinds == {True, False}


@pytest.mark.slow
def test_a_changed_config_makes_a_run_or_is_refused_in_one_line_that_names_the_key():
    check_many(seed=1, count=400)


def test_the_shipped_configs_make_a_run():
    for tier in bases():
        assert outcome(copied(base(tier)), [("tier",)]) is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a: &a [*a]", "levels"),
        ("tier: {x: &x {y: *x}}", "levels"),
        ("seed: 1\nseed: 2", 'wrong.yaml, line 2: found duplicate key "seed"'),
        ("pretrain: {5: 1}", "5 (int) as a key"),
        (f"seed: 0x{'f' * 5000}", "20000 bits"),
        ("seed: !!timestamp x", "line 1: found failed to construct timestamp"),
        ("seed: !!bool x", "wrong.yaml: found no YAML: 'x'"),
        ("seed: 1\nseed: !!python/object/apply:os.system ['touch PWNED']", "line 2: found could"),
        ("seed: 1\na: b: c", "wrong.yaml, line 2: found mapping values are not allowed"),
        ("\x00", "no YAML"),
        ("", "a YAML file with keys"),
        ("[" * 3000, "allowed: YAML 1.2"),
        ("data: {root: ~nobody-at-all/x}", "no such folder"),
        ('"a\\e[31m\\nb": 1', "a key that does not exist"),
    ],
)
def test_a_text_that_is_no_config_is_refused_in_one_line(text, word, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        evaluate(load_config([path]))
    assert word in str(refused.value)
    assert str(refused.value).isprintable()


def test_aliases_of_aliases_are_refused_before_they_fill_the_memory(tmp_path):
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for above, name in itertools.pairwise("abcdefghij"):
        lines.append(f"{name}: &{name} [{', '.join([f'*{above}'] * 10)}]")
    path = tmp_path / "aliases.yaml"
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match="values"):
        load_config([path])


@pytest.mark.smoke
def test_snakemake_ends_with_the_same_line_and_exit_code_2(checkout):
    (checkout.folder / "wrong.yaml").write_text("pretrain: {train: [strokes-s]}\n")
    line = checkout.refusal("-n", "--configfile", "wrong.yaml")
    assert line.startswith("dpatlas: pretrain.transfer.backbones.1: found ")
