"""dp_sgld: figures and tables, the runs behind each, and where the paper shows it."""

from dpatlas.core.products import figure, table

PRODUCTS = (
    figure(
        "sgld_privacy_loss",
        needs=("privacy_loss",),
        place="Thm 3.2 (the paper has no such figure)",
        caption="Epsilon at a fixed delta against the number of steps, by several ways of "
        "accounting. Claimed: Thm 3.2 with K = steps, and with K = epochs as published. All "
        "iterates: ordinary composition for batches without replacement, one record replaced. Last "
        "iterate: conditional on the batches, for cyclic batches, and for full batches (Gaussian "
        "DP, exact). The noise of each panel is set so that the claimed value, with K counted as "
        "the title says, meets the thin line at the last step. Full batch: two accountants, the "
        "hidden-state bound, and a quadratic loss whose law is known in closed form and attains "
        "that bound. One dimension: the exact law of Algorithm 1, computed by quadrature, which "
        "lies above the claim.",
        paper_shows="No such figure. The theorem says that epsilon converges as the steps go on.",
    ),
    figure(
        "sgld_counterexample",
        needs=("counterexample",),
        place="Thm 3.2 (ours)",
        caption="Exact privacy loss in an example where Thm 3.2 fails. The loss is theta^2 / 2 - x "
        "theta on [-1, 1], records lie between -1 and 1, and one record is replaced. The law of "
        "the last iterate is computed by quadrature, which gives the exact Renyi divergence and "
        "the exact delta(epsilon). The theorem's claim holds for full batches (n / m = 1) and is "
        "exceeded for mini-batches, because its proof averages inside a divergence over whether "
        "the record is in the batch. With the noise of Thm 4.2, which promises delta at epsilon, "
        "the exact delta is shown against n / m.",
        paper_shows="No such figure; Thm 3.2 is stated for batches of any size.",
    ),
    figure(
        "sgld_utility",
        needs=("utility",),
        place="Thms 4.1-4.4",
        caption="Utility bounds of Sec. 4 and the measured excess risk of a regularised logistic "
        "regression, whose optimum is computed. Constant steps: risk of the last iterate, with "
        "Lemma 4.1 and Thms 4.1 and 4.2. Decreasing steps: mean risk of all iterates, with Lemma "
        "4.3 and Thms 4.3 and 4.4. Each bound is drawn as printed and as corrected: the proof has "
        "a factor of two in the term of the batch noise that the statement lacks. Mean over runs, "
        "and the 95 % t interval of its logarithm. The noise is the paper's own calibration by Thm "
        "4.2, which does not guarantee the epsilon that it names.",
        paper_shows="The bounds are stated and proved; no figure compares them with a measured "
        "risk.",
    ),
    figure(
        "sgld_long_training",
        needs=("long_training",),
        place="ours",
        caption="Accuracy against the number of full-batch steps at one guaranteed epsilon, one "
        "record replaced. The repaired DP-SGLD accounts for its last iterate alone, so its noise "
        "converges as training gets longer. DP-SGD accounts for every iterate, so its noise grows "
        "like the square root of the number of steps. The noise of Thm 3.2, which holds for full "
        "batches, is larger than needed. Every point has its own noise and its own setting, chosen "
        "before on records that are in no run. Every run is dealt its training and test records "
        "anew, and its arms share records and noise. Right: the epsilon of the same runs if every "
        "iterate were released. Mean and 95 % t interval over runs.",
        paper_shows="No such figure.",
    ),
    figure(
        "sgld_along_n",
        needs=("protocol",),
        place="Table 1, along n",
        caption="The paper's own comparison along the number of private records: one step size, 30 "
        "epochs and one lambda for all methods, noise of DP-SGLD by Thm 3.2 with K = number of "
        "epochs, DP-SGD at the same printed epsilon. Panels: Table 4's beta / lambda, which "
        "does not change when features are scaled to another norm (paper); the same with the "
        "step size of the authors' code, near 1 / beta (code); and the number of their "
        "settings, lambda = 1e-3, on features of norm 1 (unscaled lambda). At a given number of"
        " epochs the noise of DP-SGLD falls like 1 / n, while that of DP-SGD at batches of one "
        "size falls more slowly. A set with one number of records is not drawn along n: such "
        "sets stand side by side. Below: the same less the accuracy of DP-SGD, run by run; what"
        " lies outside the axis has an arrow and its number. On the paper's data with its "
        "backbone, open diamonds are Table 1 as printed.",
        paper_shows="Three sets, n = 50,000 (twice) and 5,163, at one epsilon.",
    ),
    table(
        "sgld_accuracy_constant",
        needs=("protocol", "accuracy"),
        place="Table 1",
        caption="Accuracy of Langevin SGD (DP-SGLD) with constant steps, of DP-SGD and of SGD "
        "without privacy, for softmax regression on frozen features. First the paper's own "
        "protocol: step size, number of epochs and L2 term are the same for all methods, no "
        "momentum, DP-SGLD's noise by Thm 3.2 with K = epochs; beside it DP-SGD without the L2 "
        "term, and other readings of the settings. Then, ours, every method with settings of its "
        "own, compared three times: under the published accounting, which takes the number of "
        "epochs for K in Thm 3.2 and accounts DP-SGD for added or removed records; under Thm 3.2 "
        "as stated, with K the number of steps; and at equal guaranteed epsilon, one record "
        "replaced. The column claimed gives the epsilon of Thm 3.2; guaranteed gives the least "
        "epsilon by an accounting that holds for the run. Full-batch Langevin steps, for which "
        "Thm 3.2 does hold, and the repaired DP-SGLD, calibrated by the exact Gaussian-DP forms "
        "for full or cyclic batches, have rows of their own. Settings were chosen before, on "
        "records that are in no run. All arms of a run share its records; each guarantee is for "
        "one arm released alone. Beta, L and the radius follow from lambda and the declared bound "
        "on the norm of a record; no private record enters them.",
        paper_shows="At epsilon 1 DP-SGLD is above DP-SGD on CIFAR-10, by 2.3 points with ResNet18 "
        "features and by 1.1 with AlexNet's, and level with it on X-rays; it stays within half a "
        "point of training without privacy.",
    ),
    table(
        "sgld_accuracy_decreasing",
        needs=("protocol", "accuracy"),
        place="Table 2",
        caption="Accuracy with decreasing steps, eta_k = 1 / (2 beta + lambda k / 2), compared as "
        "in the table for constant steps. Under the paper's protocol DP-SGD and SGD take the same "
        "decreasing steps. Where every method is tuned, DP-SGD and SGD have a constant learning "
        "rate and the same rows as there. The bound for cyclic batches holds for constant steps "
        "only, so that row is missing here.",
        paper_shows="Gains of DP-SGLD with decreasing steps of 2.0 and .9 points on CIFAR-10.",
    ),
    table(
        "sgld_finetune",
        needs=("finetune",),
        place="Table 3",
        caption="SGD and DP-SGD from a public backbone with a new head, when the head alone, the "
        "last block, or the last two blocks are trained. One clip bound applies to the gradient of "
        "all trained parts together; frozen parts get no noise. The learning rate of every row was "
        "chosen before, on records of no run; accuracy on test records is the mean and standard "
        "error over runs, each with records of its own.",
        paper_shows="With the last two blocks of ResNet18 trained as well, SGD reaches 77.0 % and "
        "DP-SGD 67.8 %, where the head alone gave 70.7 and 68.0.",
    ),
    table(
        "sgld_constants",
        needs=("accuracy",),
        place="Table 4",
        caption="Constants beta, beta / lambda and the last column of Table 4, printed and "
        "recomputed. Above, the printed rows and what follows for both columns from beta, lambda, "
        "n and d, once with d the number of classes and once with d the number of all parameters, "
        "as in the theorems. Below, the same for our data sets at the lambda selected for DP-SGLD; "
        "beta is given twice, as lambda_max of the mean of x x^T over the private records (which "
        "is private information, for the reader only) and as the public bound per record, which "
        "every run uses.",
        paper_shows="beta, beta / lambda and a ratio in which the privacy budget enters, for three "
        "pairs of data and backbone.",
    ),
    table(
        "sgld_published",
        needs=("privacy_loss", "accuracy"),
        place="Tables 1, 2 and the authors' code",
        caption="Epsilon recomputed for the published settings with epsilon 1, row by row. Thm 3.2 "
        "gives the printed value with K = number of epochs; the next value has K = number of "
        "gradient steps, which is what the theorem counts. The guaranteed columns are ordinary "
        "accounting of the same updates: Poisson batches with one record added or removed, and "
        "batches without replacement with one record replaced. Below: the DP-SGD rows, and the "
        "accuracy that our runs reach with noise by the published accounting and with noise "
        "calibrated to the same guaranteed epsilon.",
        paper_shows="epsilon 1 for every private row of Tables 1 and 2; the settings behind them "
        "are in the authors' public code.",
    ),
)
