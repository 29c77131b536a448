"""How often mechanisms are run that are cheap, or whose claims take many runs to contradict."""

# Runs for each one that the config asks for. A step of Langevin SGD costs a tenth of the others',
# and 600 runs are too few to see that the claim on dp-sgld fails: it takes 2400. Means of clipped
# vectors cost next to nothing.
RUNS = {
    "feature-matrix": 10,
    "feature-direction": 10,
    "feature-second-layer": 10,
    "dp-sgld": 6,
    "dp-sgld-full-batch": 2,
    "repaired-dp-sgld-cyclic": 2,
}
