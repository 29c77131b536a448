"""The records that a choice among priors reads."""

from dpatlas.papers.max_information.records import certificates
from dpatlas.records import Record

CertificatesRecord = Record[certificates.Spec, certificates.Metrics]
