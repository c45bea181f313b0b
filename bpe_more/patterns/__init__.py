"""Patterns: how text is split into words, as regex does it, and as tables that C follows.

steps       what patterns and special tokens may be; words in Python; where text may be cut
expressions one expression: its size, how regex compiles it, what Oniguruma reads differently
parsing     a pattern as a tree, and its classes of characters
automaton   the tree as an automaton, which reads each character once
machine     the automaton as tables, and a machine of 16 states that is faster

The first two use bpe.py. The engine needs the others, and a script that is bpe.py must not import it again.
"""
