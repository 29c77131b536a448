"""What does my model risk? A certificate on the error of one's own network, made random.

    from dpatlas.certify import certify

    print(certify(model, x, y, prior="held-out"))

and `dpatlas certify mine.py:make_model --data data.npz` on the command line.
"""

from dpatlas.certify.certificate import certify
from dpatlas.certify.report import CertifyReport as Report
from dpatlas.certify.report import HeldOut
from dpatlas.certify.report import PosteriorRow as Row
from dpatlas.certify.settings import CertifySettings as Settings

__all__ = ["HeldOut", "Report", "Row", "Settings", "certify"]
