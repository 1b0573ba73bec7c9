"""EmbeddingTrust in one file: arrays in .safetensors, what is said of them as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from normscope._checks import invalid
from normscope._files import whole_file
from normscope.confidence.delivered import Delivered
from normscope.confidence.foreign import check_kind, only_of
from normscope.confidence.held_out import HeldOut, below
from normscope.confidence.measured import Space
from normscope.confidence.parts import Parts
from normscope.confidence.sureness import Sureness
from normscope.confidence.verdict import Finding, Verdict
from normscope.confidence.voters import Voters
from normscope.evaluation.bank import Bank
from normscope.evaluation.mahalanobis import Cluster

_KIND, _VERSION = "normscope.EmbeddingTrust", 1


def save(
    path: Path,
    said: dict[str, Any],
    ends: np.ndarray,
    space: Space,
    parts: Parts,
    delivered: Delivered,
    voters: Voters | None,
    sureness: Sureness | None,
    verdict: Verdict,
) -> None:
    """Write the pieces of an EmbeddingTrust, atomically."""
    from safetensors.torch import save_file

    if path.is_dir() or not path.parent.is_dir():
        constraint = "a file in a folder that exists"
        raise invalid("path", constraint, str(path), "Make the folder, and name the file.")
    bank, cluster = space.bank, space.cluster
    tensors = {f"bank.{name}": value for name, value in bank.arrays().items()}
    tensors |= {"cluster.mean": cluster.mean.cpu(), "cluster.factor": cluster.factor.cpu()}
    arrays = {"ends": ends, **_under("parts", parts.arrays())}
    said = {
        **said,
        "rows": len(bank),
        "cluster": {"share": cluster.share, "level": cluster.level, "rows": cluster.rows},
        "delivered": {"parts": delivered.parts, "by": delivered.by},
        "verdict": asdict(verdict),
    }
    if delivered.held_out is not None:
        arrays |= _under("delivered", delivered.held_out.arrays())
    if voters is not None:
        tensors["labels"] = voters.labels
        classes = voters.classes
        said["voters"] = {"classes": classes.tolist(), "kind": classes.dtype.str, "k": voters.k}
    if sureness is not None:
        said["sureness"] = sureness.said()
        arrays |= _under("sureness", {"moments": sureness.moments, "weights": sureness.weights})
    tensors |= {k: torch.from_numpy(np.array(v, order="C")) for k, v in arrays.items()}
    text = json.dumps(said)
    metadata = {"kind": _KIND, "version": str(_VERSION), "said": text}
    metadata["digest"] = _digest(text, tensors)
    with whole_file(path) as partial:
        save_file(tensors, partial, metadata=metadata)


def load(path: Path) -> dict[str, Any]:
    """The fields of an EmbeddingTrust; other or damaged files are refused."""
    from safetensors import safe_open

    with only_of("EmbeddingTrust", path, version=_VERSION):
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        check_kind(metadata.get("kind"), metadata.get("version"), kind=_KIND, version=_VERSION)
        if metadata["digest"] != _digest(metadata["said"], tensors):
            raise ValueError
        return _fields(json.loads(metadata["said"]), tensors)


def _digest(said: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """Of all that a file holds: a damaged number would give a wrong score, and no error."""
    found = hashlib.sha256(said.encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.contiguous().numpy().data)
    return found.hexdigest()


def _fields(said: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    kept = {k.removeprefix("bank."): v.clone() for k, v in tensors.items() if k.startswith("bank.")}
    bank = Bank.from_arrays(kept, rows=int(said["rows"]))
    cluster = Cluster(
        tensors["cluster.mean"].clone(), tensors["cluster.factor"].clone(), **said["cluster"]
    )
    # copies lie in memory as the arrays that were saved did, on which the last bit may depend
    arrays = {k: v.numpy().copy() for k, v in tensors.items() if not k.startswith("bank.")}
    together = below("delivered", arrays)
    delivered = Delivered(
        tuple(said["delivered"]["parts"]),
        HeldOut.from_arrays(together) if together else None,
        said["delivered"]["by"],
    )
    return {
        "d": len(cluster.mean),
        "raw": bool(said["raw"]),
        "names": tuple(said["names"]),
        "verdict": _verdict(said["verdict"]),
        "_ends": arrays["ends"],
        "_space": Space(bank, cluster),
        "_parts": Parts.from_arrays(below("parts", arrays)),
        "_delivered": delivered,
        "_voters": _voters(said.get("voters"), tensors),
        "_sureness": _sureness(said.get("sureness"), below("sureness", arrays)),
    }


def _verdict(said: dict[str, Any]) -> Verdict:
    findings = []
    for finding in said["findings"]:
        adds = None if finding["adds"] is None else tuple(finding["adds"])
        findings.append(Finding(**{**finding, "auroc": tuple(finding["auroc"]), "adds": adds}))
    lists = {"findings": tuple(findings), "warnings": tuple(said["warnings"])}
    return Verdict(**{**said, **lists})


def _voters(said: dict[str, Any] | None, tensors: dict[str, torch.Tensor]) -> Voters | None:
    if said is None:
        return None
    classes = np.array(said["classes"], np.dtype(said["kind"]))
    return Voters(classes, tensors["labels"], said["k"])


def _sureness(said: dict[str, Any] | None, arrays: dict[str, np.ndarray]) -> Sureness | None:
    if said is None:
        return None
    lists = {"names": tuple(said["names"]), "auroc": tuple(said["auroc"])}
    return Sureness(**{**said, **lists, **arrays})


def _under(name: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{name}.{k}": v for k, v in arrays.items()}
