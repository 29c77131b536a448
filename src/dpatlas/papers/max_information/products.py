"""max_information: figures and tables, the runs behind each, and where the paper shows it."""

from dpatlas.core.products import figure, table

PRODUCTS = (
    figure(
        "maxinf_coefficients",
        needs=("coefficients",),
        place="Fig. 1",
        caption="The two coefficients of Prop. 1: the max-information of one Gaussian mechanism "
        "is bounded by c1 m s^2 / sigma^2 + c2 sqrt(m) s / sigma. Left and middle: c1 and c2 "
        "against beta, for several values of the balancing term alpha, together with those of "
        "Dwork et al.'s bound for pure privacy at delta = beta. No mechanism satisfies both "
        "assumptions at once: the comparison is made at the epsilon at which the Gaussian "
        "mechanism is (epsilon, delta)-private, and shows how large the terms are, not which "
        "guarantee is better. Right: the ratio of the leading coefficients, which Lemma 6 puts "
        "between 1/4 and 2 for alpha up to 3 and beta up to 1/2, increasing in both; the open "
        "diamond is the value that its proof prints. The proof prints -4.03 where the term is "
        "-3.34; the conclusion stands. Values are computed, not measured.",
        paper_shows="The two coefficients of Prop. 1 and those of pure differential privacy, "
        "against beta; they are of the same size.",
    ),
    figure(
        "maxinf_kappa",
        needs=("kappa", "simulation"),
        place="Fig. 2",
        caption="Cost kappa of a prior learned by DP-SGD in a PAC-Bayes bound: kappa per record, "
        "against the number of records (with T fixed, where batches grow, and with batches of "
        "fixed size), the signal-to-noise ratio zeta / sigma, epochs, steps per epoch and delta, "
        "together with the confidence term log(4 sqrt(n) / delta) / n of Theorem 2. Optimised and "
        "explicit are Eqs. 32 and 33 as printed. Tight is ours: the same with the smaller of "
        "Lemma 10's moment bound and another valid one. Repaired is ours as well: Eq. 84 adds up "
        "epochs by a property that was proven for independent records, but given the output of "
        "one epoch the records are no longer independent in the next; charged so that the proof "
        "goes through, kappa grows geometrically with the epochs. For one epoch the printed value "
        "is proven and the two are equal. Batches are disjoint and of fixed size; Poisson batches "
        "are not covered. Last panel: the moment that both bounds limit, simulated on sums of "
        "bounded independent vectors, with 95 % intervals.",
        paper_shows="kappa / n along five axes, optimised and explicit, with the usual term of a "
        "PAC-Bayes bound. It is robust against n, and most affected by zeta / sigma.",
    ),
    table(
        "maxinf_certificates",
        needs=("certificates", "agreement"),
        may_lack=("agreement",),
        place="Tables 1-3",
        caption="Certificates on the risk of networks with random weights, in the format of "
        "Tables 1 to 3. There are three kinds of prior: independent of the data; our control, "
        "whose mean got DP-SGD's noise without gradients and so costs no kappa; and a prior whose "
        "mean DP-SGD learned from the same records. For each: risk and certificate of the prior, "
        "risk of the posterior that was trained against it, kappa, KL, its certificate, and the "
        "error on test records that the certificate has to cover. Where the caption of a block "
        "says so, every run has records of its own, which all its priors share, and its "
        "certificates hold for these. The shipped tiers up to workstation try one prior of each "
        "kind, fixed before the runs, and pay for the whole grid; where the grid is tried, every "
        "run selects the prior of least certificate of its kind. The certificates as printed "
        "rest, for more than one epoch, on Eq. 84, which has a gap; all others are proven. Tight "
        "uses kappa-tight and the Clopper-Pearson limit. Rigorous uses the least kappa without a "
        "gap, and a Monte Carlo step that also pays for the posteriors that were not selected, "
        "which Eq. 98 does not. Universe pays for every setting that could have been selected "
        "after any look at the certificates: log(1/w) in place of log(K1 K2), with weights w that "
        "were fixed in code and sum to at most 1, kappa at level beta w, and the Monte Carlo step "
        "at delta' w; these certificates hold together, over kinds of prior, runs and looks. "
        "Where rigorous or universe selects another prior, that prior has a row of its own. The "
        "caption of each block says whether anybody had looked at certificates of the same "
        "records before; K1 and K2 count what all these looks tried. Certificates of one kind of "
        "prior in one run hold together, those of different kinds or runs only separately. Next "
        "comes Table 1 as printed: each of its kappas is that of one tuple of the grid, to the "
        "digit; its bounds follow from its risks under Eq. 97, and two of the eight do not if the "
        "risks are averages over draws whose upper limits under Eq. 98 are still to be taken. "
        "Last: the risk by local reparametrisation, which draws a record and weights for every "
        "pair layer by layer, and the risk by sampled weights.",
        paper_shows="With a prior learned by DP-SGD, certificates fall from .32 to .29 on MNIST "
        "and from .91 to .84 on CIFAR-10, means of 3 runs.",
    ),
    table(
        "maxinf_grid",
        needs=("certificates",),
        place="Appendix C",
        caption="All priors behind the certificates: each tuple of DP-SGD's hyperparameters with "
        "each tau, its kappa in four forms at level beta / K1, the risks and certificates of "
        "prior and posterior, the KL between them, and the test error, mean and standard "
        "deviation over runs. Appendix C calls tau the prior variance; how it is read here, the "
        "caption of each block says. The union bound pays for all these priors: its K1 and K2 "
        "count the declared grid and all other looks at certificates of the same records, so the "
        "least certificate may be selected; the last column says in how many runs it was. A "
        "posterior that diverged has a certificate of 1 and is left out of the risks.",
        paper_shows="The grid that the union bound pays for; its rows are not printed.",
    ),
)
