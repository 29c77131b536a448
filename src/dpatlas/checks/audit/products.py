"""The table of audit and the runs behind it."""

from dpatlas.core.products import table

PRODUCTS = (
    table(
        "audit",
        needs=("mechanisms", "canaries", "training"),
        place="none: our own code",
        caption="Attacks on our own private mechanisms. The attacker chooses all records, sees "
        "every noisy sum, knows everything but the randomness, and scores each run by its "
        "likelihood ratio. The error rates of the attacker's best test, counted on runs that did "
        "not select it, bound epsilon from below at the delta of the row (exact binomial limits). "
        "Next to this bound are the accountant's guarantee and the largest bound that any attack "
        "could have shown with as many runs. The same error rates are compared with the guaranteed "
        "epsilon at eight deltas from 0.00001 to 0.3: the excess is the largest amount, in nats, "
        "by which they exceed it, and above zero the guarantee is contradicted. The claim is what "
        "a paper says of the mechanism, compared with the same error rates; it is empty where no "
        "paper claims anything. At 600 runs half the noise, or a forgotten clip, is contradicted "
        "in nearly every audit of every mechanism but dp-sgld, whose guarantee lies beyond what so "
        "many runs can show; with few runs nothing is. For Langevin SGD the attacker sees the last "
        "iterate alone, over 2 to 6 times as many runs. In the audit of one run each of many "
        "canaries has an input coordinate of its own, which is zero in all other records; the "
        "attacker sees the last iterate and guesses from the canaries' losses which of them were "
        "trained on. The number of correct guesses is compared with the guaranteed profile as a "
        "whole, at the confidence of the lower bounds; with 1,000 canaries half the noise is "
        "contradicted in nearly every audit, while the lower bound, for a single delta, stays far "
        "below the guarantee. An attack that succeeds at nothing proves nothing: only the "
        "accountant gives a guarantee, an audit can only refute it. Below: a network trained "
        "privately on the ten digits, its last iterate tested on records that took no part in "
        "training or in the selection of settings, mean and standard error over runs. Records "
        "whose gradient was not finite count as zero; how many there were is private itself.",
        paper_shows="No such table.",
    ),
)
