"""lp_fft: figures and tables, the runs behind each, and where the paper shows it."""

from dpatlas.core.products import figure, table

PRODUCTS = (
    figure(
        "lpfft_feature_quality",
        needs=("feature_quality",),
        place="Fig. 2 left, Fig. 7",
        caption="Accuracy of nearest neighbours on the network's penultimate features during "
        "private training, on the private task and on the pre-training task. The paper has full "
        "fine-tuning (FFT) distort the features while the head is random, so that accuracy dips "
        "and rises again, and linear probing (LP) first weaken the dip. In the grey steps LP-FFT "
        "trains the head alone and its features do not change. Below: what FFT loses on average in "
        "its first fifth of the steps, less what LP-FFT loses in as many steps that train "
        "everything, in pairs of runs with the same records, head and noise, for every noise, head "
        "scale and learning rate. Right of zero LP first saves quality, left of it it costs "
        "quality; where the interval contains zero, the question is open.",
        paper_shows="Nearest-neighbour accuracy of the features falls early in DP-FFT and recovers "
        "in part (Sec. 3.2) or above the start (Sec. 1); with LP first it falls less.",
    ),
    figure(
        "lpfft_budget_sweep",
        needs=("strategies", "clip_sweep"),
        place="Fig. 2 right, Fig. 6",
        caption="Test accuracy against the share of the steps in which private fine-tuning trains "
        "the head alone before it trains everything: 0 is full fine-tuning, 100 linear probing; "
        "one curve for every data set and noise level, the darker the more noise, and one without "
        "privacy. The first row has one scenario for every answer to which share is best at the "
        "largest noise, if they differ; the others stand below, on the same axes. All points of a "
        "curve have the same noise and number of steps, and hence the same epsilon, since both "
        "phases are composed. Two phases have two learning rates, which alone could explain a "
        "gain. The controls have them too: LP-LP trains the head and FFT-FFT everything "
        "throughout, and both change only the rate where LP-FFT changes phase; they stand at that "
        "share. Every point has its own rates, chosen on a fixed part of the records that no run "
        "deals. Last panel: accuracy against the clip threshold at one noise level.",
        paper_shows="Accuracy against the number of epochs of LP, at epsilon 1, 2 and 3 "
        "(WideResNet to CIFAR-10), and at noise .3 and without noise (ResNet-50). The paper "
        "concludes that a mixture is best with noise and FFT without.",
    ),
    figure(
        "lpfft_umap",
        needs=("umap",),
        place="Figs. 4, 5",
        caption="Penultimate features of test records in two dimensions, by UMAP: one row for "
        "every number of steps of private linear probing, with panels early in and late in private "
        "full fine-tuning; at the left the features before it, which linear probing does not "
        "change. The name of a class stands above the median of its points. Each panel is a "
        "separate fit: positions cannot be compared between panels, and distances between far "
        "clusters mean little in any UMAP picture. The numbers under a panel are measured on the "
        "features themselves: accuracy of nearest neighbours and the silhouette of the classes. "
        "This is one run; lpfft_feature_quality shows what holds over runs.",
        paper_shows="Features in two dimensions before, early and late in training. Classes lose "
        "their shape early in DP-FFT, and keep it after enough LP.",
    ),
    figure(
        "lpfft_privacy_utility",
        needs=("strategies", "lora"),
        place="Fig. 8",
        caption="Test accuracy of every fine-tuning strategy against epsilon, for each scenario "
        "and backbone, with the result without privacy at the right. A two-phase strategy is shown "
        "at every share of its first phase that was run, each under a name of its own (the paper "
        "has a quarter, 5 of 20 epochs); all panels have the same axes. Epsilon covers both "
        "phases and every iterate. Mean and 95 % interval over runs; the strategies of a run share "
        "its records, random head, batches and noise, so differences between them are known more "
        "precisely than their separate intervals suggest. On the paper's data with its backbone, "
        "open diamonds are Table 1, or with LoRA Table 2, as printed.",
        paper_shows="Accuracy of LP, LP-FFT and FFT against epsilon for three backbones. All rise "
        "with epsilon; FFT falls off fastest as epsilon becomes small.",
    ),
    figure(
        "lpfft_sensitivity",
        needs=("sensitivity",),
        place="Fig. 9",
        caption="Layer sensitivities of a two-layer linear network (Fig. 9 and Prop. E.10, which "
        "says that the head's is larger by a factor of order sqrt(d)). Left: the largest gradient "
        "norm of a record in head and features before training. Middle: the ratio of head to "
        "features, for the records of the data and for all records of norm and label at most one, "
        "with h / sqrt(d) read as the variance of the random head, as the proposition is printed, "
        "and as its standard deviation. The thin line has the slope of sqrt(d); for the unit ball "
        "the ratio is 1 over the norm of the head, which grows at that rate under the second "
        "reading alone. Right: the ratio for the records of the data during noisy gradient "
        "descent. Means over random heads and features, 95 % intervals.",
        paper_shows="Sensitivities of the layers of a two-layer linear network under private "
        "gradient descent, means over 10,000 random starts.",
    ),
    figure(
        "lpfft_imbalance",
        needs=("imbalance",),
        place="Fig. 10",
        caption="Imbalance matrix v v^T - B B^T of a linear network in training. Left (Fig. 10): "
        "the relative gap of Jensen's inequality for the square root of its least eigenvalue, "
        "which the proof of Thm 4.5 neglects and Conjecture E.22 takes to be below 1 %, during "
        "DP-SGD with noise multipliers 50 and 100. Right: the drift of the mean eigenvalue (Eqs. "
        "125, 183, 190) under uniform noise, where the printed rate is half of the true one, and "
        "under layer-wise noise, where it is zero. Means over paths, 95 % intervals.",
        paper_shows="Growth during training of the relative Jensen gap of an eigenvalue of the "
        "imbalance, at noise 50 and 100, in a linear network with 8 by 10 features.",
    ),
    figure(
        "lpfft_theory",
        needs=("dynamics",),
        place="Thms 4.2-4.5, Eq. 161",
        caption="The paper's theorems on losses compared with simulation. First row: the squared "
        "norm of the head during linear probing (LP) of a linear network, by Eq. 161 as printed "
        "and with its sign corrected; the expected loss divided by the bound of Thm 4.4, which "
        "holds, and by that of Thm 4.5, which fails where the ratio is above 1. Second row: a "
        "bracket of Thm 4.2 for LP and the worst of Thm 4.3 for FFT; in how many cases a class's "
        "loss leaves its bracket, for the zeroth-order model, which the theorems describe, "
        "and for the mean of the diffusion, which is DP training. Intervals are 95 %.",
        paper_shows="Theorems on two-layer networks; no figure compares them with simulations.",
    ),
    figure(
        "lpfft_distortion",
        needs=("distortion",),
        place="Thms 3.3, 3.4",
        caption="The paper's theorems on the distortion of features compared with simulation. "
        "First row: the probability that a random head distorts some feature, with 1 - 2^-h, on "
        "random clusters; the same for one feature and a class of two records, where a large head "
        "seldom distorts. Second row: the share of networks in which no cosine with its class mean "
        "falls during FFT after LP, against the width of the clusters; the cosine of one feature "
        "that falls after LP of any length, which Thm 3.4 excludes. Intervals are 95 %.",
        paper_shows="Theorems on two-layer networks; no figure compares them with simulations.",
    ),
    table(
        "lpfft_strategies",
        needs=("strategies",),
        place="Table 1",
        caption="Test accuracy by scenario, privacy level and fine-tuning strategy, mean and "
        "standard error over runs, with the learning rates, which were chosen on a fixed part of "
        "the records that no run deals. Our results come first, then Table 1 as printed. For each "
        "printed epsilon the table names the noise multiplier that fits it best and the epsilon "
        "recomputed from it, for 5,000 training images, as STL-10 has; the paper says 500. The "
        "last column marks printed values that "
        "cannot all be right: a mean that appears in two cells of one backbone, and cells that "
        "Table 2 prints with another value or in another place.",
        paper_shows="LP, LP-FFT and FFT for ResNet18, MobileNet-v3 and DeiT on STL-10. Without "
        "noise FFT leads for two backbones, at 1.29 LP-FFT leads for all three, and at the "
        "smallest epsilon LP leads.",
    ),
    table(
        "lpfft_lora",
        needs=("lora",),
        place="Table 2",
        caption="Test accuracy with low-rank adapters (LoRA) in place of full fine-tuning: linear "
        "probing, linear probing then LoRA, and LoRA from the start, mean and standard error over "
        "runs, with the learning rates, which were chosen on a fixed part of the records that no "
        "run deals. Our results come first, then Table 2 as printed, with the noise multiplier "
        "that fits each printed epsilon, the epsilon recomputed from it, and a mark where Table 1 "
        "contradicts the value.",
        paper_shows="LP, LP-LoRA and LoRA for DeiT at five privacy levels. LoRA leads without "
        "noise, LP-LoRA leads at 12.28 and 1.29, LP below.",
    ),
)
