"""The loss of DINO, which is not cosine-based: the paper's counter-example."""

from __future__ import annotations

import torch
from torch import Tensor

from normscope._checks import check_floating, check_number, invalid


def dino(
    student: Tensor,
    teacher: Tensor,
    center: Tensor,
    *,
    student_temperature: float = 0.1,
    teacher_temperature: float = 0.04,
) -> Tensor:
    r"""Cross-entropy of the student's views against the centred, sharpened teacher's.

    $\operatorname{mean}_{v \ne w} \operatorname{mean}_i \; -\sum_m
    \mathrm{softmax}\!\left(\tfrac{t_{wi} - c}{\tau_t}\right)_m
    \log \mathrm{softmax}\!\left(\tfrac{s_{vi}}{\tau_s}\right)_m$

    over pairs of a student view v and a teacher view w that are not the same view. No gradient
    reaches the teacher or the centre.

    Args:
        student: logits of all views, (v, n, m); the first w of them are the teacher's views.
        teacher: logits of the global views, (w, n, m), w at most v.
        center: c, (m,); see `updated_center`.
        student_temperature: $\tau_s$; DINO (Caron et al., 2021, Section 3.2) takes .1.
        teacher_temperature: $\tau_t$; DINO takes .04, warmed up to .07 for long runs.

    >>> logits = torch.zeros(2, 3, 4)
    >>> dino(logits, logits, torch.zeros(4))  # log 4: both are uniform
    tensor(1.3863)
    """
    check_floating("student", student, "(v, n, m)", ndim=3, advice="Stack the views' logits.")
    check_floating("teacher", teacher, "(w, n, m)", ndim=3, advice="Stack the views' logits.")
    check_floating("center", center, "(m,)", ndim=1, advice="Start from zeros.")
    tau_s = check_number("student_temperature", student_temperature, "DINO uses 0.1.")
    tau_t = check_number("teacher_temperature", teacher_temperature, "DINO uses 0.04.")
    views, global_views = len(student), len(teacher)
    if student.shape[1:] != teacher.shape[1:] or not 1 <= global_views <= views or views < 2:
        constraint = (
            f"(w, n, m) with w from 1 to v, v at least 2, and student {tuple(student.shape)}"
        )
        raise invalid("teacher", constraint, teacher, "Its views are the student's first.")
    if center.shape != teacher.shape[2:]:
        raise invalid("center", f"of shape ({teacher.shape[2]},)", center, "One number a logit.")
    if student.numel() == 0:
        raise invalid("student", "at least one row and one logit", student, "Skip empty batches.")
    wide = torch.promote_types(torch.promote_types(student.dtype, teacher.dtype), torch.float32)
    target = ((teacher.detach().to(wide) - center.detach().to(wide)) / tau_t).softmax(-1)
    log_p = (student.to(wide) / tau_s).log_softmax(-1)
    with torch.autocast(student.device.type, enabled=False):
        entropy = -torch.einsum("wnm,vnm->wv", target, log_p) / student.shape[1]
    same_view = torch.eye(global_views, views, dtype=torch.bool, device=entropy.device)
    return entropy.masked_fill(same_view, 0).sum() / (~same_view).sum()


@torch.no_grad()
def updated_center(center: Tensor, teacher: Tensor, *, momentum: float = 0.9) -> Tensor:
    r"""$m c + (1 - m)\, \mathrm{mean}(t)$: the centre after seeing one batch of teacher logits.

    Args:
        center: (m,).
        teacher: logits, (w, n, m).
        momentum: DINO takes .9.

    >>> updated_center(torch.zeros(2), torch.ones(2, 3, 2))
    tensor([0.1000, 0.1000])
    """
    check_floating("center", center, "(m,)", ndim=1, advice="Start from zeros.")
    check_floating("teacher", teacher, "(w, n, m)", ndim=3, advice="Stack the views' logits.")
    if teacher.shape[2:] != center.shape or teacher.numel() == 0:
        raise invalid("teacher", f"(w, n, {len(center)}), not empty", teacher, "As for `dino`.")
    momentum = check_number("momentum", momentum, "DINO uses 0.9.", positive=False)
    if not 0 <= momentum <= 1:
        raise invalid("momentum", "between 0 and 1", momentum, "DINO uses 0.9.")
    return center.lerp(teacher.to(center.dtype).mean((0, 1)), 1 - momentum)
