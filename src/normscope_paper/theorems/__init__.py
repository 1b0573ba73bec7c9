"""The paper's statements that have no figure, put to the test."""
