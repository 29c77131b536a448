"""What does my model risk? A certificate on the error of one's own network, made random.

    from dpatlas.certify import certify

    print(certify(model, x, y, prior="held-out"))

and `dpatlas certify mine.py:make_model --data data.npz` on the command line.
"""

from dpatlas.certify.certificate import certify
from dpatlas.certify.report import HeldOut, Report, Row
from dpatlas.certify.settings import Settings

__all__ = ["HeldOut", "Report", "Row", "Settings", "certify"]
