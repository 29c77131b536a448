"""Models of other packages, and ways in which people write their own: small, with random weights.

`CASES` is what docs/models.md shows and tests/privacy/test_models_elsewhere.py trains. Nothing is
downloaded: every model is made from its configuration.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dpatlas.privacy.losses import TokenCrossEntropy, cross_entropy

CLASSES, WORDS, LENGTH = 5, 50, 12


class Made(NamedTuple):
    """A model, and a batch of records as its training takes it."""

    model: nn.Module
    x: Any
    labels: Any
    loss: Callable[..., Tensor] = cross_entropy


@dataclass(frozen=True)
class Case:
    """A model by its name in docs/models.md; `make` takes a number of records.

    package: what it is from, if not torch alone. use: how to train it, if not as it comes.
    """

    name: str
    make: Callable[[int], Made]
    package: str = ""
    use: str = ""

    @property
    def installed(self) -> bool:
        """Whether its package can be imported."""
        return all(map(has, self.package.split()))


def has(package: str) -> bool:
    """Whether a package can be imported."""
    return importlib.util.find_spec(package) is not None


CASES: list[Case] = []


def case(
    name: str, package: str = "", use: str = ""
) -> Callable[[Callable[[int], Made]], Callable[[int], Made]]:
    """Adds the function below to `CASES`."""

    def add(make: Callable[[int], Made]) -> Callable[[int], Made]:
        CASES.append(Case(name, make, package, use))
        return make

    return add


def numbers(*shape: int) -> Tensor:
    """Standard normal ones."""
    return torch.randn(*shape)


def classes(rows: int, count: int = CLASSES) -> Tensor:
    """A label a record."""
    return torch.randint(0, count, (rows,))


def words(rows: int, length: int = LENGTH) -> dict[str, Tensor]:
    """Token ids, padded at the end to various lengths, with their mask."""
    ids = torch.randint(3, WORDS, (rows, length))
    lengths = torch.randint(length // 2, length + 1, (rows, 1))
    mask = (torch.arange(length) < lengths).long()
    return {"input_ids": ids * mask + (1 - mask), "attention_mask": mask}


@dataclass
class GPTConfig:
    """As nanoGPT's: an object of a class of one's own, which every module holds."""

    block_size: int = LENGTH
    vocab_size: int = WORDS
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 32
    dropout: float = 0.1
    extra: dict[str, Any] = field(default_factory=dict)


class Block(nn.Module):
    """A block of nanoGPT, with fused causal attention and dropout."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        width = config.n_embd
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        heads = self.config.n_head
        q, k, v = (
            part.view(rows, length, heads, width // heads).transpose(1, 2)
            for part in self.c_attn(self.ln_1(x)).split(width, dim=2)
        )
        dropped = self.config.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropped, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(rows, length, width)
        x = x + self.dropout(self.c_proj(y))
        return x + self.dropout(self.mlp(self.ln_2(x)))


class NanoGPT(nn.Module):
    """nanoGPT's way: tied weights, positions by arange, the loss made by the model."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        assert ids.size(1) <= self.config.block_size
        positions = torch.arange(ids.size(1), dtype=torch.long, device=ids.device)
        x = self.wte(ids) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
            )
        return logits, loss


@case(
    "nanoGPT (config object, tied weights, dropout)",
    use="`x=(ids, targets)`, `loss=lambda output, _: output[1]`",
)
def nano_gpt(rows: int) -> Made:
    ids = torch.randint(0, WORDS, (rows, LENGTH + 1))
    x = (ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
    return Made(NanoGPT(GPTConfig()), x, None, lambda output, _: output[1])


class TwoHeads(nn.Module):
    """Two heads in one output."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 32), nn.ReLU())
        self.kind, self.size = nn.Linear(32, CLASSES), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        features = self.body(x)
        return {"kind": self.kind(features), "size": self.size(features)}


@case(
    "two heads, targets in a dict",
    use="the loss takes both dicts",
)
def two_heads(rows: int) -> Made:
    def loss(output: dict[str, Tensor], target: dict[str, Tensor]) -> Tensor:
        kinds = F.cross_entropy(output["kind"], target["kind"], reduction="none")
        return kinds + (output["size"][:, 0] - target["size"]).square()

    return Made(TwoHeads(), numbers(rows, 20), {"kind": classes(rows), "size": numbers(rows)}, loss)


class Months(nn.Module):
    """Codes from 1, a table of them, one-hot inputs, and numbers; two heads in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.month = nn.Embedding(12, 8)
        self.body = nn.Linear(8 + 7 + 3, 32)
        self.head = nn.Linear(32, CLASSES + 1)

    def forward(self, month: Tensor, day: Tensor, x: Tensor) -> Tensor:
        day = F.one_hot(day - 1, 7).to(x.dtype)
        return self.head(torch.relu(self.body(torch.cat([self.month(month - 1), day, x], 1))))


@case(
    "months and codes from 1, one-hot inputs",
    use="`F.one_hot(x, classes)`",
)
def months(rows: int) -> Made:
    def loss(output: Tensor, target: tuple[Tensor, Tensor]) -> Tensor:
        kinds = F.cross_entropy(output[:, :-1], target[0], reduction="none")
        return kinds + (output[:, -1] - target[1]).abs()

    x = torch.randint(1, 13, (rows,)), torch.randint(1, 8, (rows,)), numbers(rows, 3)
    return Made(Months(), x, (classes(rows), numbers(rows)), loss)


class TrueLengths(nn.Module):
    """A GRU over padded sequences, of whose outputs the mean up to the true length is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, 16, padding_idx=0)
        self.gru = nn.GRU(16, 16, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        out, _ = self.gru(self.table(ids))
        mask = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]).unsqueeze(2)
        return self.head((out * mask).sum(1) / lengths[:, None])


