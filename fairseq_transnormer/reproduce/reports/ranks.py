"""Whether measured figures are in the paper's order."""

from itertools import combinations
from typing import Any

FEWEST_ROWS = 4  # whose rank correlation is worth printing


def agreement(
    paper: dict[str, float],
    measured: dict[str, float],
    deviation: dict[str, float],
    seeds: dict[str, int] | None = None,
) -> dict[str, Any] | None:
    """Rank correlations, and the pairs of rows that stand the other way round.

    Args:
        paper, measured: row -> figure; rows that only one has do not count.
        deviation: row -> standard deviation over seeds, where there are several.
        seeds: row -> how many there are; None: one for each figure.

    Returns:
        rows, spearman, kendall (tau-b; both None where all figures of one side are
        equal) and disagreements, each with both rows, both differences, and whether
        the measured one is within the seeds' deviation (None with a single seed);
        ties, the pairs that differ in the paper and are equal as measured; and
        is_within_error, whether the rows are no further apart than twice the standard
        error of their means, which four equal ones would be (False with single seeds).
        None for fewer than two rows.
    """
    from scipy import stats

    rows = [row for row in paper if row in measured]
    if len(rows) < 2:
        return None
    printed, found = ([side[row] for row in rows] for side in (paper, measured))
    varied = len(set(printed)) > 1 and len(set(found)) > 1
    disagreements, ties = [], []
    for first, second in combinations(rows, 2):
        paper_difference = paper[first] - paper[second]
        difference = measured[first] - measured[second]
        if paper_difference and not difference:
            ties.append([first, second])
        if paper_difference * difference < 0:
            noise = [deviation.get(row) for row in (first, second)]
            within = None
            if None not in noise:
                within = abs(difference) <= (noise[0] ** 2 + noise[1] ** 2) ** 0.5
            disagreements.append(
                {
                    "rows": [first, second],
                    "paper_difference": paper_difference,
                    "measured_difference": difference,
                    "within_deviation": within,
                }
            )
    return {
        "rows": len(rows),
        "spearman": float(stats.spearmanr(printed, found).statistic)
        if varied
        else None,
        "kendall": float(stats.kendalltau(printed, found).statistic)
        if varied
        else None,
        "disagreements": disagreements,
        "ties": ties,
        "is_within_error": _are_within(
            found,
            [
                deviation[row] ** 2 / (seeds or {}).get(row, 1)
                for row in rows
                if row in deviation
            ],
        ),
    }


def _are_within(figures: list[float], variances: list[float]) -> bool:
    if not variances:
        return False
    error = (sum(variances) / len(variances)) ** 0.5
    return max(figures) - min(figures) <= 2 * error
