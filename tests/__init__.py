"""Tests of accelerate. A package, so that `tests.support` is found before any other `tests` on the path."""
