"""Settings that cannot go together are refused in one line, by name, before any job."""

import json

import pytest
import yaml

from dpatlas.errors import InputError
from dpatlas_workflow.config.atlas import PAPERS, Atlas
from dpatlas_workflow.config.load import read_config, validate

CONFIG = json.dumps(read_config())
# By path what is changed, with a copy of the first entry for + in a list; how the message begins,
# or after ... what it has.
CASES = yaml.safe_load("""
- [{dp_sgld.accuracy.sets.0.batches: [128, 1151]},
   "dp_sgld.accuracy.sets.0.batches: found 1151; allowed: at most n_train = 1150"]
- [{dp_sgld.protocol.batch: 1001},
   "dp_sgld.protocol.sets.0.data.n_train: found 1000; allowed: >= 1001"]
- [{dp_sgld.protocol.readings.1.name: paper}, "dp_sgld.protocol.readings: found"]
- [{dp_sgld.accuracy.sets.0.backbone: resnet},
   "...sets.0.backbone: found 'resnet'; allowed: one of pretrain.train: strokes-s"]
- [{dp_sgld.accuracy.sets.2.backbone: null}, "dp_sgld.accuracy.sets.2.backbone: found none"]
- [{pretrain.backbones.published: {source: moco, model: moco-v2-resnet50, options: {},
                                  image_shape: [1, 8, 8], file: moco.pth.tar},
    pretrain.train.+: published, dp_sgld.accuracy.sets.0.backbone: published,
    dp_sgld.accuracy.sets.0.features: softmax},
   "dp_sgld.accuracy.sets.0.features: found softmax of published"]
- [{dp_sgld.enabled: true, pretrain.enabled: false}, "pretrain.enabled: found false"]
- [{dp_sgld.utility.batch: 2001}, "dp_sgld.utility.batch: found 2001"]
- [{dp_sgld.accuracy.grid.step_sizes: [1.0]}, "dp_sgld.accuracy.grid.step_sizes"]
- [{dp_sgld.utility.runs: 5, dp_sgld.utility.runs_per_job: 2},
   "dp_sgld.utility.runs: found 5; allowed: at most runs_"]
- [{dp_sgld.long_training.data.n_validation: 1}, "...n_validation of long-training-digits"]
- [{dp_sgld.finetune.0.relation: replace_one, dp_sgld.finetune.0.accountant: rdp},
   "dp_sgld.finetune.0.accountant: found rdp for Poisson batches under replace_one"]

- [{feature_learning.links.odd: [1, 1]},
   "feature_learning.links.odd: found [1.0, 1.0], whose mean under N(0, 1) is 1"]
- [{feature_learning.base.link: cubic},
   "feature_learning.base.link: found 'cubic'; allowed: one of mixed, odd, even"]
- [{feature_learning.base.n: 64}, "feature_learning.base: found n = 64 with d = 64; allowed: n > d"]
- [{feature_learning.sweeps.n: [1000, 60]},
   "feature_learning.sweeps.n.1: found n = 60 with d = 64"]
- [{feature_learning.table: [{p: 8, n: 3}]}, "feature_learning.table.0: found n = 3 with d = 64"]
- [{feature_learning.ladder.p_power: 2},
   "feature_learning.ladder.p_power: found 2.0; allowed: below 16 (n_power - 1) / 9"]
- [{feature_learning.ladder: {d: [2, 64], n_power: 1.1, p_power: 0.1}},
   "feature_learning.ladder.d.0: found n = 2 with"]
- [{feature_learning.runs: 15},
   "feature_learning.runs: found 15; allowed: at most runs_per_job = 6, or a multiple of it"]

- [{lp_fft.scenarios.0.strategies: [fft, lp-fft]},
   "lp_fft.scenarios.0.strategies: found lp-fft without lp; allowed: lp too"]
- [{lp_fft.scenarios.0.strategies: [lp, fft-fft]}, "...found fft-fft without fft"]
- [{lp_fft.scenarios.0.strategies: [lp, lora], lp_fft.scenarios.0.lora_rank: null},
   "lp_fft.scenarios.0.strategies: found lora; allowed: a lora_rank with it"]
- [{lp_fft.lora.0.strategies: [lp, fft]},
   "lp_fft.lora.0.strategies: found fft; allowed: no lora_rank with it"]
- [{lp_fft.clip_sweep.strategies: [fft, lp-fft]},
   "lp_fft.clip_sweep.strategies: found lp-fft without lp"]
- [{lp_fft.scenarios.0.batch: 1151},
   "lp_fft.scenarios.0.batch: found 1151; allowed: at most n_train"]
- [{lp_fft.clip_sweep.scenario: nothing},
   "lp_fft.clip_sweep.scenario: found 'nothing'; allowed: one of inverted-t"]
- [{lp_fft.scenarios.0.noise_multipliers: [], lp_fft.scenarios.0.epsilons: []},
   "lp_fft.scenarios.0.noise_multipliers: found none; allowed: a privacy level"]
- [{lp_fft.relation: replace_one, lp_fft.accountant: rdp},
   "lp_fft.accountant: found rdp for Poisson batches under replace_one"]
- [{lp_fft.lrs.full: [0.1, 1.0, 3.0]}, "...scenarios.0.lrs: found 4 for head, 3 for full"]
# A class of both may share records.
- [{lp_fft.scenarios.0.data.name: letters, lp_fft.scenarios.0.data.classes: [A, B],
    lp_fft.scenarios.0.backbone: letters-t},
   "lp_fft.scenarios.0.backbone: found letters-t, trained on"]
- [{lp_fft.scenarios.+: {name: twice}, "lp_fft.scenarios.+ ": {name: twice}}, "...again"]
- [{lp_fft.scenarios.+: {name: twice},
    "lp_fft.scenarios.+ ": {name: twice, backbone: strokes-xs, noise_multipliers: [77],
                            epsilons: []}},
   "...strokes-xs"]
- [{lp_fft.enabled: true, pretrain.enabled: false}, "pretrain"]
- [{pretrain.backbones.published:
      {source: imagenet, model: imagenet-resnet18, options: {}, image_shape: [1, 8, 8]},
    pretrain.train.+: published, lp_fft.feature_quality.0.backbone: published},
   "lp_fft.feature_quality: found 'published'"]

- [{max_information.delta_mc: 0.03}, "...delta"]
- [{max_information.certificates.sets.0.grid.m: 2000},
   "max_information.certificates.sets.0.grid.m: found 2000"]
- [{max_information.certificates.sets.0.options.pool: 2},
   "max_information.certificates.sets.0.options.pool: found 2; allowed: widths with model mlp"]
- [{max_information.certificates.sets.0.data.n_test: 500},
   "max_information.certificates.sets.0.data: found 1937 records"]
- [{max_information.certificates.sets.1.grid.lrs: [100, 123.456]},
   "...sets.1.grid.lrs: found 123.456"]
- [{max_information.looks.digits-1.set.grid.m: 2000},
   "max_information.looks.digits-1.set.grid.m: found 2000"]
- [{max_information.agreement.set: 9}, "max_information.agreement.set: found 9"]
- [{max_information.certificates.sets.0.fixed.dp_sgd.tau: 0.3},
   "...0.fixed.dp_sgd.tau: found 0.3; allowed"]
- [{max_information.certificates.sets.0.fixed.dp_sgd.lr: 20},
   "...0.fixed.dp_sgd: found zeta 0.04, lr 20"]
- [{max_information.certificates.runs_per_job: 5},
   "...runs: found 6; allowed: at most runs_per_job = 5"]
# Poisson batches cannot be asked for.
- [{max_information.certificates.sampler: poisson}, "...sampler: found a key that does not exist"]

- [{audit.verdict_level: 0.9}, "audit.verdict_level"]
- [{audit.training.optimizer: adam}, "audit.training.momentum"]
- [{audit.canaries.canaries: 100}, "audit.canaries.batch"]
- [{audit.canaries.canaries: 60000}, "audit.canaries.delta"]

- [{pretrain.train.+: resnet}, "...found 'resnet'; allowed: one of pretrain.backbones: strokes-s"]
- [{pretrain.transfer.backbones.+: resnet}, "...found 'resnet'; allowed: one of pretrain.train: s"]
- [{pretrain.train: [strokes-s]}, "pretrain.transfer.backbones.1: found 'strokes-mlp'"]
- [{pretrain.transfer.data.n_train: 1798}, "...data: found 1798 records"]
- [{pretrain.backbones.strokes-s: {source: imagenet, model: resnet18, options: {},
                                   image_shape: [1, 8, 8]}},
   "...backbones.strokes-s.model: found resnet18; allowed: imagenet-resnet18"]
- [{pretrain.backbones.strokes-s: {source: imagenet, model: imagenet-resnet18, options: {},
                                   image_shape: [1, 8, 8], epochs: 3}},
   "...backbones.strokes-s.epochs: found 3; allowed: source, model, options"]
- [{pretrain.backbones.strokes-s: {source: imagenet, model: imagenet-resnet18, options: {},
                                   image_shape: [1, 8, 8], file: x.pth}},
   "...backbones.strokes-s.file: found x.pth"]
- [{pretrain.backbones.strokes-s: {source: imagenet, model: imagenet-resnet18, options: {}}},
   "...backbones.strokes-s.image_shape: found nothing"]
- [{pretrain.backbones.strokes-s: {source: strokes, model: imagenet-resnet18, options: {},
                                   image_shape: [1, 8, 8]}},
   "...backbones.strokes-s.source: found strokes; allowed: imagenet"]
- [{pretrain.backbones.strokes-s: {source: moco, model: moco-v2-resnet50, options: {},
                                   image_shape: [3, 32, 32]}},
   "...backbones.strokes-s.file: found nothing; allowed: path of a checkpoint"]
- [{pretrain.backbones.strokes-s.file: x.pth},
   "...backbones.strokes-s.file: found x.pth; allowed: nothing"]
""")


def changed(changes):
    """The config after the changes, with the papers alone that they are of."""
    config = json.loads(CONFIG)
    for key in set(PAPERS) - {path.partition(".")[0] for path in changes}:
        config[key]["enabled"] = False
    for path, value in changes.items():
        *folders, name = path.strip().split(".")
        node = config
        for folder in folders:
            node = node[int(folder) if isinstance(node, list) else folder]
        if name == "+":
            node.append({**node[0], **value} if isinstance(value, dict) else value)
        else:
            node[int(name) if isinstance(node, list) else name] = value
    return config


@pytest.mark.parametrize(("changes", "message"), CASES, ids=lambda case: next(iter(case)))
def test_it_is_refused_by_name(changes, message):
    with pytest.raises(InputError) as caught:
        Atlas(validate(changed(changes)))
    found = str(caught.value)
    inside = message.removeprefix("...")
    assert inside in found if inside != message else found.startswith(message)
    assert "\n" not in found
