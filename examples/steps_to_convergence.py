"""The paper's Figure 2, left: pairs of points converge slowly if they are long or far apart."""

import matplotlib.pyplot as plt
import numpy as np

from normscope_paper.simulation import steps_to_convergence

norms, alphas = np.linspace(0.5, 4, 15), np.linspace(-0.9, 0.9, 13)
steps = steps_to_convergence(norms, alphas, n=100, lr=2.0)
for norm in (1.0, 2.0, 4.0):
    row = int(np.abs(norms - norm).argmin())
    print(f"norm {norms[row]:.1f}: {steps[row, 6]} steps from a random angle")
figure, ax = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
shown = ax.pcolormesh(alphas, norms, np.log10(np.where(steps > 0, steps, np.nan)))
ax.set(xlabel="angle: -1 opposite, 0 random, 1 aligned", ylabel="norm at the start")
figure.colorbar(shown, label="steps to convergence, powers of ten")
figure.savefig("steps_to_convergence_over_norm_and_angle.png")
