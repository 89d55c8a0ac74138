"""Write the most telling of the measured figures into the README, between its marks."""

from __future__ import annotations

import json
from typing import Any

import pages
import summary


def entropic(results: dict[str, Any], others: dict[str, Any]) -> str:
    """From how many times faster to how many, by problem and rival; of what a rival offers, the fastest counts."""
    found: dict[tuple[str, str], list[float]] = {}
    for rival, cases in (("POT", results["cases"]), ("OTT-JAX", others["cases"])):
        for case in cases:
            times = [spent for name, spent in case["seconds"].items() if name.startswith(rival)]
            if times and not case["case"].startswith("batch"):
                ratio = min(times) / case["seconds"]["spadeful"]
                found.setdefault((rival, case["case"].split(",")[0]), []).append(ratio)
    parts = [f"{min(r):.0f} to {max(r):.0f} times than those of {who} ({what})" for (who, what), r in found.items()]
    return "Entropic plans of 65 to 500 points, to a marginal error of 1e-6, are faster by " + "; ".join(parts) + "."


def clouds(minibatch: dict[str, Any]) -> str:
    large = minibatch["large"]
    return (
        f"Mini-batches: {large['k']:,} pairs of {large['m']} + {large['m']} points out of {large['n']:,} in 64 "
        f"dimensions, s = 0.75, take {large['two threads']['wall']:.1f} s on two cores and "
        f"{large['two threads']['peak'] / 2**20:.0f} MiB beyond the memory-mapped points; on one core "
        f"{large['to loop']['one thread']:.0f} times faster than a loop over NumPy and POT."
    )


def section(exact: dict[str, Any], *others: dict[str, Any]) -> list[str]:
    machine = exact["machine"]
    return [
        f"Exact plans: times faster than POT's `partial_wasserstein` (s < 1) and than the fastest of POT `emd`, SciPy "
        f"and lapx (s = 1). The geometric mean over {exact['sizes'][0]} to {exact['sizes'][-1]} points a side, and in "
        f"brackets the smallest; one thread each, in the same run, on {machine['cores']} cores of an "
        f"{machine['processor']} ({machine['instructions']}).",
        *summary.ratios(exact),
        entropic(*others[:2]),
        "",
        clouds(others[2]),
    ]


def main() -> None:
    asked = pages.folders(__doc__)
    names = "exact", "entropic", "others", "minibatch"
    found = [json.loads((asked.results / f"{name}.json").read_text(encoding="utf-8")) for name in names]
    pages.write(asked.docs.parent / "README.md", section(*found))


if __name__ == "__main__":
    main()
