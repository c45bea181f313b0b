"""Strong forms of functions of bpe.py, for work that must not fail, and what only some users need.

bpe.py defines the results; this folder must give the same.

    outputs     files that are whole or not there
    corpora     counting and encoding on all cores, with progress
    inputs      inputs that can't be read as they are: what they are, and the way out
    data        columns of Arrow, Parquet, JSON Lines, and compressed files
    changes     more tokens from new text, other names for special tokens, fewer tokens
    steps       patterns in several steps, and limits for patterns of strangers
    formats     files of other programs: tokenizer.json, .tiktoken, transformers' settings
    kinds       models of Mistral and minbpe, and what other files are
    models      the Tokenizer for models of other programs
    command     the command line in full
    explain     --show, --explain and --compare
    engine      the C engine with tables of words and encoders
    patterns    a pattern as an automaton
    machine     the automaton as tables for C, and a machine that is faster
    cluster     training and encoding on a cluster
    tasks       tasks on the workers of Dask, Ray and Spark, or in processes of this machine
    urls        files of this machine, and those that URLs name
"""

VERSION = "0.8.0"  # that of bpe.py: versions can mix, and then this folder is not used

# bpe.py checks VERSION at its end, and then imports the modules of this folder, which use its names. So bpe.py
# comes first, even for `import bpe_more.models`.
import bpe  # noqa: E402, F401
