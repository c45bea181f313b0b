"""Model files: reads those of other programs, and writes files that other programs can read.

The docstring of Tokenizer explains the settings that only models of other programs have, such as kept and shared.

saving          the files of a model, written
huggingface     tokenizer.json, read: pattern, special tokens, flags such as ignore_merges
supported       what a tokenizer.json may have, and what is refused
transformers    what only transformers reads: settings, with the tokenizer_class; roles; chat templates
gpt2            vocab.json and merges.txt, and merges as ids
tiktoken        ranks: .tiktoken and tekken.json; minbpe's .model
kinds           finds the file in a folder, and says what a file is that can't be read
"""
