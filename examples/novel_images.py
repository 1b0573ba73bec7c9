"""Which images are new to a network, with pictures: digits, and others that it never saw."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import normscope as ns

x, y = load_digits(return_X_y=True)
net = MLPClassifier(48, max_iter=500, random_state=0).fit(x[:700], y[:700])


def embedded(images: np.ndarray) -> np.ndarray:
    """The raw output of the hidden layer."""
    return np.maximum(images @ net.coefs_[0] + net.intercepts_[0], 0)


random = np.random.default_rng(0)
usual = x[1500:1512]
new = np.concatenate([16 - x[1512:1516], random.permuted(x[1516:1520], axis=1)])
new = np.concatenate([new, random.uniform(0, 16, (4, 64))])  # inverted, shuffled, noise
trust = ns.EmbeddingTrust.fit(embedded(x[700:1500]))  # images that were not trained on
images = np.concatenate([usual, new])
bits = trust.novelty(embedded(images))
figure, axes = plt.subplots(2, 12, figsize=(11, 2.6), layout="constrained")
for image, found, ax in zip(images, bits, axes.flat, strict=True):
    ax.imshow(image.reshape(8, 8), cmap="gray_r")
    ax.set_title(f"{found:.1f} bits", fontsize=9)
    ax.axis("off")
figure.savefig("usual_digits_above_new_images_below.png")
