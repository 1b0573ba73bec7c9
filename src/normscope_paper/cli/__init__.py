"""The commands of the reproduction: `normscope reproduce` and `normscope demo`."""