@case(
    "GRU, sequences of true lengths with a mask",
    use="lengths as an input, the mask from `torch.arange`",
)
def true_lengths(rows: int) -> Made:
    lengths = torch.randint(3, LENGTH + 1, (rows,))
    ids = torch.randint(1, WORDS, (rows, LENGTH)) * (torch.arange(LENGTH) < lengths[:, None])
    return Made(TrueLengths(), (ids, lengths), classes(rows))


class Recurrent(nn.Module):
    """A recurrent layer, of whose outputs the last one is read."""

    def __init__(self, kind: type[nn.RNNBase], **settings: Any):
        super().__init__()
        self.table = nn.Embedding(WORDS, 16)
        self.layers = kind(16, 24, batch_first=True, **settings)
        self.head = nn.Linear(24 * (1 + self.layers.bidirectional), CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layers(self.table(ids))[0][:, -1])


@case("LSTM, two layers with dropout")
def lstm(rows: int) -> Made:
    ids = torch.randint(0, WORDS, (rows, LENGTH))
    return Made(Recurrent(nn.LSTM, num_layers=2, dropout=0.2), ids, classes(rows))


class Projected(Recurrent):
    def __init__(self) -> None:
        super().__init__(nn.LSTM, proj_size=12, bidirectional=True)
        self.head = nn.Linear(24, CLASSES)


@case("LSTM, both ways, with projections")
def lstm_both_ways(rows: int) -> Made:
    return Made(Projected(), torch.randint(0, WORDS, (rows, LENGTH)), classes(rows))


@case("RNN (tanh)")
def rnn(rows: int) -> Made:
    return Made(Recurrent(nn.RNN), torch.randint(0, WORDS, (rows, LENGTH)), classes(rows))


