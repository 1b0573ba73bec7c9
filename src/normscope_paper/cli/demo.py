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
    style,
    summary_table,
)
from normscope_paper.cli.side_by_side import train_side_by_side
from normscope_paper.harness.claims import Claim
from normscope_paper.harness.registry import EXPERIMENTS, load
from normscope_paper.harness.results import Results

# c = 3 and 9 are the paper's, for SimCLR and SimSiam
RUNS: dict[str, dict[str, Any]] = {
    "SimCLR": {"method": "simclr"},
    "SimCLR, cut 3": {"method": "simclr", "cut": 3.0},
    "SimCLR, GradScale": {"method": "simclr", "grad_scale": 1.0},
    "SimSiam": {"method": "simsiam"},
    "SimSiam, cut 9": {"method": "simsiam", "cut": 9.0},
}
VERDICTS = ("reproduced", "not reproduced", "inconclusive")
SHOWN = ("convergence_sim", "class_imbalance", "grad_scaling")  # whose figures the page has


def demo(
    folder: Annotated[Path, typer.Option("--out", help="where everything goes")] = Path("demo"),
    epochs: Annotated[int, typer.Option(help="of each of the five runs")] = 60,
) -> None:
    """The main job on embedded data: train, evaluate, simulate, report.

    \b
    normscope demo                 some two minutes on two cores

    Trains SimCLR and SimSiam on scikit-learn's digits as they are, cut, and (SimCLR) behind
    GradScale; runs the paper's simulations at smoke scale; leaves one self-contained
    report.html. Ctrl-C loses nothing of a run: the same command goes on.
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
        _evaluate(runs["SimCLR"].folder)
        simulations = _simulate()
    except (Stopped, KeyboardInterrupt):
        errors.print("Stopped. Every run is kept as it is; the same command goes on.")
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
        with errors.status("evaluating SimCLR"):
            evaluate(run)


def _simulate() -> dict[str, tuple[Results, list[Claim]]]:
    done = {}
    with errors.status("simulating") as status:
        for name in EXPERIMENTS:
            if (experiment := load(name)).KIND == "simulation":
                status.update(f"simulating {name}")
                results = experiment.run("smoke", 0, experiment.SEEDS["smoke"])
                done[name] = results, experiment.check(results)
    return done


def _page(
    runs: dict[str, RunResult],
    simulations: dict[str, tuple[Results, list[Claim]]],
    seconds: float,
) -> Page:
    return Page(
        title="What embedding norms do to self-supervised learning",
        lead="The direction of an embedding is what the network says; its norm is how sure it is, "
        "and how slowly it will learn.",
        sections=[
            _runs_section(runs),
            norms_section(runs["SimCLR"].folder),
            _simulation_section(simulations),
            _next_section(),
        ],
        footer=f"normscope {versions()['normscope']}, {seconds:.0f} s on {processor()}.",
    )


def _runs_section(runs: dict[str, RunResult]) -> Section:
    drawn = curves(runs)
    return Section(
        title="Five runs on handwritten digits",
        texts=[
            "The cosine similarity's gradient is divided by the norm of the embedding, so long "
            "embeddings learn slowly. Two ways out: divide all initial weights by a constant, or "
            "multiply each gradient by its norm (with a sixth of the learning rate).",
            "Cut-initialisation starts with short embeddings, and so with a large effective "
            "learning rate. Whether that helps depends on where the rate was before; the table "
            "tells for digits.",
        ],
        table=summary_table(runs),
        figures=[Picture.of(figure, f"Over epochs: {what}.") for what, figure in drawn.items()],
    )


def _simulation_section(simulations: dict[str, tuple[Results, list[Claim]]]) -> Section:
    rows = []
    for name, (_, claims) in simulations.items():
        verdicts = [claim.verdict for claim in claims]
        counts = [str(verdicts.count(verdict)) for verdict in VERDICTS]
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


def _next_section() -> Section:
    return Section(
        title="Go on",
        commands=[
            "normscope train simclr --data cifar10 --cut 3 --epochs 100",
            "normscope evaluate RUN",
            "normscope report RUN",
            "normscope reproduce all --kind simulation --scale paper",
            "normscope data list",
        ],
    )
