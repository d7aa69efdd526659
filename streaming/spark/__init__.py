"""The Spark job: the only folder that imports pyspark."""