def convolutions(wrap: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """A small network, each layer of which is wrapped."""
    return nn.Sequential(
        wrap(nn.Conv2d(3, 8, 3, padding=1)),
        nn.ReLU(),
        wrap(nn.Conv2d(8, 16, 3, stride=2)),
        nn.ReLU(),
        nn.Flatten(),
        wrap(nn.Linear(16 * 9, CLASSES)),
    )


@case(
    "spectral norm (parametrizations)",
    use="these weights are copied for every record",
)
def spectral_norm(rows: int) -> Made:
    model = convolutions(nn.utils.parametrizations.spectral_norm)
    return Made(model, numbers(rows, 3, 8, 8), classes(rows))


@case("spectral norm (hooks)", use="as above")
def spectral_norm_hooks(rows: int) -> Made:
    return Made(convolutions(nn.utils.spectral_norm), numbers(rows, 3, 8, 8), classes(rows))


@case("weight norm (parametrizations)", use="as above")
def weight_norm(rows: int) -> Made:
    model = convolutions(nn.utils.parametrizations.weight_norm)
    return Made(model, numbers(rows, 3, 8, 8), classes(rows))


@case("weight norm (hooks)", use="as above")
def weight_norm_hooks(rows: int) -> Made:
    return Made(convolutions(nn.utils.weight_norm), numbers(rows, 3, 8, 8), classes(rows))


class Counter(nn.Module):
    """Counts its calls in a buffer and reads the count."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(20, CLASSES)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x) / (1 + 0.1 * self.calls)


@case("a counter in a buffer", use="no record may move the buffer")
def counter(rows: int) -> Made:
    return Made(Counter(), numbers(rows, 20), classes(rows))


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.EmbeddingBag(WORDS, 16, padding_idx=0)
        self.sum = nn.EmbeddingBag(WORDS, 16, mode="sum")
        self.head = nn.Linear(32, CLASSES)

    def forward(self, ids: Tensor, weights: Tensor) -> Tensor:
        both = self.mean(ids), self.sum(ids, per_sample_weights=weights)
        return self.head(torch.cat(both, 1))


@case("EmbeddingBag (sum, mean, weights a word)", use="rows of indices, without offsets")
def embedding_bag(rows: int) -> Made:
    x = torch.randint(0, WORDS, (rows, LENGTH)), numbers(rows, LENGTH)
    return Made(Bags(), x, classes(rows))


class Encoder(nn.Module):
    """torch's encoder with a mask of padding, and position ids of shape [1, L]."""

    def __init__(self, dropout: float = 0.1):
        super().__init__()
        self.table, self.places = nn.Embedding(WORDS, 32), nn.Embedding(LENGTH, 32)
        self.register_buffer("position_ids", torch.arange(LENGTH).expand((1, -1)))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) + self.places(self.position_ids[:, : ids.shape[1]])
        return self.head(self.encoder(x, src_key_padding_mask=ids == 1)[:, 0])


@case("TransformerEncoder with padding, position ids [1, L]")
def encoder(rows: int) -> Made:
    return Made(Encoder(), words(rows)["input_ids"], classes(rows))


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True, kdim=20, vdim=20)
        self.query = nn.Parameter(torch.randn(1, 1, 16))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        query = self.query.expand(len(x), -1, -1)
        out, _ = self.attention(query, x, x, key_padding_mask=padding)
        return self.head(out[:, 0])


@case("MultiheadAttention with a mask of padding")
def attention(rows: int) -> Made:
    padding = torch.arange(LENGTH) >= torch.randint(3, LENGTH + 1, (rows, 1))
    return Made(Pooled(), (numbers(rows, LENGTH, 20), padding), classes(rows))


