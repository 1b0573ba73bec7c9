"""normscope demo."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from normscope.cli import errors, out, refuse, writable_folder
from normscope.engine import RunResult, RunSpec, Stopped, evaluate, train
from normscope.extend import processor, versions
from normscope.report import (
    Page,
    Picture,
    Section,
    Table,
    curves,
    norms_section,
    rates,
    style,
    summary_table,
)
from normscope_paper.cli.side_by_side import train_side_by_side
from normscope_paper.harness import EXPERIMENTS, Claim, Results, Sweep, load, numbers
from normscope_paper.harness.claims import VERDICTS, tally

# SimSiam at the learning rate and weight decay of its own paper (Chen & He, 2021, Section 3)
_OWN = {"method": "simsiam", "lr": 0.05, "weight_decay": 1e-4}
_RAISED = {"lr": 9 * _OWN["lr"], "weight_decay": _OWN["weight_decay"] / 9}
PLAIN, CUT, RAISED, TOO_FAR = "SimSiam", "SimSiam, cut 3", "SimSiam, rate x 9", "SimSiam, cut 9"
HEALTHY = "SimCLR"
RUNS: dict[str, dict[str, Any]] = {
    PLAIN: _OWN,
    CUT: {**_OWN, "cut": 3.0},
    RAISED: {**_OWN, **_RAISED},
    TOO_FAR: {**_OWN, "cut": 9.0},
    HEALTHY: {"method": "simclr"},
}
SHOWN = ("convergence_sim", "class_imbalance", "grad_scaling")  # whose figures the page has


def demo(
    folder: Annotated[Path, typer.Option("--out", help="where everything goes")] = Path("demo"),
    epochs: Annotated[int, typer.Option(help="of each of the five runs")] = 60,
) -> None:
    """See a slow run fixed, and why: train, evaluate, simulate, report.

    \b
    normscope demo                 two to three minutes on two cores

    Trains SimSiam on scikit-learn's digits as its paper does, then with its weights divided by 3,
    with 9 times the learning rate, and with its weights divided by 9; and SimCLR, which needs
    nothing. Runs the paper's simulations at smoke scale. Writes one self-contained report.html.
    Ctrl-C loses nothing: the same command continues.
    """
    if epochs < 1:
        refuse(f"--epochs must be at least 1, got {epochs}.")
    writable_folder(folder)
    start = time.perf_counter()
    try:
        wanted = {
            name: (
                RunSpec(data="digits", epochs=epochs, **values),
                folder / "runs" / f"{_file_name(name)}-{epochs}-epochs",
            )
            for name, values in RUNS.items()
        }
        train_side_by_side(wanted)
        runs = {  # all are finished by now
            name: train(spec, folder=path, resume=True, device="cpu")
            for name, (spec, path) in wanted.items()
        }
        _evaluate(runs[CUT].folder)
        simulations = _simulate()
    except (Stopped, KeyboardInterrupt):
        errors.print("Stopped. Every run is kept; the same command continues.")
        raise typer.Exit(130) from None
    page = folder / "report.html"
    _page(runs, simulations, time.perf_counter() - start).save(page)
    for name, run in runs.items():
        out.print(f"{name:<18} kNN {run.knn:.1%}, test norm {run.norm:.3g}", highlight=False)
    out.print(f"Open {page.resolve().as_uri()}", highlight=False, soft_wrap=True)


def _file_name(name: str) -> str:
    return name.lower().replace(", ", "-").replace(" ", "-")


def _evaluate(run: Path) -> None:
    if not (run / "evaluation.json").exists():  # which is written last
        with errors.status(f"evaluating {CUT}"):
            evaluate(run)


def _simulate() -> dict[str, tuple[Results, list[Claim]]]:
    done = {}
    with errors.status("simulating") as status:
        for name in EXPERIMENTS:
            if (experiment := load(name)).KIND == "simulation":
                status.update(f"simulating {name}")
                results = numbers(name, "smoke", 0, experiment.SEEDS["smoke"], Sweep())
                done[name] = results, experiment.check(results)
    return done


def _page(
    runs: dict[str, RunResult],
    simulations: dict[str, tuple[Results, list[Claim]]],
    seconds: float,
) -> Page:
    return Page(
        title="A slow run, and what it lacked",
        lead=_outcome(runs),
        sections=[
            _runs_section(runs),
            norms_section(runs[CUT].folder),
            _simulation_section(simulations),
            _next_section(runs),
        ],
        footer=f"normscope {versions()['normscope']}, {seconds:.0f} s on {processor()}.",
    )


def _outcome(runs: dict[str, RunResult]) -> str:
    """The results of the runs, in words."""
    gain = 100 * (runs[CUT].knn - runs[PLAIN].knn)
    apart = 100 * abs(runs[CUT].knn - runs[RAISED].knn)
    return (
        f"SimSiam, trained on digits as its paper does, comes to {runs[PLAIN].knn:.1%} kNN. With "
        f"its initial weights divided by 3 it comes to {runs[CUT].knn:.1%} ({gain:+.1f} points), "
        f"with 9 times the learning rate to {runs[RAISED].knn:.1%} ({apart:.1f} points from the "
        "cut): a cut by c acts as a learning rate c squared times as high. One seed each."
    )


def _runs_section(runs: dict[str, RunResult]) -> Section:
    return Section(
        title="Five runs on handwritten digits",
        texts=[
            "Look at the effective learning rate: the learning rate over the squared norm of a "
            "weight that a normalisation follows. Such a weight has no size that the output "
            "feels; the rate says how far a step turns it.",
            f"{PLAIN} turns its weights slowly, at {_highest(runs[PLAIN]):.2g} at most, while "
            f"{HEALTHY}, which reaches {runs[HEALTHY].knn:.1%} as it is, has "
            f"{_highest(runs[HEALTHY]):.2g}: nothing there needs mending. The cut by 3 and the "
            f"higher rate bring SimSiam to {_highest(runs[CUT]):.2g} and "
            f"{_highest(runs[RAISED]):.2g}. The paper's cut by 9 takes it to "
            f"{_highest(runs[TOO_FAR]):.2g}, and the kNN to {runs[TOO_FAR].knn:.1%}.",
        ],
        table=summary_table(runs),
        figures=[
            Picture.of(figure, f"Over epochs: {what}.") for what, figure in curves(runs).items()
        ],
    )


def _highest(run: RunResult) -> float:
    """The highest effective learning rate of a run."""
    return max(rates(run)[1])


def _simulation_section(simulations: dict[str, tuple[Results, list[Claim]]]) -> Section:
    rows = []
    for name, (_, claims) in simulations.items():
        counts = [str(count) for count in tally(claims).values()]
        rows.append([name, load(name).TITLE, *counts])
    pictures = []
    for name in SHOWN:
        experiment = load(name)
        with style():
            figure = experiment.plot(simulations[name][0])
        pictures.append(Picture.of(figure, f"{experiment.TITLE} (smoke scale)"))
    return Section(
        title="The paper's simulations",
        texts=[
            "The paper's claims at smoke scale, a few seconds each: a first look. The command "
            "below judges them at the paper's scale, each with its number and its interval."
        ],
        table=Table(("experiment", "what", *VERDICTS), rows, numeric=(2, 3, 4)),
        figures=pictures,
    )


def _next_section(runs: dict[str, RunResult]) -> Section:
    best = max(runs, key=lambda name: runs[name].knn)
    return Section(
        title="What to do next",
        texts=[
            "Train on your own images, and look at the effective learning rate in the report: "
            f"the best of these runs, {best}, reached {_highest(runs[best]):.2g}. Which is best "
            "depends on method and images: SimCLR on CIFAR gained up to 0.005. So raise the "
            "learning rate by factors of 3 while the kNN rises, or cut by the square root of the "
            "factor: with SGD both do the same. Stop where the kNN or the rank falls.",
            "In a loop of your own, ns.NormMonitor logs the same number.",
        ],
        commands=[
            "normscope train simsiam --data folder:PATH --epochs 20",
            "normscope train simsiam --data folder:PATH --epochs 20 --cut 3",
            "normscope report runs/*",
            "normscope reproduce all --kind simulation --scale paper",
        ],
    )
