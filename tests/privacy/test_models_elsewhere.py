"""Models from elsewhere (timm, transformers, peft) and one's own: they train, their sums are right.

Each is made anew and used as it comes. What a batch adds to the gradients must be what plain
autograd gives record by record, of three records and of one, clipped and unclipped.
"""

import re
import warnings
from pathlib import Path

import model_catalogue
import pytest
import torch
import torch.utils._pytree as pytree
from model_catalogue import CASES, LARGE, Case, Made
from reference_gradients import by_loop, clipped_sum, distance, norm_of, norms
from torch import Tensor

from dpatlas.accounting.samplers import FullBatch
from dpatlas.base.seeds import Noise
from dpatlas.privacy.per_record import NetworkGradients
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.trace import called
from dpatlas.privacy.training import PrivateTraining

pytestmark = pytest.mark.slow
RECORDS, TOLERANCE = 3, 1e-4
PAGE = Path(model_catalogue.__file__).parents[1] / "models.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


def each(case: Case):
    missing = f"{case.package} is not installed"
    mark = pytest.mark.skipif(not case.installed, reason=missing)
    return pytest.param(case, marks=mark, id=case.name)


def part(made: Made, start: int, stop: int) -> tuple:
    """Input and labels of some records."""
    return pytree.tree_map_only(Tensor, lambda rows: rows[start:stop], (made.x, made.labels))


def plain_losses(made: Made):
    """The loss of a record by plain calls, after which buffers are as before."""
    before = {name: value.clone() for name, value in made.model.named_buffers()}

    def loss(at: int) -> Tensor:
        x, labels = part(made, at, at + 1)
        value = made.loss(called(made.model, x), labels).sum()
        for name, buffer in made.model.named_buffers():
            buffer.data.copy_(before[name])
        return value

    return loss


def traced_losses(made: Made, kernel: NetworkGradients, draws: list[Tensor]):
    """The loss of a record by its graph, with these random numbers."""
    record = kernel.record

    def loss(at: int) -> Tensor:
        x, labels = part(made, at, at + 1)
        leaves = pytree.tree_leaves((x,) if labels is None else (x, labels))
        state = *record.parameters.values(), *record.buffers.values()
        return record.loss(*state, *leaves, *(rows[at] for rows in draws))

    return loss


def check_sums(made: Made) -> bool:
    """Compare sums of three records and of one with autograd's, for two clip bounds.

    Returns whether the network draws random numbers, which plain calls would draw differently: its
    graph's loss is differentiated in their place.
    """
    kernel = NetworkGradients(made.model, made.loss)
    record = kernel.trace(made.x, made.labels)
    draws = [
        (torch.rand if draw.kind == "uniform" else torch.randn)(RECORDS, *draw.shape)
        for draw in record.draws
    ]
    losses = traced_losses(made, kernel, draws) if draws else plain_losses(made)
    gradients = by_loop(made.model, map(losses, range(RECORDS)))
    # Half of them or so are clipped.
    median = float(norms(gradients).median())
    for rows in (RECORDS, 1):
        for clip in (1e6, median):
            sums = kernel.clipped_sum(
                *part(made, 0, rows), clip, draws=lambda start, stop: [v[start:stop] for v in draws]
            )
            expected = clipped_sum({n: value[:rows] for n, value in gradients.items()}, clip)
            apart = distance(expected, sums.gradients) / norm_of(expected)
            assert sums.skipped == 0 and apart < TOLERANCE, (rows, clip)
    return bool(draws)


@pytest.mark.parametrize("case", [*map(each, CASES)])
def test_the_sums_are_autograds_and_training_runs_at_its_first_try(case):
    torch.manual_seed(1)
    made = case.make(RECORDS)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if check_sums(made):
            made.model.eval()
            assert not check_sums(made)
        made = case.make(RECORDS)
        phase = TrainingPhase(FullBatch(RECORDS), 1.0, max_grad_norm=1.0, steps=2, lr=0.01)
        before = {n: value.detach().clone() for n, value in made.model.named_parameters()}
        training = PrivateTraining(
            made.model, [phase], made.x, made.labels, noise=Noise(), loss=made.loss
        )
        training.run()
    texts = [str(warning.message) for warning in said]
    assert not [text for text in texts if "batching rule" in text or "record by record" in text]
    assert training.skipped_records == 0
    for name, value in training.trained.items():
        assert torch.isfinite(value).all() and not torch.equal(value, before[name]), name


@pytest.mark.parametrize("case", [*map(each, LARGE)])
def test_a_model_of_full_size_is_traced(case):
    made = case.make(1)
    kernel = NetworkGradients(made.model, made.loss)
    kernel.trace(made.x, made.labels)
    assert kernel.clipped_sum(made.x, made.labels, 1.0).skipped == 0


@pytest.mark.skipif(not model_catalogue.has("transformers"), reason="transformers is not installed")
@pytest.mark.parametrize("kind", ["GPT2", "Llama"])
def test_a_classifier_that_reads_the_last_word_of_each_record(kind):
    import transformers

    config = model_catalogue.gpt2_config() if kind == "GPT2" else model_catalogue.llama_config()
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config).eval()
    check_sums(Made(model, model_catalogue.words(3), model_catalogue.classes(3)))


@pytest.mark.skipif(not model_catalogue.has("transformers"), reason="transformers is not installed")
def test_activation_checkpointing():
    model = model_catalogue.bert_model().eval()
    model.gradient_checkpointing_enable()
    check_sums(Made(model, model_catalogue.words(3), model_catalogue.classes(3)))


@pytest.mark.parametrize(
    "snippet, packages", zip(SNIPPETS, ("timm", "peft transformers"), strict=True)
)
def test_the_snippets_of_the_page_train_to_their_epsilon(snippet, packages, capsys):
    if not all(map(model_catalogue.has, packages.split())):
        pytest.skip(f"{packages} is not installed")
    exec(snippet, {})
    assert 7 < float(capsys.readouterr().out) <= 8
