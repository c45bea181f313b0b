"""Reads text from files, pipes, strings, Arrow, Parquet and JSON Lines; counts and encodes it on all cores.

slicing     where text may be cut, and the kinds of slices that workers read and work on
inputs      which kind of file a name means; refuses archives, folders and other formats
arrow       columns in Arrow's memory, in files of Arrow, and in Parquet; what an error says of a wrong column
data        reads .gz, .zst and JSON Lines; passes Arrow and Parquet on to arrow
progress    the progress line, with a share, a rate and a time left; printing that stops no work
counting    tables of words, and learning from them
reading     the class Corpus: the files or texts of a call, read by workers
arrays      token ids of a corpus in a file
"""
