"""The paper's figures, tables and simulations, each claim with a computed verdict.

A reproduction of "On the Importance of Embedding Norms in Self-Supervised Learning" (Draganov et
al., ICML 2025), built on the public names of `normscope`. Its commands are `normscope reproduce`
and `normscope demo`.
"""
