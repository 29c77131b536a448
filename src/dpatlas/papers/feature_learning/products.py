"""feature_learning: figures and tables, the runs behind each, and where the paper shows it."""

from dpatlas.core.products import figure, table

PRODUCTS = (
    figure(
        "feature_overlap",
        needs=("links", "axes"),
        place="Sec. 3 (nothing is plotted there)",
        caption="How much of the hidden direction mu the first layer holds: the mean absolute "
        "cosine of its neurons with mu, for single-index data y = s(<x, mu>). Above, every link s "
        "against the number of records n; below, the base link against the neurons p, the inputs d "
        "and epsilon. Private, matrix: one gradient step on the whole first layer, clipped by "
        "record, with Gaussian noise that makes it (epsilon, delta)-private. Private, direction: "
        "only the mean of clipped y x is released, with noise, and all neurons point along it "
        "(ours). Non-private: the same step without clip or noise; random: the weights before it. "
        "Printed: the first layer as the report prints it, with noise sigma_W = sqrt(d^(1 + "
        "eps_B)/n) log(d)^(q + 3), where q is the degree of s and eps_B, which is not defined "
        "there, is 0. That noise depends on neither epsilon nor delta, and the direction drowns in "
        "it; its value and the mean cosine, with sign, that it leaves stand below the panels. A "
        "link whose information exponent is above 1 is outside of Assumption 1. The report plots "
        "nothing: the experiment is ours. Intervals are 95 % t intervals over runs; all kinds of "
        "features see the same data in a run, so their differences are surer than the bars "
        "suggest.",
        paper_shows="Nothing is drawn. The report's argument is that one large gradient step turns "
        "the neurons towards the hidden direction.",
    ),
    figure(
        "feature_risk",
        needs=("links", "axes"),
        place="Theorem 1 (nothing is plotted there)",
        caption="Risk E (f - s)^2 of two-layer networks on single-index data, on fresh records; 1 "
        "is that of predicting 0. Above, every link against the number of records n, each on its "
        "own axis; below, the base link against the neurons p, the inputs d and epsilon, on one "
        "axis. Read out privately: features of the private gradient step, of the private direction "
        "(ours), and random ones, which spend no privacy on the first layer, from one data set and "
        "from both. Read out without privacy: features of the non-private step, and random ones. "
        "Dashed: the ridge solution on the private features, which no private read-out can expect "
        "to beat. Dotted: the rate of Theorem 1's second term, d^(1 + eps_n)/n "
        "log(1.25/delta)/eps^2, scaled and lifted to the mean private risks by non-negative least "
        "squares, for links of information exponent 1; the fitted numbers stand below the panels, "
        "and c = 0 says that the risk does not fall with the rate there. A circle with a number "
        "marks where the private network meets non-private random features, where it does. In the "
        "panels: the slope of log risk in log n, fitted run by run; the other slopes are in the "
        "csv and in the table of risks. The report plots nothing: the experiment is ours. "
        "Intervals are 95 % t intervals over runs; all arms see the same data in a run, so their "
        "differences are surer than the bars suggest.",
        paper_shows="Nothing is drawn. The theorem has the risk vanish as the number of records "
        "and neurons grows.",
    ),
    table(
        "feature_risk_table",
        needs=("links", "axes", "table"),
        place="Theorem 1 (nothing is printed there)",
        caption="Overlaps and risks of two-layer networks on single-index data in every condition, "
        "once each: mean absolute cosine of the neurons with the hidden direction for the private "
        "step, the private direction and the non-private step; risk on fresh records after private "
        "descent on these private features and on random ones, and after non-private descent on "
        "non-private and on random features; and the risk of the ridge solution on the private "
        "features. Mean ± standard error over runs. Where two sweeps hold the same condition, the "
        "first stands, in the order table, n, p, d, epsilon. Then the slope of log risk in log n "
        "at fixed d, p and epsilon, fitted run by run, with the 95 % t interval of its mean over "
        "runs. The report is theory and prints no numbers, so there are none to compare with.",
        paper_shows="Nothing is printed.",
    ),
)
