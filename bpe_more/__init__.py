"""What bpe.py loads when somebody needs it, and it is here; bpe.py is the definition."""

VERSION = "0.7.0"  # that of bpe.py: versions can mix, and then this folder is not used
