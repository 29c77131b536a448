"""What workflow/claims.yaml may hold: claims, their parts, and the arguments of their tests."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from dpatlas.config.model import Model, Once, optional, setting
from dpatlas.errors import InputError

Init = Literal["lecun", "he", "ntk", "xavier"]
Horizon = Literal["early", "short", "long"]
# In the order of the config's: Python keeps one list type for both, in the order that it met first.
Strategy = Literal["lp", "fft", "lp-fft", "lp-lp", "fft-fft", "lora", "lp-lora"]
Features = Literal["private", "direction", "nonprivate", "random", "random-both", "printed"]
Form = Literal["optimised", "explicit", "tight"]
Prior = Literal["independent", "noise-only", "dp-sgd"]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Name = Annotated[str, Field(pattern="^[a-z_]+$")]
Text = Annotated[str, Field(min_length=1)]
Evidence = Annotated[
    str,
    Field(pattern=r"^(figures/[a-z0-9_]+\.(pdf|png|csv)|tables/[a-z0-9_]+\.(csv|md|tex))$"),
]


class Arguments(Model):
    """Arguments of tests, by name; each test takes those of its own signature."""

    group: Name = setting("Which runs of the paper are read.", default=None)
    inits: Once[Init] = setting(
        "Initialisations for which the claim is made.", min_length=1, default=None
    )
    than: Once[Init] = setting("Initialisations to compare with.", min_length=1, default=None)
    axis: Literal[
        "depth", "width", "n", "p", "d", "epsilon", "zeta_over_sigma", "E", "T", "delta"
    ] = setting("What varies along a sweep, or along a panel of maxinf_kappa.", default=None)
    inputs: Literal["sphere", "data"] = setting(
        "Random inputs as the theory assumes them, or the records of the run.", default=None
    )
    horizon: Horizon = setting(
        "A stage of training, in steps in the config (kl_privacy.horizons).", default=None
    )
    since: Horizon = setting("The stage from which on it is compared.", default=None)
    method: Literal["no-dp", "dp-sgd"] = setting("What trains the layers.", default=None)
    schedule: Literal["constant", "decreasing"] = setting("Step sizes of DP-SGLD.", default=None)
    comparison: Literal["published", "theorem", "guaranteed"] = setting(
        "How the noise of DP-SGLD is chosen; claims.yaml explains the three.", default=None
    )
    epsilon: Positive = setting("The epsilon at which methods are compared.", default=None)
    column: Literal["beta_over_lambda", "ratio_classes", "ratio_parameters"] = setting(
        "Column of sgld_constants.csv to hold against Table 4.", default=None
    )
    curve: Literal["claimed, steps", "every iterate"] = setting(
        "Curve of epsilon against steps.", default=None
    )
    calibration: Literal["published", "theorem"] = setting(
        "Whether the noise behind the curves is by K = number of epochs or of steps.", default=None
    )
    count: Literal["epochs", "steps"] = setting("What K of Thm 3.2 counts.", default=None)
    dataset: Literal["MNIST", "CIFAR-10"] = setting(
        "Which rows of the printed table of max_information.", default=None
    )
    equation: Literal[97, 98] = setting(
        "Eq. 97 for printed risks as they stand, 98 for them as Monte Carlo estimates.",
        default=None,
    )
    form: Form = setting("The form of kappa.", default=None)
    reference: Form = setting("The form of kappa to compare with.", default=None)
    prior: Prior = setting("Kind of prior whose certificate is looked at.", default=None)
    control: Prior = setting("Kind of prior to compare with.", default=None)
    priors: Once[Prior] = setting(
        "Kinds of priors whose certificates are looked at.", min_length=1, default=None
    )
    certificate: Literal[
        "certificate_prior", "certificate_posterior", "certificate_tight", "certificate_rigorous"
    ] = setting(
        "Of the prior; of the posterior by the form of kappa that is paid, by kappa-tight, or "
        "without a gap in its proof.",
        default=None,
    )
    scenario: str = setting(
        "Which backbone and private data, by the name in the config.",
        pattern="^[a-z0-9-]+$",
        default=None,
    )
    strategy: Strategy = setting(
        "What is trained, phase by phase (lp the head, fft everything, lora a low-rank update and "
        "the head).",
        default=None,
    )
    strategies: Once[Strategy] = setting(
        "Strategies for which the claim is made.", min_length=1, default=None
    )
    opponents: Once[Strategy] = setting("Strategies to compare with.", min_length=1, default=None)
    share: Share = setting("Share of the steps in the first phase.", default=None)
    shares: Once[Share] = setting(
        "Shares of the steps in LP along a curve; 0 is FFT, 1 is LP.", min_length=3, default=None
    )
    noise: float = setting(
        "Noise multiplier of DP-SGD; 0 for training without privacy.", ge=0, default=None
    )
    noises: Once[Positive] = setting("Noise multipliers along a curve.", min_length=2, default=None)
    head_scale: Positive = setting("Scale of the random head at the start.", default=None)
    lr: Positive = setting(
        "Learning rate of full fine-tuning where features are watched.", default=None
    )
    task: Literal["private", "public"] = setting(
        "Records on which features are watched, of the private data or of pre-training.",
        default=None,
    )
    early: float = setting("Share of the steps that counts as early.", gt=0, lt=1, default=None)
    phase: Literal["head", "all"] = setting(
        "What is trained of the theory's network.", default=None
    )
    heads: Literal["random", "aligned"] = setting("How the theory's head begins.", default=None)
    convention: Literal["exact", "paper"] = setting(
        "Whether a formula is taken as corrected or as printed.", default=None
    )
    head_variance: Positive = setting("Variance of the head's initial weights.", default=None)
    largest_variance: Positive = setting(
        "The claim is made for variances of the head up to this one.", default=None
    )
    measure: Literal["overlap", "risk_private", "risk"] = setting(
        "What is measured of a two-layer network.", default=None
    )
    features: Features = setting(
        "How the first layer comes about; claims.yaml explains them.", default=None
    )
    against: Features = setting("The first layer to compare with.", default=None)
    relation: Literal["add_remove", "replace_one"] = setting(
        "Neighbours of the second layer.", default=None
    )
    target: float = setting("The value that is expected.", default=None)
    above: float = setting("The value that has to be exceeded.", default=None)
    below: float = setting("The value that may not be reached.", default=None)
    within: Positive = setting("How far below still counts as near.", default=None)
    tolerance: Positive = setting(
        "How far off still counts as reproduced, in the unit that the test says.", default=None
    )


Place = Annotated[Text, setting("Where the paper says so; `ours` for a claim of our own.")]
Statement = Annotated[Text, setting("The claim in our words.")]
Kind = Annotated[
    Literal["exact", "statistical", "qualitative"],
    setting(
        "Exact and qualitative verdicts follow from the numbers alone, statistical ones from "
        "intervals over runs."
    ),
]
Files = Annotated[
    Once[Evidence],
    setting(
        "Figures and tables on which the verdict can be seen, relative to the tier's results "
        "folder.",
        min_length=1,
    ),
]
Expected = Annotated[
    Text,
    setting("What counts as reproduced; {field} stands for the value of an argument of the test."),
]
Test = Annotated[
    Name, setting("A test of the paper's claims module; the fields below are its arguments.")
]


class WrittenPart(Arguments):
    """One question of a claim; what it does not say of itself, the claim says."""

    id: str = setting("The claim's id and a letter.", pattern="^[a-z]+-[1-9][0-9]*[a-z]$")
    statement: Statement
    test: Test
    expected: Expected
    place: Place = optional()
    kind: Kind = optional()
    evidence: Files = optional()


class WrittenClaim(Arguments):
    """A claim, with a test or with parts that have a test each."""

    id: str = setting("The paper's short name and a number.", pattern="^[a-z]+-[1-9][0-9]*$")
    paper: Name = setting("Key of the paper.")
    place: Place
    statement: Statement
    kind: Kind
    evidence: Files
    test: Test = optional()
    expected: Expected = optional()
    parts: list[WrittenPart] = setting(
        "Questions of which all have to be answered with yes.", min_length=2, default=None
    )

    @model_validator(mode="after")
    def _is_a_question_or_has_some(self) -> "WrittenClaim":
        given = {"test", "expected", "parts"} & self.model_fields_set
        if given not in ({"test", "expected"}, {"parts"}):
            found = " and ".join(sorted(given)) or "none of them"
            raise InputError("", f"{self.id} with {found}", "test and expected, or parts")
        return self


class WrittenClaims(Model):
    """workflow/claims.yaml."""

    family_error: float = setting(
        "Chance that any interval behind any statistical verdict misses what it estimates.",
        gt=0,
        lt=1,
    )
    claims: list[WrittenClaim] = setting("The claims.", min_length=1)
