"""Where the steps of a run stand in its graph: layers by what they wait for, few crossings. Pure; no database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 150, 44, 60, 16, 8
_ROUNDS = 8
_DUMMY = "\0"  # begins the names of bends, which no step has

Edges = Mapping[str, Sequence[str]]  # step → what it waits for


@dataclass(frozen=True, slots=True)
class Node:
    """A step at its place; ``x`` and ``y`` are its left upper corner."""

    name: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Line:
    """An edge as points from one step to the next, by way of its bends."""

    source: str
    target: str
    points: tuple[tuple[int, int], ...]

    @property
    def path(self) -> str:
        """The edge as the path of an SVG."""
        (x, y), rest = self.points[0], self.points[1:]
        found = [f"M{x},{y}"]
        for to_x, to_y in rest:
            middle = (x + to_x) // 2
            found.append(f"C{middle},{y} {middle},{to_y} {to_x},{to_y}")
            x, y = to_x, to_y
        return " ".join(found)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph with its size."""

    nodes: tuple[Node, ...]
    lines: tuple[Line, ...]
    width: int
    height: int


def drawn(edges: Edges) -> Drawing:
    """Return the graph from left to right. Steps keep the order of the mapping where nothing else decides."""
    layers, chains = _layered(edges)
    _order(layers, chains)
    places = _places(layers)
    nodes = tuple(Node(name, *places[name]) for name in edges)
    lines = tuple(_line(chain, places) for chain in chains)
    width = 2 * MARGIN + len(layers) * WIDTH + max(0, len(layers) - 1) * GAP_X
    most = max((len(layer) for layer in layers), default=0)
    height = 2 * MARGIN + most * HEIGHT + max(0, most - 1) * GAP_Y
    return Drawing(nodes, lines, width, height)


def crossings(drawing: Drawing) -> int:
    """Return how many pairs of edge parts between the same two layers cross."""
    parts = [pair for line in drawing.lines for pair in zip(line.points[::2], line.points[1::2], strict=False)]
    found = 0
    for number, (start, end) in enumerate(parts):
        for other_start, other_end in parts[number + 1 :]:
            if start[0] == other_start[0] and (start[1] - other_start[1]) * (end[1] - other_end[1]) < 0:
                found += 1
    return found


def bends(edges: Edges) -> int:
    """Return how many bends the edges have: they decide how long a drawing takes."""
    depth = _depths(edges)
    return sum(depth[name] - depth[on] - 1 for name, sources in edges.items() for on in sources)


def _depths(edges: Edges) -> dict[str, int]:
    depth: dict[str, int] = {}
    for name in TopologicalSorter(edges).static_order():
        depth[name] = 1 + max((depth[on] for on in edges.get(name, ())), default=-1)
    return depth


def _layered(edges: Edges) -> tuple[list[list[str]], list[list[str]]]:
    """Return the names by layer, with a bend in each layer that an edge passes, and each edge as its names."""
    depth = _depths(edges)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in edges:
        layers[depth[name]].append(name)
    chains = []
    for name, sources in edges.items():
        for on in sources:
            bends = [f"{_DUMMY}{on}{_DUMMY}{name}{_DUMMY}{at}" for at in range(depth[on] + 1, depth[name])]
            for at, bend in enumerate(bends, depth[on] + 1):
                layers[at].append(bend)
            chains.append([on, *bends, name])
    return layers, chains


def _order(layers: list[list[str]], chains: Sequence[Sequence[str]]) -> None:
    """Sort each layer by the middle of its neighbours, to and fro."""
    before: dict[str, list[str]] = defaultdict(list)
    behind: dict[str, list[str]] = defaultdict(list)
    for chain in chains:
        for source, target in pairwise(chain):
            before[target].append(source)
            behind[source].append(target)
    for number in range(_ROUNDS):
        forward = number % 2 == 0
        turn = range(1, len(layers)) if forward else range(len(layers) - 2, -1, -1)
        for at in turn:
            beside = layers[at - 1 if forward else at + 1]
            rank = {name: place for place, name in enumerate(beside)}
            _sort(layers[at], before if forward else behind, rank)


def _sort(layer: list[str], neighbours: Mapping[str, Sequence[str]], rank: Mapping[str, int]) -> None:
    own = {name: place for place, name in enumerate(layer)}

    def middle(name: str) -> float:
        found = [rank[one] for one in neighbours.get(name, ()) if one in rank]
        return sum(found) / len(found) if found else own[name]

    layer.sort(key=middle)


def _places(layers: Sequence[Sequence[str]]) -> dict[str, tuple[int, int]]:
    most = max((len(layer) for layer in layers), default=0)
    places = {}
    for column, layer in enumerate(layers):
        top = MARGIN + (most - len(layer)) * (HEIGHT + GAP_Y) // 2
        for row, name in enumerate(layer):
            places[name] = (MARGIN + column * (WIDTH + GAP_X), top + row * (HEIGHT + GAP_Y))
    return places


def _line(chain: Sequence[str], places: Mapping[str, tuple[int, int]]) -> Line:
    points: list[tuple[int, int]] = []
    for name in chain:
        x, y = places[name]
        if name != chain[0]:
            points.append((x, y + HEIGHT // 2))
        if name != chain[-1]:
            points.append((x + WIDTH, y + HEIGHT // 2))
    return Line(chain[0], chain[-1], tuple(points))
