"""Spark's daemon of Python workers with all their imports done: each worker is a fork of it, and begins at once.

Spark starts it by the option `spark.python.daemon.module`.
"""

import pyspark.worker  # noqa: F401 - as below
from pyspark.daemon import manager

import streaming.spark.expand  # noqa: F401 - what each worker would import, pandas and Arrow included

if __name__ == "__main__":
    manager()
