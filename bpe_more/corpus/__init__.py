"""Reads text from files, pipes, strings, Arrow, Parquet and JSON Lines; counts and encodes it on all cores.

slicing     where text may be cut, and the kinds of slices that workers read and work on
inputs      how a file is read, by its name; errors for inputs that can't be read, with what to do instead
arrow       columns in Arrow's memory, in files of Arrow, and in Parquet
data        JSON Lines and compressed files; chooses the reader of a file that isn't plain text
progress    the line with a share, a rate and a time left, and printing that stops no work
counting    tables of words, and learning from them
reading     the class Corpus: the files or texts of a call, read by workers
arrays      token ids of a corpus in a file, and the parts of a long text
"""
