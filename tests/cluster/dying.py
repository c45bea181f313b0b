"""Work that kills its worker, or fills its memory, before it is done. Workers import this module."""

import os
import resource
import time

from bpe_more import cluster

REAL = {name: getattr(cluster, name) for name in ("count_files", "write_counts", "add", "add_files", "encode_file")}


class Dying:
    """A function of bpe_more.cluster with a fault: "die" once, "die always", "fill" the memory, or "wait" after the first."""

    def __init__(self, kind, name, flag):
        self.kind, self.name, self.flag = kind, name, flag

    def __call__(self, job, item):
        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))  # two processes may come here at the same time
            first = True
        except FileExistsError:
            first = False
        if self.kind == "wait" and not first:
            time.sleep(600)
        with open(self.flag, "a") as file:
            file.write("x")
        if self.kind == "die always" or (self.kind == "die" and first):
            os.kill(os.getpid(), 9)
        if self.kind == "fill":
            with open("/proc/self/statm") as file:
                size = int(file.read().split()[0]) * resource.getpagesize()
            limits = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (size + (8 << 20), limits[1]))
            try:
                return REAL[self.name](job, item)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, limits)
        return REAL[self.name](job, item)
