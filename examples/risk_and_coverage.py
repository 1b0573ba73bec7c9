"""How often answers are wrong if only the surest are kept: by confidence, and by the norm."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import normscope as ns

x, y = load_digits(return_X_y=True)
x = x + np.random.default_rng(0).normal(scale=5, size=x.shape)  # hard to read
net = MLPClassifier(48, max_iter=1000, random_state=0).fit(x[:500], y[:500])
z = np.maximum(x @ net.coefs_[0] + net.intercepts_[0], 0)
trust = ns.EmbeddingTrust.fit(z[500:1100], labels=y[500:1100])
test, answers = z[1100:], trust.predict(z[1100:])
by = {"confidence": trust.confidence(test), "norm": np.linalg.norm(test, axis=1)}
figure, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
for name, sure in by.items():
    found = ns.evaluation.risk_coverage(sure, answers == y[1100:])
    half = found.risk[len(found.risk) // 2]
    print(f"{name}: {found.risk[-1]:.1%} of all answers wrong, {half:.1%} of the surer half")
    ax.plot(found.coverage, 100 * found.risk, label=f"by {name}")
ax.set(xlabel="share of rows that are answered", ylabel="wrong answers, %")
ax.legend()
figure.savefig("wrong_answers_over_the_share_that_is_kept.png")
