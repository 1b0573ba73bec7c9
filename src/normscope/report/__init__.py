"""Reads results and draws them; computes nothing anew."""
