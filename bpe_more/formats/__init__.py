"""Files of models: those of other programs are read, and save() writes ones that other programs read.

The docstring of Tokenizer explains the settings that only such models have: kept, shared, unreachable, and others.

saving          the files of a model, written
huggingface     tokenizer.json, read
supported       what a tokenizer.json may have, and what is refused
transformers    settings, roles and chat templates
gpt2            vocab.json and merges.txt, and merges as ids
tiktoken        ranks: .tiktoken and tekken.json
kinds           what a file is if it can't be read; minbpe's models
"""
