"""Java classes and collections in Spark's JVM, in few calls through Py4J's gateway."""

from collections.abc import Iterator
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession


def java_class(spark: SparkSession | SparkContext, name: str) -> Any:
    """Return a Java class by its full name.

    Py4J resolves `jvm.org.apache...` name by name, and looks for each in all jars, because a package could be a class.
    """
    return getattr(spark._jvm, name)  # noqa: SLF001 - the only way to Java from Python


def items(collection: Any) -> Iterator[Any]:
    """Yield the items of a Java collection.

    Py4J's own iteration ends with a Java exception. PySpark makes a hundred calls to find out which one it is.
    """
    iterator = collection.iterator()
    while iterator.hasNext():
        yield iterator.next()
