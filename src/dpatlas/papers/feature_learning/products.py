"""feature_learning: figures and tables, the runs behind each, and where the paper shows it."""

from dpatlas.core.products import figure, table

PRODUCTS = (
    figure(
        "feature_overlap",
        needs=("links", "axes", "ladders"),
        place="Sec. 3 (nothing is plotted there)",
        caption="Alignment of the first layer with the hidden direction mu: the mean absolute "
        "cosine of its neurons with mu, for single-index data y = s(<x, mu>). Above, every link s "
        "against the number of records n; in the middle, the base link against the number of "
        "neurons p, the input dimension d and epsilon; below, links of information exponent 1 "
        "against d on a ladder, on which n and p are the powers of d in the title. Private, "
        "matrix: one gradient step on the whole first layer, clipped per record, with Gaussian "
        "noise that makes it (epsilon, delta)-private. Private, direction (ours): only the mean of "
        "clipped y x is released, with noise, and all neurons point along it. Non-private: the "
        "same step without clipping or noise. Random: the initial weights. Printed: the first "
        "layer as the report prints it, with noise sigma_W = sqrt(d^(1 + eps_B)/n) log(d)^(q + 3), "
        "where q is the degree of s and eps_B is 0, the limit of what Section 3 allows. That noise "
        "depends on neither epsilon nor delta and hides the direction; its value and the mean "
        "signed cosine that it leaves are given below the panels. A link whose information "
        "exponent is above 1 is outside Assumption 1. The report plots nothing: the experiment is "
        "ours. Intervals are 95 % t intervals over runs; within a run all kinds of features see "
        "the same data and noise, so their differences are known more precisely than the bars "
        "suggest.",
        paper_shows="The report has no figure. Its argument is that one large gradient step turns "
        "the neurons towards the hidden direction.",
    ),
    figure(
        "feature_risk",
        needs=("links", "axes", "ladders"),
        place="Theorem 1 (nothing is plotted there)",
        caption="Risk E (f - s)^2 of two-layer networks on single-index data, on fresh records; "
        "predicting 0 has risk 1. Above, every link against the number of records n; in the "
        "middle, the base link against the number of neurons p, the input dimension d and epsilon; "
        "below, links of information exponent 1 against d on a ladder, on which n and p are the "
        "powers of d in the title, so that Theorem 1's exponents stay as they are: the power of d "
        "with which its bound falls is dotted in black. Second layer trained privately: on "
        "features of the private gradient step, of the private direction (ours), and on random "
        "features, which spend no privacy on the first layer, from one data set and from both. "
        "Second layer trained without privacy: on features of the non-private step and on random "
        "ones. Without markers: the ridge solution on the private features, which no private "
        "second layer can expect to beat; in black, dashed: the rate of Theorem 1's second term, "
        "d^(1 + eps_n)/n log(1.25/delta)/eps^2, fitted to the mean private risks with a factor and "
        "a constant by non-negative least squares, for links of information exponent 1, along n "
        "and epsilon; the fitted numbers are given below the panels, and c = 0 says that the risk "
        "does not fall with the rate there. A circle with a number marks where the private network "
        "reaches non-private random features, if it does. Below the panels: the slope of log risk "
        "in log n, log p or log d, fitted run by run; the other slopes are in the csv, and those "
        "in n in the table of risks. The report plots nothing: the experiment is ours. Intervals "
        "are 95 % t intervals over runs; within a run all arms see the same data and noise, so "
        "their differences are known more precisely than the bars suggest.",
        paper_shows="The report has no figure. By the theorem, the risk vanishes as the numbers of "
        "records and neurons grow.",
    ),
    table(
        "feature_risk_table",
        needs=("links", "axes", "ladders", "table"),
        place="Theorem 1 (nothing is printed there)",
        caption="Overlaps and risks of two-layer networks on single-index data, each condition "
        "once: mean absolute cosine of the neurons with the hidden direction for the private step, "
        "the private direction and the non-private step; risk on fresh records after private "
        "descent on these private features and on random ones, and after non-private descent on "
        "non-private and on random features; and the risk of the ridge solution on the private "
        "features. Mean ± standard error over runs. A condition that several sweeps contain is "
        "taken from the first of table, n, p, d, epsilon, ladder. The last part is the slope of "
        "log risk in log n at fixed d, p and epsilon, fitted run by run, with the 95 % t interval "
        "of its mean over runs. The report is theory and prints no numbers, so there are none to "
        "compare with.",
        paper_shows="The report prints no numbers.",
    ),
)
