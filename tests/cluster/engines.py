"""A client of each engine for tasks. Drivers that tests kill import this module."""

import contextlib
import importlib.util
import os
import shutil

PACKAGES = {"local": "bpe", "dask": "distributed", "ray": "ray", "spark": "pyspark"}


@contextlib.contextmanager
def client_of(name):
    """Give a client with two worker processes."""
    if name == "local":
        yield None
    elif name == "dask":
        from distributed import Client

        with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
            yield client
    elif name == "ray":
        import ray

        with ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False, object_store_memory=100 << 20):
            yield ray
    else:
        from pyspark import SparkConf, SparkContext

        settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
        settings["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # Java starts sooner
        # two worker processes, and four attempts for each task
        with SparkContext("local[2,4]", "bpe", conf=SparkConf().setAll(settings.items())) as context:
            yield context


def available(name):
    """Skip a test if an engine isn't here."""
    import pytest

    if not importlib.util.find_spec(PACKAGES[name]):
        assert name == "spark" or not os.environ.get("BPE_REQUIRE_CLUSTER")
        pytest.skip(f"{PACKAGES[name]} is not installed")
    if name == "spark" and not shutil.which("java"):
        pytest.skip("Spark needs Java")
    return name
