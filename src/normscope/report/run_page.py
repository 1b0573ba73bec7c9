"""The page of one run: how it trained, and what its norms say."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

from normscope._environment import versions
from normscope.engine import RunFolder, RunResult, RunSpec
from normscope.report.evaluated import as_written, evaluated_sections, stored_evaluation
from normscope.report.html import Page, Picture, Section, Table
from normscope.report.norm_sections import norms_in_words
from normscope.report.run_curves import check_logged, curves, layers_table

_SAID = ("data", "net", "epochs", "batch", "lr")  # always in the command that repeats a run
_USUAL = {"recipe": "text", "cut": 1.0, "grad_scale": 0.0}  # only if they differ from these


def run_page(folder: Path | str) -> Page:
    """Everything known of a finished run, from its folder's files alone.

    It includes the evaluation if `evaluate` was called.

    Raises:
        ValueError: if the folder is no finished run's, or a file in it is damaged.
    """
    run = RunFolder(Path(folder))
    result = RunResult.load(folder)
    check_logged(result)
    spec = result.spec
    found = stored_evaluation(run.path)
    lead = _training_in_words(result)
    if found is not None:
        with as_written(run.path / "evaluation.json"):
            lead += norms_in_words(found)
    sections = [_training_section(run, result)]
    if found is None:
        advice = f"This run was not evaluated yet: normscope evaluate {shlex.quote(str(folder))}"
        sections.append(Section("What the norms say", [f"{advice} adds the rest of this page."]))
    else:
        sections += evaluated_sections(run.path, found)
    sections.append(_spec_section(run, spec))
    made = f"normscope {versions()['normscope']}, from {run.path.resolve().name}."
    return Page(f"{spec.method} on {spec.data}", lead, sections, made)


def _training_in_words(result: RunResult) -> str:
    """What was trained, and the result."""
    spec = result.spec
    mended = f", cut by {spec.cut:g}" if spec.cut != 1 else ""
    of = "" if spec.grad_scale_of == "each" else f" by the norm's {spec.grad_scale_of}"
    mended += f", GradScale {spec.grad_scale:g}{of}" if spec.grad_scale else ""
    epochs = "an epoch" if spec.epochs == 1 else f"{spec.epochs} epochs"
    right = f"kNN {result.knn:.1%} of the test images right, their mean norm"
    if math.isnan(result.knn):  # it diverged, or its images have no classes
        right = "no kNN accuracy; mean norm of the test images"
    return (
        f"{spec.method} on {spec.data} with {spec.net}{mended}, {epochs}: {right} "
        f"{result.norm:.3g}."
    )


def _training_section(run: RunFolder, result: RunResult) -> Section:
    alarms = [record["line"] for record in result.metrics("alarm")]
    over = [record["line"] for record in result.metrics("withdrawn")]
    drawn = curves({run.path.name: result})
    few = f"Alarms, {len(alarms):,} in all:" if alarms else "No alarm was raised."
    return Section(
        "Training",
        [
            f"{result.steps:,} steps in {result.seconds:.0f} s, {result.images_per_second:,.0f} "
            f"images per second. {_turning(result)}{few}",
            *alarms[:10],
            *over[:10],
        ],
        layers_table(result),
        figures=[Picture.of(figure, f"Over epochs: {what}.") for what, figure in drawn.items()],
    )


def _turning(result: RunResult) -> str:
    """The highest angle of a step, if it was measured."""
    angles = [r["rad_per_step"] for r in result.metrics("step") if r.get("rad_per_step")]
    return f"Layers turned by at most {max(angles):.2g} rad per step. " if angles else ""


def _spec_section(run: RunFolder, spec: RunSpec) -> Section:
    about = run.made()
    made = [f"{name} {value}" for name, value in about["versions"].items()]
    rows = [[name, plain(value)] for name, value in spec.to_dict().items()]
    return Section(
        "Spec and command",
        [
            f"Run on {about['device']}, {about['hardware']}; {', '.join(made)}. "
            f"Data with SHA-256 {about['data_checksum']}."
        ],
        Table(("field", "value"), rows),
        commands=[command(spec)],
        folded=True,
    )


def command(spec: RunSpec) -> str:
    """The command that trains the same again: settings left out are filled in alike.

    >>> command(RunSpec(method="simclr", cut=3.0, options={"temperature": 0.2}))[-41:]
    '--lr 0.18 --cut 3.0 --set temperature=0.2'
    """
    own = ("knn_k",) if ":" in spec.data else ()  # which the command line fits to the images
    said = {name: getattr(spec, name) for name in (*_SAID, *own, *_USUAL)}
    usual = RunSpec(method=spec.method, **said)
    words = ["normscope", "train", spec.method]
    for name, value in said.items():
        if name in (*_SAID, *own) or value != _USUAL[name]:
            words += [f"--{name.replace('_', '-')}", plain(value)]
    changed = {k: v for k, v in spec.to_dict().items() if getattr(usual, k) != v}
    options = {k: v for k, v in changed.pop("options", {}).items() if usual.options.get(k) != v}
    for name, value in {**changed, **options}.items():
        words += ["--set", f"{name}={plain(value)}"]
    return shlex.join(words)


def plain(value: Any) -> str:
    """A value of a spec as text."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {plain(v)}" for name, v in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)
