"""The paper's closed forms, with its slips corrected.

Batched, any dtype, any device; the path integrals alone are float64 on the CPU.
"""

from normscope.theory.gradients import InfoNceGrad, cosine_grad, info_nce_grad
from normscope.theory.opposite_halves import opposite_halves_bound, opposite_halves_probability
from normscope.theory.potential import PathWork, grad_scale_field, grad_scale_work, path_integral
from normscope.theory.steps import norm_after_step, printed_bound_fails, step_gain, step_gain_bound

__all__ = [
    "InfoNceGrad",
    "PathWork",
    "cosine_grad",
    "grad_scale_field",
    "grad_scale_work",
    "info_nce_grad",
    "norm_after_step",
    "opposite_halves_bound",
    "opposite_halves_probability",
    "path_integral",
    "printed_bound_fails",
    "step_gain",
    "step_gain_bound",
]
