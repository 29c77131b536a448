"""Import before numpy or torch: one thread per numeric job.

Sums and small products differ in their last bits between one and two threads, so a job that took
its thread count from `--cores` would change its digits with it. Parallelism is between jobs.
"""

import os

for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_variable] = "1"
