"""A finished run as a folder to share: weights, config, and a model card made from the run."""

from __future__ import annotations

import json
import math
import os
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from normscope._checks import invalid
from normscope._files import whole_file
from normscope.engine.encoder_file import EncoderConfig, read_encoder, saved
from normscope.engine.run_folder import RunResult

HUB_FILES = ("README.md", "config.json", "model.safetensors")

_CARD = """\
---
library_name: normscope
tags:
- self-supervised-learning
- image-feature-extraction
- {method}
---

# {method}, {net}, trained on {data}

Embeds images of {side} x {side} pixels. Weights: `model.safetensors`; what they are: `config.json`.

```python
import normscope as ns

encoder = ns.load_encoder("this folder")
found = encoder.embed(images)  # PIL images, arrays or tensors; other sizes are resized
found.embeddings, found.norms
```

| layer | width |
|---|---|
{layers}

The loss acts on the {last}: its norms are those that `normscope score` reads.

## The run

| | |
|---|---|
| kNN accuracy of the backbone on the test images | {knn} |
| mean norm of the {last} on the test images | {norm:.4g} |
| loss, mean over the last epoch | {loss:.4f} |
| optimizer steps | {steps:,} |
| normscope | {version} |

Trained with this spec:

```json
{spec}
```
"""


def write_hub_folder(run: Path | str, folder: Path | str, *, force: bool = False) -> Path:
    """Write README.md, config.json and model.safetensors, which `load_encoder` takes.

    Of a dataset of your own, its folder's name is written, not its path.

    Args:
        run: the folder of a finished run.
        folder: a new or empty one.
        force: take also one that holds these files, which are replaced, and hidden ones.

    Returns:
        The folder.
    """
    result, folder = RunResult.load(run), Path(folder)
    _check_folder(folder, force=force)
    config, parts = read_encoder(result.folder)
    config = replace(config, spec={**config.spec, "data": _without_path(result.spec.data)})
    folder.mkdir(parents=True, exist_ok=True)
    contents = (
        _card(config, result).encode(),
        (json.dumps(asdict(config), indent=1) + "\n").encode(),
        saved(parts, config),
    )
    with ExitStack() as stack:  # on leaving it, all get their names
        for name, content in zip(HUB_FILES, contents, strict=True):
            stack.enter_context(whole_file(folder / name)).write_bytes(content)
    return folder


def _check_folder(folder: Path, *, force: bool) -> None:
    """Refuse a folder that is in use, except with `force` for an earlier export."""
    if folder.is_dir():
        names = [path.name for path in folder.iterdir()]
        ours = all(name in HUB_FILES or name.startswith(".") for name in names)
        if not names or (force and ours):
            return
    elif not os.path.lexists(folder):
        return
    advice = "Name another, or replace an earlier export by --force (force=True)."
    raise invalid("folder", "new or empty", str(folder), advice)


def _without_path(data: str) -> str:
    kind, colon, path = data.partition(":")
    return f"{kind}:{Path(path).name}" if colon else data


def _card(config: EncoderConfig, result: RunResult) -> str:
    return _CARD.format(
        **{name: config.spec[name] for name in ("method", "net", "data")},
        side=config.side,
        layers="\n".join(f"| {name} | {width} |" for name, width in config.layers.items()),
        last=list(config.layers)[-1],
        knn="none" if math.isnan(result.knn) else f"{result.knn:.1%}",
        norm=result.norm,
        loss=result.loss,
        steps=result.steps,
        version=config.version,
        spec=json.dumps(config.spec, indent=1),
    )
