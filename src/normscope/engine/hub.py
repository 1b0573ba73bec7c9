"""A finished run as a folder to share: weights, config, and a model card made from the run."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

from normscope._checks import invalid
from normscope._files import whole_file
from normscope.engine.encoder_file import EncoderConfig, read_encoder, saved
from normscope.engine.run_folder import RunResult

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


def write_hub_folder(run: Path | str, folder: Path | str) -> Path:
    """Write README.md, config.json and model.safetensors, which `load_encoder` takes.

    Of a dataset of your own, its folder's name is written, not its path.

    Args:
        run: the folder of a finished run.
        folder: a new or empty one.

    Returns:
        The folder.
    """
    result, folder = RunResult.load(run), Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise invalid("folder", "new or empty", str(folder), "Name another.")
    config, parts = read_encoder(result.folder)
    config = replace(config, spec={**config.spec, "data": _without_path(result.spec.data)})
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "README.md": _card(config, result).encode(),
        "config.json": (json.dumps(asdict(config), indent=1) + "\n").encode(),
        "model.safetensors": saved(parts, config),
    }
    for name, content in contents.items():
        with whole_file(folder / name) as partial:
            partial.write_bytes(content)
    return folder


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
