"""What the paper states, a line each, with the claims that put it to the test."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from normscope_paper.harness.claims import NOT_IN_PAPER, Claim, tally
from normscope_paper.harness.registry import load
from normscope_paper.harness.results import Results, Scale


class Statement(NamedTuple):
    """One statement of the paper.

    Attributes:
        place: where the paper makes it.
        text: what it says.
        experiment: whose claims test it.
        pattern: a regular expression that the sentences of those claims begin with.
        recipe: a regular expression of their recipes.
    """

    place: str
    text: str
    experiment: str
    pattern: str
    recipe: str = ""


STATEMENTS = (
    Statement("Prop. 3.1", "The gradient has length sin(phi) / |z|", "fig1", "The gradient of"),
    Statement("Cor. 3.3", "A step never shortens an embedding", "fig1", "A step|After a step"),
    Statement(
        "Thm. 3.4", "One step gains at most 2 gamma sin²(phi) / rho²", "convergence_rate", ""
    ),
    Statement("Prop. C.1", "Nearly opposite embeddings are improbable", "opposite_halves", ""),
    Statement("Fig. 7", "The cosine is less steep at large norms", "cos_sim_surface", ""),
    Statement("Fig. 6", "GradScale sets how norms scale gradients", "grad_scaling", "With power"),
    Statement(
        "Prop. D.1", "GradScale's field has no potential", "grad_scaling", "The scaled|For power"
    ),
    Statement("Fig. 2", "Steps grow with the square of the norm", "convergence_sim", "Steps to"),
    Statement(
        "Fig. 2",
        "Steps to convergence are those of the published notebook",
        "convergence_sim",
        "The notebook's",
    ),
    Statement("Fig. 2", "Angles slow convergence only near pi", "convergence_sim", "The angle has"),
    Statement("Fig. 2", "Large norms cost more than angles", "convergence_sim", "Large norms"),
    Statement(
        "Table 1",
        "The printed steps, if the decay acts on the norm",
        "weight_decay_convergence",
        "Steps at|At decay",
        "norm$",
    ),
    Statement(
        "Table 1",
        "The printed steps, if it acts on the squared norm, as the objective says",
        "weight_decay_convergence",
        "Steps at|At decay",
        "squared$",
    ),
    Statement(
        "Sec. 4.1",
        "The square law persists under weight decay",
        "weight_decay_convergence",
        "Under decay",
    ),
    Statement(
        "Sec. 4.1",
        "Moderate weight decay speeds up convergence",
        "weight_decay_convergence",
        "Convergence is faster",
    ),
    Statement("Fig. 2", "Dense regions have large norms", "density", "Embeddings in dense"),
    Statement(
        "Sec. 4.2", "Training makes norms large in dense regions", "density", "Training causes"
    ),
    Statement(
        "Fig. 2",
        "Frequent classes have larger norms",
        "class_imbalance",
        "The most frequent|The norm rises|The growth",
    ),
    Statement(
        "Fig. 2", "All four classes are ordered by their frequency", "class_imbalance", "All four"
    ),
    Statement("Fig. 8", "Latent classes are reconstructed", "latents", ""),
    Statement("Fig. 3", "Held-out images have slightly smaller norms", "in_out_violin", "Held-out"),
    Statement(
        "Fig. 3",
        "Images of another kind have substantially smaller norms",
        "in_out_violin",
        "Images of another",
    ),
    Statement("Fig. 4", "Accuracy rises with the norm", "norm_as_confidence", "The kNN's"),
    Statement(
        "Fig. 4",
        "People are more often right on long embeddings",
        "norm_as_confidence",
        "People label",
    ),
    Statement(
        "Fig. 4", "People disagree less on long embeddings", "norm_as_confidence", "People disagree"
    ),
    Statement(
        "Fig. 5",
        "Without decay norms grow (SimCLR) or can shrink (SimSiam)",
        "weight_decay_ablation",
        ".*without weight decay",
    ),
    Statement(
        "Fig. 5",
        "The usual decay lowers norms, and they fall",
        "weight_decay_ablation",
        ".*(keeps norms|norms fall)",
    ),
    Statement(
        "Fig. 5",
        "The usual decay improves kNN, SimSiam's more",
        "weight_decay_ablation",
        ".*the usual decay improves|Weight decay improves",
    ),
    Statement("Fig. 5", "High decay collapses", "weight_decay_ablation", ".*collapse"),
    Statement(
        "Fig. 9", "On unbalanced data, more weight decay helps", "weight_decay_imbalanced", ""
    ),
    Statement("Fig. 10", "A cut below 1 slows training", "cut_experiments", ".*0.33: slower"),
    Statement("Fig. 10", "A cut below 1 keeps norms large", "cut_experiments", ".*0.33: norms"),
    Statement("Fig. 10", "A cut improves early kNN", "cut_experiments", ".*: faster"),
    Statement(
        "Fig. 10", "A cut improves SimSiam and BYOL more than SimCLR", "cut_experiments", ".*gains"
    ),
    Statement("Table 2", "Small cuts gain, large ones lose, at any decay", "wd_cut", ""),
    Statement("Table 3", "A cut helps MoCo and not DINO", "transformer_accs", ""),
    Statement("Table 4", "A cut helps SimCLR", "accuracies", "SimCLR, cut"),
    Statement("Table 4", "GradScale helps SimCLR", "accuracies", "SimCLR, GradScale"),
    Statement("Table 4", "A cut helps SimSiam", "accuracies", "SimSiam, cut"),
    Statement("Table 5", "Unbalanced: a cut helps SimCLR", "imbalanced_experiments", "SimCLR, cut"),
    Statement(
        "Table 5",
        "Unbalanced: GradScale helps SimCLR",
        "imbalanced_experiments",
        "SimCLR, GradScale",
    ),
    Statement(
        "Table 5", "Unbalanced: a cut helps SimSiam", "imbalanced_experiments", "SimSiam, cut"
    ),
    Statement("Table 6", "Adam: a cut helps SimCLR", "adam_performance", "SimCLR, cut"),
    Statement("Table 6", "Adam: GradScale helps SimCLR", "adam_performance", "SimCLR, GradScale"),
    Statement("Table 6", "Adam: a cut helps SimSiam", "adam_performance", "SimSiam, cut"),
    Statement(
        "Table 10",
        "Adam: a cut ends with smaller norms, GradScale with larger",
        "adam_performance",
        "Under Adam",
    ),
    Statement(
        "Table 7",
        "After one epoch many of SimCLR's and SimSiam's pairs point apart, later few",
        "opposite_halves_effect",
        ".*(SimCLR|SimSiam)",
    ),
    Statement(
        "Table 7",
        "After one epoch many of BYOL's pairs point apart, later none",
        "opposite_halves_effect",
        ".*BYOL",
    ),
    Statement("Table 8", "A cut makes up for large batches", "cut_batch_size", ""),
    Statement("Table 9", "Linear probes gain from a cut and GradScale too", "lin_probe", ""),
)
_TRAINED: dict[Scale, str] = {
    "paper": "as in the paper",
    "small": "shorter",
    "smoke": "on digits only",
}
_SHOWN = 3  # values in a line; of more, the lowest and the highest


def claims_on(statement: Statement, results: Results, claims: Iterable[Claim]) -> list[Claim]:
    """The claims that test it; where the data are not the paper's, those on other data."""
    if results.experiment != statement.experiment:
        return []
    return [
        claim
        for claim in claims
        if (claim.paper != NOT_IN_PAPER or results.scale == "smoke")
        and re.match(statement.pattern, claim.sentence)
        and re.match(statement.recipe, claim.recipe)
    ]