class UNet(nn.Module):
    """Down, up and across."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.norm, self.out = nn.GroupNorm(4, 16), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        high = F.relu(self.down1(x))
        low = F.relu(self.down2(F.max_pool2d(high, 2)))
        wide = F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)
        joined = torch.cat([high + wide[:, :8], self.up(low)], 1)
        return self.out(self.norm(joined))


@case("U-Net (segmentation)", use="the mean over a record's own pixels")
def u_net(rows: int) -> Made:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target, reduction="none").mean((1, 2))

    return Made(UNet(), numbers(rows, 3, 16, 16), torch.randint(0, 3, (rows, 16, 16)), loss)


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 16))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return F.pairwise_distance(self.body(left), self.body(right))


@case("siamese network (pairs)", use="a pair is one record: `x=(left, right)`")
def siamese(rows: int) -> Made:
    def loss(distance: Tensor, same: Tensor) -> Tensor:
        return torch.where(same, distance.square(), F.relu(4 - distance).square())

    x = numbers(rows, 1, 8, 8), numbers(rows, 1, 8, 8)
    return Made(Siamese(), x, torch.rand(rows) < 0.5, loss)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Bilinear(6, 7, CLASSES)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.layer(left, right)


@case("Bilinear")
def bilinear(rows: int) -> Made:
    return Made(Two(), (numbers(rows, 6), numbers(rows, 7)), classes(rows))


class Spectrum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.head = nn.Linear(32, 32), nn.Linear(17, CLASSES)
        self.filter = nn.Parameter(torch.randn(17, 2))

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(self.before(x)) * torch.view_as_complex(self.filter)
        back = torch.fft.irfft(spectrum, n=32)
        return self.head(spectrum.abs() + back[:, :17])


@case("complex numbers (fft) inside")
def fourier(rows: int) -> Made:
    return Made(Spectrum(), numbers(rows, 32), classes(rows))


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 32))
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(self.body, x, use_reentrant=False))


@case(
    "checkpoint(use_reentrant=False)",
    use="stores what a step needs",
)
def checkpointed(rows: int) -> Made:
    return Made(Checkpointed(), numbers(rows, 20), classes(rows))


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from torchvision.ops import StochasticDepth

        self.layers = nn.ModuleList([nn.Linear(20, 20) for _ in range(4)])
        self.depth, self.dropout = StochasticDepth(0.3, "row"), nn.Dropout(0.2)
        self.head = nn.Linear(20, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + self.depth(self.dropout(F.silu(layer(x))))
        return self.head(F.alpha_dropout(x, 0.1, self.training))


@case(
    "dropout and stochastic depth (torchvision)",
    "torchvision",
    use="training mode",
)
def stochastic_depth(rows: int) -> Made:
    return Made(Deep(), numbers(rows, 20), classes(rows))


@case("ResNet18, GroupNorm", "torchvision", use="`to_group_norm(model)`")
def resnet18(rows: int) -> Made:
    from torchvision.models import resnet18

    model = resnet18(num_classes=CLASSES, norm_layer=lambda width: nn.GroupNorm(32, width))
    return Made(model, numbers(rows, 3, 32, 32), classes(rows))


def timm_model(rows: int, name: str, size: int = 32, frozen: bool = False, **settings: Any) -> Made:
    """One of timm's by its name; frozen: with BatchNorm in evaluation mode."""
    import timm

    model = timm.create_model(name, num_classes=CLASSES, **settings).train()
    if frozen:
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
    return Made(model, numbers(rows, 3, size, size), classes(rows))


VIT = dict(img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=3)


@case("ViT", "timm", use="with drop_path and dropout")
def timm_vit(rows: int) -> Made:
    return timm_model(rows, "vit_tiny_patch16_224", drop_path_rate=0.1, proj_drop_rate=0.1, **VIT)


@case("DeiT (distilled)", "timm")
def timm_deit(rows: int) -> Made:
    return timm_model(rows, "deit_tiny_distilled_patch16_224", **VIT)


@case("ConvNeXt", "timm", use="with drop_path")
def timm_convnext(rows: int) -> Made:
    sizes = dict(depths=(1, 1, 2, 1), dims=(16, 32, 48, 64))
    return timm_model(rows, "convnext_atto", drop_path_rate=0.1, **sizes)


@case(
    "BiT (ResNetV2, standardised weights)",
    "timm",
    use="weights copied for every record, one layer at a time",
)
def timm_bit(rows: int) -> Made:
    from timm.layers import StdConv2d
    from timm.models.resnetv2 import ResNetV2

    model = ResNetV2(
        (1, 1, 1, 1),
        (128, 128, 256, 256),
        CLASSES,
        stem_chs=32,
        stem_type="fixed",
        conv_layer=partial(StdConv2d, eps=1e-8),
        drop_path_rate=0.1,
    )
    return Made(model.train(), numbers(rows, 3, 64, 64), classes(rows))


