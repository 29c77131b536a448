"""A trained model as a folder: weights without pickle, the ledger, and a card in words.

    training.save("model")

    model = build_it_again()
    ledger = load_weights("model", model)

The folder appears whole or not at all. It is for release: it holds the weights that the ledger
speaks of, and nothing of checkpoints, which hold the noise's secret.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from dpatlas.base.files import read_json, replacing_folder, write_atomic, write_json
from dpatlas.base.rounding import rounded_up
from dpatlas.errors import InputError
from dpatlas.models.build import build
from dpatlas.privacy.digest import content_of

WEIGHTS, LEDGER, CONFIG, CARD = "model.safetensors", "ledger.json", "config.json", "README.md"
# Characters of a setting that the card shows.
LONGEST_SETTING = 200
# Fields of a config from which `load_model` builds one of this package's networks.
BUILT = ("network", "image_shape", "outputs")
# For each parameter, its version (a list of one number) after its latest private step or loading.
_trained_versions: WeakIdKeyDictionary = WeakIdKeyDictionary()
# Digests of values that trainings left.
_left: set[str] = set()


def save_model(
    folder: Path | str,
    weights: Mapping[str, Tensor],
    ledger: Mapping[str, Any],
    *,
    settings: Mapping[str, Any],
    config: Mapping[str, Any] | None = None,
    data: str | None = None,
    accuracy: str | None = None,
    replace: bool = False,
) -> None:
    """Write the folder of a model: weights by name, ledger, config where there is one, and card.

    settings: of the training, for the card. data: name of the data. accuracy: in words, with what
    it was measured on. Raises InputError for a folder that has files, unless `replace`.
    """
    from safetensors.torch import save

    folder = Path(folder)
    if folder.is_file() or (not replace and folder.is_dir() and any(folder.iterdir())):
        raise InputError("folder", f"{folder}, which exists", "a new folder, or replace=True")
    # Copies: the format refuses tensors that share memory.
    copied = {name: value.detach().cpu().clone().contiguous() for name, value in weights.items()}
    content = save(copied, metadata={"format": "pt"})
    with replacing_folder(folder) as fresh:
        write_atomic(fresh / WEIGHTS, content)
        write_json(fresh / LEDGER, ledger)
        if config is not None:
            write_json(fresh / CONFIG, config)
        write_atomic(fresh / CARD, model_card(ledger, settings, config, data, accuracy))


def load_weights(folder: Path | str, model: nn.Module) -> dict[str, Any]:
    """Load the weights of a saved model into `model`, and return the ledger.

    Raises InputError for a folder without them and for weights of another model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(folder) / WEIGHTS
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(str(path), str(error), "weights that were saved") from None
    shapes, others = (
        {name: tuple(value.shape) for name, value in each.items()}
        for each in (model.state_dict(), weights)
    )
    for name in sorted(shapes.keys() | others.keys()):
        if shapes.get(name) != others.get(name):
            found = f"{name} of shape {others.get(name, 'none')}"
            raise InputError(str(path), found, f"{shapes.get(name, 'none')}, as the model has it")
    model.load_state_dict(weights)
    mark_trained(marks_of(model.parameters()))
    remember_values(model.parameters())
    ledger: dict[str, Any] = read_json(Path(folder) / LEDGER)
    return ledger


def marks_of(parameters: Iterable[nn.Parameter]) -> list[tuple[nn.Parameter, list[int]]]:
    """Each parameter with its mark, so that a step of `mark_trained` looks nothing up."""
    return [(value, _trained_versions.setdefault(value, [])) for value in parameters]


def mark_trained(marks: Iterable[tuple[nn.Parameter, list[int]]]) -> None:
    """Note that the present values of these parameters come from a private training."""
    for value, mark in marks:
        mark[:] = [value._version]


def are_trained(parameters: Iterable[nn.Parameter], copies: bool = True) -> bool:
    """Whether any parameter still has the values that a private training gave it.

    Also those of a parameter that it trained and that is still there, or had when a run ended or
    was saved: so `copies` are known, made in whatever way. Parameters made in inference mode have
    no version; they have no mark, which is asked first.
    """
    parameters = list(parameters)
    if any(mark and mark == [value._version] for value, mark in marks_of(parameters)):
        return True
    if not copies:
        return False
    left = [
        value
        for value, mark in list(_trained_versions.items())
        if mark and mark == [value._version]
    ]
    return any(
        content_of(value) in _left or any(_same(value, other) for other in left)
        for value in parameters
        if _tells(value)
    )


def remember_values(parameters: Iterable[Tensor]) -> None:
    """Note that a private training left these values."""
    _left.update(content_of(value) for value in parameters if _tells(value))