def verdict_of(claims: list[Claim]) -> str:
    """One verdict over several claims.

    "holds" and "does not hold" need every claim decided alike; "mixed" needs two decided apart.

    >>> one = Claim("x", "+", 1.0, (0.5, 1.5), (0.0, 9.0), "text")
    >>> open_ = Claim("x", "+", 1.0, (-0.5, 1.5), (0.0, 9.0), "text")
    >>> verdict_of([one, one]), verdict_of([one, open_])
    ('holds', 'holds in 1 of 2, the rest open')
    """
    counts = tally(claims)
    yes, no, unsure = (counts[kind] for kind in ("reproduced", "not reproduced", "inconclusive"))
    if yes and no:
        return f"mixed: holds in {yes}, fails in {no}" + (f", open in {unsure}" if unsure else "")
    if not yes and not no:
        return "open"
    word, n = ("holds", yes) if yes else ("fails", no)
    whole = "holds" if yes else "does not hold"
    return f"{word} in {n} of {len(claims)}, the rest open" if unsure else whole


def lines(judged: Iterable[tuple[Results, list[Claim]]]) -> list[tuple[str, ...]]:
    """A line for each statement: experiment, place, statement, the paper's numbers, ours, training,
    verdict.
    """
    stored = {results.experiment: (results, claims) for results, claims in judged}
    rows = []
    for statement in STATEMENTS:
        name = statement.experiment
        if name not in stored:
            continue
        results, claims = stored[name]
        found = claims_on(statement, results, claims)
        trains = load(name).KIND == "training"
        trained = _TRAINED[results.scale] if trains else "-"
        printed = "; ".join(dict.fromkeys(c.paper for c in found if c.paper != NOT_IN_PAPER))
        ours = "; ".join(claim.value_text for claim in found)
        if len(found) > _SHOWN:
            least, most = (pick(found, key=lambda claim: claim.value) for pick in (min, max))
            ours = f"{least.value_text} to {most.value_text} ({len(found)} comparisons)"
        row = (
            name,
            statement.place,
            statement.text,
            printed or "-",
            ours,
            trained,
            verdict_of(found),
        )
        rows.append(row)
    return rows
