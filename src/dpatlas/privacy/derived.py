"""Weights that are functions of parameters: standardised, normed, merged of a low-rank product.

Such a weight is the same for all records, so the network runs as with any other. The gradient of
each record with respect to it, which its operation gives, is pulled back to the parameters: a
gradient of that layer alone is held for every record, never one of the whole network.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import vjp, vmap
from torch.fx import Node

aten = torch.ops.aten


@dataclass
class Derived:
    """Nodes of a record's graph that follow from the parameters `names` alone, by gradients too.

    nodes: those that operations read, of all parameters that meet in them. inside: every node on
    the way.
    """

    names: list[str]
    nodes: list[Node]
    inside: set[Node]

    def pull(
        self,
        function: Callable[..., list[Tensor]],
        values: Mapping[str, Tensor],
        buffers: Sequence[Tensor],
        gradients: Callable[[list[Tensor]], list[Tensor]],
    ) -> dict[str, Tensor]:
        """Every record's gradients of the parameters, (records, *shape).

        function: from parameters and buffers to `nodes`. gradients: from the nodes' values, every
        record's gradients of each.
        """

        def nodes(*own: Tensor) -> tuple[Tensor, ...]:
            given = dict(values) | dict(zip(self.names, own, strict=True))
            return tuple(function(*given.values(), *buffers))

        found, back = vjp(nodes, *(values[name] for name in self.names))[:2]
        each = gradients(list(found))
        pulled = vmap(back)(tuple(g.to(f.dtype) for g, f in zip(each, found, strict=True)))
        return dict(zip(self.names, pulled, strict=True))


def derived_from(
    names: Sequence[str],
    node_of: Mapping[str, Node],
    of_record: set[Node],
    uses: Callable[[Node], list[Any] | None],
) -> list[Derived]:
    """What follows from the parameters `names`, with all parameters that meet them on the way.

    node_of: of every trained parameter without copies. uses: of a node by operations of records;
    None where it is read otherwise than as a weight, and its group is left out.
    """
    ways = {name: _reached(node, of_record) for name, node in node_of.items()}
    wanted = set(names)
    while more := [
        name for name in set(node_of) - wanted if any(ways[name] & ways[each] for each in wanted)
    ]:
        wanted |= set(more)
    groups = [Derived([name], [], ways[name]) for name in node_of if name in wanted]
    joined: list[Derived] = []
    for group in groups:
        for other in [each for each in joined if each.inside & group.inside]:
            joined.remove(other)
            group = Derived(other.names + group.names, [], other.inside | group.inside)
        joined.append(group)
    for group in joined:
        # In the graph's order.
        order = [node for node in next(iter(group.inside)).graph.nodes if node in group.inside]
        group.nodes = [node for node in order if any(user in of_record for user in node.users)]
    return [
        each for each in joined if each.nodes and all(uses(node) is not None for node in each.nodes)
    ]


def _reached(source: Node, of_record: set[Node]) -> set[Node]:
    """The nodes whose gradient reaches the source and that are the same for all records."""
    found, ways = {source}, [source]
    for node in ways:
        for user in node.users:
            stops = user.target is aten.detach.default or user.op == "output" or user in of_record
            if user not in found and not stops:
                found.add(user)
                ways.append(user)
    return found
