"""Which parameters or layers a prefix of dotted names means."""

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def belongs(name: str, prefix: str) -> bool:
    """Whether `prefix` is a leading part of the parameter's dotted name; "" matches every name."""
    return prefix == "" or name == prefix or name.startswith(f"{prefix}.")


def longest_prefix(name: str, by_prefix: Mapping[str, T]) -> tuple[str, T] | None:
    """The longest prefix that the dotted `name` belongs to, and its entry; None for none."""
    fitting = [prefix for prefix in by_prefix if belongs(name, prefix)]
    if not fitting:
        return None
    longest = max(fitting, key=len)
    return longest, by_prefix[longest]
