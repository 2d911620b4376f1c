"""Consistency proofs of Merkle trees, written from RFC 9162, sections 2.1.1 and 2.1.4, to compare another implementation with.

Reads a JSON array from standard input, [[hash of a leaf in hex, ...], [[m, n, [hash of the proof in hex, ...]], ...]], and prints a JSON
array: for each [m, n, proof] the proof as it should be, the roots of the trees of m and n leaves, and whether the given proof verifies.
"""

import hashlib
import json
import sys


def node(left, right):
    return hashlib.sha256(b"\x01" + left + right).digest()


def split(n):
    k = 1
    while k * 2 < n:
        k *= 2
    return k


def root(leaves):
    if len(leaves) == 1:
        return leaves[0]
    k = split(len(leaves))
    return node(root(leaves[:k]), root(leaves[k:]))


def subproof(m, leaves, complete):
    n = len(leaves)
    if m == n:
        return [] if complete else [root(leaves)]
    k = split(n)
    if m <= k:
        return subproof(m, leaves[:k], complete) + [root(leaves[k:])]
    return subproof(m - k, leaves[k:], False) + [root(leaves[:k])]


def verifies(first, second, first_hash, second_hash, path):
    if first == second:
        return not path and first_hash == second_hash
    if not path:
        return False
    if first & (first - 1) == 0:
        path = [first_hash] + path
    fn, sn = first - 1, second - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = path[0]
    for c in path[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            fr, sr = node(c, fr), node(c, sr)
            while not fn & 1 and fn != 0:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = node(sr, c)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and fr == first_hash and sr == second_hash


leaves, cases = json.load(sys.stdin)
leaves = [bytes.fromhex(leaf) for leaf in leaves]
results = []
for m, n, proof in cases:
    older, newer = root(leaves[:m]), root(leaves[:n])
    given = [bytes.fromhex(one) for one in proof]
    own = [one.hex() for one in subproof(m, leaves[:n], True)]
    results.append([own, older.hex(), newer.hex(), verifies(m, n, older, newer, given)])
json.dump(results, sys.stdout)
