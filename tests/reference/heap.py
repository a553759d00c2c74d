"""Growth of one tree by its definition: best-first search with a heap, and a beam, one node at a time.

`children(path)` gives the log-probability of every candidate behind a path of choices. Sums are in double precision.
"""

import heapq
import math


def best_first(children, slots, nodes, *, depth_bonus=0.0, chain=False):
    """The `nodes` best paths with their scores, best first; with `chain`, the greedy chain comes before all others."""
    order = 0  # ties go to whoever was pushed first
    heap = []

    def push(path, score, on_chain):
        nonlocal order
        rows = children(path)
        best = rows.index(max(rows))
        for choice, row in enumerate(rows):
            if row == -math.inf:
                continue
            first = chain and on_chain and choice == best
            key = math.inf if first else score + row + depth_bonus * (len(path) + 1)
            heapq.heappush(heap, (-key, order, (*path, choice), score + row, first))
            order += 1

    tree = []
    push((), 0.0, True)
    while heap and len(tree) < nodes:
        _, _, path, score, on_chain = heapq.heappop(heap)
        tree.append((path, score))
        if len(path) < slots:
            push(path, score, on_chain)
    return tree


def beam(children, slots, nodes, lanes, ledger, *, depth_bonus=0.0):
    """The best `nodes` of those that a beam of `lanes` open paths met; per depth it remembers `ledger` nodes."""
    found, open_paths = [], [((), 0.0)]
    for depth in range(slots):
        level = [
            ((*path, choice), score + row)
            for path, score in open_paths
            for choice, row in enumerate(children(path))
            if row > -math.inf
        ]
        level.sort(key=lambda node: -node[1])
        level = level[:ledger]
        found += [(score + depth_bonus * (depth + 1), path, score) for path, score in level]
        open_paths = level[:lanes]
    found.sort(key=lambda node: -node[0])
    return [(path, score) for _, path, score in found[:nodes]]


def ancestors(parents):
    """Row i: the nodes that i sees, by walking up from i; the root is its own parent."""
    seen = []
    for node in range(len(parents)):
        row = [False] * len(parents)
        while True:
            row[node] = True
            if node == 0:
                break
            node = parents[node]
        seen.append(row)
    return seen
