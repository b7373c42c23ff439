"""Fits the weights by which claims are ranked, on what `EVAL_DUMP=FILE cargo xtask eval claims` writes. Needs numpy.

Only the even tasks take part: the value that belongs in a place is to come before every other one that the run had
read, whether the answer says it (untouched answers) or something else (swaps). Prints the weights as
`crates/compare/src/claims/rank.rs` has them, then how many values of either half are outranked by how much.
"""

import json
import sys

import numpy as np

PENALTY = 0.003
SAID, MEANT = 0, 1


class Place:
    """A claim with the candidates for its place: what was said, what belongs there, and every other value, as groups."""

    def __init__(self, row, candidates):
        self.row = row
        says, meant, value = (np.array([c[i] for c in candidates]) for i in range(3))
        value = value.astype(np.uint64)
        known = np.where(says, np.uint64(SAID), np.uint64(MEANT))
        names = np.where(says | meant, known, (value << np.uint64(2)) | np.uint64(3))
        self.names, group = np.unique(names, return_inverse=True)
        order = np.argsort(group, kind="stable")
        self.fits = np.array([c[3] for c in candidates], dtype=np.float32)[order]
        group = group[order]
        self.starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
        self.right = self.names == (SAID if row["how"] == "true" else MEANT)

    def behind(self, weights):
        worth = np.maximum.reduceat(self.fits @ weights, self.starts)
        said = self.names == SAID
        return worth[~said].max() - worth[said].max()


def places(path):
    for line in open(path):
        row = json.loads(line)
        candidates = max((c["candidates"] for c in row.pop("claims")), key=len, default=[])
        if any(c[0] for c in candidates) and not all(c[0] for c in candidates):
            yield Place(row, candidates)


def fit(train, rounds=400, rate=0.05):
    fits = np.concatenate([p.fits for p in train])
    groups, claims, rows, count = [], [], 0, 0
    for p in train:
        groups.append(p.starts + rows)
        claims.append(count)
        rows += len(p.fits)
        count += len(p.starts)
    groups, claims = np.concatenate(groups), np.array(claims)
    group_of = np.repeat(np.arange(count), np.diff(np.r_[groups, rows]))
    claim_of = np.repeat(np.arange(len(claims)), np.diff(np.r_[claims, count]))
    right = np.concatenate([p.right for p in train]).astype(float)
    weights, mean, square = (np.zeros(fits.shape[1]) for _ in range(3))
    for step in range(1, rounds + 1):
        worth = fits @ weights
        best = np.maximum.reduceat(worth, groups)
        top = worth == best[group_of]
        place = np.zeros(count, dtype=int)
        place[group_of[top][::-1]] = np.flatnonzero(top)[::-1]
        share = np.exp(best - np.maximum.reduceat(best, claims)[claim_of])
        share /= np.add.reduceat(share, claims)[claim_of]
        slope = fits[place].T @ (share - right) / len(claims) + PENALTY * weights
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope * slope
        weights = weights - rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return weights


def teaches(place):
    row = place.row
    return not row["odd"] and row["how"] != "fresh" and not row["open"] and place.right.any()


everything = list(places(sys.argv[1]))
weights = fit([p for p in everything if teaches(p)])
print(", ".join(f"{w:.2f}" for w in weights))
for odd in (False, True):
    for how in ("true", "elsewhere", "exchanged"):
        behind = np.array([p.behind(weights) for p in everything if p.row["odd"] == odd and p.row["how"] == how])
        shares = ", ".join(f"{(behind > ahead).mean():.3f} by {ahead}" for ahead in (1, 2, 3, 4))
        print(f"{'odd' if odd else 'even'} {how}: {len(behind)} values, outranked {shares}")
