"""Text from where it is: files, pipes, texts, columns of Arrow, Parquet, JSON Lines; counted and encoded on all cores.

slicing     where text may be cut, and the slices
inputs      how a file is read, by its name; inputs that can't be read as they are, and the way out
arrow       columns in Arrow's memory, in files of Arrow, and in Parquet
data        JSON Lines, and compressed files
progress    the line with a share, a rate and a time left, and printing that stops no work
counting    tables of words, and learning from them
reading     the class Corpus: the files or texts of a call, read by workers
arrays      token ids of a corpus in a file, and the parts of a long text
"""