@case("NF-ResNet (scaled, standardised weights)", "timm", use="as BiT")
def timm_nf_resnet(rows: int) -> Made:
    return timm_model(
        rows, "nf_resnet26", depths=(1, 1, 1, 1), channels=(32, 64, 64, 64), stem_chs=32
    )


@case("Swin", "timm")
def timm_swin(rows: int) -> Made:
    sizes = dict(
        img_size=32, patch_size=2, window_size=4, embed_dim=16, depths=(2, 2), num_heads=(2, 4)
    )
    return timm_model(rows, "swin_tiny_patch4_window7_224", drop_path_rate=0.1, **sizes)


@case("EfficientNet-B0, BatchNorm frozen", "timm", use="BatchNorm in evaluation mode")
def timm_efficientnet(rows: int) -> Made:
    return timm_model(rows, "efficientnet_b0", frozen=True, drop_path_rate=0.1)


@case("MobileNetV3, BatchNorm frozen", "timm", use="BatchNorm in evaluation mode")
def timm_mobilenet(rows: int) -> Made:
    return timm_model(rows, "mobilenetv3_small_050", frozen=True)


def encoder_config(kind: Any, **settings: Any) -> Any:
    """Sizes that most of Hugging Face's configurations name alike."""
    sizes = dict(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=CLASSES,
        pad_token_id=1,
    )
    return kind(**{**sizes, **settings})


def bert_model(**settings: Any) -> nn.Module:
    """A classifier; settings: other sizes."""
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(encoder_config(BertConfig, **settings)).train()


@case(
    "BERT",
    "transformers",
    use="`x={'input_ids': ..., 'attention_mask': ...}`, labels beside it",
)
def hf_bert(rows: int) -> Made:
    return Made(bert_model(), words(rows), classes(rows))


@case(
    "BERT with labels in its batch, the loss of its output",
    "transformers",
    use="`x={..., 'labels': ...}`, `loss=lambda output, _: output.loss`",
)
def hf_bert_own_loss(rows: int) -> Made:
    x = {**words(rows), "labels": classes(rows)}
    return Made(bert_model(), x, None, lambda output, _: output.loss)


@case(
    "BERT with a masked-word head",
    "transformers",
    use="`TokenCrossEntropy()`; tied weights are one parameter",
)
def hf_bert_words(rows: int) -> Made:
    from transformers import BertConfig, BertForMaskedLM

    x = words(rows)
    labels = torch.where(torch.rand(rows, LENGTH) < 0.3, x["input_ids"], -100)
    model = BertForMaskedLM(encoder_config(BertConfig)).train()
    return Made(model, x, labels, TokenCrossEntropy())


@case("RoBERTa", "transformers", use="as BERT")
def hf_roberta(rows: int) -> Made:
    from transformers import RobertaConfig, RobertaForSequenceClassification

    model = RobertaForSequenceClassification(encoder_config(RobertaConfig)).train()
    return Made(model, words(rows), classes(rows))


@case("DistilBERT", "transformers", use="as BERT")
def hf_distilbert(rows: int) -> Made:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(
        vocab_size=WORDS,
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=64,
        num_labels=CLASSES,
        max_position_embeddings=32,
    )
    return Made(DistilBertForSequenceClassification(config).train(), words(rows), classes(rows))


def llama_config(**settings: Any) -> Any:
    """A small one."""
    from transformers import LlamaConfig

    return encoder_config(LlamaConfig, num_key_value_heads=2, **settings)


@case("Llama, language model", "transformers", use="`TokenCrossEntropy()` of labels one word ahead")
def hf_llama(rows: int) -> Made:
    from transformers import LlamaForCausalLM

    x = words(rows)
    labels = torch.where(x["attention_mask"] == 1, x["input_ids"], -100).roll(-1, 1)
    return Made(LlamaForCausalLM(llama_config()).train(), x, labels, TokenCrossEntropy())


