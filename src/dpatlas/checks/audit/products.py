"""The table of audit and the runs behind it."""

from dpatlas.core.products import table

PRODUCTS = (
    table(
        "audit",
        needs=("mechanisms", "canaries", "training"),
        place="none: our own code",
        caption="Attacks on our own private mechanisms. An attacker who chooses all records, sees "
        "every noisy sum and knows everything but the randomness scores each run by its likelihood "
        "ratio; the error rates of his best test, counted on runs that did not choose it, bound "
        "epsilon from below at the delta of the row (exact binomial limits). Beside the bound "
        "stands what the accountant guarantees, and the largest bound that any attack could have "
        "shown with as many runs. The same error rates are held against the guaranteed epsilon at "
        "eight deltas from 0.00001 to 0.3: the excess is how far, in nats, they exceed it where "
        "they do so most, and a guarantee is contradicted if that is above zero. The claim is what "
        "a paper says of the mechanism, held against the same error rates; none where no paper "
        "claims anything. At 600 runs half the noise, or a clip that is forgotten, is contradicted "
        "in nearly every audit of every mechanism but dp-sgld, whose guarantee lies beyond what so "
        "many runs can show; with few runs nothing is. Of Langevin SGD the attacker sees the last "
        "iterate alone, over 2 to 6 times as many runs. The row of one run guesses which of many "
        "mislabelled canaries a single training run had seen; its bound needs no repetition and "
        "shows less. An attack that finds nothing proves nothing: only the accountant gives a "
        "guarantee, an audit can only take it away. Below: a network trained privately on the ten "
        "digits, its last iterate tested on records that took no part in training or in the choice "
        "of settings, mean and standard error over runs. Records whose gradient was not finite "
        "count as zero and are counted; that count is private itself.",
        paper_shows="Nothing of the kind.",
    ),
)
