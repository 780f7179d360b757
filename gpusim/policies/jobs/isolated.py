"""Each job has its equal part of the cluster, as if it were alone on it."""

from __future__ import annotations

from gpusim.policies.clusters import Shares, ShareView


class EqualParts:
    """An n-th of each type of GPU for each of n jobs."""

    packs, shuffles, leftovers = False, True, True

    def shares(self, view: ShareView) -> Shares:
        """In time: its GPUs over those that it wants, cut down where that is more than all the time."""
        return equal_parts(view, [(job,) for job in view.jobs])


def equal_parts(view: ShareView, rows: list[tuple[int, ...]]) -> Shares:
    """Time of these jobs and pairs on each type, each with the same part of the GPUs."""
    found, many = {}, len(rows)
    for row in rows:
        parts = {kind: count / many / view.job(row[0]).gpus for kind, count in sorted(view.gpus.items())}
        total = 0.0
        for part in parts.values():
            total += part
        over = max(total, 1.0)
        found[row] = {kind: part / over for kind, part in parts.items()}
    return found


def isolated() -> EqualParts:
    """An n-th of each type of GPU for each of n jobs, in turns.

    Source: Gavel's baseline (Narayanan et al., OSDI 2020).
    """
    return EqualParts()
