"""Records from which the table of audit can be made."""

from audit_samples import attack, canaries, trained

SHOWN = {"audit": lambda: ([attack(), canaries(), trained()], {})}
