"""Which images are new, in cleanlab's Datalab: handwritten digits with noise among them."""

import numpy as np
from cleanlab import Datalab
from sklearn.datasets import load_digits

import normscope as ns
import normscope.integrations.cleanlab  # registers the issue "novelty"

digits, labels = load_digits(return_X_y=True)
known, new = digits[:1500], digits[1500:].copy()
new[:10] = np.random.default_rng(0).uniform(0, 16, new[:10].shape)  # ten are noise
trust = ns.EmbeddingTrust.fit(known)  # pixels stand in for a network's raw embeddings
lab = Datalab({"label": labels[1500:]}, label_name="label", verbosity=0)
lab.find_issues(issue_types={"novelty": {"trust": trust, "features": new}, "class_imbalance": {}})
lab.report(show_summary_score=True)
issues = lab.get_issues("novelty")
print("new:", *issues.index[issues["is_novelty_issue"]])
