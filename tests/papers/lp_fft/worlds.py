"""For the contract tests: sample records of lp_fft's products, true and false worlds."""

import lpfft_sample_records
import lpfft_theory_sample_records
from lpfft_world import groups, set_arm, set_curve, set_theory

from dpatlas.evidence.comparisons import PaperRecords

SHOWN = {
    name: lambda make=make: (make(), {})
    for samples in (lpfft_sample_records, lpfft_theory_sample_records)
    for name, make in samples.RECORDS.items()
}


def world():
    """Records in which every entry is reproduced."""
    return PaperRecords({}, groups())


def leave_bracket(theory, phase, loss):
    """Put a loss of random heads below its lower bound."""
    row = next(row for row in theory.relu if (row.phase, row.heads) == (phase, "random"))
    getattr(row, loss)[-1] = 0.9 * row.lower[-1]


def double(norm):
    norm[:] = [2 * value for value in norm]


def halve_share(rows, number):
    rows[number] = rows[number].model_copy(update={"share": rows[number].share / 2})


HALF_LP_IS_NO_BETTER_THAN_FFT = set_arm(0.785, 8.0, "fft")
# By entry, a change after which it is not reproduced.
CHANGES = {
    "lpfft-1a": set_arm(0.94, 1.0, "lp"),
    "lpfft-1b": HALF_LP_IS_NO_BETTER_THAN_FFT,
    "lpfft-1c": set_arm(0.62, 16.0, "fft"),
    "lpfft-1d": set_arm(0.79, 8.0, "lp-lp"),
    "lpfft-2a": set_curve((0.9, 0.92, 0.95, 0.95, 0.95, 0.95, 0.95)),
    "lpfft-2b": set_curve((0.98, 0.9, 0.9, 0.9, 0.85, 0.82, 0.8)),
    "lpfft-3a": set_curve((0.98, 0.98, 0.98, 0.8, 0.9, 0.94, 0.95), "lp-fft"),
    "lpfft-3b": set_curve((0.98, 0.98, 0.98, 0.6, 0.9, 0.9, 0.9), "lp-fft", 1.0),
    "lpfft-4a": HALF_LP_IS_NO_BETTER_THAN_FFT,
    "lpfft-4b": set_arm(0.72, 8.0, "lp-fft", 0.5),
    "lpfft-5": set_arm(0.96, 0.0, "lp-fft", 0.5),
    "lpfft-6a": set_arm(0.86, 1.0, "lora", group="lora"),
    "lpfft-6b": set_arm(0.86, 4.0, "lora", group="lora"),
    "lpfft-6c": set_arm(0.49, 16.0, "lp", group="lora"),
    "lpfft-7a": set_theory("dynamics", lambda theory: leave_bracket(theory, "head", "zeroth")),
    "lpfft-7b": set_theory("dynamics", lambda theory: leave_bracket(theory, "head", "diffusion")),
    "lpfft-7c": set_theory("dynamics", lambda theory: leave_bracket(theory, "all", "zeroth")),
    "lpfft-8a": set_theory("dynamics", lambda theory: double(theory.probing.norm_paper)),
    "lpfft-8b": set_theory("dynamics", lambda theory: double(theory.probing.norm_exact)),
    "lpfft-9a": set_theory("distortion", lambda theory: halve_share(theory.clusters, 0)),
    "lpfft-9b": set_theory("distortion", lambda theory: halve_share(theory.two_records, 1)),
    # A fall between neighbouring levels, though accuracy grows on the whole.
    "lpfft-10": set_arm(0.885, 4.0, "lp"),
}


def _after(change):
    def false():
        records = groups()
        change(records)
        return PaperRecords({}, records)

    return false


FALSE = {entry: _after(change) for entry, change in CHANGES.items()}
