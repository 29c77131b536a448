"""Jobs run what they are told and no more: no config text as a command, no file elsewhere."""

import hashlib
import json
import re
import shlex

import pytest
import yaml
from checkouts import SMOKE
from first_questions import evaluate

from dpatlas.base.environment import CACHES
from dpatlas.errors import InputError
from dpatlas_workflow.config.atlas import Atlas
from dpatlas_workflow.config.load import load_config, read_config

pytestmark = pytest.mark.smoke

HOSTILE = (
    "--x '; touch PWNED; $(touch PWNED) `touch PWNED` \"{wildcards.id} {id} %s \\ * ünï&|>PWNED"
)
# Where a run may write.
OURS = ("results/", ".snakemake/", "data/cache/", ".cache/")


def hostile_config(root):
    """The smoke tier with a hostile text wherever the config takes any text."""
    config = read_config([SMOKE])
    config["tier"] = "hostile"
    config["data"] |= {"root": root, "download": True, "mirrors": ["http://x/;touch$(PWNED)`'\""]}
    name = config["pretrain"]["train"][0]
    config["pretrain"]["backbones"][name]["declared_public"] = HOSTILE
    for arm in config["dp_sgld"]["finetune"][0]["unfreeze"]:
        arm["name"] = (arm["trainable"][0] + HOSTILE)[:40]
    config["dp_sgld"]["finetune"][0]["unfreeze"][0]["trainable"].append(HOSTILE)
    return config


def write_config(checkout, root):
    (checkout.folder / root).mkdir(exist_ok=True)
    path = checkout.folder / "hostile.yaml"
    path.write_text(yaml.safe_dump(hostile_config(root), allow_unicode=True))
    return "hostile.yaml"


def hostile_data(path, checkout):
    """Ids of the digits that a run of the config reads."""
    atlas = Atlas(load_config([checkout.folder / path]))
    return [name for name in atlas.data_sets if name.startswith("digits")][:1]


def commands(text):
    """Words of every shell command that a dry run prints."""
    ours = r"^Shell command: (python -m dpatlas(?:_workflow)?\..*)$"
    for line in re.findall(ours, text, re.MULTILINE):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        yield list(lexer)


def texts(value):
    """Every text in a JSON value."""
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, str):
        yield value
    elif not isinstance(value, int | float | None):
        for inner in value:
            yield from texts(inner)


def test_texts_of_the_config_reach_jobs_as_one_word_each(checkout):
    path = write_config(checkout, HOSTILE.replace("/", ""))
    result = checkout.snakemake("-n", "--printshellcmds", "--configfile", path)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    roots, mirrors, said = 0, 0, set()
    for words in commands(result.stdout):
        operators = [word for word in words if set(word) <= set("();<>|&")]
        assert operators in ([">"], [">", ">&"]), words
        roots += f"--data-root={HOSTILE}" in words
        mirrors += "http://x/;touch$(PWNED)`'\"" in words
        for option in ("--spec", "--options"):
            if option in words:
                said.update(texts(json.loads(words[words.index(option) + 1])))
    assert roots >= 2
    assert mirrors == roots
    assert HOSTILE in said
    assert any(text.startswith("head--x ';") for text in said)
    assert not list(checkout.folder.rglob("PWNED"))


@pytest.mark.parametrize("tier", [HOSTILE, "-x", "../x", "a\nb", "{id}", ""])
def test_a_tier_that_is_no_plain_name_is_refused(tmp_path, tier):
    path = tmp_path / "tier.yaml"
    path.write_text(yaml.safe_dump({"tier": tier}))
    with pytest.raises(InputError) as refused:
        evaluate(load_config([path]))
    assert refused.value.where == "tier"


def snapshot(folder):
    """Digest of every file below a folder that is not where a run may write."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith(OURS):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "figure",
    [
        "sgld_counterexample",
        # Data, a backbone, features, and what compiles and caches.
        "lpfft_umap",
    ],
)
def test_a_run_writes_to_its_own_folders_only_and_runs_no_text_of_the_config(
    fresh, tmp_path, figure
):
    path = write_config(fresh, HOSTILE.replace("/", ""))
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    fresh.environment |= {"HOME": str(home), "TMPDIR": str(temporary)}
    # All that is cached is this run's own.
    for name in CACHES:
        fresh.environment.pop(name, None)
    before = snapshot(fresh.folder)
    data = [f"results/hostile/data/{name}/manifest.json" for name in hostile_data(path, fresh)]
    result = fresh.snakemake(figure, *data, "--configfile", path)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert (fresh.folder / f"results/hostile/figures/{figure}.png").is_file()
    assert not list(fresh.folder.rglob("PWNED"))
    after = snapshot(fresh.folder)
    assert {name for name in after if not name.endswith(".pyc")} == set(before)
    assert {name: after[name] for name in before} == before
    assert not list(home.iterdir())
    assert not [file for file in temporary.rglob("*") if file.is_file()]
