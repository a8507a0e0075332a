"""One-line faults in the source, and whether the tests that cover it notice: `make mutants`."""
