"""What one can do about the norms: act on any nn.Module or tensor, knowing no loss or method."""

from normscope.interventions.cut_init import cut_init_
from normscope.interventions.grad_scale import GradScale, grad_scale
from normscope.interventions.probes import scale_invariant_parameters, suggest_cut

__all__ = ["GradScale", "cut_init_", "grad_scale", "scale_invariant_parameters", "suggest_cut"]