def gpt2_config(**settings: Any) -> Any:
    """A small one."""
    from transformers import GPT2Config

    return GPT2Config(
        vocab_size=WORDS,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=4,
        num_labels=CLASSES,
        pad_token_id=1,
        **settings,
    )


@case("GPT-2, language model", "transformers", use="as Llama")
def hf_gpt2(rows: int) -> Made:
    from transformers import GPT2LMHeadModel

    x = words(rows)
    labels = torch.where(x["attention_mask"] == 1, x["input_ids"], -100).roll(-1, 1)
    return Made(GPT2LMHeadModel(gpt2_config()).train(), x, labels, TokenCrossEntropy())


@case("ViT of Hugging Face", "transformers")
def hf_vit(rows: int) -> Made:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=16,
        patch_size=4,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        num_labels=CLASSES,
        hidden_dropout_prob=0.1,
    )
    return Made(
        ViTForImageClassification(config).train(),
        {"pixel_values": numbers(rows, 3, 16, 16)},
        classes(rows),
    )


def with_peft(model: nn.Module, task: str, targets: list[str], **settings: Any) -> nn.Module:
    """peft's LoRA on the layers named, with its B away from zero so that A has a gradient."""
    from peft import LoraConfig, TaskType, get_peft_model

    config = LoraConfig(
        task_type=TaskType[task] if task else None,
        r=4,
        lora_alpha=8,
        lora_dropout=0.1,
        target_modules=targets,
        **settings,
    )
    adapted = get_peft_model(model, config).train()
    for name, value in adapted.named_parameters():
        if "lora_B" in name or "lora_embedding_B" in name:
            nn.init.normal_(value, std=0.1)
    return adapted


@case("LoRA (peft) on BERT", "peft transformers", use="`get_peft_model(model, config)`")
def peft_bert(rows: int) -> Made:
    model = with_peft(bert_model(), "SEQ_CLS", ["query", "value"])
    return Made(model, words(rows), classes(rows))


@case("LoRA (peft) on RoBERTa", "peft transformers", use="as above")
def peft_roberta(rows: int) -> Made:
    made = hf_roberta(rows)
    return made._replace(model=with_peft(made.model, "SEQ_CLS", ["query", "value"]))


@case("LoRA (peft) on DistilBERT", "peft transformers", use="as above")
def peft_distilbert(rows: int) -> Made:
    made = hf_distilbert(rows)
    return made._replace(model=with_peft(made.model, "SEQ_CLS", ["q_lin", "v_lin"]))


@case("LoRA (peft) on Llama", "peft transformers", use="as above")
def peft_llama(rows: int) -> Made:
    made = hf_llama(rows)
    return made._replace(model=with_peft(made.model, "CAUSAL_LM", ["q_proj", "v_proj"]))


@case("LoRA (peft) on GPT-2", "peft transformers", use="as above, with `fan_in_fan_out=True`")
def peft_gpt2(rows: int) -> Made:
    made = hf_gpt2(rows)
    model = with_peft(made.model, "CAUSAL_LM", ["c_attn"], fan_in_fan_out=True)
    return made._replace(model=model)


@case("LoRA (peft) on ViT", "peft transformers", use="as above")
def peft_vit(rows: int) -> Made:
    made = hf_vit(rows)
    targets = (
        ["query", "value"]
        if any(n.endswith("query") for n, _ in made.model.named_modules())
        else ["q_proj", "v_proj"]
    )
    return made._replace(model=with_peft(made.model, "", targets, modules_to_save=["classifier"]))


def bert_base(rows: int) -> Made:
    """BERT-base with LoRA."""
    sizes = dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12)
    model = bert_model(vocab_size=30522, intermediate_size=3072, **sizes)
    return Made(with_peft(model, "SEQ_CLS", ["query", "value"]), words(rows, 32), classes(rows))


# At their own size: measured, and not trained by the tests.
LARGE = [
    Case("BERT-base (12 layers) with LoRA (peft)", bert_base, "peft transformers"),
]
