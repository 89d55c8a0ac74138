"""The tables and figures of the paper and its appendix, in their order."""

from __future__ import annotations

import re

#: What each shows, by its label in the paper's source.
LABELS = {
    "table:DA_digits_summary": "accuracy on digits",
    "table:DA_visda_summary": "accuracy on VisDA",
    "table:DA_office_summary": "accuracy on Office-Home",
    "table:PDA_office_summary": "accuracy on Office-Home, partial targets",
    "table:DA_digits_details": "each run on digits",
    "table:DA_office_details": "each run on Office-Home",
    "table:DA_visda_details": "each run on VisDA, class by class",
    "table:DA_efficient_office_detail": "one stage and two on Office-Home, k = 1, 2, 4",
    "table:DA_efficient_visda_detail": "one stage and two on VisDA, k = 1, 2, 4",
    "table:VisDA_change_m": "the size m of a mini-batch on VisDA",
    "table:PDA_office_details": "each run on Office-Home, partial targets",
    "table:GM_details": "FID of generators on CIFAR-10 and CelebA",
    "table:DA_digits_equi": "one more sample in a mini-batch, digits",
    "table:DA_visda_equi": "one more sample in a mini-batch, VisDA",
    "table:DA_office_equi": "one more sample in a mini-batch, Office-Home",
    "table:GM_details_equi": "one more sample in a mini-batch, generators",
    "table:two_stage_timing": "time per iteration on Office-Home and VisDA",
    "table:DGM_timing": "iterations per second of generators",
    "fig:mOT": "Example 1 under partial transport",
    "fig:DA_s": "accuracy of m-POT against the mass s",
    "fig:twostageDA": "the computational graph of two stages",
    "fig:conventionalDA": "the computational graph of one stage",
    "fig:mUOT": "Example 1 under unbalanced transport",
    "fig:mUOTscale": "Example 1 scaled by 10, unbalanced",
    "fig:mPOTscale": "Example 1 scaled by 10, partial",
    "fig:nonoverlap": "batches without an optimal mapping",
    "fig:OTmatrix_main": "aggregated plans of m-OT, m-UOT and m-POT",
    "fig:POTmatrix_main": "aggregated plans of m-POT for four masses",
    "fig:tsne_digits": "features of SVHN and MNIST in the plane",
    "fig:tsne_visda": "features of VisDA in the plane",
    "fig:ablation_studies_VisDA": "k, m and s on VisDA",
    "fig:DGM_Cifar10": "generated images, CIFAR-10",
    "fig:DGM_CelebA": "generated images, CelebA",
    "fig:colortransfer_main": "colour transfer by m-OT and m-POT",
    "fig:gradientflow_main": "gradient flows of a disc to an S",
    "fig:deepDA_timing": "time per iteration on digits",
}


def numbered(label: str) -> str:
    """A label as the paper prints it.

    >>> numbered("table:DA_visda_summary"), numbered("fig:mOT")
    ('Table 2', 'Figure 1')
    """
    kind = label.partition(":")[0]
    alike = [other for other in LABELS if other.startswith(f"{kind}:")]
    return f"{'Table' if kind == 'table' else 'Figure'} {alike.index(label) + 1}"


def find_label(text: str) -> str | None:
    """The label that a text means: a label, or a number such as table-2, Table 2 or figure2.

    >>> find_label("table-2"), find_label("fig:mOT"), find_label("digits")
    ('table:DA_visda_summary', 'fig:mOT', None)
    """
    if text in LABELS:
        return text
    number = re.fullmatch(r"(table|fig|figure)[-_ ]?(\d+)", text.strip().lower())
    wanted = f"{'Table' if number[1] == 'table' else 'Figure'} {number[2]}" if number else None
    return next((label for label in LABELS if numbered(label) == wanted), None)