def _tells(value: Tensor) -> bool:
    """Whether nobody would come to the same values by accident: unlike zeros or ones."""
    flat = value.detach().reshape(-1)
    return len(flat) > 3 and bool((flat != flat[0]).any())


def _same(value: Tensor, other: Tensor) -> bool:
    alike = value.shape == other.shape and value.device == other.device
    return alike and torch.equal(value.detach(), other.detach())


def load_model(folder: Path | str) -> nn.Module:
    """The saved model, in evaluation mode, where it is one of this package's networks.

    That is what `python -m dpatlas train` saves. Raises InputError for any other: build it, and
    then `load_weights`.
    """
    path = Path(folder) / CONFIG
    config = read_json(path)
    if not isinstance(config, dict) or not set(BUILT) <= set(config):
        allowed = f"{', '.join(BUILT)}; for another model, load_weights(folder, model)"
        raise InputError(str(path), "no network of this package", allowed)
    network, shape, outputs = (config[name] for name in BUILT)
    model = build(network, shape, outputs, key="saved", run=0, base_seed=0)
    load_weights(folder, model)
    return model.eval()


def model_card(
    ledger: Mapping[str, Any],
    settings: Mapping[str, Any],
    config: Mapping[str, Any] | None,
    data: str | None,
    accuracy: str | None,
) -> str:
    """The card in Markdown: the guarantee in words, what it does not cover, and the settings."""
    lines = ["# A model trained by dp-atlas", "", *_guarantee(ledger), "", "## What was done", ""]
    taken = {
        "data": data or "not named",
        "training": ledger["mechanism"],
        "released": ledger["holds_for"].rpartition("released: ")[2],
        "accuracy": accuracy or "not given",
        **{name: ledger[name] for name in ("sampler", "steps", "noise_multiplier", "clip")},
        "accountant": f"{ledger['accountant'].upper()}; cross-check {ledger['cross_check']}",
        **settings,
    }
    lines += ["| what | value |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in taken.items()]
    load = "ledger = load_weights(FOLDER, model)"
    if config is not None and set(BUILT) <= set(config):
        load = "model = load_model(FOLDER)"
    lines += ["", "## Use it", "", "```python"]
    lines += [f"from dpatlas.privacy import {load.split(' = ')[1].split('(')[0]}", "", load, "```"]
    lines += ["", f"`{WEIGHTS}` holds the weights, `{LEDGER}` the whole privacy ledger."]
    return "\n".join(lines) + "\n"


def _guarantee(ledger: Mapping[str, Any]) -> list[str]:
    """What is guaranteed, for what, and what is not."""
    if ledger["epsilon"] is None:
        return [
            "## No privacy guarantee",
            "",
            f"This model is **not private**: {ledger['guaranteed']}. Its weights may reveal the "
            "records that it was trained on.",
        ]
    epsilon, delta = ledger["epsilon"], ledger["delta"]
    unit = "person" if "unit" in ledger else "record"
    # Any factor above this one says nothing that a reader could use.
    factor = rounded_up(math.exp(epsilon), 3) if epsilon < 50 else "e^epsilon"
    chosen = ledger["chosen_on_private_data"]
    listed = chosen if isinstance(chosen, list) else [{"what": "no setting", "cost": chosen}]
    lines = [
        "## Guarantee",
        "",
        f"**Differentially private per {unit}: {ledger['guaranteed']}.**",
        "",
        f"Two data sets are neighbours if they differ in one {unit}: {ledger['neighbour_relation']}"
        ". For any such two, and for whatever is done with these weights, the probabilities of any "
        f"outcome differ by a factor of at most {factor} (e to the epsilon), but for a probability "
        f"of delta = {rounded_up(delta)}. It holds for {ledger['holds_for']}.",
        "",
        "It does not cover",
        "",
        *(f"- how settings were chosen: {each['what']}; cost: {each['cost']};" for each in listed),
        "- further releases from the same data: their epsilons add up, and their deltas;",
        "- what was computed from the records before training: means that they are standardised "
        "by, class weights, a vocabulary, earlier weights;",
        "- test records: an accuracy that is stated for them carries no noise;",
        f"- floating-point arithmetic: {ledger['floats']};",
    ]
    if unit == "person":
        lines.append(f"- {ledger['unit']['counts']}.")
    else:
        # Group privacy (Vadhan 2017, Lemma 2.2).
        lines.append(
            "- persons with several records: of k records of one, k epsilon holds at a delta of "
            "k e^((k - 1) epsilon) times this one; at this delta epsilon is larger, often by far."
        )
    if ledger["warnings"]:
        lines += ["", "Warnings", "", *(f"- {warning}." for warning in ledger["warnings"])]
    return lines


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    text = text.replace("|", "\\|").replace("\n", " ")
    return text if len(text) <= LONGEST_SETTING else f"{text[: LONGEST_SETTING - 4]} ..."
